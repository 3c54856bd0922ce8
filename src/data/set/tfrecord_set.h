/* A data set in TFRecord files: DIR/train-* and DIR/validation-*, each record one image (data/sample/image_record.h).
 */
#ifndef CVY_DATA_SET_TFRECORD_SET_H
#define CVY_DATA_SET_TFRECORD_SET_H

#include "data/set/class_file.h"

enum cvy_tfrecord_part { CVY_TFRECORD_TRAIN, CVY_TFRECORD_VALIDATION, CVY_TFRECORD_PARTS };
extern const char *const cvy_tfrecord_prefixes[CVY_TFRECORD_PARTS]; /* "train", "validation" */
/* The class file is always written, and read if it exists. */
#define CVY_TFRECORD_CLASSES CVY_CLASS_FILE

/* Whether the folder holds files of this part. */
bool cvy_holds_tfrecords(const char *folder, enum cvy_tfrecord_part part);
/* Their paths, sorted bytewise, in the arena. Names like train-00003-of-00010 must be complete. CVY_BAD_DATA: one is
 * missing, or there are none. */
CVY_CHECKED cvy_status cvy_tfrecord_files(const char *folder, enum cvy_tfrecord_part part, struct cvy_arena *arena,
                                          const char ***files, size_t *count);

/* The same for `count` such files, at least one: a half-copied set must not pass as a smaller one. */
CVY_CHECKED cvy_status cvy_tfrecord_check_complete(const char *folder, const char *const *files, size_t count);

/* The samples of a part; images are not read. Places come from the index files of `index_folder` (NULL or "": the files
 * are walked), labels from the records: as stored minus 1. Class names: with given `classes`, those, and what the
 * records say must agree with them; else of CVY_TFRECORD_CLASSES, else of the records (synset, else text), else
 * numbers. CVY_BAD_DATA names file and byte. */
CVY_CHECKED cvy_status cvy_dataset_open_tfrecords(struct cvy_dataset *dataset, const char *folder,
                                                  enum cvy_tfrecord_part part, const char *index_folder,
                                                  const char *const *classes, int32_t class_count);
/* Training and validation files of DIR, which must hold both; on failure both are closed. */
CVY_CHECKED cvy_status cvy_dataset_open_tfrecord_pair(const char *folder, const char *index_folder,
                                                      struct cvy_dataset *train, struct cvy_dataset *val);

#endif
