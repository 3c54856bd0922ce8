/* How ranks find one another: each says hello to rank 0, which sends all of them the list of everyone; then neighbours
 * in the ring and in the tree connect. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system.h"
#include "comm/socket.h"
#include "comm/tcp.h"

static const char magic[8] = "CVYRANK1";

struct hello {
    char magic[8];
    int32_t rank, world, port;
    char key[64], host[64];
};
/* Between neighbours: who this is, and as what. */
enum line { LINE_RING, LINE_TREE };
struct greeting {
    char magic[8];
    int32_t rank, line;
    char key[64];
};

static cvy_status late(const char *what)
{
    return cvy_fail(CVY_FAILED, "%s did not answer while the ranks were meeting", what);
}

/* ---- rank 0 and the others ---- */

static bool is_ours(const struct cvy_tcp *tcp, const struct hello *hello)
{
    return memcmp(hello->magic, magic, sizeof magic) == 0 && strncmp(hello->key, tcp->key, sizeof hello->key) == 0;
}

/* One who came to rank 0. Strangers are sent away; another rank of this run that does not fit is an error. */
static cvy_status receive_hello(struct cvy_tcp *tcp, int socket, const char *from, int *met)
{
    struct hello hello;
    struct cvy_tcp_peer *peer;

    /* A stranger that says nothing must not take the time of those who do. */
    if (cvy_socket_receive(socket, &hello, sizeof hello, cvy_clock() + 2, -1) != CVY_SOCKET_DONE ||
        !is_ours(tcp, &hello)) {
        cvy_log(CVY_LOG_WARNING,
                "somebody at %s who is no rank of this run came to the port of rank 0 and was sent away",
                cvy_quote(from));
        close(socket);
        return CVY_OK;
    }
    if (hello.world != tcp->world || hello.rank < 1 || hello.rank >= tcp->world || tcp->control[hello.rank] >= 0) {
        close(socket);
        return cvy_fail(CVY_USAGE, "at %s there is rank %d of %d ranks, which does not fit to this run of %d: %s",
                        cvy_quote(from), (int)hello.rank, (int)hello.world, tcp->world,
                        hello.world == tcp->world ? "two processes have the same rank"
                                                  : "all must be told the same number");
    }
    peer = &tcp->peers[hello.rank];
    snprintf(peer->host, sizeof peer->host, "%.*s", (int)sizeof hello.host - 1, hello.host);
    snprintf(peer->address, sizeof peer->address, "%s", from);
    peer->port = hello.port;
    tcp->control[hello.rank] = socket;
    ++*met;
    return CVY_OK;
}

/* Ranks that have not come: "1, 4, 5 and 12 others". */
static void list_missing(const struct cvy_tcp *tcp, char *text, size_t size)
{
    int named = 0, missing = 0;
    size_t used = 0;

    for (int i = 1; i < tcp->world; i++)
        missing += tcp->control[i] < 0;
    text[0] = '\0';
    for (int i = 1; i < tcp->world && named < 8; i++) {
        if (tcp->control[i] >= 0)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%d", named ? ", " : "", i);
        named++;
    }
    if (missing > named)
        snprintf(text + used, size - used, " and %d others", missing - named);
}

static cvy_status gather_hellos(struct cvy_tcp *tcp, int listener, double deadline)
{
    char from[64], missing[128];

    for (int met = 0; met < tcp->world - 1;) {
        int socket;

        CVY_TRY(cvy_socket_accept(listener, deadline, &socket, from, sizeof from));
        if (socket < 0) {
            list_missing(tcp, missing, sizeof missing);
            return cvy_fail(CVY_FAILED, "rank 0 waited %g s for the others, and these did not come: %s", tcp->timeout,
                            missing);
        }
        CVY_TRY(receive_hello(tcp, socket, from, &met));
    }
    return CVY_OK;
}

static cvy_status meet_as_first(struct cvy_tcp *tcp, const struct cvy_comm_place *place, double deadline)
{
    const size_t bytes = (size_t)tcp->world * sizeof *tcp->peers;
    int listener = place->listener, port = place->port;
    cvy_status status;

    if (listener < 0)
        CVY_TRY(cvy_socket_listen(cvy_socket_is_local(place->address), &port, &listener));
    status = gather_hellos(tcp, listener, deadline);
    close(listener);
    CVY_TRY(status);
    for (int i = 1; i < tcp->world; i++) {
        if (cvy_socket_send(tcp->control[i], tcp->peers, bytes, deadline, -1) != CVY_SOCKET_DONE)
            return late(tcp->peers[i].host);
    }
    return CVY_OK;
}

static cvy_status meet_as_other(struct cvy_tcp *tcp, const struct cvy_comm_place *place, double deadline)
{
    const size_t bytes = (size_t)tcp->world * sizeof *tcp->peers;
    struct hello hello = {.rank = tcp->rank, .world = tcp->world, .port = tcp->peers[tcp->rank].port};

    memcpy(hello.magic, magic, sizeof magic);
    memcpy(hello.key, tcp->key, sizeof hello.key);
    memcpy(hello.host, tcp->peers[tcp->rank].host, sizeof hello.host);
    if (cvy_socket_connect(place->address, place->port, deadline, &tcp->control[0]) != CVY_OK)
        return cvy_fail_context(CVY_FAILED, "rank %d cannot meet rank 0", tcp->rank);
    if (cvy_socket_send(tcp->control[0], &hello, sizeof hello, deadline, -1) != CVY_SOCKET_DONE ||
        cvy_socket_receive(tcp->control[0], tcp->peers, bytes, deadline, -1) != CVY_SOCKET_DONE)
        return cvy_fail(CVY_FAILED, "rank %d met rank 0 at %s, which then ended or did not go on", tcp->rank,
                        cvy_quote(place->address));
    for (int i = 0; i < tcp->world; i++) { /* from another process */
        struct cvy_tcp_peer *peer = &tcp->peers[i];

        peer->host[sizeof peer->host - 1] = peer->address[sizeof peer->address - 1] = '\0';
        if (peer->port < 1 || peer->port > 65535)
            return cvy_fail(CVY_FAILED, "rank 0 at %s sent a list of ranks that makes no sense",
                            cvy_quote(place->address));
    }
    snprintf(tcp->peers[0].address, sizeof tcp->peers[0].address, "%.63s", place->address);
    return CVY_OK;
}

/* ---- neighbours ---- */

static cvy_status call(struct cvy_tcp *tcp, int rank, enum line line, double deadline, int *socket)
{
    const struct cvy_tcp_peer *peer = &tcp->peers[rank];
    struct greeting greeting = {.rank = tcp->rank, .line = line};

    memcpy(greeting.magic, magic, sizeof magic);
    memcpy(greeting.key, tcp->key, sizeof greeting.key);
    if (cvy_socket_connect(peer->address, peer->port, deadline, socket) != CVY_OK)
        return cvy_fail_context(CVY_FAILED, "rank %d on host %s", rank, cvy_quote(peer->host));
    return cvy_socket_send(*socket, &greeting, sizeof greeting, deadline, -1) == CVY_SOCKET_DONE
               ? CVY_OK
               : late(tcp->names[rank]);
}

/* The tree: a rank's parent is the rank without its lowest bit. */
static int parent_of(int rank)
{
    return rank & (rank - 1);
}

static void list_children(struct cvy_tcp *tcp)
{
    const int first = tcp->rank ? tcp->rank & -tcp->rank : tcp->world;

    tcp->parent_rank = parent_of(tcp->rank);
    for (int bit = 1; bit < first && tcp->rank + bit < tcp->world; bit *= 2)
        tcp->child_ranks[tcp->child_count++] = tcp->rank + bit;
}

/* Where the socket of a caller belongs; NULL: it was not expected. */
static int *place_of(struct cvy_tcp *tcp, const struct greeting *greeting)
{
    int *place = NULL;

    if (memcmp(greeting->magic, magic, sizeof magic) != 0 ||
        strncmp(greeting->key, tcp->key, sizeof greeting->key) != 0)
        return NULL;
    if (greeting->line == LINE_RING && greeting->rank == (tcp->rank + tcp->world - 1) % tcp->world)
        place = &tcp->previous;
    for (int i = 0; greeting->line == LINE_TREE && i < tcp->child_count; i++) {
        if (tcp->child_ranks[i] == greeting->rank)
            place = &tcp->children[i];
    }
    return place && *place < 0 ? place : NULL;
}

static cvy_status connect_neighbours(struct cvy_tcp *tcp, double deadline)
{
    const int expected = 1 + tcp->child_count;
    char from[64];

    CVY_TRY(call(tcp, (tcp->rank + 1) % tcp->world, LINE_RING, deadline, &tcp->next));
    if (tcp->rank > 0)
        CVY_TRY(call(tcp, tcp->parent_rank, LINE_TREE, deadline, &tcp->parent));
    for (int met = 0; met < expected;) {
        struct greeting greeting;
        int socket, *place;

        CVY_TRY(cvy_socket_accept(tcp->listener, deadline, &socket, from, sizeof from));
        if (socket < 0)
            return cvy_fail(CVY_FAILED, "rank %d waited %g s for %d neighbours, and %d came", tcp->rank, tcp->timeout,
                            expected, met);
        place = cvy_socket_receive(socket, &greeting, sizeof greeting, cvy_clock() + 2, -1) == CVY_SOCKET_DONE
                    ? place_of(tcp, &greeting)
                    : NULL;
        if (place) {
            *place = socket;
            met++;
        } else {
            close(socket);
        }
    }
    return CVY_OK;
}

static cvy_status make_names(struct cvy_tcp *tcp)
{
    char text[128];

    for (int i = 0; i < tcp->world; i++) {
        snprintf(text, sizeof text, "rank %d on host %s", i, cvy_quote(tcp->peers[i].host));
        tcp->names[i] = cvy_strdup(text);
        if (!tcp->names[i])
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

cvy_status cvy_tcp_meet(struct cvy_tcp *tcp, const struct cvy_comm_place *place)
{
    const double deadline = cvy_clock() + tcp->timeout;
    struct cvy_tcp_peer *self = &tcp->peers[tcp->rank];
    int port = 0;

    if (gethostname(self->host, sizeof self->host - 1) != 0)
        snprintf(self->host, sizeof self->host, "unknown");
    CVY_TRY(cvy_socket_listen(cvy_socket_is_local(place->address), &port, &tcp->listener));
    self->port = port;
    list_children(tcp);
    if (tcp->rank == 0)
        raise_descriptor_limit(tcp->world);
    CVY_TRY(tcp->rank == 0 ? meet_as_first(tcp, place, deadline) : meet_as_other(tcp, place, deadline));
    CVY_TRY(make_names(tcp));
    CVY_TRY(connect_neighbours(tcp, deadline));
    close(tcp->listener);
    tcp->listener = -1;
    return CVY_OK;
}
