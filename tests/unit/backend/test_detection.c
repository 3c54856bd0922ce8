/* Detection of objects: anchors, matching, losses and suppression of the reference, against numbers worked out by hand
 * or in exact arithmetic. */
#include "ops/anchors.h"
#include "ops/ops.h"
#include "support_executor.h"
#include "support_graph.h"
#include "support_test.h"

static int setup(void **state)
{
    *state = executor_device("ref", 2);
    return 0;
}

static int teardown(void **state)
{
    cvy_device_close(*state);
    return 0;
}

static void close_to(double value, double wanted, double relative)
{
    if (!(fabs(value - wanted) <= relative * fabs(wanted)))
        fail_msg("%.12g instead of %.12g", value, wanted);
}

/* ---- anchors ---- */

static float (*anchors_of(const struct cvy_anchors *anchors, int64_t *count))[4]
{
    float(*boxes)[4];

    assert_int_equal(cvy_anchors_check(anchors), CVY_OK);
    *count = cvy_anchors_count(anchors);
    boxes = calloc((size_t)*count, sizeof *boxes);
    assert_non_null(boxes);
    cvy_anchors_fill(anchors, boxes[0]);
    return boxes;
}

static void anchors_of_320(void **state)
{
    static const int64_t first[] = {0, 9600, 12000, 12600, 12750, 12804};
    static const struct {
        int index;
        double box[4];
    } known[] = {{0, {-0.0375, -0.0375, 0.0625, 0.0625}},
                 {12750, {-0.8, -0.8, 0.8, 0.8}},
                 {10844, {0.4542893, 0.2335786, 0.5957107, 0.5164214}}};
    const struct cvy_anchors anchors = cvy_anchors_ssd(320, 320);
    int64_t count;
    float(*boxes)[4] = anchors_of(&anchors, &count);

    assert_int_equal(count, 12804);
    for (int i = 0; i <= 5; i++)
        assert_int_equal(cvy_anchors_first(&anchors, i), first[i]);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        for (int k = 0; k < 4; k++) /* half a unit of the seventh digit that is given, and of a float */
            assert_true(fabs((double)boxes[known[i].index][k] - known[i].box[k]) < 9e-8);
    }
    free(boxes);
}

/* The last of each level, in an image whose sides are no multiples of each other or of most strides. */
static void anchors_of_other_sizes(void **state)
{
    const struct cvy_anchors anchors = cvy_anchors_ssd(96, 200);
    /* Rows and columns: ceil(96 / 8), ceil(200 / 8) and so on. */
    static const int extents[5][2] = {{12, 25}, {6, 13}, {3, 7}, {2, 4}, {1, 2}};
    int64_t count, at = 0;
    float(*boxes)[4] = anchors_of(&anchors, &count);

    for (int i = 0; i < 5; i++) {
        const int stride = 8 << i;
        /* Aspect 1/2 at scale sqrt 2: 2 sqrt 2 high for 4 strides of sqrt 2 ... 8 by 4 strides. */
        const double centre[2] = {stride * (extents[i][0] - 1) + (96 % stride ? 0 : stride / 2),
                                  stride * (extents[i][1] - 1) + (200 % stride ? 0 : stride / 2)};
        int64_t extent[2];
        cvy_anchors_extent(&anchors, i, extent);
        assert_int_equal(extent[0], extents[i][0]);
        assert_int_equal(extent[1], extents[i][1]);
        at += 6 * extent[0] * extent[1];
        close_to((double)boxes[at - 1][0], (centre[0] - 4 * stride) / 96, 1e-6);
        close_to((double)boxes[at - 1][1], (centre[1] - 2 * stride) / 200, 1e-6);
        close_to((double)boxes[at - 1][2], (centre[0] + 4 * stride) / 96, 1e-6);
        close_to((double)boxes[at - 1][3], (centre[1] + 2 * stride) / 200, 1e-6);
    }
    assert_int_equal(at, count);
    free(boxes);
}

static void impossible_anchors(void **state)
{
    struct cvy_anchors good = cvy_anchors_ssd(320, 320), bad[8];

    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].image[1] = 0;
    bad[1].image[0] = 1 << 20;
    bad[2].levels = CVY_MAX_LEVELS + 1;
    bad[3].first_level = -1;
    bad[4].scales = 0;
    bad[5].aspect_count = CVY_MAX_ASPECTS + 1;
    bad[6].aspects[2] = NAN;
    bad[7].size = 0;
    for (int i = 0; i < 8; i++)
        assert_int_equal(cvy_anchors_check(&bad[i]), CVY_USAGE);
    good.image[0] = good.image[1] = 1 << 14;
    good.first_level = 0;
    assert_int_equal(cvy_anchors_check(&good), CVY_USAGE); /* 2^28 locations */
}

/* ---- matching ---- */

/* A few large anchors: level 5 of an image of 64 x 64, aspects 1 and 2: 4 locations, 8 anchors. */
static struct cvy_anchors few_anchors(void)
{
    return (struct cvy_anchors){
        .image = {64, 64}, .first_level = 5, .levels = 1, .scales = 1, .aspect_count = 2, .aspects = {1, 2}, .size = 1};
}

struct match {
    int32_t classes[16];
    double targets[16][4], positives;
};

static void run_match(void *device, const struct cvy_anchors *anchors, int64_t batch, int64_t rows, const double *boxes,
                      const int32_t *labels, struct match *match)
{
    const int64_t count = cvy_anchors_count(anchors);
    struct cvy_op_desc desc = executor_desc(CVY_OP_DETECTION_MATCH, 2, 3);

    assert_true(batch * count <= 16);
    desc.attr.anchors = *anchors;
    desc.in[0] = executor_tensor(CVY_F64, cvy_shape3(batch, rows, 4));
    desc.in[1] = executor_tensor(CVY_I32, cvy_shape2(batch, rows));
    desc.out[0] = executor_tensor(CVY_I32, cvy_shape2(batch, count));
    desc.out[1] = executor_tensor(CVY_F64, cvy_shape3(batch, count, 4));
    desc.out[2] = executor_tensor(CVY_F64, cvy_shape0());
    executor_run_checked(device, &desc, (const void *[]){boxes, labels},
                         (void *[]){match->classes, match->targets, &match->positives});
}

static void known_codes(void **state)
{
    /* Anchor 10844 of 320 and the box [0.4, 0.3, 0.7, 0.8]. Anchors are floats: their corners are off by 3e-8, which is
     * 1.1e-6 of the distance between the centres. */
    static const double wanted[] = {1.7677670, 6.1871843, 3.7601935, 2.8485857};
    const struct cvy_anchors anchors = cvy_anchors_ssd(320, 320);
    const float box[] = {0.4F, 0.3F, 0.7F, 0.8F};
    const struct cvy_anchor_grid grid = cvy_anchors_grid(&anchors);
    float anchor[4], back[4];
    double code[4];

    cvy_anchor_at(&grid, 10844, anchor);
    close_to((double)cvy_box_overlap(box, cvy_box_area(box), anchor, cvy_box_area(anchor)), 0.1920193, 5e-7);
    cvy_box_encode(box, anchor, code);
    for (int i = 0; i < 4; i++)
        close_to(code[i], wanted[i], 4e-6);
    cvy_box_decode(code, anchor, back);
    for (int i = 0; i < 4; i++)
        close_to((double)back[i], (double)box[i], 2e-7); /* a rounding, and what the 1e-8 does to sides of 0.3 */
    /* A box without height is 1e-8 high. */
    cvy_box_encode((const float[]){0.5F, 0.3F, 0.5F, 0.8F}, anchor, code);
    close_to(code[2], 5 * log(1e-8 / ((double)anchor[2] - (double)anchor[0])), 1e-7);
}

static void best_boxes_and_forced_ones(void **state)
{
    /* Squares of 32 (0.5) around (16, 16), (16, 48), (48, 16), (48, 48), each followed by one 22.6 high and 45.3 wide.
     * Row 0 is the first square; row 1 is the same box again, which loses the tie for anchor 0 and, being forced onto
     * the same anchor as row 0, gets none; row 2 overlaps nothing by 0.5 and is forced onto the last square; row 3
     * meets no anchor at all and takes anchor 0 from nobody, since row 0 comes first; row 4 is NaN, row 5 padding. */
    const double boxes[6][4] = {{0, 0, 0.5, 0.5}, {0, 0, 0.5, 0.5}, {0.75, 0.75, 0.875, 0.875},
                                {2, 2, 2.5, 2.5}, {0, 0, NAN, 1},   {0, 0, 0, 0}};
    const int32_t labels[6] = {7, 8, 9, 10, 11, 0};
    const struct cvy_anchors anchors = few_anchors();
    struct match m;

    run_match(*state, &anchors, 1, 6, boxes[0], labels, &m);
    assert_int_equal(m.classes[0], 7);
    /* The wide anchor over the first square: it covers 22.6 x 38.6 of the 32 x 32 inside the image's part of it: (22.63
     * x 32) / (1024 + 22.63 x 45.25 - 724) = 0.547. */
    assert_int_equal(m.classes[1], 7);
    for (int a = 2; a < 8; a++)
        assert_int_equal(m.classes[a], a == 6 ? 9 : 0);
    assert_true(m.positives == 3);
    for (int i = 0; i < 4; i++) {
        assert_true(m.targets[0][i] == 0); /* the box itself */
        assert_true(m.targets[2][i] == 0);
    }
    /* Centre 52 instead of 48 px, side 8 instead of 32. */
    close_to(m.targets[6][0], 10 * 4.0 / 32, 1e-6);
    close_to(m.targets[6][3], 5 * log(8.0 / 32), 1e-6);
}

static void a_box_far_away_takes_the_first_anchor(void **state)
{
    const double boxes[2][4] = {{2, 2, 2.5, 2.5}, {0, 0, 0, 0}};
    const int32_t labels[2] = {3, 0};
    const struct cvy_anchors anchors = few_anchors();
    struct match m;

    run_match(*state, &anchors, 1, 2, boxes[0], labels, &m);
    for (int a = 0; a < 8; a++)
        assert_int_equal(m.classes[a], a == 0 ? 3 : 0);
    assert_true(m.positives == 1);
    close_to(m.targets[0][0], 10 * (2.25 - 0.25) / 0.5, 1e-6);
}

static void images_without_boxes(void **state)
{
    const double boxes[2][1][4] = {{{0.1, 0.1, 0.4, 0.4}}, {{NAN, 0, 1, 1}}};
    const int32_t labels[2] = {0, 5};
    const struct cvy_anchors anchors = few_anchors();
    struct match m;

    run_match(*state, &anchors, 2, 1, boxes[0][0], labels, &m);
    for (int a = 0; a < 16; a++)
        assert_int_equal(m.classes[a], 0);
    assert_true(m.positives == 1); /* what the losses are divided by */
}

/* A row forced onto an anchor that would find a box of its own: the forced one wins, also against a better overlap. */
static void forced_against_better(void **state)
{
    /* Row 0 is the first square enlarged a little; row 1 is small and lies in the first square only. */
    const double boxes[2][4] = {{0, 0, 0.5, 0.5625}, {0.2, 0.2, 0.3, 0.3}};
    const int32_t labels[2] = {1, 2};
    const struct cvy_anchors anchors = few_anchors();
    struct match m;

    run_match(*state, &anchors, 1, 2, boxes[0], labels, &m);
    /* Row 0's best is anchor 0 (0.889), so is row 1's (0.04 against 0.0391 of the wide one): row 0 comes first. */
    assert_int_equal(m.classes[0], 1);
    assert_int_equal(m.classes[1], 1);
    {
        const double swapped[2][4] = {{0.2, 0.2, 0.3, 0.3}, {0, 0, 0.5, 0.5625}};
        const int32_t swapped_labels[2] = {2, 1};
        run_match(*state, &anchors, 1, 2, swapped[0], swapped_labels, &m);
        assert_int_equal(m.classes[0], 2);
        assert_int_equal(m.classes[1], 1);
    }
}

/* ---- losses ---- */

struct focal {
    double loss, gradient[8];
};

/* One image of `anchors` rows of `columns`. */
static struct focal run_focal(void *device, int64_t anchors, int64_t columns, const double *logits,
                              const int32_t *classes, double positives)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_FOCAL_LOSS, 3, 1), back = executor_desc(CVY_OP_FOCAL_LOSS_BWD, 4, 1);
    const double dloss = 1;
    struct focal focal;

    assert_true(anchors * columns <= 8);
    desc.in[0] = executor_tensor(CVY_F64, cvy_shape3(1, anchors, columns));
    desc.in[1] = executor_tensor(CVY_I32, cvy_shape2(1, anchors));
    desc.in[2] = desc.out[0] = executor_tensor(CVY_F64, cvy_shape0());
    memcpy(back.in, desc.in, sizeof desc.in);
    back.in[3] = desc.out[0];
    back.out[0] = desc.in[0];
    executor_run_checked(device, &desc, (const void *[]){logits, classes, &positives}, (void *[]){&focal.loss});
    executor_run_checked(device, &back, (const void *[]){logits, classes, &positives, &dloss},
                         (void *[]){focal.gradient});
    return focal;
}

static void focal_losses(void **state)
{
    static const struct {
        double x, loss[2], gradient[2]; /* of target 0 and 1 */
    } known[] = {{-2, {0.001352672, 0.4125195}, {0.003653205, -0.2691784}},
                 {0, {0.1299651, 0.0433217}, {0.2237151, -0.0745717}},
                 {3, {2.0747103, 2.732083e-5}, {0.8450624, -7.871796e-5}},
                 {-4.6, {7.429104e-7, 1.1296756}, {0, 0}}};
    const double far = -1000; /* a logit that adds nothing */

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        for (int target = 0; target < 2; target++) {
            const double logits[] = {far, known[i].x};
            const int32_t classes[] = {target};
            const struct focal f = run_focal(*state, 1, 2, logits, classes, 1);
            close_to(f.loss, known[i].loss[target], 4e-7); /* seven digits are given */
            if (known[i].gradient[0] != 0)
                close_to(f.gradient[1], known[i].gradient[target], 4e-7);
        }
    }
}

static void focal_columns(void **state)
{
    /* Background has target 0 in its own column too, whatever the class; the divisor is the positives. */
    const double logits[] = {0, -2, 3, 0, 0, 0};
    const int32_t classes[] = {2, 0};
    const struct focal f = run_focal(*state, 2, 3, logits, classes, 4);

    close_to(f.loss, (0.1299651 + 0.001352672 + 2.732083e-5 + 3 * 0.1299651) / 4, 4e-7);
    close_to(f.gradient[0], 0.2237151 / 4, 4e-7);
    close_to(f.gradient[2], -7.871796e-5 / 4, 4e-7);
}

static void focal_extremes(void **state)
{
    const double logits[] = {-INFINITY, INFINITY, -INFINITY, 800};
    const int32_t certain[] = {1, 1};
    struct focal f = run_focal(*state, 2, 2, logits, certain, 1);

    assert_true(f.loss == 0);
    for (int i = 0; i < 4; i++)
        assert_true(f.gradient[i] == 0);
    {
        const double wrong[] = {800, 1e300};
        const int32_t none[] = {0};
        f = run_focal(*state, 1, 2, wrong, none, 1);
        close_to(f.loss, 0.75 * 1e300, 1e-15);
        assert_true(f.gradient[0] == 0.75 && f.gradient[1] == 0.75);
    }
}

static void wrong_classes_are_refused(void **state)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_FOCAL_LOSS, 3, 1);
    const double logits[] = {0, 0, 0, 0}, positives = 1;
    double loss;

    desc.in[0] = executor_tensor(CVY_F64, cvy_shape3(1, 2, 2));
    desc.in[1] = executor_tensor(CVY_I32, cvy_shape2(1, 2));
    desc.in[2] = desc.out[0] = executor_tensor(CVY_F64, cvy_shape0());
    for (int32_t wrong = -1; wrong <= 2; wrong += 3) {
        const int32_t classes[] = {1, wrong};
        assert_int_equal(
            executor_run_op(*state, &desc, (const void *[]){logits, classes, &positives}, (void *[]){&loss}),
            CVY_FAILED);
        assert_error("of anchor 1 is outside 0 to 1");
    }
}

static void smooth_l1(void **state)
{
    static const double wanted[] = {0.5, 1, -1, 0, 0, 0, 0, 0};
    const double codes[] = {0.5, 1, -3, 7, 9, 9, 9, 9}, targets[] = {0, 0, 0, NAN, 0, 0, 0, 0};
    const int32_t classes[] = {3, 0};
    const double positives = 2, dloss = 8;
    struct cvy_op_desc desc = executor_desc(CVY_OP_SMOOTH_L1_LOSS, 4, 1),
                       back = executor_desc(CVY_OP_SMOOTH_L1_LOSS_BWD, 5, 1);
    double loss, gradient[8];

    desc.in[0] = desc.in[1] = back.out[0] = executor_tensor(CVY_F64, cvy_shape3(1, 2, 4));
    desc.in[2] = executor_tensor(CVY_I32, cvy_shape2(1, 2));
    desc.in[3] = desc.out[0] = executor_tensor(CVY_F64, cvy_shape0());
    memcpy(back.in, desc.in, sizeof desc.in);
    back.in[4] = desc.out[0];
    executor_run_checked(*state, &desc, (const void *[]){codes, targets, classes, &positives}, (void *[]){&loss});
    assert_true(loss == (0.125 + 0.5 + 2.5) / 8);
    executor_run_checked(*state, &back, (const void *[]){codes, targets, classes, &positives, &dloss},
                         (void *[]){gradient});
    for (int i = 0; i < 8; i++)
        assert_true(gradient[i] == wanted[i]);
}

static void squares_of_many_weights(void **state)
{
    struct cvy_graph g;
    struct executor executor;
    cvy_val weights[16], loss;
    double sum = 0, got;

    cvy_graph_init(&g, true);
    for (int i = 0; i < 16; i++)
        weights[i] = cvy_graph_input(&g, (const char[]){(char)('a' + i), 0}, CVY_F64, cvy_shape2(i + 1, 2), false);
    loss = cvy_l2_loss(&g, weights, 16, 0.5F);
    cvy_graph_result(&g, CVY_RESULT_NAMED, "loss", -1, loss);
    assert_int_equal(cvy_graph_status(&g), CVY_OK);
    assert_int_equal(count_nodes(&g, CVY_OP_L2_LOSS), (16 + CVY_MAX_TERMS - 2) / (CVY_MAX_TERMS - 1));
    executor_open(&executor, *state, &g, 1);
    for (int i = 0; i < 16; i++) {
        double numbers[32];
        for (int k = 0; k < 2 * (i + 1); k++) {
            numbers[k] = i - k;
            sum += numbers[k] * numbers[k];
        }
        executor_write(&executor, weights[i], numbers);
    }
    executor_run(&executor, 0, g.node_count);
    executor_read(&executor, loss, &got);
    assert_true(got == 0.25 * sum); /* whole numbers */
    executor_close(&executor);
    cvy_graph_release(&g);
}

/* ---- detections ---- */

struct found {
    float boxes[8][4], scores[8];
    int32_t classes[8], count;
};

/* One image; the boxes are the anchors of few_anchors() where the codes are 0. */
static struct found run_detect(void *device, const float codes[8][4], const float *logits, int64_t columns,
                               const struct cvy_detect_attr *attr)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_DETECT, 2, 4);
    struct found found;

    desc.attr.detect = *attr;
    desc.in[0] = executor_tensor(CVY_F32, cvy_shape3(1, 8, 4));
    desc.in[1] = executor_tensor(CVY_F32, cvy_shape3(1, 8, columns));
    desc.out[0] = executor_tensor(CVY_F32, cvy_shape3(1, attr->max_boxes, 4));
    desc.out[1] = executor_tensor(CVY_F32, cvy_shape2(1, attr->max_boxes));
    desc.out[2] = executor_tensor(CVY_I32, cvy_shape2(1, attr->max_boxes));
    desc.out[3] = executor_tensor(CVY_I32, cvy_shape1(1));
    assert_true(attr->max_boxes <= 8);
    executor_run_checked(device, &desc, (const void *[]){codes, logits},
                         (void *[]){found.boxes, found.scores, found.classes, &found.count});
    return found;
}

static struct cvy_detect_attr detect_attr(void)
{
    return (struct cvy_detect_attr){
        .anchors = few_anchors(), .iou = 0.6F, .score = 1e-8F, .max_per_class = 100, .max_boxes = 8};
}

static void suppression(void **state)
{
    /* Anchors 0, 1 and 2 moved onto the first square: 1 by a quarter of its side (overlap 0.6 exactly: not more than
     * 0.6), 2 by less. Anchor 3 keeps its place, the others are far below the score. */
    float codes[8][4] = {{0}};
    float logits[8][3];
    struct cvy_detect_attr attr = detect_attr();
    struct found f;

    for (int a = 0; a < 8; a++)
        logits[a][0] = 20, logits[a][1] = logits[a][2] = -30; /* background does not count */
    /* Anchor 2 stands 32 px to the right: -8.75 tenths of its side bring it to 4 px beside the first square. */
    codes[2][1] = -8.75F;
    logits[0][1] = 2;
    logits[2][1] = 3;
    logits[4][1] = 1;
    logits[0][2] = 3; /* the other class is on its own */
    f = run_detect(*state, codes, logits[0], 3, &attr);
    assert_int_equal(f.count, 3);
    /* Equal scores: the lower class first. */
    assert_true(f.scores[0] == f.scores[1] && f.scores[1] > f.scores[2]);
    close_to((double)f.scores[0], 1 / (1 + exp(-3)), 6e-8);
    assert_true(f.classes[0] == 0 && f.classes[1] == 1 && f.classes[2] == 0);
    close_to((double)f.boxes[0][1], 4.0 / 64, 1e-6);
    close_to((double)f.boxes[0][3], 36.0 / 64, 1e-6);
    assert_true(f.boxes[1][3] == 0.5F && f.boxes[2][0] == 0.5F);
    for (int i = 3; i < 8; i++)
        assert_true(f.scores[i] == 0 && f.classes[i] == 0 && f.boxes[i][2] == 0);

    /* A threshold above the overlap of 28 / 36 lets both live; one that they reach exactly, too. */
    attr.iou = 0.8F;
    assert_int_equal(run_detect(*state, codes, logits[0], 3, &attr).count, 4);
    codes[2][1] = -7.5F; /* 8 px beside it: 24 / 40 */
    attr.iou = 0.6F;
    assert_int_equal(run_detect(*state, codes, logits[0], 3, &attr).count, 4);
    attr.iou = 0.59F;
    assert_int_equal(run_detect(*state, codes, logits[0], 3, &attr).count, 3);
}

static void limits_of_detections(void **state)
{
    float codes[8][4] = {{0}}, logits[8][2];
    struct cvy_detect_attr attr = detect_attr();
    struct found f;

    for (int a = 0; a < 8; a++)
        logits[a][0] = 0, logits[a][1] = a % 2 ? -30 : 0; /* the four squares, which do not meet */
    f = run_detect(*state, codes, logits[0], 2, &attr);
    assert_int_equal(f.count, 4);
    for (int i = 0; i < 4; i++) /* equal scores: in the order of the anchors */
        assert_true(f.boxes[i][0] == (i < 2 ? 0 : 0.5F) && f.boxes[i][1] == (i % 2 ? 0.5F : 0) && f.scores[i] == 0.5F);
    attr.score = 0.5F;
    assert_int_equal(run_detect(*state, codes, logits[0], 2, &attr).count, 0); /* not above it */
    attr.score = 0.25F;
    attr.max_boxes = 3;
    assert_int_equal(run_detect(*state, codes, logits[0], 2, &attr).count, 3);
    attr.max_boxes = 8;
    attr.max_per_class = 2;
    assert_int_equal(run_detect(*state, codes, logits[0], 2, &attr).count, 2);
    /* What lies outside takes one of the two places and is not shown; so do boxes that are no number. */
    codes[0][0] = -100;
    f = run_detect(*state, codes, logits[0], 2, &attr);
    assert_true(f.count == 1 && f.boxes[0][1] == 0.5F);
    codes[0][0] = NAN;
    assert_int_equal(run_detect(*state, codes, logits[0], 2, &attr).count, 1);
    /* A box larger than any number is the image. */
    codes[0][0] = 0;
    codes[0][2] = codes[0][3] = 1e6F;
    f = run_detect(*state, codes, logits[0], 2, &attr);
    assert_true(f.count == 2 && f.boxes[0][0] == 0 && f.boxes[0][2] == 1 && f.boxes[0][3] == 1);
    logits[0][1] = NAN; /* no score */
    f = run_detect(*state, codes, logits[0], 2, &attr);
    assert_true(f.count == 2 && f.boxes[0][1] == 0.5F);
}

/* ---- builders ---- */

static void wrong_shapes_are_refused(void **state)
{
    const struct cvy_anchors anchors = few_anchors();
    struct cvy_anchors bad = anchors;
    struct cvy_graph g;

    bad.levels = 0;
    cvy_graph_init(&g, true);
    cvy_detection_match(&g, cvy_graph_input(&g, "boxes", CVY_F32, cvy_shape3(CVY_BATCH, 100, 4), false),
                        cvy_graph_input(&g, "labels", CVY_I32, cvy_shape2(CVY_BATCH, 99), false), &anchors);
    check_graph_error(&g, CVY_USAGE, "labels of i32 Nx100");
    cvy_graph_release(&g);
    cvy_graph_init(&g, true);
    cvy_detection_match(&g, cvy_graph_input(&g, "boxes", CVY_F32, cvy_shape3(CVY_BATCH, 100, 4), false),
                        cvy_graph_input(&g, "labels", CVY_I32, cvy_shape2(CVY_BATCH, 100), false), &bad);
    check_graph_error(&g, CVY_USAGE, "1 to 8 levels");
    cvy_graph_release(&g);
    cvy_graph_init(&g, true);
    cvy_detect(&g, cvy_graph_input(&g, "codes", CVY_F32, cvy_shape3(CVY_BATCH, 8, 4), false),
               cvy_graph_input(&g, "logits", CVY_F32, cvy_shape3(CVY_BATCH, 9, 3), false), &anchors, NULL);
    check_graph_error(&g, CVY_USAGE, "logits of 8 rows");
    cvy_graph_release(&g);
    cvy_graph_init(&g, true);
    cvy_detect(&g, cvy_graph_input(&g, "codes", CVY_F32, cvy_shape3(CVY_BATCH, 8, 4), false),
               cvy_graph_input(&g, "logits", CVY_F32, cvy_shape3(CVY_BATCH, 8, 3), false), &anchors,
               &(struct cvy_detect){.iou = 2});
    check_graph_error(&g, CVY_USAGE, "overlap by 0 to 1, not by 2");
    cvy_graph_release(&g);
}

RUN_TESTS(setup, teardown, TEST(anchors_of_320), TEST(anchors_of_other_sizes), TEST(impossible_anchors),
          TEST(known_codes), TEST(best_boxes_and_forced_ones), TEST(a_box_far_away_takes_the_first_anchor),
          TEST(images_without_boxes), TEST(forced_against_better), TEST(focal_losses), TEST(focal_columns),
          TEST(focal_extremes), TEST(wrong_classes_are_refused), TEST(smooth_l1), TEST(squares_of_many_weights),
          TEST(suppression), TEST(limits_of_detections), TEST(wrong_shapes_are_refused))
