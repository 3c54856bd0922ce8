/* The communicator of a single process: sums and broadcasts over one rank change nothing. */
#include "comm/comm.h"

#include "base/error.h"

static cvy_status single_all_reduce(struct cvy_comm *comm, void *data, int64_t count, enum cvy_comm_type type)
{
    (void)comm, (void)data, (void)count, (void)type;
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

static void single_abort(struct cvy_comm *comm, cvy_status status, const char *why)
{
    (void)comm, (void)status, (void)why;
}

static void single_mark(struct cvy_comm *comm)
{
    (void)comm;
}

static cvy_status single_reason(struct cvy_comm *comm, bool late)
{
    (void)comm;
    return late ? cvy_fail(CVY_FAILED, "the device has not answered within the time limit") : CVY_OK;
}

static void single_close(struct cvy_comm *comm)
{
    (void)comm;
}

void cvy_comm_single(struct cvy_comm *comm)
{
    *comm = (struct cvy_comm){
        .world = 1,
        .local_world = 1,
        .hosts = 1,
        .all_reduce = single_all_reduce,
        .broadcast = single_broadcast,
        .barrier = single_barrier,
        .abort = single_abort,
        .mark = single_mark,
        .reason = single_reason,
        .close = single_close,
    };
}
