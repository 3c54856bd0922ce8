/* Ranks as threads of a test, connected over the loopback. */
#ifndef CVY_TESTS_SUPPORT_RANKS_H
#define CVY_TESTS_SUPPORT_RANKS_H

#include "comm/comm.h"
#include "support_threads.h"

/* Ranks of one host, as these, have shared memory, but for rank 0, or for all of them. */
enum rank_sharing { MEMORY, NOT_RANK_0, SOCKETS };
extern enum rank_sharing rank_sharing;

struct rank {
    pthread_t thread;
    struct cvy_comm_config place;
    double timeout;
    int64_t count;
    float *numbers; /* (count), for the work */
    cvy_status (*work)(struct rank *rank, struct cvy_comm *comm);
    cvy_status status;
    char sentence[1024];
    double seconds; /* of the work */
};

/* Starts rank->work in a thread, which join_thread ends, once the ranks have met. listener: rank 0's, or -1. */
void start_rank(struct rank *rank, int number, int world, int port, int listener, const char *address);
void start_placed_rank(struct rank *rank); /* the same where rank->place says all */
/* All of them, until they have ended. */
void run_ranks(struct rank *ranks, int world, double timeout,
               cvy_status (*work)(struct rank *rank, struct cvy_comm *comm));
/* Set-up and tear-down of tests: what ranks have from now on. */
int use_sockets(void **state);
int use_both(void **state);
int use_memory(void **state);
/* A test with shared memory, and once over sockets alone, as between hosts. */
#define OVER_BOTH(test) cmocka_unit_test(test), cmocka_unit_test_setup_teardown(test, use_sockets, use_memory)

/* Every rank has succeeded. */
void expect_all(const struct rank *ranks, int world);

#endif
