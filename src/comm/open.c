/* The choice of a communicator. */
#include "base/error.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "comm/mpi.h"

/* The launcher is an MPI's, and the module for it is not here: TCP, where rank 0 can be found without it. */
static cvy_status go_without_mpi(struct cvy_comm *comm, const struct cvy_comm_config *place, double timeout)
{
    struct cvy_comm_config tcp = *place;
    char reason[1024];

    cvy_error_get(reason, sizeof reason);
    if (place->asked)
        return cvy_fail(CVY_UNAVAILABLE, "%s", reason);
    if (cvy_comm_config_for_tcp(&tcp) != CVY_OK)
        return cvy_fail_context(CVY_UNAVAILABLE, "%s, and TCP cannot do without it", reason);
    if (place->rank == 0)
        cvy_log(CVY_LOG_WARNING, "%s: the ranks are connected by TCP", reason);
    return cvy_group_open(comm, &tcp, timeout, cvy_local_link_open);
}

cvy_status cvy_comm_open(struct cvy_comm *comm, const struct cvy_comm_config *place, double timeout)
{
    cvy_comm_single(comm);
    if (place->world == 1)
        return CVY_OK;
    if (place->over == CVY_TRANSPORT_TCP)
        return cvy_group_open(comm, place, timeout, cvy_local_link_open);
    if (cvy_mpi_load(place->over) != CVY_OK)
        return go_without_mpi(comm, place, timeout);
    return cvy_mpi_open(comm, place, timeout);
}
