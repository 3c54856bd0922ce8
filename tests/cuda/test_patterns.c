/* Convolutions that take in the batch norm before them, over a real cuDNN and an emulated CUDA runtime; see
 * test_cudnn.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/kernels/kernels.h"
#include "emulate.h"
#include "ops/ops.h"
#include "support_engine.h"

static struct gpu_conv_problem problem_of(enum gpu_conv_pass pass)
{
    struct gpu_conv_problem problem = usual;

    problem.pass = pass;
    if (pass == GPU_CONV_DATA)
        problem.gradient_sums = GPU_PART_FUSED;
    else
        problem.prologue = GPU_PART_FUSED;
    if (pass == GPU_CONV_FORWARD)
        problem.statistics = GPU_STATISTICS_FUSED;
    return problem;
}

/* In f16 cuDNN has engines for them that need not be compiled; with strides too. */
static void patterns_are_planned(void **state)
{
    (void)state;
    assert_true(open_device(false));
    for (int pass = 0; pass < 3; pass++) {
        for (int stride = 1; stride <= 2; stride++) {
            struct gpu_conv_problem problem = problem_of((enum gpu_conv_pass)pass);
            struct gpu_conv *conv;
            char text[48], why[160];
            problem.stride[0] = problem.stride[1] = stride;
            problem.p = problem.q = 28 / stride;
            must(gpu_conv_open(&device, &problem, &conv));
            expect_text(conv, pass == GPU_CONV_DATA ? ", sums fused" : ", norm fused", "first of");
            gpu_conv_text(conv, text, why);
            assert_null(strstr(why, "runtime-compiled"));
            gpu_conv_close(conv);
        }
    }
    close_device();
}

/* Apart they are kernels around an ordinary convolution. */
static void patterns_are_undone(void **state)
{
    (void)state;
    assert_true(open_device(false));
    for (int pass = 0; pass < 3; pass++) {
        struct gpu_conv_problem problem = problem_of((enum gpu_conv_pass)pass);
        struct gpu_conv *conv;
        problem.statistics = GPU_STATISTICS_NONE;
        if (pass == GPU_CONV_DATA)
            problem.gradient_sums = GPU_PART_SEPARATE;
        else
            problem.prologue = GPU_PART_SEPARATE;
        must(gpu_conv_open(&device, &problem, &conv));
        expect_text(conv, ", norm separate", "tensor cores, first of");
        if (pass != GPU_CONV_DATA) /* room for what batch norm gives */
            assert_true(gpu_conv_scratch(conv) >= (size_t)8 * 28 * 28 * 64 * 2);
        gpu_conv_close(conv);
    }
    close_device();
}

enum { CHANNELS = 64 };

/* cuDNN gets scale and shift in 16 bits, and reads x as it is. */
static void a_run_brings_scale_and_shift(void **state)
{
    static uint16_t image[8 * 28 * 28 * 128] __attribute__((aligned(256)));
    float gamma[CHANNELS], beta[CHANNELS], mean[CHANNELS], rstd[CHANNELS], statistics[2 * 128];
    const struct gpu_conv_problem problem = problem_of(GPU_CONV_FORWARD);
    struct gpu_conv_memory memory = {.x = image,
                                     .w = image,
                                     .y = image,
                                     .mean = statistics,
                                     .variance = statistics + 128,
                                     .gamma = gamma,
                                     .beta = beta,
                                     .norm_mean = mean,
                                     .norm_rstd = rstd};
    const uint16_t *scale, *shift;
    struct gpu_conv *conv;

    (void)state;
    for (int c = 0; c < CHANNELS; c++) {
        gamma[c] = (float)(c % 5 - 2);
        beta[c] = (float)(c % 3);
        mean[c] = (float)(c % 7);
        rstd[c] = 0.5F;
    }
    assert_true(open_device(false));
    must(gpu_conv_open(&device, &problem, &conv));
    must(gpu_allocate(device.stream, gpu_conv_scratch(conv), &memory.scratch));
    must(gpu_conv_run(&device, conv, &memory));
    assert_ptr_equal(pointer_of(CUDNN_X), image);
    scale = pointer_of(CUDNN_SCALE);
    shift = pointer_of(CUDNN_SHIFT);
    assert_true(pointer_of(CUDNN_SUMS) != NULL && pointer_of(CUDNN_SQUARES) != NULL);
    for (int c = 0; c < CHANNELS; c++) { /* small numbers: exact */
        assert_true(gpu_from_f16(scale[c]) == 0.5F * gamma[c]);
        assert_true(gpu_from_f16(shift[c]) == beta[c] - 0.5F * gamma[c] * mean[c]);
    }
    gpu_release(memory.scratch);
    gpu_conv_close(conv);
    close_device();
}

/* Parameters and their gradients, which may lie anywhere, are brought to where cuDNN takes them. */
static void a_run_aligns_parameters(void **state)
{
    static uint16_t image[8 * 28 * 28 * 128] __attribute__((aligned(256)));
    static float numbers[4 * CHANNELS + 4] __attribute__((aligned(256))),
        results[2 * CHANNELS + 4] __attribute__((aligned(256)));
    const struct gpu_conv_problem problem = problem_of(GPU_CONV_DATA);
    struct gpu_conv_memory memory = {
        .x = image, .w = image, .y = image, .norm_x = image, .norm_mean = numbers, .norm_rstd = numbers + CHANNELS};
    struct gpu_conv *conv;
    float *dgamma;

    (void)state;
    assert_true(open_device(false));
    must(gpu_conv_open(&device, &problem, &conv));
    must(gpu_allocate(device.stream, gpu_conv_scratch(conv), &memory.scratch));
    for (int off = 0; off < 2; off++) {
        memory.gamma = numbers + 2 * CHANNELS + off;
        memory.beta = numbers + 3 * CHANNELS + off;
        memory.dgamma = results + off;
        memory.dbeta = results + CHANNELS + off;
        for (int c = 0; c < 4 * CHANNELS + 4; c++)
            numbers[c] = (float)c;
        must(gpu_conv_run(&device, conv, &memory));
        assert_int_equal(ran.count, 13);
        assert_ptr_equal(pointer_of(CUDNN_NORM_X), image);
        assert_ptr_equal(pointer_of(CUDNN_NORM_MEAN), numbers);
        assert_int_equal(pointer_of(CUDNN_GAMMA) == (const void *)memory.gamma, !off);
        assert_memory_equal(pointer_of(CUDNN_GAMMA), memory.gamma, CHANNELS * sizeof(float));
        assert_memory_equal(pointer_of(CUDNN_BETA), memory.beta, CHANNELS * sizeof(float));
        assert_int_equal(pointer_of(CUDNN_DGAMMA) == (void *)memory.dgamma, !off);
        assert_int_equal(pointer_of(CUDNN_DBETA) == (void *)memory.dbeta, !off);
        for (int i = 0; i < 3; i++)
            assert_non_null(pointer_of((enum cudnn_tensor)(CUDNN_SLOPES + i)));
    }
    dgamma = pointer_of(CUDNN_DGAMMA); /* what lies there comes back */
    for (int c = 0; c < CHANNELS; c++)
        dgamma[c] = (float)(3 * c);
    must(gpu_conv_run(&device, conv, &memory));
    assert_memory_equal(memory.dgamma, dgamma, CHANNELS * sizeof(float));
    gpu_release(memory.scratch);
    gpu_conv_close(conv);
    close_device();
}

/* ---- the rewrite ---- */

/* Two convolutions with batch norm and ReLU, for training in 16 bits, their statistics given. */
static void build(struct cvy_graph *graph, enum cvy_dtype dtype)
{
    cvy_val x, logits, target, scale, loss;

    cvy_graph_init(graph, true);
    x = cvy_graph_input(graph, "x", CVY_F32, cvy_shape4(CVY_BATCH, 16, 8, 8), false);
    target = cvy_graph_input(graph, "target", CVY_I32, cvy_shape1(CVY_BATCH), false);
    scale = cvy_graph_input(graph, "loss_scale", CVY_F32, cvy_shape0(), false);
    for (int i = 0; i < 2; i++) {
        cvy_scope_push_index(graph, i);
        x = cvy_conv2d(graph, x, &(struct cvy_conv2d){.out = 16, .kernel = 3, .pad = 1});
        cvy_scope_push(graph, "norm");
        x = cvy_relu(graph, cvy_batch_norm(graph, x, &(struct cvy_batch_norm){0}));
        cvy_scope_pop(graph);
        cvy_scope_pop(graph);
    }
    logits = cvy_linear(graph, cvy_global_avg_pool(graph, x), 8);
    loss = cvy_softmax_cross_entropy(graph, logits, target, 0);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "loss", -1, loss);
    cvy_rewrite_fuse_training(graph);
    cvy_graph_backward(graph, cvy_ops, loss, scale);
    cvy_rewrite_precision(graph, cvy_ops, dtype);
    cvy_rewrite_statistics(graph);
    must(cvy_graph_status(graph));
}

/* Which of both patterns the device takes, and the notes that it leaves. */
struct taken {
    bool prologue, sums;
    char forward[160], backward[160];
};

static struct taken rewrite(enum cvy_dtype dtype, enum gpu_statistics_selection choice, int fastest)
{
    struct taken taken = {0};
    struct cvy_graph graph;

    ran.fastest = fastest;
    device.patterns = choice;
    build(&graph, dtype);
    must(gpu_rewrite(&device.base, &graph, 8));
    must(cvy_graph_status(&graph));
    for (int32_t n = 0; n < graph.node_count; n++) {
        const struct cvy_node *node = &graph.nodes[n];
        taken.prologue |= node->op == CVY_OP_CONV2D && node->inputs > 4;
        taken.sums |= node->op == CVY_OP_CONV2D_BWD_DATA && node->inputs > 2;
        if (node->op == CVY_OP_CONV2D && node->note)
            snprintf(taken.forward, sizeof taken.forward, "%s", node->note);
        if (node->op == CVY_OP_CONV2D_BWD_DATA && node->note)
            snprintf(taken.backward, sizeof taken.backward, "%s", node->note);
    }
    cvy_graph_release(&graph);
    return taken;
}

static void expect_note(const char *note, const char *part)
{
    if (!strstr(note, part))
        fail_msg("\"%s\" does not say \"%s\"", note, part);
}

static void open_running(void)
{
    assert_true(open_device(true));
    must(gpu_allocate(device.stream, GPU_TICKETS * sizeof *device.tickets, (void **)&device.tickets));
}

static void close_running(void)
{
    gpu_release(device.tickets);
    close_device();
}

/* Taken where what they need is faster than what they replace; a device that nothing is timed for takes none. */
static void the_faster_way_is_taken(void **state)
{
    struct taken taken;

    (void)state;
    setenv("CONVOY_CACHE_DIR", "/dev/null/none", 1); /* each time anew */
    open_running();
    taken = rewrite(CVY_F16, GPU_STATISTICS_TIMED, 0); /* what is tried first takes no time: weights with the norm */
    assert_true(taken.prologue);
    expect_note(taken.forward, "batch norm taken in: ");
    expect_note(taken.forward, " ms, separate ");
    expect_note(taken.backward, " ms, separate ");
    close_running();

    open_running();
    taken = rewrite(CVY_F16, GPU_STATISTICS_ALWAYS_FUSED, -1); /* tries nothing else */
    assert_true(taken.prologue && taken.sums);
    taken = rewrite(CVY_F16, GPU_STATISTICS_TIMED, ran.plan_count); /* the next: the convolution alone */
    assert_false(taken.prologue);
    expect_note(taken.forward, "batch norm separate: ");
    expect_note(taken.forward, " ms, separate ");
    taken = rewrite(CVY_BF16, GPU_STATISTICS_TIMED, -1);
    assert_true(!taken.prologue && !taken.sums);
    expect_note(taken.forward, "in bf16");
    expect_note(taken.backward, "in bf16");
    close_running();

    assert_true(open_device(false));
    taken = rewrite(CVY_F16, GPU_STATISTICS_TIMED, -1);
    assert_true(!taken.prologue && !taken.sums);
    expect_note(taken.forward, "not timed");
    taken = rewrite(CVY_F16, GPU_STATISTICS_ALWAYS_FUSED, -1);
    assert_true(taken.prologue && taken.sums);
    taken = rewrite(CVY_F16, GPU_STATISTICS_ALWAYS_SEPARATE, -1);
    assert_true(!taken.prologue && !taken.sums && !taken.forward[0] && !taken.backward[0]);
    close_device();
    setenv("CONVOY_CACHE_DIR", folder, 1);
}

static cvy_val conv_norm(struct cvy_graph *graph, int32_t number, cvy_val x, const struct cvy_conv2d *conv)
{
    cvy_scope_push_index(graph, number);
    x = cvy_conv2d(graph, x, conv);
    cvy_scope_push(graph, "norm");
    x = cvy_batch_norm(graph, x, &(struct cvy_batch_norm){0});
    cvy_scope_pop(graph);
    cvy_scope_pop(graph);
    return x;
}

/* A block with a residual, whose output two convolutions of the next one read, the second of them at this stride. */
static void build_blocks(struct cvy_graph *graph, int32_t stride)
{
    const struct cvy_conv2d one = {.out = 16, .kernel = 1}, last = {.out = 16, .kernel = 1, .stride = stride};
    cvy_val x, y, logits, target, scale, loss;

    cvy_graph_init(graph, true);
    x = cvy_graph_input(graph, "x", CVY_F32, cvy_shape4(CVY_BATCH, 16, 8, 8), false);
    target = cvy_graph_input(graph, "target", CVY_I32, cvy_shape1(CVY_BATCH), false);
    scale = cvy_graph_input(graph, "loss_scale", CVY_F32, cvy_shape0(), false);
    x = cvy_relu(graph, conv_norm(graph, 0, x, &one));
    y = cvy_relu(graph, cvy_add(graph, conv_norm(graph, 1, x, &one), x));
    x = cvy_relu(graph, conv_norm(graph, 2, y, &one));
    x = conv_norm(graph, 3, x, &(struct cvy_conv2d){.out = 16, .kernel = 3, .stride = stride, .pad = 1});
    x = cvy_relu(graph, cvy_add(graph, x, conv_norm(graph, 4, y, &last)));
    logits = cvy_linear(graph, cvy_global_avg_pool(graph, x), 8);
    loss = cvy_softmax_cross_entropy(graph, logits, target, 0);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "loss", -1, loss);
    cvy_rewrite_fuse_training(graph);
    cvy_graph_backward(graph, cvy_ops, loss, scale);
    cvy_rewrite_fuse_backward(graph);
    cvy_rewrite_precision(graph, cvy_ops, CVY_F16);
    cvy_rewrite_statistics(graph);
    must(cvy_graph_status(graph));
}

/* One of two gradients is refused the sums that the other one then makes: the plan does not call them separate. */
static void sums_of_two_gradients_have_one_note(void **state)
{
    struct cvy_graph graph;
    int taken = 0;

    (void)state;
    assert_true(open_device(false));
    device.patterns = GPU_STATISTICS_ALWAYS_FUSED;
    build_blocks(&graph, 2);
    must(gpu_rewrite(&device.base, &graph, 8));
    must(cvy_graph_status(&graph));
    for (int32_t n = 0; n < graph.node_count; n++) {
        const struct cvy_node *node = &graph.nodes[n];

        taken += node->op == CVY_OP_CONV2D_BWD_DATA && node->inputs == 9;
        if (node->op == CVY_OP_CONV2D_BWD_DATA && node->note && strstr(node->note, "sums separate"))
            fail_msg("%s: \"%s\"", node->scope, node->note);
    }
    assert_int_equal(taken, 1);
    cvy_graph_release(&graph);
    close_device();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_are_planned),
        cmocka_unit_test(patterns_are_undone),
        cmocka_unit_test(a_run_brings_scale_and_shift),
        cmocka_unit_test(a_run_aligns_parameters),
        cmocka_unit_test_setup_teardown(the_faster_way_is_taken, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(sums_of_two_gradients_have_one_note, make_folder, remove_folder),
    };

    if (!cudnn_is_there())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
