/* Convolutions by Winograd's algorithm, by themselves: random problems against plain sums in double, with the same bits
 * whatever the number of threads is and whatever lies in the working memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/conv/winograd_loops.h"
#include "backend/cpu/cpu.h"
#include "base/system.h"
#include "support_convolution.h"
#include "support_executor.h"
#include "support_processor.h"
#include "support_test.h"

#if defined(__SANITIZE_ADDRESS__) /* where the plain sums are most of the time */
enum { PROBLEMS = 80 };
#else
enum { PROBLEMS = 160 };
#endif
enum { THREADS = 3 };

static cvy_device *devices[THREADS]; /* device i has i + 1 threads */

struct problem {
    struct convolution convolution;
    enum winograd_form form; /* of the forward pass; gradients of weights are 4X4 or STRIDED */
};

/* Whether the kernel takes it: the gradient of data at stride 2 where both paddings are odd or both are even. */
static bool is_taken(const struct problem *p)
{
    const struct cvy_conv2d_attr *const attr = &p->convolution.attr;
    return p->convolution.op != CVY_OP_CONV2D_BWD_DATA || p->form != WINOGRAD_STRIDED ||
           attr->pad[0] % 2 == attr->pad[2] % 2;
}

/* Every ninth one has many channels, every tenth wide images; some have so many pixels that there are several chunks.
 */
static void set_up_problem(struct problem *p, int number)
{
    static const enum cvy_op ops[] = {CVY_OP_CONV2D, CVY_OP_CONV2D_BWD_DATA, CVY_OP_CONV2D_BWD_WEIGHTS};
    struct cvy_rng rng = cvy_rng_new(11, CVY_RNG_INIT, 0, (uint32_t)number);
    const uint32_t block = (uint32_t)cpu_block(&(struct cvy_layout){.kind = cpu_of(devices[0])->blocked});
    const bool deep = number % 9 == 0, wide = number % 10 == 0, many = number % 14 == 1;
    const int64_t channels = block * (1 + (int64_t)cvy_rng_below(&rng, deep ? 40 : 6));
    const int64_t kernels = block * (1 + (int64_t)cvy_rng_below(&rng, 6));
    struct convolution *const c = &p->convolution;
    int64_t input[2], output[2];

    *p = (struct problem){.convolution = {.op = ops[number % 3], .attr = {.groups = 1}},
                          .form = (enum winograd_form)(number / 3 % 3)};
    if (c->op == CVY_OP_CONV2D_BWD_WEIGHTS && p->form == WINOGRAD_2X2)
        p->form = WINOGRAD_4X4;
    for (int d = 0; d < 2; d++) {
        c->attr.kernel[d] = 3;
        c->attr.stride[d] = p->form == WINOGRAD_STRIDED ? 2 : 1;
        c->attr.dilation[d] = 1;
        do {
            for (int end = 0; end < 2; end++)
                c->attr.pad[2 * d + end] = (int32_t)cvy_rng_below(&rng, 5);
            input[d] = 1 + (int64_t)cvy_rng_below(&rng, d == 1 && wide ? 300 : many ? 60 : 15);
            output[d] = convolution_outputs(&c->attr, d, input[d]);
        } while (output[d] == 0 || (d == 1 && !is_taken(p)));
        c->attr.input[d] = (int32_t)input[d];
    }
    const int64_t batch = 1 + (int64_t)cvy_rng_below(&rng, 4);
    c->x = convolution_tensor(batch, channels, input[0], input[1]);
    c->y = convolution_tensor(batch, kernels, output[0], output[1]);
    c->w = convolution_tensor(kernels, channels, 3, 3);
    convolution_draw(c, devices[0], &rng);
}

static struct convolution_kernel kernel_of(const struct problem *p)
{
    struct convolution_kernel kernel = {.prepare = p->form == WINOGRAD_STRIDED ? cpu_winograd_strided_prepare
                                                   : p->form == WINOGRAD_2X2   ? cpu_winograd_2x2_prepare
                                                                               : cpu_winograd_4x4_prepare,
                                        .run = cpu_winograd_run,
                                        .prepare_weights = cpu_reorder_winograd_prepare,
                                        .run_weights = cpu_reorder_winograd_run};

    if (p->convolution.op == CVY_OP_CONV2D_BWD_WEIGHTS) {
        kernel.prepare =
            p->form == WINOGRAD_STRIDED ? cpu_winograd_strided_gradient_prepare : cpu_winograd_gradient_prepare;
        kernel.run = cpu_winograd_gradient_run;
    }
    return kernel;
}

/* All outputs of a tile share what is rounded. Measured, in roundings of the largest sum of magnitudes: 2.1 at most
 * with tiles of 2 x 2, 5.0 at stride 2 (of gradients of weights, which share sums with taps that have no part in them);
 * with tiles of 4 x 4 15.5, with other draws and vectors up to 28, in images of some pixels. A factor that is wrong in
 * its fourth digit makes thousands. */
static void test_problems(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEMS; i++) {
        struct problem p;
        set_up_problem(&p, i);
        const struct convolution_kernel kernel = kernel_of(&p);
        const double roundings = p.form == WINOGRAD_4X4 ? 40 : p.form == WINOGRAD_STRIDED ? 10 : 4;
        convolution_try(&p.convolution, &kernel, devices, THREADS, i, roundings);
        convolution_release(&p.convolution);
    }
}

/* Windows of other strides, and paddings that two kinds of tiles would be needed for, are left to others. */
static void test_strides(void **state)
{
    (void)state;
    for (int form = 0; form < WINOGRAD_FORWARD_FORMS; form++)
        for (int stride = 1; stride <= 3; stride++)
            for (int pad = 0; pad < 3; pad++) {
                const struct problem p = {
                    .convolution = {.op = CVY_OP_CONV2D_BWD_DATA,
                                    .attr = {.kernel = {3, 3},
                                             .stride = {stride, stride},
                                             .dilation = {1, 1},
                                             .pad = {pad, 1, 1, 1},
                                             .groups = 1},
                                    .x = convolution_tensor(1, 64, 8, 8),
                                    .y = convolution_tensor(1, 64, (5 + pad + 1) / stride + 1, (5 + 2) / stride + 1),
                                    .w = convolution_tensor(64, 64, 3, 3)},
                    .form = (enum winograd_form)form};
                struct cvy_op_desc desc = convolution_describe(&p.convolution);
                struct cvy_kernel_plan plan = {.in_place = {-1}};
                const bool fits = stride == (form == WINOGRAD_STRIDED ? 2 : 1) && is_taken(&p);
                assert_int_equal(kernel_of(&p).prepare(devices[0], &desc, &plan), fits ? CVY_OK : CVY_UNAVAILABLE);
                cpu_state_release(devices[0], &plan);
            }
}

/* Tiles of 4 x 4 round more: by default inference alone has them. */
static void test_settings(void **state)
{
    struct problem p;

    (void)state;
    set_up_problem(&p, 0); /* forward */
    for (int setting = CPU_WINOGRAD_NONE; setting <= CPU_WINOGRAD_ALL; setting++)
        for (int training = 0; training < 2; training++) {
            struct cvy_op_desc desc = convolution_describe(&p.convolution), small = desc;
            struct cvy_kernel_plan plan = {0}, small_plan = {0};
            desc.training = small.training = training;
            desc.inference = small.inference = !training;
            cpu_of(devices[0])->winograd = (enum cpu_winograd)setting;
            const bool large_taken = cpu_winograd_4x4_prepare(devices[0], &desc, &plan) == CVY_OK;
            const bool small_taken = cpu_winograd_2x2_prepare(devices[0], &small, &small_plan) == CVY_OK;
            assert_int_equal(large_taken, setting == CPU_WINOGRAD_ALL || (setting == CPU_WINOGRAD_AUTO && !training));
            assert_int_equal(small_taken, setting >= CPU_WINOGRAD_AUTO);
            cpu_state_release(devices[0], &plan);
            cpu_state_release(devices[0], &small_plan);
        }
    cpu_of(devices[0])->winograd = CPU_WINOGRAD_ALL;
    convolution_release(&p.convolution);
}

/* What would take hundreds of mebibytes beside the images is left to others. */
static void test_memory(void **state)
{
    static const struct {
        int64_t channels, kernels, columns;
        bool fits;
    } sizes[] = {{64, 64, 1000, true}, {512, 512, 7, true}, {4096, 4096, 7, false}, {64, 64, 1 << 20, false}};
    static const enum cvy_op ops[] = {CVY_OP_CONV2D, CVY_OP_CONV2D_BWD_DATA, CVY_OP_CONV2D_BWD_WEIGHTS};

    (void)state;
    for (size_t i = 0; i < 3 * sizeof sizes / sizeof *sizes; i++) {
        const int64_t channels = sizes[i / 3].channels, kernels = sizes[i / 3].kernels, columns = sizes[i / 3].columns;
        const struct convolution p = {
            .op = ops[i % 3],
            .attr = {.kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad = {1, 1, 1, 1}, .groups = 1},
            .x = convolution_tensor(1, channels, 8, columns),
            .y = convolution_tensor(1, kernels, 8, columns),
            .w = convolution_tensor(kernels, channels, 3, 3)};
        struct cvy_op_desc desc = convolution_describe(&p);
        struct cvy_kernel_plan plan = {.in_place = {-1}};
        const cvy_status status =
            (p.op == CVY_OP_CONV2D_BWD_WEIGHTS ? cpu_winograd_gradient_prepare
                                               : cpu_winograd_4x4_prepare)(devices[0], &desc, &plan);
        assert_int_equal(status, sizes[i / 3].fits ? CVY_OK : CVY_UNAVAILABLE);
        if (status == CVY_OK)
            assert_in_range(plan.scratch_bytes, 1, (size_t)64 << 20);
        else
            assert_non_null(strstr(cvy_error(), "MiB"));
        cpu_state_release(devices[0], &plan);
    }
}

static int open_devices(void **state)
{
    (void)state;
    for (int i = 0; i < THREADS; i++) {
        devices[i] = executor_device("cpu", i + 1);
        cpu_of(devices[i])->winograd = CPU_WINOGRAD_ALL;
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_problems), cmocka_unit_test(test_strides),
                                       cmocka_unit_test(test_settings), cmocka_unit_test(test_memory)};

    return processor_is_repeated() ? 77 : cmocka_run_group_tests(tests, open_devices, close_devices);
}
