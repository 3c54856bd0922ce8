/* The rendezvous: each rank introduces itself to rank 0, which sends the list of ranks to all of them. */
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
#include "comm/pending.h"

static const char magic[8] = "CVYRANK2";

struct hello {
    char magic[8];
    int32_t rank, world, port;
    char key[64], host[64];
};

/* What rank 0 says to each once all have come, or once something is wrong. The list of ranks follows where nothing is.
 */
struct answer {
    uint32_t status;
    char text[1020];
};
enum { ANSWER_SECONDS = 2 }; /* beyond the time limit, so that rank 0's sentence arrives */

/* ---- rank 0 and the others ---- */

static bool is_ours(const struct cvy_group *group, const struct hello *hello)
{
    return memcmp(hello->magic, magic, sizeof magic) == 0 && strncmp(hello->key, group->key, sizeof hello->key) == 0;
}

/* CVY_OK, or the recorded sentence. A peer that does not listen will see the connection end. */
static void send_answer(int socket, cvy_status status, double deadline)
{
    struct answer answer = {.status = (uint32_t)status};

    if (status != CVY_OK)
        cvy_error_get(answer.text, sizeof answer.text);
    (void)cvy_socket_send(socket, &answer, sizeof answer, deadline, -1);
}

/* One who came to rank 0. Foreign connections are closed; another rank of this run that does not fit is an error, which
 * it is told too. */
static cvy_status receive_hello(struct cvy_group *group, const struct cvy_pending_event *event, int *met)
{
    const int socket = event->socket;
    struct hello hello;
    struct cvy_peer *peer;

    memcpy(&hello, event->hello, sizeof hello);
    if (!is_ours(group, &hello)) {
        cvy_log(CVY_LOG_WARNING,
                "somebody at %s who is no rank of this run came to the port of rank 0 and was sent away",
                cvy_quote(event->from));
        close(socket);
        return CVY_OK;
    }
    if (hello.world != group->world || hello.rank < 1 || hello.rank >= group->world ||
        group->control[hello.rank] >= 0) {
        (void)cvy_fail(CVY_USAGE, "at %s there is rank %d of %d ranks, which does not fit to this run of %d: %s",
                       cvy_quote(event->from), (int)hello.rank, (int)hello.world, group->world,
                       hello.world == group->world ? "two processes have the same rank"
                                                   : "all must be told the same number");
        send_answer(socket, CVY_USAGE, cvy_clock() + ANSWER_SECONDS);
        close(socket);
        return CVY_USAGE;
    }
    peer = &group->peers[hello.rank];
    snprintf(peer->host, sizeof peer->host, "%.*s", (int)sizeof hello.host - 1, hello.host);
    /* A rank beside rank 0 may come over the loopback: others find it where they find rank 0. */
    snprintf(peer->address, sizeof peer->address, "%s", cvy_socket_is_local(event->from) ? "" : event->from);
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

static cvy_status gather_hellos(struct cvy_group *group, struct cvy_pending *pending, double deadline)
{
    char missing[128];

    for (int met = 0; met < group->world - 1;) {
        struct cvy_pending_event event;

        CVY_TRY(cvy_pending_next(pending, deadline, group->control, group->world, &event));
        if (event.end == CVY_SOCKET_ALARM) { /* nobody has anything to say before rank 0 has answered */
            close(group->control[event.alarm]);
            group->control[event.alarm] = -1;
            return cvy_fail(CVY_FAILED, "rank %d on host %s ended while the ranks were meeting", event.alarm,
                            cvy_quote(group->peers[event.alarm].host));
        }
        if (event.end == CVY_SOCKET_TIMEOUT) {
            list_missing(group, missing, sizeof missing);
            return cvy_fail(CVY_FAILED, "rank 0 waited %g s for the others, and these did not come: %s", group->timeout,
                            missing);
        }
        CVY_TRY(receive_hello(group, &event, &met));
    }
    return CVY_OK;
}

static cvy_status rendezvous_all(struct cvy_group *group, int listener, double deadline)
{
    struct cvy_pending *pending;
    cvy_status status = cvy_pending_open(&pending, listener, sizeof(struct hello), group->world);

    if (status == CVY_OK)
        status = gather_hellos(group, pending, deadline);
    cvy_pending_close(pending);
    return status;
}

/* All get the list, or why there is none: they end as rank 0 does. One that is gone by now is the watch's to name. */
static cvy_status answer_all(struct cvy_group *group, cvy_status status, double deadline)
{
    const size_t bytes = (size_t)group->world * sizeof *group->peers;

    for (int i = 1; i < group->world; i++) {
        const int socket = group->control[i];

        if (socket >= 0)
            send_answer(socket, status, deadline);
        if (status == CVY_OK)
            (void)cvy_socket_send(socket, group->peers, bytes, deadline, -1);
    }
    return status;
}

static cvy_status rendezvous_as_first(struct cvy_group *group, const struct cvy_comm_config *place, double deadline)
{
    int listener = place->listener, port = place->port;
    cvy_status status;

    if (listener < 0)
        CVY_TRY(cvy_socket_listen(place->address, &port, &listener));
    status = rendezvous_all(group, listener, deadline);
    close(listener);
    return answer_all(group, status, status == CVY_OK ? deadline : cvy_clock() + ANSWER_SECONDS);
}

static cvy_status receive_answer(struct cvy_group *group, const struct cvy_comm_config *place, double deadline)
{
    const size_t bytes = (size_t)group->world * sizeof *group->peers;
    struct answer answer;
    enum cvy_socket_result end =
        cvy_socket_receive(group->control[0], &answer, sizeof answer, deadline + ANSWER_SECONDS, -1);

    if (end == CVY_SOCKET_DONE && answer.status != CVY_OK)
        return cvy_fail((cvy_status)answer.status, "rank 0 at %s: %.*s", cvy_quote(place->address),
                        (int)sizeof answer.text - 1, answer.text);
    if (end == CVY_SOCKET_DONE)
        end = cvy_socket_receive(group->control[0], group->peers, bytes, deadline + ANSWER_SECONDS, -1);
    return end == CVY_SOCKET_DONE ? CVY_OK
                                  : cvy_fail(CVY_FAILED, "rank %d met rank 0 at %s, which then ended or did not go on",
                                             group->rank, cvy_quote(place->address));
}

static cvy_status rendezvous_as_other(struct cvy_group *group, const struct cvy_comm_config *place, double deadline)
{
    struct hello hello = {.rank = group->rank, .world = group->world, .port = group->peers[group->rank].port};

    memcpy(hello.magic, magic, sizeof magic);
    memcpy(hello.key, group->key, sizeof hello.key);
    memcpy(hello.host, group->peers[group->rank].host, sizeof hello.host);
    if (cvy_socket_connect(place->address, place->port, deadline, true, -1, &group->control[0]) != CVY_OK)
        return cvy_fail_context(CVY_FAILED, "rank %d cannot meet rank 0", group->rank);
    (void)cvy_socket_send(group->control[0], &hello, sizeof hello, deadline, -1);
    CVY_TRY(receive_answer(group, place, deadline));
    for (int i = 0; i < group->world; i++) { /* from another process */
        struct cvy_peer *peer = &group->peers[i];

        peer->host[sizeof peer->host - 1] = peer->address[sizeof peer->address - 1] = '\0';
        if (peer->port < 1 || peer->port > 65535)
            return cvy_fail(CVY_FAILED, "rank 0 at %s sent a list of ranks that makes no sense",
                            cvy_quote(place->address));
    }
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

cvy_status cvy_group_rendezvous(struct cvy_group *group, const struct cvy_comm_config *place, double deadline)
{
    struct cvy_peer *self = &group->peers[group->rank];
    int port = 0;

    if (gethostname(self->host, sizeof self->host - 1) != 0)
        snprintf(self->host, sizeof self->host, "unknown");
    CVY_TRY(cvy_socket_listen(place->address, &port, &group->listener));
    self->port = port;
    if (group->rank == 0)
        raise_descriptor_limit(group->world);
    CVY_TRY(group->rank == 0 ? rendezvous_as_first(group, place, deadline)
                             : rendezvous_as_other(group, place, deadline));
    for (int i = 0; i < group->world; i++) { /* rank 0, and ranks beside it */
        if (!group->peers[i].address[0])
            snprintf(group->peers[i].address, sizeof group->peers[i].address, "%s", place->address);
    }
    return make_names(group);
}
