/* Ranks as threads of this process, connected over the loopback: sums, broadcasts, and what happens when one fails. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "base/system.h"
#include "comm/comm.h"
#include "comm/half.h"
#include "support_ranks.h"
#include "support_test.h"

enum { MAX_RANKS = 6, MAX_NUMBERS = 100003 };

/* ---- sums ---- */

static float number_of(int rank, int64_t i)
{
    return sinf((float)(i % 1000) + 0.1f * (float)rank) * expf((float)(i % 17) - 8);
}

static cvy_status sum_numbers(struct rank *rank, struct cvy_comm *comm)
{
    for (int64_t i = 0; i < rank->count; i++)
        rank->numbers[i] = number_of(comm->rank, i);
    assert_int_equal(comm->local_world, comm->world);
    assert_int_equal(comm->local_rank, comm->rank);
    assert_int_equal(comm->hosts, 1);
    return comm->all_reduce(comm, rank->numbers, rank->count, CVY_COMM_F32);
}

static void sums(void **state)
{
    static const int64_t counts[] = {1, 3, 100, 2048, 2049, MAX_NUMBERS};
    static const int worlds[] = {2, 3, 6};
    struct rank ranks[MAX_RANKS] = {0};
    float *first = calloc(MAX_NUMBERS, sizeof *first);

    assert_non_null(first);
    for (int i = 0; i < MAX_RANKS; i++)
        assert_non_null(ranks[i].numbers = calloc(MAX_NUMBERS, sizeof *first));
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        const int world = worlds[w];
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            const size_t bytes = (size_t)counts[c] * sizeof *first;

            for (int i = 0; i < world; i++)
                ranks[i].count = counts[c];
            run_ranks(ranks, world, 30, sum_numbers);
            expect_all(ranks, world);
            for (int64_t i = 0; i < counts[c]; i++) {
                double sum = 0, size = 0;
                for (int r = 0; r < world; r++) {
                    sum += (double)number_of(r, i);
                    size += fabs((double)number_of(r, i));
                }
                /* world - 1 additions, each rounded to 2^-24 of at most the sum of the sizes */
                assert_true(fabs(sum - (double)ranks[0].numbers[i]) <= world * 0x1p-24 * size);
            }
            for (int i = 1; i < world; i++)
                assert_memory_equal(ranks[0].numbers, ranks[i].numbers, bytes);
            memcpy(first, ranks[0].numbers, bytes);
            run_ranks(ranks, world, 30, sum_numbers);
            expect_all(ranks, world);
            assert_memory_equal(first, ranks[world - 1].numbers, bytes);
        }
    }
    for (int i = 0; i < MAX_RANKS; i++)
        free(ranks[i].numbers);
    free(first);
}

/* ---- sums of 16-bit numbers ---- */

static cvy_status sum_as_bf16(struct rank *rank, struct cvy_comm *comm)
{
    return comm->all_reduce(comm, rank->numbers, rank->count, CVY_COMM_F32_AS_BF16);
}

static cvy_status sum_as_f16(struct rank *rank, struct cvy_comm *comm)
{
    return comm->all_reduce(comm, rank->numbers, rank->count, CVY_COMM_F32_AS_F16);
}

static float round_to(enum cvy_half half, float value)
{
    uint16_t packed;

    cvy_half_kernels_base[half].pack(&packed, &value, 1);
    cvy_half_kernels_base[half].unpack(&value, &packed, 1);
    return value;
}

/* The power of two that brings the largest numbers' sum below 2^15. */
static float factor_of(const struct rank *before, int world, int64_t count)
{
    double bound = 0;
    float factor = 1;

    for (int r = 0; r < world; r++) {
        double max = 0;
        for (int64_t i = 0; i < count; i++)
            max = fmax(max, isfinite(before[r].numbers[i]) ? fabs((double)before[r].numbers[i]) : 0);
        bound += max;
    }
    for (; bound * (double)factor >= 32768; factor /= 2)
        ;
    for (; bound * (double)factor < 16384; factor *= 2)
        ;
    return factor;
}

/* What the ring does with one number: the part's first rank sends it, each of the others adds its own. */
static float expected_sum(const struct rank *before, int world, int64_t count, int64_t i, enum cvy_half half)
{
    const float factor = half == CVY_HALF_F16 ? factor_of(before, world, count) : 1;
    int part = 0;
    float sum;

    while (part + 1 < world && i >= count / world * (part + 1) + (part + 1 < count % world ? part + 1 : count % world))
        part++;
    sum = before[part].numbers[i] * factor;
    for (int k = 1; k < world; k++)
        sum = before[(part + k) % world].numbers[i] * factor + round_to(half, sum);
    return round_to(half, sum) / factor;
}

static void fill_packed(struct rank *rank, int r, enum cvy_half half)
{
    for (int64_t i = 0; i < rank->count; i++)
        rank->numbers[i] = number_of(r, i) * (i % 5 ? 1 : 1e-7f);
    rank->numbers[7] = 60000; /* the sum of two is more than fp16 holds */
    rank->numbers[8] = r == 1 ? INFINITY : 1;
    rank->numbers[9] = r == 1 ? NAN : 1;
    if (half == CVY_HALF_BF16)
        rank->numbers[10] = 1e38f; /* six of them are more than a float holds */
}

static void check_packed(const struct rank *ranks, const struct rank *before, int world, enum cvy_half half)
{
    const int64_t count = ranks[0].count;

    expect_all(ranks, world);
    for (int64_t i = 0; i < count; i++) {
        const float expected = expected_sum(before, world, count, i, half), sum = ranks[0].numbers[i];
        if (isnan(expected) ? !isnan(sum) : sum != expected)
            fail_msg("number %d of %d ranks: %g instead of %g", (int)i, world, (double)sum, (double)expected);
    }
    assert_true(fabsf(ranks[0].numbers[7] - (float)world * 60000) < (float)world * 256); /* half a unit of bf16 */
    assert_true(isinf(ranks[0].numbers[8]) && isnan(ranks[0].numbers[9]));
    for (int r = 1; r < world; r++)
        assert_memory_equal(ranks[0].numbers, ranks[r].numbers, (size_t)count * sizeof(float));
}

static void packed_sums(void **state)
{
    static const int worlds[] = {2, 3, 6};
    const size_t count = 2500 + 31;
    struct rank ranks[MAX_RANKS] = {0}, before[MAX_RANKS] = {0};

    for (int i = 0; i < MAX_RANKS; i++) {
        assert_non_null(ranks[i].numbers = calloc(count, sizeof(float)));
        assert_non_null(before[i].numbers = calloc(count, sizeof(float)));
        ranks[i].count = (int64_t)count;
    }
    for (int run = 0; run < 6; run++) {
        const int world = worlds[run / 2];
        const enum cvy_half half = run % 2 ? CVY_HALF_F16 : CVY_HALF_BF16;

        for (int r = 0; r < world; r++) {
            fill_packed(&ranks[r], r, half);
            memcpy(before[r].numbers, ranks[r].numbers, count * sizeof(float));
        }
        run_ranks(ranks, world, 30, half == CVY_HALF_F16 ? sum_as_f16 : sum_as_bf16);
        check_packed(ranks, before, world, half);
    }
    for (int i = 0; i < MAX_RANKS; i++) {
        free(ranks[i].numbers);
        free(before[i].numbers);
    }
}

/* ---- small things ---- */

static cvy_status many_calls(struct rank *rank, struct cvy_comm *comm)
{
    char text[700000];
    double values[MAX_RANKS], pair[2] = {comm->rank, 1};
    bool any;

    CVY_TRY(cvy_comm_all_gather(comm, 10 + comm->rank, values));
    for (int i = 0; i < comm->world; i++)
        assert_true(values[i] == 10 + i);
    CVY_TRY(cvy_comm_all_reduce_sum(comm, pair, 2));
    assert_true(pair[0] == comm->world * (comm->world - 1) / 2 && pair[1] == comm->world);
    CVY_TRY(cvy_comm_all_reduce_or(comm, comm->rank == comm->world - 1, &any));
    assert_true(any);
    CVY_TRY(cvy_comm_all_reduce_or(comm, false, &any));
    assert_false(any);
    for (int root = 0; root < comm->world; root++) {
        memset(text, comm->rank == root ? 'a' + root : 0, sizeof text);
        CVY_TRY(comm->broadcast(comm, text, sizeof text, root));
        for (size_t i = 0; i < sizeof text; i += 999)
            assert_int_equal(text[i], 'a' + root);
    }
    return comm->barrier(comm);
}

static void small_things(void **state)
{
    struct rank ranks[MAX_RANKS] = {0};

    run_ranks(ranks, 2, 30, many_calls);
    expect_all(ranks, 2);
    run_ranks(ranks, 5, 30, many_calls);
    expect_all(ranks, 5);
}

static void counted_ranks(void **state)
{
    double value = 8, values[3];
    struct cvy_comm comm;

    cvy_comm_single(&comm);
    comm.world = 3; /* as a dry run does */
    assert_int_equal(cvy_comm_all_reduce_min(&comm, &value), CVY_OK);
    assert_true(value == 8);
    assert_int_equal(cvy_comm_all_gather(&comm, 5, values), CVY_OK);
    assert_true(values[0] == 5 && values[1] == 5 && values[2] == 5);
}

/* ---- failures ---- */

static cvy_status last_fails(struct rank *rank, struct cvy_comm *comm)
{
    double one = 1;

    CVY_TRY(cvy_comm_all_reduce_sum(comm, &one, 1));
    if (comm->rank < comm->world - 1)
        return cvy_comm_all_reduce_sum(comm, &one, 1);
    comm->abort(comm, CVY_BAD_DATA, "the cat sat on the disk");
    return CVY_OK;
}

static void one_aborts(void **state)
{
    struct rank ranks[4] = {0};

    run_ranks(ranks, 4, 30, last_fails);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ranks[i].status, CVY_BAD_DATA);
        assert_non_null(strstr(ranks[i].sentence, "rank 3 on host"));
        assert_non_null(strstr(ranks[i].sentence, "the cat sat on the disk"));
        assert_true(ranks[i].seconds < 10);
    }
}

static cvy_status one_sleeps(struct rank *rank, struct cvy_comm *comm)
{
    double one = 1;

    CVY_TRY(cvy_comm_all_reduce_sum(comm, &one, 1));
    for (int i = 0; comm->rank == 1 && i < 40; i++) /* alive, and elsewhere */
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    return cvy_comm_all_reduce_sum(comm, &one, 1);
}

static void one_is_late(void **state)
{
    struct rank ranks[3] = {0};

    run_ranks(ranks, 3, 1.5, one_sleeps);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ranks[i].status, CVY_FAILED);
        if (!strstr(ranks[i].sentence, "rank 1 on host") || !strstr(ranks[i].sentence, "did not come"))
            fail_msg("rank %d: %s", i, ranks[i].sentence);
    }
    assert_true(ranks[0].seconds < 3.5 && ranks[2].seconds < 3.5); /* the limit, and what judging takes */
}

static cvy_status different_sums(struct rank *rank, struct cvy_comm *comm)
{
    float numbers[5000] = {0};
    cvy_status status = comm->all_reduce(comm, numbers, comm->rank == 1 ? 4000 : 5000, CVY_COMM_F32);

    if (status != CVY_OK)
        comm->abort(comm, status, cvy_error());
    return status;
}

static void a_mix_up(void **state)
{
    struct rank ranks[2] = {0};

    run_ranks(ranks, 2, 20, different_sums);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, CVY_FAILED);
        assert_non_null(strstr(ranks[i].sentence, "different things"));
    }
}

/* ---- the environment ---- */

static void clear_environment(void)
{
    static const char *const names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_ID",
                                        "SLURM_LOCALID",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_NODELIST",
                                        "SLURM_JOB_NODELIST",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "CONVOY_COMM_PORT",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "PMIX_RANK",
                                        "PMIX_NAMESPACE",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "CONVOY_COMM",
                                        "CONVOY_COMM_KEY"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static void places(void **state)
{
    struct cvy_comm_config place;

    clear_environment();
    assert_int_equal(cvy_comm_find_config(&place), CVY_OK);
    assert_int_equal(place.world, 1);
    setenv("RANK", "2", 1);
    assert_fails(cvy_comm_find_config(&place), CVY_USAGE, "WORLD_SIZE");
    setenv("WORLD_SIZE", "4", 1);
    assert_fails(cvy_comm_find_config(&place), CVY_USAGE, "MASTER_ADDR");
    setenv("MASTER_ADDR", "node7", 1);
    setenv("MASTER_PORT", "1234", 1);
    assert_int_equal(cvy_comm_find_config(&place), CVY_OK);
    assert_true(place.rank == 2 && place.world == 4 && place.port == 1234);
    assert_string_equal(place.address, "node7");
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1); /* torchrun listens there itself */
    assert_int_equal(cvy_comm_find_config(&place), CVY_OK);
    assert_int_equal(place.port, 1235);
    setenv("CONVOY_COMM_PORT", "4000", 1);
    assert_int_equal(cvy_comm_find_config(&place), CVY_OK);
    assert_int_equal(place.port, 4000);
    setenv("RANK", "4", 1);
    assert_int_equal(cvy_comm_find_config(&place), CVY_USAGE);
    setenv("RANK", "one", 1);
    assert_int_equal(cvy_comm_find_config(&place), CVY_USAGE);
    clear_environment();
    setenv("SLURM_PROCID", "5", 1); /* a batch script: no step, nobody else */
    setenv("SLURM_STEP_NUM_TASKS", "8", 1);
    setenv("SLURM_JOB_ID", "4321", 1);
    setenv("SLURM_STEP_NODELIST", "gpu[007-010,12],big3", 1);
    assert_int_equal(cvy_comm_find_config(&place), CVY_OK);
    assert_int_equal(place.world, 1);
    setenv("SLURM_STEP_ID", "0", 1);
    assert_int_equal(cvy_comm_find_config(&place), CVY_OK);
    assert_true(place.rank == 5 && place.world == 8 && place.port >= 29500 && place.port < 30500);
    assert_string_equal(place.address, "gpu007");
    assert_string_equal(place.key, "4321.0");
    const int port = place.port;
    setenv("SLURM_STEP_ID", "1", 1); /* beside the other */
    assert_int_equal(cvy_comm_find_config(&place), CVY_OK);
    assert_true(place.port != port);
    assert_string_equal(place.key, "4321.1");
    setenv("SLURM_STEP_NODELIST", "one,two", 1);
    assert_int_equal(cvy_comm_find_config(&place), CVY_OK);
    assert_string_equal(place.address, "one");
    clear_environment();
}

static struct cvy_comm_config expect_config(int rank, int world, enum cvy_comm_transport over)
{
    struct cvy_comm_config place;

    assert_int_equal(cvy_comm_find_config(&place), CVY_OK);
    assert_int_equal(place.rank, rank);
    assert_int_equal(place.world, world);
    assert_int_equal(place.over, over);
    return place;
}

static void set_all(const char *const pairs[][2], size_t count)
{
    for (size_t i = 0; i < count; i++)
        setenv(pairs[i][0], pairs[i][1], 1);
}

static void places_of_mpi(void **state)
{
    static const char *const openmpi[][2] = {{"OMPI_COMM_WORLD_RANK", "3"},
                                             {"OMPI_COMM_WORLD_SIZE", "5"},
                                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "5"},
                                             {"PMIX_RANK", "3"},
                                             {"PMIX_NAMESPACE", "job7"}};
    static const char *const mpich[][2] = {
        {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}};
    static const char *const step[][2] = {{"SLURM_STEP_ID", "0"},
                                          {"SLURM_PROCID", "6"},
                                          {"SLURM_STEP_NUM_TASKS", "7"},
                                          {"SLURM_LOCALID", "0"},
                                          {"SLURM_STEP_NODELIST", "n[1-2]"}};
    struct cvy_comm_config place;

    clear_environment();
    set_all(openmpi, 6);
    set_all(step, 5); /* of the daemon that started the process, not its own */
    place = expect_config(3, 5, CVY_TRANSPORT_OPENMPI);
    assert_true(!place.asked);
    setenv("CONVOY_COMM", "tcp", 1);
    place = expect_config(3, 5, CVY_TRANSPORT_TCP);
    assert_true(place.asked && place.port >= 29500 && place.port < 30500);
    assert_string_equal(place.address, "127.0.0.1");
    assert_string_equal(place.key, "job7");
    setenv("CONVOY_COMM", "mpich", 1);
    (void)expect_config(3, 5, CVY_TRANSPORT_MPICH);
    setenv("CONVOY_COMM", "mpi", 1);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "one", 1);
    (void)expect_config(3, 5, CVY_TRANSPORT_OPENMPI);
    unsetenv("CONVOY_COMM");
    (void)expect_config(0, 2, CVY_TRANSPORT_TCP); /* torchrun's below mpirun */
    clear_environment();
    set_all(mpich, 4);
    place = expect_config(1, 2, CVY_TRANSPORT_MPICH);
    assert_int_equal(cvy_comm_config_for_tcp(&place), CVY_USAGE); /* on two hosts: which is rank 0's? */
    assert_error("MASTER_ADDR");
    clear_environment();
    set_all(step, 5);
    (void)expect_config(6, 7, CVY_TRANSPORT_TCP); /* plain srun */
    setenv("PMIX_RANK", "6", 1);                  /* with --mpi=pmix, which may be the cluster's default */
    setenv("PMIX_NAMESPACE", "slurm.pmix.77.0", 1);
    place = expect_config(6, 7, CVY_TRANSPORT_TCP);
    assert_string_equal(place.address, "n1");
    setenv("CONVOY_COMM", "mpi", 1);
    place = expect_config(6, 7, CVY_TRANSPORT_OPENMPI);
    assert_int_equal(cvy_comm_config_for_tcp(&place), CVY_OK);
    assert_string_equal(place.address, "n1");
    unsetenv("CONVOY_COMM");
    setenv("PMIX_NAMESPACE", "prterun-1", 1); /* in a step's shell, whose numbers are not these */
    (void)expect_config(6, 0, CVY_TRANSPORT_OPENMPI);
    clear_environment();
    setenv("PMIX_RANK", "1", 1);
    place = expect_config(1, 0, CVY_TRANSPORT_OPENMPI); /* MPI knows of how many */
    assert_int_equal(cvy_comm_config_for_tcp(&place), CVY_USAGE);
    clear_environment();
    setenv("CONVOY_COMM", "openmpi", 1);
    assert_fails(cvy_comm_find_config(&place), CVY_USAGE, "mpirun");
    setenv("CONVOY_COMM", "pigeon", 1);
    assert_int_equal(cvy_comm_find_config(&place), CVY_USAGE);
    clear_environment();
}

/* Some lines are memory and some are sockets. */
static void sums_of_three(void **state)
{
    struct rank ranks[3] = {0};

    for (int i = 0; i < 3; i++) {
        ranks[i].count = MAX_NUMBERS;
        assert_non_null(ranks[i].numbers = calloc(MAX_NUMBERS, sizeof(float)));
    }
    run_ranks(ranks, 3, 30, sum_numbers);
    expect_all(ranks, 3);
    for (int i = 1; i < 3; i++)
        assert_memory_equal(ranks[0].numbers, ranks[i].numbers, MAX_NUMBERS * sizeof(float));
    for (int i = 0; i < 3; i++)
        free(ranks[i].numbers);
    run_ranks(ranks, 3, 30, many_calls);
    expect_all(ranks, 3);
}

/* ---- the tests' own ---- */

static cvy_status assert_the_impossible(struct rank *rank, struct cvy_comm *comm)
{
    if (comm->rank == 1)
        assert_int_equal(comm->world, -7);
    return comm->barrier(comm);
}

/* In another process: what a rank asserts in vain ends it at once, with the values on stderr. */
static void assertions_of_ranks_are_seen(void **state)
{
    struct rank ranks[2] = {0};
    char text[512] = "";
    size_t length = 0;
    ssize_t got;
    int ends[2], status;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit no_core = {0, 0};

        setrlimit(RLIMIT_CORE, &no_core);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        run_ranks(ranks, 2, 30, assert_the_impossible);
        _exit(0);
    }
    close(ends[1]);
    while (length < sizeof text - 1 && (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "test_comm.c"));
    assert_non_null(strstr(text, "0x2 != 0xfffffffffffffff9"));
    assert_null(getenv("CMOCKA_TEST_ABORT"));
}

RUN_TESTS(NULL, NULL, TEST(assertions_of_ranks_are_seen), OVER_BOTH(sums), OVER_BOTH(packed_sums),
          OVER_BOTH(small_things), cmocka_unit_test_setup_teardown(sums_of_three, use_both, use_memory),
          OVER_BOTH(one_aborts), OVER_BOTH(one_is_late), OVER_BOTH(a_mix_up), TEST(counted_ranks), TEST(places),
          TEST(places_of_mpi))
