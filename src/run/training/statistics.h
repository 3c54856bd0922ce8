/* Running statistics computed anew before a validation ("precise batch norm", --precise-bn). */
#ifndef CVY_RUN_STATISTICS_H
#define CVY_RUN_STATISTICS_H

#include "run/run.h"

/* Replaces the running statistics of the weights (average: of their moving average) by the means of those of the first
 * --precise-bn batches of the epoch, all with the present weights: of this rank's own batches, as those of the steps
 * are. Frozen batch norms keep theirs. Does nothing without the option. The source of the training data is started
 * anew. CVY_STOPPED when the run was asked to stop; then nothing has changed. */
CVY_CHECKED cvy_status cvy_run_precise_statistics(struct cvy_run *run, bool average);

#endif
