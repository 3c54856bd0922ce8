/* A thread that sleeps until it is cancelled, and reports if it is not. */
#include "base/watchdog.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/system.h"

struct cvy_watchdog {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stop;
    bool stopped; /* guarded by the mutex */
    struct timespec end;
    char sentence[1024];
};

static void *watch(void *argument)
{
    struct cvy_watchdog *watchdog = argument;
    int late = 0;

    pthread_mutex_lock(&watchdog->mutex);
    while (!watchdog->stopped && !late)
        late = pthread_cond_timedwait(&watchdog->stop, &watchdog->mutex, &watchdog->end);
    const bool fires = !watchdog->stopped;
    pthread_mutex_unlock(&watchdog->mutex);
    if (fires)
        cvy_log(CVY_LOG_FATAL, "%s", watchdog->sentence);
    return NULL;
}

static void release(struct cvy_watchdog *watchdog)
{
    pthread_mutex_destroy(&watchdog->mutex);
    pthread_cond_destroy(&watchdog->stop);
    cvy_free(watchdog);
}

struct cvy_watchdog *cvy_watchdog_start(double seconds, const char *sentence)
{
    struct cvy_watchdog *watchdog = cvy_calloc(1, sizeof *watchdog);
    pthread_condattr_t monotonic;

    if (!watchdog)
        return NULL;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&watchdog->stop, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&watchdog->mutex, NULL);
    snprintf(watchdog->sentence, sizeof watchdog->sentence, "%s", sentence);
    watchdog->end = cvy_clock_after(seconds);
    if (cvy_thread_start(&watchdog->thread, watch, watchdog))
        return watchdog;
    release(watchdog);
    return NULL;
}

void cvy_watchdog_stop(struct cvy_watchdog *watchdog)
{
    if (!watchdog)
        return;
    pthread_mutex_lock(&watchdog->mutex);
    watchdog->stopped = true;
    pthread_cond_signal(&watchdog->stop);
    pthread_mutex_unlock(&watchdog->mutex);
    pthread_join(watchdog->thread, NULL);
    release(watchdog);
}
