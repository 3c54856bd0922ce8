/* Sums and broadcasts. A large sum goes round the ring: the array is cut into one part for each rank; in
 * world - 1 steps each part collects its sum, in world - 1 more the sums reach everyone. Who adds what to what depends
 * on the place in the array alone, and a sum is computed on one rank and copied to the others. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"
#include "comm/group.h"
#include "comm/half.h"
#include "comm/socket.h"

enum { PIECE_BYTES = CVY_GROUP_CHUNK, SMALL_BYTES = 8 * 1024 };

/* Before every exchange, so that ranks that do different things fail instead of mixing up numbers. */
enum call { CALL_SUM, CALL_BROADCAST };
struct header {
    uint64_t sequence, bytes;
    uint32_t call, type;
};

/* ---- failing ---- */

static cvy_status explain(struct cvy_group *group, enum cvy_socket_result end, int line)
{
    if (end == CVY_SOCKET_TIMEOUT)
        return cvy_watch_timeout(group->watch);
    const char *reason = group->link.reason ? group->link.reason(&group->link) : "";

    CVY_TRY(cvy_watch_reason(group->watch, end == CVY_SOCKET_ALARM ? 0 : 3));
    return cvy_fail(CVY_FAILED, "the connection to %s was closed%s%s", group->names[group->ranks[line]],
                    reason[0] ? ": " : "", reason);
}

static cvy_status check_header(struct cvy_group *group, const struct header *mine, const struct header *theirs,
                               int line)
{
    if (memcmp(mine, theirs, sizeof *mine) == 0)
        return CVY_OK;
    return cvy_fail(CVY_FAILED,
                    "%s is at exchange %llu of %llu bytes where rank %d is at %llu of %llu: the ranks do different "
                    "things",
                    group->names[group->ranks[line]], (unsigned long long)theirs->sequence,
                    (unsigned long long)theirs->bytes, group->rank, (unsigned long long)mine->sequence,
                    (unsigned long long)mine->bytes);
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

/* `bytes` are those of what arrived. */
typedef void (*taker)(void *to, const void *from, size_t bytes);

static void add_bf16(void *to, const void *from, size_t bytes)
{
    cvy_half_kernels(CVY_HALF_BF16)->add(to, from, bytes / sizeof(uint16_t));
}

static void add_f16(void *to, const void *from, size_t bytes)
{
    cvy_half_kernels(CVY_HALF_F16)->add(to, from, bytes / sizeof(uint16_t));
}

static void set_bf16(void *to, const void *from, size_t bytes)
{
    cvy_half_kernels(CVY_HALF_BF16)->unpack(to, from, bytes / sizeof(uint16_t));
}

static void set_f16(void *to, const void *from, size_t bytes)
{
    cvy_half_kernels(CVY_HALF_F16)->unpack(to, from, bytes / sizeof(uint16_t));
}

/* By enum cvy_comm_type: bytes of a number in memory and on its way, and what is done with those that arrive. */
static const struct code {
    size_t size, sent;
    taker add, set; /* set NULL: they are put in place as they come */
    enum cvy_half half;
} codes[] = {
    [CVY_COMM_F32] = {sizeof(float), sizeof(float), add_f32, NULL, CVY_HALF_COUNT},
    [CVY_COMM_F64] = {sizeof(double), sizeof(double), add_f64, NULL, CVY_HALF_COUNT},
    [CVY_COMM_F32_AS_BF16] = {sizeof(float), sizeof(uint16_t), add_bf16, set_bf16, CVY_HALF_BF16},
    [CVY_COMM_F32_AS_F16] = {sizeof(float), sizeof(uint16_t), add_f16, set_f16, CVY_HALF_F16},
};

/* What arrives from the ring: to its place, or (take) piece by piece onto what is there. */
struct arrival {
    char *to;
    size_t bytes, done; /* as they are sent */
    taker take;
    size_t growth; /* bytes in memory for each one that is sent; 0: 1 */
    size_t in_piece;
};

static long take_some(struct cvy_group *group, struct arrival *in)
{
    struct cvy_link *link = &group->link;
    const size_t left = in->bytes - in->done;
    long got;

    if (!in->take) {
        got = link->try_receive(link, CVY_LINE_PREVIOUS, in->to + in->done, left);
        in->done += got > 0 ? (size_t)got : 0;
        return got;
    }
    const size_t piece = left < PIECE_BYTES ? left : PIECE_BYTES;
    got = link->try_receive(link, CVY_LINE_PREVIOUS, (char *)group->piece + in->in_piece, piece - in->in_piece);
    in->in_piece += got > 0 ? (size_t)got : 0;
    if (in->in_piece == piece) {
        in->take(in->to + in->done * (in->growth ? in->growth : 1), group->piece, piece);
        in->done += piece;
        in->in_piece = 0;
    }
    return got;
}

/* Send to the next rank while receiving from the one before. */
static cvy_status exchange(struct cvy_group *group, const char *out, size_t out_bytes, struct arrival *in,
                           double deadline)
{
    struct cvy_link *link = &group->link;
    size_t sent = 0;

    while (sent < out_bytes || in->done < in->bytes) {
        const long s = sent < out_bytes ? link->try_send(link, CVY_LINE_NEXT, out + sent, out_bytes - sent) : 0;
        const long r = in->done < in->bytes ? take_some(group, in) : 0;
        enum cvy_socket_result end;

        if (s < 0)
            return explain(group, CVY_SOCKET_CLOSED, CVY_LINE_NEXT);
        if (r < 0)
            return explain(group, CVY_SOCKET_CLOSED, CVY_LINE_PREVIOUS);
        sent += (size_t)s;
        if (s > 0 || r > 0)
            continue;
        end = link->wait(link, sent < out_bytes ? CVY_LINE_NEXT : -1, in->done < in->bytes ? CVY_LINE_PREVIOUS : -1,
                         deadline, cvy_watch_alarm(group->watch));
        if (end != CVY_SOCKET_DONE)
            return explain(group, end, CVY_LINE_PREVIOUS);
    }
    return CVY_OK;
}

static cvy_status send_to(struct cvy_group *group, int line, const void *data, size_t bytes, double deadline)
{
    struct cvy_link *link = &group->link;
    const char *from = data;

    for (size_t sent = 0; sent < bytes;) {
        const long moved = link->try_send(link, line, from + sent, bytes - sent);
        enum cvy_socket_result end = moved < 0 ? CVY_SOCKET_CLOSED : CVY_SOCKET_DONE;

        sent += moved > 0 ? (size_t)moved : 0;
        if (moved == 0)
            end = link->wait(link, line, -1, deadline, cvy_watch_alarm(group->watch));
        if (end != CVY_SOCKET_DONE)
            return explain(group, end, line);
    }
    return CVY_OK;
}

static cvy_status receive_from(struct cvy_group *group, int line, void *data, size_t bytes, double deadline)
{
    struct cvy_link *link = &group->link;
    char *to = data;

    for (size_t got = 0; got < bytes;) {
        const long moved = link->try_receive(link, line, to + got, bytes - got);
        enum cvy_socket_result end = moved < 0 ? CVY_SOCKET_CLOSED : CVY_SOCKET_DONE;

        got += moved > 0 ? (size_t)moved : 0;
        if (moved == 0)
            end = link->wait(link, -1, line, deadline, cvy_watch_alarm(group->watch));
        if (end != CVY_SOCKET_DONE)
            return explain(group, end, line);
    }
    return CVY_OK;
}

/* ---- sums ---- */

/* Where part `part` of `count` numbers begins. */
static int64_t begin_of(int64_t count, int world, int part)
{
    return count / world * part + (part < count % world ? part : count % world);
}

static cvy_status exchange_headers(struct cvy_group *group, const struct header *mine, double deadline)
{
    struct header theirs;
    struct arrival in = {.to = (char *)&theirs, .bytes = sizeof theirs};

    CVY_TRY(exchange(group, (const char *)mine, sizeof *mine, &in, deadline));
    return check_header(group, mine, &theirs, CVY_LINE_PREVIOUS);
}

/* A part of the array on its way out: itself, or (packed) in 16 bits. The sum of a part that its rank has made becomes
 * what the others will get. */
static const char *depart(struct cvy_group *group, char *part, int64_t count, const struct code *code, bool is_sum)
{
    if (!code->set)
        return part;
    cvy_half_kernels(code->half)->pack(group->packed, (const float *)part, (size_t)count);
    if (is_sum)
        code->set(part, group->packed, (size_t)count * code->sent);
    return (const char *)group->packed;
}

static cvy_status sum_round_ring(struct cvy_group *group, char *data, int64_t count, const struct code *code,
                                 double deadline)
{
    for (int step = 0; step < 2 * (group->world - 1); step++) {
        const bool adding = step < group->world - 1;
        /* Adding, rank r begins with part r; then it owns the sum of part r + 1. */
        const int part = ((group->rank - step + (adding ? 0 : 1 + group->world - 1) + 2 * group->world) % group->world);
        const int arriving = (part + group->world - 1) % group->world;
        const int64_t out = begin_of(count, group->world, part), in = begin_of(count, group->world, arriving);
        const int64_t out_count = begin_of(count, group->world, part + 1) - out;
        struct arrival arrival = {.to = data + (size_t)in * code->size,
                                  .bytes = (size_t)(begin_of(count, group->world, arriving + 1) - in) * code->sent,
                                  .take = adding ? code->add : code->set,
                                  .growth = code->size / code->sent};
        const char *from = depart(group, data + (size_t)out * code->size, out_count, code, step == group->world - 1);

        CVY_TRY(exchange(group, from, (size_t)out_count * code->sent, &arrival, deadline));
    }
    return CVY_OK;
}

static cvy_status grow_capacity(struct cvy_group *group, int64_t count)
{
    const size_t capacity = (size_t)(count / group->world + 1);

    if (capacity <= group->packed_capacity)
        return CVY_OK;
    cvy_free(group->packed);
    group->packed_capacity = 0;
    group->packed = cvy_calloc(capacity, sizeof *group->packed);
    if (!group->packed)
        return cvy_fail_memory(capacity * sizeof *group->packed, "gradients in 16 bits");
    group->packed_capacity = capacity;
    return CVY_OK;
}

static void multiply(float *data, int64_t count, float factor)
{
    for (int64_t i = 0; i < count; i++)
        data[i] *= factor;
}

/* Up the tree, each parent adding its children in their order, and down again. */
static cvy_status sum_over_tree(struct cvy_group *group, const struct header *mine, char *data, enum cvy_comm_type type,
                                double deadline)
{
    const taker add = type == CVY_COMM_F64 ? add_f64 : add_f32;
    char message[sizeof *mine + SMALL_BYTES];
    const size_t bytes = sizeof *mine + mine->bytes;
    struct header theirs;

    for (int i = 0; i < group->child_count; i++) {
        const int line = CVY_LINE_CHILDREN + i;

        CVY_TRY(receive_from(group, line, &theirs, sizeof theirs, deadline));
        CVY_TRY(check_header(group, mine, &theirs, line));
        CVY_TRY(receive_from(group, line, group->piece, mine->bytes, deadline));
        add(data, group->piece, mine->bytes);
    }
    memcpy(message, mine, sizeof *mine);
    if (group->rank > 0) {
        memcpy(message + sizeof *mine, data, mine->bytes);
        CVY_TRY(send_to(group, CVY_LINE_PARENT, message, bytes, deadline));
        CVY_TRY(receive_from(group, CVY_LINE_PARENT, &theirs, sizeof theirs, deadline));
        CVY_TRY(check_header(group, mine, &theirs, CVY_LINE_PARENT));
        CVY_TRY(receive_from(group, CVY_LINE_PARENT, data, mine->bytes, deadline));
    }
    memcpy(message + sizeof *mine, data, mine->bytes);
    for (int i = group->child_count; i-- > 0;) /* the largest part of the tree first */
        CVY_TRY(send_to(group, CVY_LINE_CHILDREN + i, message, bytes, deadline));
    return CVY_OK;
}

/* The largest finite size among them. */
static float largest(const float *data, int64_t count)
{
    const int32_t infinity = 0x7f800000;
    int32_t max = 0;
    float value;

    for (int64_t i = 0; i < count; i++) {
        int32_t bits;

        memcpy(&bits, data + i, sizeof bits);
        bits &= 0x7fffffff;
        max = bits < infinity && bits > max ? bits : max;
    }
    memcpy(&value, &max, sizeof value);
    return value;
}

/* A power of two with which no sum leaves fp16 that is finite in fp32, and small numbers stay as large as that allows:
 * the ranks' largest numbers added are a bound of every sum. */
static cvy_status find_factor(struct cvy_group *group, const struct header *header, const float *data, int64_t count,
                              double deadline, float *factor)
{
    enum { ROOM = 15, MOST = 100 }; /* sums below 2^15, half of what fp16 holds; 2^MOST is a float */
    struct header own = *header;
    double bound = (double)largest(data, count);
    int exponent;

    own.bytes = sizeof bound;
    own.type = CVY_COMM_F64;
    CVY_TRY(sum_over_tree(group, &own, (char *)&bound, CVY_COMM_F64, deadline));
    (void)frexp(bound, &exponent);
    exponent = bound > 0 ? ROOM - exponent : 0;
    *factor = ldexpf(1, exponent > MOST ? MOST : exponent < -MOST - ROOM ? -MOST - ROOM : exponent);
    return CVY_OK;
}

static cvy_status sum_large(struct cvy_group *group, const struct header *header, void *data, int64_t count,
                            double deadline)
{
    const enum cvy_comm_type type = (enum cvy_comm_type)header->type;
    const struct code *code = &codes[type];
    float factor = 1;

    if (code->set)
        CVY_TRY(grow_capacity(group, count));
    if (type == CVY_COMM_F32_AS_F16) {
        CVY_TRY(find_factor(group, header, data, count, deadline, &factor));
        multiply(data, count, factor);
    }
    CVY_TRY(sum_round_ring(group, data, count, code, deadline));
    if (type == CVY_COMM_F32_AS_F16)
        multiply(data, count, 1 / factor);
    return CVY_OK;
}

/* A call begins. What failed before fails again. */
static cvy_status begin_call(struct cvy_group *group, struct header *header, enum call call, size_t bytes,
                             uint32_t type)
{
    CVY_TRY(cvy_watch_reason(group->watch, 0));
    *header = (struct header){.sequence = ++group->sequence, .bytes = bytes, .call = call, .type = type};
    cvy_watch_progress(group->watch, group->sequence);
    return CVY_OK;
}

cvy_status cvy_group_sum(struct cvy_group *group, void *data, int64_t count, enum cvy_comm_type type, double *late)
{
    const double start = cvy_clock(), deadline = start + group->timeout;
    struct header header;
    cvy_status status;

    *late = 0;

    CVY_TRY(begin_call(group, &header, CALL_SUM, (size_t)count * codes[type].size, (uint32_t)type));
    if (header.bytes <= SMALL_BYTES) {
        status = sum_over_tree(group, &header, data, type, deadline);
        *late = cvy_clock() - start;
        return status;
    }
    CVY_TRY(exchange_headers(group, &header, deadline));
    *late = cvy_clock() - start;
    return sum_large(group, &header, data, count, deadline);
}

/* ---- broadcast ---- */

/* Piece by piece from rank to rank, so that all connections work at the same time. */
cvy_status cvy_group_broadcast(struct cvy_group *group, void *to, size_t bytes, int root)
{
    const double deadline = cvy_clock() + group->timeout;
    char *data = to;
    const bool last = group->ranks[CVY_LINE_NEXT] == root;
    struct header header;

    CVY_TRY(begin_call(group, &header, CALL_BROADCAST, bytes, (uint32_t)root));
    CVY_TRY(exchange_headers(group, &header, deadline));
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
        const size_t piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;

        if (group->rank != root)
            CVY_TRY(receive_from(group, CVY_LINE_PREVIOUS, data + at, piece, deadline));
        if (!last)
            CVY_TRY(send_to(group, CVY_LINE_NEXT, data + at, piece, deadline));
    }
    return CVY_OK;
}
