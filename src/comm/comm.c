/* Small things that ranks tell one another, and the choice of a communicator. */
#include "comm/comm.h"

#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/group.h"
#include "comm/mpi.h"

/* The launcher is an MPI's, and the module for it is not here: TCP, where rank 0 can be found without it. */
static cvy_status go_without_mpi(struct cvy_comm *comm, const struct cvy_comm_place *place, double timeout)
{
    struct cvy_comm_place tcp = *place;
    char reason[1024];

    cvy_error_get(reason, sizeof reason);
    if (place->asked)
        return cvy_fail(CVY_UNAVAILABLE, "%s", reason);
    if (cvy_comm_place_for_tcp(&tcp) != CVY_OK)
        return cvy_fail_context(CVY_UNAVAILABLE, "%s, and TCP cannot do without it", reason);
    if (place->rank == 0)
        cvy_log(CVY_LOG_WARNING, "%s: the ranks are connected by TCP", reason);
    return cvy_group_open(comm, &tcp, timeout, cvy_local_link_open);
}

cvy_status cvy_comm_open(struct cvy_comm *comm, const struct cvy_comm_place *place, double timeout)
{
    cvy_comm_single(comm);
    if (place->world == 1)
        return CVY_OK;
    if (place->over == CVY_OVER_TCP)
        return cvy_group_open(comm, place, timeout, cvy_local_link_open);
    if (cvy_mpi_load(place->over) != CVY_OK)
        return go_without_mpi(comm, place, timeout);
    return cvy_mpi_open(comm, place, timeout);
}

cvy_status cvy_comm_sum(struct cvy_comm *comm, double *values, int count)
{
    return comm->all_reduce(comm, values, count, CVY_COMM_F64);
}

cvy_status cvy_comm_any(struct cvy_comm *comm, bool mine, bool *any)
{
    double value = mine;
    const cvy_status status = cvy_comm_sum(comm, &value, 1);

    *any = value > 0;
    return status;
}

cvy_status cvy_comm_gather(struct cvy_comm *comm, double mine, double *values)
{
    for (int i = 0; i < comm->world; i++)
        values[i] = 0;
    values[comm->rank] = mine;
    return cvy_comm_sum(comm, values, comm->world);
}

cvy_status cvy_comm_least(struct cvy_comm *comm, double *value)
{
    double *values = cvy_calloc((size_t)comm->world, sizeof *values);
    cvy_status status;

    if (!values)
        return cvy_fail_memory((size_t)comm->world * sizeof *values, "a number of each rank");
    status = cvy_comm_gather(comm, *value, values);
    for (int i = 0; status == CVY_OK && i < comm->world; i++)
        *value = values[i] < *value ? values[i] : *value;
    cvy_free(values);
    return status;
}

static cvy_status count_all(struct cvy_comm *comm, size_t count, size_t *counts)
{
    double *values = cvy_calloc((size_t)comm->world, sizeof *values);
    cvy_status status;

    if (!values)
        return cvy_fail_memory((size_t)comm->world * sizeof *values, "a number of each rank");
    status = cvy_comm_gather(comm, (double)count, values);
    for (int i = 0; i < comm->world; i++)
        counts[i] = (size_t)values[i];
    cvy_free(values);
    return status;
}

cvy_status cvy_comm_concat(struct cvy_comm *comm, const void *mine, size_t count, size_t element_bytes, void **all,
                           size_t *counts)
{
    size_t sum = 0, at = 0;

    *all = NULL;
    CVY_TRY(count_all(comm, count, counts));
    for (int i = 0; i < comm->world; i++)
        sum += counts[i];
    *all = cvy_calloc(sum + 1, element_bytes);
    if (!*all)
        return cvy_fail_memory(sum * element_bytes, "what all ranks know together");
    for (int i = 0; i < comm->world; i++) {
        char *here = (char *)*all + at * element_bytes;

        if (i == comm->rank && count > 0)
            memcpy(here, mine, count * element_bytes);
        CVY_TRY(comm->broadcast(comm, here, counts[i] * element_bytes, i));
        at += counts[i];
    }
    return CVY_OK;
}

cvy_status cvy_comm_share_text(struct cvy_comm *comm, const char *mine, char **text)
{
    double length = comm->rank == 0 ? (double)strlen(mine) : 0;
    size_t bytes;

    *text = NULL;
    CVY_TRY(cvy_comm_sum(comm, &length, 1));
    bytes = (size_t)length;
    *text = cvy_calloc(bytes + 1, 1);
    if (!*text)
        return cvy_fail_memory(bytes, "a text of rank 0");
    if (comm->rank == 0)
        memcpy(*text, mine, bytes);
    return comm->broadcast(comm, *text, bytes, 0);
}
