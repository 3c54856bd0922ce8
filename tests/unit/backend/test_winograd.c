/* Convolutions by Winograd's algorithm, by themselves: random problems against plain sums in double, with the same bits
 * whatever the number of threads is and whatever lies in the working memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/conv/winograd_loops.h"
#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "base/system.h"
#include "support_executor.h"
#include "support_processor.h"
#include "support_test.h"

#if defined(__SANITIZE_ADDRESS__) /* where the plain sums are most of the time */
enum { PROBLEMS = 80 };
#else
enum { PROBLEMS = 160 };
#endif
enum { THREADS = 3, TAPS = 9 };

static cvy_device *devices[THREADS + 1];

/* x (N, C, H, W), y (N, K, P, Q), both in the device's blocks, and w (K, C, 3, 3); or their gradients. */
struct problem {
    enum cvy_op op;
    enum winograd_form form; /* of the forward pass; gradients of weights are 4X4 or STRIDED */
    struct cvy_conv2d_attr attr;
    struct cvy_tensor x, y, w;
    bool bias, residual;
    float *images[2]; /* x and y: what is read, random in any case */
    float *weights, *shift, *more;
    float *result;
    double *expected, *size; /* size: the sum of the magnitudes of what is summed */
};

static size_t count_of(const struct cvy_tensor *tensor)
{
    return (size_t)cvy_shape_elements(&tensor->shape);
}

static void *memory_of(size_t bytes)
{
    void *const memory = cvy_calloc_aligned(bytes + 64);

    assert_non_null(memory);
    return memory;
}

static float *draw_numbers(struct cvy_rng *rng, size_t count)
{
    float *const numbers = memory_of(count * sizeof *numbers);

    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)cvy_rng_below(rng, 2001) / 1000 - 1;
    return numbers;
}

static struct cvy_tensor tensor_of(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct cvy_tensor){.shape = {.rank = 4, .dim = {a, b, c, d}}, .dtype = CVY_F32};
}

static const struct cvy_tensor *output_of(const struct problem *p)
{
    return p->op == CVY_OP_CONV2D ? &p->y : p->op == CVY_OP_CONV2D_BWD_DATA ? &p->x : &p->w;
}

/* Whether the kernel takes it: the gradient of data at stride 2 where both paddings are odd or both are even. */
static bool is_taken(const struct problem *p)
{
    return p->op != CVY_OP_CONV2D_BWD_DATA || p->form != WINOGRAD_STRIDED || p->attr.pad[0] % 2 == p->attr.pad[2] % 2;
}

/* Every ninth one has many channels, every tenth wide images; some have so many pixels that there are several chunks.
 */
static void set_up_problem(struct problem *p, int number)
{
    static const enum cvy_op ops[] = {CVY_OP_CONV2D, CVY_OP_CONV2D_BWD_DATA, CVY_OP_CONV2D_BWD_WEIGHTS};
    struct cvy_rng rng = cvy_rng_new(11, CVY_RNG_INIT, 0, (uint32_t)number);
    const uint32_t block = (uint32_t)cpu_block(&(struct cvy_layout){.kind = cpu_of(devices[1])->blocked});
    const bool deep = number % 9 == 0, wide = number % 10 == 0, many = number % 14 == 1;
    const int64_t channels = block * (1 + (int64_t)cvy_rng_below(&rng, deep ? 40 : 6));
    const int64_t kernels = block * (1 + (int64_t)cvy_rng_below(&rng, 6));
    int64_t input[2], output[2];

    *p = (struct problem){.op = ops[number % 3], .form = (enum winograd_form)(number / 3 % 3), .attr = {.groups = 1}};
    if (p->op == CVY_OP_CONV2D_BWD_WEIGHTS && p->form == WINOGRAD_2X2)
        p->form = WINOGRAD_4X4;
    for (int d = 0; d < 2; d++) {
        p->attr.kernel[d] = 3;
        p->attr.stride[d] = p->form == WINOGRAD_STRIDED ? 2 : 1;
        p->attr.dilation[d] = 1;
        do {
            for (int end = 0; end < 2; end++)
                p->attr.pad[2 * d + end] = (int32_t)cvy_rng_below(&rng, 5);
            input[d] = 1 + (int64_t)cvy_rng_below(&rng, d == 1 && wide ? 300 : many ? 60 : 15);
            output[d] = input[d] + p->attr.pad[2 * d] + p->attr.pad[2 * d + 1] - 3;
        } while (output[d] < 0 || (d == 1 && !is_taken(p)));
        output[d] = output[d] / p->attr.stride[d] + 1;
        p->attr.input[d] = (int32_t)input[d];
    }
    const int64_t batch = 1 + (int64_t)cvy_rng_below(&rng, 4);
    p->x = tensor_of(batch, channels, input[0], input[1]);
    p->y = tensor_of(batch, kernels, output[0], output[1]);
    p->w = tensor_of(kernels, channels, 3, 3);
    if (p->op == CVY_OP_CONV2D) {
        p->bias = cvy_rng_below(&rng, 2);
        p->residual = cvy_rng_below(&rng, 2);
        p->attr.activation = cvy_rng_below(&rng, 3);
    }
    p->images[0] = draw_numbers(&rng, count_of(&p->x));
    p->images[1] = draw_numbers(&rng, count_of(&p->y));
    p->weights = draw_numbers(&rng, count_of(&p->w));
    p->shift = draw_numbers(&rng, (size_t)kernels);
    p->more = draw_numbers(&rng, count_of(&p->y));
    p->result = memory_of(count_of(output_of(p)) * sizeof *p->result);
    p->expected = memory_of(count_of(output_of(p)) * sizeof *p->expected);
    p->size = memory_of(count_of(output_of(p)) * sizeof *p->size);
}

static void tear_down_problem(struct problem *p)
{
    void *const all[] = {p->images[0], p->images[1], p->weights, p->shift, p->more, p->result, p->expected, p->size};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cvy_free_aligned(all[i]);
}

/* Element of an image in blocks. */
static size_t place_of(const struct cvy_tensor *image, int64_t n, int64_t c, int64_t pixel)
{
    const int64_t block = cpu_block(&(struct cvy_layout){.kind = cpu_of(devices[1])->blocked});
    const int64_t pixels = image->shape.dim[2] * image->shape.dim[3];

    return (size_t)(((n * image->shape.dim[1] + c / block * block) * pixels) + pixel * block + c % block);
}

/* What belongs to one pixel of y, one of x and one tap. */
static void add_tap(struct problem *p, int64_t n, int64_t x_pixel, int64_t y_pixel, int64_t tap)
{
    const int64_t kernels = p->w.shape.dim[0], channels = p->w.shape.dim[1];

    for (int64_t k = 0; k < kernels; k++)
        for (int64_t c = 0; c < channels; c++) {
            const size_t x = place_of(&p->x, n, c, x_pixel), y = place_of(&p->y, n, k, y_pixel);
            const size_t w = (size_t)((k * channels + c) * TAPS + tap);
            const size_t to = p->op == CVY_OP_CONV2D ? y : p->op == CVY_OP_CONV2D_BWD_DATA ? x : w;
            const double a = (double)(p->op == CVY_OP_CONV2D_BWD_DATA ? p->images[1][y] : p->images[0][x]);
            const double b = (double)(p->op == CVY_OP_CONV2D_BWD_WEIGHTS ? p->images[1][y] : p->weights[w]);
            p->expected[to] += a * b;
            p->size[to] += fabs(a * b);
        }
}

static void finish(struct problem *p)
{
    const int64_t *const y = p->y.shape.dim;

    for (int64_t n = 0; n < y[0]; n++)
        for (int64_t k = 0; k < y[1]; k++)
            for (int64_t i = 0; i < y[2] * y[3]; i++) {
                double *const to = &p->expected[place_of(&p->y, n, k, i)];
                *to += p->bias ? (double)p->shift[k] : 0;
                *to += p->residual ? (double)p->more[place_of(&p->y, n, k, i)] : 0;
                if (p->attr.activation != CVY_ACTIVATION_NONE)
                    *to = fmax(*to, 0);
                if (p->attr.activation == CVY_ACTIVATION_RELU6)
                    *to = fmin(*to, 6);
            }
}

static void expect(struct problem *p)
{
    const int64_t *const x = p->x.shape.dim, *const y = p->y.shape.dim;

    for (int64_t n = 0; n < y[0]; n++)
        for (int64_t i = 0; i < y[2] * y[3]; i++)
            for (int64_t tap = 0; tap < TAPS; tap++) {
                const int64_t h = i / y[3] * p->attr.stride[0] + tap / 3 - p->attr.pad[0];
                const int64_t w = i % y[3] * p->attr.stride[1] + tap % 3 - p->attr.pad[2];
                if (h >= 0 && h < x[2] && w >= 0 && w < x[3])
                    add_tap(p, n, h * x[3] + w, i, tap);
            }
    if (p->op == CVY_OP_CONV2D)
        finish(p);
}

static struct cvy_op_desc describe(const struct problem *p)
{
    struct cvy_op_desc desc = executor_desc(p->op, p->op == CVY_OP_CONV2D ? 4 : 2, 1);

    desc.attr.conv2d = p->attr;
    desc.training = p->op != CVY_OP_CONV2D;
    desc.in[0] = p->op == CVY_OP_CONV2D_BWD_DATA ? p->w : p->x;
    desc.in[1] = p->op == CVY_OP_CONV2D ? p->w : p->y;
    desc.out[0] = *output_of(p);
    if (p->bias)
        desc.in[2] = (struct cvy_tensor){.shape = {.rank = 1, .dim = {p->y.shape.dim[1]}}, .dtype = CVY_F32};
    if (p->residual)
        desc.in[3] = p->y;
    return desc;
}

/* Weights in the layout that the kernel asks for; released by the caller. */
static float *transform_weights(cvy_device *device, const struct problem *p, const struct cvy_tensor *wanted)
{
    float *const to = memory_of(cpu_tensor_bytes(device, wanted));
    struct cvy_op_desc there = {.op = CVY_OP_REORDER, .inputs = 1, .outputs = 1, .in = {p->w}, .out = {*wanted}};
    struct cvy_kernel_plan plan = {0};

    assert_int_equal(cpu_reorder_winograd_prepare(device, &there, &plan), CVY_OK);
    assert_int_equal(cpu_reorder_winograd_run(device, &plan, (void *[]){p->weights}, (void *[]){to}, NULL), CVY_OK);
    cpu_state_release(device, &plan);
    return to;
}

static cvy_status prepare(cvy_device *device, const struct problem *p, struct cvy_op_desc *desc,
                          struct cvy_kernel_plan *plan)
{
    if (p->op == CVY_OP_CONV2D_BWD_WEIGHTS)
        return (p->form == WINOGRAD_STRIDED ? cpu_winograd_strided_gradient_prepare
                                            : cpu_winograd_gradient_prepare)(device, desc, plan);
    return (p->form == WINOGRAD_STRIDED ? cpu_winograd_strided_prepare
            : p->form == WINOGRAD_2X2   ? cpu_winograd_2x2_prepare
                                        : cpu_winograd_4x4_prepare)(device, desc, plan);
}

/* `over`: the result takes the place of what is added. */
static void run_problem(struct problem *p, int number, int threads, bool over)
{
    cvy_device *const device = devices[threads];
    const bool gradient = p->op == CVY_OP_CONV2D_BWD_WEIGHTS, backward = p->op == CVY_OP_CONV2D_BWD_DATA;
    const struct cvy_kernel kernel = {.op = p->op};
    struct cvy_op_desc desc = describe(p);
    struct cvy_kernel_plan plan = {.kernel = &kernel, .in_place = {-1}};
    const size_t bytes = count_of(&desc.out[0]) * sizeof *p->result;

    if (prepare(device, p, &desc, &plan) != CVY_OK)
        fail_msg("problem %d: %s", number, cvy_error());
    assert_int_equal(plan.in_place[0], p->residual ? 3 : -1);
    void *const scratch = memory_of(plan.scratch_bytes);
    memset(scratch, 0xff, plan.scratch_bytes); /* NaN */
    memset(p->result, 0xff, bytes);
    float *const weights = gradient ? NULL : transform_weights(device, p, &desc.in[backward ? 0 : 1]);
    void *in[CVY_MAX_INPUTS] = {backward ? weights : p->images[0], p->op == CVY_OP_CONV2D ? weights : p->images[1]};
    void *out[] = {p->result};
    if (p->bias)
        in[2] = p->shift;
    if (p->residual)
        in[3] = p->more;
    if (p->residual && over) {
        memcpy(p->result, p->more, bytes);
        in[3] = p->result;
    }
    assert_int_equal((gradient ? cpu_winograd_gradient_run : cpu_winograd_run)(device, &plan, in, out, scratch),
                     CVY_OK);
    cpu_state_release(device, &plan);
    cvy_free_aligned(scratch);
    cvy_free_aligned(weights);
}

/* Roundings of the largest sum of magnitudes, for all outputs of a tile share what is rounded. Measured: 2.1 at most
 * with tiles of 2 x 2, 5.0 at stride 2 (of gradients of weights, which share sums with taps that have no part in them);
 * with tiles of 4 x 4 15.5, with other draws and vectors up to 28, in images of some pixels. A factor that is wrong in
 * its fourth digit makes thousands. */
static void check_near(const struct problem *p, int number)
{
    const double roundings = p->form == WINOGRAD_4X4 ? 40 : p->form == WINOGRAD_STRIDED ? 10 : 4;
    double largest = 1;

    for (size_t i = 0; i < count_of(output_of(p)); i++)
        largest = fmax(largest, p->size[i]);
    for (size_t i = 0; i < count_of(output_of(p)); i++) {
        const double off = fabs((double)p->result[i] - p->expected[i]) / (0x1p-24 * largest);
        if (!(off <= roundings))
            fail_msg("problem %d: number %zu is %.9g, not %.9g", number, i, (double)p->result[i], p->expected[i]);
    }
}

static void test_problems(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEMS; i++) {
        struct problem p;
        set_up_problem(&p, i);
        expect(&p);
        run_problem(&p, i, 1, false);
        check_near(&p, i);
        const size_t bytes = count_of(output_of(&p)) * sizeof *p.result;
        void *const first = memory_of(bytes);
        memcpy(first, p.result, bytes);
        for (int threads = 2; threads <= THREADS; threads++) {
            run_problem(&p, i, threads, threads == THREADS);
            assert_memory_equal(first, p.result, bytes);
        }
        cvy_free_aligned(first);
        tear_down_problem(&p);
    }
}

/* Windows of other strides, and paddings that two kinds of tiles would be needed for, are left to others. */
static void test_strides(void **state)
{
    (void)state;
    for (int form = 0; form < WINOGRAD_FORWARD_FORMS; form++)
        for (int stride = 1; stride <= 3; stride++)
            for (int pad = 0; pad < 3; pad++) {
                const struct problem p = {.op = CVY_OP_CONV2D_BWD_DATA,
                                          .form = (enum winograd_form)form,
                                          .attr = {.kernel = {3, 3},
                                                   .stride = {stride, stride},
                                                   .dilation = {1, 1},
                                                   .pad = {pad, 1, 1, 1},
                                                   .groups = 1},
                                          .x = tensor_of(1, 64, 8, 8),
                                          .y = tensor_of(1, 64, (5 + pad + 1) / stride + 1, (5 + 2) / stride + 1),
                                          .w = tensor_of(64, 64, 3, 3)};
                struct cvy_op_desc desc = describe(&p);
                struct cvy_kernel_plan plan = {.in_place = {-1}};
                const bool fits = stride == (form == WINOGRAD_STRIDED ? 2 : 1) && is_taken(&p);
                assert_int_equal(prepare(devices[1], &p, &desc, &plan), fits ? CVY_OK : CVY_UNAVAILABLE);
                cpu_state_release(devices[1], &plan);
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
            struct cvy_op_desc desc = describe(&p), small = desc;
            struct cvy_kernel_plan plan = {0}, small_plan = {0};
            desc.training = small.training = training;
            desc.inference = small.inference = !training;
            cpu_of(devices[1])->winograd = (enum cpu_winograd)setting;
            const bool large_taken = cpu_winograd_4x4_prepare(devices[1], &desc, &plan) == CVY_OK;
            const bool small_taken = cpu_winograd_2x2_prepare(devices[1], &small, &small_plan) == CVY_OK;
            assert_int_equal(large_taken, setting == CPU_WINOGRAD_ALL || (setting == CPU_WINOGRAD_AUTO && !training));
            assert_int_equal(small_taken, setting >= CPU_WINOGRAD_AUTO);
            cpu_state_release(devices[1], &plan);
            cpu_state_release(devices[1], &small_plan);
        }
    cpu_of(devices[1])->winograd = CPU_WINOGRAD_ALL;
    tear_down_problem(&p);
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
        const struct problem p = {
            .op = ops[i % 3],
            .attr = {.kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad = {1, 1, 1, 1}, .groups = 1},
            .x = tensor_of(1, channels, 8, columns),
            .y = tensor_of(1, kernels, 8, columns),
            .w = tensor_of(kernels, channels, 3, 3)};
        struct cvy_op_desc desc = describe(&p);
        struct cvy_kernel_plan plan = {.in_place = {-1}};
        const cvy_status status =
            (p.op == CVY_OP_CONV2D_BWD_WEIGHTS ? cpu_winograd_gradient_prepare
                                               : cpu_winograd_4x4_prepare)(devices[1], &desc, &plan);
        assert_int_equal(status, sizes[i / 3].fits ? CVY_OK : CVY_UNAVAILABLE);
        if (status == CVY_OK)
            assert_in_range(plan.scratch_bytes, 1, (size_t)64 << 20);
        else
            assert_non_null(strstr(cvy_error(), "MiB"));
        cpu_state_release(devices[1], &plan);
    }
}

static int open_devices(void **state)
{
    (void)state;
    if (cvy_cpu_isa() < CVY_ISA_AVX2) {
        fprintf(stderr, "skipped: this processor has no AVX2\n");
        exit(77);
    }
    for (int threads = 1; threads <= THREADS; threads++) {
        devices[threads] = executor_device("cpu", threads);
        cpu_of(devices[threads])->winograd = CPU_WINOGRAD_ALL;
    }
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    for (int threads = 1; threads <= THREADS; threads++)
        cvy_device_close(devices[threads]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_problems), cmocka_unit_test(test_strides),
                                       cmocka_unit_test(test_settings), cmocka_unit_test(test_memory)};

    return processor_is_repeated() ? 77 : cmocka_run_group_tests(tests, open_devices, close_devices);
}
