/* Sums between GPUs, one process for each: of one GPU with itself alone, and of all that are here, four at most.
 *
 *   test_gpu_nccl DEVICE     77: there is no GPU, or no NCCL. Of "cuda:1" the number is ignored. */
#include <sys/socket.h>
#include <sys/wait.h>

#include "backend/backend.h"
#include "support_test.h"

enum { MOST = 4, COUNT = 100003, ROUNDS = 3, SECONDS = 60 };

static int gpus; /* that are here, MOST at most */

/* ---- in a process for each GPU: exits with 1 and a sentence when something is wrong ---- */

static void must(cvy_status status, const char *what)
{
    if (status == CVY_OK)
        return;
    print_error("%s: %s\n", what, cvy_error());
    _exit(1);
}

static cvy_status no_reason(void *context, bool late)
{
    return late ? cvy_fail(CVY_FAILED, "the sum takes longer than %d s", SECONDS) : CVY_OK;
}

static cvy_device *open_gpu(int index)
{
    cvy_device *device;
    char name[32];

    snprintf(name, sizeof name, "cuda:%d", index);
    must(cvy_device_open(name, 0, &device), name);
    return device;
}

/* Small integers: any order of adding gives the same bits. */
static float number_of(int rank, int round, int i)
{
    return (float)((i * 7 + rank * 13 + round * 5) % 1000 - 500);
}

static void check_sums(cvy_device *device, int world, int rank)
{
    const struct cvy_collective *collective = device->backend->collective;
    /* Each number and each sum of two is rounded, twice over: sums are up to 2 * 500 * world * world, and so is what
     * was rounded before. */
    static const enum cvy_dtype types[ROUNDS] = {CVY_F32, CVY_BF16, CVY_F16};
    static const float unit[ROUNDS] = {0, 0x1p-9f, 0x1p-12f};
    float *host = calloc(COUNT, sizeof *host);
    void *memory;

    must(device->backend->allocate(device, COUNT * sizeof *host, &memory), "memory");
    must(collective->reserve(device, COUNT), "room for 16 bits");
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++)
            host[i] = number_of(rank, round, i);
        must(device->backend->upload(device, memory, host, COUNT * sizeof *host), "a copy");
        /* Two stretches that do not touch, then work on both that must wait for them. */
        must(collective->sum(device, memory, 1000, types[round]), "a sum");
        must(collective->sum(device, (float *)memory + 1000, COUNT - 1000, types[round]), "a sum");
        must(collective->fence(device), "the end of sums");
        must(device->backend->combine(device, CVY_COMBINE_ADD, memory, memory, COUNT, NULL), "doubling");
        /* And a sum that must wait for that work. */
        must(collective->sum(device, memory, COUNT, types[round]), "a sum");
        must(collective->fence(device), "the end of sums");
        must(device->backend->download(device, host, memory, COUNT * sizeof *host), "a copy");
        for (int i = 0; i < COUNT; i++) {
            float expected = 0;
            for (int r = 0; r < world; r++)
                expected += 2 * (float)world * number_of(r, round, i);
            if (!(fabsf(host[i] - expected) <= unit[round] * 8000 * (float)(world * world * world))) {
                print_error("rank %d, round %d: number %d is %g instead of %g\n", rank, round, i, (double)host[i],
                            (double)expected);
                _exit(1);
            }
        }
    }
    device->backend->release(device, memory);
    free(host);
}

/* Numbers far outside f16's range travel in it all the same: they are brought into it together. */
static void check_range(cvy_device *device, int world)
{
    static const float sizes[] = {1e-12f, 1, 1e12f};
    const struct cvy_collective *collective = device->backend->collective;
    float host[8];
    void *memory;

    must(device->backend->allocate(device, sizeof host, &memory), "memory");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int i = 0; i < 8; i++)
            host[i] = sizes[s] * (float)(i - 3);
        must(device->backend->upload(device, memory, host, sizeof host), "a copy");
        must(collective->sum(device, memory, 8, CVY_F16), "a sum");
        must(collective->fence(device), "the end of sums");
        must(device->backend->download(device, host, memory, sizeof host), "a copy");
        for (int i = 0; i < 8; i++) {
            const float expected = (float)world * sizes[s] * (float)(i - 3);
            if (fabsf(host[i] - expected) <= 0x1p-10f * fabsf(expected))
                continue;
            print_error("number %d of size %g is %g instead of %g\n", i, (double)sizes[s], (double)host[i],
                        (double)expected);
            _exit(1);
        }
    }
    device->backend->release(device, memory);
}

/* keys[r]: where rank r gets the key from. */
static void be_rank(int world, int rank, int (*keys)[2])
{
    struct cvy_collective_group group = {.rank = rank, .world = world, .timeout = SECONDS, .reason = no_reason};
    cvy_device *device = open_gpu(rank);
    const struct cvy_collective *collective = device->backend->collective;

    if (rank == 0) {
        must(collective->make_key(device, group.key), "a key");
        for (int r = 1; r < world; r++)
            assert_int_equal(write(keys[r][1], group.key, sizeof group.key), sizeof group.key);
    } else {
        assert_int_equal(read(keys[rank][0], group.key, sizeof group.key), sizeof group.key);
    }
    must(collective->join(device, &group), "joining");
    assert_true(device->joined);
    check_sums(device, world, rank);
    check_range(device, world);
    collective->leave(device, false);
    assert_false(device->joined);
    cvy_device_close(device);
}

/* How many GPUs are here: the exit code, after a sentence where there is none that can sum. */
static void count_gpus(void)
{
    struct cvy_collective_view view;
    cvy_device *device;
    int count = 0;
    char name[32];

    for (; count < MOST; count++) {
        snprintf(name, sizeof name, "cuda:%d", count);
        if (cvy_device_open(name, 0, &device) != CVY_OK)
            break;
        if (!device->backend->collective || device->backend->collective->query(device, &view) != CVY_OK) {
            cvy_device_close(device);
            break;
        }
        cvy_device_close(device);
    }
    if (count == 0)
        print_message("skipped: %s\n", cvy_error());
    fflush(NULL);
    _exit(count);
}

/* ---- the parent: CUDA does not survive a fork, so it never asks for it ---- */

static int wait_for(pid_t child)
{
    int status;

    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void run_world(int world)
{
    int keys[MOST][2];
    pid_t children[MOST];

    for (int r = 0; r < world; r++)
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, keys[r]), 0);
    for (int r = 0; r < world; r++) {
        children[r] = fork();
        assert_true(children[r] >= 0);
        if (children[r] == 0) {
            be_rank(world, r, keys);
            fflush(NULL);
            _exit(0);
        }
    }
    for (int r = 0; r < world; r++)
        assert_int_equal(wait_for(children[r]), 0);
    for (int r = 0; r < world; r++) {
        close(keys[r][0]);
        close(keys[r][1]);
    }
}

static void one_gpu(void **state)
{
    run_world(1);
}

static void several_gpus(void **state)
{
    if (gpus < 2)
        skip();
    run_world(gpus);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_gpu), cmocka_unit_test(several_gpus)};
    pid_t child;

    if (argc != 2 || strncmp(argv[1], "cuda", 4) != 0) {
        print_error("usage: test_gpu_nccl cuda:0\n");
        return 2;
    }
    child = fork();
    if (child == 0)
        count_gpus();
    gpus = wait_for(child);
    if (gpus == 0)
        return 77;
    if (gpus > MOST)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
