/* Whoever comes to a listening socket, until he has said his first words. All are listened to at the same time: one who
 * says nothing holds nobody up. */
#ifndef CVY_COMM_VISITORS_H
#define CVY_COMM_VISITORS_H

#include "comm/socket.h"

struct cvy_visitors;
/* `bytes`: length of the first words. `most`: how many are expected, and descriptors at most that are looked at beside.
 * The listener is borrowed. */
CVY_CHECKED cvy_status cvy_visitors_open(struct cvy_visitors **visitors, int listener, size_t bytes, int most);
/* Sends away who has not said all; accepts NULL. */
void cvy_visitors_close(struct cvy_visitors *visitors);

struct cvy_visit {
    enum cvy_socket_end end;
    int socket;        /* DONE: one has said all; the socket is the caller's */
    char from[64];     /* his address */
    const void *words; /* until the next call */
    int alarm;         /* ALARM: the index of the descriptor that can be read or is closed */
};
/* Wait for the next one: DONE, LATE or ALARM. `beside` (count): other descriptors to look at; those below 0 are left
 * out. */
CVY_CHECKED cvy_status cvy_visitors_next(struct cvy_visitors *visitors, double deadline, const int *beside, int count,
                                         struct cvy_visit *visit);

#endif
