/* Which of several rivals (cvy_kernel.rival) runs an operation. They are timed once, on the device they run on; what
 * came of it is kept in a cache for each processor (base/cache.h, choice_file.c) and travels in checkpoints, because
 * other kernels round otherwise. Where an operation's kernel comes from, the first that has an answer:
 *
 *   CONVOY_KERNEL     an operation=row list, for finding faults
 *   the checkpoint    that the run goes on from, or rank 0 of several processes (cvy_choices_pin)
 *   CONVOY_KERNELS    "first": the first row of the table that accepts
 *   the file          what an earlier plan measured
 *   timing            while a plan that will run is made, within its budget
 *   the table         the first row that accepts
 *
 * A GPU's convolutions are one row whose candidates are cuDNN's plans (cuda/cudnn/cudnn_choice.c): of the list above
 * they know CONVOY_KERNELS, the file, timing, and the first that can be made. */
#ifndef CVY_BACKEND_CHOICE_H
#define CVY_BACKEND_CHOICE_H

#include "backend/backend.h"

/* At most so many rivals of one op are considered: the first in the table. */
#define CVY_MAX_RIVALS 8

/* The choices of a device. Threads may share them. */
struct cvy_choices;
/* For a device whose description, settings and threads are set. CVY_USAGE when an environment variable is wrong. */
CVY_CHECKED cvy_status cvy_choices_open(const cvy_device *device, struct cvy_choices **choices);
void cvy_choices_close(struct cvy_choices *choices); /* accepts NULL */

/* Decided elsewhere: this operation runs on this row, if the row is there and accepts it; else a warning is logged once
 * and the choice is made as if nobody had said anything. where: "in the checkpoint", "on rank 0" (borrowed). */
CVY_CHECKED cvy_status cvy_choices_pin(struct cvy_choices *choices, const char *key, const char *row,
                                       const char *where);
/* The plans of a run have been looked at, and what could be timed was: from here on nothing is timed, and
 * cvy_choices_at tells what is chosen from here on only, so that a run and its continuation say the same. NULL is
 * accepted. */
void cvy_choices_settle(struct cvy_choices *choices);
/* What was chosen so far for operations that have rivals, sorted by key; false when `index` is behind the last one. The
 * texts live as long as the choices. NULL has none. */
bool cvy_choices_at(struct cvy_choices *choices, int32_t index, const char **key, const char **row);
/* Operations that were timed here, not read. */
int32_t cvy_choices_timed(struct cvy_choices *choices);

/* Operation, attributes that decide its speed, shapes, types, given layouts, inference or training, threads, as one
 * line of printable text; the device and its settings are not in it. */
void cvy_choice_key(const struct cvy_op_desc *desc, int threads, struct cvy_text *key);
/* The key of the same operation on a device with so many threads. */
void cvy_choice_key_on(const char *key, int threads, struct cvy_text *other);

/* ---- while a plan is made ---- */
struct cvy_choice_buffer {
    void *memory;
    size_t bytes;
};
enum { /* what is timed works in these */
       CVY_CHOICE_IN,
       CVY_CHOICE_OUT = CVY_CHOICE_IN + CVY_MAX_INPUTS,
       CVY_CHOICE_STAGE = CVY_CHOICE_OUT + CVY_MAX_OUTPUTS, /* the other side of a reorder */
       CVY_CHOICE_SCRATCH,
       CVY_CHOICE_BUFFERS
};
struct cvy_selection {
    cvy_device *device;         /* borrowed */
    bool timing;                /* rivals may be timed */
    double seconds;             /* left of the budget */
    int32_t timed;              /* operations */
    double spent;               /* seconds */
    int32_t seen[CVY_OP_COUNT]; /* operations chosen for, by op */
    struct cvy_choice_buffer buffers[CVY_CHOICE_BUFFERS];
};
/* `timing`: the plan will run; one that is only looked at takes what is known. The budget grows with the batch: nobody
 * waits longer for the choice than the work itself would take. */
void cvy_selection_begin(struct cvy_selection *selection, cvy_device *device, bool timing, int64_t batch);
/* Releases the buffers, and writes what was measured to the file if `keep` says so: not on the way out of a failure,
 * whose sentence a failing write would replace. */
void cvy_selection_end(struct cvy_selection *selection, bool keep);
/* For measuring what no choice between today's kernels can go below: the shortest time of any row of the device that
 * takes the operation, each alone, in the layouts that it asks for; reorders are not counted. Chooses and keeps
 * nothing. */
CVY_CHECKED cvy_status cvy_selection_fastest(struct cvy_selection *selection, const struct cvy_op_desc *desc,
                                             double *seconds, const char **row);
/* cvy_kernel_select as part of a plan. */
CVY_CHECKED cvy_status cvy_selection_select(struct cvy_selection *selection, struct cvy_op_desc *desc,
                                            struct cvy_kernel_plan *plan);

#endif
