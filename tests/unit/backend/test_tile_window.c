/* Convolutions with windows by tile products, by themselves: whole numbers, so that every result is exact, against
 * plain loops, with the processor's tiles where it has them and with those in memory, whatever lies in the working
 * memory. */
#include "backend/cpu/cpu.h"
#include "support_test.h"
#include "support_tiles.h"

enum { PROBLEMS = 160 };

struct problem {
    struct cvy_op_desc desc;
    struct cvy_tensor x, y, w; /* images or their gradients */
    uint16_t *images, *weights, *result, *expected;
    float *bias;
};

/* Windows and extents of one dimension that leave at least one output. */
static void draw_axis(struct cvy_rng *rng, struct cvy_conv2d_attr *attr, int d, int64_t most, int64_t *input,
                      int64_t *output)
{
    int64_t past;

    do {
        attr->kernel[d] = 1 + (int32_t)cvy_rng_below(rng, cvy_rng_below(rng, 4) ? 3 : 7);
        attr->stride[d] = 1 + (int32_t)cvy_rng_below(rng, 2);
        attr->dilation[d] = cvy_rng_below(rng, 4) ? 1 : 2;
        for (int end = 0; end < 2; end++)
            attr->pad[2 * d + end] = (int32_t)cvy_rng_below(rng, (uint32_t)attr->kernel[d] + 1);
        *input = 1 + (int64_t)cvy_rng_below(rng, (uint32_t)most);
        past = *input + attr->pad[2 * d] + attr->pad[2 * d + 1] - (attr->kernel[d] - 1) * attr->dilation[d] - 1;
    } while (past < 0);
    attr->input[d] = (int32_t)*input;
    *output = past / attr->stride[d] + 1;
}

/* Groups of all kinds that are taken; now and then rows longer than a band. */
static void set_up_problem(struct problem *p, struct cvy_rng *rng)
{
    const bool backward = cvy_rng_below(rng, 2), wide = cvy_rng_below(rng, 16) == 0;
    const bool constant = !backward && cvy_rng_below(rng, 2); /* weights that do not change: with groups alone */
    const int64_t batch = 1 + (int64_t)cvy_rng_below(rng, wide ? 2 : 7);
    int64_t channels = 32 * (1 + (int64_t)cvy_rng_below(rng, 3)), kernels = 32 * (1 + (int64_t)cvy_rng_below(rng, 3));
    struct cvy_conv2d_attr attr = {.groups = 1};
    int64_t input[2], output[2];

    if (constant || cvy_rng_below(rng, 3) == 0) {
        kernels = channels;
        attr.groups = (int32_t)channels / (cvy_rng_below(rng, 2) || (constant && channels == 32) ? 16 : 32);
    }
    if (constant)
        attr.activation = cvy_rng_below(rng, 3);
    do {
        draw_axis(rng, &attr, 0, wide ? 3 : 14, &input[0], &output[0]);
        draw_axis(rng, &attr, 1, wide ? 1200 : 14, &input[1], &output[1]);
    } while (attr.kernel[0] * attr.kernel[1] == 1);
    *p = (struct problem){.desc = {.op = backward ? CVY_OP_CONV2D_BWD_DATA : CVY_OP_CONV2D,
                                   .attr.conv2d = attr,
                                   .inputs = constant ? 3 : 2,
                                   .outputs = 1,
                                   .inference = constant,
                                   .training = !constant,
                                   .images = CVY_IMAGES_NHWC},
                          .x = tiles_image(batch, channels, input[0], input[1]),
                          .y = tiles_image(batch, kernels, output[0], output[1]),
                          .w = tiles_image(kernels, channels / attr.groups, attr.kernel[0], attr.kernel[1])};
    p->w.layout.kind = CVY_LAYOUT_PLAIN;
    p->desc.in[0] = backward ? p->w : p->x;
    p->desc.in[1] = backward ? p->y : p->w;
    p->desc.out[0] = backward ? p->x : p->y;
    p->desc.in[2] = (struct cvy_tensor){.shape = {.rank = -1}};
    if (constant && cvy_rng_below(rng, 2))
        p->desc.in[2] = (struct cvy_tensor){.shape = {.rank = 1, .dim = {kernels}}, .dtype = CVY_F32};
    p->bias = tiles_memory((size_t)kernels * sizeof *p->bias);
    for (int64_t k = 0; k < kernels; k++)
        p->bias[k] = (float)cvy_rng_below(rng, 41) - 20;
    p->images = tiles_draw(rng, tiles_count(backward ? &p->y : &p->x), 2);
    p->weights = tiles_draw(rng, tiles_count(&p->w), 1);
    p->result = tiles_draw(rng, tiles_count(&p->desc.out[0]), 1);
    p->expected = tiles_memory(tiles_count(&p->desc.out[0]) * sizeof *p->expected);
}

static void tear_down_problem(struct problem *p)
{
    tiles_release(p->images);
    tiles_release(p->weights);
    tiles_release(p->result);
    tiles_release(p->expected);
    tiles_release(p->bias);
}

/* The products of one tap at one output: of the channels of each group. `sums`: of all results. */
static void add_tap(const struct problem *p, int64_t x_pixel, int64_t y_pixel, int64_t tap, float *sums)
{
    const int64_t *const w = p->w.shape.dim, channels = p->x.shape.dim[1], kernels = w[0], taps = w[2] * w[3];
    const bool backward = p->desc.op == CVY_OP_CONV2D_BWD_DATA;

    for (int64_t k = 0; k < kernels; k++)
        for (int64_t c = 0; c < w[1]; c++) {
            const int64_t x = x_pixel * channels + k / (kernels / p->desc.attr.conv2d.groups) * w[1] + c;
            const int64_t y = y_pixel * kernels + k;
            const float weight = tiles_widen(p->weights[(k * w[1] + c) * taps + tap]);
            if (backward)
                sums[x] += tiles_widen(p->images[y]) * weight;
            else
                sums[y] += tiles_widen(p->images[x]) * weight;
        }
}

/* Bias and activation of a sum. */
static float finish(const struct problem *p, float sum, size_t kernel)
{
    const enum cvy_activation activation = p->desc.attr.conv2d.activation;

    sum += cvy_tensor_present(&p->desc.in[2]) ? p->bias[kernel] : 0;
    if (activation != CVY_ACTIVATION_NONE && sum < 0)
        sum = 0;
    return activation == CVY_ACTIVATION_RELU6 && sum > 6 ? 6 : sum;
}

static void expect(struct problem *p)
{
    const struct cvy_conv2d_attr *const attr = &p->desc.attr.conv2d;
    const int64_t *const x = p->x.shape.dim, *const y = p->y.shape.dim;
    const size_t results = tiles_count(&p->desc.out[0]);
    float *const sums = tiles_memory(results * sizeof *sums);

    for (int64_t i = 0; i < y[0] * y[2] * y[3]; i++)
        for (int64_t tap = 0; tap < attr->kernel[0] * attr->kernel[1]; tap++) {
            const int64_t h =
                i / y[3] % y[2] * attr->stride[0] + tap / attr->kernel[1] * attr->dilation[0] - attr->pad[0];
            const int64_t w = i % y[3] * attr->stride[1] + tap % attr->kernel[1] * attr->dilation[1] - attr->pad[2];
            if (h >= 0 && h < x[2] && w >= 0 && w < x[3])
                add_tap(p, (i / (y[2] * y[3]) * x[2] + h) * x[3] + w, i, tap, sums);
        }
    for (size_t i = 0; i < results; i++)
        p->expected[i] = tiles_narrow(finish(p, sums[i], i % (size_t)p->desc.out[0].shape.dim[1]));
    tiles_release(sums);
}

/* Weights in the layout that the kernel asks for; released by the caller. */
static uint16_t *reorder_weights(cvy_device *device, const struct problem *p, const struct cvy_tensor *wanted)
{
    uint16_t *const to = tiles_memory(cpu_tensor_bytes(device, wanted));
    uint16_t *const again = tiles_memory(tiles_count(&p->w) * sizeof *again);
    struct cvy_op_desc there = {.op = CVY_OP_REORDER, .inputs = 1, .outputs = 1, .in = {p->w}, .out = {*wanted}};
    struct cvy_op_desc back = {.op = CVY_OP_REORDER, .inputs = 1, .outputs = 1, .in = {*wanted}, .out = {p->w}};
    struct cvy_kernel_plan plan = {0};

    assert_int_equal(cpu_reorder_tiles_prepare(device, &there, &plan), CVY_OK);
    assert_int_equal(cpu_reorder_tiles_run(device, &plan, (void *[]){p->weights}, (void *[]){to}, NULL), CVY_OK);
    cpu_state_release(device, &plan);
    assert_int_equal(cpu_reorder_tiles_prepare(device, &back, &plan), CVY_OK);
    assert_int_equal(cpu_reorder_tiles_run(device, &plan, (void *[]){to}, (void *[]){again}, NULL), CVY_OK);
    cpu_state_release(device, &plan);
    assert_memory_equal(again, p->weights, tiles_count(&p->w) * sizeof *again);
    tiles_release(again);
    return to;
}

static void run_problem(struct problem *p, int number, int threads)
{
    cvy_device *const device = tiles_devices[threads];
    const bool backward = p->desc.op == CVY_OP_CONV2D_BWD_DATA;
    struct cvy_op_desc desc = p->desc;
    struct cvy_kernel_plan plan = {0};
    uint16_t *packed = NULL;

    if ((backward            ? cpu_tile_window_bwd_data_prepare
         : p->desc.inference ? cpu_tile_window_constant_prepare
                             : cpu_tile_window_prepare)(device, &desc, &plan) != CVY_OK)
        fail_msg("problem %d: %s", number, cvy_error());
    void *const scratch = tiles_memory(plan.scratch_bytes);
    memset(scratch, 0xff, plan.scratch_bytes); /* NaN */
    memset(p->result, 0xff, tiles_count(&p->desc.out[0]) * sizeof *p->result);
    if (p->desc.inference)
        packed = reorder_weights(device, p, &desc.in[1]);
    void *in[CVY_MAX_INPUTS] = {backward ? p->weights : p->images, backward ? p->images : p->weights};
    if (packed)
        in[1] = packed;
    if (cvy_tensor_present(&p->desc.in[2]))
        in[2] = p->bias;
    void *out[] = {p->result};
    assert_int_equal((backward ? cpu_tile_window_bwd_data_run : cpu_tile_window_run)(device, &plan, in, out, scratch),
                     CVY_OK);
    for (size_t i = 0; i < tiles_count(&p->desc.out[0]); i++)
        if (tiles_widen(p->result[i]) != tiles_widen(p->expected[i])) /* but zeros have any sign */
            fail_msg("problem %d, %d threads: number %zu is %g, not %g", number, threads, i,
                     (double)tiles_widen(p->result[i]), (double)tiles_widen(p->expected[i]));
    cpu_state_release(device, &plan);
    tiles_release(scratch);
    tiles_release(packed);
}

static void check_problems(bool model)
{
    tiles_need(model);
    for (int i = 0; i < (model ? PROBLEMS / 4 : PROBLEMS); i++) {
        struct cvy_rng rng = cvy_rng_new(6, CVY_RNG_INIT, 0, (uint32_t)i);
        struct problem p;
        set_up_problem(&p, &rng);
        expect(&p);
        run_problem(&p, i, 1);
        run_problem(&p, i, 2 + (int)cvy_rng_below(&rng, TILES_THREADS - 1));
        tear_down_problem(&p);
    }
}

static void problems_by_the_processors_tiles(void **state)
{
    check_problems(false);
}

static void problems_by_tiles_in_memory(void **state)
{
    check_problems(true);
}

static void others_are_refused(void **state)
{
    struct cvy_rng rng = cvy_rng_new(6, CVY_RNG_INIT, 1, 0);
    struct cvy_kernel_plan plan = {0};
    struct cvy_op_desc desc;
    struct problem p;

    tiles_need(true);
    do {
        set_up_problem(&p, &rng);
        tear_down_problem(&p);
    } while (p.desc.op != CVY_OP_CONV2D || p.desc.attr.conv2d.groups != 1 || p.desc.inference);
    desc = p.desc;
    assert_int_equal(cpu_tile_window_prepare(tiles_devices[1], &desc, &plan), CVY_OK);
    cpu_state_release(tiles_devices[1], &plan);
    desc = p.desc;
    desc.out[0].dtype = CVY_F32;
    assert_int_equal(cpu_tile_window_prepare(tiles_devices[1], &desc, &plan), CVY_UNAVAILABLE);
    desc = p.desc;
    desc.attr.conv2d.stride[1] = 3;
    assert_int_equal(cpu_tile_window_prepare(tiles_devices[1], &desc, &plan), CVY_UNAVAILABLE);
    desc = p.desc;
    desc.inference = true;
    assert_int_equal(cpu_tile_window_prepare(tiles_devices[1], &desc, &plan), CVY_UNAVAILABLE);
    desc = p.desc;
    assert_int_equal(cpu_tile_window_constant_prepare(tiles_devices[1], &desc, &plan), CVY_UNAVAILABLE);
}

RUN_TESTS(tiles_open, tiles_close, TEST(problems_by_the_processors_tiles), TEST(problems_by_tiles_in_memory),
          TEST(others_are_refused))
