/* Opening and closing the communicator of connected ranks. Its collectives are in sums.c. */
#include "comm/group.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"

static cvy_status group_all_reduce(struct cvy_comm *comm, void *data, int64_t count, enum cvy_comm_type type)
{
    struct cvy_group *group = comm->state;
    const double start = cvy_clock();
    double late = 0;
    const cvy_status status = count > 0 ? cvy_group_sum(group, data, count, type, &late) : CVY_OK;

    comm->seconds += cvy_clock() - start;
    comm->late += late;
    if (status != CVY_OK)
        group->failed = true;
    return status;
}

static cvy_status group_broadcast(struct cvy_comm *comm, void *data, size_t bytes, int root)
{
    struct cvy_group *group = comm->state;
    const double start = cvy_clock();
    const cvy_status status = bytes > 0 ? cvy_group_broadcast(group, data, bytes, root) : CVY_OK;

    comm->seconds += cvy_clock() - start;
    if (status != CVY_OK)
        group->failed = true;
    return status;
}

static cvy_status group_barrier(struct cvy_comm *comm)
{
    double nothing = 0;

    return group_all_reduce(comm, &nothing, 1, CVY_COMM_F64);
}

/* ---- opening and closing ---- */

static void group_abort(struct cvy_comm *comm, cvy_status status, const char *why)
{
    struct cvy_group *group = comm->state;

    group->failed = true;
    cvy_watch_abort(group->watch, status, why);
}

static void group_mark(struct cvy_comm *comm)
{
    struct cvy_group *group = comm->state;

    cvy_watch_progress(group->watch, ++group->sequence);
}

static cvy_status group_reason(struct cvy_comm *comm, bool late)
{
    struct cvy_group *group = comm->state;

    CVY_TRY(cvy_watch_reason(group->watch, 0));
    return late ? cvy_watch_timeout(group->watch) : CVY_OK;
}

static void release(struct cvy_group *group)
{
    if (!group)
        return;
    cvy_watch_close(group->watch);
    if (group->link.state)
        group->link.close(&group->link, group->failed);
    for (int i = 0; group->control && i < group->world; i++) {
        if (group->control[i] >= 0)
            close(group->control[i]);
    }
    if (group->listener >= 0)
        close(group->listener);
    cvy_free(group->name_texts);
    cvy_free(group->names);
    cvy_free(group->control);
    cvy_free(group->sessions);
    cvy_free(group->peers);
    cvy_free(group->piece);
    cvy_free(group->packed);
    cvy_free(group);
}

static void group_close(struct cvy_comm *comm)
{
    struct cvy_group *group = comm->state;

    if (group->link.closing_barrier && !group->failed && group_barrier(comm) != CVY_OK)
        group->failed = true; /* whoever fails says so */
    release(group);
    comm->state = NULL;
}

/* The tree: a rank's parent is the rank without its lowest bit. */
static void find_neighbours(struct cvy_group *group)
{
    const int rank = group->rank, first = rank ? rank & -rank : group->world;

    group->ranks[CVY_LINE_NEXT] = (rank + 1) % group->world;
    group->ranks[CVY_LINE_PREVIOUS] = (rank + group->world - 1) % group->world;
    group->ranks[CVY_LINE_PARENT] = rank & (rank - 1);
    for (int bit = 1; bit < first && rank + bit < group->world; bit *= 2)
        group->ranks[CVY_LINE_CHILDREN + group->child_count++] = rank + bit;
}

static cvy_status allocate(const struct cvy_comm_config *place, double timeout, struct cvy_group **out)
{
    const size_t world = (size_t)place->world;
    struct cvy_group *group = cvy_calloc(1, sizeof *group);

    *out = group;
    if (!group)
        return cvy_fail_memory(sizeof *group, "the other ranks");
    *group = (struct cvy_group){.rank = place->rank,
                                .world = place->world,
                                .timeout = timeout,
                                .sockets_only = place->asked && place->over == CVY_TRANSPORT_TCP,
                                .listener = -1};
    memcpy(group->key, place->key, sizeof group->key);
    find_neighbours(group);
    group->peers = cvy_calloc(world, sizeof *group->peers);
    group->names = cvy_calloc(world, sizeof *group->names);
    group->name_texts = cvy_calloc(world, sizeof *group->name_texts);
    group->sessions = cvy_calloc(world, sizeof *group->sessions);
    group->control = cvy_calloc(world, sizeof *group->control);
    group->piece = cvy_calloc(1, CVY_GROUP_CHUNK);
    for (size_t i = 0; group->control && i < world; i++)
        group->control[i] = -1;
    return group->peers && group->names && group->name_texts && group->sessions && group->control && group->piece
               ? CVY_OK
               : cvy_fail_memory(world * sizeof *group->peers + CVY_GROUP_CHUNK, "the other ranks");
}

/* Ranks of the same host are counted by its name, which is the same on all of them. */
static void count_hosts(struct cvy_comm *comm, const struct cvy_group *group)
{
    const char *own = group->peers[group->rank].host;

    comm->local_world = comm->local_rank = comm->hosts = 0;
    for (int i = 0; i < group->world; i++) {
        const bool here = strcmp(group->peers[i].host, own) == 0;
        bool known = false;

        comm->local_world += here;
        comm->local_rank += here && i < group->rank;
        for (int k = 0; k < i && !known; k++)
            known = strcmp(group->peers[i].host, group->peers[k].host) == 0;
        comm->hosts += !known;
    }
}

static cvy_status open_watch(struct cvy_group *group)
{
    const struct cvy_watch_options options = {.rank = group->rank,
                                              .world = group->world,
                                              .timeout = group->timeout,
                                              .sockets = group->control,
                                              .names = (const char *const *)group->names};
    const cvy_status status = cvy_watch_open(&group->watch, &options);

    for (int i = 0; i < group->world; i++) /* the watch has them now */
        group->control[i] = -1;
    return status;
}

/* A rank cannot connect: because of what another one says, or else all are told. */
static cvy_status explain_rendezvous(struct cvy_group *group, cvy_status status)
{
    char why[1024];

    group->failed = true;
    cvy_error_get(why, sizeof why);
    CVY_TRY(cvy_watch_reason(group->watch, 3));
    cvy_watch_abort(group->watch, status, why);
    cvy_error_put(why);
    return status;
}

static cvy_status connect_all(struct cvy_group *group, const struct cvy_comm_config *place, cvy_link_open open_link)
{
    const double deadline = cvy_clock() + group->timeout;
    cvy_status status;

    CVY_TRY(cvy_group_rendezvous(group, place, deadline));
    CVY_TRY(open_watch(group)); /* from here on every end is noticed, and all are told of every failure */
    status = open_link(&group->link, group, deadline);
    if (status != CVY_OK)
        return explain_rendezvous(group, status);
    close(group->listener);
    group->listener = -1;
    return CVY_OK;
}

cvy_status cvy_group_open(struct cvy_comm *comm, const struct cvy_comm_config *place, double timeout,
                          cvy_link_open open_link)
{
    struct cvy_group *group;
    cvy_status status;

    CVY_GOTO(allocate(place, timeout, &group));
    CVY_GOTO(connect_all(group, place, open_link));
    *comm = (struct cvy_comm){.rank = group->rank,
                              .world = group->world,
                              .names = (const char *const *)group->names,
                              .state = group,
                              .all_reduce = group_all_reduce,
                              .broadcast = group_broadcast,
                              .barrier = group_barrier,
                              .abort = group_abort,
                              .mark = group_mark,
                              .reason = group_reason,
                              .close = group_close};
    memcpy(comm->transport, group->link.name, sizeof comm->transport);
    count_hosts(comm, group);
    return CVY_OK;
fail:
    if (group)
        group->failed = true;
    release(group);
    return status;
}
