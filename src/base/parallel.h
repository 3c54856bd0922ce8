/* The same work for every index, by several threads that each take the next one. */
#ifndef CVY_BASE_PARALLEL_H
#define CVY_BASE_PARALLEL_H

#include "convoy/status.h"

struct cvy_parallel {
    void *context;
    cvy_status (*begin)(void *context, void **state); /* what a thread needs for itself; NULL: nothing */
    void (*end)(void *state);                         /* called where begin succeeded; NULL: nothing */
    cvy_status (*each)(void *context, void *state, int64_t index);
};
/* Indices 0 to count - 1. The calling thread works too, so that none more is needed; signals stay with it. The first
 * failure ends the work and is returned with its sentence. */
CVY_CHECKED cvy_status cvy_parallel_run(const struct cvy_parallel *work, int64_t count, int threads);

#endif
