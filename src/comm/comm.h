/* The processes of a run and the collectives over them. One interface: a single process (single.c), or ranks that are
 * connected by TCP sockets or by MPI (group.c, sums.c). Every rank makes the same calls in the same order, one at a
 * time; each returns within the time limit. */
#ifndef CVY_COMM_COMM_H
#define CVY_COMM_COMM_H

#include <stdbool.h>

#include "convoy/status.h"

/* What is summed. The last two are floats in memory, too, but sent between ranks in 16 bits: each partial sum is
 * computed in fp32 and then rounded. fp16 has a small range, so values are scaled by a power of two such that no sum
 * overflows that is finite in fp32 (sums.c). Sums of at most 8 KiB are sent in fp32. */
enum cvy_comm_type { CVY_COMM_F32, CVY_COMM_F64, CVY_COMM_F32_AS_BF16, CVY_COMM_F32_AS_F16 };

struct cvy_comm {
    int rank, world;
    int local_rank, local_world; /* among the ranks of the same host */
    int hosts;
    char transport[48];       /* "tcp", "shared memory", "MPI (Open MPI 4.1.4)"; "" of a single process */
    const char *const *names; /* (world) of the ranks: "rank 2 on host \"b\""; NULL of a single process */
    double seconds;           /* spent in sums and broadcasts so far */
    double late;              /* the part of it spent waiting for other ranks to reach the same sum */
    void *state;
    /* Sums `count` numbers in host memory in place over all ranks. Every rank gets the same bits, and so does every run
     * with as many ranks. */
    cvy_status (*all_reduce)(struct cvy_comm *comm, void *data, int64_t count, enum cvy_comm_type type);
    cvy_status (*broadcast)(struct cvy_comm *comm, void *data, size_t bytes, int root);
    cvy_status (*barrier)(struct cvy_comm *comm);
    /* This rank fails: the current or next call of all others fails with this sentence, prefixed with this rank's name.
     * Only close() may follow. */
    void (*abort)(struct cvy_comm *comm, cvy_status status, const char *why);
    /* For sums that are done elsewhere, on the ranks' devices (backend/collective.h): this rank has reached some. They
     * count among its calls when the watch looks for the rank that is late. */
    void (*mark)(struct cvy_comm *comm);
    /* Why the ranks fail, if they do, without blocking. `late`: this rank's time limit has expired; names the rank at
     * fault, always a failure. */
    cvy_status (*reason)(struct cvy_comm *comm, bool late);
    void (*close)(struct cvy_comm *comm);
};
/* The communicator of a single process: every call succeeds and changes nothing. */
void cvy_comm_single(struct cvy_comm *comm);

/* The transport between ranks. */
enum cvy_comm_transport { CVY_TRANSPORT_TCP, CVY_TRANSPORT_OPENMPI, CVY_TRANSPORT_MPICH };
enum { CVY_TRANSPORT_COUNT = CVY_TRANSPORT_MPICH + 1 };

enum { CVY_COMM_KEY_BYTES = 256 };
/* The place of this process among the ranks, as its launcher describes it in the environment. */
struct cvy_comm_config {
    int rank, world; /* world 0: MPI knows */
    enum cvy_comm_transport over;
    bool asked;        /* requested by CONVOY_COMM: no fallback */
    char address[256]; /* host of rank 0 */
    int port;
    int listener;                 /* a socket that already listens there, inherited by rank 0; -1: none */
    char key[CVY_COMM_KEY_BYTES]; /* identifies the run to its ranks, who prove that they have it */
    bool secret;                  /* not a number that others may know, too */
    char key_file[4096]; /* where there is no secret and rank 0 is on a network: the file in which rank 0 leaves one for
                            the others; "": nowhere */
};
/* RANK and WORLD_SIZE with MASTER_ADDR and MASTER_PORT (torchrun's names), else those of an MPI's mpirun, else Slurm's
 * of a job step. CONVOY_COMM=tcp|mpi|openmpi|mpich chooses. world is 1 where none of them is set. CVY_USAGE when they
 * contradict each other. */
CVY_CHECKED cvy_status cvy_comm_find_config(struct cvy_comm_config *place);
/* The address of rank 0 for ranks that an MPI launcher started but that have no MPI module. CVY_USAGE where it is not
 * known.
 */
CVY_CHECKED cvy_status cvy_comm_config_for_tcp(struct cvy_comm_config *place);
/* "tcp", "openmpi", "mpich" */
const char *cvy_comm_transport_name(enum cvy_comm_transport over);
/* Rendezvous with the other ranks. `timeout`: the limit in seconds for the rendezvous and for each later call. */
CVY_CHECKED cvy_status cvy_comm_open(struct cvy_comm *comm, const struct cvy_comm_config *place, double timeout);

/* For a few numbers: the sum over the ranks, and the logical or. */
CVY_CHECKED cvy_status cvy_comm_all_reduce_sum(struct cvy_comm *comm, double *values, int count);
CVY_CHECKED cvy_status cvy_comm_all_reduce_or(struct cvy_comm *comm, bool mine, bool *any);
/* All-gather of one number: `values` (world) receives each rank's `mine`. */
CVY_CHECKED cvy_status cvy_comm_all_gather(struct cvy_comm *comm, double mine, double *values);
/* The minimum over the ranks. */
CVY_CHECKED cvy_status cvy_comm_all_reduce_min(struct cvy_comm *comm, double *value);
/* All-gather of arrays of different lengths, concatenated in rank order: *all, freed with cvy_free. counts (world): the
 * elements of each. */
CVY_CHECKED cvy_status cvy_comm_all_gather_v(struct cvy_comm *comm, const void *mine, size_t count,
                                             size_t element_bytes, void **all, size_t *counts);
/* Broadcasts rank 0's text; *text is freed with cvy_free. */
CVY_CHECKED cvy_status cvy_comm_broadcast_text(struct cvy_comm *comm, const char *mine, char **text);

#endif
