/* One category of COCO's evaluation: detections matched to objects, and the curves that follow. */
#ifndef CVY_EVAL_COCO_MATCH_H
#define CVY_EVAL_COCO_MATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "convoy/status.h"
#include "eval/coco_category.h"

enum cvy_coco_area { CVY_COCO_ALL, CVY_COCO_SMALL, CVY_COCO_MEDIUM, CVY_COCO_LARGE, CVY_COCO_AREAS };

/* What an evaluation keeps of each object and each detection. `place` is the position among those of the image: as
 * given, or (detections) by falling score within the category. */
struct cvy_coco_target {
    double box[4], area;
    int32_t category;
    uint32_t image, place;
    bool crowd;
};
struct cvy_coco_prediction {
    double box[4], score;
    int32_t category;
    uint32_t image, place;
};
/* Those of one category, sorted by image, then by place. */
struct cvy_coco_lists {
    const struct cvy_coco_target *truths;
    size_t truth_count;
    const struct cvy_coco_prediction *detections;
    size_t detection_count;
};
/* Sums over thresholds and recall points (precision), or over thresholds (recall). */
struct cvy_coco_sums {
    double precision[CVY_COCO_AREAS], recall[CVY_COCO_AREAS]; /* of 100 detections an image */
    double precision50, precision75, recall1, recall10;       /* of all sizes */
    int64_t found[CVY_COCO_AREAS];                            /* 1 where there is something to find, else 0 */
};
/* precision: (CVY_COCO_THRESHOLDS, CVY_COCO_RECALLS). CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_coco_match(const struct cvy_coco_lists *lists, double *precision, struct cvy_coco_sums *sums,
                                      struct cvy_coco_category *category);

#endif
