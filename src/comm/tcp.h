/* Ranks that are connected by TCP: a ring for large sums and broadcasts, a tree for small sums, and each one's
 * connection to rank 0 by which it is watched (watch.h). No library is needed, and nothing but the address of rank 0.
 */
#ifndef CVY_COMM_TCP_H
#define CVY_COMM_TCP_H

#include "comm/comm.h"
#include "comm/watch.h"

enum { CVY_TCP_CHILDREN = 17 }; /* of a rank in the tree: at most one for each bit of a rank */

struct cvy_tcp_peer {
    char host[64], address[64];
    int32_t port; /* where it listens for the other ranks */
};

struct cvy_tcp {
    int rank, world;
    double timeout;
    char key[64];
    struct cvy_tcp_peer *peers; /* (world) */
    char **names;               /* (world) "rank 2 on host \"b\"" */
    int *control;               /* sockets to rank 0, of rank 0 to each; until the watch has them */
    int listener;
    int next, previous; /* sockets of the ring; -1 until connected */
    int parent;         /* of the tree: -1 on rank 0 */
    int children[CVY_TCP_CHILDREN], child_count;
    int child_ranks[CVY_TCP_CHILDREN], parent_rank;
    uint64_t sequence; /* of calls */
    void *piece;       /* where numbers arrive before they are added */
    struct cvy_watch *watch;
};

/* Sockets to all others that this rank speaks with (tcp_meet.c). */
CVY_CHECKED cvy_status cvy_tcp_meet(struct cvy_tcp *tcp, const struct cvy_comm_place *place);
CVY_CHECKED cvy_status cvy_tcp_open(struct cvy_comm *comm, const struct cvy_comm_place *place, double timeout);

#endif
