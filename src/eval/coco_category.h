/* The measures of COCO's evaluation, and what they say of one category. */
#ifndef CVY_EVAL_COCO_CATEGORY_H
#define CVY_EVAL_COCO_CATEGORY_H

#include <stdint.h>

enum {
    CVY_COCO_STATS = 12,
    CVY_COCO_THRESHOLDS = 10,      /* of the overlap: 0.50, 0.55, ..., 0.95 */
    CVY_COCO_RECALLS = 101,        /* 0, 0.01, ..., 1 */
    CVY_COCO_MAX_DETECTIONS = 100, /* detections of one category on one image that count */
};

/* Results of one category. Averages are -1 where there is nothing to find. */
struct cvy_coco_category {
    int64_t truths, crowds, detections; /* truths: without crowds; detections: those that count */
    double ap, ap50, ap75;              /* average precision: of all thresholds, of 0.50, of 0.75 */
    double recall;                      /* mean over the thresholds, 100 detections an image */
};

#endif
