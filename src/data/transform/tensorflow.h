/* The geometry of TensorFlow's ImageNet program: sample_distorted_bounding_box for training, a resize and a central
 * crop for evaluation, both with the bilinear resize of TensorFlow 1. Results are floats of the 0..255 scale, not
 * rounded. */
#ifndef CVY_DATA_TRANSFORM_TENSORFLOW_H
#define CVY_DATA_TRANSFORM_TENSORFLOW_H

#include "base/rng.h"
#include "data/image/image.h"
#include "data/image/resize.h"
#include "data/sample/image_record.h"

/* Its smallest share of the image that a training crop takes. */
#define CVY_TENSORFLOW_MIN_AREA 0.05

/* One draw of the crop: `ratio` is width / height. False where no such crop fits: the caller draws again. */
CVY_CHECKED bool cvy_tensorflow_draw_crop(struct cvy_rng *rng, int32_t width, int32_t height, float min_area,
                                          float ratio, struct cvy_box *crop);
/* The crop of a width x height image: area min_area..1, ratio 0.75..1.33, with a tenth or more of some box; after 100
 * attempts the whole image. Without boxes the image itself is the box. */
struct cvy_box cvy_tensorflow_crop(struct cvy_rng *rng, int32_t width, int32_t height, float min_area,
                                   const struct cvy_object_box *boxes, size_t box_count);
/* Constraints on a crop: its minimum share of the image, its aspect ratio (width / height), and the minimum share of
 * some box that it covers. */
struct cvy_tensorflow_rules {
    float min_area, min_ratio, max_ratio, min_covered;
};
struct cvy_box cvy_tensorflow_crop_by(const struct cvy_tensorflow_rules *rules, struct cvy_rng *rng, int32_t width,
                                      int32_t height, const struct cvy_object_box *boxes, size_t box_count);
/* Shares of the image, in order. */
bool cvy_object_box_is_valid(const struct cvy_object_box *box);

/* Evaluation: the image is resized to full_width x full_height, of which size x size from (x, y) is taken. */
struct cvy_tensorflow_center {
    int32_t full_width, full_height, x, y;
};
/* CVY_BAD_DATA when the image is too elongated to be resized. */
CVY_CHECKED cvy_status cvy_tensorflow_center(int32_t resize, int32_t size, int32_t width, int32_t height,
                                             const char *name, struct cvy_tensorflow_center *center);

/* tf.compat.v1.image.resize(method=BILINEAR) of a width x height image to full_width x full_height, of which the
 * rectangle `window` goes to `out` (window->height, window->width, 3): position i reads i * (in / out), no half pixels,
 * no antialiasing. With `flip` the image is mirrored before it is resized. `part` points at the first pixel of
 * cvy_tensorflow_resize_need, or with `flip` of the image, in rows `stride` bytes apart. */
CVY_CHECKED cvy_status cvy_tensorflow_resize(struct cvy_resizer *resizer, const uint8_t *part, size_t stride,
                                             int32_t width, int32_t height, int32_t full_width, int32_t full_height,
                                             const struct cvy_box *window, bool flip, float *out);
/* The source rectangle that this window reads (without flip). */
struct cvy_box cvy_tensorflow_resize_need(int32_t width, int32_t height, int32_t full_width, int32_t full_height,
                                          const struct cvy_box *window);

#endif
