/* For benchmarks: images, ignoring their classes, any number of them; and how often they measure. */
#ifndef CVY_DATASET_TOOLS_BENCH_DATA_H
#define CVY_DATASET_TOOLS_BENCH_DATA_H

#include "data/set/dataset.h"

/* The images of `path`: of FOLDER/train or FOLDER/val where they are, of TFRecords, of a list, or else all below the
 * folder. Every label is 0. Repeated until there are at least `min`. */
CVY_CHECKED cvy_status cvy_bench_images(const char *path, bool val, size_t min, struct cvy_dataset *dataset);
/* Repeat the samples of any data set, with what is on them, until there are at least `min`. */
CVY_CHECKED cvy_status cvy_bench_repeat(struct cvy_dataset *dataset, size_t min);

enum { CVY_BENCH_WARMUP = 3 /* iterations before the clock starts, where nobody says how many */ };

/* How many iterations a benchmark measures where nobody says: as many as take about four seconds, 8 at least.
 * `seconds`: what one takes; 0: unknown. */
int cvy_bench_iterations(double seconds);

#endif
