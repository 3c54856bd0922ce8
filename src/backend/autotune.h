/* Autotuning: which of several candidates (cvy_kernel.candidate) runs an operation. They are timed once, on the device
 * that runs them; the result is kept in a cache for each processor (base/cache.h, autotune_file.c) and stored in
 * checkpoints, because other kernels round differently. Where an operation's kernel comes from, the first source that
 * has an answer:
 *
 *   CONVOY_KERNEL     an operation=row list, for finding faults
 *   the checkpoint    that the run continues from, or rank 0 of several processes (cvy_autotuner_pin)
 *   CONVOY_KERNELS    "first": the first row of the table that accepts
 *   the file          what an earlier plan measured
 *   timing            while a plan that will run is made, within its budget; what was timed while other programs took
 *                     the cores away (cvy_preemptions) by the next processes again, CVY_AUTOTUNE_TRIES times at most
 *   the table         the first row that accepts
 *
 * A GPU's convolutions are one row whose candidates are cuDNN's plans (cuda/cudnn/cudnn_autotune.c): of the list above
 * they know CONVOY_KERNELS, the file, timing, and the first that can be made. */
#ifndef CVY_BACKEND_AUTOTUNE_H
#define CVY_BACKEND_AUTOTUNE_H

#include "backend/backend.h"

enum { CVY_AUTOTUNE_TRIES = 3 };
/* At most this many candidates of one op are considered: the first in the table. */
#define CVY_MAX_CANDIDATES 12

/* The autotuner of a device. Threads may share it. */
struct cvy_autotuner;
/* For a device whose description, settings and threads are set. CVY_USAGE when an environment variable is invalid. */
CVY_CHECKED cvy_status cvy_autotuner_open(const cvy_device *device, struct cvy_autotuner **autotuner);
void cvy_autotuner_close(struct cvy_autotuner *autotuner); /* accepts NULL */

/* Pins a decision made elsewhere: this operation runs on this row, if the row exists and accepts it; else a warning is
 * logged once and the kernel is chosen as without a pin. where: "in the checkpoint", "on rank 0" (borrowed). */
CVY_CHECKED cvy_status cvy_autotuner_pin(struct cvy_autotuner *autotuner, const char *key, const char *row,
                                         const char *where);
/* All plans of a run have been made once, and what could be timed was: from here on nothing is timed, and
 * cvy_autotuner_at lists only what is chosen from here on, so that a run and its continuation report the same. NULL is
 * accepted. */
void cvy_autotuner_freeze(struct cvy_autotuner *autotuner);
/* What was chosen so far for operations that have candidates, sorted by key; false when `index` is past the last one.
 * The texts live as long as the autotuner. NULL has none. */
bool cvy_autotuner_at(struct cvy_autotuner *autotuner, int32_t index, const char **key, const char **row);
/* Operations that were timed by this process, not read from the file. */
int32_t cvy_autotuner_timed(struct cvy_autotuner *autotuner);

/* ---- decisions about whole plans (autotune_plan.c) ---- */
/* A question with a few answers by name. The key is like those of operations: printable, and it ends with the threads.
 */
struct cvy_autotune_question {
    const char *key;
    const char *const *names;
    int count; /* 2 to CVY_MAX_CANDIDATES */
};
enum { CVY_AUTOTUNE_REASON = 160 };
/* The answer that is pinned or was measured, and why ("as in the checkpoint", "timed 8.1 ms; ..."); -1: neither, or
 * (where it can be timed) it is to be timed again, having been under load. */
int cvy_autotuner_answer(struct cvy_autotuner *autotuner, const struct cvy_autotune_question *question, bool timing,
                         char reason[CVY_AUTOTUNE_REASON]);
/* Whether it may be timed now: CONVOY_KERNELS is not "first", nothing is frozen, and nobody else has decided for all.
 */
bool cvy_autotuner_may_time(struct cvy_autotuner *autotuner);
/* Keeps what was measured. clean: each of the times has an undisturbed run among those it is the shortest of. */
CVY_CHECKED cvy_status cvy_autotuner_remember(struct cvy_autotuner *autotuner,
                                              const struct cvy_autotune_question *question, const double *seconds,
                                              int chosen, bool clean);
/* This answer is in use: cvy_autotuner_at lists it. */
CVY_CHECKED cvy_status cvy_autotuner_use(struct cvy_autotuner *autotuner, const char *key, const char *name);

/* Operation, attributes that decide its speed, shapes, types, given layouts, inference or training, threads, as one
 * line of printable text; the device and its settings are not in it. */
void cvy_autotune_key(const struct cvy_op_desc *desc, int threads, struct cvy_text *key);
/* The key of the same operation on a device with this many threads. */
void cvy_autotune_key_for_threads(const char *key, int threads, struct cvy_text *other);

/* ---- while a plan is made ---- */
struct cvy_autotune_buffer {
    void *memory;
    size_t bytes;
};
enum { /* what is timed works in these */
       CVY_AUTOTUNE_IN,
       CVY_AUTOTUNE_OUT = CVY_AUTOTUNE_IN + CVY_MAX_INPUTS,
       CVY_AUTOTUNE_STAGE = CVY_AUTOTUNE_OUT + CVY_MAX_OUTPUTS, /* the other side of a reorder */
       CVY_AUTOTUNE_SCRATCH,
       CVY_AUTOTUNE_BUFFERS
};
struct cvy_selection {
    cvy_device *device;         /* borrowed */
    bool timing;                /* candidates may be timed */
    double seconds;             /* left of the budget */
    int32_t timed;              /* operations */
    double spent;               /* seconds */
    int32_t seen[CVY_OP_COUNT]; /* operations chosen for, by op */
    struct cvy_autotune_buffer buffers[CVY_AUTOTUNE_BUFFERS];
};
/* `timing`: the plan will run; a dry run takes what is known. The budget grows with the batch: autotuning never takes
 * longer than the work itself would. */
void cvy_selection_begin(struct cvy_selection *selection, cvy_device *device, bool timing, int64_t batch);
/* Releases the buffers, and writes what was measured to the file if `keep` says so: not on the way out of a failure,
 * whose sentence a failing write would replace. */
void cvy_selection_end(struct cvy_selection *selection, bool keep);
/* For measuring a lower bound of what any choice between today's kernels can reach: the shortest time of any row of the
 * device that accepts the operation, each alone, in the layouts that it asks for; reorders are not counted. Chooses and
 * keeps nothing. */
CVY_CHECKED cvy_status cvy_selection_fastest(struct cvy_selection *selection, const struct cvy_op_desc *desc,
                                             double *seconds, const char **row);
/* cvy_kernel_select as part of a plan. */
CVY_CHECKED cvy_status cvy_selection_select(struct cvy_selection *selection, struct cvy_op_desc *desc,
                                            struct cvy_kernel_plan *plan);

#endif
