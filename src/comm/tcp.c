/* Sums and broadcasts over TCP. A large sum goes round the ring: the array is cut into one part for each rank; in
 * world - 1 steps each part collects its sum, in world - 1 more the sums reach everyone. Who adds what to what depends
 * on the place in the array alone, and a sum is computed on one rank and copied to the others. */
#include "comm/tcp.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"
#include "comm/socket.h"

enum { PIECE_BYTES = 256 * 1024, SMALL_BYTES = 8 * 1024 };

/* In front of every exchange, so that ranks that do different things fail instead of mixing up numbers. */
enum call { CALL_SUM, CALL_BROADCAST };
struct header {
    uint64_t sequence, bytes;
    uint32_t call, type;
};

/* ---- failing ---- */

static cvy_status explain(struct cvy_tcp *tcp, enum cvy_socket_end end, int rank)
{
    if (end == CVY_SOCKET_LATE)
        return cvy_watch_late(tcp->watch);
    CVY_TRY(cvy_watch_reason(tcp->watch, end == CVY_SOCKET_ALARM ? 0 : 3));
    return cvy_fail(CVY_FAILED, "the connection to %s was closed", tcp->names[rank]);
}

static int next_rank(const struct cvy_tcp *tcp)
{
    return (tcp->rank + 1) % tcp->world;
}

static int previous_rank(const struct cvy_tcp *tcp)
{
    return (tcp->rank + tcp->world - 1) % tcp->world;
}

static cvy_status check_header(struct cvy_tcp *tcp, const struct header *mine, const struct header *theirs, int rank)
{
    if (memcmp(mine, theirs, sizeof *mine) == 0)
        return CVY_OK;
    return cvy_fail(CVY_FAILED,
                    "%s is at exchange %llu of %llu bytes where rank %d is at %llu of %llu: the ranks do different "
                    "things",
                    tcp->names[rank], (unsigned long long)theirs->sequence, (unsigned long long)theirs->bytes,
                    tcp->rank, (unsigned long long)mine->sequence, (unsigned long long)mine->bytes);
}

/* ---- moving bytes ---- */

static void add_f32(void *to, const void *from, size_t bytes)
{
    float *restrict y = to;
    const float *restrict x = from;

    for (size_t i = 0; i < bytes / sizeof *x; i++)
        y[i] += x[i];
}

static void add_f64(void *to, const void *from, size_t bytes)
{
    double *restrict y = to;
    const double *restrict x = from;

    for (size_t i = 0; i < bytes / sizeof *x; i++)
        y[i] += x[i];
}

typedef void (*adder)(void *to, const void *from, size_t bytes);

static adder adder_of(enum cvy_comm_type type)
{
    return type == CVY_COMM_F64 ? add_f64 : add_f32;
}

static size_t size_of(enum cvy_comm_type type)
{
    return type == CVY_COMM_F64 ? sizeof(double) : sizeof(float);
}

/* What arrives from the ring: to its place, or (add) piece by piece onto what is there. */
struct arrival {
    char *to;
    size_t bytes, done;
    adder add;
    size_t in_piece;
};

static long take(struct cvy_tcp *tcp, struct arrival *in)
{
    const size_t left = in->bytes - in->done;
    long got;

    if (!in->add) {
        got = cvy_socket_try_receive(tcp->previous, in->to + in->done, left);
        in->done += got > 0 ? (size_t)got : 0;
        return got;
    }
    const size_t piece = left < PIECE_BYTES ? left : PIECE_BYTES;
    got = cvy_socket_try_receive(tcp->previous, (char *)tcp->piece + in->in_piece, piece - in->in_piece);
    in->in_piece += got > 0 ? (size_t)got : 0;
    if (in->in_piece == piece) {
        in->add(in->to + in->done, tcp->piece, piece);
        in->done += piece;
        in->in_piece = 0;
    }
    return got;
}

/* Send to the next rank while receiving from the one before. */
static cvy_status exchange(struct cvy_tcp *tcp, const char *out, size_t out_bytes, struct arrival *in, double deadline)
{
    size_t sent = 0;

    while (sent < out_bytes || in->done < in->bytes) {
        const long s = sent < out_bytes ? cvy_socket_try_send(tcp->next, out + sent, out_bytes - sent) : 0;
        const long r = in->done < in->bytes ? take(tcp, in) : 0;
        enum cvy_socket_end end;

        if (s < 0)
            return explain(tcp, CVY_SOCKET_CLOSED, next_rank(tcp));
        if (r < 0)
            return explain(tcp, CVY_SOCKET_CLOSED, previous_rank(tcp));
        sent += (size_t)s;
        if (s > 0 || r > 0)
            continue;
        end = cvy_socket_wait(sent < out_bytes ? tcp->next : -1, in->done < in->bytes ? tcp->previous : -1, deadline,
                              cvy_watch_alarm(tcp->watch));
        if (end != CVY_SOCKET_DONE)
            return explain(tcp, end, previous_rank(tcp));
    }
    return CVY_OK;
}

static cvy_status send_to(struct cvy_tcp *tcp, int socket, int rank, const void *data, size_t bytes, double deadline)
{
    const enum cvy_socket_end end = cvy_socket_send(socket, data, bytes, deadline, cvy_watch_alarm(tcp->watch));

    return end == CVY_SOCKET_DONE ? CVY_OK : explain(tcp, end, rank);
}

static cvy_status receive_from(struct cvy_tcp *tcp, int socket, int rank, void *data, size_t bytes, double deadline)
{
    const enum cvy_socket_end end = cvy_socket_receive(socket, data, bytes, deadline, cvy_watch_alarm(tcp->watch));

    return end == CVY_SOCKET_DONE ? CVY_OK : explain(tcp, end, rank);
}

/* ---- sums ---- */

/* Where part `part` of `count` numbers begins. */
static int64_t begin_of(int64_t count, int world, int part)
{
    return count / world * part + (part < count % world ? part : count % world);
}

static cvy_status exchange_headers(struct cvy_tcp *tcp, const struct header *mine, double deadline)
{
    struct header theirs;
    struct arrival in = {.to = (char *)&theirs, .bytes = sizeof theirs};

    CVY_TRY(exchange(tcp, (const char *)mine, sizeof *mine, &in, deadline));
    return check_header(tcp, mine, &theirs, previous_rank(tcp));
}

static cvy_status sum_round_ring(struct cvy_tcp *tcp, char *data, int64_t count, enum cvy_comm_type type,
                                 double deadline)
{
    const size_t size = size_of(type);

    for (int step = 0; step < 2 * (tcp->world - 1); step++) {
        const bool adding = step < tcp->world - 1;
        /* Adding, rank r begins with part r; then it owns the sum of part r + 1. */
        const int part = ((tcp->rank - step + (adding ? 0 : 1 + tcp->world - 1) + 2 * tcp->world) % tcp->world);
        const int arriving = (part + tcp->world - 1) % tcp->world;
        const int64_t out = begin_of(count, tcp->world, part), in = begin_of(count, tcp->world, arriving);
        struct arrival arrival = {.to = data + (size_t)in * size,
                                  .bytes = (size_t)(begin_of(count, tcp->world, arriving + 1) - in) * size,
                                  .add = adding ? adder_of(type) : NULL};

        CVY_TRY(exchange(tcp, data + (size_t)out * size, (size_t)(begin_of(count, tcp->world, part + 1) - out) * size,
                         &arrival, deadline));
    }
    return CVY_OK;
}

/* Up the tree, each parent adding its children in their order, and down again. */
static cvy_status sum_over_tree(struct cvy_tcp *tcp, const struct header *mine, char *data, enum cvy_comm_type type,
                                double deadline)
{
    char message[sizeof *mine + SMALL_BYTES];
    const size_t bytes = sizeof *mine + mine->bytes;
    struct header theirs;

    for (int i = 0; i < tcp->child_count; i++) {
        CVY_TRY(receive_from(tcp, tcp->children[i], tcp->child_ranks[i], &theirs, sizeof theirs, deadline));
        CVY_TRY(check_header(tcp, mine, &theirs, tcp->child_ranks[i]));
        CVY_TRY(receive_from(tcp, tcp->children[i], tcp->child_ranks[i], tcp->piece, mine->bytes, deadline));
        adder_of(type)(data, tcp->piece, mine->bytes);
    }
    memcpy(message, mine, sizeof *mine);
    if (tcp->rank > 0) {
        memcpy(message + sizeof *mine, data, mine->bytes);
        CVY_TRY(send_to(tcp, tcp->parent, tcp->parent_rank, message, bytes, deadline));
        CVY_TRY(receive_from(tcp, tcp->parent, tcp->parent_rank, &theirs, sizeof theirs, deadline));
        CVY_TRY(check_header(tcp, mine, &theirs, tcp->parent_rank));
        CVY_TRY(receive_from(tcp, tcp->parent, tcp->parent_rank, data, mine->bytes, deadline));
    }
    memcpy(message + sizeof *mine, data, mine->bytes);
    for (int i = tcp->child_count; i-- > 0;) /* the largest part of the tree first */
        CVY_TRY(send_to(tcp, tcp->children[i], tcp->child_ranks[i], message, bytes, deadline));
    return CVY_OK;
}

/* A call begins. What failed before fails again. */
static cvy_status begin_call(struct cvy_tcp *tcp, struct header *header, enum call call, size_t bytes, uint32_t type)
{
    CVY_TRY(cvy_watch_reason(tcp->watch, 0));
    *header = (struct header){.sequence = ++tcp->sequence, .bytes = bytes, .call = call, .type = type};
    cvy_watch_progress(tcp->watch, tcp->sequence);
    return CVY_OK;
}

static cvy_status tcp_all_reduce(struct cvy_comm *comm, void *data, int64_t count, enum cvy_comm_type type)
{
    struct cvy_tcp *tcp = comm->state;
    const double deadline = cvy_clock() + tcp->timeout;
    struct header header;

    if (count == 0)
        return CVY_OK;
    CVY_TRY(begin_call(tcp, &header, CALL_SUM, (size_t)count * size_of(type), (uint32_t)type));
    if (header.bytes <= SMALL_BYTES)
        return sum_over_tree(tcp, &header, data, type, deadline);
    CVY_TRY(exchange_headers(tcp, &header, deadline));
    return sum_round_ring(tcp, data, count, type, deadline);
}

/* ---- broadcast ---- */

/* Piece by piece from rank to rank, so that all connections work at the same time. */
static cvy_status tcp_broadcast(struct cvy_comm *comm, void *data, size_t bytes, int root)
{
    struct cvy_tcp *tcp = comm->state;
    const double deadline = cvy_clock() + tcp->timeout;
    const bool last = next_rank(tcp) == root;
    struct header header;

    if (bytes == 0)
        return CVY_OK;
    CVY_TRY(begin_call(tcp, &header, CALL_BROADCAST, bytes, (uint32_t)root));
    CVY_TRY(exchange_headers(tcp, &header, deadline));
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        const size_t piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        char *here = (char *)data + at;

        if (tcp->rank != root)
            CVY_TRY(receive_from(tcp, tcp->previous, previous_rank(tcp), here, piece, deadline));
        if (!last)
            CVY_TRY(send_to(tcp, tcp->next, next_rank(tcp), here, piece, deadline));
    }
    return CVY_OK;
}

static cvy_status tcp_barrier(struct cvy_comm *comm)
{
    double nothing = 0;

    return tcp_all_reduce(comm, &nothing, 1, CVY_COMM_F64);
}

/* ---- opening and closing ---- */

static void tcp_abort(struct cvy_comm *comm, cvy_status status, const char *why)
{
    struct cvy_tcp *tcp = comm->state;

    cvy_watch_abort(tcp->watch, status, why);
}

static void shut(int socket)
{
    if (socket >= 0)
        close(socket);
}

static void release(struct cvy_tcp *tcp)
{
    if (!tcp)
        return;
    cvy_watch_close(tcp->watch);
    for (int i = 0; tcp->control && i < tcp->world; i++)
        shut(tcp->control[i]);
    shut(tcp->listener);
    shut(tcp->next);
    shut(tcp->previous);
    shut(tcp->parent);
    for (int i = 0; i < CVY_TCP_CHILDREN; i++)
        shut(tcp->children[i]);
    for (int i = 0; tcp->names && i < tcp->world; i++)
        cvy_free(tcp->names[i]);
    cvy_free(tcp->names);
    cvy_free(tcp->control);
    cvy_free(tcp->peers);
    cvy_free(tcp->piece);
    cvy_free(tcp);
}

static void tcp_close(struct cvy_comm *comm)
{
    release(comm->state);
    comm->state = NULL;
}

static cvy_status allocate(const struct cvy_comm_place *place, double timeout, struct cvy_tcp **out)
{
    const size_t world = (size_t)place->world;
    struct cvy_tcp *tcp = cvy_calloc(1, sizeof *tcp);

    *out = tcp;
    if (!tcp)
        return cvy_fail_memory(sizeof *tcp, "the other ranks");
    *tcp = (struct cvy_tcp){.rank = place->rank,
                            .world = place->world,
                            .timeout = timeout,
                            .listener = -1,
                            .next = -1,
                            .previous = -1,
                            .parent = -1};
    memcpy(tcp->key, place->key, sizeof tcp->key);
    for (int i = 0; i < CVY_TCP_CHILDREN; i++)
        tcp->children[i] = -1;
    tcp->peers = cvy_calloc(world, sizeof *tcp->peers);
    tcp->names = cvy_calloc(world, sizeof *tcp->names);
    tcp->control = cvy_calloc(world, sizeof *tcp->control);
    tcp->piece = cvy_calloc(1, PIECE_BYTES);
    for (size_t i = 0; tcp->control && i < world; i++)
        tcp->control[i] = -1;
    return tcp->peers && tcp->names && tcp->control && tcp->piece
               ? CVY_OK
               : cvy_fail_memory(world * sizeof *tcp->peers + PIECE_BYTES, "the other ranks");
}

/* Ranks of the same host are counted by its name, which is the same on all of them. */
static void count_hosts(struct cvy_comm *comm, const struct cvy_tcp *tcp)
{
    const char *own = tcp->peers[tcp->rank].host;

    comm->local_world = comm->local_rank = comm->hosts = 0;
    for (int i = 0; i < tcp->world; i++) {
        const bool here = strcmp(tcp->peers[i].host, own) == 0;
        bool known = false;

        comm->local_world += here;
        comm->local_rank += here && i < tcp->rank;
        for (int k = 0; k < i && !known; k++)
            known = strcmp(tcp->peers[i].host, tcp->peers[k].host) == 0;
        comm->hosts += !known;
    }
}

cvy_status cvy_tcp_open(struct cvy_comm *comm, const struct cvy_comm_place *place, double timeout)
{
    struct cvy_tcp *tcp;
    struct cvy_watch_options watch;
    cvy_status status;

    CVY_GOTO(allocate(place, timeout, &tcp));
    CVY_GOTO(cvy_tcp_meet(tcp, place));
    watch = (struct cvy_watch_options){.rank = tcp->rank,
                                       .world = tcp->world,
                                       .timeout = timeout,
                                       .sockets = tcp->control,
                                       .names = (const char *const *)tcp->names};
    status = cvy_watch_open(&tcp->watch, &watch);
    for (int i = 0; i < tcp->world; i++) /* the watch has them now */
        tcp->control[i] = -1;
    if (status != CVY_OK)
        goto fail;
    *comm = (struct cvy_comm){.rank = tcp->rank,
                              .world = tcp->world,
                              .transport = "tcp",
                              .state = tcp,
                              .all_reduce = tcp_all_reduce,
                              .broadcast = tcp_broadcast,
                              .barrier = tcp_barrier,
                              .abort = tcp_abort,
                              .close = tcp_close};
    count_hosts(comm, tcp);
    return CVY_OK;
fail:
    release(tcp);
    return status;
}
