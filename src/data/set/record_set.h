/* Data sets whose images are stored in larger files: packed (data/set/pack_set.h), tar archives (data/set/tar_set.h),
 * TFRecords (data/set/tfrecord_set.h). */
#ifndef CVY_DATA_SET_RECORD_SET_H
#define CVY_DATA_SET_RECORD_SET_H

#include "data/set/sample_set.h"

/* Whether the folder holds such files of the training or of the validation part. */
bool cvy_holds_records(const char *folder, bool val);
/* The name pattern of those files, for messages: "validation-*"; that of the training files' format where there are
 * none. */
const char *cvy_records_pattern(const char *folder, bool val);
/* The samples of one part; given `classes` as in cvy_dataset_open. */
CVY_CHECKED cvy_status cvy_dataset_open_records(struct cvy_dataset *dataset, const char *folder, bool val,
                                                const char *const *classes, int32_t class_count);
/* Both parts, which must be there; on failure both are closed. */
CVY_CHECKED cvy_status cvy_dataset_open_record_pair(const char *folder, struct cvy_dataset *train,
                                                    struct cvy_dataset *val);

#endif
