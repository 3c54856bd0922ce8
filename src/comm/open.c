/* The choice of a communicator. */
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "comm/mpi.h"

/* Over TCP. Where the key is no secret, rank 0 draws one and leaves it in a file for the time of the rendezvous. */
static cvy_status open_tcp(struct cvy_comm *comm, const struct cvy_comm_config *given, double timeout)
{
    struct cvy_comm_config place = *given;
    cvy_status status;

    if (place.secret || cvy_socket_is_local(place.address))
        place.key_file[0] = '\0';
    else if (!place.key_file[0] && place.rank == 0)
        cvy_log(CVY_LOG_WARNING,
                "the ranks have no key: whoever reaches port %d of %s can take part; set CONVOY_COMM_KEY, or name the "
                "run's folder (--workspace) on a file system that all hosts share",
                place.port, cvy_quote(place.address));
    if (place.rank == 0 && place.key_file[0]) {
        char key[33];

        CVY_TRY(cvy_key_file_make(place.key_file, key));
        snprintf(place.key, sizeof place.key, "%s", key);
        place.secret = true;
    }
    status = cvy_group_open(comm, &place, timeout, cvy_local_link_open);
    if (place.rank == 0 && place.key_file[0])
        (void)unlink(place.key_file);
    return status;
}

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
    return open_tcp(comm, &tcp, timeout);
}

cvy_status cvy_comm_open(struct cvy_comm *comm, const struct cvy_comm_config *place, double timeout)
{
    cvy_comm_single(comm);
    if (place->world == 1)
        return CVY_OK;
    if (place->over == CVY_TRANSPORT_TCP)
        return open_tcp(comm, place, timeout);
    if (cvy_mpi_load(place->over) != CVY_OK)
        return go_without_mpi(comm, place, timeout);
    return cvy_mpi_open(comm, place, timeout);
}
