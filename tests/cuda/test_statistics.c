/* Statistics of a convolution's output, made with it or after it, over a real cuDNN and an emulated CUDA runtime; see
 * test_cudnn.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/kernels/kernels.h"
#include "emulate.h"
#include "support_engine.h"

/* 16-bit floats of every kind of geometry; where engines are specialised in it, none is compiled. */
static void statistics_are_fused(void **state)
{
    static const enum cvy_dtype types[] = {CVY_F16, CVY_BF16};

    (void)state;
    assert_true(open_device(false));
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct gpu_conv_problem problem = usual;
        struct gpu_conv *conv;
        char text[48], why[160];
        problem.dtype = types[t];
        problem.statistics = GPU_STATISTICS_FUSED;
        must(gpu_conv_open(&device, &problem, &conv));
        expect_text(conv, ", statistics fused", "first of");
        gpu_conv_text(conv, text, why);
        assert_true(types[t] == CVY_BF16 || !strstr(why, "runtime-compiled"));
        assert_true(gpu_conv_scratch(conv) >= 2 * 128 * sizeof(float));
        gpu_conv_close(conv);
        problem.statistics = GPU_STATISTICS_SEPARATE;
        must(gpu_conv_open(&device, &problem, &conv));
        expect_text(conv, ", statistics separate", "tensor cores, first of");
        gpu_conv_close(conv);
        problem.pass = GPU_CONV_DATA; /* has none */
        must(gpu_conv_open(&device, &problem, &conv));
        gpu_conv_text(conv, text, why);
        assert_null(strstr(text, "statistics"));
        gpu_conv_close(conv);
    }
    close_device();
}

/* cuDNN's sums (here: what lay in the scratch before) become mean and variance; as work of their own they come from y.
 */
static void a_run_gives_statistics(void **state)
{
    enum { PIXELS = 4, CHANNELS = 16 };
    static uint16_t x[CHANNELS] __attribute__((aligned(256))), y[PIXELS * CHANNELS] __attribute__((aligned(256)));
    static const float values[PIXELS] = {1, 3, 5, 7}; /* mean 4, variance 5 */
    struct gpu_conv_problem problem = usual;
    float mean[CHANNELS], variance[CHANNELS], *sums, *squares;
    struct gpu_conv_memory memory = {.x = x, .w = x, .y = y, .mean = mean, .variance = variance};
    struct gpu_conv *conv;
    void *tickets;

    (void)state;
    problem.n = 1;
    problem.h = problem.w = problem.p = problem.q = 2;
    problem.k = problem.c = CHANNELS;
    assert_true(open_device(false));
    must(gpu_allocate(device.stream, GPU_TICKETS * sizeof *device.tickets, &tickets));
    device.tickets = tickets;
    for (int i = 0; i < PIXELS * CHANNELS; i++)
        y[i] = gpu_to_f16(values[i / CHANNELS] + (float)(i % CHANNELS));
    for (int fused = 0; fused < 2; fused++) {
        problem.statistics = fused ? GPU_STATISTICS_FUSED : GPU_STATISTICS_SEPARATE;
        must(gpu_conv_open(&device, &problem, &conv));
        must(gpu_allocate(device.stream, gpu_conv_scratch(conv), &memory.scratch));
        memset(mean, 0xff, sizeof mean);
        memset(variance, 0xff, sizeof variance);
        for (int k = 0; fused && k < CHANNELS; k++) {
            sums = memory.scratch;
            squares = sums + 64; /* 256 bytes after */
            sums[k] = squares[k] = 0;
            for (int i = 0; i < PIXELS; i++) {
                sums[k] += values[i] + (float)k;
                squares[k] += (values[i] + (float)k) * (values[i] + (float)k);
            }
        }
        must(gpu_conv_run(&device, conv, &memory));
        assert_int_equal(ran.count, fused ? 5 : 3);
        if (fused) {
            assert_ptr_equal(pointer_of(CUDNN_SUMS), memory.scratch);
            assert_ptr_equal(pointer_of(CUDNN_SQUARES), (char *)memory.scratch + 256);
        }
        for (int k = 0; k < CHANNELS; k++) { /* small integers: exact */
            assert_true(mean[k] == (float)(4 + k));
            assert_true(variance[k] == 5);
        }
        gpu_release(memory.scratch);
        gpu_conv_close(conv);
    }
    gpu_release(tickets);
    close_device();
}

/* What the row of fused statistics says of a convolution. */
static cvy_status prepare_fused(enum cvy_dtype dtype, bool bias, struct cvy_kernel_plan *plan)
{
    struct cvy_op_desc desc = {.op = CVY_OP_CONV2D, .inputs = 3, .outputs = 3, .training = true};
    cvy_status status;

    memset(plan, 0, sizeof *plan);
    desc.attr.conv2d = (struct cvy_conv2d_attr){
        .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad = {1, 1, 1, 1}, .groups = 1, .input = {4, 4}};
    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        desc.in[i].shape.rank = -1;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        desc.out[i].shape.rank = -1;
    desc.in[0] = desc.out[0] = (struct cvy_tensor){.shape = cvy_shape4(1, 16, 4, 4), .dtype = dtype};
    desc.in[1] = (struct cvy_tensor){.shape = cvy_shape4(16, 16, 3, 3), .dtype = dtype};
    desc.out[1] = desc.out[2] = (struct cvy_tensor){.shape = cvy_shape1(16), .dtype = CVY_F32};
    if (bias)
        desc.in[2] = desc.out[1];
    status = gpu_conv2d_statistics_prepare(&device.base, &desc, plan);
    gpu_conv2d_release(&device.base, plan);
    return status;
}

/* The row takes what was measured to be faster than the convolution and its statistics separately; the candidates of
 * fused ones are timed first. */
static void the_faster_statistics_win(void **state)
{
    struct cvy_kernel_plan plan;
    int fused_plans;

    (void)state;
    setenv("CONVOY_CACHE_DIR", "/dev/null/none", 1); /* each time anew */
    assert_true(open_device(true));
    must(gpu_allocate(device.stream, GPU_TICKETS * sizeof *device.tickets, (void **)&device.tickets));
    must(prepare_fused(CVY_F16, false, &plan)); /* plan 0 takes no time */
    assert_non_null(strstr(plan.implementation, ", statistics fused"));
    assert_non_null(strstr(plan.reason, " ms; separate "));
    assert_int_equal(prepare_fused(CVY_F32, false, &plan), CVY_UNAVAILABLE);
    must_say("lose digits");
    assert_int_equal(prepare_fused(CVY_F16, true, &plan), CVY_UNAVAILABLE);
    must_say("more follows");
    gpu_release(device.tickets);
    close_device();

    assert_true(open_device(true));
    must(gpu_allocate(device.stream, GPU_TICKETS * sizeof *device.tickets, (void **)&device.tickets));
    ran.fastest = -1;
    device.statistics = GPU_STATISTICS_ALWAYS_FUSED; /* does not time the other */
    must(prepare_fused(CVY_F16, false, &plan));
    fused_plans = ran.plan_count;
    assert_true(fused_plans > 1);
    device.statistics = GPU_STATISTICS_TIMED;
    ran.fastest = fused_plans;
    assert_int_equal(prepare_fused(CVY_F16, false, &plan), CVY_UNAVAILABLE);
    must_say(" ms, separate ");
    assert_true(ran.plan_count > fused_plans);
    device.statistics = GPU_STATISTICS_ALWAYS_SEPARATE;
    assert_int_equal(prepare_fused(CVY_F16, false, &plan), CVY_UNAVAILABLE);
    gpu_release(device.tickets);
    close_device();

    assert_true(open_device(false)); /* nothing is timed: as before */
    assert_int_equal(prepare_fused(CVY_F16, false, &plan), CVY_UNAVAILABLE);
    must_say("not timed");
    close_device();
    setenv("CONVOY_CACHE_DIR", folder, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_fused),
        cmocka_unit_test(a_run_gives_statistics),
        cmocka_unit_test_setup_teardown(the_faster_statistics_win, make_folder, remove_folder),
    };

    if (!cudnn_is_there())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
