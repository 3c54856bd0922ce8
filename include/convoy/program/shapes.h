/* `convoy dataset shapes`: the built-in data sets. */
#ifndef CONVOY_PROGRAM_SHAPES_H
#define CONVOY_PROGRAM_SHAPES_H

#include <stdbool.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cvy_shapes_options {
    int train_per_class, val_per_class;
    int image_size; /* side of the square images, 32..1024 */
    uint64_t seed;  /* train and val draw from disjoint streams of it */
    int quality;    /* JPEG quality 1..100 */
    int threads;    /* <= 0: all cores */
};
#ifdef __cplusplus
#define CVY_SHAPES_DEFAULTS                                                                                            \
    ([] {                                                                                                              \
        struct cvy_shapes_options cvy_options_ = cvy_shapes_options();                                                 \
        cvy_options_.train_per_class = 400;                                                                            \
        cvy_options_.val_per_class = 100;                                                                              \
        cvy_options_.image_size = 48;                                                                                  \
        cvy_options_.quality = 90;                                                                                     \
        return cvy_options_;                                                                                           \
    }())
#else
#define CVY_SHAPES_DEFAULTS                                                                                            \
    ((struct cvy_shapes_options){.train_per_class = 400, .val_per_class = 100, .image_size = 48, .quality = 90})
#endif
/* Writes OUT/{train,val}/<class>/<number>.jpg for ten classes of drawn objects with varied colour, texture, size,
 * rotation, clutter and noise. The same options give the same bytes. An existing non-empty OUT is refused
 * (CVY_CANNOT_CREATE). */
CVY_API CVY_CHECKED cvy_status cvy_write_shapes(const char *folder, const struct cvy_shapes_options *options);

/* The same objects, up to six on an image, with a box around each. */
struct cvy_shape_boxes_options {
    int train_images, val_images;
    int classes;    /* 1..10 of the shapes */
    int image_size; /* longer side, 64..1024; the other one is as long or three quarters of it */
    uint64_t seed;
    int quality; /* JPEG quality 1..100 */
    int threads; /* <= 0: all cores */
};
#ifdef __cplusplus
#define CVY_SHAPE_BOXES_DEFAULTS                                                                                       \
    ([] {                                                                                                              \
        struct cvy_shape_boxes_options cvy_options_ = cvy_shape_boxes_options();                                       \
        cvy_options_.train_images = 600;                                                                               \
        cvy_options_.val_images = 150;                                                                                 \
        cvy_options_.classes = 4;                                                                                      \
        cvy_options_.image_size = 320;                                                                                 \
        cvy_options_.quality = 90;                                                                                     \
        return cvy_options_;                                                                                           \
    }())
#else
#define CVY_SHAPE_BOXES_DEFAULTS                                                                                       \
    ((struct cvy_shape_boxes_options){                                                                                 \
        .train_images = 600, .val_images = 150, .classes = 4, .image_size = 320, .quality = 90})
#endif
/* Writes OUT/train/<number>.jpg, OUT/val/<number>.jpg and their boxes in OUT/annotations/instances_{train,val}.json, as
 * COCO has them. The same options give the same bytes; a larger set begins with the smaller one. OUT as above. */
CVY_API CVY_CHECKED cvy_status cvy_write_shape_boxes(const char *folder, const struct cvy_shape_boxes_options *options);

#ifdef __cplusplus
}
#endif
#endif
