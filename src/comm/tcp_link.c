/* A link of TCP sockets: a rank calls the next one of the ring and its parent in the tree, and is called by the others.
 */
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"
#include "comm/group.h"
#include "comm/pending.h"

static const char magic[8] = "CVYLINK1";

/* Who calls, and which of its lines that is. */
struct greeting {
    char magic[8];
    int32_t rank, line;
    char key[64];
};

struct sockets {
    int of[CVY_LINES]; /* -1 until connected */
};

/* ---- moving bytes ---- */

static long tcp_try_send(struct cvy_link *link, int line, const void *data, size_t bytes)
{
    const struct sockets *sockets = link->state;

    return cvy_socket_try_send(sockets->of[line], data, bytes);
}

static long tcp_try_receive(struct cvy_link *link, int line, void *data, size_t bytes)
{
    const struct sockets *sockets = link->state;

    return cvy_socket_try_receive(sockets->of[line], data, bytes);
}

static enum cvy_socket_result tcp_wait(struct cvy_link *link, int out, int in, double deadline, int alarm)
{
    const struct sockets *sockets = link->state;

    return cvy_socket_wait(out < 0 ? -1 : sockets->of[out], in < 0 ? -1 : sockets->of[in], deadline, alarm);
}

static void tcp_close(struct cvy_link *link, bool failed)
{
    struct sockets *sockets = link->state;

    (void)failed;
    for (int i = 0; i < CVY_LINES; i++) {
        if (sockets->of[i] >= 0)
            close(sockets->of[i]);
    }
    cvy_free(sockets);
    link->state = NULL;
}

int cvy_tcp_link_socket(const struct cvy_link *link, int line)
{
    const struct sockets *sockets = link->state;

    return sockets->of[line];
}

/* ---- connecting ---- */

static cvy_status call(const struct cvy_group *group, struct sockets *sockets, enum cvy_line line, double deadline)
{
    const int rank = group->ranks[line];
    const struct cvy_peer *peer = &group->peers[rank];
    struct greeting greeting = {.rank = group->rank, .line = line};

    memcpy(greeting.magic, magic, sizeof magic);
    memcpy(greeting.key, group->key, sizeof greeting.key);
    /* It listens already: a refusal means that it is gone. */
    if (cvy_socket_connect(peer->address, peer->port, deadline, false, cvy_watch_alarm(group->watch),
                           &sockets->of[line]) != CVY_OK)
        return cvy_fail_context(CVY_FAILED, "rank %d on host %s", rank, cvy_quote(peer->host));
    return cvy_socket_send(sockets->of[line], &greeting, sizeof greeting, deadline, cvy_watch_alarm(group->watch)) ==
                   CVY_SOCKET_DONE
               ? CVY_OK
               : cvy_fail(CVY_FAILED, "%s did not answer while the ranks were meeting", group->names[rank]);
}

/* Where the socket of a caller belongs; NULL: it was not expected. */
static int *place_of(const struct cvy_group *group, struct sockets *sockets, const struct greeting *greeting)
{
    int *place = NULL;

    if (memcmp(greeting->magic, magic, sizeof magic) != 0 ||
        strncmp(greeting->key, group->key, sizeof greeting->key) != 0)
        return NULL;
    if (greeting->line == CVY_LINE_NEXT && greeting->rank == group->ranks[CVY_LINE_PREVIOUS])
        place = &sockets->of[CVY_LINE_PREVIOUS];
    for (int i = 0; greeting->line == CVY_LINE_PARENT && i < group->child_count; i++) {
        if (group->ranks[CVY_LINE_CHILDREN + i] == greeting->rank)
            place = &sockets->of[CVY_LINE_CHILDREN + i];
    }
    return place && *place < 0 ? place : NULL;
}

static cvy_status receive_calls(const struct cvy_group *group, struct sockets *sockets, struct cvy_pending *pending,
                                double deadline)
{
    const int expected = 1 + group->child_count, alarm = cvy_watch_alarm(group->watch);

    for (int met = 0; met < expected;) {
        struct greeting greeting;
        struct cvy_pending_event event;
        int *place;

        CVY_TRY(cvy_pending_next(pending, deadline, &alarm, 1, &event));
        if (event.end != CVY_SOCKET_DONE)
            return cvy_fail(CVY_FAILED, "rank %d waited %g s for %d neighbours, and %d came", group->rank,
                            group->timeout, expected, met);
        memcpy(&greeting, event.hello, sizeof greeting);
        place = place_of(group, sockets, &greeting);
        if (place) {
            *place = event.socket;
            met++;
        } else {
            close(event.socket);
        }
    }
    return CVY_OK;
}

static cvy_status connect_neighbours(const struct cvy_group *group, struct sockets *sockets, double deadline)
{
    struct cvy_pending *pending;
    cvy_status status;

    CVY_TRY(call(group, sockets, CVY_LINE_NEXT, deadline));
    if (group->rank > 0)
        CVY_TRY(call(group, sockets, CVY_LINE_PARENT, deadline));
    CVY_TRY(cvy_pending_open(&pending, group->listener, sizeof(struct greeting), CVY_LINES));
    status = receive_calls(group, sockets, pending, deadline);
    cvy_pending_close(pending);
    return status;
}

cvy_status cvy_tcp_link_open(struct cvy_link *link, const struct cvy_group *group, double deadline)
{
    struct sockets *sockets = cvy_calloc(1, sizeof *sockets);

    if (!sockets)
        return cvy_fail_memory(sizeof *sockets, "the connections to other ranks");
    for (int i = 0; i < CVY_LINES; i++)
        sockets->of[i] = -1;
    *link = (struct cvy_link){.name = "tcp",
                              .state = sockets,
                              .try_send = tcp_try_send,
                              .try_receive = tcp_try_receive,
                              .wait = tcp_wait,
                              .close = tcp_close};
    return connect_neighbours(group, sockets, deadline); /* half open, it is closed with the group */
}
