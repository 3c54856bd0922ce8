/* A list of labelled image files: an image folder, or part of one; or images with the boxes of the objects on them. */
#ifndef CVY_DATA_SET_DATASET_H
#define CVY_DATA_SET_DATASET_H

#include "base/memory.h"
#include "convoy/status.h"
#include "data/sample/objects.h"
#include "data/sample/sample.h"

struct cvy_dataset {
    struct cvy_arena arena;
    const char **classes; /* sorted bytewise; index = label */
    int32_t class_count;
    struct cvy_sample *samples; /* sorted by class, then bytewise by path */
    uint32_t sample_count;
    struct cvy_shards *shards; /* the open files of its records; NULL: none */
    /* of detection sets alone; the label of their samples is 0, and `classes` are in the order of the slots, "" where
     * one of COCO's has no category */
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
/* The same, and behind them those that are set aside: all that its file has, each with its place there. */
void cvy_dataset_all_objects(const struct cvy_dataset *dataset, uint32_t sample, const struct cvy_coco_object **objects,
                             size_t *count);

/* FOLDER/<class>/... with images (jpg jpeg png, any case), read recursively and sorted bytewise. Hidden files and
 * folders are passed over. A file in its place is a list (data/set/list.h). CVY_NO_INPUT: missing or unreadable.
 * CVY_BAD_DATA: no classes, no images, a class without images; or (when `classes` of class_count names are given) a
 * class that is not among them: "validation class "cat" is not in training". With given classes, labels are indices
 * into them and a class may have no folder. */
CVY_CHECKED cvy_status cvy_dataset_open(struct cvy_dataset *dataset, const char *folder, const char *const *classes,
                                        int32_t class_count);
void cvy_dataset_close(struct cvy_dataset *dataset); /* accepts a zeroed one */
/* Into the order that a data set has, once samples are set. */
void cvy_dataset_sort(struct cvy_dataset *dataset);

/* The training set of DIR alone: DIR/train where that is a folder, else DIR itself (a list, class folders). */
CVY_CHECKED cvy_status cvy_dataset_open_training(struct cvy_dataset *dataset, const char *folder);

/* Training and validation sets of DIR, a folder or a list: DIR/train and DIR/val; or the list `val_list` (NULL or "":
 * none) for validation; or, with val_split > 0 (fraction, stratified by class, by seed, at least one image of each
 * class on either side), a split of the training set. None of these: CVY_NO_INPUT with the remedy. Two of them:
 * CVY_USAGE. */
CVY_CHECKED cvy_status cvy_dataset_open_pair(const char *folder, const char *val_list, double val_split, uint64_t seed,
                                             struct cvy_dataset *train, struct cvy_dataset *val);

/* Every image file below the given files and folders, sorted bytewise inside each folder. Given names that are no
 * folders are kept whatever they are, missing ones too: reading them says what is wrong. So are folders that cannot be
 * read. paths live in the arena. */
CVY_CHECKED cvy_status cvy_list_images(const char *const *inputs, size_t count, struct cvy_arena *arena,
                                       const char ***paths, size_t *path_count);

#endif
