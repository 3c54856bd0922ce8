/* Augmentation of an image with boxes, as in TensorFlow's detection program: it mirrors and crops the image together
 * with its boxes, and optionally changes the colours. */
#ifndef CVY_DATA_TRANSFORM_DETECTION_H
#define CVY_DATA_TRANSFORM_DETECTION_H

#include "base/rng.h"
#include "convoy/status.h"
#include "data/image/image.h"
#include "data/sample/objects.h"

/* The ground truth of an image. */
struct cvy_truth {
    const struct cvy_coco_image *image;
    const struct cvy_coco_object *objects;
    size_t count;
};
/* The targets for training: at most CVY_MAX_BOXES, the rest zero. */
struct cvy_target_boxes {
    float (*boxes)[4]; /* (CVY_MAX_BOXES, 4) ymin, xmin, ymax, xmax as shares of the image */
    int32_t *labels;   /* (CVY_MAX_BOXES) slots; 0: none */
};
/* The corners of an object as shares of its image: ymin, xmin, ymax, xmax. */
void cvy_object_shares(const struct cvy_coco_image *image, const struct cvy_coco_object *object, float box[4]);

struct cvy_detection_crop {
    bool mirrored;
    struct cvy_box window; /* pixels of the image, mirrored where it is */
};
/* Draw for an image of width x height pixels: mirrored half of the time, then a crop of 75 % to all of the area and a
 * width / height of 0.75 to 3; the whole image where 100 attempts find none. */
CVY_CHECKED cvy_status cvy_detection_draw(struct cvy_rng *rng, int32_t width, int32_t height,
                                          const struct cvy_truth *truth, struct cvy_detection_crop *crop);
/* The boxes after the crop (NULL: of the image as it is), those outside left out. */
void cvy_detection_boxes(const struct cvy_truth *truth, const struct cvy_detection_crop *crop, int32_t width,
                         int32_t height, struct cvy_target_boxes *out);

#endif
