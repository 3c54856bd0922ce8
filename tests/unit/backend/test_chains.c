/* Plans on the cpu device some of whose steps are run part by part: which ones, what lies in the threads' memory, and
 * that loss, gradients and running statistics have the bits of the plan without. */
#include "backend/plan.h"
#include "base/system.h"
#include "support_bottleneck.h"
#include "support_executor.h"
#include "support_test.h"
#include "support_tiles.h"

struct found {
    char text[2048];
    int local, copied;
};

static void inspect(const struct cvy_plan *plan, void *context)
{
    struct found *const found = context;

    *found = (struct found){.text = ""};
    for (int32_t c = 0; c < plan->chain_count; c++) {
        const struct cvy_plan_chain *const chain = &plan->chains[c];
        for (int32_t i = 0; i < chain->chain.local_count; i++)
            found->copied += chain->chain.locals[i].copied;
        for (int32_t s = chain->from; s < chain->end; s++) {
            const size_t at = strlen(found->text);
            snprintf(found->text + at, sizeof found->text - at, "%s%s",
                     strchr(plan->steps[s].kernel.kernel->name, '.') + 1, s + 1 < chain->end ? " " : ", ");
        }
    }
    for (int32_t t = 0; t < plan->tensor_count; t++)
        found->local += plan->tensors[t].local;
}

/* Three images of 12 x 10 have too few pixels for gradients of weights to be sums of pieces, of 40 there are two, which
 * one or two threads share. Forward a block's last batch norm is followed by the next block's first convolution; where
 * there is a projection, its batch norm comes before. The outputs of the blocks are made again one after the other.
 * Backward a batch norm's gradient is read by the gradients of the convolution before it, and the stem's, of the first
 * block's two convolutions, is a sum that the second one makes; frozen ones have the gradient of data alone.
 * In closed form a block's last convolution stands for its batch norm, and backward what is subtracted is made by a
 * convolution for the gradient of the data behind it. */
#define FORWARD      "batch_norm batch_norm conv2d_tiles, "
#define AGAIN        "batch_norm_apply batch_norm_apply batch_norm_apply, "
#define BACKWARD     "batch_norm_bwd conv2d_bwd_weights_tiles conv2d_bwd_data_tiles, "
#define WEIGHTS      "batch_norm_bwd conv2d_bwd_weights_tiles, "
#define DATA         "batch_norm_bwd conv2d_bwd_data_tiles, "
#define SUM          "batch_norm_bwd conv2d_bwd_data_tiles conv2d_bwd_data_tiles, "
#define SUM_WEIGHTS  "batch_norm_bwd conv2d_bwd_data_tiles conv2d_bwd_data_tiles conv2d_bwd_weights_tiles, "
#define FIRST_THREE  FORWARD "batch_norm conv2d_tiles, batch_norm batch_norm, batch_norm_apply batch_norm_apply, "
#define CLOSED       "batch_norm conv2d_tiles conv2d_tiles, "
#define LESS         "conv2d_tiles conv2d_bwd_data_tiles, "
#define CLOSED_THREE CLOSED "conv2d_tiles conv2d_tiles, batch_norm batch_norm, batch_norm_apply batch_norm_apply, "
static const struct {
    struct bottleneck_network network;
    bool closed; /* batch norms at blocks' ends */
    int64_t batch;
    struct found two, more; /* with one thread or two; with more */
} cases[] = {
    {{12, 10, 1, 0, NULL}, false, 3, {FORWARD AGAIN DATA SUM, 3, 2}, {FORWARD AGAIN DATA SUM, 3, 2}},
    {{12, 10, 1, 0, NULL},
     false,
     40,
     {FORWARD AGAIN BACKWARD DATA WEIGHTS SUM_WEIGHTS, 5, 2},
     {FORWARD AGAIN DATA SUM, 3, 2}},
    {{12, 10, 1, 0, "first.conv1.weight,first.projection.weight"},
     false,
     3,
     {FORWARD AGAIN DATA SUM, 4, 2},
     {FORWARD AGAIN DATA SUM, 4, 2}},
    {{7, 7, 2, 1, NULL}, false, 3, {FIRST_THREE AGAIN SUM, 5, 3}, {FIRST_THREE AGAIN SUM, 5, 3}},
    {{12, 10, 1, 0, NULL},
     true,
     40,
     {CLOSED BACKWARD WEIGHTS "batch_norm_apply conv2d_bwd_weights_tiles, " LESS SUM_WEIGHTS, 5, 2},
     {CLOSED LESS SUM, 3, 1}},
    {{7, 7, 2, 1, NULL},
     true,
     3,
     {CLOSED_THREE "conv2d_bwd_data_tiles conv2d_bwd_data_tiles, " LESS LESS, 6, 2},
     {CLOSED_THREE "conv2d_bwd_data_tiles conv2d_bwd_data_tiles, " LESS LESS, 6, 2}},
};

static const struct found nothing = {"", 0, 0};

static void expect(const struct found *found, const struct found *expected, bool stream, int threads)
{
    if (strcmp(found->text, expected->text) != 0 || found->local != expected->local ||
        found->copied != (stream ? expected->copied : 0))
        fail_msg("%d threads: %s%d of a part alone, %d copied, not %s%d, %d", threads, found->text, found->local,
                 found->copied, expected->text, expected->local, stream ? expected->copied : 0);
}

static void check_case(size_t i, bool stream, int first_threads, int last_threads)
{
    const struct bottleneck_network *const network = &cases[i].network;
    struct bottleneck_outcome apart, other;
    struct found found;

    setenv("CONVOY_CPU_STREAM", stream ? "always" : "never", 1);
    setenv("CONVOY_CPU_CLOSED", cases[i].closed ? "always" : "never", 1);
    setenv("CONVOY_CPU_CHAINS", "never", 1);
    apart = bottleneck_run("cpu", 2, network, cases[i].batch, inspect, &found);
    expect(&found, &nothing, stream, 2);
    setenv("CONVOY_CPU_CHAINS", "always", 1);
    for (int threads = first_threads; threads <= last_threads; threads++) {
        other = bottleneck_run("cpu", threads, network, cases[i].batch, inspect, &found);
        expect(&found, threads <= 2 ? &cases[i].two : &cases[i].more, stream, threads);
        bottleneck_same_bits(&other, &apart);
        bottleneck_release(&other);
    }
    bottleneck_release(&apart);
}

/* Tiles in memory are slow: with two threads and with three alone, which share pieces and cannot. */
static void with_tiles(bool model)
{
    tiles_need(model);
    setenv("CONVOY_CPU_LAYOUT", "nhwc", 1);
    setenv("CONVOY_CPU_PATTERNS", "always", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int stream = model; stream < 2; stream++)
            check_case(i, stream, model ? 2 : 1, model ? 3 : 5);
}

static void test_tiles(void **state)
{
    with_tiles(false);
}

static void test_model(void **state)
{
    with_tiles(true);
}

/* oneDNN convolves bf16 with AVX-512 alone; the rest is held to AVX2 below. */
static bool has_convolutions(void)
{
    return cvy_cpu_isa() >= CVY_ISA_AVX512;
}

/* Without tiles batch norms alone are in chains, those whose statistics are known: outputs that are made again. */
static void test_vectors(void **state)
{
    const struct bottleneck_network *const network = &cases[0].network;
    struct bottleneck_outcome apart, other;
    struct found found;

    if (!has_convolutions())
        skip();
    setenv("CONVOY_CPU_LAYOUT", "nhwc", 1);
    setenv("CONVOY_CPU_ISA", "avx2", 1);
    setenv("CONVOY_CPU_CHAINS", "never", 1);
    apart = bottleneck_run("cpu", 2, network, 3, inspect, &found);
    expect(&found, &nothing, false, 2);
    setenv("CONVOY_CPU_CHAINS", "always", 1);
    other = bottleneck_run("cpu", 3, network, 3, inspect, &found);
    expect(&found, &(struct found){AGAIN, 1, 0}, false, 3);
    bottleneck_same_bits(&other, &apart);
    bottleneck_release(&apart);
    bottleneck_release(&other);
}

/* Whether the steps take the time that the chain takes, or nearly so; never more. */
static bool adds_up(cvy_device *device, const struct cvy_chain *chain)
{
    struct cvy_chain timed = *chain;
    double seconds[CVY_CHAIN_CALLS] = {0}, sum = 0;

    for (int32_t c = 0; c < chain->count; c++)
        timed.calls[c].seconds = &seconds[c];
    const double before = cvy_clock();
    assert_int_equal(device->backend->run_chain(device, &timed), CVY_OK);
    const double all = cvy_clock() - before;
    for (int32_t c = 0; c < chain->count; c++) {
        assert_true(seconds[c] > 0);
        sum += seconds[c];
    }
    assert_true(sum <= all);
    return sum > all / 2;
}

/* The first chain with the pixels of one part, which is the last thread's. Now and then the system takes the processor
 * away where nothing is measured. */
static void time_last_thread(const struct cvy_plan *plan, void *context)
{
    struct cvy_chain chain;
    bool good = false;

    (void)context;
    assert_true(plan->chain_count > 0);
    chain = plan->chains[0].chain;
    assert_int_equal(chain.shares, 0);
    chain.pixels = chain.part;
    for (int i = 0; i < 20 && !good; i++)
        good = adds_up(plan->device, &chain);
    assert_true(good);
}

/* The times of the steps are those of all threads. */
static void test_times(void **state)
{
    struct bottleneck_outcome outcome;

    if (!has_convolutions())
        skip();
    setenv("CONVOY_CPU_LAYOUT", "nhwc", 1);
    setenv("CONVOY_CPU_ISA", "avx2", 1);
    setenv("CONVOY_CPU_CHAINS", "always", 1);
    outcome = bottleneck_run("cpu", 2, &cases[0].network, 3, time_last_thread, NULL);
    bottleneck_release(&outcome);
}

static int count_chains(int64_t batch, int threads)
{
    cvy_device *device = executor_device("cpu", threads);
    struct cvy_graph graph;
    struct cvy_plan plan;
    int count;

    bottleneck_build(&graph, &cases[0].network, true, CVY_BF16);
    if (cvy_plan_prepare(&plan, device, NULL, &graph, batch) != CVY_OK)
        fail_msg("%s", cvy_error());
    count = plan.chain_count;
    cvy_plan_close(&plan);
    cvy_device_close(device);
    return count;
}

/* auto: from images of 4 MiB on, which those of 128 channels are with 137 images. Gradients of weights are sums of
 * eight pieces at most, which 64 threads cannot share; and 2,048 threads have less than four parts each. */
static void test_setting(void **state)
{
    const char *const wrong[] = {"sometimes", ""};
    cvy_device *device = NULL;

    tiles_need(true);
    setenv("CONVOY_CPU_LAYOUT", "nhwc", 1);
    setenv("CONVOY_CPU_CLOSED", "never", 1);
    assert_int_equal(count_chains(136, 2), 0);
    assert_int_equal(count_chains(137, 2), 3);
    assert_int_equal(count_chains(137, 64), 2);
    assert_int_equal(count_chains(137, 2048), 1);
    for (int i = 0; i < 2; i++) {
        setenv("CONVOY_CPU_CHAINS", wrong[i], 1);
        assert_fails(cvy_device_open("cpu", 1, &device), CVY_USAGE, "CONVOY_CPU_CHAINS is auto, always or never, not");
        assert_null(device);
        assert_error(wrong[i]);
    }
}

static int clear(void **state)
{
    unsetenv("CONVOY_CPU_CHAINS");
    unsetenv("CONVOY_CPU_CLOSED");
    unsetenv("CONVOY_CPU_ISA");
    unsetenv("CONVOY_CPU_PATTERNS");
    unsetenv("CONVOY_CPU_STREAM");
    unsetenv("CONVOY_CPU_LAYOUT");
    unsetenv("CONVOY_CPU_TILES");
    setenv("CONVOY_KERNELS", "first", 1); /* no times, which would tell runs apart */
    return 0;
}

#define CLEAR(test) cmocka_unit_test_setup_teardown(test, clear, clear)
RUN_TESTS(NULL, NULL, CLEAR(test_tiles), CLEAR(test_model), CLEAR(test_vectors), CLEAR(test_times), CLEAR(test_setting))
