/* A thread that all-reduces arrays over the ranks while the caller computes: in the order in which they are posted,
 * which must be the same on every rank. Between the first post and the wait nothing else may use the communicator. One
 * thread posts and waits. */
#ifndef CVY_COMM_WORKER_H
#define CVY_COMM_WORKER_H

#include "comm/comm.h"

struct cvy_comm_worker;
/* A queue of at most `max` unfinished posts. The communicator is borrowed. */
CVY_CHECKED cvy_status cvy_comm_worker_open(struct cvy_comm_worker **worker, struct cvy_comm *comm, int32_t max);
void cvy_comm_worker_close(struct cvy_comm_worker *worker); /* accepts NULL; what was begun is finished first */
/* Sum `count` floats in place, of one of the types that are floats in memory. The data belong to the worker until the
 * wait. */
void cvy_comm_worker_post(struct cvy_comm_worker *worker, float *data, int64_t count, enum cvy_comm_type type);
/* Sum `count` doubles in place, after what is posted already, and wait for the result. */
CVY_CHECKED cvy_status cvy_comm_worker_sum(struct cvy_comm_worker *worker, double *values, int64_t count);
/* Until everything posted is summed. The first failure is returned with its sentence. */
CVY_CHECKED cvy_status cvy_comm_worker_wait(struct cvy_comm_worker *worker);
/* Seconds since the worker was opened. */
struct cvy_comm_worker_times {
    double summing; /* in sums, including the wait for other ranks */
    double moving;  /* transfer and addition, once all ranks had arrived */
    double waiting; /* of cvy_comm_worker_wait */
    double exposed; /* of both: waiting for numbers that were moving */
};
/* While nothing is posted. */
void cvy_comm_worker_times(const struct cvy_comm_worker *worker, struct cvy_comm_worker_times *times);

#endif
