/* Splits one data set in two, where there is no separate validation set. */
#ifndef CVY_DATA_SET_SPLIT_H
#define CVY_DATA_SET_SPLIT_H

#include "data/set/sample_set.h"

/* Which images `val` gets depends on the seed and on the order of `all`. Of each class round(count * val_split), at
 * least one and not all; of a detection set, whose images have no class, this many of all images. Both parts keep the
 * order and the classes; what was odd about boxes stays with `all`, which may be closed. CVY_BAD_DATA: a class, or a
 * detection set, of one image. On failure both are closed. */
CVY_CHECKED cvy_status cvy_dataset_split(const struct cvy_dataset *all, double val_split, uint64_t seed,
                                         struct cvy_dataset *train, struct cvy_dataset *val);

/* The same by a hash of each path below `folder` (that of the class folders): an image stays in its part whatever is
 * added or taken away elsewhere, and wherever the folder lies. Of each class the images whose hash is among the lowest
 * `share` of all hashes, but not all; where there are none, the one with the lowest hash. A class of one image has none
 * in `val`. Neither records nor detection sets: CVY_USAGE. CVY_BAD_DATA: no class has two images. */
CVY_CHECKED cvy_status cvy_dataset_split_by_path(const struct cvy_dataset *all, const char *folder, double share,
                                                 struct cvy_dataset *train, struct cvy_dataset *val);

#endif
