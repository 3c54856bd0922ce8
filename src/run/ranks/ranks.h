/* A run of several processes ("ranks"): what they must agree on, and what rank 0 broadcasts. Every function is called
 * by all ranks at the same point, and does nothing in a run of one process. */
#ifndef CVY_RUN_RANKS_H
#define CVY_RUN_RANKS_H

#include "run/run.h"

/* Joins the other ranks, where the environment says that there are some. */
CVY_CHECKED cvy_status cvy_ranks_open(struct cvy_run *run);
/* This rank fails with the recorded sentence: it is sent to the others. */
void cvy_ranks_fail(struct cvy_run *run, cvy_status status);

/* Barrier at the end: returns `status`, or why another rank failed meanwhile. */
CVY_CHECKED cvy_status cvy_ranks_end_all(struct cvy_run *run, cvy_status status);

/* What must be equal on all ranks, or the run is refused (compare.c). Version and options each time, as they are at
 * that moment: nothing that depends on them may be done collectively before. */
enum cvy_ranks_stage {
    CVY_RANKS_OPTIONS, /* and whether there is a checkpoint, and which */
    CVY_RANKS_DATA,    /* and the data */
    CVY_RANKS_READY    /* and the device, and what follows from all of it */
};
CVY_CHECKED cvy_status cvy_ranks_compare(struct cvy_run *run, enum cvy_ranks_stage stage);
/* Fills run->ranks.threads: a resumed run has the same number of threads on each rank. */
CVY_CHECKED cvy_status cvy_ranks_list_threads(struct cvy_run *run);
/* --sync-bn: from here on the device treats the ranks' batches as one. */
CVY_CHECKED cvy_status cvy_ranks_join_batches(struct cvy_run *run);
/* The device to open: --device, but where that does not name a GPU (cuda, auto), one for each rank of a machine. */
CVY_CHECKED cvy_status cvy_ranks_name_device(struct cvy_run *run, char *name, size_t size);
/* The devices of the ranks all-reduce gradients among themselves where all of them can (backend/collective.h); where
 * not, rank 0 logs why. */
CVY_CHECKED cvy_status cvy_ranks_join_devices(struct cvy_run *run);
/* Call before device memory is released. `failed`: hanging sums are aborted. */
void cvy_ranks_leave_devices(struct cvy_run_state *state, bool failed);
/* --gradient-compression: the type in which gradients are sent. */
enum cvy_comm_type cvy_ranks_gradients(const struct cvy_train_options *options);
/* Rank 0 autotunes before the call, the others receive its kernels here. */
CVY_CHECKED cvy_status cvy_ranks_wait_for_kernels(struct cvy_run *run);
CVY_CHECKED cvy_status cvy_ranks_broadcast_kernels(struct cvy_run *run);
/* Broadcasts rank 0's weights, running statistics, optimizer state and training state. */
CVY_CHECKED cvy_status cvy_ranks_broadcast_weights(struct cvy_run *run);
/* Broadcasts the run directory, which rank 0 has created. */
CVY_CHECKED cvy_status cvy_ranks_broadcast_directory(struct cvy_run *run);

/* Broadcasts rank 0's running statistics (and the ranges of --quantize). */
CVY_CHECKED cvy_status cvy_ranks_broadcast_statistics(struct cvy_run *run, struct cvy_store *store);
/* The training images that could not be read so far: each counts once, however many ranks tried to read it. */
CVY_CHECKED cvy_status cvy_ranks_count_bad(struct cvy_run *run, int64_t *count);
/* Combines a validation pass of which each rank did a part. CVY_STOPPED when any rank was asked to stop. */
CVY_CHECKED cvy_status cvy_ranks_reduce_pass(struct cvy_run *run, struct cvy_pass *pass);
/* Gathers the times of an epoch from all ranks: run->ranks.times. `seconds`: this rank's epoch; `data`, `wait`: the
 * parts of it spent waiting for data and for other ranks. */
CVY_CHECKED cvy_status cvy_ranks_gather_times(struct cvy_run_ranks *ranks, double seconds, double data, double wait);
/* Averages the losses of a batch over the ranks; *stopping becomes true if any of them was asked to stop. */
CVY_CHECKED cvy_status cvy_ranks_reduce_loss(struct cvy_run *run, double *values, int count, bool *stopping);
/* Overflow is found in gradients that are summed already: all ranks have left out the same steps, or the run fails. */
CVY_CHECKED cvy_status cvy_ranks_compare_scalers(struct cvy_run_ranks *ranks, const struct cvy_scaler *scaler);
/* The minimum of a number over the ranks. */
CVY_CHECKED cvy_status cvy_ranks_all_reduce_min(struct cvy_run_ranks *ranks, int64_t *count);

#endif
