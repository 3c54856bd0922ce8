#include "base/parallel.h"

#include <signal.h>
#include <stdatomic.h>

#include "base/error.h"

enum { MAX_THREADS = 256 };

bool cvy_thread_start(pthread_t *thread, void *(*work)(void *), void *argument)
{
    sigset_t all, before;
    bool started;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(thread, NULL, work, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

struct crew {
    const struct cvy_parallel *work;
    int64_t count;
    atomic_llong next;
    atomic_bool failed;
    pthread_mutex_t mutex; /* guards what follows: of the thread that failed first */
    cvy_status status;
    char text[1024];
};

static void record_failure(struct crew *crew, cvy_status status)
{
    pthread_mutex_lock(&crew->mutex);
    if (crew->status == CVY_OK) {
        crew->status = status;
        cvy_error_get(crew->text, sizeof crew->text);
    }
    pthread_mutex_unlock(&crew->mutex);
    crew->failed = true;
}

static void *run(void *argument)
{
    struct crew *crew = argument;
    const struct cvy_parallel *work = crew->work;
    void *state = NULL;
    cvy_status status = work->begin ? work->begin(work->context, &state) : CVY_OK;

    if (status != CVY_OK) {
        record_failure(crew, status);
        return NULL;
    }
    while (!crew->failed) {
        const int64_t index = atomic_fetch_add(&crew->next, 1);
        if (index >= crew->count)
            break;
        status = work->each(work->context, state, index);
        if (status != CVY_OK)
            record_failure(crew, status);
    }
    if (work->end)
        work->end(state);
    return NULL;
}

cvy_status cvy_parallel_run(const struct cvy_parallel *work, int64_t count, int threads)
{
    struct crew crew = {.work = work, .count = count, .mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t started[MAX_THREADS];
    int extra = 0;

    while (extra + 1 < threads && extra + 1 < count && extra < MAX_THREADS &&
           cvy_thread_start(&started[extra], run, &crew))
        extra++;
    run(&crew);
    for (int i = 0; i < extra; i++)
        pthread_join(started[i], NULL);
    pthread_mutex_destroy(&crew.mutex);
    if (crew.status != CVY_OK)
        cvy_error_put(crew.text);
    return crew.status;
}
