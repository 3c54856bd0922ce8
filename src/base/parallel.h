/* The same work for every index, by several threads that each take the next one. */
#ifndef CVY_BASE_PARALLEL_H
#define CVY_BASE_PARALLEL_H

#include <pthread.h>
#include <stdbool.h>

#include "convoy/status.h"

/* Starts a thread with all signals blocked, so that they go to the main thread. false: it cannot be created. */
bool cvy_thread_start(pthread_t *thread, void *(*work)(void *), void *argument);

struct cvy_parallel {
    void *context;
    cvy_status (*begin)(void *context, void **state); /* makes per-thread state; NULL: none */
    void (*end)(void *state);                         /* called where begin succeeded; NULL: nothing */
    cvy_status (*each)(void *context, void *state, int64_t index);
};
/* Indices 0 to count - 1. The calling thread takes part and keeps receiving signals. A failure ends the work: it is
 * returned with its sentence, that of the lowest index where several fail at the same time. */
CVY_CHECKED cvy_status cvy_parallel_run(const struct cvy_parallel *work, int64_t count, int threads);

#endif
