/* A packed data set: DIR/train-00000-of-00004.pack, ..., DIR/val-...; written by dataset_tools/pack_write.c. */
#ifndef CVY_DATA_SET_PACK_SET_H
#define CVY_DATA_SET_PACK_SET_H

#include "data/set/sample_set.h"

#define CVY_PACK_ENDING ".pack"

/* Whether the folder holds files of this part. */
bool cvy_holds_pack(const char *folder, bool val);
/* The samples of a part, in the order in which they were packed; images are not read. Given `classes` are looked up by
 * name. CVY_BAD_DATA: a file is missing, damaged or of another packing; a class that is not among the given ones. */
CVY_CHECKED cvy_status cvy_dataset_open_pack(struct cvy_dataset *dataset, const char *folder, bool val,
                                             const char *const *classes, int32_t class_count);

#endif
