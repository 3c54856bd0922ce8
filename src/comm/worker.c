/* A queue and the one thread that works on it. */
#include "comm/worker.h"

#include <pthread.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/system.h"

struct job {
    void *data;
    int64_t count;
    enum cvy_comm_type type;
};

struct cvy_comm_worker {
    struct cvy_comm *comm;
    pthread_t thread;
    bool running;
    pthread_mutex_t mutex;
    pthread_cond_t work, idle;
    struct job *jobs; /* (max): a ring */
    int32_t max;
    /* guarded by the mutex */
    int64_t posted, done;
    bool closing;
    cvy_status status;
    char sentence[1024];
    bool awaited; /* since: */
    double since;
    struct cvy_comm_worker_times times;
};

/* A sum is done that began at `start`. The mutex is held. */
static void count_times(struct cvy_comm_worker *worker, double start, double late)
{
    struct cvy_comm_worker_times *times = &worker->times;
    const double end = cvy_clock(), moving = end - start - late;
    const double seen = worker->awaited ? end - worker->since : 0;

    times->summing += end - start;
    times->moving += moving;
    times->exposed += seen < moving ? seen : moving;
}

static void *sum(void *argument)
{
    struct cvy_comm_worker *worker = argument;

    pthread_mutex_lock(&worker->mutex);
    for (;;) {
        while (worker->done == worker->posted && !worker->closing)
            pthread_cond_wait(&worker->work, &worker->mutex);
        if (worker->closing && worker->done == worker->posted)
            break;
        const struct job job = worker->jobs[worker->done % worker->max];
        const bool failed = worker->status != CVY_OK;
        const double start = cvy_clock(), late = worker->comm->late;
        pthread_mutex_unlock(&worker->mutex);

        const cvy_status status =
            failed ? CVY_OK : worker->comm->all_reduce(worker->comm, job.data, job.count, job.type);

        pthread_mutex_lock(&worker->mutex);
        count_times(worker, start, worker->comm->late - late);
        if (status != CVY_OK) {
            worker->status = status;
            cvy_error_get(worker->sentence, sizeof worker->sentence);
        }
        worker->done++;
        pthread_cond_broadcast(&worker->idle);
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

cvy_status cvy_comm_worker_open(struct cvy_comm_worker **out, struct cvy_comm *comm, int32_t max)
{
    struct cvy_comm_worker *worker = cvy_calloc(1, sizeof *worker);
    cvy_status status;

    *out = NULL;
    if (!worker)
        return cvy_fail_memory(sizeof *worker, "the sums over the ranks");
    worker->comm = comm;
    worker->max = max;
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->work, NULL);
    pthread_cond_init(&worker->idle, NULL);
    worker->jobs = cvy_calloc((size_t)max, sizeof *worker->jobs);
    worker->running = worker->jobs && cvy_thread_start(&worker->thread, sum, worker);
    if (worker->running) {
        *out = worker;
        return CVY_OK;
    }
    status = worker->jobs ? cvy_fail(CVY_FAILED, "no thread can be made for the sums over the ranks")
                          : cvy_fail_memory((size_t)max * sizeof *worker->jobs, "the sums over the ranks");
    cvy_comm_worker_close(worker);
    return status;
}

void cvy_comm_worker_close(struct cvy_comm_worker *worker)
{
    if (!worker)
        return;
    pthread_mutex_lock(&worker->mutex);
    worker->closing = true;
    pthread_cond_broadcast(&worker->work);
    pthread_mutex_unlock(&worker->mutex);
    if (worker->running)
        pthread_join(worker->thread, NULL);
    pthread_mutex_destroy(&worker->mutex);
    pthread_cond_destroy(&worker->work);
    pthread_cond_destroy(&worker->idle);
    cvy_free(worker->jobs);
    cvy_free(worker);
}

static void post(struct cvy_comm_worker *worker, const struct job *job)
{
    pthread_mutex_lock(&worker->mutex);
    while (worker->posted - worker->done == worker->max)
        pthread_cond_wait(&worker->idle, &worker->mutex);
    worker->jobs[worker->posted++ % worker->max] = *job;
    pthread_cond_signal(&worker->work);
    pthread_mutex_unlock(&worker->mutex);
}

void cvy_comm_worker_post(struct cvy_comm_worker *worker, float *data, int64_t count, enum cvy_comm_type type)
{
    post(worker, &(struct job){data, count, type});
}

cvy_status cvy_comm_worker_sum(struct cvy_comm_worker *worker, double *values, int64_t count)
{
    post(worker, &(struct job){values, count, CVY_COMM_F64});
    return cvy_comm_worker_wait(worker);
}

cvy_status cvy_comm_worker_wait(struct cvy_comm_worker *worker)
{
    const double start = cvy_clock();
    cvy_status status;

    pthread_mutex_lock(&worker->mutex);
    worker->awaited = true;
    worker->since = start;
    while (worker->done < worker->posted)
        pthread_cond_wait(&worker->idle, &worker->mutex);
    worker->awaited = false;
    worker->times.waiting += cvy_clock() - start;
    status = worker->status;
    if (status != CVY_OK)
        cvy_error_put(worker->sentence);
    pthread_mutex_unlock(&worker->mutex);
    return status;
}

void cvy_comm_worker_times(const struct cvy_comm_worker *worker, struct cvy_comm_worker_times *times)
{
    *times = worker->times; /* nothing is posted: the thread sleeps */
}
