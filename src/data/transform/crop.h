/* Which part of an image is taken by the rules of torchvision. */
#ifndef CVY_DATA_TRANSFORM_CROP_H
#define CVY_DATA_TRANSFORM_CROP_H

#include "base/rng.h"
#include "convoy/status.h"
#include "data/image/format.h"

/* The crop RandomResizedCrop(scale min_area..1, ratio 3/4..4/3) takes from a width x height image: 10 attempts, then
 * the central fallback (doc/data.md). */
struct cvy_box cvy_random_resized_crop(struct cvy_rng *rng, double min_area, int32_t width, int32_t height);

/* Where the evaluation transform puts a width x height image: resized to full_width x full_height, of which `window`
 * lands at (at_x, at_y) of the size x size result; the rest of it stays 0 (images smaller than the crop). */
struct cvy_center_crop {
    int32_t full_width, full_height;
    struct cvy_box window;
    int32_t at_x, at_y;
};
/* Resize(resize) + CenterCrop(size). CVY_BAD_DATA when the image is too elongated to be resized. */
CVY_CHECKED cvy_status cvy_center_crop(int32_t resize, int32_t size, int32_t width, int32_t height, const char *name,
                                       struct cvy_center_crop *crop);

#endif
