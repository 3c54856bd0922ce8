/* The same work for every index, by several threads that each take the next one. */
#ifndef CVY_BASE_PARALLEL_H
#define CVY_BASE_PARALLEL_H

#include <pthread.h>
#include <stdbool.h>

#include "convoy/status.h"

/* A thread that signals do not come to: they are for the one that the program began with. false: none can be made. */
bool cvy_thread_start(pthread_t *thread, void *(*work)(void *), void *argument);

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
