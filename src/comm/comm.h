/* Sums over all processes of a run. One interface: a single process here; MPI and NCCL as modules. */
#ifndef CVY_COMM_COMM_H
#define CVY_COMM_COMM_H

#include "convoy/status.h"

struct cvy_comm {
    int rank, world;
    void *state;
    /* Sum `count` floats in place over all ranks; on devices the call only enqueues. */
    cvy_status (*all_reduce)(struct cvy_comm *comm, float *data, int64_t count);
    cvy_status (*broadcast)(struct cvy_comm *comm, void *data, size_t bytes, int root);
    cvy_status (*barrier)(struct cvy_comm *comm);
    void (*abort)(struct cvy_comm *comm, const char *why);
    void (*close)(struct cvy_comm *comm);
};
/* The communicator of a single process: every call succeeds and changes nothing. */
void cvy_comm_single(struct cvy_comm *comm);

#endif
