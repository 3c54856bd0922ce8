/* From an encoded image to the network's input, geometry only. By torchvision's rules: RandomResizedCrop and flip for
 * training, Resize and CenterCrop for evaluation; or by those of TensorFlow's program (data/transform/tensorflow.h);
 * or, for detection, the whole image and its boxes (data/transform/detection.h). */
#ifndef CVY_DATA_TRANSFORM_TRANSFORM_H
#define CVY_DATA_TRANSFORM_TRANSFORM_H

#include "backend/image_decoder.h"
#include "base/rng.h"
#include "data/image/image.h"
#include "data/image/resize.h"
#include "data/sample/sample.h"
#include "data/transform/color_jitter.h"
#include "data/transform/crop.h"
#include "data/transform/detection.h"

struct cvy_transform {
    bool training;
    bool tensorflow;        /* TensorFlow's rules */
    bool dali;              /* DALI's rules (data/transform/dali.h) */
    bool triangular;        /* of them: with the antialiased filter, and the ratios, of TensorFlow's program */
    bool rounded_scale;     /* of them: evaluation fits the image to the rounded longer side */
    enum cvy_filter filter; /* CVY_FILTER_BILINEAR or BICUBIC: of DALI's rules, its own of these */
    int32_t size;           /* of the square result */
    int32_t resize;         /* evaluation: shorter side before the crop */
    bool fast; /* torchvision's training rules: JPEGs are decoded at a lower resolution where the crop is large */
    double min_crop_area; /* training: smallest share of the image that a crop takes; 0: the rules' own, 0.08 or 0.05 */
    bool exif_orientation;
    bool detection;                /* mirror and crop with the boxes; resized as it is, without `resize` */
    struct cvy_color_jitter color; /* training */
};
/* The usual shorter side, in pixels, that images are resized to before a square of `image_size` is cut out of their
 * middle: 256 for 224. */
int32_t cvy_usual_resize(int64_t image_size);
/* Bytes of one image: (size, size, 3) u8; f32 with TensorFlow's rules and for detection. */
size_t cvy_transform_bytes(const struct cvy_transform *transform);
/* Decode and transform one encoded image into `out`. `rng` and the image's boxes are used in training only. */
CVY_CHECKED cvy_status cvy_transform_image(const struct cvy_transform *transform, struct cvy_decoder *decoder,
                                           struct cvy_resizer *resizer, const struct cvy_encoded *encoded,
                                           struct cvy_rng *rng, void *out);
/* For devices that decode images (backend/image_decoder.h): what cvy_transform_image would do to this one, without
 * decoding it; the same numbers are drawn. *suits: whether a device can do it. */
CVY_CHECKED cvy_status cvy_transform_describe(const struct cvy_transform *transform, struct cvy_decoder *decoder,
                                              const struct cvy_encoded *encoded, struct cvy_rng *rng,
                                              struct cvy_device_image *image, bool *suits);
/* Why no image of this transform suits a device; NULL: some do. */
const char *cvy_transform_unsuited(const struct cvy_transform *transform);
/* cvy_transform_image for detection: the boxes of `truth` too, where they are after the transform. */
CVY_CHECKED cvy_status cvy_transform_detection(const struct cvy_transform *transform, struct cvy_decoder *decoder,
                                               struct cvy_resizer *resizer, const struct cvy_encoded *encoded,
                                               const struct cvy_truth *truth, struct cvy_rng *rng, float *out,
                                               struct cvy_target_boxes *boxes);

#endif
