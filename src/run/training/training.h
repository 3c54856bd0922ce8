/* Training from the first step to the last, and what happens at the end of each epoch. */
#ifndef CVY_RUN_TRAINING_TRAINING_H
#define CVY_RUN_TRAINING_TRAINING_H

#include "run/run.h"

/* Train until the end, a stop or a failure. */
CVY_CHECKED cvy_status cvy_run_loop(struct cvy_run *run);
/* --evaluate: one validation and its record; nothing else changes. */
CVY_CHECKED cvy_status cvy_run_evaluate(struct cvy_run *run);
/* One validation with its records, of the weights or of their moving average; its numbers are put into *validation.
 * After each batch `progress` is called; CVY_STOPPED when it says so. What the collector keeps is of the weights. */
CVY_CHECKED cvy_status cvy_run_validate(struct cvy_run *run, bool average, cvy_evaluate_progress progress,
                                        void *context, struct cvy_run_validation *validation);
/* How far a validation is that began at `start` (cvy_clock): batches, epochs, images a second of all ranks, which are
 * about as far; images that only fill the last batch do not count. The epoch is for the caller to say. */
struct cvy_train_progress cvy_run_validation_progress(const struct cvy_run *run, int64_t batches, double start);
/* At the end of an epoch: whether it is the best so far, which the state remembers. */
bool cvy_run_update_best(struct cvy_run *run, const struct cvy_train_epoch *epoch);
/* --early-stopping: too many epochs have passed without a better one. */
bool cvy_run_early_stop(const struct cvy_run *run);

#endif
