/* A data set once it is open: a list of labelled images, for detection with the boxes of the objects on them. */
#ifndef CVY_DATA_SET_SAMPLE_SET_H
#define CVY_DATA_SET_SAMPLE_SET_H

#include "base/memory.h"
#include "data/sample/objects.h"
#include "data/sample/sample.h"
#include "data/set/other_files.h"

struct cvy_dataset {
    struct cvy_arena arena;
    const char **classes; /* sorted bytewise; index = label */
    int32_t class_count;
    struct cvy_sample *samples; /* sorted by class, then bytewise by path */
    uint32_t sample_count;
    struct cvy_shards *shards;     /* the open files of its records; NULL: none */
    struct cvy_other_files others; /* of class folders, what was left out; a split's are its training part's */
    /* detection sets only; the label of their samples is 0, and `classes` are in the order of the slots, "" where one
     * of COCO's has no category */
    bool detection;
    const char *source;              /* its COCO file, or the folder of its records */
    int64_t *category_ids;           /* (class_count) slot - 1 -> id */
    struct cvy_coco_image *images;   /* (sample_count) */
    uint32_t *places;                /* (sample_count) of each image in its file, from 0 */
    struct cvy_coco_object *objects; /* image by image; crowds too */
    uint32_t object_count;           /* without those set aside */
    struct cvy_odd_boxes odd;
};

/* The objects of a sample of a detection set, in the order of its file. */
void cvy_dataset_objects(const struct cvy_dataset *dataset, uint32_t sample, const struct cvy_coco_object **objects,
                         size_t *count);
/* The same, followed by those excluded from training: all that its file has, each with its position there. */
void cvy_dataset_all_objects(const struct cvy_dataset *dataset, uint32_t sample, const struct cvy_coco_object **objects,
                             size_t *count);

/* Names class `index`, of those that are allocated. CVY_BAD_DATA: the name is not UTF-8, so that JSON and weights could
 * not hold it. */
CVY_CHECKED cvy_status cvy_dataset_set_class(struct cvy_dataset *dataset, int32_t index, const char *name);
void cvy_dataset_close(struct cvy_dataset *dataset); /* accepts a zeroed one */
/* Sorts the samples into the order of a data set, once they are set. */
void cvy_dataset_sort(struct cvy_dataset *dataset);

#endif
