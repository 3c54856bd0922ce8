/* Ranks that meet, and what may go wrong then: one dies, foreigns come, two are the same. */
#include <fcntl.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "base/file.h"
#include "base/system.h"
#include "comm/group.h"
#include "comm/pending.h"
#include "comm/socket.h"
#include "support_folder.h"
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
    join_thread(rank.thread);
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

/* The hello of a rank, as rendezvous.c has it, and what follows it on the wire. */
struct hello {
    char magic[8];
    int32_t rank, world, port;
    char host[64];
    struct cvy_proof proof;
};
enum { ANSWER_BYTES = 1024 + 2 * CVY_SHA256_BYTES };

/* Says hello with this key. */
static int say_hello(int rank, int world, int port, const char *key)
{
    struct hello hello = {.rank = rank, .world = world, .port = 9, .host = "mortal"}; /* nobody listens on port 9 */
    const int socket = connect_to(port);
    struct cvy_challenge challenge;
    struct cvy_session session;

    memcpy(hello.magic, "CVYRANK3", 8);
    assert_int_equal(cvy_socket_receive(socket, &challenge, sizeof challenge, cvy_clock() + 5, -1), CVY_SOCKET_DONE);
    assert_int_equal(cvy_proof_make(key, &challenge, &hello, offsetof(struct hello, proof), &hello.proof, &session),
                     CVY_OK);
    assert_int_equal(cvy_socket_send(socket, &hello, sizeof hello, cvy_clock() + 5, -1), CVY_SOCKET_DONE);
    return socket;
}

/* A rank as the others see it: it hears `bytes` of the answer before it dies. */
static void die_as(int rank, int world, int port, size_t bytes)
{
    const int socket = say_hello(rank, world, port, "test");
    char answer[8192];

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
        die_as(2, world, port, answered ? ANSWER_BYTES + 3 * sizeof(struct cvy_peer) : 0);
        for (int i = 0; i < 2; i++) {
            join_thread(ranks[i].thread);
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
        join_thread(ranks[i].thread);
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
    struct {
        int32_t number;
        struct cvy_proof proof;
    } message;
    int port = 0, listener, sockets[SILENT + SPEAKING], heard = 0;
    struct cvy_pending *pending;
    struct cvy_pending_event event;
    bool seen[SPEAKING] = {false};

    assert_int_equal(cvy_socket_listen("127.0.0.1", &port, &listener), CVY_OK);
    assert_int_equal(cvy_pending_open(&pending, listener, sizeof message, SPEAKING, "test"), CVY_OK);
    for (int i = 0; i < SILENT + SPEAKING; i++)
        sockets[i] = connect_to(port);
    assert_int_equal(cvy_pending_next(pending, cvy_clock() + 0.1, NULL, 0, &event), CVY_OK);
    assert_int_equal(event.end, CVY_SOCKET_TIMEOUT);
    for (int i = 0; i < SPEAKING; i++) {
        struct cvy_challenge challenge;
        struct cvy_session session;

        message.number = i;
        assert_int_equal(cvy_socket_receive(sockets[SILENT + i], &challenge, sizeof challenge, cvy_clock() + 5, -1),
                         CVY_SOCKET_DONE);
        assert_int_equal(cvy_proof_make("test", &challenge, &message, sizeof message.number, &message.proof, &session),
                         CVY_OK);
        assert_int_equal(cvy_socket_send(sockets[SILENT + i], &message, sizeof message, cvy_clock() + 5, -1),
                         CVY_SOCKET_DONE);
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

/* Those that do not have the key: none gets in or ends the run, whatever it says; all are counted. */
static void hostile_peers(void **state)
{
    struct rank ranks[3] = {{.timeout = 30}, {.timeout = 30}, {.timeout = 30}};
    int port = 0, listener, foreigns[64], replay;
    struct cvy_challenge challenge;
    struct hello hello = {.rank = 1, .world = 3, .port = 9, .host = "impostor"};

    memcpy(hello.magic, "CVYRANK3", 8);
    assert_int_equal(cvy_socket_listen("127.0.0.1", &port, &listener), CVY_OK);
    ranks[0].work = one_barrier;
    start_rank(&ranks[0], 0, 3, port, listener, "127.0.0.1");
    for (int i = 0; i < 64; i++) /* wrong keys, among them none and the beginning of the right one; wrong worlds */
        foreigns[i] = say_hello(1 + i % 5, 1 + i % 7, port, i % 3 == 0 ? "" : i % 3 == 1 ? "tes" : "other");
    /* A proof that was right for another challenge. */
    replay = connect_to(port);
    assert_int_equal(cvy_socket_receive(replay, &challenge, sizeof challenge, cvy_clock() + 5, -1), CVY_SOCKET_DONE);
    challenge.nonce[0] ^= 1;
    assert_int_equal(cvy_proof_make("test", &challenge, &hello, offsetof(struct hello, proof), &hello.proof,
                                    &(struct cvy_session){.nonces = {0}}),
                     CVY_OK);
    assert_int_equal(cvy_socket_send(replay, &hello, sizeof hello, cvy_clock() + 5, -1), CVY_SOCKET_DONE);
    assert_int_equal(cvy_socket_receive(replay, &challenge, 1, cvy_clock() + 5, -1), CVY_SOCKET_CLOSED);
    for (int i = 1; i < 3; i++) {
        ranks[i].work = one_barrier;
        start_rank(&ranks[i], i, 3, port, -1, "127.0.0.1");
    }
    for (int i = 0; i < 3; i++)
        join_thread(ranks[i].thread);
    expect_all(ranks, 3);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(cvy_socket_receive(foreigns[i], &challenge, 1, cvy_clock() + 5, -1), CVY_SOCKET_CLOSED);
        close(foreigns[i]);
    }
    close(replay);
}

static void start_open_rank(struct rank *rank, int number, int port, int listener)
{
    rank->place = (struct cvy_comm_config){
        .rank = number, .world = 2, .port = port, .listener = listener, .address = "127.0.0.1"};
    start_placed_rank(rank);
}

/* Without a key a wrong hello is told why and sent away; the run goes on. Off the loopback there would be one. */
static void wrong_world_without_key(void **state)
{
    struct rank ranks[2] = {{.timeout = 30, .work = one_barrier}, {.timeout = 30, .work = one_barrier}};
    int port = 0, listener, foreign;
    char answer[ANSWER_BYTES];

    assert_int_equal(cvy_socket_listen("127.0.0.1", &port, &listener), CVY_OK);
    start_open_rank(&ranks[0], 0, port, listener);
    foreign = say_hello(1, 5, port, "");
    assert_int_equal(cvy_socket_receive(foreign, answer, sizeof answer, cvy_clock() + 5, -1), CVY_SOCKET_DONE);
    assert_non_null(strstr(answer + sizeof(uint32_t), "does not fit to this run of 2"));
    close(foreign);
    start_open_rank(&ranks[1], 1, port, -1);
    for (int i = 0; i < 2; i++)
        join_thread(ranks[i].thread);
    expect_all(ranks, 2);
}

/* What listens where rank 0 should does not have the key: a rank does not take part there. */
static void impostor_as_rank_0(void **state)
{
    for (int marked = 0; marked < 2; marked++) { /* it repeats the challenge of the real one */
        struct rank rank = {.timeout = 10, .work = one_barrier};
        int port = 0, listener, socket = -1;
        struct cvy_challenge challenge;
        char from[64], message[sizeof(struct hello)], answer[ANSWER_BYTES + 2 * sizeof(struct cvy_peer)] = {0};

        assert_int_equal(cvy_socket_listen("127.0.0.1", &port, &listener), CVY_OK);
        start_rank(&rank, 1, 2, port, -1, "127.0.0.1");
        while (socket < 0)
            assert_int_equal(cvy_socket_accept(listener, &socket, from, sizeof from), CVY_OK);
        assert_int_equal(cvy_challenge_make(marked ? "test" : "guess", &challenge), CVY_OK);
        assert_int_equal(cvy_socket_send(socket, &challenge, sizeof challenge, cvy_clock() + 5, -1), CVY_SOCKET_DONE);
        if (marked) {
            assert_int_equal(cvy_socket_receive(socket, message, sizeof message, cvy_clock() + 5, -1), CVY_SOCKET_DONE);
            assert_null(memmem(message, sizeof message, "test", 4)); /* no key on the wire */
            assert_int_equal(cvy_socket_send(socket, answer, sizeof answer, cvy_clock() + 5, -1), CVY_SOCKET_DONE);
        }
        join_thread(rank.thread);
        assert_int_equal(rank.status, CVY_FAILED);
        assert_non_null(strstr(rank.sentence, "is not rank 0 of this run"));
        close(socket);
        close(listener);
    }
}

/* Off the loopback rank 0 leaves a key in a file, for its owner alone, until the ranks have met. */
static void key_in_a_file(void **state)
{
    struct rank ranks[2] = {{.timeout = 30, .work = one_barrier}, {.timeout = 30, .work = one_barrier}};
    char address[64], path[512], key[33];
    struct stat about;
    int port = 0, listener;

    cvy_socket_own_address(address, sizeof address);
    if (!address[0])
        skip(); /* only a loopback */
    snprintf(path, sizeof path, "%s", below("run.ranks-key"));
    assert_int_equal(cvy_socket_listen(address, &port, &listener), CVY_OK);
    close(listener);
    assert_int_equal(cvy_file_replace(path, "an old one, that everybody knows", 32), CVY_OK);
    assert_false(cvy_key_file_read(path, key)); /* others may read it */
    for (int i = 1; i >= 0; i--) {
        struct cvy_comm_config *place = &ranks[i].place;

        *place = (struct cvy_comm_config){.rank = i, .world = 2, .port = port, .listener = -1};
        snprintf(place->address, sizeof place->address, "%s", address);
        snprintf(place->key_file, sizeof place->key_file, "%s", path);
        start_placed_rank(&ranks[i]);
        if (i == 1)
            continue;
        while (!cvy_key_file_read(path, key) && cvy_path_exists(path))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        if (stat(path, &about) == 0)
            assert_int_equal(about.st_mode & 0777, 0600);
    }
    for (int i = 0; i < 2; i++)
        join_thread(ranks[i].thread);
    expect_all(ranks, 2);
    assert_false(cvy_path_exists(path));
    assert_int_equal(test_folder_entries(support_folder), 0);
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
        join_thread(ranks[i].thread);
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
            join_thread(ranks[i].thread);
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
          TEST(same_rank_twice), TEST(hostile_peers), TEST(wrong_world_without_key), TEST(impostor_as_rank_0),
          IN_FOLDER(key_in_a_file), TEST(a_crowd), TEST(other_loopbacks), TEST(watch_without_memory))
