/* Gradients of weights by tile products that take in the batch norm before the convolution: the same bits as from what
 * the batch norm's own kernel makes, with the processor's tiles where it has them and with those in memory, whatever
 * lies in the working memory. */
#include "backend/cpu/conv/tile_gradient.h"
#include "base/rng.h"
#include "base/system.h"
#include "support_test.h"
#include "support_tiles.h"

enum { PROBLEMS = 96, GAMMA = 2, BETA, MEAN, RSTD };

struct problem {
    struct cvy_op_desc apply, plain, fused;
    uint16_t *x, *y, *dy;
    float *number[4], *expected, *result; /* gamma, beta, mean, rstd */
};

/* ---- problems ---- */

static struct cvy_tensor floats(struct cvy_shape shape)
{
    return (struct cvy_tensor){.shape = shape, .dtype = CVY_F32};
}

static struct cvy_op_desc desc_of(enum cvy_op op, int32_t inputs)
{
    const struct cvy_tensor absent = {.shape = {.rank = -1}};
    struct cvy_op_desc desc = {.op = op, .inputs = inputs, .outputs = 1, .training = true, .images = CVY_IMAGES_NHWC};

    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        desc.in[i] = absent;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        desc.out[i] = absent;
    return desc;
}

static void describe(struct problem *p, const struct cvy_conv2d_attr *attr, struct cvy_tensor x, struct cvy_tensor dy)
{
    const struct cvy_tensor numbers = floats(cvy_shape1(x.shape.dim[1]));

    p->apply = desc_of(CVY_OP_BATCH_NORM_APPLY, 5);
    p->apply.attr.batch_norm = (struct cvy_batch_norm_attr){.eps = 1e-5f, .activation = CVY_ACTIVATION_RELU};
    p->apply.in[0] = p->apply.out[0] = x;
    p->plain = desc_of(CVY_OP_CONV2D_BWD_WEIGHTS, 2);
    p->plain.attr.conv2d = *attr;
    p->plain.in[0] = x;
    p->plain.in[1] = dy;
    p->plain.out[0] = floats(cvy_shape4(dy.shape.dim[1], x.shape.dim[1], attr->kernel[0], attr->kernel[1]));
    p->fused = p->plain;
    p->fused.inputs = 6;
    for (int i = 0; i < 4; i++) {
        p->apply.in[1 + i] = numbers;
        p->fused.in[2 + i] = numbers;
    }
}

/* Channels whose y is ordinary; now and then one in which it is so small that it has not all digits, in which a number
 * is NaN, or with an infinite one of x. */
static void draw(struct problem *p, struct cvy_rng *rng)
{
    static const uint32_t nan_bits[] = {0x7fc00000, 0x7fffffff, 0xff8fffff, 0x7f800001};
    const size_t channels = (size_t)p->plain.in[0].shape.dim[1], count = tiles_count(&p->plain.in[0]);
    const bool special = cvy_rng_below(rng, 4) == 0;

    p->x = tiles_draw(rng, count, 1);
    p->y = tiles_draw(rng, count, 1);
    p->dy = tiles_draw(rng, tiles_count(&p->plain.in[1]), 3);
    for (size_t i = 0; i < count; i++)
        p->x[i] = tiles_narrow(4 * cvy_rng_uniform(rng) - 2);
    for (int i = 0; i < 4; i++) {
        p->number[i] = tiles_memory(channels * sizeof(float));
        for (size_t c = 0; c < channels; c++)
            p->number[i][c] = i == RSTD - GAMMA ? 0.5f + cvy_rng_uniform(rng) : 2 * cvy_rng_uniform(rng) - 1;
    }
    for (size_t c = 0; special && c < channels; c += 1 + cvy_rng_below(rng, 8)) {
        if (cvy_rng_below(rng, 4)) {
            p->number[0][c] = 0x1p-126f * p->number[0][c];
            p->number[1][c] = 0;
        } else {
            memcpy(&p->number[cvy_rng_below(rng, 4)][c], &nan_bits[cvy_rng_below(rng, 4)], sizeof(float));
        }
    }
    if (special)
        p->x[cvy_rng_below(rng, (uint32_t)count)] = 0x7f80;
    p->expected = tiles_memory(tiles_count(&p->plain.out[0]) * sizeof(float));
    p->result = tiles_memory(tiles_count(&p->plain.out[0]) * sizeof(float));
}

/* Windows, strides and padding of all kinds, images of 7 pixels among others, few channels and, now and then, so many
 * of one side or of both that they are cut into panels. */
static void set_up_problem(struct problem *p, struct cvy_rng *rng)
{
    const bool pointwise = cvy_rng_below(rng, 3) == 0, deep = cvy_rng_below(rng, 10) == 0;
    const bool wide[2] = {deep && cvy_rng_below(rng, 3), deep && cvy_rng_below(rng, 3)}; /* x, dy */
    const int64_t batch = 1 + (int64_t)cvy_rng_below(rng, deep ? 2 : 5);
    struct cvy_conv2d_attr attr = {.groups = 1};
    int64_t channels[2], extent[2], out[2];

    for (int d = 0; d < 2; d++) {
        channels[d] = 16 * (wide[d] ? (pointwise ? 40 : 32) : 1 + (int64_t)cvy_rng_below(rng, 7));
        extent[d] = cvy_rng_below(rng, 3) == 0 ? 7 : 1 + (int64_t)cvy_rng_below(rng, deep ? 6 : 20);
        attr.kernel[d] = pointwise ? 1 : 1 + (int32_t)cvy_rng_below(rng, 3);
        attr.dilation[d] = 1 + (cvy_rng_below(rng, 4) == 0);
        attr.stride[d] = 1 + (cvy_rng_below(rng, 3) == 0);
        for (int side = 0; side < 2; side++)
            attr.pad[2 * d + side] = pointwise ? 0 : (int32_t)cvy_rng_below(rng, 3);
        attr.input[d] = (int32_t)extent[d];
    }
    for (int d = 0; d < 2; d++) {
        const int64_t window = (attr.kernel[d] - 1) * attr.dilation[d] + 1;
        while (extent[d] + attr.pad[2 * d] + attr.pad[2 * d + 1] < window)
            attr.input[d] = (int32_t)++extent[d];
        out[d] = (extent[d] + attr.pad[2 * d] + attr.pad[2 * d + 1] - window) / attr.stride[d] + 1;
    }
    describe(p, &attr, tiles_image(batch, channels[0], extent[0], extent[1]),
             tiles_image(batch, channels[1], out[0], out[1]));
    draw(p, rng);
}

static void tear_down_problem(struct problem *p)
{
    void *const blocks[] = {p->x,         p->y,         p->dy,       p->number[0], p->number[1],
                            p->number[2], p->number[3], p->expected, p->result};

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        tiles_release(blocks[i]);
}

/* ---- runs ---- */

static void run_apply(const struct problem *p, cvy_device *device)
{
    struct cvy_op_desc desc = p->apply;
    struct cvy_kernel_plan plan = {.kernel = NULL};
    void *const in[] = {p->x, p->number[0], p->number[1], p->number[2], p->number[3], NULL};

    assert_int_equal(cpu_batch_norm_apply_prepare(device, &desc, &plan), CVY_OK);
    assert_int_equal(desc.in[0].layout.kind, CVY_LAYOUT_NHWC);
    void *const scratch = tiles_memory(plan.scratch_bytes);
    assert_int_equal(cpu_batch_norm_apply_run(device, &plan, in, (void *[]){p->y}, scratch), CVY_OK);
    tiles_release(scratch);
    cpu_state_release(device, &plan);
}

static void run_gradient(const struct problem *p, cvy_device *device, bool fused, float *dw)
{
    struct cvy_op_desc desc = fused ? p->fused : p->plain;
    struct cvy_kernel_plan plan = {.kernel = NULL};
    void *const in[] = {fused ? p->x : p->y, p->dy, p->number[0], p->number[1], p->number[2], p->number[3]};

    assert_int_equal(cpu_tile_gradient_prepare(device, &desc, &plan), CVY_OK);
    void *const scratch = tiles_memory(plan.scratch_bytes);
    memset(scratch, 0xff, plan.scratch_bytes); /* NaN */
    memset(dw, 0xff, tiles_count(&desc.out[0]) * sizeof *dw);
    assert_int_equal(cpu_tile_gradient_run(device, &plan, in, (void *[]){dw}, scratch), CVY_OK);
    tiles_release(scratch);
    cpu_state_release(device, &plan);
}

static void check_result(const struct problem *p, int problem, int threads)
{
    for (size_t i = 0; i < tiles_count(&p->plain.out[0]); i++) {
        if (memcmp(&p->result[i], &p->expected[i], sizeof(float)) != 0)
            fail_msg("problem %d with %d threads: number %zu is %a, not %a", problem, threads, i, (double)p->result[i],
                     (double)p->expected[i]);
    }
}

static void check_problems(bool model)
{
    tiles_need(model);
    for (int i = 0; i < (model ? PROBLEMS / 3 : PROBLEMS); i++) {
        struct cvy_rng rng = cvy_rng_new(7, CVY_RNG_INIT, 0, (uint32_t)i);
        struct problem p;
        set_up_problem(&p, &rng);
        run_apply(&p, tiles_devices[2]);
        run_gradient(&p, tiles_devices[1], false, p.expected);
        for (int run = 0; run < 2; run++) {
            const int threads = 1 + (int)cvy_rng_below(&rng, 5);
            run_gradient(&p, tiles_devices[threads], true, p.result);
            check_result(&p, i, threads);
        }
        tear_down_problem(&p);
    }
}

static void same_bits_by_the_processors_tiles(void **state)
{
    check_problems(false);
}

static void same_bits_by_tiles_in_memory(void **state)
{
    check_problems(true);
}

/* ---- who takes what ---- */

/* 32 images. */
static void describe_square(struct problem *p, int64_t channels, int64_t kernels, int32_t extent, int32_t kernel)
{
    const struct cvy_conv2d_attr attr = {.groups = 1,
                                         .kernel = {kernel, kernel},
                                         .stride = {1, 1},
                                         .dilation = {1, 1},
                                         .pad = {kernel / 2, kernel / 2, kernel / 2, kernel / 2},
                                         .input = {extent, extent}};

    describe(p, &attr, tiles_image(32, channels, extent, extent), tiles_image(32, kernels, extent, extent));
}

/* How many kernels take it. */
static int takers(cvy_device *device, const struct cvy_op_desc *asked)
{
    int count = 0;

    for (size_t i = 0; i < device->backend->kernel_count; i++) {
        const struct cvy_kernel *const row = &device->backend->kernels[i];
        struct cvy_op_desc desc = *asked;
        struct cvy_kernel_plan plan = {.kernel = row};
        if (row->op != asked->op)
            continue;
        if (row->prepare(device, &desc, &plan) == CVY_OK) {
            assert_ptr_equal(row->run, cpu_tile_gradient_run);
            count++;
        }
        row->release(device, &plan);
    }
    return count;
}

static void no_other_kernel_takes_norms(void **state)
{
    struct cvy_op_desc desc;
    struct problem p;

    tiles_need(true);
    describe_square(&p, 32, 48, 9, 3);
    assert_int_equal(takers(tiles_devices[2], &p.fused), 1);
    desc = p.fused;
    desc.in[MEAN].shape.rank = -1; /* half a batch norm */
    assert_int_equal(takers(tiles_devices[2], &desc), 0);
    desc = p.fused;
    desc.images = CVY_IMAGES_BLOCKED;
    assert_int_equal(takers(tiles_devices[2], &desc), 0);
    desc = p.fused;
    desc.in[0].dtype = desc.in[1].dtype = CVY_F32;
    assert_int_equal(takers(tiles_devices[2], &desc), 0);
    desc = p.fused;
    desc.attr.conv2d.groups = 2;
    desc.out[0].shape.dim[1] = 16;
    assert_int_equal(takers(tiles_devices[2], &desc), 0);
    desc.in[0].dtype = desc.in[1].dtype = CVY_F32;
    assert_int_equal(takers(tiles_devices[2], &desc), 0);
    describe_square(&p, 24, 48, 9, 3); /* channels-last images have whole blocks of channels */
    assert_int_equal(takers(tiles_devices[2], &p.fused), 0);
}

/* It gains where x is packed once. */
static void norms_are_taken_where_that_gains(void **state)
{
    cvy_device *const device = tiles_devices[2];
    struct problem p;

    tiles_need(true);
    describe_square(&p, 64, 64, 56, 3);
    assert_true(cpu_tile_gradient_gains_by_norm(device, &p.plain));
    p.plain.images = CVY_IMAGES_BLOCKED;
    assert_false(cpu_tile_gradient_gains_by_norm(device, &p.plain));
    describe_square(&p, 128, 512, 28, 1);
    for (int threads = 1; threads <= TILES_THREADS; threads++) /* the operations of a plan are the same for all */
        assert_true(cpu_tile_gradient_gains_by_norm(tiles_devices[threads], &p.plain));
    describe_square(&p, 256, 256, 14, 3);
    assert_false(cpu_tile_gradient_gains_by_norm(device, &p.plain));
    describe_square(&p, 24, 48, 9, 3);
    assert_false(cpu_tile_gradient_gains_by_norm(device, &p.plain));
}

RUN_TESTS(tiles_open, tiles_close, TEST(same_bits_by_the_processors_tiles), TEST(same_bits_by_tiles_in_memory),
          TEST(no_other_kernel_takes_norms), TEST(norms_are_taken_where_that_gains))
