/* A thread that sleeps until it is told that all is well. */
#include "base/guard.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/system.h"

struct cvy_guard {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stop;
    bool stopped; /* guarded by the mutex */
    struct timespec end;
    char sentence[1024];
};

static void *watch(void *argument)
{
    struct cvy_guard *guard = argument;
    int late = 0;

    pthread_mutex_lock(&guard->mutex);
    while (!guard->stopped && !late)
        late = pthread_cond_timedwait(&guard->stop, &guard->mutex, &guard->end);
    const bool fires = !guard->stopped;
    pthread_mutex_unlock(&guard->mutex);
    if (fires)
        cvy_log(CVY_LOG_FATAL, "%s", guard->sentence);
    return NULL;
}

static void release(struct cvy_guard *guard)
{
    pthread_mutex_destroy(&guard->mutex);
    pthread_cond_destroy(&guard->stop);
    cvy_free(guard);
}

struct cvy_guard *cvy_guard_start(double seconds, const char *sentence)
{
    struct cvy_guard *guard = cvy_calloc(1, sizeof *guard);
    pthread_condattr_t monotonic;

    if (!guard)
        return NULL;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&guard->stop, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&guard->mutex, NULL);
    snprintf(guard->sentence, sizeof guard->sentence, "%s", sentence);
    guard->end = cvy_clock_after(seconds);
    if (cvy_thread_start(&guard->thread, watch, guard))
        return guard;
    release(guard);
    return NULL;
}

void cvy_guard_stop(struct cvy_guard *guard)
{
    if (!guard)
        return;
    pthread_mutex_lock(&guard->mutex);
    guard->stopped = true;
    pthread_cond_signal(&guard->stop);
    pthread_mutex_unlock(&guard->mutex);
    pthread_join(guard->thread, NULL);
    release(guard);
}
