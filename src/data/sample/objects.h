/* The objects on the images of a detection set, in COCO's terms. */
#ifndef CVY_DATA_SAMPLE_OBJECTS_H
#define CVY_DATA_SAMPLE_OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

/* The maximum number of objects per image in training; further ones are dropped. */
enum { CVY_MAX_BOXES = 100 };

struct cvy_coco_object {
    double bbox[4]; /* x, y, width, height in pixels of the original image */
    double area;    /* pixels, as the data set says: of the outline, not of the box */
    int32_t slot;   /* 1..class_count: index of the class + 1 */
    bool crowd;
    uint32_t place; /* among all objects of the image in its file */
};

/* One image: its size is what the boxes refer to. */
struct cvy_coco_image {
    int64_t id;
    int32_t width, height;
    uint32_t first_object, object_count; /* in the data set's list of objects */
    uint32_t excluded_count;             /* after them: those excluded from training */
};

/* Boxes that a file has and that are excluded from training: no width or height; beyond the image. TensorFlow's program
 * leaves them out of its records, and so of training; COCO's evaluation counts them. With a box or area that is not
 * finite: dropped.
 */
enum cvy_odd_kind { CVY_BOX_EMPTY, CVY_BOX_OUTSIDE, CVY_BOX_NOT_FINITE, CVY_BOX_KINDS };
struct cvy_odd_box {
    enum cvy_odd_kind kind;
    const char *file; /* of records; NULL: the source of the data set */
    uint64_t at;      /* bytes into the file */
    int64_t image_id;
    double bbox[4];
};
enum { CVY_ODD_LISTED = 100 };
struct cvy_odd_boxes {
    int64_t count[CVY_BOX_KINDS];
    struct cvy_odd_box *listed; /* the first CVY_ODD_LISTED ones; NULL: none */
    uint32_t listed_count;
};

#endif
