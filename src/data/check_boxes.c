#include "data/check_boxes.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "data/transform_detection.h"
#include "graph/boxes.h"
#include "ops/anchors.h"

/* COCO's bounds between small, medium and large objects, in pixels of area. */
static const double small_area = 32 * 32, medium_area = 96 * 96;
/* An anchor belongs to the box that it overlaps most, from here on. */
static const float match_overlap = 0.5F;
enum { SIDE = 320 };

/* ---- anchors ---- */

cvy_status cvy_box_matcher_open(struct cvy_box_matcher *matcher)
{
    const struct cvy_anchors anchors = cvy_anchors_ssd(SIDE, SIDE);

    CVY_TRY(cvy_anchors_check(&anchors));
    *matcher = (struct cvy_box_matcher){.count = (int32_t)cvy_anchors_count(&anchors)};
    matcher->anchors = cvy_calloc((size_t)matcher->count, 4 * sizeof *matcher->anchors);
    matcher->matched = cvy_calloc((size_t)matcher->count, sizeof *matcher->matched);
    if (!matcher->anchors || !matcher->matched) {
        cvy_box_matcher_release(matcher);
        return cvy_fail_memory((size_t)cvy_anchors_count(&anchors) * 20, "anchors");
    }
    cvy_anchors_fill(&anchors, matcher->anchors);
    return CVY_OK;
}

void cvy_box_matcher_release(struct cvy_box_matcher *matcher)
{
    cvy_free(matcher->anchors);
    cvy_free(matcher->matched);
    *matcher = (struct cvy_box_matcher){0};
}

/* Each anchor's best box, the first of equal ones; and each box's best anchor. */
static void find_best(struct cvy_box_matcher *matcher, const struct cvy_target_boxes *boxes, int count,
                      int32_t best_anchor[CVY_MAX_BOXES])
{
    float areas[CVY_MAX_BOXES], best[CVY_MAX_BOXES];

    for (int b = 0; b < count; b++) {
        areas[b] = cvy_box_area(boxes->boxes[b]);
        best[b] = -1;
    }
    for (int32_t a = 0; a < matcher->count; a++) {
        const float *anchor = matcher->anchors + 4 * (size_t)a;
        const float area = cvy_box_area(anchor);
        float most = match_overlap;
        matcher->matched[a] = -1;
        for (int b = 0; b < count; b++) {
            const float overlap = cvy_box_overlap(boxes->boxes[b], areas[b], anchor, area);
            if (overlap > most || (overlap == most && matcher->matched[a] < 0)) {
                most = overlap;
                matcher->matched[a] = b;
            }
            if (overlap > best[b]) {
                best[b] = overlap;
                best_anchor[b] = a;
            }
        }
    }
}

void cvy_box_matcher_match(struct cvy_box_matcher *matcher, const struct cvy_dataset *dataset, uint32_t sample,
                           struct cvy_box_finding *finding)
{
    float coordinates[CVY_MAX_BOXES][4];
    int32_t labels[CVY_MAX_BOXES], best_anchor[CVY_MAX_BOXES] = {0}, counts[CVY_MAX_BOXES] = {0};
    struct cvy_target_boxes boxes = {coordinates, labels};
    struct cvy_truth truth = {.image = &dataset->images[sample]};
    bool found[CVY_MAX_BOXES] = {false};
    int count = 0;

    *finding = (struct cvy_box_finding){0};
    cvy_dataset_objects(dataset, sample, &truth.objects, &truth.count);
    cvy_detection_boxes(&truth, NULL, truth.image->width, truth.image->height, &boxes);
    while (count < CVY_MAX_BOXES && labels[count] > 0)
        count++;
    if (count == 0)
        return;
    find_best(matcher, &boxes, count, best_anchor);
    for (int32_t a = 0; a < matcher->count; a++)
        if (matcher->matched[a] >= 0)
            found[matcher->matched[a]] = true;
    /* Each box has its best anchor; where several want one, the first has it. */
    for (int b = count - 1; b >= 0; b--)
        matcher->matched[best_anchor[b]] = b;
    for (int32_t a = 0; a < matcher->count; a++)
        if (matcher->matched[a] >= 0) {
            counts[matcher->matched[a]]++;
            finding->anchors++;
        }
    for (int b = 0; b < count; b++) {
        finding->forced += counts[b] > 0 && !found[b];
        finding->missed += counts[b] == 0;
    }
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

    snprintf(text, size, "%s, near byte %llu: a box of image %lld %s (%g, %g, %g, %g): it is left out",
             cvy_quote(box->file ? box->file : source), (unsigned long long)box->at, (long long)box->image_id,
             why[box->kind], box->bbox[0], box->bbox[1], box->bbox[2], box->bbox[3]);
}
