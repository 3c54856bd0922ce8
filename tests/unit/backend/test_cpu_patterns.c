/* Plans of bottleneck blocks in bf16 on the cpu device in which convolutions by tiles work for the batch norms beside
 * them: what is fused where, and that loss, gradients and running statistics are as near to the plain graph in double
 * as those of the plan without. */
#include "backend/plan.h"
#include "base/system.h"
#include "support_bottleneck.h"
#include "support_executor.h"
#include "support_test.h"
#include "support_tiles.h"

/* ---- what is fused ---- */

struct fused {
    int measured;   /* convolutions that give the statistics of their output */
    int given;      /* batch norms that are given them */
    int within;     /* gradients of data with the sums of a batch norm's gradient, within a block */
    int ends;       /* the same at its end */
    int signs;      /* batch norms that keep the sign of y */
    int summed;     /* gradients of batch norms that are given the sums */
    int normalised; /* gradients of weights that make their input again */
    int remade;     /* batch norms that are made again by a step of their own */
    int closed;     /* batch norms and their gradients in closed form */
};

static bool reads(const struct cvy_plan_step *step, int32_t i)
{
    return i < step->desc.inputs && cvy_tensor_present(&step->desc.in[i]);
}

static bool writes(const struct cvy_plan_step *step, int32_t i)
{
    return i < step->desc.outputs && cvy_tensor_present(&step->desc.out[i]);
}

static struct fused count_fused(const struct cvy_plan *plan)
{
    struct fused found = {0};

    for (int32_t s = 0; s < plan->step_count; s++) {
        const struct cvy_plan_step *step = &plan->steps[s];
        switch (step->desc.op) {
        case CVY_OP_CONV2D:
            found.measured += writes(step, 1) && writes(step, 2);
            break;
        case CVY_OP_BATCH_NORM:
            found.given += reads(step, 6) && reads(step, 7);
            found.signs += writes(step, 5);
            break;
        case CVY_OP_CONV2D_BWD_DATA:
            found.within += writes(step, 1) && !reads(step, 7);
            found.ends += writes(step, 1) && reads(step, 7) && reads(step, 8);
            break;
        case CVY_OP_BATCH_NORM_BWD:
            found.summed += reads(step, 8) && reads(step, 9);
            break;
        case CVY_OP_CONV2D_BWD_WEIGHTS:
            found.normalised += reads(step, 2);
            break;
        case CVY_OP_BATCH_NORM_APPLY:
            found.remade++;
            break;
        case CVY_OP_PRODUCT_NORM:
        case CVY_OP_PRODUCT_NORM_BWD:
            found.closed++;
            break;
        default:
            break;
        }
    }
    return found;
}

static void expect_fused(const char *what, struct fused found, struct fused expected)
{
    if (memcmp(&found, &expected, sizeof found) != 0)
        fail_msg("%s: measured %d (%d), given %d (%d), within %d (%d), ends %d (%d), signs %d (%d), summed %d (%d), "
                 "normalised %d (%d), remade %d (%d), closed %d (%d)",
                 what, found.measured, expected.measured, found.given, expected.given, found.within, expected.within,
                 found.ends, expected.ends, found.signs, expected.signs, found.summed, expected.summed,
                 found.normalised, expected.normalised, found.remade, expected.remade, found.closed, expected.closed);
}

/* ---- one run ---- */

enum { BATCH = 3 };

struct outcome {
    struct fused fused;
    struct bottleneck_outcome made;
};

static void inspect(const struct cvy_plan *plan, void *context)
{
    *(struct fused *)context = count_fused(plan);
}

static struct outcome run(const char *device, int threads, const struct bottleneck_network *network)
{
    struct outcome outcome;

    outcome.made = bottleneck_run(device, threads, network, BATCH, inspect, &outcome.fused);
    return outcome;
}

static struct fused plan_only(const struct bottleneck_network *network, bool training, enum cvy_dtype dtype,
                              int64_t batch)
{
    cvy_device *device = executor_device("cpu", 2);
    struct cvy_graph graph;
    struct cvy_plan plan;
    struct fused fused;

    bottleneck_build(&graph, network, training, dtype);
    if (cvy_plan_prepare(&plan, device, NULL, &graph, batch) != CVY_OK)
        fail_msg("%s", cvy_error());
    fused = count_fused(&plan);
    cvy_plan_close(&plan);
    cvy_device_close(device);
    return fused;
}

/* ---- comparing ---- */

/* Relative rms errors. A sum of gradients over so few pixels is a small difference of large terms that are rounded to
 * 8 bits, and some of them pass a ReLU or not: gradients in bf16 were off by up to 0.24 of their size, fused or not,
 * and by as much from each other; running statistics by 0.0016, and 0.0007 from each other. */
static const double LIMIT_GRADIENT = 0.4, LIMIT_STATE = 0.002, LIMIT_LOSS = 0.002;
/* How much further than the plan without may one tensor be, and on geometric average all? Measured: 1.35 (of an error
 * of 0.03); 0.97 and 1.01. Errors below the floor are not told apart. */
static const double LIMIT_RATIO = 1.3, LIMIT_MEAN_RATIO = 1.1, FLOOR_GRADIENT = 0.02, FLOOR_STATE = 1e-4;

static double distance(const float *found, const float *expected, int64_t count)
{
    double error = 0, size = 0;

    for (int64_t i = 0; i < count; i++) {
        error += pow((double)found[i] - (double)expected[i], 2);
        size += pow((double)expected[i], 2);
    }
    assert_true(size > 0);
    return sqrt(error / size);
}

/* The logarithm of how much further from `exact` the fused plan is. */
static double compare_tensor(const struct cvy_param *param, const float *fused, const float *apart, const float *exact)
{
    const bool gradient = param->kind == CVY_PARAM_TRAINABLE;
    const double limit = gradient ? LIMIT_GRADIENT : LIMIT_STATE, floor = gradient ? FLOOR_GRADIENT : FLOOR_STATE;
    const int64_t count = cvy_shape_elements(&param->shape), at = param->offset;
    const double between = distance(fused + at, apart + at, count), far = distance(fused + at, exact + at, count);
    const double usual = distance(apart + at, exact + at, count);

    if (!(between <= limit && usual <= limit && far <= LIMIT_RATIO * usual + floor))
        fail_msg("%s: with and without differ by %.3g of its size, from double by %.3g and %.3g", param->name, between,
                 far, usual);
    return log((far + floor) / (usual + floor));
}

static void compare(const struct bottleneck_network *network, const struct bottleneck_outcome *fused,
                    const struct bottleneck_outcome *apart, const struct bottleneck_outcome *exact)
{
    struct cvy_graph table;
    double logarithms = 0;
    int count = 0;

    assert_true(fabs(fused->loss - exact->loss) <= LIMIT_LOSS && fabs(apart->loss - exact->loss) <= LIMIT_LOSS);
    bottleneck_build(&table, network, true, CVY_F64);
    for (int32_t p = 0; p < table.param_count; p++) {
        const struct cvy_param *param = &table.params[p];
        if (param->kind != CVY_PARAM_TRAINABLE && param->kind != CVY_PARAM_STATE)
            continue;
        logarithms += param->kind == CVY_PARAM_TRAINABLE
                          ? compare_tensor(param, fused->gradients, apart->gradients, exact->gradients)
                          : compare_tensor(param, fused->state, apart->state, exact->state);
        count++;
    }
    cvy_graph_release(&table);
    if (!(exp(logarithms / count) <= LIMIT_MEAN_RATIO))
        fail_msg("on average %.3g times as far from double as without", exp(logarithms / count));
}

/* ---- the cases ---- */

/* measured, given: the 1x1 convolutions, the projections too; not the stem and the 3x3 ones.
 * within: conv3 of each block, for the batch norm before it; that of conv1 has a 3x3 convolution behind it. The stem's,
 * which has no residual, gets two gradients: the last of conv1 and the projection adds the other's, at stride 1.
 * ends: what reads a block's output with stride 1: conv1 of the next, in the third its projection, whose gradient waits
 * for conv1's. The last block's gradient comes from the pool.
 * signs: of the same blocks. summed: within and ends.
 * normalised: conv2 and conv3 of each block, whose channels are few enough for one panel. The inputs of conv1 and the
 * projections have more readers, or a residual.
 * remade: the inputs of the others, which are the stem's output and those of the blocks before the last; the residuals
 * of projections; and the output of the last block for its mask. */
static const struct fused fused_two = {
    .measured = 5, .given = 5, .within = 3, .ends = 1, .signs = 1, .summed = 4, .normalised = 4, .remade = 4};
static const struct fused fused_three = {
    .measured = 8, .given = 8, .within = 3, .ends = 2, .signs = 2, .summed = 5, .normalised = 6, .remade = 6};
/* In closed form the batch norms of all blocks but the last: its convolution gives no statistics, and what reads the
 * block's output sums nothing but the gradient (conv1 of the next; in the third the projection has another stride). The
 * inputs of conv3 are read twice when they are made again; the outputs of the blocks are kept. */
static const struct fused closed_two = {
    .measured = 4, .given = 4, .within = 3, .summed = 3, .normalised = 3, .remade = 3, .closed = 2};
static const struct fused closed_three = {
    .measured = 6, .given = 6, .within = 3, .summed = 3, .normalised = 4, .remade = 5, .closed = 4};
/* Pixels are no multiple of a tile's or a group's: 3 * 12 * 10; 3 * 7 * 7 before the stride and 3 * 4 * 4 after it. */
static const struct {
    struct bottleneck_network network;
    const char *closed;
    const struct fused *fused;
    int remade; /* without */
} cases[] = {{{12, 10, 1, 0, NULL}, "never", &fused_two, 8},
             {{7, 7, 2, 1, NULL}, "never", &fused_three, 12},
             {{12, 10, 1, 0, NULL}, "always", &closed_two, 8},
             {{7, 7, 2, 1, NULL}, "always", &closed_three, 12}};

static void check_case(size_t i)
{
    const struct bottleneck_network *const network = &cases[i].network;
    struct outcome exact = run("ref", 2, network), fused, apart;

    setenv("CONVOY_CPU_PATTERNS", "always", 1);
    setenv("CONVOY_CPU_CLOSED", cases[i].closed, 1);
    fused = run("cpu", 1, network);
    expect_fused("with patterns", fused.fused, *cases[i].fused);
    for (int threads = 2; threads <= 5; threads += 3) {
        struct outcome other = run("cpu", threads, network);
        expect_fused("with more threads", other.fused, *cases[i].fused);
        bottleneck_same_bits(&other.made, &fused.made);
        bottleneck_release(&other.made);
    }
    setenv("CONVOY_CPU_PATTERNS", "never", 1);
    apart = run("cpu", 2, network);
    expect_fused("never", apart.fused, (struct fused){.remade = cases[i].remade});
    compare(network, &fused.made, &apart.made, &exact.made);
    bottleneck_release(&fused.made);
    bottleneck_release(&apart.made);
    bottleneck_release(&exact.made);
}

static void with_tiles(bool model)
{
    tiles_need(model);
    setenv("CONVOY_CPU_LAYOUT", "nhwc", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(i);
}

static void test_tiles(void **state)
{
    with_tiles(false);
}

static void test_model(void **state)
{
    with_tiles(true);
}

/* ---- where nothing is fused, and the setting ---- */

static void test_elsewhere(void **state)
{
    const struct bottleneck_network *network = &cases[0].network;
    const struct fused nothing = {.remade = cases[0].remade};

    tiles_need(true);
    setenv("CONVOY_CPU_PATTERNS", "always", 1);
    setenv("CONVOY_CPU_LAYOUT", "nhwc", 1);
    expect_fused("in fp32", plan_only(network, true, CVY_F32, BATCH), nothing);
    expect_fused("inference", plan_only(network, false, CVY_BF16, BATCH), (struct fused){0});
    setenv("CONVOY_CPU_LAYOUT", "blocked", 1);
    expect_fused("in blocks", plan_only(network, true, CVY_BF16, BATCH), nothing);
}

/* auto: only where an image is large, from 4 MiB on, which those of 128 channels are with 137 images; but gradients of
 * weights always make their input. Closed forms come first, and not without the other patterns. */
static void test_large(void **state)
{
    const struct bottleneck_network *network = &cases[0].network;
    const struct fused small = {.normalised = 4, .remade = 4};
    const struct fused large = {.measured = 3 /* conv3 of both blocks, the projection */,
                                .given = 3,
                                .ends = 1,
                                .signs = 1,
                                .summed = 1,
                                .normalised = 4,
                                .remade = 4};
    const struct fused closed = {.measured = 2 /* conv3 of the last block, the projection */,
                                 .given = 2,
                                 .normalised = 3,
                                 .remade = 3,
                                 .closed = 2};

    tiles_need(true);
    setenv("CONVOY_CPU_LAYOUT", "nhwc", 1);
    expect_fused("3 images", plan_only(network, true, CVY_BF16, BATCH), small);
    expect_fused("136 images", plan_only(network, true, CVY_BF16, 136), small);
    expect_fused("137 images", plan_only(network, true, CVY_BF16, 137), closed);
    setenv("CONVOY_CPU_CLOSED", "never", 1);
    expect_fused("137 images, never closed", plan_only(network, true, CVY_BF16, 137), large);
    setenv("CONVOY_CPU_CLOSED", "always", 1);
    setenv("CONVOY_CPU_PATTERNS", "never", 1);
    expect_fused("no patterns", plan_only(network, true, CVY_BF16, 137), (struct fused){.remade = cases[0].remade});
}

/* auto: from sixteen pixels for each input channel on, which 3 images of 7 x 7 do not have for 32; always: of any size.
 */
static void test_worth(void **state)
{
    const struct bottleneck_network network = {7, 7, 1, 0, NULL};

    tiles_need(true);
    setenv("CONVOY_CPU_LAYOUT", "nhwc", 1);
    setenv("CONVOY_CPU_PATTERNS", "always", 1);
    for (int always = 0; always < 2; always++) {
        if (always)
            setenv("CONVOY_CPU_CLOSED", "always", 1);
        assert_int_equal(plan_only(&network, true, CVY_BF16, 3).closed, always ? 2 : 0);
        assert_int_equal(plan_only(&network, true, CVY_BF16, 400).closed, 2); /* 4.8 MiB */
    }
}

/* Convolutions with frozen weights, which are packed once, before batch norms that are trained. No gradient of weights
 * reads the stem's output again. */
static void test_frozen(void **state)
{
    struct bottleneck_network network = cases[0].network;
    struct fused expected = fused_two;

    tiles_need(true);
    setenv("CONVOY_CPU_PATTERNS", "always", 1);
    setenv("CONVOY_CPU_LAYOUT", "nhwc", 1);
    setenv("CONVOY_CPU_CLOSED", "never", 1);
    network.freeze = "first.conv1.weight,first.projection.weight";
    expected.remade--;
    expect_fused("frozen weights", plan_only(&network, true, CVY_BF16, BATCH), expected);
    setenv("CONVOY_CPU_CLOSED", "always", 1);
    network.freeze = "first.conv3.weight"; /* without a gradient of these there is no closed form */
    assert_int_equal(plan_only(&network, true, CVY_BF16, BATCH).closed, 0);
}

static void expect_setting(const char *variable, const char *value, bool kept)
{
    char setting[64];
    cvy_device *device;

    if (value)
        setenv(variable, value, 1);
    snprintf(setting, sizeof setting, "%s=%s", variable, value ? value : "");
    device = executor_device("cpu", 1);
    if (kept)
        assert_non_null(strstr(device->settings, setting));
    else
        assert_null(strstr(device->settings, variable));
    cvy_device_close(device);
}

static void check_setting(const char *variable)
{
    const char *const wrong[] = {"sometimes", ""};
    cvy_device *device = NULL;

    expect_setting(variable, NULL, false);
    expect_setting(variable, "auto", false);
    expect_setting(variable, "always", true);
    expect_setting(variable, "never", true);
    for (int i = 0; i < 2; i++) {
        setenv(variable, wrong[i], 1);
        assert_fails(cvy_device_open("cpu", 1, &device), CVY_USAGE, variable);
        assert_null(device);
        assert_error("is auto, always or never, not");
        assert_error(wrong[i]);
    }
    unsetenv(variable);
}

static void test_setting(void **state)
{
    check_setting("CONVOY_CPU_PATTERNS");
    check_setting("CONVOY_CPU_CLOSED");
}

static int clear(void **state)
{
    unsetenv("CONVOY_CPU_PATTERNS");
    unsetenv("CONVOY_CPU_CLOSED");
    unsetenv("CONVOY_CPU_LAYOUT");
    unsetenv("CONVOY_CPU_TILES");
    setenv("CONVOY_KERNELS", "first", 1); /* no times, which would tell runs apart */
    return 0;
}

#define CLEAR(test) cmocka_unit_test_setup_teardown(test, clear, clear)
RUN_TESTS(NULL, NULL, CLEAR(test_tiles), CLEAR(test_model), CLEAR(test_elsewhere), CLEAR(test_large), CLEAR(test_worth),
          CLEAR(test_frozen), CLEAR(test_setting))
