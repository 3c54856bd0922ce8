/* How ranks find one another: each says hello to rank 0, which sends all of them the list of everyone. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system.h"
#include "comm/group.h"
#include "comm/socket.h"

static const char magic[8] = "CVYRANK1";

struct hello {
    char magic[8];
    int32_t rank, world, port;
    char key[64], host[64];
};

static cvy_status late(const char *what)
{
    return cvy_fail(CVY_FAILED, "%s did not answer while the ranks were meeting", what);
}

/* ---- rank 0 and the others ---- */

static bool is_ours(const struct cvy_group *group, const struct hello *hello)
{
    return memcmp(hello->magic, magic, sizeof magic) == 0 && strncmp(hello->key, group->key, sizeof hello->key) == 0;
}

/* One who came to rank 0. Strangers are sent away; another rank of this run that does not fit is an error. */
static cvy_status receive_hello(struct cvy_group *group, int socket, const char *from, int *met)
{
    struct hello hello;
    struct cvy_peer *peer;

    /* A stranger that says nothing must not take the time of those who do. */
    if (cvy_socket_receive(socket, &hello, sizeof hello, cvy_clock() + 2, -1) != CVY_SOCKET_DONE ||
        !is_ours(group, &hello)) {
        cvy_log(CVY_LOG_WARNING,
                "somebody at %s who is no rank of this run came to the port of rank 0 and was sent away",
                cvy_quote(from));
        close(socket);
        return CVY_OK;
    }
    if (hello.world != group->world || hello.rank < 1 || hello.rank >= group->world ||
        group->control[hello.rank] >= 0) {
        close(socket);
        return cvy_fail(CVY_USAGE, "at %s there is rank %d of %d ranks, which does not fit to this run of %d: %s",
                        cvy_quote(from), (int)hello.rank, (int)hello.world, group->world,
                        hello.world == group->world ? "two processes have the same rank"
                                                    : "all must be told the same number");
    }
    peer = &group->peers[hello.rank];
    snprintf(peer->host, sizeof peer->host, "%.*s", (int)sizeof hello.host - 1, hello.host);
    snprintf(peer->address, sizeof peer->address, "%s", from);
    peer->port = hello.port;
    group->control[hello.rank] = socket;
    ++*met;
    return CVY_OK;
}

/* Ranks that have not come: "1, 4, 5 and 12 others". */
static void list_missing(const struct cvy_group *group, char *text, size_t size)
{
    int named = 0, missing = 0;
    size_t used = 0;

    for (int i = 1; i < group->world; i++)
        missing += group->control[i] < 0;
    text[0] = '\0';
    for (int i = 1; i < group->world && named < 8; i++) {
        if (group->control[i] >= 0)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%d", named ? ", " : "", i);
        named++;
    }
    if (missing > named)
        snprintf(text + used, size - used, " and %d others", missing - named);
}

static cvy_status gather_hellos(struct cvy_group *group, int listener, double deadline)
{
    char from[64], missing[128];

    for (int met = 0; met < group->world - 1;) {
        int socket;

        CVY_TRY(cvy_socket_accept(listener, deadline, &socket, from, sizeof from));
        if (socket < 0) {
            list_missing(group, missing, sizeof missing);
            return cvy_fail(CVY_FAILED, "rank 0 waited %g s for the others, and these did not come: %s", group->timeout,
                            missing);
        }
        CVY_TRY(receive_hello(group, socket, from, &met));
    }
    return CVY_OK;
}

static cvy_status meet_as_first(struct cvy_group *group, const struct cvy_comm_place *place, double deadline)
{
    const size_t bytes = (size_t)group->world * sizeof *group->peers;
    int listener = place->listener, port = place->port;
    cvy_status status;

    if (listener < 0)
        CVY_TRY(cvy_socket_listen(cvy_socket_is_local(place->address), &port, &listener));
    status = gather_hellos(group, listener, deadline);
    close(listener);
    CVY_TRY(status);
    for (int i = 1; i < group->world; i++) {
        if (cvy_socket_send(group->control[i], group->peers, bytes, deadline, -1) != CVY_SOCKET_DONE)
            return late(group->peers[i].host);
    }
    return CVY_OK;
}

static cvy_status meet_as_other(struct cvy_group *group, const struct cvy_comm_place *place, double deadline)
{
    const size_t bytes = (size_t)group->world * sizeof *group->peers;
    struct hello hello = {.rank = group->rank, .world = group->world, .port = group->peers[group->rank].port};

    memcpy(hello.magic, magic, sizeof magic);
    memcpy(hello.key, group->key, sizeof hello.key);
    memcpy(hello.host, group->peers[group->rank].host, sizeof hello.host);
    if (cvy_socket_connect(place->address, place->port, deadline, &group->control[0]) != CVY_OK)
        return cvy_fail_context(CVY_FAILED, "rank %d cannot meet rank 0", group->rank);
    if (cvy_socket_send(group->control[0], &hello, sizeof hello, deadline, -1) != CVY_SOCKET_DONE ||
        cvy_socket_receive(group->control[0], group->peers, bytes, deadline, -1) != CVY_SOCKET_DONE)
        return cvy_fail(CVY_FAILED, "rank %d met rank 0 at %s, which then ended or did not go on", group->rank,
                        cvy_quote(place->address));
    for (int i = 0; i < group->world; i++) { /* from another process */
        struct cvy_peer *peer = &group->peers[i];

        peer->host[sizeof peer->host - 1] = peer->address[sizeof peer->address - 1] = '\0';
        if (peer->port < 1 || peer->port > 65535)
            return cvy_fail(CVY_FAILED, "rank 0 at %s sent a list of ranks that makes no sense",
                            cvy_quote(place->address));
    }
    snprintf(group->peers[0].address, sizeof group->peers[0].address, "%.63s", place->address);
    return CVY_OK;
}

static cvy_status make_names(struct cvy_group *group)
{
    char text[128];

    for (int i = 0; i < group->world; i++) {
        snprintf(text, sizeof text, "rank %d on host %s", i, cvy_quote(group->peers[i].host));
        group->names[i] = cvy_strdup(text);
        if (!group->names[i])
            return cvy_fail_memory(sizeof text, "the names of the ranks");
    }
    return CVY_OK;
}

/* One descriptor for each rank on rank 0: the usual limit is 1024. */
static void raise_descriptor_limit(int world)
{
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)world + 1024;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

cvy_status cvy_group_meet(struct cvy_group *group, const struct cvy_comm_place *place, double deadline)
{
    struct cvy_peer *self = &group->peers[group->rank];
    int port = 0;

    if (gethostname(self->host, sizeof self->host - 1) != 0)
        snprintf(self->host, sizeof self->host, "unknown");
    CVY_TRY(cvy_socket_listen(cvy_socket_is_local(place->address), &port, &group->listener));
    self->port = port;
    if (group->rank == 0)
        raise_descriptor_limit(group->world);
    CVY_TRY(group->rank == 0 ? meet_as_first(group, place, deadline) : meet_as_other(group, place, deadline));
    return make_names(group);
}
