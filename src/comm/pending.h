/* Pending connections: those accepted from a listening socket until each has sent its first message. All are read at
 * the same time: a silent one delays no other. */
#ifndef CVY_COMM_PENDING_H
#define CVY_COMM_PENDING_H

#include "comm/socket.h"

struct cvy_pending;
/* `bytes`: length of the first message. `max`: how many connections are expected, and the maximum number of other
 * descriptors to poll. The listener is borrowed. */
CVY_CHECKED cvy_status cvy_pending_open(struct cvy_pending **pending, int listener, size_t bytes, int max);
/* Closes the connections whose message is incomplete; accepts NULL. */
void cvy_pending_close(struct cvy_pending *pending);

struct cvy_pending_event {
    enum cvy_socket_result end;
    int socket;        /* DONE: a complete message has arrived; the socket is the caller's */
    char from[64];     /* the peer's address */
    const void *hello; /* the message, valid until the next call */
    int alarm;         /* ALARM: the index of the descriptor that can be read or is closed */
};
/* Wait for the next event: DONE, TIMEOUT or ALARM. `others` (count): other descriptors to poll; negative ones are
 * ignored. */
CVY_CHECKED cvy_status cvy_pending_next(struct cvy_pending *pending, double deadline, const int *others, int count,
                                        struct cvy_pending_event *event);

#endif
