/* Anchors: the boxes that a detector's predictions are relative to, on a grid for each level of a pyramid of feature
 * maps. Order: levels from fine to coarse, in each rows, columns, then the anchors of one location. */
#ifndef CVY_OPS_ANCHORS_H
#define CVY_OPS_ANCHORS_H

#include "convoy/status.h"
#include "graph/boxes.h"

/* What SSD320 takes for images of this size: levels 3 to 7, squares of 4 strides, aspects 1, 2 and 1/2, two scales. */
enum {
    CVY_SSD_FIRST_LEVEL = 3,
    CVY_SSD_LEVELS = 5,
    CVY_SSD_SCALES = 2,
    CVY_SSD_ASPECTS = 3,
    CVY_SSD_ANCHORS = CVY_SSD_SCALES * CVY_SSD_ASPECTS /* at a location */
};
struct cvy_anchors cvy_anchors_ssd(int32_t height, int32_t width);
/* CVY_USAGE with a sentence where a value is impossible. */
CVY_CHECKED cvy_status cvy_anchors_check(const struct cvy_anchors *anchors);

/* For anchors that have been checked: */
/* Rows and columns of locations of level first_level + i. */
void cvy_anchors_extent(const struct cvy_anchors *anchors, int32_t i, int64_t extent[2]);
/* Index of the first anchor of level first_level + i; of i = levels: their number. */
int64_t cvy_anchors_first(const struct cvy_anchors *anchors, int32_t i);
static inline int64_t cvy_anchors_count(const struct cvy_anchors *anchors)
{
    return cvy_anchors_first(anchors, anchors->levels);
}
/* The numbers from which graph/boxes.h makes any anchor. */
struct cvy_anchor_grid cvy_anchors_grid(const struct cvy_anchors *anchors);
/* All of them, (A, 4). */
void cvy_anchors_fill(const struct cvy_anchors *anchors, float *boxes);

#endif
