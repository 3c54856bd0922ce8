/* Direct convolutions, by themselves: random problems against plain sums in double, with the same bits whatever the
 * number of threads is and whatever lies in the working memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/conv/direct.h"
#include "backend/cpu/cpu.h"
#include "base/system.h"
#include "support_convolution.h"
#include "support_executor.h"
#include "support_processor.h"
#include "support_test.h"

#if defined(__SANITIZE_ADDRESS__) /* where the plain sums are most of the time */
enum { PROBLEMS = 45 };
#else
enum { PROBLEMS = 90 };
#endif
enum { THREADS = 3, LANES = 8 };

static cvy_device *devices[THREADS]; /* device i has i + 1 threads */

static const struct convolution_kernel kernels[] = {
    [0] = {.prepare = cpu_direct_prepare,
           .run = cpu_direct_run,
           .prepare_weights = cpu_reorder_direct_prepare,
           .run_weights = cpu_reorder_direct_run},
    [1] = {.prepare = cpu_direct_gradient_prepare, .run = cpu_direct_gradient_run},
};

static const struct convolution_kernel *kernel_for(enum cvy_op op)
{
    return &kernels[op == CVY_OP_CONV2D_BWD_WEIGHTS];
}

/* The window along one axis: 1x1 at any stride, or any. */
static void draw_window(struct convolution *c, struct cvy_rng *rng, int axis, bool window)
{
    const bool data = c->op == CVY_OP_CONV2D_BWD_DATA;
    struct cvy_conv2d_attr *const attr = &c->attr;

    attr->kernel[axis] = window ? 1 + (int32_t)cvy_rng_below(rng, 4) : 1;
    attr->dilation[axis] = window ? 1 + (int32_t)cvy_rng_below(rng, 2) : 1;
    attr->stride[axis] = window && data ? 1 : 1 + (int32_t)cvy_rng_below(rng, 3);
    for (int end = 0; end < 2; end++)
        attr->pad[2 * axis + end] = window || !data || attr->stride[0] == 1 ? (int32_t)cvy_rng_below(rng, 4) : 0;
}

/* The gradient of strided data has no padding at all. */
static bool is_taken(const struct convolution *c)
{
    const struct cvy_conv2d_attr *const attr = &c->attr;
    const bool strided = attr->stride[0] != 1 || attr->stride[1] != 1;
    return c->op != CVY_OP_CONV2D_BWD_DATA || !strided ||
           !(attr->pad[0] || attr->pad[1] || attr->pad[2] || attr->pad[3]);
}

/* Every fifth one has many channels, so that the depth has several chunks; every seventh wide images, several tasks;
 * some have images whose channels do not divide in blocks. */
static void set_up_problem(struct convolution *c, int number)
{
    static const enum cvy_op ops[] = {CVY_OP_CONV2D, CVY_OP_CONV2D_BWD_DATA, CVY_OP_CONV2D_BWD_WEIGHTS};
    struct cvy_rng rng = cvy_rng_new(12, CVY_RNG_INIT, 0, (uint32_t)number);
    const bool window = number / 3 % 2 == 0, deep = number % 5 == 0, wide = number % 7 == 0;
    int64_t input[2], output[2];

    *c = (struct convolution){.op = ops[number % 3], .attr = {.groups = 1}};
    const bool plain = c->op != CVY_OP_CONV2D_BWD_DATA && number % 4 == 3;
    const int64_t blocks = 1 + (int64_t)cvy_rng_below(&rng, deep ? 80 : 9);
    const int64_t channels = plain ? 1 + (int64_t)cvy_rng_below(&rng, LANES - 1) : LANES * blocks;
    const int64_t output_blocks = 1 + (int64_t)cvy_rng_below(&rng, number % 11 == 0 ? 60 : 8);
    const int64_t outputs = LANES * output_blocks - (number % 5 == 1 ? (int64_t)cvy_rng_below(&rng, LANES) : 0);
    for (int d = 0; d < 2; d++) {
        do {
            draw_window(c, &rng, d, window);
            input[d] = 1 + (int64_t)cvy_rng_below(&rng, d == 1 && wide ? 200 : 12);
            output[d] = convolution_outputs(&c->attr, d, input[d]);
        } while (output[d] == 0 || (d == 1 && !is_taken(c)));
        c->attr.input[d] = (int32_t)input[d];
    }
    const int64_t batch = 1 + (int64_t)cvy_rng_below(&rng, 10);
    c->x = convolution_tensor(batch, channels, input[0], input[1]);
    c->y = convolution_tensor(batch, outputs, output[0], output[1]);
    c->w = convolution_tensor(outputs, channels, c->attr.kernel[0], c->attr.kernel[1]);
    convolution_draw(c, devices[0], &rng);
}

static void test_problems(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEMS; i++) {
        struct convolution c;
        set_up_problem(&c, i);
        convolution_try(&c, kernel_for(c.op), devices, THREADS, i, 4);
        convolution_release(&c);
    }
}

/* What it leaves to others, by setting. */
static void test_refusals(void **state)
{
    static const struct {
        enum cvy_op op;
        int64_t channels, outputs;
        int32_t kernel, stride, pad, groups;
        bool always, with_avx2; /* whether it is taken */
    } cases[] = {
        {CVY_OP_CONV2D, 64, 64, 1, 1, 0, 1, true, true},
        {CVY_OP_CONV2D, 3, 64, 1, 1, 0, 1, true, true},
        {CVY_OP_CONV2D, 12, 64, 1, 1, 0, 1, false, false}, /* neither few nor blocks */
        {CVY_OP_CONV2D, 64, 60, 1, 1, 0, 1, true, true},   /* the last block has zeros */
        {CVY_OP_CONV2D, 64, 64, 1, 1, 0, 8, false, false},
        {CVY_OP_CONV2D, 64, 64, 3, 1, 1, 1, true, false},
        {CVY_OP_CONV2D_BWD_DATA, 64, 64, 1, 2, 0, 1, true, true},
        {CVY_OP_CONV2D_BWD_DATA, 64, 64, 1, 2, 1, 1, false, false},
        {CVY_OP_CONV2D_BWD_DATA, 64, 64, 3, 1, 1, 1, true, false},
        {CVY_OP_CONV2D_BWD_DATA, 64, 64, 3, 2, 1, 1, false, false},
        {CVY_OP_CONV2D_BWD_DATA, 3, 64, 1, 1, 0, 1, false, false},
        {CVY_OP_CONV2D_BWD_WEIGHTS, 3, 64, 7, 2, 3, 1, true, false},
        {CVY_OP_CONV2D_BWD_WEIGHTS, 64, 64, 1, 2, 0, 1, true, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int32_t kernel = cases[i].kernel, stride = cases[i].stride, pad = cases[i].pad;
        struct convolution c = {.op = cases[i].op,
                                .attr = {.kernel = {kernel, kernel},
                                         .stride = {stride, stride},
                                         .dilation = {1, 1},
                                         .pad = {pad, pad, pad, pad},
                                         .groups = cases[i].groups},
                                .x = convolution_tensor(2, cases[i].channels, 14, 14)};
        const int64_t extent = convolution_outputs(&c.attr, 0, 14);
        c.y = convolution_tensor(2, cases[i].outputs, extent, extent);
        c.w = convolution_tensor(cases[i].outputs, cases[i].channels / cases[i].groups, kernel, kernel);
        for (int choice = CPU_AUTO; choice <= CPU_NEVER; choice++) {
            struct cvy_op_desc desc = convolution_describe(&c);
            struct cvy_kernel_plan plan = {.in_place = {-1}};
            const bool windows = choice == CPU_ALWAYS || cvy_cpu_isa() == CVY_ISA_BASE;
            const bool fits = choice != CPU_NEVER && (windows ? cases[i].always : cases[i].with_avx2);
            cpu_of(devices[0])->direct = (enum cpu_choice)choice;
            const cvy_status status = kernel_for(c.op)->prepare(devices[0], &desc, &plan);
            if (status != (fits ? CVY_OK : CVY_UNAVAILABLE))
                fail_msg("case %zu, setting %d: %d", i, choice, (int)status);
            cpu_state_release(devices[0], &plan);
        }
    }
    cpu_of(devices[0])->direct = CPU_ALWAYS;
}

/* Strided along one axis, padded along the other: dy's pixels would lie beside dx. */
static void test_padded_beside_strides(void **state)
{
    (void)state;
    for (int axis = 0; axis < 2; axis++)
        for (int pad = 0; pad < 4; pad++) {
            struct convolution c = {.op = CVY_OP_CONV2D_BWD_DATA,
                                    .attr = {.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1},
                                    .x = convolution_tensor(1, 64, 5, 5),
                                    .w = convolution_tensor(64, 64, 1, 1)};
            c.attr.stride[axis] = 2;
            c.attr.pad[pad] = 1;
            c.y = convolution_tensor(1, 64, convolution_outputs(&c.attr, 0, 5), convolution_outputs(&c.attr, 1, 5));
            struct cvy_op_desc desc = convolution_describe(&c);
            struct cvy_kernel_plan plan = {.in_place = {-1}};
            assert_int_equal(cpu_direct_prepare(devices[0], &desc, &plan), CVY_UNAVAILABLE);
        }
}

static int open_devices(void **state)
{
    (void)state;
    if (!direct_loops_here()) {
        fprintf(stderr, "skipped: with AVX-512 there are none\n");
        exit(77);
    }
    for (int i = 0; i < THREADS; i++) {
        devices[i] = executor_device("cpu", i + 1);
        cpu_of(devices[i])->direct = CPU_ALWAYS;
    }
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    for (int i = 0; i < THREADS; i++)
        cvy_device_close(devices[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_problems), cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_padded_beside_strides)};

    return processor_is_repeated() ? 77 : cmocka_run_group_tests(tests, open_devices, close_devices);
}
