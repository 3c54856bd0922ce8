/* Sums beside the computation: the queue, and what is said of its times. */
#include <time.h>

#include "comm/worker.h"
#include "support_ranks.h"
#include "support_test.h"

static cvy_status sum_after_posted(struct rank *rank, struct cvy_comm *comm)
{
    struct cvy_comm_worker *worker;
    struct cvy_comm_worker_times times;

    CVY_TRY(cvy_comm_worker_open(&worker, comm, 3));
    for (int round = 0; round < 3; round++) {
        float a[3000], b = 1;

        for (int i = 0; i < 3000; i++)
            a[i] = (float)(comm->rank * i);
        cvy_comm_worker_post(worker, a, 3000, CVY_COMM_F32);
        cvy_comm_worker_post(worker, &b, 1, CVY_COMM_F32);
        CVY_TRY(cvy_comm_worker_wait(worker));
        assert_true(b == (float)comm->world && a[2999] == 2999.0f * (float)(comm->world * (comm->world - 1) / 2));
    }
    cvy_comm_worker_times(worker, &times);
    assert_true(times.moving > 0 && times.moving <= times.summing);
    assert_true(times.exposed >= 0 && times.exposed <= times.moving && times.exposed <= times.waiting);
    cvy_comm_worker_close(worker);
    return CVY_OK;
}

static void queue(void **state)
{
    struct rank ranks[3] = {0};

    run_ranks(ranks, 3, 30, sum_after_posted);
    expect_all(ranks, 3);
}

/* Rank 0 comes late to two sums; after the second one's post the others are late to the wait. */
static cvy_status come_late(struct rank *rank, struct cvy_comm *comm)
{
    const struct timespec pause = {.tv_nsec = 300000000};
    struct cvy_comm_worker *worker;
    struct cvy_comm_worker_times times;
    static float numbers[3][100000];
    float *a = numbers[comm->rank];

    CVY_TRY(cvy_comm_worker_open(&worker, comm, 1));
    for (int round = 0; round < 2; round++) {
        if (comm->rank == 0)
            nanosleep(&pause, NULL);
        cvy_comm_worker_post(worker, a, 100000, CVY_COMM_F32);
        if (round == 1)
            nanosleep(&pause, NULL);
        CVY_TRY(cvy_comm_worker_wait(worker));
    }
    cvy_comm_worker_times(worker, &times);
    cvy_comm_worker_close(worker);
    assert_true(times.moving > 0 && times.exposed <= times.moving);
    if (comm->rank == 1) { /* of the three, the one after rank 0 in the ring */
        assert_true(comm->late > 0.5 && times.summing > comm->late);
        assert_true(times.moving < times.summing - 0.5);
        assert_true(times.waiting > 0.25 && times.waiting < times.summing - 0.25);
    }
    return CVY_OK;
}

static void lateness(void **state)
{
    struct rank ranks[3] = {0};

    run_ranks(ranks, 3, 30, come_late);
    expect_all(ranks, 3);
}

RUN_TESTS(NULL, NULL, OVER_BOTH(queue), OVER_BOTH(lateness))
