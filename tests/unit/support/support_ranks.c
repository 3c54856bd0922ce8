#include "support_ranks.h"
#include "base/system.h"
#include "comm/socket.h"
#include "support_test.h"

enum rank_sharing rank_sharing;

static const char *transport_of(const struct cvy_comm *comm)
{
    if (rank_sharing == NOT_RANK_0 && comm->world > 2 && comm->rank > 0)
        return "shared memory and tcp"; /* of the ranks in these tests each has a line to rank 0 and one to another */
    return rank_sharing == MEMORY ? "shared memory" : "tcp";
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    struct cvy_comm comm;

    rank->status = cvy_comm_open(&comm, &rank->place, rank->timeout);
    if (rank->status == CVY_OK) {
        assert_string_equal(comm.transport, transport_of(&comm));
        const double start = cvy_clock();
        rank->status = rank->work(rank, &comm);
        rank->seconds = cvy_clock() - start;
        cvy_error_get(rank->sentence, sizeof rank->sentence);
        comm.close(&comm);
    } else {
        cvy_error_get(rank->sentence, sizeof rank->sentence);
    }
    return NULL;
}

void start_rank(struct rank *rank, int number, int world, int port, int listener, const char *address)
{
    rank->place =
        (struct cvy_comm_config){.rank = number,
                                 .world = world,
                                 .asked = rank_sharing == SOCKETS || (rank_sharing == NOT_RANK_0 && number == 0),
                                 .port = port,
                                 .listener = number ? -1 : listener,
                                 .key = "test",
                                 .secret = true};
    strcpy(rank->place.address, address);
    start_placed_rank(rank);
}

void start_placed_rank(struct rank *rank)
{
    start_thread(&rank->thread, run_rank, rank);
}

void run_ranks(struct rank *ranks, int world, double timeout,
               cvy_status (*work)(struct rank *rank, struct cvy_comm *comm))
{
    int port = 0, listener;

    assert_int_equal(cvy_socket_listen("127.0.0.1", &port, &listener), CVY_OK);
    for (int i = 0; i < world; i++) {
        ranks[i].timeout = timeout;
        ranks[i].work = work;
        start_rank(&ranks[i], i, world, port, listener, "127.0.0.1");
    }
    for (int i = 0; i < world; i++)
        join_thread(ranks[i].thread);
}

void expect_all(const struct rank *ranks, int world)
{
    for (int i = 0; i < world; i++) {
        if (ranks[i].status != CVY_OK)
            fail_msg("rank %d: %s", i, ranks[i].sentence);
    }
}

int use_sockets(void **state)
{
    rank_sharing = SOCKETS;
    return 0;
}

int use_both(void **state)
{
    rank_sharing = NOT_RANK_0;
    return 0;
}

int use_memory(void **state)
{
    rank_sharing = MEMORY;
    return 0;
}
