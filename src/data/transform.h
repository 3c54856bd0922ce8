/* torchvision's geometry: RandomResizedCrop + flip for training, Resize + CenterCrop for evaluation. */
#ifndef CVY_DATA_TRANSFORM_H
#define CVY_DATA_TRANSFORM_H

#include "base/rng.h"
#include "data/image.h"
#include "data/resize.h"

struct cvy_transform {
    bool training;
    int32_t size;      /* of the square result */
    int32_t resize;    /* evaluation: shorter side before the crop */
    bool exif_orientation;
};
/* The crop RandomResizedCrop(scale 0.08..1, ratio 3/4..4/3) takes from a width x height image: 10 attempts, then the
 * central fallback (doc/data.md). */
struct cvy_box cvy_random_resized_crop(struct cvy_rng *rng, int32_t width, int32_t height);

/* Decode and transform one encoded image into `out` (size, size, 3). `rng` is used in training only. */
CVY_CHECKED cvy_status cvy_transform_image(const struct cvy_transform *transform, struct cvy_decoder *decoder,
                                           struct cvy_resizer *resizer, const char *name, const void *data,
                                           size_t bytes, struct cvy_rng *rng, uint8_t *out);

#endif
