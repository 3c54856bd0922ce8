/* Pending connections: those accepted from a listening socket until each has sent its first message. All are read at
 * the same time: a silent one delays no other. */
#ifndef CVY_COMM_PENDING_H
#define CVY_COMM_PENDING_H

#include "comm/auth.h"
#include "comm/socket.h"

struct cvy_pending;
struct cvy_pending_event;
/* `bytes`: length of the first message, which ends in its struct cvy_proof for the challenge that each connection gets.
 * Those whose proof does not hold are closed and counted. `max`: how many connections are expected, and the maximum
 * number of other descriptors to poll. The listener is borrowed, and so is the key. */
CVY_CHECKED cvy_status cvy_pending_open(struct cvy_pending **pending, int listener, size_t bytes, int max,
                                        const char *key);
/* Closes a connection that has spoken and does not belong here; it is counted, too. `why`: ends the line of
 * the log, of which there are few however many connections come. */
void cvy_pending_refuse(struct cvy_pending *pending, const struct cvy_pending_event *event, const char *why);
/* How many were closed so far. */
int64_t cvy_pending_refused(const struct cvy_pending *pending);
/* Closes the connections whose message is incomplete; accepts NULL. */
void cvy_pending_close(struct cvy_pending *pending);

struct cvy_pending_event {
    enum cvy_socket_result end;
    int socket;        /* DONE: a complete message has arrived; the socket is the caller's */
    char from[64];     /* the peer's address */
    const void *hello; /* the message, valid until the next call */
    struct cvy_session session;
    int alarm; /* ALARM: the index of the descriptor that can be read or is closed */
};
/* Wait for the next event: DONE, TIMEOUT or ALARM. `others` (count): other descriptors to poll; negative ones are
 * ignored. */
CVY_CHECKED cvy_status cvy_pending_next(struct cvy_pending *pending, double deadline, const int *others, int count,
                                        struct cvy_pending_event *event);

#endif
