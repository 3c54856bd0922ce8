/* A COCO annotation file (instances_train2017.json and the like) as lists. Streamed: the outlines of objects, nine
 * tenths of such a file, are not kept. */
#ifndef CVY_DATA_DETECTION_COCO_FILE_H
#define CVY_DATA_DETECTION_COCO_FILE_H

#include "base/memory.h"
#include "convoy/status.h"
#include "data/sample/shard.h"

/* `at`: bytes into the file where the entry ends, for messages. */
struct cvy_coco_file_image {
    int64_t id;
    uint64_t at;
    const char *file_name;
    int32_t width, height; /* at least 1 */
    uint32_t record_bytes; /* records only: as in struct cvy_sample; `file_name` is the name of their file */
    uint64_t record_offset;
    const struct cvy_shard *shard;
};
struct cvy_coco_file_annotation {
    int64_t id, image_id, category_id;
    uint64_t at;
    double bbox[4]; /* x, y, width, height in pixels: whatever finite numbers the file has */
    double area;    /* width * height where the file has none */
    bool has_id, crowd;
};
struct cvy_coco_file_category {
    int64_t id;
    uint64_t at;
    const char *name;
};

/* Zero-initialise; release accepts a zeroed one. Lists in the order of the file. */
struct cvy_coco_file {
    struct cvy_arena arena; /* of the texts */
    struct cvy_coco_file_image *images;
    struct cvy_coco_file_annotation *annotations;
    struct cvy_coco_file_category *categories;
    size_t image_count, annotation_count, category_count;
    size_t image_capacity, annotation_capacity, category_capacity;
};
void cvy_coco_file_release(struct cvy_coco_file *file);
/* Append an entry; texts are borrowed. */
CVY_CHECKED cvy_status cvy_coco_file_add_image(struct cvy_coco_file *file, const struct cvy_coco_file_image *image);
CVY_CHECKED cvy_status cvy_coco_file_add_annotation(struct cvy_coco_file *file,
                                                    const struct cvy_coco_file_annotation *annotation);
CVY_CHECKED cvy_status cvy_coco_file_add_category(struct cvy_coco_file *file,
                                                  const struct cvy_coco_file_category *category);

/* CVY_NO_INPUT: missing or unreadable; CVY_BAD_DATA names the byte: no JSON, no COCO file (lists "images" and
 * "categories" at least), an entry that lacks something, or something of another type. */
CVY_CHECKED cvy_status cvy_coco_file_read(const char *path, struct cvy_coco_file *file);
/* The same from memory. */
CVY_CHECKED cvy_status cvy_coco_file_parse(const char *what, const char *text, size_t length,
                                           struct cvy_coco_file *file);

#endif
