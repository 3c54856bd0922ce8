/* Images for benchmarks: any images, ignoring their classes, and any number of them. */
#ifndef CVY_DATASET_TOOLS_BENCH_DATA_H
#define CVY_DATASET_TOOLS_BENCH_DATA_H

#include "data/set/dataset.h"

/* The images of `path`: of FOLDER/train or FOLDER/val where they are, of TFRecords, of a list, or else all below the
 * folder. Every label is 0. Repeated until there are at least `least`. */
CVY_CHECKED cvy_status cvy_bench_images(const char *path, bool val, size_t min, struct cvy_dataset *dataset);
/* Repeat the samples of any data set, with what is on them, until there are at least `least`. */
CVY_CHECKED cvy_status cvy_bench_repeat(struct cvy_dataset *dataset, size_t min);

#endif
