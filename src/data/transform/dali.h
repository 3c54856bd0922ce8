/* Crops by the rules of DALI, which NVIDIA's programs take with --data-backend dali-cpu and dali-gpu. What is cropped
 * is resized with CVY_FILTER_LINEAR or CVY_FILTER_CUBIC, or, by the version that TensorFlow's program was written for,
 * with the antialiased triangle. */
#ifndef CVY_DATA_TRANSFORM_DALI_H
#define CVY_DATA_TRANSFORM_DALI_H

#include "data/image/resize.h"
#include "data/transform/crop.h"

/* The largest ratio of width to height, the least being 3/4: DALI's own, and what TensorFlow's program has it take. */
#define CVY_DALI_MAX_RATIO            (4.0F / 3.0F)
#define CVY_TENSORFLOW_DALI_MAX_RATIO 1.33F

/* RandomResizedCrop of DALI: up to 100 attempts in float, of which the ratio counts after it is rounded; an image too
 * elongated for any crop of this area gives the largest one with the nearest ratio, as do 100 failures. */
struct cvy_box cvy_dali_crop(struct cvy_rng *rng, float min_area, float max_ratio, int32_t width, int32_t height);
/* Resize(resize) + CenterCrop(size): both are rounded to the nearest pixel, halves away from zero; an image that is
 * smaller than the crop is padded as by torchvision. CVY_BAD_DATA when it is too elongated to be resized. */
CVY_CHECKED cvy_status cvy_dali_center_crop(int32_t resize, int32_t size, int32_t width, int32_t height,
                                            const char *name, struct cvy_center_crop *crop);
/* What of the image that resize shows: both sides keep the scale of the shorter one, as DALI's resize does unless it is
 * told subpixel_scale=False. Where the longer side was rounded, a little less is shown than there is, or more, the same
 * on both ends. */
struct cvy_view cvy_dali_view(int32_t resize, int32_t width, int32_t height, const struct cvy_center_crop *crop);

#endif
