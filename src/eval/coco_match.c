#include "eval/coco_match.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Both ends belong to a range. In square pixels. */
static const double areas[CVY_COCO_AREAS][2] = {{0, 1e10}, {0, 32 * 32}, {32 * 32, 96 * 96}, {96 * 96, 1e10}};

/* What became of a detection, one bit for each threshold: matched; counted neither as right nor as wrong. */
struct verdict {
    uint16_t matched, ignored;
};

struct scratch {
    double *overlaps;           /* (detections, truths) of one image */
    size_t *order;              /* (truths) of one image: those that count first */
    uint16_t *taken;            /* (truths) of one image: thresholds at which it is matched */
    bool *ignored;              /* (truths) of one image */
    struct verdict *verdicts;   /* (detections) of the category */
    size_t *by_score;           /* (detections) of the category: falling score */
    double *recall, *precision; /* (detections) of the category */
};

/* The very doubles of COCO's program: overlaps often lie exactly on a threshold. */
static double overlap_threshold(int index)
{
    return index == CVY_COCO_THRESHOLDS - 1 ? 0.95 : 0.5 + index * ((0.95 - 0.5) / 9);
}

static double recall_point(int index)
{
    return index == CVY_COCO_RECALLS - 1 ? 1.0 : index * 0.01;
}

/* Intersection over union; over the detection's own area where the object is a crowd. */
static double overlap(const double detection[4], const struct cvy_coco_target *truth)
{
    const double *d = detection, *t = truth->box;
    const double width = fmin(d[0] + d[2], t[0] + t[2]) - fmax(d[0], t[0]);
    const double height = fmin(d[1] + d[3], t[1] + t[3]) - fmax(d[1], t[1]);

    if (width <= 0 || height <= 0)
        return 0;
    const double common = width * height;
    return common / (truth->crowd ? d[2] * d[3] : d[2] * d[3] + t[2] * t[3] - common);
}

static bool outside(double area, const double range[2])
{
    return area < range[0] || area > range[1];
}

/* ---- one image ---- */

struct image {
    const struct cvy_coco_target *truths;
    const struct cvy_coco_prediction *detections;
    size_t truth_count, detection_count;
    struct verdict *verdicts; /* (detection_count) */
};

static void find_overlaps(const struct image *image, struct scratch *scratch)
{
    for (size_t d = 0; d < image->detection_count; d++)
        for (size_t t = 0; t < image->truth_count; t++)
            scratch->overlaps[d * image->truth_count + t] = overlap(image->detections[d].box, &image->truths[t]);
}

/* Objects that count first, otherwise as given. Returns how many count. */
static size_t order_truths(const struct image *image, const double range[2], struct scratch *scratch)
{
    size_t counting = 0, place;

    for (size_t t = 0; t < image->truth_count; t++) {
        scratch->taken[t] = 0;
        scratch->ignored[t] = image->truths[t].crowd || outside(image->truths[t].area, range);
        if (!scratch->ignored[t])
            scratch->order[counting++] = t;
    }
    place = counting;
    for (size_t t = 0; t < image->truth_count; t++)
        if (scratch->ignored[t])
            scratch->order[place++] = t;
    return counting;
}

/* The object that a detection takes at one threshold: the one that it overlaps most, the later one among equals; one
 * that does not count only if no other is good enough. image->truth_count: none. */
static size_t best_truth(const struct image *image, const struct scratch *scratch, const double *overlaps,
                         int threshold)
{
    double best = fmin(overlap_threshold(threshold), 1 - 1e-10);
    size_t match = image->truth_count;

    for (size_t i = 0; i < image->truth_count; i++) {
        const size_t t = scratch->order[i];
        if ((scratch->taken[t] >> threshold & 1) && !image->truths[t].crowd)
            continue;
        if (match < image->truth_count && !scratch->ignored[match] && scratch->ignored[t])
            break;
        if (overlaps[t] < best)
            continue;
        best = overlaps[t];
        match = t;
    }
    return match;
}

static void match_image(const struct image *image, const double range[2], struct scratch *scratch)
{
    for (size_t d = 0; d < image->detection_count; d++) {
        const double *overlaps = scratch->overlaps + d * image->truth_count;
        const double *box = image->detections[d].box;
        const bool other_size = outside(box[2] * box[3], range);
        struct verdict verdict = {0};

        for (int threshold = 0; threshold < CVY_COCO_THRESHOLDS; threshold++) {
            const size_t t = best_truth(image, scratch, overlaps, threshold);
            const uint16_t bit = (uint16_t)(1u << threshold);
            if (t < image->truth_count) {
                scratch->taken[t] |= bit;
                verdict.matched |= bit;
            }
            if (t < image->truth_count ? scratch->ignored[t] : other_size)
                verdict.ignored |= bit;
        }
        image->verdicts[d] = verdict;
    }
}

/* All images of the category for one range of areas; returns how many objects count. */
static int64_t match_images(const struct cvy_coco_lists *lists, const double range[2], struct scratch *scratch)
{
    size_t truth = 0, detection = 0;
    int64_t counting = 0;

    while (truth < lists->truth_count || detection < lists->detection_count) {
        const uint32_t of_truth = truth < lists->truth_count ? lists->truths[truth].image : UINT32_MAX;
        const uint32_t of_detection =
            detection < lists->detection_count ? lists->detections[detection].image : UINT32_MAX;
        const uint32_t number = of_truth < of_detection ? of_truth : of_detection;
        struct image image = {
            .truths = lists->truths + truth,
            .detections = lists->detections + detection,
            .verdicts = scratch->verdicts + detection,
        };
        while (truth < lists->truth_count && lists->truths[truth].image == number)
            truth++, image.truth_count++;
        while (detection < lists->detection_count && lists->detections[detection].image == number)
            detection++, image.detection_count++;
        find_overlaps(&image, scratch);
        counting += (int64_t)order_truths(&image, range, scratch);
        match_image(&image, range, scratch);
    }
    return counting;
}

/* ---- curves ---- */

/* Recall and precision after each detection by falling score, of those in the first `max` places on their image.
 * Returns how many these are. */
static size_t follow(const struct cvy_coco_lists *lists, const struct scratch *scratch, int threshold, uint32_t max,
                     int64_t counting)
{
    double right = 0, wrong = 0;
    size_t count = 0;

    for (size_t i = 0; i < lists->detection_count; i++) {
        const size_t d = scratch->by_score[i];
        const struct verdict verdict = scratch->verdicts[d];
        if (lists->detections[d].place >= max)
            continue;
        if (!(verdict.ignored >> threshold & 1)) {
            right += verdict.matched >> threshold & 1;
            wrong += !(verdict.matched >> threshold & 1);
        }
        scratch->recall[count] = right / (double)counting;
        scratch->precision[count++] = right / (wrong + right + 2.220446049250313e-16);
    }
    return count;
}

/* Precision at each recall point: the best that is reached there or further on. Returns the sum. */
static double sample_curve(const struct scratch *scratch, size_t count, double *sampled)
{
    double sum = 0;
    size_t at = 0;

    for (size_t i = count; i-- > 1;)
        scratch->precision[i - 1] = fmax(scratch->precision[i - 1], scratch->precision[i]);
    for (int r = 0; r < CVY_COCO_RECALLS; r++) {
        while (at < count && scratch->recall[at] < recall_point(r))
            at++;
        sampled[r] = at < count ? scratch->precision[at] : 0;
        sum += sampled[r];
    }
    return sum;
}

static double recall_sum(const struct cvy_coco_lists *lists, const struct scratch *scratch, uint32_t max,
                         int64_t counting)
{
    double sum = 0;

    for (int threshold = 0; threshold < CVY_COCO_THRESHOLDS; threshold++) {
        const size_t count = follow(lists, scratch, threshold, max, counting);
        sum += count > 0 ? scratch->recall[count - 1] : 0;
    }
    return sum;
}

/* precision: (CVY_COCO_THRESHOLDS, CVY_COCO_RECALLS) of this range of areas. */
static void sum_area(const struct cvy_coco_lists *lists, const struct scratch *scratch, enum cvy_coco_area area,
                     int64_t counting, double *precision, struct cvy_coco_sums *sums)
{
    if (counting == 0) {
        for (int i = 0; i < CVY_COCO_THRESHOLDS * CVY_COCO_RECALLS; i++)
            precision[i] = -1;
        return;
    }
    sums->found[area] = 1;
    for (int threshold = 0; threshold < CVY_COCO_THRESHOLDS; threshold++) {
        const size_t count = follow(lists, scratch, threshold, CVY_COCO_MAX_DETECTIONS, counting);
        const double sum = sample_curve(scratch, count, precision + threshold * CVY_COCO_RECALLS);
        sums->precision[area] += sum;
        sums->recall[area] += count > 0 ? scratch->recall[count - 1] : 0;
        if (area == CVY_COCO_ALL && threshold == 0)
            sums->precision50 = sum;
        if (area == CVY_COCO_ALL && threshold == 5)
            sums->precision75 = sum;
    }
    if (area == CVY_COCO_ALL) {
        sums->recall1 = recall_sum(lists, scratch, 1, counting);
        sums->recall10 = recall_sum(lists, scratch, 10, counting);
    }
}

/* ---- a category ---- */

struct scored {
    double score;
    size_t index;
};

static int by_falling_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Over all images; equal scores by image, then by place. */
static cvy_status order_detections(const struct cvy_coco_lists *lists, struct scratch *scratch)
{
    struct scored *scored = cvy_calloc(lists->detection_count + 1, sizeof *scored);

    if (!scored)
        return cvy_fail_memory(lists->detection_count * sizeof *scored, "the order of detections");
    for (size_t i = 0; i < lists->detection_count; i++)
        scored[i] = (struct scored){lists->detections[i].score, i};
    if (lists->detection_count > 0)
        qsort(scored, lists->detection_count, sizeof *scored, by_falling_score);
    for (size_t i = 0; i < lists->detection_count; i++)
        scratch->by_score[i] = scored[i].index;
    cvy_free(scored);
    return CVY_OK;
}

/* The most objects of the category on one image. */
static size_t max_truths(const struct cvy_coco_lists *lists)
{
    size_t max = 0, count = 0;

    for (size_t i = 0; i < lists->truth_count; i++) {
        count = i > 0 && lists->truths[i].image == lists->truths[i - 1].image ? count + 1 : 1;
        max = count > max ? count : max;
    }
    return max;
}

static cvy_status open_scratch(const struct cvy_coco_lists *lists, struct scratch *scratch)
{
    const size_t truths = max_truths(lists) + 1, detections = lists->detection_count + 1;

    *scratch = (struct scratch){
        .overlaps = cvy_calloc(truths, CVY_COCO_MAX_DETECTIONS * sizeof *scratch->overlaps),
        .order = cvy_calloc(truths, sizeof *scratch->order),
        .taken = cvy_calloc(truths, sizeof *scratch->taken),
        .ignored = cvy_calloc(truths, sizeof *scratch->ignored),
        .verdicts = cvy_calloc(detections, sizeof *scratch->verdicts),
        .by_score = cvy_calloc(detections, sizeof *scratch->by_score),
        .recall = cvy_calloc(detections, sizeof *scratch->recall),
        .precision = cvy_calloc(detections, sizeof *scratch->precision),
    };
    if (!scratch->overlaps || !scratch->order || !scratch->taken || !scratch->ignored || !scratch->verdicts ||
        !scratch->by_score || !scratch->recall || !scratch->precision)
        return cvy_fail_memory(truths * CVY_COCO_MAX_DETECTIONS * sizeof(double), "the detections of a category");
    return CVY_OK;
}

static void close_scratch(struct scratch *scratch)
{
    cvy_free(scratch->overlaps);
    cvy_free(scratch->order);
    cvy_free(scratch->taken);
    cvy_free(scratch->ignored);
    cvy_free(scratch->verdicts);
    cvy_free(scratch->by_score);
    cvy_free(scratch->recall);
    cvy_free(scratch->precision);
}

cvy_status cvy_coco_match(const struct cvy_coco_lists *lists, double *precision, struct cvy_coco_sums *sums,
                          struct cvy_coco_category *category)
{
    double other[CVY_COCO_THRESHOLDS * CVY_COCO_RECALLS]; /* of small, medium, large: only their sums stay */
    struct scratch scratch = {0};
    cvy_status status;

    *sums = (struct cvy_coco_sums){0};
    *category = (struct cvy_coco_category){.detections = (int64_t)lists->detection_count};
    for (size_t i = 0; i < lists->truth_count; i++)
        category->crowds += lists->truths[i].crowd;
    category->truths = (int64_t)lists->truth_count - category->crowds;
    CVY_GOTO(open_scratch(lists, &scratch));
    CVY_GOTO(order_detections(lists, &scratch));
    for (enum cvy_coco_area area = CVY_COCO_ALL; area < CVY_COCO_AREAS; area++) {
        const int64_t counting = match_images(lists, areas[area], &scratch);
        sum_area(lists, &scratch, area, counting, area == CVY_COCO_ALL ? precision : other, sums);
    }
    const bool found = sums->found[CVY_COCO_ALL];
    category->ap = found ? sums->precision[CVY_COCO_ALL] / (CVY_COCO_THRESHOLDS * CVY_COCO_RECALLS) : -1;
    category->ap50 = found ? sums->precision50 / CVY_COCO_RECALLS : -1;
    category->ap75 = found ? sums->precision75 / CVY_COCO_RECALLS : -1;
    category->recall = found ? sums->recall[CVY_COCO_ALL] / CVY_COCO_THRESHOLDS : -1;
fail:
    close_scratch(&scratch);
    return status;
}
