/* Training from the first step to the last, and what happens at the end of each epoch. */
#ifndef CVY_RUN_TRAINING_TRAINING_H
#define CVY_RUN_TRAINING_TRAINING_H

#include "run/run.h"

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

/* ---- --rewinds: a training that diverges goes back; nothing without the option ---- */

/* After each step, with its loss, which is the same on all ranks. */
void cvy_run_watch_loss(struct cvy_run *run, int64_t step, double loss);
/* The training was seen to diverge: cvy_run_rewind is next. */
bool cvy_run_must_rewind(const struct cvy_run *run);
/* Before a step: whether it is time for a snapshot, for which the losses of all steps so far are to be read; */
bool cvy_run_snapshot_is_due(const struct cvy_run *run);
/* and then: the state becomes the last good one, unless its losses are high. */
CVY_CHECKED cvy_status cvy_run_take_snapshot(struct cvy_run *run);
/* Back to the last good state, with one more rewind counted, and the logs cut back with it. The data are still to be
 * started where the state stands. */
CVY_CHECKED cvy_status cvy_run_rewind(struct cvy_run *run);

#endif
