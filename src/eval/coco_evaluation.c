/* Accumulation, and the sums over all categories. */
#include "eval/coco_evaluation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "eval/coco_match.h"

/* ---- collecting ---- */

cvy_status cvy_coco_open(struct cvy_coco_evaluation *evaluation, int32_t category_count)
{
    *evaluation = (struct cvy_coco_evaluation){.category_count = category_count};
    if (category_count < 1)
        return cvy_fail(CVY_BAD_DATA, "there are no categories to evaluate");
    return CVY_OK;
}

void cvy_coco_close(struct cvy_coco_evaluation *evaluation)
{
    cvy_free(evaluation->image_ids);
    cvy_free(evaluation->truths);
    cvy_free(evaluation->detections);
    *evaluation = (struct cvy_coco_evaluation){0};
}

/* Room for `more` beyond `count`; `list` points at the pointer to the elements. */
static cvy_status reserve(void *list, size_t count, size_t more, size_t *capacity, size_t size)
{
    size_t need, wanted = *capacity ? *capacity : 256;
    void *block, *old;

    if (!cvy_size_add(count, more, &need))
        return cvy_fail_memory(SIZE_MAX, "an evaluation");
    if (need <= *capacity)
        return CVY_OK;
    while (wanted < need)
        if (!cvy_size_mul(wanted, 2, &wanted))
            return cvy_fail_memory(SIZE_MAX, "an evaluation");
    memcpy(&old, list, sizeof old);
    block = cvy_realloc(old, wanted, size);
    if (!block)
        return cvy_fail_memory(wanted * size, "an evaluation");
    memcpy(list, &block, sizeof block);
    *capacity = wanted;
    return CVY_OK;
}

static bool is_finite_box(const double box[4])
{
    return isfinite(box[0]) && isfinite(box[1]) && isfinite(box[2]) && isfinite(box[3]);
}

static cvy_status check(const struct cvy_coco_evaluation *e, int64_t image_id, const struct cvy_coco_truth *truths,
                        size_t truth_count, const struct cvy_coco_detection *detections, size_t detection_count)
{
    for (size_t i = 0; i < truth_count; i++) {
        if (truths[i].category < 0 || truths[i].category >= e->category_count)
            return cvy_fail(CVY_BAD_DATA, "category %d of image %lld is none of the %d", (int)truths[i].category,
                            (long long)image_id, (int)e->category_count);
        if (!is_finite_box(truths[i].box) || !isfinite(truths[i].area))
            return cvy_fail(CVY_BAD_DATA, "object %zu of image %lld is not finite", i, (long long)image_id);
    }
    for (size_t i = 0; i < detection_count; i++) {
        if (detections[i].category < 0 || detections[i].category >= e->category_count)
            return cvy_fail(CVY_BAD_DATA, "category %d found on image %lld is none of the %d",
                            (int)detections[i].category, (long long)image_id, (int)e->category_count);
        if (!is_finite_box(detections[i].box) || !isfinite(detections[i].score))
            return cvy_fail(CVY_BAD_DATA, "detection %zu of image %lld is not finite", i, (long long)image_id);
    }
    return CVY_OK;
}

/* By category, then by falling score, then as they were given. */
static int by_score(const void *a, const void *b)
{
    const struct cvy_coco_prediction *x = a, *y = b;

    if (x->category != y->category)
        return x->category < y->category ? -1 : 1;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* The new detections of one image, which lie after the kept ones: in order, and only those that count. */
static void keep_best(struct cvy_coco_evaluation *e, size_t added)
{
    struct cvy_coco_prediction *new = e->detections + e->detection_count;
    size_t kept = 0;
    uint32_t place = 0;

    if (added > 0)
        qsort(new, added, sizeof *new, by_score);
    for (size_t i = 0; i < added; i++) {
        place = i > 0 && new[i].category == new[kept - 1].category ? place + 1 : 0;
        if (place >= CVY_COCO_MAX_DETECTIONS)
            continue;
        new[kept] = new[i];
        new[kept++].place = place;
    }
    e->detection_count += kept;
}

cvy_status cvy_coco_add(struct cvy_coco_evaluation *e, int64_t image_id, const struct cvy_coco_truth *truths,
                        size_t truth_count, const struct cvy_coco_detection *detections, size_t detection_count)
{
    const uint32_t image = (uint32_t)e->image_count;

    CVY_TRY(check(e, image_id, truths, truth_count, detections, detection_count));
    if (e->image_count >= UINT32_MAX || truth_count > UINT32_MAX || detection_count > UINT32_MAX)
        return cvy_fail(CVY_BAD_DATA, "there is too much to evaluate");
    CVY_TRY(reserve(&e->image_ids, e->image_count, 1, &e->image_capacity, sizeof *e->image_ids));
    CVY_TRY(reserve(&e->truths, e->truth_count, truth_count, &e->truth_capacity, sizeof *e->truths));
    CVY_TRY(
        reserve(&e->detections, e->detection_count, detection_count, &e->detection_capacity, sizeof *e->detections));
    e->image_ids[e->image_count++] = image_id;
    for (size_t i = 0; i < truth_count; i++) {
        struct cvy_coco_target *known = &e->truths[e->truth_count++];
        *known = (struct cvy_coco_target){
            .area = truths[i].area,
            .category = truths[i].category,
            .image = image,
            .place = (uint32_t)i,
            .crowd = truths[i].crowd,
        };
        memcpy(known->box, truths[i].box, sizeof known->box);
    }
    for (size_t i = 0; i < detection_count; i++) {
        struct cvy_coco_prediction *found = &e->detections[e->detection_count + i];
        *found = (struct cvy_coco_prediction){
            .score = detections[i].score,
            .category = detections[i].category,
            .image = image,
            .place = (uint32_t)i,
        };
        memcpy(found->box, detections[i].box, sizeof found->box);
    }
    keep_best(e, detection_count);
    return CVY_OK;
}

/* ---- images by rising id ---- */

struct numbered {
    int64_t id;
    uint32_t index;
};

static int by_id(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

/* Number the images anew by rising id, so that what is left to do needs no ids. */
static cvy_status order_images(struct cvy_coco_evaluation *e)
{
    struct numbered *order = cvy_calloc(e->image_count + 1, sizeof *order);
    uint32_t *ranks = cvy_calloc(e->image_count + 1, sizeof *ranks);
    cvy_status status = CVY_OK;

    if (!order || !ranks) {
        status = cvy_fail_memory(e->image_count * sizeof *order, "the order of the images");
        goto fail;
    }
    for (size_t i = 0; i < e->image_count; i++)
        order[i] = (struct numbered){e->image_ids[i], (uint32_t)i};
    if (e->image_count > 0)
        qsort(order, e->image_count, sizeof *order, by_id);
    for (size_t i = 0; i < e->image_count; i++) {
        if (i > 0 && order[i].id == order[i - 1].id) {
            status = cvy_fail(CVY_BAD_DATA, "image %lld is there twice", (long long)order[i].id);
            goto fail;
        }
        ranks[order[i].index] = (uint32_t)i;
        e->image_ids[i] = order[i].id;
    }
    for (size_t i = 0; i < e->truth_count; i++)
        e->truths[i].image = ranks[e->truths[i].image];
    for (size_t i = 0; i < e->detection_count; i++)
        e->detections[i].image = ranks[e->detections[i].image];
fail:
    cvy_free(order);
    cvy_free(ranks);
    return status;
}

static int by_place(int32_t category_a, int32_t category_b, uint32_t image_a, uint32_t image_b, uint32_t place_a,
                    uint32_t place_b)
{
    if (category_a != category_b)
        return category_a < category_b ? -1 : 1;
    if (image_a != image_b)
        return image_a < image_b ? -1 : 1;
    return (place_a > place_b) - (place_a < place_b);
}

static int by_truth_place(const void *a, const void *b)
{
    const struct cvy_coco_target *x = a, *y = b;

    return by_place(x->category, y->category, x->image, y->image, x->place, y->place);
}

static int by_detection_place(const void *a, const void *b)
{
    const struct cvy_coco_prediction *x = a, *y = b;

    return by_place(x->category, y->category, x->image, y->image, x->place, y->place);
}

/* ---- the sums ---- */

struct work {
    const struct cvy_coco_evaluation *evaluation;
    size_t *first_truth, *first_detection; /* (category_count + 1) */
    struct cvy_coco_sums *sums;            /* (category_count) */
    struct cvy_coco_result *result;
};

/* Where each category begins in lists that are sorted by category. */
static void find_categories(const struct cvy_coco_evaluation *e, struct work *work)
{
    size_t truth = 0, detection = 0;

    for (int32_t c = 0; c <= e->category_count; c++) {
        while (truth < e->truth_count && e->truths[truth].category < c)
            truth++;
        while (detection < e->detection_count && e->detections[detection].category < c)
            detection++;
        work->first_truth[c] = truth;
        work->first_detection[c] = detection;
    }
}

static cvy_status evaluate_category(void *context, void *state, int64_t index)
{
    const struct work *work = context;
    const struct cvy_coco_evaluation *e = work->evaluation;
    const struct cvy_coco_lists lists = {
        .truths = e->truths + work->first_truth[index],
        .truth_count = work->first_truth[index + 1] - work->first_truth[index],
        .detections = e->detections + work->first_detection[index],
        .detection_count = work->first_detection[index + 1] - work->first_detection[index],
    };
    double *precision = work->result->precision + index * CVY_COCO_THRESHOLDS * CVY_COCO_RECALLS;

    (void)state;
    return cvy_coco_match(&lists, precision, &work->sums[index], &work->result->categories[index]);
}

static double mean(double sum, int64_t count)
{
    return count > 0 ? sum / (double)count : -1;
}

/* Means over the categories that have something to find, in their order. */
static void add_up(const struct cvy_coco_sums *sums, int32_t count, double stats[CVY_COCO_STATS])
{
    struct cvy_coco_sums all = {0};

    for (int32_t c = 0; c < count; c++) {
        for (int a = 0; a < CVY_COCO_AREAS; a++) {
            all.precision[a] += sums[c].precision[a];
            all.recall[a] += sums[c].recall[a];
            all.found[a] += sums[c].found[a];
        }
        all.precision50 += sums[c].precision50;
        all.precision75 += sums[c].precision75;
        all.recall1 += sums[c].recall1;
        all.recall10 += sums[c].recall10;
    }
    const int64_t categories = all.found[CVY_COCO_ALL];
    stats[0] = mean(all.precision[CVY_COCO_ALL], categories * CVY_COCO_THRESHOLDS * CVY_COCO_RECALLS);
    stats[1] = mean(all.precision50, categories * CVY_COCO_RECALLS);
    stats[2] = mean(all.precision75, categories * CVY_COCO_RECALLS);
    stats[6] = mean(all.recall1, categories * CVY_COCO_THRESHOLDS);
    stats[7] = mean(all.recall10, categories * CVY_COCO_THRESHOLDS);
    stats[8] = mean(all.recall[CVY_COCO_ALL], categories * CVY_COCO_THRESHOLDS);
    for (int a = CVY_COCO_SMALL; a <= CVY_COCO_LARGE; a++) {
        stats[2 + a] = mean(all.precision[a], all.found[a] * CVY_COCO_THRESHOLDS * CVY_COCO_RECALLS);
        stats[8 + a] = mean(all.recall[a], all.found[a] * CVY_COCO_THRESHOLDS);
    }
}

static cvy_status open_result(const struct cvy_coco_evaluation *e, struct work *work, struct cvy_coco_result *result)
{
    const size_t count = (size_t)e->category_count;

    *result = (struct cvy_coco_result){
        .images = (int64_t)e->image_count,
        .truths = (int64_t)e->truth_count,
        .detections = (int64_t)e->detection_count,
        .category_count = e->category_count,
    };
    result->categories = cvy_calloc(count, sizeof *result->categories);
    result->precision = cvy_calloc(count, sizeof(double) * CVY_COCO_THRESHOLDS * CVY_COCO_RECALLS);
    work->first_truth = cvy_calloc(count + 1, sizeof *work->first_truth);
    work->first_detection = cvy_calloc(count + 1, sizeof *work->first_detection);
    work->sums = cvy_calloc(count, sizeof *work->sums);
    if (!result->categories || !result->precision || !work->first_truth || !work->first_detection || !work->sums)
        return cvy_fail_memory(count * sizeof(double) * CVY_COCO_THRESHOLDS * CVY_COCO_RECALLS,
                               "the curves of the categories");
    return CVY_OK;
}

cvy_status cvy_coco_finish(struct cvy_coco_evaluation *e, int threads, struct cvy_coco_result *result)
{
    struct work work = {.evaluation = e, .result = result};
    const struct cvy_parallel parallel = {.context = &work, .each = evaluate_category};
    cvy_status status;

    CVY_GOTO(open_result(e, &work, result));
    CVY_GOTO(order_images(e));
    if (e->truth_count > 0)
        qsort(e->truths, e->truth_count, sizeof *e->truths, by_truth_place);
    if (e->detection_count > 0)
        qsort(e->detections, e->detection_count, sizeof *e->detections, by_detection_place);
    find_categories(e, &work);
    CVY_GOTO(cvy_parallel_run(&parallel, e->category_count, threads));
    add_up(work.sums, e->category_count, result->stats);
    status = CVY_OK;
fail:
    cvy_free(work.first_truth);
    cvy_free(work.first_detection);
    cvy_free(work.sums);
    if (status != CVY_OK)
        cvy_coco_result_release(result);
    return status;
}

void cvy_coco_result_release(struct cvy_coco_result *result)
{
    cvy_free(result->categories);
    cvy_free(result->precision);
    *result = (struct cvy_coco_result){0};
}

/* ---- names ---- */

static const struct {
    const char *name, *measure, *overlap, *area;
    int max;
} stats[CVY_COCO_STATS] = {
    {"Precision/mAP", "ap", "0.50:0.95", "all", 100},
    {"Precision/mAP@.50IOU", "ap50", "0.50", "all", 100},
    {"Precision/mAP@.75IOU", "ap75", "0.75", "all", 100},
    {"Precision/mAP (small)", "ap_small", "0.50:0.95", "small", 100},
    {"Precision/mAP (medium)", "ap_medium", "0.50:0.95", "medium", 100},
    {"Precision/mAP (large)", "ap_large", "0.50:0.95", "large", 100},
    {"Recall/AR@1", "ar1", "0.50:0.95", "all", 1},
    {"Recall/AR@10", "ar10", "0.50:0.95", "all", 10},
    {"Recall/AR@100", "ar100", "0.50:0.95", "all", 100},
    {"Recall/AR@100 (small)", "ar_small", "0.50:0.95", "small", 100},
    {"Recall/AR@100 (medium)", "ar_medium", "0.50:0.95", "medium", 100},
    {"Recall/AR@100 (large)", "ar_large", "0.50:0.95", "large", 100},
};

const char *cvy_coco_stat_name(int index)
{
    return index >= 0 && index < CVY_COCO_STATS ? stats[index].name : NULL;
}

void cvy_coco_measures(const double values[CVY_COCO_STATS], struct cvy_measures *measures)
{
    *measures = (struct cvy_measures){.count = CVY_COCO_STATS};
    for (int i = 0; i < CVY_COCO_STATS; i++) {
        snprintf(measures->list[i].name, sizeof measures->list[i].name, "%s", stats[i].measure);
        measures->list[i].value = values[i] < 0 ? NAN : 100 * values[i];
    }
}

const char *cvy_coco_stat_line(int index, double value, char buffer[96])
{
    const bool precision = index < 6;

    snprintf(buffer, 96, " %-18s %s @[ IoU=%-9s | area=%6s | maxDets=%3d ] = %0.3f",
             precision ? "Average Precision" : "Average Recall", precision ? "(AP)" : "(AR)", stats[index].overlap,
             stats[index].area, stats[index].max, value);
    return buffer;
}
