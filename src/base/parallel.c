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

struct team {
    const struct cvy_parallel *work;
    int64_t count;
    atomic_llong next;
    atomic_bool failed;
    pthread_mutex_t mutex; /* guards what follows */
    cvy_status status;
    int64_t failure; /* the index that `status` and `text` are of */
    char text[1024];
};

/* The failure with the lowest index is kept. Indices are taken in their order, and what is taken is
 * done: which one that is does not depend on the moment. */
static void record_failure(struct team *team, int64_t index, cvy_status status)
{
    pthread_mutex_lock(&team->mutex);
    if (team->status == CVY_OK || index < team->failure) {
        team->status = status;
        team->failure = index;
        cvy_error_get(team->text, sizeof team->text);
    }
    pthread_mutex_unlock(&team->mutex);
    team->failed = true;
}

static void *run(void *argument)
{
    struct team *team = argument;
    const struct cvy_parallel *work = team->work;
    void *state = NULL;
    cvy_status status = work->begin ? work->begin(work->context, &state) : CVY_OK;

    if (status != CVY_OK) {
        record_failure(team, -1, status);
        return NULL;
    }
    while (!team->failed) {
        const int64_t index = atomic_fetch_add(&team->next, 1);
        if (index >= team->count)
            break;
        status = work->each(work->context, state, index);
        if (status != CVY_OK)
            record_failure(team, index, status);
    }
    if (work->end)
        work->end(state);
    return NULL;
}

cvy_status cvy_parallel_run(const struct cvy_parallel *work, int64_t count, int threads)
{
    struct team team = {.work = work, .count = count, .mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t started[MAX_THREADS];
    int extra = 0;

    while (extra + 1 < threads && extra + 1 < count && extra < MAX_THREADS &&
           cvy_thread_start(&started[extra], run, &team))
        extra++;
    run(&team);
    for (int i = 0; i < extra; i++)
        pthread_join(started[i], NULL);
    pthread_mutex_destroy(&team.mutex);
    if (team.status != CVY_OK)
        cvy_error_put(team.text);
    return team.status;
}
