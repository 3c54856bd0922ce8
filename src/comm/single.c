/* The communicator of a single process: sums and broadcasts over one rank change nothing. */
#include "comm/comm.h"

#include "base/log.h"

static cvy_status single_all_reduce(struct cvy_comm *comm, float *data, int64_t count)
{
    (void)comm, (void)data, (void)count;
    return CVY_OK;
}

static cvy_status single_broadcast(struct cvy_comm *comm, void *data, size_t bytes, int root)
{
    (void)comm, (void)data, (void)bytes, (void)root;
    return CVY_OK;
}

static cvy_status single_barrier(struct cvy_comm *comm)
{
    (void)comm;
    return CVY_OK;
}

static void single_abort(struct cvy_comm *comm, const char *why)
{
    (void)comm;
    cvy_log(CVY_LOG_ERROR, "%s", why);
}

static void single_close(struct cvy_comm *comm)
{
    (void)comm;
}

void cvy_comm_single(struct cvy_comm *comm)
{
    *comm = (struct cvy_comm){
        .world = 1,
        .all_reduce = single_all_reduce,
        .broadcast = single_broadcast,
        .barrier = single_barrier,
        .abort = single_abort,
        .close = single_close,
    };
}
