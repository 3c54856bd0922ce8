/* Ranks that know one another: their names, their neighbours in a ring (large sums, broadcasts) and in a tree (small
 * sums), what carries the bytes between these (link.h), and each one's connection to rank 0 by which it is watched
 * (watch.h). */
#ifndef CVY_COMM_GROUP_H
#define CVY_COMM_GROUP_H

#include <stdatomic.h>

#include "comm/comm.h"
#include "comm/link.h"
#include "comm/watch.h"

enum { CVY_GROUP_PIECE = 256 * 1024 }; /* bytes; of what arrives before it is added */

struct cvy_peer {
    char host[64], address[256]; /* address "": that of rank 0 */
    int32_t port;                /* where it listens for the other ranks */
};

struct cvy_group {
    int rank, world;
    double timeout;
    char key[64];
    struct cvy_peer *peers; /* (world) */
    char **names;           /* (world) "rank 2 on host \"b\"" */
    int *control;           /* sockets to rank 0, of rank 0 to each; until the watch has them */
    int listener;           /* for neighbours, while ranks meet */
    int ranks[CVY_LINES];   /* at the other ends of the lines */
    int child_count;
    bool sockets_only; /* no shared memory */
    struct cvy_link link;
    uint64_t sequence;  /* of calls */
    atomic_bool failed; /* a thread that sums may find out while another one tells */
    void *piece;        /* (CVY_GROUP_PIECE) where numbers arrive before they are added */
    uint16_t *packed;   /* numbers that go out in 16 bits */
    size_t packed_room; /* of them */
    struct cvy_watch *watch;
};

/* Everybody says hello to rank 0, and gets to know all others (meet.c). */
CVY_CHECKED cvy_status cvy_group_meet(struct cvy_group *group, const struct cvy_comm_place *place, double deadline);
/* What carries the bytes of ranks that have met: sockets between neighbours (tcp_link.c), MPI (mpi.c). Half open it is
 * closed too, where it has a state. */
typedef cvy_status (*cvy_link_open)(struct cvy_link *link, const struct cvy_group *group, double deadline);
CVY_CHECKED cvy_status cvy_tcp_link_open(struct cvy_link *link, const struct cvy_group *group, double deadline);
int cvy_tcp_link_socket(const struct cvy_link *link, int line); /* -1: there is no such line */
/* The same with shared memory between ranks of one host (local_link.c). */
CVY_CHECKED cvy_status cvy_local_link_open(struct cvy_link *link, const struct cvy_group *group, double deadline);

/* Of struct cvy_comm (sums.c). *late: the seconds until the rank before this one had come; of a small sum (8 KiB) all
 * that it took. */
CVY_CHECKED cvy_status cvy_group_sum(struct cvy_group *group, void *data, int64_t count, enum cvy_comm_type type,
                                     double *late);
CVY_CHECKED cvy_status cvy_group_broadcast(struct cvy_group *group, void *data, size_t bytes, int root);

/* A communicator of ranks that meet at the address of rank 0. */
CVY_CHECKED cvy_status cvy_group_open(struct cvy_comm *comm, const struct cvy_comm_place *place, double timeout,
                                      cvy_link_open open_link);

#endif
