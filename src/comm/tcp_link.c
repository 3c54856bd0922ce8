/* A link of TCP sockets: a rank calls the next one of the ring and its parent in the tree, and is called by the others.
 */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"
#include "comm/group.h"
#include "comm/pending.h"

static const char magic[8] = "CVYLINK2";

/* Who calls whom, and which of the caller's lines that is. The answer is a code alone. */
struct greeting {
    char magic[8];
    int32_t rank, line, called, reserved;
    struct cvy_proof proof;
};

/* One that this rank makes. */
struct call {
    int line;
    bool greeted, done;
    struct cvy_session session;
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

/* It listens already: a refusal means that it is gone. */
static cvy_status dial(const struct cvy_group *group, struct sockets *sockets, int line, double deadline)
{
    const int rank = group->ranks[line];
    const struct cvy_peer *peer = &group->peers[rank];

    if (cvy_socket_connect(peer->address, peer->port, deadline, false, cvy_watch_alarm(group->watch),
                           &sockets->of[line]) != CVY_OK)
        return cvy_fail_context(CVY_FAILED, "rank %d on host %s", rank, cvy_quote(peer->host));
    return CVY_OK;
}

static cvy_status no_answer(const struct cvy_group *group, int rank)
{
    return cvy_fail(CVY_FAILED, "%s did not answer while the ranks were meeting", group->names[rank]);
}

/* The called rank has something to say: its challenge, then the code that shows that it has the key. */
static cvy_status go_on(const struct cvy_group *group, int socket, struct call *call, double deadline)
{
    const int alarm = cvy_watch_alarm(group->watch), rank = group->ranks[call->line];
    const int32_t called = rank;
    struct greeting greeting = {.rank = group->rank, .line = call->line, .called = rank};
    struct cvy_challenge challenge;
    uint8_t code[CVY_SHA256_BYTES];

    if (call->greeted) {
        if (cvy_socket_receive(socket, code, sizeof code, deadline, alarm) != CVY_SOCKET_DONE)
            return no_answer(group, rank);
        call->done = true;
        return cvy_answer_holds(group->key, &call->session, &called, sizeof called, code)
                   ? CVY_OK
                   : cvy_fail(CVY_FAILED, "%s does not have the key of this run", group->names[rank]);
    }
    if (cvy_socket_receive(socket, &challenge, sizeof challenge, deadline, alarm) != CVY_SOCKET_DONE)
        return no_answer(group, rank);
    if (!cvy_challenge_fits(group->key, &challenge))
        return cvy_fail(CVY_FAILED, "%s does not have the key of this run", group->names[rank]);
    memcpy(greeting.magic, magic, sizeof magic);
    CVY_TRY(cvy_proof_make(group->key, &challenge, &greeting, offsetof(struct greeting, proof), &greeting.proof,
                           &call->session));
    call->greeted = true;
    return cvy_socket_send(socket, &greeting, sizeof greeting, deadline, alarm) == CVY_SOCKET_DONE
               ? CVY_OK
               : no_answer(group, rank);
}

/* Where the socket of a caller belongs; NULL: it was not expected. */
static int *place_of(const struct cvy_group *group, struct sockets *sockets, const struct greeting *greeting)
{
    int *place = NULL;

    if (memcmp(greeting->magic, magic, sizeof magic) != 0 || greeting->called != group->rank)
        return NULL;
    if (greeting->line == CVY_LINE_NEXT && greeting->rank == group->ranks[CVY_LINE_PREVIOUS])
        place = &sockets->of[CVY_LINE_PREVIOUS];
    for (int i = 0; greeting->line == CVY_LINE_PARENT && i < group->child_count; i++) {
        if (group->ranks[CVY_LINE_CHILDREN + i] == greeting->rank)
            place = &sockets->of[CVY_LINE_CHILDREN + i];
    }
    return place && *place < 0 ? place : NULL;
}

/* Somebody with the key has called. */
static cvy_status answer_call(const struct cvy_group *group, struct sockets *sockets, struct cvy_pending *pending,
                              const struct cvy_pending_event *event, double deadline, int *met)
{
    const int32_t called = group->rank;
    uint8_t code[CVY_SHA256_BYTES];
    struct greeting greeting;
    int *place;

    memcpy(&greeting, event->hello, sizeof greeting);
    place = place_of(group, sockets, &greeting);
    if (!place) {
        cvy_pending_refuse(pending, event, "it is no neighbour of this rank");
        return CVY_OK;
    }
    *place = event->socket;
    ++*met;
    cvy_answer_code(group->key, &event->session, &called, sizeof called, code);
    return cvy_socket_send(*place, code, sizeof code, deadline, cvy_watch_alarm(group->watch)) == CVY_SOCKET_DONE
               ? CVY_OK
               : no_answer(group, greeting.rank);
}

/* Calls and is called at the same time: in a ring everybody would wait for the next one otherwise. */
static cvy_status exchange_calls(const struct cvy_group *group, struct sockets *sockets, struct cvy_pending *pending,
                                 struct call *calls, int call_count, double deadline)
{
    const int expected = 1 + group->child_count;
    int met = 0, done = 0;

    while (met < expected || done < call_count) {
        int others[3] = {cvy_watch_alarm(group->watch), -1, -1};
        struct cvy_pending_event event;

        for (int i = 0; i < call_count; i++)
            others[1 + i] = calls[i].done ? -1 : sockets->of[calls[i].line];
        CVY_TRY(cvy_pending_next(pending, deadline, others, 1 + call_count, &event));
        if (event.end == CVY_SOCKET_ALARM && event.alarm > 0) {
            struct call *call = &calls[event.alarm - 1];

            CVY_TRY(go_on(group, sockets->of[call->line], call, deadline));
            done += call->done;
        } else if (event.end == CVY_SOCKET_DONE) {
            CVY_TRY(answer_call(group, sockets, pending, &event, deadline, &met));
        } else {
            return cvy_fail(CVY_FAILED, "rank %d waited %g s for %d neighbours, and %d came", group->rank,
                            group->timeout, expected + call_count, met + done);
        }
    }
    return CVY_OK;
}

static cvy_status connect_neighbours(const struct cvy_group *group, struct sockets *sockets, double deadline)
{
    struct call calls[2] = {{.line = CVY_LINE_NEXT}, {.line = CVY_LINE_PARENT}};
    const int call_count = group->rank > 0 ? 2 : 1;
    struct cvy_pending *pending;
    cvy_status status;

    for (int i = 0; i < call_count; i++)
        CVY_TRY(dial(group, sockets, calls[i].line, deadline));
    CVY_TRY(cvy_pending_open(&pending, group->listener, sizeof(struct greeting), CVY_LINES, group->key));
    status = exchange_calls(group, sockets, pending, calls, call_count, deadline);
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
