/* First words of several visitors at a time. */
#include "comm/visitors.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system.h"

enum {
    STRANGERS = 64
}; /* who may wait beside those that are expected; beyond them the one that came first is sent away */

struct visitor {
    int socket;
    size_t got;
    char from[64];
    char *words;
};

struct cvy_visitors {
    int listener, most, room;
    size_t bytes;
    struct visitor *waiting; /* (room) in the order in which they came */
    int count;
    char *words;           /* (room + 1, bytes): theirs, and of the one that is handed out */
    struct pollfd *polled; /* (1 + room + most) */
};

cvy_status cvy_visitors_open(struct cvy_visitors **out, int listener, size_t bytes, int most)
{
    struct cvy_visitors *visitors = cvy_calloc(1, sizeof *visitors);
    const size_t room = STRANGERS + (size_t)most;

    *out = visitors;
    if (!visitors)
        return cvy_fail_memory(sizeof *visitors, "the meeting of the ranks");
    visitors->listener = listener;
    visitors->most = most;
    visitors->bytes = bytes;
    visitors->room = (int)room;
    visitors->waiting = cvy_calloc(room, sizeof *visitors->waiting);
    visitors->words = cvy_calloc(room + 1, bytes);
    visitors->polled = cvy_calloc(1 + room + (size_t)most, sizeof *visitors->polled);
    if (visitors->waiting && visitors->words && visitors->polled)
        return CVY_OK;
    cvy_visitors_close(visitors);
    *out = NULL;
    return cvy_fail_memory((room + 1) * bytes, "the meeting of the ranks");
}

void cvy_visitors_close(struct cvy_visitors *visitors)
{
    if (!visitors)
        return;
    for (int i = 0; i < visitors->count; i++)
        close(visitors->waiting[i].socket);
    cvy_free(visitors->waiting);
    cvy_free(visitors->words);
    cvy_free(visitors->polled);
    cvy_free(visitors);
}

/* The others move up, the words with them. */
static void forget(struct cvy_visitors *visitors, int index)
{
    visitors->count--;
    for (int i = index; i < visitors->count; i++) {
        char *const words = visitors->waiting[i].words;

        visitors->waiting[i] = visitors->waiting[i + 1];
        memcpy(words, visitors->waiting[i].words, visitors->bytes);
        visitors->waiting[i].words = words;
    }
}

static void send_away(struct cvy_visitors *visitors, int index)
{
    cvy_log(CVY_LOG_WARNING, "somebody at %s came to a port of the ranks, did not say who, and was sent away",
            cvy_quote(visitors->waiting[index].from));
    close(visitors->waiting[index].socket);
    forget(visitors, index);
}

/* As long as there is room. */
static cvy_status let_in(struct cvy_visitors *visitors)
{
    while (visitors->count < visitors->room) {
        struct visitor one = {.got = 0};

        CVY_TRY(cvy_socket_accept(visitors->listener, &one.socket, one.from, sizeof one.from));
        if (one.socket < 0)
            return CVY_OK;
        one.words = visitors->words + (size_t)visitors->count * visitors->bytes;
        visitors->waiting[visitors->count++] = one;
    }
    return CVY_OK;
}

static bool somebody_knocks(const struct cvy_visitors *visitors)
{
    struct pollfd polled = {visitors->listener, POLLIN, 0};

    return poll(&polled, 1, 0) > 0;
}

/* One who has said all, out of those that have something to say. */
static bool hear(struct cvy_visitors *visitors, struct cvy_visit *visit)
{
    for (int i = 0; i < visitors->count;) {
        struct visitor *one = &visitors->waiting[i];
        const long got = cvy_socket_try_receive(one->socket, one->words + one->got, visitors->bytes - one->got);

        if (got < 0) {
            send_away(visitors, i);
            continue;
        }
        one->got += (size_t)got;
        if (one->got == visitors->bytes) {
            char *const words = visitors->words + (size_t)visitors->room * visitors->bytes;

            *visit = (struct cvy_visit){.end = CVY_SOCKET_DONE, .socket = one->socket, .words = words};
            memcpy(visit->from, one->from, sizeof visit->from);
            memcpy(words, one->words, visitors->bytes);
            forget(visitors, i);
            return true;
        }
        i++;
    }
    return false;
}

/* Until somebody comes or speaks, or one of `beside`: its index, else -1. */
static int wait_for_news(struct cvy_visitors *visitors, double deadline, const int *beside, int count)
{
    struct pollfd *polled = visitors->polled;
    const double left = 1000 * (deadline - cvy_clock());
    int used = 0;

    for (int i = 0; i < count && i < visitors->most; i++)
        polled[used++] = (struct pollfd){beside[i], POLLIN, 0};
    polled[used++] = (struct pollfd){visitors->listener, POLLIN, 0};
    for (int i = 0; i < visitors->count; i++)
        polled[used++] = (struct pollfd){visitors->waiting[i].socket, POLLIN, 0};
    if (poll(polled, (nfds_t)used, left <= 0 ? 0 : left > 1e6 ? 1000000 : (int)left + 1) <= 0)
        return -1;
    for (int i = 0; i < count && i < visitors->most; i++) {
        if (polled[i].fd >= 0 && polled[i].revents)
            return i;
    }
    return -1;
}

cvy_status cvy_visitors_next(struct cvy_visitors *visitors, double deadline, const int *beside, int count,
                             struct cvy_visit *visit)
{
    for (;;) {
        int alarm;

        *visit = (struct cvy_visit){.end = CVY_SOCKET_LATE, .socket = -1};
        CVY_TRY(let_in(visitors));
        if (hear(visitors, visit))
            return CVY_OK;
        if (visitors->count == visitors->room && somebody_knocks(visitors)) {
            send_away(visitors, 0);
            continue;
        }
        if (cvy_clock() >= deadline)
            return CVY_OK;
        alarm = wait_for_news(visitors, deadline, beside, count);
        if (alarm >= 0) {
            visit->end = CVY_SOCKET_ALARM;
            visit->alarm = alarm;
            return CVY_OK;
        }
    }
}
