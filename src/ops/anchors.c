/* Sizes and counts of anchors; graph/boxes.h makes the boxes. */
#include "ops/anchors.h"

#include "base/error.h"

struct cvy_anchors cvy_anchors_ssd(int32_t height, int32_t width)
{
    return (struct cvy_anchors){
        .image = {height, width},
        .first_level = CVY_SSD_FIRST_LEVEL,
        .levels = CVY_SSD_LEVELS,
        .scales = CVY_SSD_SCALES,
        .aspect_count = CVY_SSD_ASPECTS,
        .aspects = {1, 2, 0.5F},
        .size = 4,
    };
}

cvy_status cvy_anchors_check(const struct cvy_anchors *anchors)
{
    for (int i = 0; i < 2; i++) {
        /* A float holds every pixel exactly, and the anchors of one level are counted in 32 bits. */
        if (anchors->image[i] < 1 || anchors->image[i] > 1 << 14)
            return cvy_fail(CVY_USAGE, "anchors need an image of 1 to %d pixels a side, not %d", 1 << 14,
                            (int)anchors->image[i]);
    }
    if (anchors->levels < 1 || anchors->levels > CVY_MAX_LEVELS || anchors->first_level < 0 ||
        anchors->first_level > 15)
        return cvy_fail(CVY_USAGE, "anchors need 1 to %d levels from 0 to 15 on, not %d from %d on", CVY_MAX_LEVELS,
                        (int)anchors->levels, (int)anchors->first_level);
    if (anchors->scales < 1 || anchors->scales > CVY_MAX_SCALES)
        return cvy_fail(CVY_USAGE, "anchors need 1 to %d scales, not %d", CVY_MAX_SCALES, (int)anchors->scales);
    if (anchors->aspect_count < 1 || anchors->aspect_count > CVY_MAX_ASPECTS)
        return cvy_fail(CVY_USAGE, "anchors need 1 to %d aspects, not %d", CVY_MAX_ASPECTS, (int)anchors->aspect_count);
    for (int i = 0; i < anchors->aspect_count; i++) {
        if (!(anchors->aspects[i] > 0 && anchors->aspects[i] <= 1e4F))
            return cvy_fail(CVY_USAGE, "an anchor cannot be %g times as wide as high", (double)anchors->aspects[i]);
    }
    if (!(anchors->size > 0 && anchors->size <= 1e4F))
        return cvy_fail(CVY_USAGE, "an anchor cannot be %g strides wide", (double)anchors->size);
    if (cvy_anchors_count(anchors) > 1 << 24)
        return cvy_fail(CVY_USAGE, "%lld anchors are too many (%d at most)", (long long)cvy_anchors_count(anchors),
                        1 << 24);
    return CVY_OK;
}

static int32_t count_at_location(const struct cvy_anchors *anchors)
{
    return anchors->scales * anchors->aspect_count;
}

void cvy_anchors_extent(const struct cvy_anchors *anchors, int32_t i, int64_t extent[2])
{
    const int64_t stride = (int64_t)1 << (anchors->first_level + i);

    for (int axis = 0; axis < 2; axis++)
        extent[axis] = (anchors->image[axis] + stride - 1) / stride;
}

int64_t cvy_anchors_first(const struct cvy_anchors *anchors, int32_t i)
{
    int64_t count = 0;

    for (int32_t below = 0; below < i; below++) {
        int64_t extent[2];
        cvy_anchors_extent(anchors, below, extent);
        count += extent[0] * extent[1] * count_at_location(anchors);
    }
    return count;
}

struct cvy_anchor_grid cvy_anchors_grid(const struct cvy_anchors *anchors)
{
    struct cvy_anchor_grid grid = {
        .levels = anchors->levels,
        .at_location = count_at_location(anchors),
        .count = (int32_t)cvy_anchors_count(anchors),
        .share = {1.0F / (float)anchors->image[0], 1.0F / (float)anchors->image[1]},
    };

    for (int32_t i = 0; i < anchors->levels; i++) {
        const int32_t stride = 1 << (anchors->first_level + i);
        int64_t extent[2];
        cvy_anchors_extent(anchors, i, extent);
        grid.level[i].first = (int32_t)cvy_anchors_first(anchors, i);
        grid.level[i].stride = (float)stride;
        grid.level[i].side = anchors->size * (float)stride;
        for (int axis = 0; axis < 2; axis++) {
            grid.level[i].extent[axis] = (int32_t)extent[axis];
            /* Locations stand in the middle of their cells only where the cells divide the image. */
            grid.level[i].offset[axis] = anchors->image[axis] % stride == 0 ? (float)stride / 2 : 0;
        }
    }
    for (int32_t i = 0; i < grid.at_location; i++) {
        const float root = sqrtf(anchors->aspects[i / anchors->scales]);
        const float scale = (float)exp2((double)(i % anchors->scales) / anchors->scales);
        grid.sides[i][0] = scale / root;
        grid.sides[i][1] = scale * root;
    }
    return grid;
}

void cvy_anchors_fill(const struct cvy_anchors *anchors, float *boxes)
{
    const struct cvy_anchor_grid grid = cvy_anchors_grid(anchors);

    for (int32_t i = 0; i < grid.count; i++)
        cvy_anchor_at(&grid, i, boxes + 4 * (size_t)i);
}
