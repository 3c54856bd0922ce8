/* 1x1 convolutions by tile products, by themselves: whole numbers, so that every result is exact, against plain loops,
 * with the processor's tiles where it has them and with those in memory, whatever lies in the working memory. */
#include "backend/cpu/conv/tile_product.h"
#include "base/rng.h"
#include "base/system.h"
#include "support_test.h"
#include "support_tiles.h"

enum { PROBLEMS = 160 };

/* ---- problems ---- */

struct problem {
    struct cvy_op_desc desc;
    struct cvy_tensor x, y, w; /* images or their gradients */
    uint16_t *images, *weights, *residual, *result, *expected;
    float *bias;
};

static void set_operands(struct problem *p, bool bias, bool residual)
{
    const struct cvy_tensor absent = {.shape = {.rank = -1}};
    struct cvy_op_desc *const desc = &p->desc;
    const bool backward = desc->op == CVY_OP_CONV2D_BWD_DATA;

    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        desc->in[i] = absent;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        desc->out[i] = absent;
    desc->in[backward ? 0 : 1] = p->w;
    desc->in[backward ? 1 : 0] = backward ? p->y : p->x;
    desc->out[0] = backward ? p->x : p->y;
    if (bias)
        desc->in[2] = (struct cvy_tensor){.shape = {.rank = 1, .dim = {p->w.shape.dim[0]}}, .dtype = CVY_F32};
    if (residual)
        desc->in[3] = p->y;
}

/* Few pixels and many, strides that divide the extents or not or are larger, all that may be added. `deep`: three
 * images and so many channels that threads share lanes out, and have their pixels one part after the other. */
static void set_up_problem(struct problem *p, struct cvy_rng *rng, bool deep)
{
    const bool backward = !deep && cvy_rng_below(rng, 2), strided = !deep && cvy_rng_below(rng, 2);
    const bool bias = !backward && cvy_rng_below(rng, 2), residual = !backward && cvy_rng_below(rng, 2);
    const bool constant = deep || (!backward && cvy_rng_below(rng, 2)); /* weights that do not change */
    const int64_t batch = deep ? 3 : 1 + (int64_t)cvy_rng_below(rng, 3);
    const int64_t channels = deep ? 2048 : 32 * (1 + (int64_t)cvy_rng_below(rng, 4));
    const int64_t kernels = deep ? 512 : 32 * (1 + (int64_t)cvy_rng_below(rng, 4));
    const int64_t extent[2] = {deep ? 7 : 1 + (int64_t)cvy_rng_below(rng, 16),
                               deep ? 7 : 1 + (int64_t)cvy_rng_below(rng, 16)};
    struct cvy_conv2d_attr attr = {.groups = 1, .activation = backward ? CVY_ACTIVATION_NONE : cvy_rng_below(rng, 3)};
    int64_t out[2];

    for (int d = 0; d < 2; d++) {
        attr.kernel[d] = attr.dilation[d] = 1;
        attr.input[d] = (int32_t)extent[d];
        attr.stride[d] = strided ? 1 + (int32_t)cvy_rng_below(rng, 4) : 1;
        out[d] = (extent[d] - 1) / attr.stride[d] + 1;
    }
    *p = (struct problem){.desc = {.op = backward ? CVY_OP_CONV2D_BWD_DATA : CVY_OP_CONV2D,
                                   .attr.conv2d = attr,
                                   .inputs = backward ? 9 : 8,
                                   .outputs = 3,
                                   .inference = constant,
                                   .training = !constant,
                                   .images = CVY_IMAGES_NHWC},
                          .x = tiles_image(batch, channels, extent[0], extent[1]),
                          .y = tiles_image(batch, kernels, out[0], out[1]),
                          .w = tiles_image(kernels, channels, 1, 1)};
    p->w.layout.kind = CVY_LAYOUT_PLAIN;
    set_operands(p, bias, residual);
    p->images = tiles_draw(rng, tiles_count(backward ? &p->y : &p->x), 4);
    p->weights = tiles_draw(rng, tiles_count(&p->w), 2);
    p->residual = tiles_draw(rng, tiles_count(&p->y), 100);
    p->bias = tiles_memory((size_t)kernels * sizeof *p->bias);
    for (int64_t k = 0; k < kernels; k++)
        p->bias[k] = (float)cvy_rng_below(rng, 41) - 20;
    p->images[0] = cvy_rng_below(rng, 8) ? p->images[0] : 0x7fc0; /* a NaN */
    p->result = tiles_draw(rng, tiles_count(&p->desc.out[0]), 1);
    p->expected = tiles_memory(tiles_count(&p->desc.out[0]) * sizeof *p->expected);
}

static void tear_down_problem(struct problem *p)
{
    void *const blocks[] = {p->images, p->weights, p->residual, p->bias, p->result, p->expected};

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        tiles_release(blocks[i]);
}

/* ---- what is expected ---- */

/* One pixel of y, from one of x. */
static void expect_forward(struct problem *p, const uint16_t *x, int64_t pixel)
{
    const int64_t kernels = p->w.shape.dim[0], channels = p->w.shape.dim[1];
    const enum cvy_activation activation = p->desc.attr.conv2d.activation;

    for (int64_t k = 0; k < kernels; k++) {
        float sum = cvy_tensor_present(&p->desc.in[2]) ? p->bias[k] : 0;
        for (int64_t c = 0; c < channels; c++)
            sum += tiles_widen(x[c]) * tiles_widen(p->weights[k * channels + c]);
        if (cvy_tensor_present(&p->desc.in[3]))
            sum += tiles_widen(p->residual[pixel * kernels + k]);
        if (activation != CVY_ACTIVATION_NONE && sum < 0)
            sum = 0;
        if (activation == CVY_ACTIVATION_RELU6 && sum > 6)
            sum = 6;
        p->expected[pixel * kernels + k] = tiles_narrow(sum);
    }
}

/* One pixel of dx, from one of dy. */
static void expect_backward(struct problem *p, uint16_t *dx, int64_t pixel)
{
    const int64_t kernels = p->w.shape.dim[0], channels = p->w.shape.dim[1];

    for (int64_t c = 0; c < channels; c++) {
        float sum = 0;
        for (int64_t k = 0; k < kernels; k++)
            sum += tiles_widen(p->images[pixel * kernels + k]) * tiles_widen(p->weights[k * channels + c]);
        dx[c] = tiles_narrow(sum);
    }
}

static void expect(struct problem *p)
{
    const int64_t *const x = p->x.shape.dim, *const y = p->y.shape.dim;
    const int32_t *const stride = p->desc.attr.conv2d.stride;

    for (int64_t i = 0; i < y[0] * y[2] * y[3]; i++) {
        const int64_t n = i / (y[2] * y[3]), row = i / y[3] % y[2] * stride[0], column = i % y[3] * stride[1];
        const int64_t at = ((n * x[2] + row) * x[3] + column) * x[1];
        if (p->desc.op == CVY_OP_CONV2D)
            expect_forward(p, p->images + at, i);
        else
            expect_backward(p, p->expected + at, i);
    }
}

/* ---- runs ---- */

/* Weights into the kernel's layout (`packed`) and back. */
static void reorder(cvy_device *device, const struct cvy_tensor *plain, const struct cvy_tensor *opaque,
                    const uint16_t *weights, uint16_t *packed, uint16_t *again)
{
    struct cvy_op_desc there = {.op = CVY_OP_REORDER, .inputs = 1, .outputs = 1, .in = {*plain}, .out = {*opaque}};
    struct cvy_op_desc back = {.op = CVY_OP_REORDER, .inputs = 1, .outputs = 1, .in = {*opaque}, .out = {*plain}};
    struct cvy_kernel_plan plan = {0};

    assert_int_equal(cpu_reorder_tiles_prepare(device, &there, &plan), CVY_OK);
    assert_int_equal(cpu_reorder_tiles_run(device, &plan, (void *[]){(void *)weights}, (void *[]){packed}, NULL),
                     CVY_OK);
    cpu_state_release(device, &plan);
    assert_int_equal(cpu_reorder_tiles_prepare(device, &back, &plan), CVY_OK);
    assert_int_equal(cpu_reorder_tiles_run(device, &plan, (void *[]){packed}, (void *[]){again}, NULL), CVY_OK);
    cpu_state_release(device, &plan);
}

static void check_result(const struct problem *p, int problem, int threads)
{
    for (size_t i = 0; i < tiles_count(&p->desc.out[0]); i++) {
        const float got = tiles_widen(p->result[i]), expected = tiles_widen(p->expected[i]);
        if (p->result[i] != p->expected[i] && !(isnan(got) && isnan(expected)))
            fail_msg("problem %d with %d threads: number %zu is %g, not %g", problem, threads, i, (double)got,
                     (double)expected);
    }
}

/* `past`: the result is written past the caches. in_place: the residual's memory is that of the result. */
static void run_problem(struct problem *p, int number, int threads, bool past, bool in_place)
{
    cvy_device *const device = tiles_devices[threads];
    const bool backward = p->desc.op == CVY_OP_CONV2D_BWD_DATA, residual = cvy_tensor_present(&p->desc.in[3]);
    const size_t weights_bytes = tiles_count(&p->w) * sizeof(uint16_t);
    uint16_t *const packed = tiles_memory(weights_bytes), *const again = tiles_memory(weights_bytes);
    struct cvy_op_desc desc = p->desc;
    struct cvy_kernel_plan plan = {.in_place = {-1, -1, -1}};

    cpu_of(device)->stream_bytes = past ? 0 : SIZE_MAX;
    assert_int_equal((backward            ? cpu_tile_product_bwd_data_prepare
                      : p->desc.inference ? cpu_tile_product_constant_prepare
                                          : cpu_tile_product_prepare)(device, &desc, &plan),
                     CVY_OK);
    assert_int_equal(plan.in_place[0], residual ? 3 : -1);
    assert_int_equal(cpu_tensor_bytes(device, &desc.in[backward ? 0 : 1]), weights_bytes);
    reorder(device, &p->w, &desc.in[backward ? 0 : 1], p->weights, packed, again);
    assert_memory_equal(again, p->weights, weights_bytes);

    void *const scratch = tiles_memory(plan.scratch_bytes);
    memset(scratch, 0xff, plan.scratch_bytes); /* NaN */
    memset(p->result, 0xff, tiles_count(&p->desc.out[0]) * sizeof *p->result);
    void *in[CVY_MAX_INPUTS] = {backward ? packed : p->images, backward ? p->images : packed}, *out[] = {p->result};
    if (cvy_tensor_present(&p->desc.in[2]))
        in[2] = p->bias;
    if (residual)
        in[3] = in_place ? memcpy(p->result, p->residual, tiles_count(&p->y) * sizeof *p->result) : p->residual;
    assert_int_equal((backward ? cpu_tile_product_bwd_data_run : cpu_tile_product_run)(device, &plan, in, out, scratch),
                     CVY_OK);
    check_result(p, number, threads);
    cpu_state_release(device, &plan);
    tiles_release(scratch);
    tiles_release(packed);
    tiles_release(again);
}

static void check_problems(bool model)
{
    tiles_need(model);
    for (int i = 0; i < (model ? PROBLEMS / 4 : PROBLEMS); i++) {
        struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_INIT, 0, (uint32_t)i);
        struct problem p;
        set_up_problem(&p, &rng, false);
        expect(&p);
        for (int run = 0; run < 2; run++)
            run_problem(&p, i, 1 + (int)cvy_rng_below(&rng, TILES_THREADS), run == 0, run == 1);
        tear_down_problem(&p);
    }
}

static void problems_by_the_processors_tiles(void **state)
{
    check_problems(false);
}

static void deep_problem(void **state)
{
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_INIT, 2, 0);
    struct problem p;

    tiles_need(cvy_cpu_isa() < CVY_ISA_AMX_BF16);
    set_up_problem(&p, &rng, true);
    expect(&p);
    for (int threads = 1; threads <= 4; threads++)
        run_problem(&p, 0, threads, false, false);
    tear_down_problem(&p);
}

static void problems_by_tiles_in_memory(void **state)
{
    check_problems(true);
}

/* ---- refusals ---- */

/* All but the bias are bf16, and so are weights on both sides of a reorder. */
static void other_types_are_refused(void **state)
{
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_INIT, 1, 0);
    struct cvy_kernel_plan plan = {0};
    struct cvy_op_desc desc;
    struct problem p;

    tiles_need(true);
    do {
        set_up_problem(&p, &rng, false);
        tear_down_problem(&p);
    } while (p.desc.op != CVY_OP_CONV2D);
    set_operands(&p, true, true);
    desc = p.desc;
    assert_int_equal(cpu_tile_product_prepare(tiles_devices[1], &desc, &plan), CVY_OK);
    cpu_state_release(tiles_devices[1], &plan);
    struct cvy_tensor opaque = desc.in[1], wide = p.w;
    desc = p.desc;
    desc.inference = false;
    assert_int_equal(cpu_tile_product_constant_prepare(tiles_devices[1], &desc, &plan), CVY_UNAVAILABLE);
    desc = p.desc;
    desc.out[0].dtype = CVY_F32;
    assert_int_equal(cpu_tile_product_prepare(tiles_devices[1], &desc, &plan), CVY_UNAVAILABLE);
    desc = p.desc;
    desc.in[3].dtype = CVY_F32;
    assert_int_equal(cpu_tile_product_prepare(tiles_devices[1], &desc, &plan), CVY_UNAVAILABLE);
    wide.dtype = CVY_F32;
    desc = (struct cvy_op_desc){.op = CVY_OP_REORDER, .inputs = 1, .outputs = 1, .in = {wide}, .out = {opaque}};
    assert_int_equal(cpu_reorder_tiles_prepare(tiles_devices[1], &desc, &plan), CVY_UNAVAILABLE);
    desc.in[0] = opaque;
    desc.out[0] = wide;
    assert_int_equal(cpu_reorder_tiles_prepare(tiles_devices[1], &desc, &plan), CVY_UNAVAILABLE);
}

/* ---- who takes what ---- */

/* Of an image of `extent` x `extent`, several of them, weights that do not change. */
static struct tile_product cut(int threads, int64_t batch, int64_t channels, int64_t kernels, int64_t extent)
{
    const struct cvy_tensor absent = {.shape = {.rank = -1}};
    struct cvy_op_desc desc = {
        .op = CVY_OP_CONV2D,
        .attr.conv2d = {.groups = 1, .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}},
        .inputs = 3,
        .outputs = 1,
        .inference = true,
        .images = CVY_IMAGES_NHWC,
        .in = {tiles_image(batch, channels, extent, extent), tiles_image(kernels, channels, 1, 1), absent},
        .out = {tiles_image(batch, kernels, extent, extent)}};
    struct cvy_kernel_plan plan = {0};
    struct tile_product s;

    desc.in[1].layout.kind = CVY_LAYOUT_PLAIN;
    assert_int_equal(cpu_tile_product_constant_prepare(tiles_devices[threads], &desc, &plan), CVY_OK);
    s = *(const struct tile_product *)plan.state;
    cpu_state_release(tiles_devices[threads], &plan);
    return s;
}

/* A thread has the same pixels in every layer, in tiles of equal height; where weights are more than pixels it has
 * lanes, the same ones for all pixels. Many images are taken by whoever is free. */
static void few_images_stay_with_their_thread(void **state)
{
    struct tile_product s;

    tiles_need(true);
    s = cut(2, 1, 512, 1024, 14);
    assert_true(s.fixed && s.task_pixels == 98 && s.task_lanes == 1024 && s.height == 14 && s.chunks == 1);
    s = cut(2, 1, 1024, 2048, 7);
    assert_true(s.fixed && s.task_pixels == 49 && s.task_lanes == 1024 && s.height == 13 && s.chunks == 1);
    s = cut(2, 3, 2048, 512, 7);
    assert_true(s.fixed && s.task_lanes == 256 && s.chunks == 2 && s.task_pixels == 74);
    s = cut(1, 1, 64, 256, 56);
    assert_true(s.fixed && s.task_lanes == 256 && s.chunks == 7 && s.task_pixels == 448 && s.height == 16);
    s = cut(2, 32, 512, 1024, 14);
    assert_false(s.fixed);
}

RUN_TESTS(tiles_open, tiles_close, TEST(problems_by_the_processors_tiles), TEST(problems_by_tiles_in_memory),
          TEST(deep_problem), TEST(other_types_are_refused), TEST(few_images_stay_with_their_thread))
