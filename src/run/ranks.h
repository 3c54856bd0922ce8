/* A run of several processes ("ranks"): what they must agree on, and what rank 0 gives the others. Every function is
 * called by all ranks at the same place, and does nothing in a run of one process. */
#ifndef CVY_RUN_RANKS_H
#define CVY_RUN_RANKS_H

#include "run/run.h"

/* Meet the others, where the environment says that there are some. */
CVY_CHECKED cvy_status cvy_ranks_open(struct cvy_run *run);
/* This rank fails with the recorded sentence: the others are told. */
void cvy_ranks_fail(struct cvy_run *run, cvy_status status);

/* Wait for all: `status`, or why one of them failed meanwhile. */
CVY_CHECKED cvy_status cvy_ranks_end_together(struct cvy_run *run, cvy_status status);

/* What all ranks must have alike, or the run is refused (run/compare.c). Version and options each time, as they are at
 * that moment: nothing that depends on them may be done together before. */
enum cvy_ranks_stage {
    CVY_RANKS_TOLD, /* and whether there is a checkpoint, and which */
    CVY_RANKS_DATA, /* and the data */
    CVY_RANKS_READY /* and the device, and what follows from all of it */
};
CVY_CHECKED cvy_status cvy_ranks_compare(struct cvy_run *run, enum cvy_ranks_stage stage);
/* Fill run->rank_threads: a run that goes on has the same ones on each rank. */
CVY_CHECKED cvy_status cvy_ranks_list_threads(struct cvy_run *run);
/* --sync-bn: from here on the device takes the ranks' batches for one. */
CVY_CHECKED cvy_status cvy_ranks_join_batches(struct cvy_run *run);
/* The device to open: as --device has it, but where that names no GPU (cuda, auto), one for each rank of a machine. */
CVY_CHECKED cvy_status cvy_ranks_name_device(struct cvy_run *run, char *name, size_t size);
/* The devices of the ranks will sum gradients among themselves where all of them can (backend/collective.h); where not,
 * rank 0 logs why. */
CVY_CHECKED cvy_status cvy_ranks_join_devices(struct cvy_run *run);
/* Before device memory is released. `failed`: sums that hang are given up. */
void cvy_ranks_part_devices(struct cvy_run *run, bool failed);
/* --gradient-compression: how gradients go from rank to rank. */
enum cvy_comm_type cvy_ranks_gradients(const struct cvy_train_options *options);
/* Rank 0 measures which kernels are the fastest before the call, the others take its choices here. */
CVY_CHECKED cvy_status cvy_ranks_wait_for_choices(struct cvy_run *run);
CVY_CHECKED cvy_status cvy_ranks_give_choices(struct cvy_run *run);
/* Weights, running statistics, what the optimizer remembers, and the state: those of rank 0. */
CVY_CHECKED cvy_status cvy_ranks_give_weights(struct cvy_run *run);
/* The run directory, which rank 0 has made. */
CVY_CHECKED cvy_status cvy_ranks_give_directory(struct cvy_run *run);

/* Rank 0's running statistics (and the ranges of --quantize) to all. */
CVY_CHECKED cvy_status cvy_ranks_give_statistics(struct cvy_run *run, struct cvy_store *store);
/* The training images that could not be read so far: each counts once, whichever ranks have met it. */
CVY_CHECKED cvy_status cvy_ranks_count_bad(struct cvy_run *run, int64_t *count);
/* After a validation of which each rank did a share: the whole. CVY_STOPPED when any rank was asked to stop. */
CVY_CHECKED cvy_status cvy_ranks_join_pass(struct cvy_run *run, struct cvy_pass *pass);
/* Where the time of an epoch went, on all ranks: run->rank_times. `seconds`: of this rank's epoch; `data`, `wait`: of
 * them waiting for data and for others. */
CVY_CHECKED cvy_status cvy_ranks_join_times(struct cvy_run *run, double seconds, double data, double wait);
/* Of the losses of a batch, the means over the ranks; *stopping: of any rank. */
CVY_CHECKED cvy_status cvy_ranks_join_loss(struct cvy_run *run, double *values, int count, bool *stopping);
/* Overflow is found in gradients that are summed already: all ranks have left out the same steps, or the run fails. */
CVY_CHECKED cvy_status cvy_ranks_compare_scalers(struct cvy_run *run, const struct cvy_scaler *scaler);
/* The least of a number of each rank. */
CVY_CHECKED cvy_status cvy_ranks_least(struct cvy_run *run, int64_t *count);

#endif
