/* Any bytes as what somebody says who connects to a rank. The first byte chooses: 'P' the message gets its right proof,
 * 'K' that of another key; else the bytes are all that is said, as they are. Only a whole message with the right proof
 * is handed out, unchanged; all others are closed and counted, and the next one is heard. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/system.h"
#include "comm/pending.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGE = 64 };
struct hello {
    uint8_t message[MESSAGE];
    struct cvy_proof proof;
};

static const char key[] = "0123456789abcdef0123456789abcdef", other_key[] = "0123456789abcdef0123456789abcdee";

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* Connected, greeted, and waiting to be heard. */
static int call(struct cvy_pending *pending, int port, struct cvy_challenge *challenge)
{
    const struct linger at_once = {.l_onoff = 1}; /* ports are not kept waiting after thousands of connections */
    struct cvy_pending_event event;
    int caller;

    require(cvy_socket_connect("127.0.0.1", port, cvy_clock() + 10, false, -1, &caller) == CVY_OK);
    require(setsockopt(caller, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    require(cvy_pending_next(pending, 0, NULL, 0, &event) == CVY_OK && event.end == CVY_SOCKET_TIMEOUT);
    require(cvy_socket_receive(caller, challenge, sizeof *challenge, cvy_clock() + 10, -1) == CVY_SOCKET_DONE);
    return caller;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int listener = -1, port;
    struct cvy_challenge challenge;
    struct cvy_session session;
    struct cvy_pending *pending;
    struct cvy_pending_event event;
    struct hello hello = {.message = {0}};
    const bool proven = size > 0 && data[0] == 'P', forged = size > 0 && data[0] == 'K';
    size_t bytes = size < sizeof hello ? size : sizeof hello;

    if (listener < 0)
        require(cvy_socket_listen("127.0.0.1", &port, &listener) == CVY_OK);
    require(cvy_pending_open(&pending, listener, sizeof hello, 1, key) == CVY_OK);
    const int caller = call(pending, port, &challenge);
    require(cvy_challenge_fits(key, &challenge) && !cvy_challenge_fits(other_key, &challenge));
    if (proven || forged) {
        memcpy(hello.message, data, size < MESSAGE ? size : MESSAGE);
        require(cvy_proof_make(proven ? key : other_key, &challenge, &hello, offsetof(struct hello, proof),
                               &hello.proof, &session) == CVY_OK);
        bytes = sizeof hello;
    } else if (bytes > 0) {
        memcpy(&hello, data, bytes);
    }
    require(cvy_socket_send(caller, &hello, bytes, cvy_clock() + 10, -1) == CVY_SOCKET_DONE);
    (void)shutdown(caller, SHUT_WR);
    require(cvy_pending_next(pending, proven ? cvy_clock() + 10 : 0, NULL, 0, &event) == CVY_OK);
    if (proven) {
        require(event.end == CVY_SOCKET_DONE && memcmp(event.hello, &hello, sizeof hello) == 0);
        require(memcmp(&event.session, &session, sizeof session) == 0 && cvy_pending_refused(pending) == 0);
        close(event.socket);
    } else {
        require(event.end == CVY_SOCKET_TIMEOUT && event.socket < 0 && cvy_pending_refused(pending) <= 1);
    }
    close(caller);
    cvy_pending_close(pending);
    return 0;
}
