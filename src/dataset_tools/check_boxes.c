#include "dataset_tools/check_boxes.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "data/transform/detection.h"
#include "ops/anchors.h"

/* COCO's bounds between small, medium and large objects, in pixels of area. */
static const double small_area = 32 * 32, medium_area = 96 * 96;

/* ---- anchors ---- */

/* The op as a plan for one image would have it. */
static struct cvy_op_desc describe(const struct cvy_anchors *anchors)
{
    const int64_t count = cvy_anchors_count(anchors);
    struct cvy_op_desc desc = {
        .op = CVY_OP_DETECTION_MATCH, .attr = {.anchors = *anchors}, .inputs = 2, .outputs = 3, .training = true};

    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        desc.in[i].shape.rank = -1;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        desc.out[i].shape.rank = -1;
    desc.in[0] = (struct cvy_tensor){.shape = cvy_shape3(1, CVY_MAX_BOXES, 4), .dtype = CVY_F32};
    desc.in[1] = (struct cvy_tensor){.shape = cvy_shape2(1, CVY_MAX_BOXES), .dtype = CVY_I32};
    desc.out[0] = (struct cvy_tensor){.shape = cvy_shape2(1, count), .dtype = CVY_I32};
    desc.out[1] = (struct cvy_tensor){.shape = cvy_shape3(1, count, 4), .dtype = CVY_F32};
    desc.out[2] = (struct cvy_tensor){.shape = cvy_shape0(), .dtype = CVY_F32};
    return desc;
}

cvy_status cvy_box_matcher_open(struct cvy_box_matcher *matcher, int32_t size)
{
    const struct cvy_anchors anchors = cvy_anchors_ssd(size, size);
    cvy_status status;

    CVY_GOTO(cvy_anchors_check(&anchors));
    matcher->count = (int32_t)cvy_anchors_count(&anchors);
    matcher->anchors = cvy_calloc((size_t)matcher->count, 4 * sizeof *matcher->anchors);
    if (!matcher->anchors) {
        status = cvy_fail_memory((size_t)matcher->count * 4 * sizeof *matcher->anchors, "anchors");
        goto fail;
    }
    cvy_anchors_fill(&anchors, matcher->anchors);
    matcher->desc = describe(&anchors);
    CVY_GOTO(cvy_device_open("cpu", 1, &matcher->device));
    CVY_GOTO(cvy_kernel_select(matcher->device, &matcher->desc, &matcher->kernel));
    return CVY_OK;
fail:
    cvy_box_matcher_release(matcher);
    return status;
}

void cvy_box_matcher_release(struct cvy_box_matcher *matcher)
{
    if (matcher->kernel.kernel)
        cvy_kernel_release(matcher->device, &matcher->kernel);
    cvy_device_close(matcher->device);
    cvy_free(matcher->anchors);
    *matcher = (struct cvy_box_matcher){0};
}

cvy_status cvy_box_matching_open(struct cvy_box_matching *matching, const struct cvy_box_matcher *matcher)
{
    const size_t count = (size_t)matcher->count, scratch = matcher->kernel.scratch_bytes;

    matching->boxes = cvy_calloc_aligned(count * sizeof *matching->boxes);
    matching->targets = cvy_calloc_aligned(count * 4 * sizeof *matching->targets);
    matching->scratch = cvy_calloc_aligned(scratch ? scratch : 1);
    if (matching->boxes && matching->targets && matching->scratch)
        return CVY_OK;
    cvy_box_matching_release(matching);
    return cvy_fail_memory(count * 20 + scratch, "anchors");
}

void cvy_box_matching_release(struct cvy_box_matching *matching)
{
    cvy_free_aligned(matching->boxes);
    cvy_free_aligned(matching->targets);
    cvy_free_aligned(matching->scratch);
    *matching = (struct cvy_box_matching){0};
}

/* Anchors of each box, and the largest overlap with one of them. */
static void tally(const struct cvy_box_matcher *matcher, const struct cvy_box_matching *matching,
                  float boxes[CVY_MAX_BOXES][4], int count, struct cvy_box_finding *finding)
{
    int32_t anchors[CVY_MAX_BOXES] = {0};
    float max[CVY_MAX_BOXES] = {0};

    for (int32_t a = 0; a < matcher->count; a++) {
        const float *anchor = matcher->anchors + 4 * (size_t)a;
        const int32_t b = matching->boxes[a] - 1;
        if (b < 0)
            continue;
        const float overlap = cvy_box_overlap(boxes[b], cvy_box_area(boxes[b]), anchor, cvy_box_area(anchor));
        max[b] = overlap > max[b] ? overlap : max[b];
        anchors[b]++;
        finding->anchors++;
    }
    for (int b = 0; b < count; b++) {
        finding->forced += anchors[b] > 0 && max[b] < CVY_MATCH_OVERLAP;
        finding->missed += anchors[b] == 0;
    }
}

cvy_status cvy_box_matcher_match(const struct cvy_box_matcher *matcher, struct cvy_box_matching *matching,
                                 const struct cvy_dataset *dataset, uint32_t sample, struct cvy_box_finding *finding)
{
    float coordinates[CVY_MAX_BOXES][4], positives;
    int32_t labels[CVY_MAX_BOXES];
    struct cvy_target_boxes boxes = {coordinates, labels};
    struct cvy_truth truth = {.image = &dataset->images[sample]};
    void *const in[CVY_MAX_INPUTS] = {coordinates, labels};
    void *const out[CVY_MAX_OUTPUTS] = {matching->boxes, matching->targets, &positives};
    int count = 0;

    *finding = (struct cvy_box_finding){0};
    cvy_dataset_objects(dataset, sample, &truth.objects, &truth.count);
    cvy_detection_boxes(&truth, NULL, truth.image->width, truth.image->height, &boxes);
    /* With their numbers for classes, boxes are told apart in what the kernel gives. */
    for (; count < CVY_MAX_BOXES && labels[count] > 0; count++)
        labels[count] = count + 1;
    if (count == 0)
        return CVY_OK;
    CVY_TRY(matcher->kernel.kernel->run(matcher->device, &matcher->kernel, in, out, matching->scratch));
    tally(matcher, matching, coordinates, count, finding);
    return CVY_OK;
}

/* ---- the report ---- */

static void count_object(struct cvy_check_boxes *boxes, const struct cvy_coco_object *object)
{
    boxes->boxes++;
    if (object->crowd)
        boxes->crowds++;
    else if (object->area <= small_area)
        boxes->small++;
    else if (object->area <= medium_area)
        boxes->medium++;
    else
        boxes->large++;
}

cvy_status cvy_check_count_boxes(struct cvy_check_report *report, const struct cvy_dataset *dataset, bool val,
                                 const struct cvy_box_finding *findings)
{
    struct cvy_check_boxes *boxes = val ? &report->val_boxes : &report->train_boxes;
    uint32_t *last = cvy_calloc(report->class_count, sizeof *last); /* image that had the class last, + 1 */

    if (!last)
        return cvy_fail_memory(report->class_count * sizeof *last, "the report");
    report->detection = true;
    boxes->empty = dataset->odd.count[CVY_BOX_EMPTY];
    boxes->outside = dataset->odd.count[CVY_BOX_OUTSIDE];
    boxes->not_finite = dataset->odd.count[CVY_BOX_NOT_FINITE];
    for (uint32_t i = 0; i < dataset->sample_count; i++) {
        const struct cvy_coco_object *objects;
        size_t count;
        cvy_dataset_objects(dataset, i, &objects, &count);
        for (size_t o = 0; o < count; o++) {
            struct cvy_check_class *of = &report->classes[objects[o].slot - 1];
            *(val ? &of->val_boxes : &of->train_boxes) += 1;
            if (last[objects[o].slot - 1] != i + 1)
                *(val ? &of->val : &of->train) += 1;
            last[objects[o].slot - 1] = i + 1;
            count_object(boxes, &objects[o]);
        }
        boxes->images_without += count == 0;
        boxes->images_over += count > CVY_MAX_BOXES;
        boxes->most = (int64_t)count > boxes->most ? (int64_t)count : boxes->most;
        boxes->anchors += findings[i].anchors;
        boxes->forced += findings[i].forced;
        boxes->missed += findings[i].missed;
    }
    cvy_free(last);
    return CVY_OK;
}

void cvy_check_describe_odd(const struct cvy_odd_box *box, const char *source, char *text, size_t size)
{
    static const char *const why[CVY_BOX_KINDS] = {"has no width or height", "reaches beyond the image",
                                                   "or its area is not finite"};

    snprintf(text, size, "%s, near byte %llu: a box of image %lld %s (%g, %g, %g, %g): it is left out of training",
             cvy_quote(box->file ? box->file : source), (unsigned long long)box->at, (long long)box->image_id,
             why[box->kind], box->bbox[0], box->bbox[1], box->bbox[2], box->bbox[3]);
}
