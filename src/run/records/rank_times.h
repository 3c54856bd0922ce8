/* How each rank spent the time of an epoch, and which of them is the slowest. */
#ifndef CVY_RUN_RANK_TIMES_H
#define CVY_RUN_RANK_TIMES_H

#include "comm/worker.h"

/* Seconds. Sums that run during the backward pass count only as far as the step waited for them; a GPU's sums that the
 * host does not see count as computing. */
struct cvy_rank_times {
    double compute, data, wait; /* wait: for other ranks, and for sums with them */
};

/* Seconds of this rank so far. */
struct cvy_sum_times {
    double waited;  /* the training thread waiting for other ranks and for sums with them */
    double moved;   /* in sums and broadcasts: transfer and addition, once the ranks had arrived */
    double exposed; /* the part of `moved` in which the training thread was blocked */
};
/* worker: of the gradients, or NULL. */
struct cvy_sum_times cvy_sum_times(const struct cvy_comm *comm, const struct cvy_comm_worker *worker);
/* All-gather of each rank's own times: times (world). */
CVY_CHECKED cvy_status cvy_rank_times_all_gather(struct cvy_comm *comm, const struct cvy_rank_times *mine,
                                                 struct cvy_rank_times *times);

/* The rank that spent the most time of its own: computing and waiting for data. */
struct cvy_slowest {
    int rank;
    double excess; /* over the median of all, as a share of it */
    bool data;     /* more of the excess is waiting for data than computing */
};
struct cvy_slowest cvy_rank_times_slowest(const struct cvy_rank_times *times, int world);
/* "ranks: computing 5.1 to 6.3 s, waiting for data 0.0 to 0.2 s, for others 0.1 to 1.3 s; slowest: rank 1 on host "b":
 * 12 % above the median, computing". names (world) of the ranks. */
void cvy_rank_times_text(const struct cvy_rank_times *times, int world, const char *const *names, char *text,
                         size_t size);

#endif
