/* A data set in tar archives, as WebDataset has them: DIR/train-*.tar and DIR/val-*.tar, in which the files of one name
 * up to its first dot are a sample: an image (CVY_IMAGE_ENDINGS) and its label (cls: a number from 0). */
#ifndef CVY_DATA_SET_TAR_SET_H
#define CVY_DATA_SET_TAR_SET_H

#include "data/set/sample_set.h"

bool cvy_holds_tars(const char *folder, bool val);
/* The samples of a part; images are not read. Classes as data/set/class_file.h has them. CVY_BAD_DATA names archive and
 * member: a damaged or truncated archive, an image without a label, a label that is none. */
CVY_CHECKED cvy_status cvy_dataset_open_tars(struct cvy_dataset *dataset, const char *folder, bool val,
                                             const char *const *classes, int32_t class_count);

/* The samples of one archive. */
struct cvy_tar_location {
    uint64_t header; /* where the image's header block is; its bytes follow it */
    uint32_t size;   /* with the block */
    int32_t label;
};
struct cvy_tar_list {
    struct cvy_tar_location *places; /* freed by the caller, after failures too */
    size_t count;
};
CVY_CHECKED cvy_status cvy_tar_scan(const char *what, int file, struct cvy_tar_list *list);

#endif
