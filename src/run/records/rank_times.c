/* Times of ranks. */
#include "run/records/rank_times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cvy_sum_times cvy_sum_times(const struct cvy_comm *comm, const struct cvy_comm_worker *worker)
{
    const double moved = comm->seconds - comm->late;
    struct cvy_comm_worker_times beside = {0};

    if (worker)
        cvy_comm_worker_times(worker, &beside);
    return (struct cvy_sum_times){.waited = comm->seconds - beside.summing + beside.waiting,
                                  .moved = moved,
                                  .exposed = moved - beside.moving + beside.exposed};
}

cvy_status cvy_rank_times_all_gather(struct cvy_comm *comm, const struct cvy_rank_times *mine,
                                     struct cvy_rank_times *times)
{
    enum { EACH = sizeof *times / sizeof(double) };

    memset(times, 0, (size_t)comm->world * sizeof *times);
    times[comm->rank] = *mine;
    return cvy_comm_all_reduce_sum(comm, (double *)times, comm->world * EACH);
}

static double own(const struct cvy_rank_times *times)
{
    return times->compute + times->data;
}

static double compute_of(const struct cvy_rank_times *times)
{
    return times->compute;
}

static double data_of(const struct cvy_rank_times *times)
{
    return times->data;
}

static double wait_of(const struct cvy_rank_times *times)
{
    return times->wait;
}

/* How many ranks have less than this one, and how many the same. */
static void count_below(const struct cvy_rank_times *times, int world, double (*of)(const struct cvy_rank_times *),
                        double value, int *below, int *equal)
{
    *below = *equal = 0;
    for (int i = 0; i < world; i++) {
        *below += of(&times[i]) < value;
        *equal += of(&times[i]) == value;
    }
}

/* The value at that place in the order, from 0. Without a copy: there are few ranks, and this is done once in an epoch.
 */
static double at_place(const struct cvy_rank_times *times, int world, double (*of)(const struct cvy_rank_times *),
                       int place)
{
    for (int i = 0; i < world; i++) {
        const double value = of(&times[i]);
        int below, equal;

        count_below(times, world, of, value, &below, &equal);
        if (below <= place && place < below + equal)
            return value;
    }
    return 0; /* there are no numbers in order */
}

static double median(const struct cvy_rank_times *times, int world, double (*of)(const struct cvy_rank_times *))
{
    return (at_place(times, world, of, (world - 1) / 2) + at_place(times, world, of, world / 2)) / 2;
}

struct cvy_slowest cvy_rank_times_slowest(const struct cvy_rank_times *times, int world)
{
    const double middle = median(times, world, own);
    struct cvy_slowest slowest = {.rank = 0};
    const struct cvy_rank_times *its;

    for (int i = 1; i < world; i++) {
        if (own(&times[i]) > own(&times[slowest.rank]))
            slowest.rank = i;
    }
    its = &times[slowest.rank];
    slowest.excess = middle > 0 ? own(its) / middle - 1 : 0;
    slowest.data = its->data - median(times, world, data_of) > its->compute - median(times, world, compute_of);
    return slowest;
}

/* "0.2 to 1.3" */
static int put_range(const struct cvy_rank_times *times, int world, const char *what,
                     double (*of)(const struct cvy_rank_times *), char *text, size_t size)
{
    double min = of(&times[0]), max = min;

    for (int i = 1; i < world; i++) {
        min = of(&times[i]) < min ? of(&times[i]) : min;
        max = of(&times[i]) > max ? of(&times[i]) : max;
    }
    return snprintf(text, size, "%s %.1f to %.1f s", what, min, max);
}

void cvy_rank_times_text(const struct cvy_rank_times *times, int world, const char *const *names, char *text,
                         size_t size)
{
    const struct cvy_slowest slowest = cvy_rank_times_slowest(times, world);
    char compute[64], data[64], wait[64];

    (void)put_range(times, world, "computing", compute_of, compute, sizeof compute);
    (void)put_range(times, world, "waiting for data", data_of, data, sizeof data);
    (void)put_range(times, world, "for others", wait_of, wait, sizeof wait);
    snprintf(text, size, "ranks: %s, %s, %s; slowest: %.128s: %.0f %% above the median, %s", compute, data, wait,
             names[slowest.rank], 100 * slowest.excess, slowest.data ? "waiting for data" : "computing");
}
