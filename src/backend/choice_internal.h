/* Shared by the files that choose between rivals: choice.c decides, choice_time.c measures, choice_file.c says what is
 * kept of it in a cache (base/cache.h). */
#ifndef CVY_BACKEND_CHOICE_INTERNAL_H
#define CVY_BACKEND_CHOICE_INTERNAL_H

#include <pthread.h>

#include "backend/choice.h"
#include "base/cache.h"

/* ---- the choices of a device (choice.c) ---- */

struct choice_force {
    enum cvy_op op;
    int32_t number; /* of the op's operations in a plan, from 1; 0: all */
    const struct cvy_kernel *row;
};
enum { CHOICE_MAX_FORCES = 32 };

struct cvy_choices {
    pthread_mutex_t lock;
    bool lock_made;
    const struct cvy_backend *backend; /* whose rows these are */
    bool first;                        /* CONVOY_KERNELS=first */
    bool settled;                      /* nothing is timed any more */
    struct choice_force forces[CHOICE_MAX_FORCES];
    int32_t force_count;
    struct cvy_cache measured;           /* times of this device, version, settings; kept in a file */
    struct cvy_cache_table pinned, used; /* row of key */
    bool said_timing, said_pin;
    const char *pinned_where; /* "in the checkpoint", "on rank 0" */
    int32_t timed;
};

/* ---- what is kept of an operation (choice_file.c) ---- */

struct choice_candidate {
    const char *row;
    int length;          /* of its name, behind which the text goes on */
    int64_t nanoseconds; /* with the reorders that it causes; -1: refused */
};
struct choice_entry {
    struct choice_candidate candidates[CVY_MAX_RIVALS];
    int32_t count, chosen;
};
extern const struct cvy_cache_kind choice_cache;
/* The entry points into `value`. */
bool choice_read(const char *value, struct choice_entry *entry);
void choice_write(const struct choice_entry *entry, struct cvy_text *value);

/* ---- timing (choice_time.c) ---- */

/* A row that accepted the operation. */
struct choice_contender {
    const struct cvy_kernel *row;
    struct cvy_op_desc desc; /* completed */
    struct cvy_kernel_plan plan;
    double seconds; /* result: the shortest time with the reorders it causes */
};
/* Times all of them on the selection's device, in turns. `given` is what the operation starts from. CVY_UNAVAILABLE
 * when this operation cannot be timed. */
CVY_CHECKED cvy_status choice_time(struct cvy_selection *selection, const struct cvy_op_desc *given,
                                   struct choice_contender *contenders, int32_t count);
/* The same without reorders. */
CVY_CHECKED cvy_status choice_time_alone(struct cvy_selection *selection, struct choice_contender *contenders,
                                         int32_t count);

/* ---- selection by order (backend.c) ---- */

CVY_CHECKED cvy_status cvy_kernel_select_first(cvy_device *device, struct cvy_op_desc *desc,
                                               struct cvy_kernel_plan *plan);
/* What rows said that refused, one after the other. */
struct cvy_refusals {
    char text[400];
    size_t used;
};
/* Adds what cvy_error() says of this row, unless it is not worth a word. */
void cvy_refusals_add(struct cvy_refusals *refusals, const struct cvy_kernel *kernel, bool quiet);
/* plan->reason = the refusals, then what it says itself, then CVY_REASON_FIRST where that is nothing. */
void cvy_refusals_complete(const struct cvy_refusals *refusals, struct cvy_kernel_plan *plan);

#endif
