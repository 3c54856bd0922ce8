/* One image with its label and boxes as a tf.train.Example, under the keys that TensorFlow's ImageNet files have. */
#ifndef CVY_DATA_SAMPLE_IMAGE_RECORD_H
#define CVY_DATA_SAMPLE_IMAGE_RECORD_H

#include "formats/container/example.h"

/* An object on an image: corners as shares of width and height. */
struct cvy_object_box {
    float xmin, ymin, xmax, ymax;
};

/* What a reader gets from a record. */
struct cvy_image_record {
    size_t image_from, image_size; /* the encoded image in the message */
    int64_t label;                 /* as stored: classes count from 1; -1: none */
    char synset[256], text[256];   /* names of the class; "": none */
    char filename[256];            /* "": none */
    struct cvy_object_box *boxes;  /* owned; NULL unless asked for */
    size_t box_count;
};
/* CVY_BAD_DATA: no such message, no image in it, a feature of another type, or box lists of different lengths. Release
 * the record in any case. */
CVY_CHECKED cvy_status cvy_image_record_read(struct cvy_example *example, bool boxes, struct cvy_image_record *record);
void cvy_image_record_release(struct cvy_image_record *record);

/* The input of a writer: an RGB JPEG. */
struct cvy_image_record_source {
    const void *image;
    size_t image_size;
    int32_t width, height;
    int64_t label; /* counted from 1 */
    const char *class_name, *filename;
    const struct cvy_object_box *boxes; /* (box_count) objects, all of the class; may be NULL for none */
    size_t box_count;
};
/* The message; freed with cvy_free. */
CVY_CHECKED cvy_status cvy_image_record_pack(const struct cvy_image_record_source *source, uint8_t **message,
                                             size_t *size);

#endif
