/* Small collectives. */
#include "comm/comm.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

cvy_status cvy_comm_all_reduce_sum(struct cvy_comm *comm, double *values, int count)
{
    return comm->all_reduce(comm, values, count, CVY_COMM_F64);
}

cvy_status cvy_comm_all_reduce_or(struct cvy_comm *comm, bool mine, bool *any)
{
    double value = mine;
    const cvy_status status = cvy_comm_all_reduce_sum(comm, &value, 1);

    *any = value > 0;
    return status;
}

/* Ranks that are only counted, a dry run's, have no names and are all like this one. */
cvy_status cvy_comm_all_gather(struct cvy_comm *comm, double mine, double *values)
{
    for (int i = 0; i < comm->world; i++)
        values[i] = comm->names ? 0 : mine;
    values[comm->rank] = mine;
    return cvy_comm_all_reduce_sum(comm, values, comm->world);
}

cvy_status cvy_comm_all_reduce_min(struct cvy_comm *comm, double *value)
{
    double *values = cvy_calloc((size_t)comm->world, sizeof *values);
    cvy_status status;

    if (!values)
        return cvy_fail_memory((size_t)comm->world * sizeof *values, "a number of each rank");
    status = cvy_comm_all_gather(comm, *value, values);
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
    status = cvy_comm_all_gather(comm, (double)count, values);
    for (int i = 0; i < comm->world; i++)
        counts[i] = (size_t)values[i];
    cvy_free(values);
    return status;
}

cvy_status cvy_comm_all_gather_v(struct cvy_comm *comm, const void *mine, size_t count, size_t element_bytes,
                                 void **all, size_t *counts)
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

cvy_status cvy_comm_broadcast_text(struct cvy_comm *comm, const char *mine, char **text)
{
    double length = comm->rank == 0 ? (double)strlen(mine) : 0;
    size_t bytes;

    *text = NULL;
    CVY_TRY(cvy_comm_all_reduce_sum(comm, &length, 1));
    bytes = (size_t)length;
    *text = cvy_calloc(bytes + 1, 1);
    if (!*text)
        return cvy_fail_memory(bytes, "a text of rank 0");
    if (comm->rank == 0)
        memcpy(*text, mine, bytes);
    return comm->broadcast(comm, *text, bytes, 0);
}
