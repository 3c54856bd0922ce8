/* Shared by the files of the autotuner: autotune_candidates.c decides, autotune_time.c measures, autotune_file.c
 * defines what a cache (base/cache.h) keeps. */
#ifndef CVY_BACKEND_AUTOTUNE_INTERNAL_H
#define CVY_BACKEND_AUTOTUNE_INTERNAL_H

#include <pthread.h>

#include "backend/autotune.h"
#include "base/cache.h"

/* ---- the autotuner of a device (autotune_candidates.c) ---- */

struct autotune_override {
    enum cvy_op op;
    int32_t number; /* of the op's operations in a plan, from 1; 0: all */
    const struct cvy_kernel *row;
};
enum { AUTOTUNE_MAX_OVERRIDES = 32 };

struct cvy_autotuner {
    pthread_mutex_t lock;
    bool lock_made;
    const struct cvy_backend *backend; /* whose rows these are */
    bool first;                        /* CONVOY_KERNELS=first */
    bool frozen;                       /* nothing is timed any more */
    bool once;                         /* CONVOY_KERNELS=once: what was timed under load stays, too */
    struct autotune_override overrides[AUTOTUNE_MAX_OVERRIDES];
    int32_t override_count;
    struct cvy_cache measured;           /* times of this device, version, settings; kept in a file */
    struct cvy_cache_table pinned, used; /* row of key */
    struct cvy_cache_table timed_here;   /* keys: not timed again by this process */
    bool logged_timing, logged_pin, logged_load;
    const char *pinned_where; /* "in the checkpoint", "on rank 0" */
    int32_t timed;
};

/* ---- what the cache keeps for an operation (autotune_file.c) ---- */

struct autotune_timing {
    const char *row;
    int length;          /* of its name, after which the text continues */
    int64_t nanoseconds; /* with the reorders that it causes; -1: refused */
};
struct autotune_measurement {
    struct autotune_timing candidates[CVY_MAX_CANDIDATES];
    int32_t count, chosen;
    int64_t busy; /* how often it was timed, each time while other programs ran; 0: once without */
};
extern const struct cvy_cache_kind autotune_cache;
/* The entry points into `value`. */
bool autotune_read(const char *value, struct autotune_measurement *entry);

/* ---- timing (autotune_time.c) ---- */

/* A row that accepted the operation. */
struct autotune_candidate {
    const struct cvy_kernel *row;
    struct cvy_op_desc desc; /* completed */
    struct cvy_kernel_plan plan;
    double seconds; /* result: the shortest time with the reorders it causes */
    bool clean;     /* it had a run during which no other program took a core from this one */
};
/* Whether what is kept for the key is to be timed again, where that is possible now: it was timed under load, not too
 * often, and not by this process. */
bool autotune_is_stale(const struct cvy_autotuner *autotuner, const char *key,
                       const struct autotune_measurement *entry);
/* Keeps a measurement that is complete but for `busy`; it is not timed again by this process. */
CVY_CHECKED cvy_status autotune_keep(struct cvy_autotuner *autotuner, const char *key,
                                     struct autotune_measurement *entry, bool clean);
/* Times all of them on the selection's device, in turns. `given` is what the operation starts from. CVY_UNAVAILABLE
 * when this operation cannot be timed. */
CVY_CHECKED cvy_status autotune_time(struct cvy_selection *selection, const struct cvy_op_desc *given,
                                     struct autotune_candidate *candidates, int32_t count);
/* The same without reorders. */
CVY_CHECKED cvy_status autotune_time_alone(struct cvy_selection *selection, struct autotune_candidate *candidates,
                                           int32_t count);

/* ---- selection by order (select.c) ---- */

CVY_CHECKED cvy_status cvy_kernel_select_first(cvy_device *device, struct cvy_op_desc *desc,
                                               struct cvy_kernel_plan *plan);
/* The reasons of the rows that refused, one after the other. */
struct cvy_refusals {
    char text[400];
    size_t used;
};
/* Appends the sentence of cvy_error() about this row, unless the refusal is quiet. */
void cvy_refusals_add(struct cvy_refusals *refusals, const struct cvy_kernel *kernel, bool quiet);
/* plan->reason = the refusals, then the kernel's own reason, or CVY_REASON_FIRST where that is empty. */
void cvy_refusals_complete(const struct cvy_refusals *refusals, struct cvy_kernel_plan *plan);

#endif
