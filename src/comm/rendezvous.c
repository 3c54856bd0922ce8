/* The rendezvous: each rank introduces itself to rank 0, which sends the list of ranks to all of them. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system.h"
#include "comm/group.h"
#include "comm/pending.h"

static const char magic[8] = "CVYRANK3";

struct hello {
    char magic[8];
    int32_t rank, world, port;
    char host[64];
    struct cvy_proof proof;
};

/* What rank 0 says to each once all have come, or once something is wrong. The list of ranks follows where nothing is.
 */
struct answer {
    uint32_t status;
    char text[1020];
    uint8_t list[CVY_SHA256_BYTES]; /* the digest of the list */
    uint8_t code[CVY_SHA256_BYTES]; /* of all before it */
};
enum {
    ANSWER_SECONDS = 2, /* beyond the time limit, so that rank 0's sentence arrives */
    KEY_SECONDS = 60,   /* until a file that one host has written is seen on another */
    KEY_MILLISECONDS = 50
};

/* ---- rank 0 and the others ---- */

static void find_digest(const struct cvy_group *group, uint8_t digest[CVY_SHA256_BYTES])
{
    struct cvy_sha256 sha;

    cvy_sha256_begin(&sha);
    cvy_sha256_add(&sha, group->peers, (size_t)group->world * sizeof *group->peers);
    cvy_sha256_end(&sha, digest);
}

/* CVY_OK, or the recorded sentence. A peer that does not listen will see the connection end. */
static void send_answer(const struct cvy_group *group, int socket, const struct cvy_session *session, cvy_status status,
                        const uint8_t digest[CVY_SHA256_BYTES], double deadline)
{
    struct answer answer = {.status = (uint32_t)status};

    if (digest)
        memcpy(answer.list, digest, sizeof answer.list);

    if (status != CVY_OK)
        cvy_error_get(answer.text, sizeof answer.text);
    cvy_answer_code(group->key, session, &answer, offsetof(struct answer, code), answer.code);
    (void)cvy_socket_send(socket, &answer, sizeof answer, deadline, -1);
}

/* One who came to rank 0, with the right key. A rank of this run that does not fit is an error, which it is told too.
 * Where the key is none that only ranks know, anybody could say so: that one alone is sent away. */
static cvy_status receive_hello(struct cvy_group *group, struct cvy_pending *pending,
                                const struct cvy_pending_event *event, bool secret, int *met)
{
    const int socket = event->socket;
    struct hello hello;
    struct cvy_peer *peer;
    char why[512];

    memcpy(&hello, event->hello, sizeof hello);
    if (memcmp(hello.magic, magic, sizeof magic) != 0) {
        cvy_pending_refuse(pending, event, "it speaks of something else");
        return CVY_OK;
    }
    if (hello.world != group->world || hello.rank < 1 || hello.rank >= group->world ||
        group->control[hello.rank] >= 0) {
        (void)cvy_fail(CVY_USAGE, "at %s there is rank %d of %d ranks, which does not fit to this run of %d: %s",
                       cvy_quote(event->from), (int)hello.rank, (int)hello.world, group->world,
                       hello.world == group->world ? "two processes have the same rank"
                                                   : "all must be told the same number");
        send_answer(group, socket, &event->session, CVY_USAGE, NULL, cvy_clock() + (secret ? ANSWER_SECONDS : 0));
        if (secret) {
            close(socket);
            return CVY_USAGE;
        }
        cvy_error_get(why, sizeof why);
        cvy_pending_refuse(pending, event, why);
        return CVY_OK;
    }
    peer = &group->peers[hello.rank];
    snprintf(peer->host, sizeof peer->host, "%.*s", (int)sizeof hello.host - 1, hello.host);
    /* A rank beside rank 0 may come over the loopback: others find it where they find rank 0. */
    snprintf(peer->address, sizeof peer->address, "%s", cvy_socket_is_local(event->from) ? "" : event->from);
    peer->port = hello.port;
    group->control[hello.rank] = socket;
    group->sessions[hello.rank] = event->session;
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
        snprintf(text + used, size - used, " and %s", cvy_counted(missing - named, "other"));
}

static cvy_status gather_hellos(struct cvy_group *group, struct cvy_pending *pending, bool secret, double deadline)
{
    char missing[128], refused[96] = "";

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
            if (cvy_pending_refused(pending) > 0)
                snprintf(refused, sizeof refused, "; connections that were closed, as they were of no rank: %lld",
                         (long long)cvy_pending_refused(pending));
            return cvy_fail(CVY_FAILED, "rank 0 waited %g s for the others, and these did not come: %s%s",
                            group->timeout, missing, refused);
        }
        CVY_TRY(receive_hello(group, pending, &event, secret, &met));
    }
    return CVY_OK;
}

static cvy_status rendezvous_all(struct cvy_group *group, int listener, bool secret, double deadline)
{
    struct cvy_pending *pending;
    cvy_status status = cvy_pending_open(&pending, listener, sizeof(struct hello), group->world, group->key);

    if (status == CVY_OK)
        status = gather_hellos(group, pending, secret, deadline);
    cvy_pending_close(pending);
    return status;
}

/* All get the list, or why there is none: they end as rank 0 does. One that is gone by now is the watch's to name. */
static cvy_status answer_all(struct cvy_group *group, cvy_status status, double deadline)
{
    const size_t bytes = (size_t)group->world * sizeof *group->peers;
    uint8_t digest[CVY_SHA256_BYTES];

    find_digest(group, digest);
    for (int i = 1; i < group->world; i++) {
        const int socket = group->control[i];

        if (socket >= 0)
            send_answer(group, socket, &group->sessions[i], status, digest, deadline);
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
    status = rendezvous_all(group, listener, place->secret, deadline);
    close(listener);
    return answer_all(group, status, status == CVY_OK ? deadline : cvy_clock() + ANSWER_SECONDS);
}

static cvy_status not_ours(const struct cvy_comm_config *place)
{
    return cvy_fail(CVY_FAILED, "what listens on port %d of %s is not rank 0 of this run, or has another key%s",
                    place->port, cvy_quote(place->address), place->secret ? " (CONVOY_COMM_KEY)" : "");
}

/* The key is that of the rank that has sent this challenge: it was given, or comes with the file that rank 0 leaves. */
static cvy_status find_key(struct cvy_group *group, const struct cvy_comm_config *place,
                           const struct cvy_challenge *challenge, double deadline)
{
    const double patience = cvy_clock() + KEY_SECONDS;
    char key[33];

    if (!place->key_file[0])
        return cvy_challenge_fits(group->key, challenge) ? CVY_OK : not_ours(place);
    for (;;) {
        if (cvy_key_file_read(place->key_file, key) && cvy_challenge_fits(key, challenge)) {
            snprintf(group->key, sizeof group->key, "%s", key);
            return CVY_OK;
        }
        if (cvy_clock() >= deadline || cvy_clock() >= patience)
            return cvy_fail(CVY_FAILED,
                            "rank %d does not find rank 0's key in %s: all hosts must see the folder of the run, or "
                            "have the same CONVOY_COMM_KEY",
                            group->rank, cvy_quote(place->key_file));
        nanosleep(&(struct timespec){.tv_nsec = KEY_MILLISECONDS * 1000000}, NULL);
    }
}

static cvy_status introduce(struct cvy_group *group, const struct cvy_comm_config *place, double deadline)
{
    struct hello hello = {.rank = group->rank, .world = group->world, .port = group->peers[group->rank].port};
    struct cvy_challenge challenge;

    memcpy(hello.magic, magic, sizeof magic);
    memcpy(hello.host, group->peers[group->rank].host, sizeof hello.host);
    if (cvy_socket_receive(group->control[0], &challenge, sizeof challenge, deadline + ANSWER_SECONDS, -1) !=
        CVY_SOCKET_DONE)
        return not_ours(place);
    CVY_TRY(find_key(group, place, &challenge, deadline));
    CVY_TRY(cvy_proof_make(group->key, &challenge, &hello, offsetof(struct hello, proof), &hello.proof,
                           &group->sessions[0]));
    (void)cvy_socket_send(group->control[0], &hello, sizeof hello, deadline, -1);
    return CVY_OK;
}

static cvy_status receive_answer(struct cvy_group *group, const struct cvy_comm_config *place, double deadline)
{
    const size_t bytes = (size_t)group->world * sizeof *group->peers;
    uint8_t digest[CVY_SHA256_BYTES];
    struct answer answer;
    enum cvy_socket_result end =
        cvy_socket_receive(group->control[0], &answer, sizeof answer, deadline + ANSWER_SECONDS, -1);

    if (end == CVY_SOCKET_DONE &&
        !cvy_answer_holds(group->key, &group->sessions[0], &answer, offsetof(struct answer, code), answer.code))
        return not_ours(place);
    if (end == CVY_SOCKET_DONE && answer.status != CVY_OK) {
        answer.text[sizeof answer.text - 1] = '\0';
        cvy_escape_controls(answer.text);
        /* It becomes an exit code: not one that says nothing went wrong. */
        const bool known = answer.status > 0 && answer.status < CVY_STOPPED;
        return cvy_fail(known ? (cvy_status)answer.status : CVY_FAILED, "rank 0 at %s: %s", cvy_quote(place->address),
                        answer.text);
    }
    if (end == CVY_SOCKET_DONE)
        end = cvy_socket_receive(group->control[0], group->peers, bytes, deadline + ANSWER_SECONDS, -1);
    if (end != CVY_SOCKET_DONE)
        return cvy_fail(CVY_FAILED, "rank %d met rank 0 at %s, which then ended or did not go on", group->rank,
                        cvy_quote(place->address));
    find_digest(group, digest);
    return memcmp(digest, answer.list, sizeof digest) == 0 ? CVY_OK : not_ours(place);
}

/* On the address by which rank 0 is reached; on all where that is this host's own loopback, on which others are not. */
static cvy_status listen_for_neighbours(struct cvy_group *group, const struct cvy_comm_config *place)
{
    char own[256] = "";
    int port = 0;

    if (group->rank == 0 || cvy_socket_is_local(place->address))
        snprintf(own, sizeof own, "%s", place->address);
    else
        cvy_socket_local_address(group->control[0], own, sizeof own);
    if (cvy_socket_is_local(own) && !cvy_socket_is_local(place->address))
        own[0] = '\0';
    CVY_TRY(cvy_socket_listen(own, &port, &group->listener));
    group->peers[group->rank].port = port;
    return CVY_OK;
}

static cvy_status rendezvous_as_other(struct cvy_group *group, const struct cvy_comm_config *place, double deadline)
{
    if (cvy_socket_connect(place->address, place->port, deadline, true, -1, &group->control[0]) != CVY_OK)
        return cvy_fail_context(CVY_FAILED, "rank %d cannot meet rank 0", group->rank);
    CVY_TRY(listen_for_neighbours(group, place));
    CVY_TRY(introduce(group, place, deadline));
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

static void make_names(struct cvy_group *group)
{
    for (int i = 0; i < group->world; i++) {
        snprintf(group->name_texts[i], sizeof group->name_texts[i], "rank %d on host %s", i,
                 cvy_quote(group->peers[i].host));
        group->names[i] = group->name_texts[i];
    }
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

    if (gethostname(self->host, sizeof self->host - 1) != 0)
        snprintf(self->host, sizeof self->host, "unknown");
    if (group->rank == 0) {
        CVY_TRY(listen_for_neighbours(group, place));
        raise_descriptor_limit(group->world);
    }
    CVY_TRY(group->rank == 0 ? rendezvous_as_first(group, place, deadline)
                             : rendezvous_as_other(group, place, deadline));
    for (int i = 0; i < group->world; i++) { /* rank 0, and ranks beside it */
        if (!group->peers[i].address[0])
            snprintf(group->peers[i].address, sizeof group->peers[i].address, "%s", place->address);
    }
    make_names(group);
    return CVY_OK;
}
