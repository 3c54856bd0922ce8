/* The watch thread: one connection to rank 0, on rank 0 one to each rank. */
#include "comm/watch.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/system.h"
#include "comm/socket.h"

#define HEARTBEAT_SECONDS 1.0 /* between two signs of life, or a quarter of the time limit */
#define GRACE_HEARTBEATS  3.0 /* silence after which a rank counts as gone when somebody waits for it */
#define ABORT_SECONDS     2.0 /* seconds in which a failing rank tells the others */
#define SENTENCE_BYTES    1024

enum kind { HEARTBEAT, TIMEOUT, ABORT, GOODBYE };
struct message {
    uint32_t kind, status;
    uint64_t sequence;
    char text[SENTENCE_BYTES]; /* of ABORT; others are sent without it */
};
enum { SHORT_BYTES = offsetof(struct message, text) };

struct peer {
    int socket; /* -1: none, or gone */
    int rank;
    bool left;         /* said goodbye */
    double last_heard; /* when */
    uint64_t sequence;
    struct message in;
    size_t received;
};

struct cvy_watch {
    int rank, world, peer_count;
    double timeout, heartbeat;
    const char *const *names;
    struct peer *peers;
    struct pollfd *polled; /* (peer_count + 1) */
    pthread_t thread;
    bool running;
    int wake;  /* eventfd: the thread has something to do */
    int alarm; /* eventfd: readable once `failed` is set, and never read */
    atomic_ullong sequence;
    atomic_bool closing, asked; /* asked: this rank's time limit is over */

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool failed, own; /* own: it is this rank that fails, and the others are to be told */
    bool others_told; /* the others have been told */
    cvy_status status;
    char reason[SENTENCE_BYTES];
};

/* ---- the state of the group ---- */

static void raise_event(int event)
{
    const uint64_t one = 1;
    const ssize_t ignored = write(event, &one, sizeof one);

    (void)ignored;
}

/* The first reason stays. */
static void fail_group(struct cvy_watch *watch, bool own, cvy_status status, const char *text)
{
    pthread_mutex_lock(&watch->mutex);
    if (!watch->failed) {
        watch->failed = true;
        watch->own = own;
        watch->status = status;
        snprintf(watch->reason, sizeof watch->reason, "%s", text);
        raise_event(watch->alarm);
        pthread_cond_broadcast(&watch->changed);
    }
    pthread_mutex_unlock(&watch->mutex);
    raise_event(watch->wake);
}

static bool has_failed(struct cvy_watch *watch)
{
    pthread_mutex_lock(&watch->mutex);
    const bool failed = watch->failed;
    pthread_mutex_unlock(&watch->mutex);
    return failed;
}

/* ---- messages ---- */

static void send_message(struct cvy_watch *watch, struct peer *peer, enum kind kind)
{
    struct message message = {.kind = kind, .sequence = atomic_load(&watch->sequence)};
    size_t bytes = SHORT_BYTES;

    if (peer->socket < 0)
        return;
    if (kind == ABORT) {
        pthread_mutex_lock(&watch->mutex);
        message.status = (uint32_t)watch->status;
        memcpy(message.text, watch->reason, sizeof message.text);
        pthread_mutex_unlock(&watch->mutex);
        bytes = sizeof message;
    }
    /* A peer that does not read has full buffers: it is silent, and others will see that. */
    (void)cvy_socket_send(peer->socket, &message, bytes, cvy_clock() + (kind == ABORT ? ABORT_SECONDS / 2 : 0), -1);
}

/* A rank says why it fails, or passes on why another does. */
static void receive_abort(struct cvy_watch *watch, const struct peer *peer)
{
    char text[SENTENCE_BYTES];

    snprintf(text, sizeof text, "%.*s", (int)sizeof peer->in.text - 1, peer->in.text);
    cvy_escape_controls(text);
    fail_group(watch, watch->rank == 0,
               peer->in.status > 0 && peer->in.status < 128 ? (cvy_status)peer->in.status : CVY_FAILED, text);
}

static void describe_silence(const struct cvy_watch *watch, const struct peer *peer, char text[SENTENCE_BYTES])
{
    snprintf(text, SENTENCE_BYTES, "%s has not answered for %.0f s: it was stopped, or its host or the network is gone",
             watch->names[peer->rank], cvy_clock() - peer->last_heard);
}

/* Rank 0 alone: somebody waits too long. The one to blame is silent, or has come to fewer sums than others. */
static void judge(struct cvy_watch *watch)
{
    const double now = cvy_clock();
    const uint64_t mine = atomic_load(&watch->sequence);
    const struct peer *silent = NULL;
    uint64_t min = mine, max = mine;
    int slowest = watch->rank;
    char text[SENTENCE_BYTES];

    for (int i = 0; i < watch->peer_count; i++) {
        const struct peer *peer = &watch->peers[i];

        if (now - peer->last_heard > GRACE_HEARTBEATS * watch->heartbeat &&
            (!silent || peer->last_heard < silent->last_heard))
            silent = peer;
        max = peer->sequence > max ? peer->sequence : max;
        slowest = peer->sequence < min ? peer->rank : slowest;
        min = peer->sequence < min ? peer->sequence : min;
    }
    if (silent)
        describe_silence(watch, silent, text);
    else if (min == max)
        snprintf(text, sizeof text,
                 "all ranks have met, but what they send did not arrive within %g s (--comm-timeout)", watch->timeout);
    else
        snprintf(text, sizeof text, "%s did not come to where the other ranks wait within %g s (--comm-timeout)",
                 watch->names[slowest], watch->timeout);
    fail_group(watch, true, CVY_FAILED, text);
}

static void receive_message(struct cvy_watch *watch, struct peer *peer)
{
    peer->last_heard = cvy_clock();
    peer->sequence = peer->in.sequence;
    peer->received = 0;
    switch (peer->in.kind) {
    case ABORT:
        receive_abort(watch, peer);
        break;
    case TIMEOUT:
        judge(watch);
        break;
    case GOODBYE:
        peer->left = true;
        break;
    default:
        break;
    }
}

static void lose(struct cvy_watch *watch, struct peer *peer)
{
    char text[SENTENCE_BYTES];

    close(peer->socket);
    peer->socket = -1;
    if (peer->left || has_failed(watch))
        return;
    snprintf(text, sizeof text, "%s ended without a word: it was killed, or its host is gone",
             watch->names[peer->rank]);
    fail_group(watch, watch->rank == 0, CVY_FAILED, text);
}

static void read_peer(struct cvy_watch *watch, struct peer *peer)
{
    while (peer->socket >= 0) {
        const size_t whole =
            peer->received >= SHORT_BYTES && peer->in.kind == ABORT ? sizeof peer->in : (size_t)SHORT_BYTES;
        const long got =
            cvy_socket_try_receive(peer->socket, (char *)&peer->in + peer->received, whole - peer->received);

        if (got == 0)
            return;
        if (got < 0) {
            lose(watch, peer);
            return;
        }
        peer->received += (size_t)got;
        if (peer->received == whole && (peer->in.kind != ABORT || whole == sizeof peer->in))
            receive_message(watch, peer);
    }
}

/* ---- the thread ---- */

/* Until the other side has read what was sent: closing a socket with unread bytes throws that away. */
static void drain_and_close(int socket, double deadline)
{
    char rest[4096];
    long got;

    while ((got = cvy_socket_try_receive(socket, rest, sizeof rest)) >= 0) {
        if (got == 0 && cvy_socket_wait(-1, socket, deadline, -1) != CVY_SOCKET_DONE)
            break;
    }
    close(socket);
}

static void part(struct cvy_watch *watch, enum kind last)
{
    const double deadline = cvy_clock() + ABORT_SECONDS;

    for (int i = 0; i < watch->peer_count; i++) {
        send_message(watch, &watch->peers[i], last);
        if (watch->peers[i].socket >= 0)
            shutdown(watch->peers[i].socket, SHUT_WR);
    }
    pthread_mutex_lock(&watch->mutex);
    watch->others_told = true;
    pthread_cond_broadcast(&watch->changed);
    pthread_mutex_unlock(&watch->mutex);
    for (int i = 0; i < watch->peer_count; i++) {
        if (watch->peers[i].socket >= 0)
            drain_and_close(watch->peers[i].socket, deadline);
        watch->peers[i].socket = -1;
    }
}

static void wait_for_news(struct cvy_watch *watch, double until)
{
    const double left = until - cvy_clock();
    uint64_t count;

    for (int i = 0; i < watch->peer_count; i++)
        watch->polled[i] = (struct pollfd){watch->peers[i].socket, POLLIN, 0};
    watch->polled[watch->peer_count] = (struct pollfd){watch->wake, POLLIN, 0};
    if (poll(watch->polled, (nfds_t)watch->peer_count + 1, left > 0 ? (int)(1000 * left) + 1 : 0) <= 0)
        return;
    if (watch->polled[watch->peer_count].revents) {
        const ssize_t ignored = read(watch->wake, &count, sizeof count);
        (void)ignored;
    }
    for (int i = 0; i < watch->peer_count; i++) {
        if (watch->polled[i].revents)
            read_peer(watch, &watch->peers[i]);
    }
}

/* Signs of life to everybody, and who has given none for the whole time limit. */
static void heartbeat(struct cvy_watch *watch)
{
    for (int i = 0; i < watch->peer_count; i++) {
        struct peer *peer = &watch->peers[i];

        send_message(watch, peer, HEARTBEAT);
        if (peer->socket >= 0 && cvy_clock() - peer->last_heard > watch->timeout) {
            char text[SENTENCE_BYTES];

            describe_silence(watch, peer, text);
            fail_group(watch, watch->rank == 0, CVY_FAILED, text);
        }
    }
}

static void *keep_watch(void *argument)
{
    struct cvy_watch *watch = argument;
    double next = cvy_clock();

    while (!has_failed(watch) && !atomic_load(&watch->closing)) {
        double now = cvy_clock();

        /* After a pause of this process itself (a laptop that slept) the others get time to be heard. */
        if (now - next > watch->timeout / 2) {
            for (int i = 0; i < watch->peer_count; i++)
                watch->peers[i].last_heard = now;
        }
        if (now >= next) {
            heartbeat(watch);
            next = now + watch->heartbeat;
        }
        wait_for_news(watch, next);
        if (atomic_exchange(&watch->asked, false)) {
            if (watch->rank == 0)
                judge(watch);
            else
                send_message(watch, &watch->peers[0], TIMEOUT);
        }
    }
    pthread_mutex_lock(&watch->mutex);
    const bool tell = watch->failed && watch->own;
    pthread_mutex_unlock(&watch->mutex);
    part(watch, tell ? ABORT : GOODBYE);
    return NULL;
}

/* ---- for the other threads ---- */

/* Takes the sockets over as soon as there is a place for them. */
static cvy_status open_peers(struct cvy_watch *watch, const struct cvy_watch_options *options)
{
    const size_t max = options->rank == 0 ? (size_t)options->world - 1 : 1;
    const double now = cvy_clock();

    watch->peers = cvy_calloc(max, sizeof *watch->peers);
    if (!watch->peers)
        return cvy_fail_memory(max * sizeof *watch->peers, "the other ranks");
    for (int i = 0; i < options->world; i++) {
        if (i == options->rank || (options->rank != 0 && i > 0))
            continue;
        watch->peers[watch->peer_count++] = (struct peer){.socket = options->sockets[i], .rank = i, .last_heard = now};
    }
    watch->polled = cvy_calloc(max + 1, sizeof *watch->polled);
    return watch->polled ? CVY_OK : cvy_fail_memory((max + 1) * sizeof *watch->polled, "the other ranks");
}

/* A limit on time does not move with the clock on the wall. */
static void open_locks(struct cvy_watch *watch)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&watch->mutex, NULL);
    pthread_cond_init(&watch->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static struct cvy_watch *make_watch(const struct cvy_watch_options *options)
{
    struct cvy_watch *watch = cvy_calloc(1, sizeof *watch);

    if (!watch)
        return NULL;
    *watch = (struct cvy_watch){.rank = options->rank,
                                .world = options->world,
                                .timeout = options->timeout,
                                .heartbeat =
                                    options->timeout / 4 < HEARTBEAT_SECONDS ? options->timeout / 4 : HEARTBEAT_SECONDS,
                                .names = options->names,
                                .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                .alarm = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    open_locks(watch);
    return watch;
}

/* There is no thread that would tell the others why this rank ends. Closes the sockets. */
static void say_why(const struct cvy_watch_options *options, cvy_status status)
{
    const int count = options->rank == 0 ? options->world : 1;
    const double deadline = cvy_clock() + ABORT_SECONDS;
    struct message message = {.kind = ABORT, .status = (uint32_t)status};
    char why[SENTENCE_BYTES];

    cvy_error_get(why, sizeof why);
    snprintf(message.text, sizeof message.text, "%s: %s", options->names[options->rank], cvy_error());
    for (int i = 0; i < count; i++) {
        if (options->sockets[i] < 0)
            continue;
        (void)cvy_socket_send(options->sockets[i], &message, sizeof message, deadline, -1);
        shutdown(options->sockets[i], SHUT_WR);
    }
    for (int i = 0; i < count; i++) {
        if (options->sockets[i] >= 0)
            drain_and_close(options->sockets[i], deadline);
    }
    cvy_error_put(why);
}

cvy_status cvy_watch_open(struct cvy_watch **out, const struct cvy_watch_options *options)
{
    struct cvy_watch *watch = make_watch(options);
    cvy_status status;

    *out = watch;
    status = watch ? open_peers(watch, options) : cvy_fail_memory(sizeof *watch, "the other ranks");
    if (status == CVY_OK && (watch->wake < 0 || watch->alarm < 0))
        status = cvy_fail(CVY_FAILED, "no more descriptors can be made to watch the other ranks");
    if (status == CVY_OK) {
        watch->running = cvy_thread_start(&watch->thread, keep_watch, watch);
        status = watch->running ? CVY_OK : cvy_fail(CVY_FAILED, "no thread can be made to watch the other ranks");
    }
    if (status == CVY_OK)
        return CVY_OK;
    say_why(options, status);
    for (int i = 0; watch && watch->peers && i < watch->peer_count; i++)
        watch->peers[i].socket = -1;
    cvy_watch_close(watch);
    *out = NULL;
    return status;
}

void cvy_watch_close(struct cvy_watch *watch)
{
    if (!watch)
        return;
    atomic_store(&watch->closing, true);
    if (watch->wake >= 0)
        raise_event(watch->wake);
    if (watch->running)
        pthread_join(watch->thread, NULL);
    for (int i = 0; watch->peers && i < watch->peer_count; i++) {
        if (watch->peers[i].socket >= 0)
            close(watch->peers[i].socket);
    }
    if (watch->wake >= 0)
        close(watch->wake);
    if (watch->alarm >= 0)
        close(watch->alarm);
    pthread_mutex_destroy(&watch->mutex);
    pthread_cond_destroy(&watch->changed);
    cvy_free(watch->peers);
    cvy_free(watch->polled);
    cvy_free(watch);
}

int cvy_watch_alarm(const struct cvy_watch *watch)
{
    return watch->alarm;
}

void cvy_watch_progress(struct cvy_watch *watch, uint64_t sequence)
{
    atomic_store(&watch->sequence, sequence);
}

/* Until *what, or the seconds are over. The mutex is held. */
static void wait_until(struct cvy_watch *watch, const bool *what, double seconds)
{
    const struct timespec end = cvy_clock_after(seconds);

    while (!*what && pthread_cond_timedwait(&watch->changed, &watch->mutex, &end) == 0)
        ;
}

cvy_status cvy_watch_reason(struct cvy_watch *watch, double seconds)
{
    cvy_status status = CVY_OK;

    pthread_mutex_lock(&watch->mutex);
    wait_until(watch, &watch->failed, seconds);
    if (watch->failed) {
        status = watch->status == CVY_OK ? CVY_FAILED : watch->status;
        cvy_error_put(watch->reason);
    }
    pthread_mutex_unlock(&watch->mutex);
    return status;
}

cvy_status cvy_watch_timeout(struct cvy_watch *watch)
{
    atomic_store(&watch->asked, true);
    raise_event(watch->wake);
    CVY_TRY(cvy_watch_reason(watch, GRACE_HEARTBEATS * watch->heartbeat));
    return cvy_fail(CVY_FAILED, "%s has not answered: it was stopped, or its host or the network is gone",
                    watch->names[0]);
}

void cvy_watch_abort(struct cvy_watch *watch, cvy_status status, const char *why)
{
    char text[SENTENCE_BYTES];

    snprintf(text, sizeof text, "%s: %s", watch->names[watch->rank], why);
    fail_group(watch, true, status, text);
    pthread_mutex_lock(&watch->mutex);
    wait_until(watch, &watch->others_told, ABORT_SECONDS);
    pthread_mutex_unlock(&watch->mutex);
}
