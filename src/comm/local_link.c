/* Shared memory between ranks of the same host, over sockets that connect them anyway: a socket carries a byte when the
 * other side sleeps and is to look, and its end tells that the other side is gone. Lines to other hosts stay sockets.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"
#include "comm/group.h"

enum {
    RING_BYTES = 1 << 20, /* a power of two */
    STEP_BYTES = 1 << 16, /* the other side sees what is written after at most this many */
    CACHE_LINE = 64
};

/* One direction. Both counts only grow; what lies between them is in the ring. */
struct ring {
    _Alignas(CACHE_LINE) _Atomic uint64_t written;
    atomic_int reader_sleeps;
    _Alignas(CACHE_LINE) _Atomic uint64_t read;
    atomic_int writer_sleeps;
    _Alignas(CACHE_LINE) unsigned char data[RING_BYTES];
};
struct shared {
    unsigned char cookie[16];
    struct ring rings[2]; /* from the one that called, and to it */
};
/* By socket, from the caller: where the memory is. pid 0: there is none. */
struct offer {
    int64_t pid;
    int32_t file;
    unsigned char cookie[16];
};

struct lane {
    struct shared *shared; /* NULL: this line is a socket */
    struct ring *out, *in;
    bool peer_gone; /* the other side */
};
struct local {
    struct cvy_link tcp;
    struct lane lanes[CVY_LINES];
};

static int socket_of(const struct local *local, int line)
{
    return cvy_tcp_link_socket(&local->tcp, line);
}

/* ---- moving bytes ---- */

/* The other side looks again, if it sleeps. It cannot miss what was counted before: all four accesses of "count, then
 * ask who sleeps" here and "say that I sleep, then look" there are in one order for both. */
static void wake(const struct local *local, int line, atomic_int *sleeps)
{
    const char wake = 1;

    if (atomic_load(sleeps) && atomic_exchange(sleeps, 0))
        (void)cvy_socket_try_send(socket_of(local, line), &wake, 1);
}

static long local_try_send(struct cvy_link *link, int line, const void *data, size_t bytes)
{
    struct local *local = link->state;
    struct lane *lane = &local->lanes[line];
    size_t sent = 0;

    if (!lane->shared)
        return local->tcp.try_send(&local->tcp, line, data, bytes);
    if (lane->peer_gone)
        return -1;
    while (sent < bytes) {
        const uint64_t written = atomic_load_explicit(&lane->out->written, memory_order_relaxed);
        const size_t capacity =
            RING_BYTES - (size_t)(written - atomic_load_explicit(&lane->out->read, memory_order_acquire));
        const size_t at = (size_t)written % RING_BYTES;
        size_t now = bytes - sent < STEP_BYTES ? bytes - sent : STEP_BYTES;

        now = now < capacity ? now : capacity;
        now = now < RING_BYTES - at ? now : RING_BYTES - at;
        if (now == 0)
            break;
        memcpy(lane->out->data + at, (const char *)data + sent, now);
        atomic_store(&lane->out->written, written + now);
        wake(local, line, &lane->out->reader_sleeps);
        sent += now;
    }
    return (long)sent;
}

static long local_try_receive(struct cvy_link *link, int line, void *data, size_t bytes)
{
    struct local *local = link->state;
    struct lane *lane = &local->lanes[line];
    size_t got = 0;

    if (!lane->shared)
        return local->tcp.try_receive(&local->tcp, line, data, bytes);
    while (got < bytes) {
        const uint64_t read = atomic_load_explicit(&lane->in->read, memory_order_relaxed);
        const size_t there = (size_t)(atomic_load_explicit(&lane->in->written, memory_order_acquire) - read);
        const size_t at = (size_t)read % RING_BYTES;
        size_t now = bytes - got < STEP_BYTES ? bytes - got : STEP_BYTES;

        now = now < there ? now : there;
        now = now < RING_BYTES - at ? now : RING_BYTES - at;
        if (now == 0)
            break;
        memcpy((char *)data + got, lane->in->data + at, now);
        atomic_store(&lane->in->read, read + now);
        wake(local, line, &lane->in->writer_sleeps);
        got += now;
    }
    return got == 0 && lane->peer_gone ? -1 : (long)got;
}

/* ---- waiting ---- */

/* Say that this side sleeps; false when there is something to do. */
static bool may_sleep(struct lane *out, struct lane *in)
{
    if (out)
        atomic_store(&out->out->writer_sleeps, 1);
    if (in)
        atomic_store(&in->in->reader_sleeps, 1);
    if (out && atomic_load(&out->out->written) - atomic_load(&out->out->read) < RING_BYTES)
        return false;
    return !in || atomic_load(&in->in->written) == atomic_load(&in->in->read);
}

/* Take the bytes that woke this side. The end of the socket is that of the other side. */
static void poll_line(const struct local *local, int line, struct lane *lane)
{
    char bells[64];
    long got;

    do {
        got = cvy_socket_try_receive(socket_of(local, line), bells, sizeof bells);
    } while (got == (long)sizeof bells);
    lane->peer_gone |= got < 0;
}

static enum cvy_socket_result local_wait(struct cvy_link *link, int out, int in, double deadline, int alarm)
{
    struct local *local = link->state;
    struct lane *writing = out >= 0 && local->lanes[out].shared ? &local->lanes[out] : NULL;
    struct lane *reading = in >= 0 && local->lanes[in].shared ? &local->lanes[in] : NULL;
    struct pollfd fds[3] = {{-1, 0, 0}, {-1, POLLIN, 0}, {alarm, POLLIN, 0}};

    if (!writing && !reading)
        return local->tcp.wait(&local->tcp, out, in, deadline, alarm);
    if (out >= 0)
        fds[0] = (struct pollfd){socket_of(local, out), writing ? POLLIN : POLLOUT, 0};
    if (in >= 0)
        fds[1].fd = socket_of(local, in);
    if ((writing && writing->peer_gone) || (reading && reading->peer_gone) || !may_sleep(writing, reading))
        return CVY_SOCKET_DONE;
    for (;;) {
        const double left = 1000 * (deadline - cvy_clock());
        const int ready = poll(fds, 3, left <= 0 ? 0 : left > 1e6 ? 1000000 : (int)left + 1);

        if (ready > 0)
            break;
        if (ready == 0 && left <= 0)
            return CVY_SOCKET_TIMEOUT;
    }
    if (writing && fds[0].revents)
        poll_line(local, out, writing);
    if (reading && fds[1].revents)
        poll_line(local, in, reading);
    return fds[2].revents ? CVY_SOCKET_ALARM : CVY_SOCKET_DONE;
}

static void local_close(struct cvy_link *link, bool failed)
{
    struct local *local = link->state;

    for (int i = 0; i < CVY_LINES; i++) {
        if (local->lanes[i].shared)
            munmap(local->lanes[i].shared, sizeof(struct shared));
    }
    if (local->tcp.state)
        local->tcp.close(&local->tcp, failed);
    cvy_free(local);
    link->state = NULL;
}

/* ---- making and finding the memory ---- */

static void use(struct lane *lane, struct shared *shared, bool called)
{
    lane->shared = shared;
    lane->out = &shared->rings[called ? 0 : 1];
    lane->in = &shared->rings[called ? 1 : 0];
}

static struct shared *map(int file)
{
    void *memory = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* A file without a name, which the other side opens by way of /proc. */
static struct shared *make(struct offer *offer)
{
    struct shared *shared = NULL;

    *offer = (struct offer){.file = memfd_create("convoy", MFD_CLOEXEC)};
    if (offer->file < 0 || ftruncate(offer->file, sizeof *shared) != 0 ||
        getrandom(offer->cookie, sizeof offer->cookie, 0) != (ssize_t)sizeof offer->cookie)
        return NULL;
    shared = map(offer->file);
    if (!shared)
        return NULL;
    memcpy(shared->cookie, offer->cookie, sizeof shared->cookie);
    offer->pid = getpid();
    return shared;
}

/* NULL: the other side is not on this machine, or in a container of its own. */
static struct shared *find(const struct offer *offer)
{
    struct shared *shared;
    char path[64];
    int file;

    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)offer->pid, (int)offer->file);
    file = offer->pid > 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return NULL;
    shared = lseek(file, 0, SEEK_END) == (off_t)sizeof *shared ? map(file) : NULL;
    close(file);
    if (shared && memcmp(shared->cookie, offer->cookie, sizeof shared->cookie) != 0) {
        munmap(shared, sizeof *shared);
        shared = NULL;
    }
    return shared;
}

static cvy_status lost(const struct cvy_group *group, int line)
{
    return cvy_fail(CVY_FAILED, "%s did not answer while the ranks were meeting", group->names[group->ranks[line]]);
}

static bool line_exists(const struct cvy_group *group, int line)
{
    return line < CVY_LINE_PARENT || (line == CVY_LINE_PARENT && group->rank > 0) ||
           (line >= CVY_LINE_CHILDREN && line < CVY_LINE_CHILDREN + group->child_count);
}

/* Whether a line leads to another process of this host, as far as names tell. */
static bool is_near(const struct cvy_group *group, int line)
{
    return line_exists(group, line) &&
           strcmp(group->peers[group->ranks[line]].host, group->peers[group->rank].host) == 0;
}

/* The one that called offers memory on a line. */
static cvy_status send_offer(const struct cvy_group *group, const struct local *local, int line, double deadline,
                             struct shared **shared, struct offer *offer)
{
    *shared = group->sockets_only ? NULL : make(offer);
    return cvy_socket_send(socket_of(local, line), offer, sizeof *offer, deadline, cvy_watch_alarm(group->watch)) ==
                   CVY_SOCKET_DONE
               ? CVY_OK
               : lost(group, line);
}

/* The one that was called takes it or not. */
static cvy_status answer_offer(const struct cvy_group *group, struct local *local, int line, double deadline)
{
    struct offer offer;
    struct shared *shared;
    char taken;

    if (cvy_socket_receive(socket_of(local, line), &offer, sizeof offer, deadline, cvy_watch_alarm(group->watch)) !=
        CVY_SOCKET_DONE)
        return lost(group, line);
    shared = group->sockets_only ? NULL : find(&offer);
    taken = shared != NULL;
    if (shared)
        use(&local->lanes[line], shared, false);
    return cvy_socket_send(socket_of(local, line), &taken, 1, deadline, cvy_watch_alarm(group->watch)) ==
                   CVY_SOCKET_DONE
               ? CVY_OK
               : lost(group, line);
}

static cvy_status receive_answer(const struct cvy_group *group, struct local *local, int line, double deadline,
                                 struct shared *shared)
{
    char taken = 0;
    const bool heard = cvy_socket_receive(socket_of(local, line), &taken, 1, deadline, cvy_watch_alarm(group->watch)) ==
                       CVY_SOCKET_DONE;

    if (heard && taken && shared)
        use(&local->lanes[line], shared, true);
    else if (shared)
        munmap(shared, sizeof *shared);
    return heard ? CVY_OK : lost(group, line);
}

/* All offers go out before any is waited for: everybody does the same at the same time. */
static cvy_status share(const struct cvy_group *group, struct local *local, double deadline)
{
    static const int called[] = {CVY_LINE_NEXT, CVY_LINE_PARENT};
    struct shared *shared[2] = {NULL, NULL};
    struct offer offers[2] = {{.file = -1}, {.file = -1}};
    cvy_status status = CVY_OK;

    for (int i = 0; i < 2 && status == CVY_OK; i++) {
        if (is_near(group, called[i]))
            status = send_offer(group, local, called[i], deadline, &shared[i], &offers[i]);
    }
    for (int line = 0; line < CVY_LINES && status == CVY_OK; line++) {
        if (line != CVY_LINE_NEXT && line != CVY_LINE_PARENT && is_near(group, line))
            status = answer_offer(group, local, line, deadline);
    }
    for (int i = 0; i < 2; i++) {
        if (status == CVY_OK && is_near(group, called[i]))
            status = receive_answer(group, local, called[i], deadline, shared[i]);
        else if (shared[i])
            munmap(shared[i], sizeof *shared[i]);
        if (offers[i].file >= 0)
            close(offers[i].file);
    }
    return status;
}

static const char *name_of(const struct cvy_group *group, const struct local *local)
{
    bool shared = false, sockets = false;

    for (int line = 0; line < CVY_LINES; line++) {
        if (!line_exists(group, line))
            continue;
        shared |= local->lanes[line].shared != NULL;
        sockets |= !local->lanes[line].shared;
    }
    return !shared ? "tcp" : sockets ? "shared memory and tcp" : "shared memory";
}

cvy_status cvy_local_link_open(struct cvy_link *link, const struct cvy_group *group, double deadline)
{
    struct local *local = cvy_calloc(1, sizeof *local);

    if (!local)
        return cvy_fail_memory(sizeof *local, "the connections to other ranks");
    *link = (struct cvy_link){.state = local,
                              .try_send = local_try_send,
                              .try_receive = local_try_receive,
                              .wait = local_wait,
                              .close = local_close};
    CVY_TRY(cvy_tcp_link_open(&local->tcp, group, deadline));
    CVY_TRY(share(group, local, deadline));
    snprintf(link->name, sizeof link->name, "%s", name_of(group, local));
    return CVY_OK;
}
