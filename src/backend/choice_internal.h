/* Shared by the files that choose between rivals: choice.c decides, choice_time.c measures, choice_file.c remembers. */
#ifndef CVY_BACKEND_CHOICE_INTERNAL_H
#define CVY_BACKEND_CHOICE_INTERNAL_H

#include <pthread.h>

#include "backend/choice.h"
#include "base/memory.h"

/* ---- tables (choice_file.c) ---- */

struct choice_candidate {
    const char *row;
    int64_t nanoseconds; /* with the reorders that it causes; -1: refused */
};
/* An operation and its row. Texts live in the arena of the choices. */
struct choice {
    const char *key, *row;
    struct choice_candidate *candidates; /* what was measured; NULL in tables of bare decisions */
    int32_t candidate_count;
};
struct choice_table { /* sorted by key */
    struct choice *choices;
    int32_t count, room;
};
struct choice *choice_find(const struct choice_table *table, const char *key);
/* The entry of `key`, made where there is none; NULL: no memory. */
struct choice *choice_add(struct choice_table *table, struct cvy_arena *arena, const char *key);

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
    char *identity; /* what measured times belong to: device, version, settings */
    char *path;     /* of the file; NULL: there is no place for one */
    struct cvy_arena arena;
    struct choice_table measured, pinned, used;
    bool loaded, changed; /* the file was read; there is more than it says */
    bool said_timing, said_pin;
    const char *pinned_where; /* "in the checkpoint", "on rank 0" */
    int32_t timed;
};

/* ---- the file (choice_file.c) ---- */

/* Where the choices of this identity are kept: *path, NULL when the environment names no place. */
CVY_CHECKED cvy_status choice_path(const char *backend, const char *identity, char **path);
/* Adds what the file says to choices->measured; what is there already stays. A file that is damaged is passed over with
 * a warning. */
void choice_load(struct cvy_choices *choices);
/* Writes all of choices->measured, with what other processes have written meanwhile. A failure is a warning. */
void choice_save(struct cvy_choices *choices);

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
