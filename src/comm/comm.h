/* The processes of a run and the sums over them. One interface: a single process (single.c), ranks that are connected
 * by TCP sockets or by an MPI (group.c, sums.c). Every rank makes the same calls in the same order, one at a time; each
 * returns within the time limit. */
#ifndef CVY_COMM_COMM_H
#define CVY_COMM_COMM_H

#include <stdbool.h>

#include "convoy/status.h"

/* What is summed. The last two are floats in memory, too, that go from rank to rank in 16 bits: each sum of two is made
 * in floats and then rounded. fp16 has a small range: those are multiplied by a power of two with which no sum
 * leaves it that is finite in fp32 (sums.c). Sums of at most 8 KiB travel as they are. */
enum cvy_comm_type { CVY_COMM_F32, CVY_COMM_F64, CVY_COMM_F32_AS_BF16, CVY_COMM_F32_AS_F16 };

struct cvy_comm {
    int rank, world;
    int local_rank, local_world; /* among the ranks of the same host */
    int hosts;
    char transport[48];       /* "tcp", "shared memory", "MPI (Open MPI 4.1.4)"; "" of a single process */
    const char *const *names; /* (world) of the ranks: "rank 2 on host \"b\""; NULL of a single process */
    double seconds;           /* that sums and broadcasts took so far */
    double late;              /* of them, waiting until another rank had come to the same sum */
    void *state;
    /* Sum `count` numbers in the host's memory in place over all ranks. Every rank gets the same bits, and so does
     * every run with as many ranks. */
    cvy_status (*all_reduce)(struct cvy_comm *comm, void *data, int64_t count, enum cvy_comm_type type);
    cvy_status (*broadcast)(struct cvy_comm *comm, void *data, size_t bytes, int root);
    cvy_status (*barrier)(struct cvy_comm *comm);
    /* This rank fails: what all others wait for, or will, fails with this sentence and its name in front. Nothing else
     * but close() may follow. */
    void (*abort)(struct cvy_comm *comm, cvy_status status, const char *why);
    /* Of sums that are done elsewhere, on the ranks' devices (backend/collective.h). This rank has come to some: they
     * count among its calls when it is asked who is late. */
    void (*mark)(struct cvy_comm *comm);
    /* Why the ranks fail, if they do, without waiting. `late`: this rank has waited for its time limit; whose fault
     * that is, always a failure. */
    cvy_status (*reason)(struct cvy_comm *comm, bool late);
    void (*close)(struct cvy_comm *comm);
};
/* The communicator of a single process: every call succeeds and changes nothing. */
void cvy_comm_single(struct cvy_comm *comm);

/* What carries the bytes between ranks. */
enum cvy_comm_over { CVY_OVER_TCP, CVY_OVER_OPENMPI, CVY_OVER_MPICH };
enum { CVY_COMM_OVERS = CVY_OVER_MPICH + 1 };

/* Where this process stands among others, as whoever started it says in the environment. */
struct cvy_comm_place {
    int rank, world; /* world 0: MPI knows */
    enum cvy_comm_over over;
    bool asked;        /* by CONVOY_COMM: nothing else will do */
    char address[256]; /* host of rank 0 */
    int port;
    int listener; /* a socket that listens there already, handed to rank 0; -1: none */
    char key[64]; /* the ranks of a run know each other by it */
};
/* RANK and WORLD_SIZE with MASTER_ADDR and MASTER_PORT (torchrun's names), else those of an MPI's mpirun, else Slurm's
 * of a job step. CONVOY_COMM=tcp|mpi|openmpi|mpich chooses. world is 1 where nobody said anything. CVY_USAGE when they
 * say something impossible. */
CVY_CHECKED cvy_status cvy_comm_find_place(struct cvy_comm_place *place);
/* The address of rank 0 for ranks that an MPI's launcher started and that have no MPI. CVY_USAGE where it is not known.
 */
CVY_CHECKED cvy_status cvy_comm_place_for_tcp(struct cvy_comm_place *place);
/* "tcp", "openmpi", "mpich" */
const char *cvy_comm_over_name(enum cvy_comm_over over);
/* Meet the other ranks. `timeout`: seconds that the meeting, and each later call, takes at most. */
CVY_CHECKED cvy_status cvy_comm_open(struct cvy_comm *comm, const struct cvy_comm_place *place, double timeout);

/* Of small things: the sum over the ranks, and whether any of them says so. */
CVY_CHECKED cvy_status cvy_comm_sum(struct cvy_comm *comm, double *values, int count);
CVY_CHECKED cvy_status cvy_comm_any(struct cvy_comm *comm, bool mine, bool *any);
/* `values` (world), of which each rank knows its own. */
CVY_CHECKED cvy_status cvy_comm_gather(struct cvy_comm *comm, double mine, double *values);
/* The least of the ranks' values. */
CVY_CHECKED cvy_status cvy_comm_least(struct cvy_comm *comm, double *value);
/* The arrays of all ranks, one behind the other: *all, freed with cvy_free. counts (world): the elements of each. */
CVY_CHECKED cvy_status cvy_comm_concat(struct cvy_comm *comm, const void *mine, size_t count, size_t element_bytes,
                                       void **all, size_t *counts);
/* Rank 0's text to all; *text is freed with cvy_free. */
CVY_CHECKED cvy_status cvy_comm_share_text(struct cvy_comm *comm, const char *mine, char **text);

#endif
