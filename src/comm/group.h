/* The communicator of the ranks: their names, their neighbours in a ring (large sums, broadcasts) and in a tree (small
 * sums), the transport between these (link.h), and each rank's connection to rank 0 by which failures are detected
 * (watch.h). */
#ifndef CVY_COMM_GROUP_H
#define CVY_COMM_GROUP_H

#include <stdatomic.h>

#include "comm/auth.h"
#include "comm/comm.h"
#include "comm/link.h"
#include "comm/watch.h"

enum { CVY_GROUP_CHUNK = 256 * 1024 }; /* bytes received before they are added */

struct cvy_peer {
    char host[64], address[256]; /* address "": that of rank 0 */
    int32_t port;                /* where it listens for the other ranks */
};

enum { CVY_RANK_NAME_BYTES = 128 };
struct cvy_group {
    int rank, world;
    double timeout;
    char key[CVY_COMM_KEY_BYTES];
    struct cvy_peer *peers; /* (world) */
    char **names;           /* (world) "rank 2 on host \"b\"", in name_texts */
    char (*name_texts)[CVY_RANK_NAME_BYTES];
    struct cvy_session *sessions; /* (world) of the control connections, during the rendezvous */
    int *control;                 /* sockets to rank 0, on rank 0 to each rank; until the watch owns them */
    int listener;                 /* for neighbours, during the rendezvous */
    int ranks[CVY_LINES];         /* the peers at the other ends of the lines */
    int child_count;
    bool sockets_only; /* no shared memory */
    struct cvy_link link;
    uint64_t sequence;      /* of calls */
    atomic_bool failed;     /* a summing thread may set it while another one reports */
    void *piece;            /* (CVY_GROUP_CHUNK) receive buffer */
    uint16_t *packed;       /* send buffer of 16-bit numbers */
    size_t packed_capacity; /* of them */
    struct cvy_watch *watch;
};

/* Rendezvous: every rank introduces itself to rank 0 and learns about all others (rendezvous.c). */
CVY_CHECKED cvy_status cvy_group_rendezvous(struct cvy_group *group, const struct cvy_comm_config *place,
                                            double deadline);
/* Opens the transport after the rendezvous: sockets between neighbours (tcp_link.c), MPI (mpi.c). A half-open link is
 * closed too, where it has a state. */
typedef cvy_status (*cvy_link_open)(struct cvy_link *link, const struct cvy_group *group, double deadline);
CVY_CHECKED cvy_status cvy_tcp_link_open(struct cvy_link *link, const struct cvy_group *group, double deadline);
int cvy_tcp_link_socket(const struct cvy_link *link, int line); /* -1: there is no such line */
/* The same with shared memory between ranks of one host (local_link.c). */
CVY_CHECKED cvy_status cvy_local_link_open(struct cvy_link *link, const struct cvy_group *group, double deadline);

/* Implements struct cvy_comm (sums.c). *late: the seconds until the rank before this one had arrived; for a small sum
 * (8 KiB) all the time that it took. */
CVY_CHECKED cvy_status cvy_group_sum(struct cvy_group *group, void *data, int64_t count, enum cvy_comm_type type,
                                     double *late);
CVY_CHECKED cvy_status cvy_group_broadcast(struct cvy_group *group, void *data, size_t bytes, int root);

/* A communicator of ranks that rendezvous at the address of rank 0. */
CVY_CHECKED cvy_status cvy_group_open(struct cvy_comm *comm, const struct cvy_comm_config *place, double timeout,
                                      cvy_link_open open_link);

#endif
