/* Kernel cases of the detector's ops: matching, its losses, detections. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ops/anchors.h"
#include "support_cases.h"

static void *capacity(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count, size);
    assert_non_null(memory);
    return memory;
}

static double between(struct cvy_rng *rng, double low, double high)
{
    return cvy_rng_range(rng, low, high);
}

/* ---- matching ---- */

/* A box of any size, now and then one that reaches beyond the image, an empty one, a number that is none. */
static void draw_box(struct cvy_rng *rng, float box[4])
{
    for (int i = 0; i < 2; i++) {
        const double side = exp(between(rng, log(0.02), 0)), at = between(rng, 0, 1.2 - side);
        box[i] = (float)at;
        box[i + 2] = (float)(at + side);
    }
    switch (cvy_rng_below(rng, 24)) {
    case 0:
        box[2] = box[0];
        break;
    case 1:
        box[cvy_rng_below(rng, 4)] = NAN;
        break;
    case 2:
        box[0] += 9;
        box[2] += 9;
        break;
    default:
        break;
    }
}

/* `rows` of them for each image, the last few of which are padding; some twice. */
static void check_match(const struct detection_shape *s, const struct cvy_anchors *anchors)
{
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_TEST, (uint32_t)s->rows, (uint32_t)s->n);
    const int64_t count = cvy_anchors_count(anchors);
    struct kernel_case kernel =
        kernel_begin(CVY_OP_DETECTION_MATCH, DATA_FLOATS, "%dx%dx%d boxes %d", s->n, s->height, s->width, s->rows);
    float(*boxes)[4] = capacity((int64_t)s->n * s->rows, sizeof *boxes);
    int32_t *labels = capacity((int64_t)s->n * s->rows, sizeof *labels);
    for (int i = 0; i < s->n * s->rows; i++) {
        const int row = i % s->rows, padding = i / s->rows * 3; /* the first image has none */
        draw_box(&rng, boxes[i]);
        for (int k = 0; k < 4 && row > 0 && cvy_rng_below(&rng, 8) == 0; k++)
            boxes[i][k] = boxes[i - 1][k];
        labels[i] = row + padding < s->rows ? 1 + (int32_t)cvy_rng_below(&rng, (uint32_t)s->classes) : 0;
    }
    kernel.desc.attr.anchors = *anchors;
    kernel_input(&kernel, cvy_shape3(s->n, s->rows, 4), FILL_GIVEN);
    kernel.desc.in[kernel_input(&kernel, cvy_shape2(s->n, s->rows), FILL_GIVEN)].dtype = CVY_I32;
    kernel.in[0] = boxes;
    kernel.in[1] = labels;
    kernel.desc.out[kernel_output(&kernel, cvy_shape2(s->n, count), kernel_exact)].dtype = CVY_I32;
    kernel_output(&kernel, cvy_shape3(s->n, count, 4), kernel_few);
    kernel_output(&kernel, cvy_shape0(), kernel_exact);
    kernel_check(&kernel);
}

/* ---- losses ---- */

static struct kernel_case loss_case(enum cvy_op op, const struct detection_shape *s, enum kernel_data data,
                                    const char *form)
{
    return kernel_begin(op, data, "%dx%dx%d classes %d%s", s->n, s->height, s->width, s->classes, form);
}

/* `every`: one of this many anchors has a class. */
static void check_focal(const struct detection_shape *s, int64_t count, enum kernel_data data, bool every)
{
    const struct cvy_shape logits = cvy_shape3(s->n, count, s->classes + 1);
    for (int backward = data == DATA_SPECIAL; backward < 2; backward++) {
        struct kernel_case kernel =
            loss_case(backward ? CVY_OP_FOCAL_LOSS_BWD : CVY_OP_FOCAL_LOSS, s, data, every ? " all matched" : "");
        kernel.labels = s->classes + 1;
        kernel.bytes = 4.0 * (1 + backward) * (double)cvy_shape_elements(&logits);
        kernel_input(&kernel, logits, data == DATA_SPECIAL ? FILL_RARE : FILL_LOGITS);
        kernel.desc.in[kernel_input(&kernel, cvy_shape2(s->n, count), every ? FILL_LABELS : FILL_FEW_LABELS)].dtype =
            CVY_I32;
        kernel_input(&kernel, cvy_shape0(), FILL_POSITIVE);
        if (backward)
            kernel_input(&kernel, cvy_shape0(), FILL_POSITIVE);
        kernel_output(&kernel, backward ? logits : cvy_shape0(), kernel_few);
        kernel_check(&kernel);
    }
}

static void check_smooth_l1(const struct detection_shape *s, int64_t count, enum kernel_data data)
{
    const struct cvy_shape codes = cvy_shape3(s->n, count, 4);
    for (int backward = data == DATA_SPECIAL; backward < 2; backward++) {
        struct kernel_case kernel =
            loss_case(backward ? CVY_OP_SMOOTH_L1_LOSS_BWD : CVY_OP_SMOOTH_L1_LOSS, s, data, "");
        kernel.labels = s->classes + 1;
        kernel_input(&kernel, codes, FILL_SMALL);
        kernel_input(&kernel, codes, FILL_SMALL);
        kernel.desc.in[kernel_input(&kernel, cvy_shape2(s->n, count), FILL_FEW_LABELS)].dtype = CVY_I32;
        kernel_input(&kernel, cvy_shape0(), FILL_POSITIVE);
        if (backward)
            kernel_input(&kernel, cvy_shape0(), FILL_POSITIVE);
        kernel_output(&kernel, backward ? codes : cvy_shape0(), kernel_few);
        kernel_check(&kernel);
    }
}

static void check_l2(const struct detection_shape *s, int weights)
{
    struct kernel_case kernel =
        kernel_begin(CVY_OP_L2_LOSS, DATA_FLOATS, "%d weights of %dx%d", weights, s->height, s->width);
    kernel.desc.attr.l2_loss.factor = 0.25F;
    if (weights % 2)
        kernel_input(&kernel, cvy_shape0(), FILL_POSITIVE);
    else
        kernel_absent_input(&kernel);
    for (int i = 0; i < weights; i++)
        kernel_input(&kernel, i % 2 ? cvy_shape2(s->height, s->width) : cvy_shape4(s->height, i + 1, 3, 1), FILL_SMALL);
    kernel_output(&kernel, cvy_shape0(), kernel_few);
    kernel_check(&kernel);
}

/* ---- detections ---- */

enum scene {
    SCENE_TRAINED, /* some objects, each found by all anchors that overlap it, and scores of 1 % elsewhere */
    SCENE_RANDOM,  /* what random weights say: scores around 1 % everywhere */
    SCENE_TIES,    /* a few different scores */
    SCENE_SPECIAL, /* NaN and infinities among the numbers */
    SCENE_CROWD,   /* every anchor says the same box, so that all are looked at */
    SCENE_COUNT
};
static const char *const scene_names[] = {"trained", "random", "ties", "special", "crowd"};

static void draw_objects(const struct detection_shape *s, const struct cvy_anchor_grid *grid, struct cvy_rng *rng,
                         float *codes, float *logits)
{
    for (int object = 0; object < 12; object++) {
        const int64_t label = (int64_t)cvy_rng_below(rng, (uint32_t)s->classes);
        float box[4];
        do
            draw_box(rng, box);
        while (!cvy_box_valid(1, box) || !(cvy_box_area(box) > 0) || box[0] > 1);
        for (int32_t a = 0; a < grid->count; a++) {
            float anchor[4];
            double code[4];
            cvy_anchor_at(grid, a, anchor);
            const float overlap = cvy_box_overlap(box, cvy_box_area(box), anchor, cvy_box_area(anchor));
            if (!(overlap > 0.4F))
                continue;
            cvy_box_encode(box, anchor, code);
            for (int i = 0; i < 4; i++)
                codes[4 * a + i] = (float)(code[i] + 0.3 * cvy_rng_normal(rng));
            logits[a * (s->classes + 1) + 1 + label] = (float)(12 * ((double)overlap - 0.5) + cvy_rng_normal(rng));
        }
    }
}

static void draw_scene(const struct detection_shape *s, const struct cvy_anchor_grid *grid, enum scene scene,
                       float *codes, float *logits)
{
    static const float few[] = {-30, -30, -30, 0, 0.5F, 18, 19, 30}, special[] = {NAN, INFINITY, -INFINITY, 90, -90};
    const float everywhere[4] = {0.3F, 0.2F, 0.7F, 0.9F};
    struct cvy_rng rng = cvy_rng_new(6, CVY_RNG_TEST, (uint32_t)scene, (uint32_t)s->n);
    const int64_t logit_count = (int64_t)grid->count * (s->classes + 1);
    const double centre = scene == SCENE_TRAINED ? -6 : -4.6, spread = scene == SCENE_TRAINED ? 1 : 0.3;
    for (int64_t i = 0; i < logit_count; i++) {
        logits[i] = scene == SCENE_TIES ? few[cvy_rng_below(&rng, 8)] : (float)(centre + spread * cvy_rng_normal(&rng));
        if (scene == SCENE_SPECIAL && cvy_rng_below(&rng, 97) == 0)
            logits[i] = special[cvy_rng_below(&rng, 5)];
    }
    for (int32_t i = 0; i < 4 * grid->count; i++) {
        codes[i] = (float)(0.5 * cvy_rng_normal(&rng));
        if (scene == SCENE_SPECIAL && cvy_rng_below(&rng, 31) == 0)
            codes[i] = i % 4 < 2 || cvy_rng_below(&rng, 2) ? special[cvy_rng_below(&rng, 5)] : 1e6F;
    }
    if (scene == SCENE_TRAINED)
        draw_objects(s, grid, &rng, codes, logits);
    for (int32_t a = 0; a < grid->count && scene == SCENE_CROWD; a++) {
        float anchor[4];
        double code[4];
        cvy_anchor_at(grid, a, anchor);
        cvy_box_encode(everywhere, anchor, code);
        for (int i = 0; i < 4; i++)
            codes[4 * a + i] = (float)code[i];
    }
}

static void check_detections(const struct detection_shape *s, const struct cvy_anchors *anchors, enum scene scene,
                             const struct cvy_detect_attr *attr)
{
    const struct cvy_anchor_grid grid = cvy_anchors_grid(anchors);
    struct kernel_case kernel =
        kernel_begin(CVY_OP_DETECT, DATA_FLOATS, "%dx%dx%d classes %d %s, %d of %d", s->n, s->height, s->width,
                     s->classes, scene_names[scene], attr->max_boxes, attr->max_per_class);
    float *codes = capacity((int64_t)s->n * grid.count * 4, sizeof *codes);
    float *logits = capacity((int64_t)s->n * grid.count * (s->classes + 1), sizeof *logits);
    for (int n = 0; n < s->n; n++) {
        struct detection_shape image = *s;
        image.n = n; /* other numbers for each image */
        draw_scene(&image, &grid, scene, codes + (int64_t)n * grid.count * 4,
                   logits + (int64_t)n * grid.count * (s->classes + 1));
    }
    kernel.desc.attr.detect = *attr;
    kernel.desc.attr.detect.anchors = *anchors;
    kernel_input(&kernel, cvy_shape3(s->n, grid.count, 4), FILL_GIVEN);
    kernel_input(&kernel, cvy_shape3(s->n, grid.count, s->classes + 1), FILL_GIVEN);
    kernel.in[0] = codes;
    kernel.in[1] = logits;
    kernel_output(&kernel, cvy_shape3(s->n, attr->max_boxes, 4), kernel_few);
    kernel_output(&kernel, cvy_shape2(s->n, attr->max_boxes), kernel_few);
    kernel.desc.out[kernel_output(&kernel, cvy_shape2(s->n, attr->max_boxes), kernel_exact)].dtype = CVY_I32;
    kernel.desc.out[kernel_output(&kernel, cvy_shape1(s->n), kernel_exact)].dtype = CVY_I32;
    kernel_check(&kernel);
}

void check_detection(const struct detection_shape *s)
{
    static const struct cvy_detect_attr attrs[] = {
        {.iou = 0.6F, .score = 1e-8F, .max_per_class = 100, .max_boxes = 100},
        {.iou = 0.3F, .score = 0.02F, .max_per_class = 3, .max_boxes = 17}};
    const struct cvy_anchors anchors = cvy_anchors_ssd(s->height, s->width);
    const int64_t count = cvy_anchors_count(&anchors);
    assert_int_equal(cvy_anchors_check(&anchors), CVY_OK);
    check_match(s, &anchors);
    check_focal(s, count, DATA_FLOATS, false);
    check_focal(s, count, DATA_FLOATS, true);
    check_focal(s, count, DATA_SPECIAL, false);
    check_smooth_l1(s, count, DATA_FLOATS);
    check_smooth_l1(s, count, DATA_SPECIAL);
    for (int weights = 1; weights <= CVY_MAX_TERMS - 1; weights += 3)
        check_l2(s, weights);
    for (int scene = 0; scene < SCENE_COUNT; scene++)
        for (int i = 0; i < 2; i++)
            check_detections(s, &anchors, (enum scene)scene, &attrs[i]);
}
