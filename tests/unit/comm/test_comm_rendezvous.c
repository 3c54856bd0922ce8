/* Ranks that meet, and what may go wrong then: one dies, foreigns come, two are the same. */
#include <fcntl.h>
#include <sys/socket.h>
#include <time.h>

#include "base/system.h"
#include "comm/group.h"
#include "comm/pending.h"
#include "comm/socket.h"
#include "support_ranks.h"
#include "support_test.h"

/* A rank that never comes, and a foreign connection that does. */
static void no_rank_connects(void **state)
{
    struct rank rank = {.timeout = 1};
    int port = 0, listener, foreign;

    assert_int_equal(cvy_socket_listen("127.0.0.1", &port, &listener), CVY_OK);
    start_rank(&rank, 0, 2, port, listener, "127.0.0.1");
    assert_int_equal(cvy_socket_connect("127.0.0.1", port, cvy_clock() + 5, false, -1, &foreign), CVY_OK);
    assert_int_equal(cvy_socket_send(foreign, "GET / HTTP/1.1\r\n\r\n", 18, cvy_clock() + 1, -1), CVY_SOCKET_DONE);
    close(foreign);
    assert_int_equal(pthread_join(rank.thread, NULL), 0);
    assert_int_equal(rank.status, CVY_FAILED);
    assert_non_null(strstr(rank.sentence, "did not come: 1"));
}

static cvy_status one_barrier(struct rank *rank, struct cvy_comm *comm)
{
    return comm->barrier(comm);
}

static int connect_to(int port)
{
    int socket;

    assert_int_equal(cvy_socket_connect("127.0.0.1", port, cvy_clock() + 5, true, -1, &socket), CVY_OK);
    return socket;
}

/* A rank as the others see it: it says hello as rendezvous.c has it, and hears `bytes` of the answer before it dies. */
static void die_as(int rank, int world, int port, size_t bytes)
{
    struct {
        char magic[8];
        int32_t rank, world, port;
        char key[64], host[64];
    } hello = {.rank = rank, .world = world, .port = 9, .key = "test", .host = "mortal"}; /* nobody listens on port 9 */
    const int socket = connect_to(port);
    char answer[8192];

    memcpy(hello.magic, "CVYRANK2", 8);
    assert_int_equal(cvy_socket_send(socket, &hello, sizeof hello, cvy_clock() + 5, -1), CVY_SOCKET_DONE);
    if (bytes > 0)
        assert_int_equal(cvy_socket_receive(socket, answer, bytes, cvy_clock() + 5, -1), CVY_SOCKET_DONE);
    close(socket);
}

/* Rank 2 dies before rank 0 has answered, then after it. The others know at once, and know who. */
static void one_dies_during_rendezvous(void **state)
{
    for (int answered = 0; answered < 2; answered++) {
        struct rank ranks[2] = {{.timeout = 30, .work = one_barrier}, {.timeout = 30, .work = one_barrier}};
        const int world = answered ? 3 : 4; /* rank 3 never comes */
        const double begin = cvy_clock();
        int port = 0, listener;

        assert_int_equal(cvy_socket_listen("127.0.0.1", &port, &listener), CVY_OK);
        for (int i = 0; i < 2; i++)
            start_rank(&ranks[i], i, world, port, listener, "127.0.0.1");
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        die_as(2, world, port, answered ? 1024 + 3 * sizeof(struct cvy_peer) : 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
            assert_int_equal(ranks[i].status, CVY_FAILED);
            if (!strstr(ranks[i].sentence, "rank 2 on host \"mortal\""))
                fail_msg("rank %d: %s", i, ranks[i].sentence);
        }
        assert_true(cvy_clock() - begin < 10);
    }
}

/* Visitors that say nothing, to rank 0: they hold nobody up. */
static void silent_connections(void **state)
{
    struct rank ranks[3] = {{.timeout = 30}, {.timeout = 30}, {.timeout = 30}};
    int foreigns[4], port = 0, listener;
    double begin;

    assert_int_equal(cvy_socket_listen("127.0.0.1", &port, &listener), CVY_OK);
    for (int i = 0; i < 4; i++)
        foreigns[i] = connect_to(port);
    begin = cvy_clock();
    for (int i = 0; i < 3; i++) {
        ranks[i].work = one_barrier;
        start_rank(&ranks[i], i, 3, port, listener, "127.0.0.1");
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
    expect_all(ranks, 3);
    assert_true(cvy_clock() - begin < 5); /* two seconds for each of the four */
    for (int i = 0; i < 4; i++)
        close(foreigns[i]);
}

/* More than wait at a time come before anybody looks. Those who have spoken are heard, whoever was silent before them.
 */
static void a_crowd(void **state)
{
    enum { SILENT = 70, SPEAKING = 100 };
    int port = 0, listener, sockets[SILENT + SPEAKING], heard = 0;
    struct cvy_pending *pending;
    struct cvy_pending_event event;
    bool seen[SPEAKING] = {false};

    assert_int_equal(cvy_socket_listen("127.0.0.1", &port, &listener), CVY_OK);
    assert_int_equal(cvy_pending_open(&pending, listener, sizeof(int32_t), 1), CVY_OK);
    for (int i = 0; i < SILENT + SPEAKING; i++) {
        const int32_t number = i - SILENT;

        sockets[i] = connect_to(port);
        if (number >= 0)
            assert_int_equal(cvy_socket_send(sockets[i], &number, sizeof number, cvy_clock() + 5, -1), CVY_SOCKET_DONE);
    }
    for (;;) {
        int32_t number;

        assert_int_equal(cvy_pending_next(pending, cvy_clock() + 0.3, NULL, 0, &event), CVY_OK);
        if (event.end != CVY_SOCKET_DONE)
            break;
        memcpy(&number, event.hello, sizeof number);
        assert_true(number >= 0 && number < SPEAKING && !seen[number]);
        seen[number] = true;
        heard++;
        close(event.socket);
    }
    assert_int_equal(event.end, CVY_SOCKET_TIMEOUT);
    assert_int_equal(heard, SPEAKING);
    cvy_pending_close(pending);
    for (int i = 0; i < SILENT + SPEAKING; i++)
        close(sockets[i]);
    close(listener);
}

/* All end with the same code and sentence. */
static void same_rank_twice(void **state)
{
    static const int numbers[] = {0, 1, 1};
    struct rank ranks[3] = {{.timeout = 30}, {.timeout = 30}, {.timeout = 30}};
    int port = 0, listener;

    assert_int_equal(cvy_socket_listen("127.0.0.1", &port, &listener), CVY_OK);
    for (int i = 0; i < 3; i++) {
        ranks[i].work = one_barrier;
        start_rank(&ranks[i], numbers[i], 3, port, listener, "127.0.0.1");
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
        assert_int_equal(ranks[i].status, CVY_USAGE);
        assert_non_null(strstr(ranks[i].sentence, "two processes have the same rank"));
    }
}

/* Rank 0 listens where it is said to be. */
static void other_loopbacks(void **state)
{
    static const char *const addresses[] = {"127.0.1.1", "::1", "localhost"};

    for (int a = 0; a < 3; a++) {
        struct rank ranks[3] = {{.timeout = 10}, {.timeout = 10}, {.timeout = 10}};
        int port = 0, listener;

        if (cvy_socket_listen(addresses[a], &port, &listener) != CVY_OK && strcmp(addresses[a], "::1") == 0)
            continue; /* a system without IPv6 */
        close(listener);
        for (int i = 0; i < 3; i++) {
            ranks[i].work = one_barrier;
            start_rank(&ranks[i], i, 3, port, -1, addresses[a]);
        }
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
        expect_all(ranks, 3);
    }
}

/* Without memory the watch closes what it was given, and nothing else. */
static void watch_without_memory(void **state)
{
    const char *const names[] = {"rank 0", "rank 1"};
    struct cvy_watch *watch;

    for (int n = 1; n <= 3; n++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        const int sockets[] = {-1, pair[0]};
        const struct cvy_watch_options options = {.world = 2, .timeout = 5, .sockets = sockets, .names = names};

        cvy_memory_fail_after(n, false);
        assert_int_equal(cvy_watch_open(&watch, &options), CVY_NO_MEMORY);
        cvy_memory_fail_after(0, false);
        assert_null(watch);
        assert_int_equal(fcntl(pair[0], F_GETFD), -1);
        assert_true(fcntl(STDIN_FILENO, F_GETFD) != -1);
        close(pair[1]);
    }
}

RUN_TESTS(NULL, NULL, TEST(no_rank_connects), TEST(one_dies_during_rendezvous), TEST(silent_connections),
          TEST(same_rank_twice), TEST(a_crowd), TEST(other_loopbacks), TEST(watch_without_memory))
