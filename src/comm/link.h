/* The transport between a rank and its peers: a line (a byte stream in both directions) to each of its neighbours in
 * the ring and in the tree. What is sent, and in what order it is added, is decided by the group (sums.c): any link
 * gives the same bits. One thread at a time. */
#ifndef CVY_COMM_LINK_H
#define CVY_COMM_LINK_H

#include "comm/socket.h"

enum cvy_line {
    CVY_LINE_NEXT, /* in the ring; the other end of that line is the next rank's CVY_LINE_PREVIOUS */
    CVY_LINE_PREVIOUS,
    CVY_LINE_PARENT, /* in the tree; the other end is one of the parent's lines to its children */
    CVY_LINE_CHILDREN,
    CVY_LINES = CVY_LINE_CHILDREN + 17 /* at most one child for each bit of a rank */
};

struct cvy_link {
    char name[48]; /* "tcp", "shared memory", "MPI (Open MPI 4.1.4)" */
    void *state;
    /* Non-blocking byte streams in both directions: the number of bytes moved, 0 if it would block, -1 if the peer is
     * gone. After 0 the same buffer must be passed again, and belongs to the link until something has moved. */
    long (*try_send)(struct cvy_link *link, int line, const void *data, size_t bytes);
    long (*try_receive)(struct cvy_link *link, int line, void *data, size_t bytes);
    /* Wait until the line `out` (-1: none) can be written or `in` (-1: none) read: CVY_SOCKET_DONE. `alarm`: a
     * descriptor that ends the wait when it becomes readable. */
    enum cvy_socket_result (*wait)(struct cvy_link *link, int out, int in, double deadline, int alarm);
    /* Why the last call returned -1, "" if unknown. NULL: never known. */
    const char *(*reason)(const struct cvy_link *link);
    bool closing_barrier; /* a barrier is needed before any rank closes */
    void (*close)(struct cvy_link *link, bool failed);
};

#endif
