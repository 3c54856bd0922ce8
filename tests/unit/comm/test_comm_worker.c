/* Sums beside the computation: the queue, and what is said of its times. */
#include <stdatomic.h>
#include <time.h>

#include "base/system.h"
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

/* ---- times ---- */

enum { WORLD = 3, ROUNDS = 2 };

/* When a rank was in its sums and in the waits for them, by the clock of this process. A busy machine may put any pause
 * between two of a test's steps, so that times are compared with these and not with what the pauses of the test ask
 * for. */
static struct moments {
    cvy_status (*all_reduce)(struct cvy_comm *comm, void *data, int64_t count, enum cvy_comm_type type);
    atomic_int begun, ended, awaited; /* how many */
    double sum_begin[ROUNDS], sum_end[ROUNDS], wait_begin[ROUNDS], wait_end[ROUNDS], late;
    struct cvy_comm_worker_times times;
} moments[WORLD];

static cvy_status timed_all_reduce(struct cvy_comm *comm, void *data, int64_t count, enum cvy_comm_type type)
{
    struct moments *own = &moments[comm->rank];
    const int round = own->begun;

    own->sum_begin[round] = cvy_clock();
    own->begun++;
    const cvy_status status = own->all_reduce(comm, data, count, type);
    own->sum_end[round] = cvy_clock();
    own->ended++;
    return status;
}

static void await_count(atomic_int *counter, int count)
{
    const double limit = cvy_clock() + 20;

    while (atomic_load(counter) < count && cvy_clock() < limit)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Rank 0 comes to two sums when the others have been in theirs for a while: in the first one they wait, in the second
 * one they come to the wait when nothing is left to wait for. */
static cvy_status come_late(struct rank *rank, struct cvy_comm *comm)
{
    static float numbers[WORLD][100000];
    struct moments *own = &moments[comm->rank];
    struct cvy_comm_worker *worker;

    own->all_reduce = comm->all_reduce;
    comm->all_reduce = timed_all_reduce;
    own->late = -comm->late;
    CVY_TRY(cvy_comm_worker_open(&worker, comm, 1));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 1; comm->rank == 0 && i < WORLD; i++) {
            await_count(&moments[i].begun, round + 1);
            await_count(&moments[i].awaited, 1);
        }
        if (comm->rank == 0)
            nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        cvy_comm_worker_post(worker, numbers[comm->rank], 100000, CVY_COMM_F32);
        if (round == 1)
            await_count(&own->ended, 2);
        own->wait_begin[round] = cvy_clock();
        own->awaited++;
        CVY_TRY(cvy_comm_worker_wait(worker));
        own->wait_end[round] = cvy_clock();
    }
    own->late += comm->late;
    cvy_comm_worker_times(worker, &own->times);
    cvy_comm_worker_close(worker);
    return CVY_OK;
}

static void check_times(int rank)
{
    const struct moments *own = &moments[rank];
    const struct cvy_comm_worker_times *times = &own->times;
    double in_sums = 0, in_waits = 0;

    for (int i = 0; i < ROUNDS; i++) {
        in_sums += own->sum_end[i] - own->sum_begin[i];
        in_waits += own->wait_end[i] - own->wait_begin[i];
    }
    assert_true(times->summing >= in_sums && own->late <= in_sums);
    assert_true(fabs(times->moving + own->late - times->summing) < 1e-6); /* roundings of differences of clocks */
    assert_true(times->moving > 0 && times->waiting > 0 && times->waiting <= in_waits);
    assert_true(times->exposed >= 0 && times->exposed <= times->moving && times->exposed <= times->waiting);
}

static void lateness(void **state)
{
    const struct moments *first = &moments[0], *next = &moments[1]; /* in the ring rank 1 hears rank 0 */
    const double slack = 0.1; /* for a pause between reading a clock and what was to be timed */
    struct rank ranks[WORLD] = {0};
    double late = 0;

    memset(moments, 0, sizeof moments);
    run_ranks(ranks, WORLD, 30, come_late);
    expect_all(ranks, WORLD);
    for (int i = 0; i < WORLD; i++)
        check_times(i);
    for (int i = 0; i < ROUNDS; i++)
        late += first->sum_begin[i] - next->sum_begin[i];
    assert_true(late >= 0.6);
    assert_true(next->late > late - slack);
    assert_true(next->times.moving < next->times.summing - late + slack);
    assert_true(next->times.waiting > first->sum_begin[0] - next->wait_begin[0] - slack);
}

RUN_TESTS(NULL, NULL, OVER_BOTH(queue), OVER_BOTH(lateness))
