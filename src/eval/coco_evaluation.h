/* COCO's evaluation of detected boxes: the twelve numbers, and average precision by category. The rules are those of
 * COCO's own program (doc/detection.md), in double. */
#ifndef CVY_EVAL_COCO_EVALUATION_H
#define CVY_EVAL_COCO_EVALUATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/train.h"
#include "eval/coco_category.h"

struct cvy_coco_truth {
    double box[4]; /* x, y, width, height in pixels */
    double area;   /* decides small, medium or large */
    int32_t category;
    bool crowd; /* a crowd region: detections in it are neither right nor wrong */
};
struct cvy_coco_detection {
    double box[4]; /* x, y, width, height in pixels */
    double score;
    int32_t category;
};

/* Accumulated detections and ground truth. Zero-initialise. */
struct cvy_coco_evaluation {
    int32_t category_count;
    int64_t *image_ids; /* (image_count) in the order of adding */
    size_t image_count, image_capacity;
    struct cvy_coco_target *truths;
    size_t truth_count, truth_capacity;
    struct cvy_coco_prediction *detections;
    size_t detection_count, detection_capacity;
};
CVY_CHECKED cvy_status cvy_coco_open(struct cvy_coco_evaluation *evaluation, int32_t category_count);
void cvy_coco_close(struct cvy_coco_evaluation *evaluation); /* accepts a zeroed one */
/* One image, in any order of ids; copied. Categories are 0 to category_count - 1. Of each category the
 * CVY_COCO_MAX_DETECTIONS detections with the highest scores stay. CVY_BAD_DATA: an invalid category, or a number that
 * is not finite. */
CVY_CHECKED cvy_status cvy_coco_add(struct cvy_coco_evaluation *evaluation, int64_t image_id,
                                    const struct cvy_coco_truth *truths, size_t truth_count,
                                    const struct cvy_coco_detection *detections, size_t detection_count);

struct cvy_coco_result {
    double stats[CVY_COCO_STATS]; /* fractions; -1 where there is nothing to find */
    int64_t images, truths, detections;
    int32_t category_count;
    struct cvy_coco_category *categories; /* (category_count) */
    double *precision; /* (category_count, CVY_COCO_THRESHOLDS, CVY_COCO_RECALLS) of all sizes; -1: nothing to find */
};
/* The numbers, computed by `threads` threads over the categories; any number of threads gives the same bits. More may
 * be added afterwards. CVY_BAD_DATA: an image was added twice. */
CVY_CHECKED cvy_status cvy_coco_finish(struct cvy_coco_evaluation *evaluation, int threads,
                                       struct cvy_coco_result *result);
void cvy_coco_result_release(struct cvy_coco_result *result); /* accepts a zeroed one */

/* ---- names ---- */

/* The name of a number in logs: "Precision/mAP", ..., "Recall/AR@100 (large)". */
const char *cvy_coco_stat_name(int index);
/* All of them in per cent, by the short names of a training's table: "ap", "ap50", "ap75", "ap_small", ..., "ar1",
 * "ar10", "ar100", "ar_small", ...; NaN where there is nothing to find. */
void cvy_coco_measures(const double values[CVY_COCO_STATS], struct cvy_measures *measures);
/* The line that COCO's program prints for it, without a newline. Returns buffer. */
const char *cvy_coco_stat_line(int index, double value, char buffer[96]);

#endif
