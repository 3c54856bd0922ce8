/* What carries the bytes between a rank and those that it speaks with: a line to each of its neighbours in the ring and
 * in the tree. What is sent over them, and in what order it is added, is the group's business (sums.c): any link gives
 * the same bits. One thread at a time. */
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
    /* Streams of bytes, in both directions: as much as moves at once, 0 would wait, -1 the other side is gone. After 0
     * the same place must be offered again, and belongs to the link until something has moved. */
    long (*try_send)(struct cvy_link *link, int line, const void *data, size_t bytes);
    long (*try_receive)(struct cvy_link *link, int line, void *data, size_t bytes);
    /* Wait until something may move on the line `out` (-1: none) or `in` (-1: none): CVY_SOCKET_DONE. `alarm`: a
     * descriptor that ends the wait when it can be read. */
    enum cvy_socket_end (*wait)(struct cvy_link *link, int out, int in, double deadline, int alarm);
    /* Why the last call returned -1, as far as it is known: "" else. NULL: there is never more to say. */
    const char *(*reason)(const struct cvy_link *link);
    bool farewell; /* all ranks must have come to the end before one of them closes */
    void (*close)(struct cvy_link *link, bool failed);
};

#endif
