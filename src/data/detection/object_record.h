/* One image with the objects on it as a tf.train.Example, under the keys of TensorFlow's COCO files (doc/data.md). */
#ifndef CVY_DATA_DETECTION_OBJECT_RECORD_H
#define CVY_DATA_DETECTION_OBJECT_RECORD_H

#include "data/sample/objects.h"
#include "formats/container/example.h"

enum { CVY_RECORD_TEXT = 256 }; /* bytes of a category's name, its end included */

/* What a reader wants of a record; lists have `count` entries and are owned. */
struct cvy_object_record {
    int64_t id; /* -1: "image/source_id" is no number */
    int32_t width, height;
    size_t count;
    float (*boxes)[4]; /* ymin, xmin, ymax, xmax as stored */
    float *areas;      /* NULL: none are stored; so for the rest */
    int64_t *crowds, *labels;
    char (*texts)[CVY_RECORD_TEXT];
};
/* CVY_BAD_DATA: damaged, without an image, its size, or names or labels of its boxes, or lists of different lengths.
 * Release the record in any case. */
CVY_CHECKED cvy_status cvy_object_record_read(struct cvy_example *example, struct cvy_object_record *record);
void cvy_object_record_release(struct cvy_object_record *record);

/* The input of a writer. */
struct cvy_object_record_source {
    const void *image; /* a JPEG */
    size_t image_size;
    const char *filename;
    const struct cvy_coco_image *about;
    const struct cvy_coco_object *objects; /* (about->object_count) */
    const char *const *classes;            /* by slot - 1 */
};
/* The message; freed with cvy_free. */
CVY_CHECKED cvy_status cvy_object_record_pack(const struct cvy_object_record_source *source, uint8_t **message,
                                              size_t *size);

#endif
