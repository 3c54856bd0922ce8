/* Opening data sets: image folders, lists and files of records, alone or as a pair of training and validation. */
#ifndef CVY_DATA_SET_DATASET_H
#define CVY_DATA_SET_DATASET_H

#include "convoy/status.h"
#include "data/set/sample_set.h"

/* FOLDER/<class>/... with images (jpg jpeg jfif png webp heic heif avif tif tiff bmp gif, any case), read recursively
 * and sorted bytewise. Hidden files and folders are skipped. A file in place of a folder is a list (data/set/list.h).
 * CVY_NO_INPUT: missing or unreadable. CVY_BAD_DATA: no classes, no images, a class without images; or (when `classes`
 * of class_count names are given) a class that is not among them: "validation class "cat" is not in training". With
 * given classes, labels are indices into them and a class may have no folder. */
CVY_CHECKED cvy_status cvy_dataset_open(struct cvy_dataset *dataset, const char *folder, const char *const *classes,
                                        int32_t class_count);
/* The training set of DIR alone: DIR/train where that is a folder, else DIR itself (a list, class folders). */
CVY_CHECKED cvy_status cvy_dataset_open_training(struct cvy_dataset *dataset, const char *folder);

/* Training and validation sets of DIR, a folder or a list: DIR/train and DIR/val; or the list `val_list` (NULL or "":
 * none) for validation; or, with val_split > 0 (fraction, stratified by class, by seed, at least one image of each
 * class on either side), a split of the training set. None of these: CVY_NO_INPUT with the remedy. Two of them:
 * CVY_USAGE. */
CVY_CHECKED cvy_status cvy_dataset_open_pair(const char *folder, const char *val_list, double val_split, uint64_t seed,
                                             struct cvy_dataset *train, struct cvy_dataset *val);
/* Both sets of DIR without a part for validation: `share` of the images (above 0, below 1) by their paths
 * (cvy_dataset_split_by_path). CVY_USAGE: there is such a part. */
CVY_CHECKED cvy_status cvy_dataset_open_split(const char *folder, double share, struct cvy_dataset *train,
                                              struct cvy_dataset *val);

/* The share of images that a folder without a part for validation is split by, if nobody says another one. */
#define CVY_AUTOMATIC_SPLIT 0.1
/* Whether DIR is a folder of class folders (DIR/train, or DIR itself) and has no DIR/val, so that it is to be split by
 * itself. False for lists and records, and for what is not there, about which opening it says what is wrong.
 * CVY_NO_INPUT: it rather has the parts of a data set under other names, or in one folder more. */
CVY_CHECKED cvy_status cvy_dataset_lacks_validation(const char *folder, bool *lacks);

/* Every image file below the given files and folders, sorted bytewise inside each folder. Given names that are not
 * folders are kept, missing ones too: the error is reported when they are read. So are folders that cannot be read.
 * paths live in the arena. */
CVY_CHECKED cvy_status cvy_list_images(const char *const *inputs, size_t count, struct cvy_arena *arena,
                                       const char ***paths, size_t *path_count);

#endif
