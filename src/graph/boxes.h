/* The arithmetic of boxes and anchors, the same on every device. A box is [ymin, xmin, ymax, xmax] as shares of the
 * image.
 *
 * Anchors and overlaps are single precision whatever the type of the network, each product rounded by itself, so that
 * no two devices disagree about which box an anchor finds. Codes and scores are computed in double and rounded once.
 *
 * Codes (Faster R-CNN's): 10 (cy - cy_a) / h_a, 10 (cx - cx_a) / w_a, 5 ln(h / h_a), 5 ln(w / w_a), with centre and
 * sides of box and anchor; 1e-8 is added to all sides when a box is encoded, as TensorFlow's coder does. */
#ifndef CVY_GRAPH_BOXES_H
#define CVY_GRAPH_BOXES_H

#include <math.h>

#include "graph/op.h"

#ifndef CVY_BOXES_FUNCTION
#define CVY_BOXES_FUNCTION static inline
/* a * b, never fused with a following addition: files that include this compile without contraction. */
#define CVY_BOXES_PRODUCT(a, b) ((a) * (b))
#endif

/* The minimum overlap for an anchor to match the box that it overlaps most; and the largest float below it. */
#define CVY_MATCH_OVERLAP       0.5f
#define CVY_BELOW_MATCH_OVERLAP 0.49999997f

#define CVY_MAX_ANCHORS_AT_LOCATION (CVY_MAX_ASPECTS * CVY_MAX_SCALES)

struct cvy_anchor_level {
    int32_t first;     /* its first anchor */
    int32_t extent[2]; /* rows, columns */
    float stride, side;
    float offset[2]; /* of the first location's centre, in pixels */
};
struct cvy_anchor_grid {
    int32_t levels, at_location, count;
    struct cvy_anchor_level level[CVY_MAX_LEVELS];
    float sides[CVY_MAX_ANCHORS_AT_LOCATION][2]; /* height, width; times the level's side in pixels */
    float share[2];                              /* of the image that a pixel has: 1 / height, 1 / width */
};

CVY_BOXES_FUNCTION void cvy_anchor_at(const struct cvy_anchor_grid *grid, int32_t index, float box[4])
{
    const struct cvy_anchor_level *level = grid->level;
    int32_t location, place[2], i;

    while (level + 1 < grid->level + grid->levels && index >= level[1].first)
        level++;
    location = (index - level->first) / grid->at_location;
    index = (index - level->first) % grid->at_location;
    place[0] = location / level->extent[1];
    place[1] = location % level->extent[1];
    for (i = 0; i < 2; i++) {
        const float centre = CVY_BOXES_PRODUCT((float)place[i], level->stride) + level->offset[i];
        const float half = CVY_BOXES_PRODUCT(grid->sides[index][i], level->side) * 0.5f;
        box[i] = (centre - half) * grid->share[i];
        box[i + 2] = (centre + half) * grid->share[i];
    }
}

CVY_BOXES_FUNCTION float cvy_box_area(const float box[4])
{
    return CVY_BOXES_PRODUCT(box[2] - box[0], box[3] - box[1]);
}

/* Intersection over union; 0 where they do not meet. NaN in one of them gives NaN or 0. */
CVY_BOXES_FUNCTION float cvy_box_overlap(const float a[4], float area_a, const float b[4], float area_b)
{
    const float top = a[0] > b[0] ? a[0] : b[0], left = a[1] > b[1] ? a[1] : b[1];
    const float bottom = a[2] < b[2] ? a[2] : b[2], right = a[3] < b[3] ? a[3] : b[3];
    const float height = bottom - top > 0 ? bottom - top : 0, width = right - left > 0 ? right - left : 0;
    const float both = CVY_BOXES_PRODUCT(height, width), all = area_a + area_b - both;
    const float share = both / all; /* without a condition, so that loops over boxes become vectors */

    return both == 0 ? 0 : share;
}

/* Whether a row of ground truth counts: NaN does not. */
CVY_BOXES_FUNCTION bool cvy_box_valid(int32_t label, const float box[4])
{
    return label > 0 && box[0] == box[0] && box[1] == box[1] && box[2] == box[2] && box[3] == box[3];
}

CVY_BOXES_FUNCTION void cvy_box_encode(const float box[4], const float anchor[4], double code[4])
{
    const double epsilon = 1e-8;
    int32_t i;

    for (i = 0; i < 2; i++) {
        const double side = (double)box[i + 2] - (double)box[i], base = (double)anchor[i + 2] - (double)anchor[i];
        const double centre = (double)box[i] + side / 2, middle = (double)anchor[i] + base / 2;
        code[i] = 10 * (centre - middle) / (base + epsilon);
        code[i + 2] = 5 * log((side + epsilon) / (base + epsilon));
    }
}

CVY_BOXES_FUNCTION void cvy_box_decode(const double code[4], const float anchor[4], float box[4])
{
    int32_t i;

    for (i = 0; i < 2; i++) {
        const double base = (double)anchor[i + 2] - (double)anchor[i], middle = (double)anchor[i] + base / 2;
        const double centre = code[i] / 10 * base + middle, half = exp(code[i + 2] / 5) * base / 2;
        box[i] = (float)(centre - half);
        box[i + 2] = (float)(centre + half);
    }
}

/* Clips the box to the image; false where nothing is left of it. */
CVY_BOXES_FUNCTION bool cvy_box_clip(float box[4])
{
    int32_t i;

    for (i = 0; i < 4; i++)
        box[i] = box[i] > 0 ? (box[i] < 1 ? box[i] : 1) : (box[i] <= 0 ? 0 : box[i]);
    return cvy_box_area(box) > 0;
}

/* sigmoid(logit) */
CVY_BOXES_FUNCTION double cvy_box_score(double logit)
{
    return 1 / (1 + exp(-logit));
}

#endif
