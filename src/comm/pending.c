/* Reads the first messages of several pending connections concurrently. */
#include "comm/pending.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system.h"

enum {
    MAX_UNEXPECTED =
        64,         /* who may wait beside those that are expected; beyond them the one that came first is sent away */
    LOG_SECONDS = 5 /* between two lines about those that were sent away */
};

struct pending_connection {
    int socket;
    size_t got;
    char from[64];
    char *hello;
    struct cvy_challenge challenge;
};

struct cvy_pending {
    int listener, max, capacity;
    size_t bytes;
    const char *key;
    int64_t refused, unsaid; /* connections that were closed, and of these those that no line of the log is about yet */
    double said;             /* when the last such line was written; 0: none yet */
    struct pending_connection *waiting; /* (capacity) in the order in which they came */
    int count;
    char *hello;           /* (capacity + 1, bytes): theirs, and of the one that is handed out */
    struct pollfd *polled; /* (1 + capacity + max) */
};

cvy_status cvy_pending_open(struct cvy_pending **out, int listener, size_t bytes, int max, const char *key)
{
    struct cvy_pending *pending = cvy_calloc(1, sizeof *pending);
    const size_t capacity = MAX_UNEXPECTED + (size_t)max;

    *out = pending;
    if (!pending)
        return cvy_fail_memory(sizeof *pending, "the meeting of the ranks");
    pending->listener = listener;
    pending->max = max;
    pending->bytes = bytes;
    pending->key = key;
    pending->capacity = (int)capacity;
    pending->waiting = cvy_calloc(capacity, sizeof *pending->waiting);
    pending->hello = cvy_calloc(capacity + 1, bytes);
    pending->polled = cvy_calloc(1 + capacity + (size_t)max, sizeof *pending->polled);
    if (pending->waiting && pending->hello && pending->polled)
        return CVY_OK;
    cvy_pending_close(pending);
    *out = NULL;
    return cvy_fail_memory((capacity + 1) * bytes, "the meeting of the ranks");
}

void cvy_pending_close(struct cvy_pending *pending)
{
    if (!pending)
        return;
    for (int i = 0; i < pending->count; i++)
        close(pending->waiting[i].socket);
    cvy_free(pending->waiting);
    cvy_free(pending->hello);
    cvy_free(pending->polled);
    cvy_free(pending);
}

/* The others move up, the words with them. */
static void remove_pending(struct cvy_pending *pending, int index)
{
    pending->count--;
    for (int i = index; i < pending->count; i++) {
        char *const hello = pending->waiting[i].hello;

        pending->waiting[i] = pending->waiting[i + 1];
        memcpy(hello, pending->waiting[i].hello, pending->bytes);
        pending->waiting[i].hello = hello;
    }
}

/* The first at once, then one line for all that came in between. */
static void log_refusal(struct cvy_pending *pending, const char *from, const char *why)
{
    const double now = cvy_clock();

    pending->refused++;
    pending->unsaid++;
    if (pending->said > 0 && now < pending->said + LOG_SECONDS)
        return;
    if (pending->unsaid == 1)
        cvy_log(CVY_LOG_WARNING, "a connection from %s to a port of the ranks was closed: %s", cvy_quote(from), why);
    else
        cvy_log(CVY_LOG_WARNING, "%lld connections to a port of the ranks were closed, the last from %s: %s",
                (long long)pending->unsaid, cvy_quote(from), why);
    pending->unsaid = 0;
    pending->said = now;
}

void cvy_pending_refuse(struct cvy_pending *pending, const struct cvy_pending_event *event, const char *why)
{
    close(event->socket);
    log_refusal(pending, event->from, why);
}

int64_t cvy_pending_refused(const struct cvy_pending *pending)
{
    return pending->refused;
}

static void send_away(struct cvy_pending *pending, int index, const char *why)
{
    log_refusal(pending, pending->waiting[index].from, why);
    close(pending->waiting[index].socket);
    remove_pending(pending, index);
}

/* While there is capacity. */
static cvy_status accept_new(struct cvy_pending *pending)
{
    while (pending->count < pending->capacity) {
        struct pending_connection one = {.got = 0};

        CVY_TRY(cvy_socket_accept(pending->listener, &one.socket, one.from, sizeof one.from));
        if (one.socket < 0)
            return CVY_OK;
        if (cvy_challenge_make(pending->key, &one.challenge) != CVY_OK) {
            close(one.socket);
            return CVY_FAILED;
        }
        /* A new connection takes these few bytes at once. */
        if (cvy_socket_send(one.socket, &one.challenge, sizeof one.challenge, cvy_clock(), -1) != CVY_SOCKET_DONE) {
            log_refusal(pending, one.from, "it ended at once");
            close(one.socket);
            continue;
        }
        one.hello = pending->hello + (size_t)pending->count * pending->bytes;
        pending->waiting[pending->count++] = one;
    }
    return CVY_OK;
}

static bool has_new_connection(const struct cvy_pending *pending)
{
    struct pollfd polled = {pending->listener, POLLIN, 0};

    return poll(&polled, 1, 0) > 0;
}

static bool is_proven(const struct cvy_pending *pending, const struct pending_connection *one,
                      struct cvy_session *session)
{
    const size_t said = pending->bytes - sizeof(struct cvy_proof);
    struct cvy_proof proof;

    memcpy(&proof, one->hello + said, sizeof proof);
    return cvy_proof_holds(pending->key, &one->challenge, one->hello, said, &proof, session);
}

/* One who has said all, out of those that have something to say. */
static bool receive_hello(struct cvy_pending *pending, struct cvy_pending_event *event)
{
    struct cvy_session session;

    for (int i = 0; i < pending->count;) {
        struct pending_connection *one = &pending->waiting[i];
        const long got = cvy_socket_try_receive(one->socket, one->hello + one->got, pending->bytes - one->got);
        char *const hello = pending->hello + (size_t)pending->capacity * pending->bytes;

        if (got < 0) {
            send_away(pending, i, "it did not say who it is");
            continue;
        }
        one->got += (size_t)got;
        if (one->got < pending->bytes) {
            i++;
            continue;
        }
        if (!is_proven(pending, one, &session)) {
            send_away(pending, i, "it is no rank of this run, or has another key");
            continue;
        }
        *event = (struct cvy_pending_event){
            .end = CVY_SOCKET_DONE, .socket = one->socket, .hello = hello, .session = session};
        memcpy(event->from, one->from, sizeof event->from);
        memcpy(hello, one->hello, pending->bytes);
        remove_pending(pending, i);
        return true;
    }
    return false;
}

/* Until somebody comes or speaks, or one of `others`: its index, else -1. */
static int wait_for_news(struct cvy_pending *pending, double deadline, const int *others, int count)
{
    struct pollfd *polled = pending->polled;
    const double left = 1000 * (deadline - cvy_clock());
    int used = 0;

    for (int i = 0; i < count && i < pending->max; i++)
        polled[used++] = (struct pollfd){others[i], POLLIN, 0};
    polled[used++] = (struct pollfd){pending->listener, POLLIN, 0};
    for (int i = 0; i < pending->count; i++)
        polled[used++] = (struct pollfd){pending->waiting[i].socket, POLLIN, 0};
    if (poll(polled, (nfds_t)used, left <= 0 ? 0 : left > 1e6 ? 1000000 : (int)left + 1) <= 0)
        return -1;
    for (int i = 0; i < count && i < pending->max; i++) {
        if (polled[i].fd >= 0 && polled[i].revents)
            return i;
    }
    return -1;
}

cvy_status cvy_pending_next(struct cvy_pending *pending, double deadline, const int *others, int count,
                            struct cvy_pending_event *event)
{
    for (;;) {
        int alarm;

        *event = (struct cvy_pending_event){.end = CVY_SOCKET_TIMEOUT, .socket = -1};
        CVY_TRY(accept_new(pending));
        if (receive_hello(pending, event))
            return CVY_OK;
        if (pending->count == pending->capacity && has_new_connection(pending)) {
            send_away(pending, 0, "too many came, and it did not say who it is");
            continue;
        }
        if (cvy_clock() >= deadline)
            return CVY_OK;
        alarm = wait_for_news(pending, deadline, others, count);
        if (alarm >= 0) {
            event->end = CVY_SOCKET_ALARM;
            event->alarm = alarm;
            return CVY_OK;
        }
    }
}
