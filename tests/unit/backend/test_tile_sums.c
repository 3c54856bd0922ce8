/* What 1x1 convolutions by tile products make for the batch norm beside them: statistics of their output, or what comes
 * after it at a block's end, and in the gradient of data the masked sum of two gradients with the sums of it. Whole
 * numbers, so that results are exact and sums nearly so, against plain loops, and the same bits for any number of
 * threads. */
#include "backend/cpu/conv/tile_product.h"
#include "backend/cpu/sign.h"
#include "base/rng.h"
#include "base/system.h"
#include "support_test.h"
#include "support_tiles.h"

enum { PROBLEMS = 60 };

/* ---- problems ---- */

enum form {
    STATISTICS,
    WITHIN_BLOCK,
    BLOCK_END,
    WITHIN_TWO, /* another gradient is added, and the mask made again of the batch norm's input */
    MASKED,     /* another gradient is added, masked by the sign, and summed; no batch norm is there */
    AFTER,      /* forward: the batch norm after the convolution, with residual and ReLU, and the sign of that */
    FORMS
};

static bool is_forward(enum form form)
{
    return form == STATISTICS || form == AFTER;
}

/* The batch norm before the convolution. */
static bool has_norm(enum form form)
{
    return form == WITHIN_BLOCK || form == BLOCK_END || form == WITHIN_TWO;
}

static bool reads_sign(enum form form)
{
    return form == BLOCK_END || form == MASKED;
}

/* The input that is added to what is written; -1: none. */
static int32_t added_input(enum form form)
{
    return form == AFTER ? 3 : form == BLOCK_END || form == WITHIN_TWO || form == MASKED ? 8 : -1;
}

struct problem {
    enum form form;
    struct cvy_op_desc desc;
    struct cvy_tensor x, y, w, made; /* images or their gradients; `made`: what the kernel writes */
    int64_t pixels, lanes, depth;    /* of what is written */
    uint16_t *from, *weights, *packed, *norm_x, *more, *expected;
    uint32_t *sign, *passed; /* passed: what is expected of the sign that is written */
    float *gamma, *beta, *mean, *rstd;
    double *first, *second; /* expected: mean and variance, or dgamma and dbeta */
    double *scale;          /* what they may be off by, in units of a float */
};

static float *draw_floats(struct cvy_rng *rng, int64_t count, float unit, int limit, float least)
{
    float *const numbers = tiles_memory((size_t)count * sizeof *numbers);

    for (int64_t i = 0; i < count; i++)
        numbers[i] = least + unit * (float)cvy_rng_below(rng, (uint32_t)limit);
    return numbers;
}

static void set_operands(struct problem *p)
{
    const struct cvy_tensor absent = {.shape = {.rank = -1}};
    const struct cvy_tensor numbers = {.shape = cvy_shape1(p->lanes), .dtype = CVY_F32};
    struct cvy_op_desc *const desc = &p->desc;

    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        desc->in[i] = absent;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        desc->out[i] = absent;
    desc->in[0] = is_forward(p->form) ? p->x : p->w;
    desc->in[1] = is_forward(p->form) ? p->w : p->y;
    desc->out[0] = p->made;
    if (p->form != AFTER)
        desc->out[2] = numbers;
    if (p->form == STATISTICS || has_norm(p->form))
        desc->out[1] = numbers;
    if (has_norm(p->form)) {
        desc->in[2] = p->x;
        for (int i = 3; i < 7; i++)
            desc->in[i] = numbers;
    }
    if (reads_sign(p->form))
        desc->in[7] = p->x;
    if (added_input(p->form) >= 0)
        desc->in[added_input(p->form)] = p->made;
    if (p->form != AFTER)
        return;
    for (int i = 8; i < 12; i++)
        desc->in[i] = numbers;
    desc->out[3] = p->made;
    desc->attr.conv2d.activation = CVY_ACTIVATION_RELU;
}

/* `deep`: so many channels that tasks are cut by lanes and pixels pass by weights. */
static void set_up_problem(struct problem *p, struct cvy_rng *rng, enum form form, bool deep)
{
    const bool forward = is_forward(form), strided = form == STATISTICS && !deep && cvy_rng_below(rng, 3) == 0;
    const int64_t batch = deep ? 4 : 1 + (int64_t)cvy_rng_below(rng, 4);
    const int64_t channels = deep ? 1024 : 32 * (1 + (int64_t)cvy_rng_below(rng, 4));
    const int64_t kernels = deep ? 1024 : 32 * (1 + (int64_t)cvy_rng_below(rng, 4));
    const int64_t extent[2] = {deep ? 7 : 1 + (int64_t)cvy_rng_below(rng, 20),
                               deep ? 7 : 1 + (int64_t)cvy_rng_below(rng, 20)};
    struct cvy_conv2d_attr attr = {.groups = 1};
    int64_t out[2];

    for (int d = 0; d < 2; d++) {
        attr.kernel[d] = attr.dilation[d] = 1;
        attr.input[d] = (int32_t)extent[d];
        attr.stride[d] = strided ? 2 : 1;
        out[d] = (extent[d] - 1) / attr.stride[d] + 1;
    }
    *p = (struct problem){.form = form,
                          .desc = {.op = forward ? CVY_OP_CONV2D : CVY_OP_CONV2D_BWD_DATA,
                                   .attr.conv2d = attr,
                                   .inputs = form == STATISTICS     ? 2
                                             : form == AFTER        ? 12
                                             : form == WITHIN_BLOCK ? 7
                                                                    : 9,
                                   .outputs = form == AFTER ? 4 : 3,
                                   /* The weights are frozen. */
                                   .inference = form == STATISTICS && cvy_rng_below(rng, 2),
                                   .training = true,
                                   .images = CVY_IMAGES_NHWC},
                          .x = tiles_image(batch, channels, extent[0], extent[1]),
                          .y = tiles_image(batch, kernels, out[0], out[1]),
                          .w = tiles_image(kernels, channels, 1, 1)};
    p->w.layout.kind = CVY_LAYOUT_PLAIN;
    p->made = forward ? p->y : p->x;
    p->lanes = p->made.shape.dim[1];
    p->depth = forward ? channels : kernels;
    p->pixels = (int64_t)tiles_count(&p->made) / p->lanes;
    set_operands(p);
    const size_t count = tiles_count(&p->made), lanes = (size_t)p->lanes;
    p->from = tiles_draw(rng, tiles_count(forward ? &p->x : &p->y), 3);
    p->weights = tiles_draw(rng, tiles_count(&p->w), 2);
    p->packed = tiles_memory(tiles_count(&p->w) * sizeof *p->packed);
    p->norm_x = tiles_draw(rng, count, 6);
    p->more = tiles_draw(rng, count, 50);
    p->sign = tiles_memory(count / 8);
    for (size_t i = 0; i < count / 32; i++)
        p->sign[i] = (uint32_t)cvy_rng_below(rng, 1U << 16) << 16 | (uint32_t)cvy_rng_below(rng, 1U << 16);
    p->passed = tiles_memory(count / 8);
    p->gamma = draw_floats(rng, p->lanes, 0.5f, 5, -1);
    p->beta = draw_floats(rng, p->lanes, 0.25f, 9, -1);
    p->mean = draw_floats(rng, p->lanes, 0.25f, 17, -2);
    p->rstd = draw_floats(rng, p->lanes, 0.5f, 4, 0.5f);
    p->expected = tiles_memory(count * sizeof *p->expected);
    p->first = calloc(lanes, sizeof *p->first);
    p->second = calloc(lanes, sizeof *p->second);
    p->scale = calloc(lanes, sizeof *p->scale);
    assert_true(p->first && p->second && p->scale);
}

static void tear_down_problem(struct problem *p)
{
    void *const blocks[] = {p->from, p->weights, p->packed, p->norm_x, p->more, p->expected,
                            p->sign, p->passed,  p->gamma,  p->beta,   p->mean, p->rstd};

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        tiles_release(blocks[i]);
    free(p->first);
    free(p->second);
    free(p->scale);
}

/* ---- what is expected ---- */

/* The product at a pixel and lane of what is written. */
static float product(const struct problem *p, int64_t pixel, int64_t lane)
{
    const int64_t *const x = p->x.shape.dim, *const y = p->y.shape.dim, channels = p->w.shape.dim[1];
    const int32_t *const stride = p->desc.attr.conv2d.stride;
    const int64_t n = pixel / (y[2] * y[3]), row = pixel / y[3] % y[2], column = pixel % y[3];
    const bool forward = is_forward(p->form);
    const uint16_t *const from =
        p->from + (forward ? (n * x[2] + row * stride[0]) * x[3] + column * stride[1] : pixel) * p->depth;
    float sum = 0;

    for (int64_t d = 0; d < p->depth; d++)
        sum += tiles_widen(from[d]) * tiles_widen(p->weights[forward ? lane * channels + d : d * channels + lane]);
    return sum;
}

static void expect_moments(struct problem *p, int64_t lane)
{
    double mean = 0, squares = 0;

    for (int64_t i = 0; i < p->pixels; i++) {
        const float value = product(p, i, lane);
        p->expected[i * p->lanes + lane] = tiles_narrow(value);
        mean += (double)value;
        squares += (double)value * (double)value; /* whole numbers: exact */
    }
    mean /= (double)p->pixels;
    p->first[lane] = mean;
    p->second[lane] = squares / (double)p->pixels - mean * mean;
    p->scale[lane] = squares / (double)p->pixels + 1;
}

static void expect_gradients(struct problem *p, int64_t lane)
{
    double first = 0, second = 0;

    for (int64_t i = 0; i < p->pixels; i++) {
        const int64_t at = i * p->lanes + lane;
        const float off = tiles_widen(p->norm_x[at]) - p->mean[lane];
        const bool passes = reads_sign(p->form) ? p->sign[at / 32] >> at % 32 & 1U
                                                : off * p->rstd[lane] * p->gamma[lane] + p->beta[lane] > 0;
        const float sum = product(p, i, lane) + (added_input(p->form) >= 0 ? tiles_widen(p->more[at]) : 0);
        const float g = passes ? sum : 0;
        p->expected[at] = tiles_narrow(g);
        first += (double)g;
        second += (double)g * (double)off;
        p->scale[lane] += fabs((double)g) * (1 + fabs((double)off));
    }
    p->first[lane] = has_norm(p->form) ? second * (double)p->rstd[lane] : 0;
    p->second[lane] = first;
}

static void expect_after(struct problem *p, int64_t lane)
{
    for (int64_t i = 0; i < p->pixels; i++) {
        const int64_t at = i * p->lanes + lane;
        const float normal = (product(p, i, lane) - p->mean[lane]) * (p->rstd[lane] * p->gamma[lane]) + p->beta[lane];
        const float y = normal + tiles_widen(p->more[at]);
        p->expected[at] = tiles_narrow(y > 0 ? y : 0);
        p->passed[at / 32] |= (uint32_t)(y > 0) << at % 32;
    }
}

static void expect(struct problem *p)
{
    for (int64_t lane = 0; lane < p->lanes; lane++) {
        if (p->form == STATISTICS)
            expect_moments(p, lane);
        else if (p->form == AFTER)
            expect_after(p, lane);
        else
            expect_gradients(p, lane);
    }
}

/* ---- runs ---- */

struct result {
    uint16_t *made;
    float *first, *second;
    uint32_t *passed;
};

static void pack(cvy_device *device, struct problem *p, const struct cvy_tensor *opaque)
{
    struct cvy_op_desc desc = {.op = CVY_OP_REORDER, .inputs = 1, .outputs = 1, .in = {p->w}, .out = {*opaque}};
    struct cvy_kernel_plan plan = {0};

    assert_int_equal(cpu_reorder_tiles_prepare(device, &desc, &plan), CVY_OK);
    assert_int_equal(cpu_reorder_tiles_run(device, &plan, (void *[]){p->weights}, (void *[]){p->packed}, NULL), CVY_OK);
    cpu_state_release(device, &plan);
}

/* in_place: the memory of what is added is that of the sum. past: what is written goes past the caches. */
static struct result run(struct problem *p, int threads, bool past, bool in_place)
{
    cvy_device *const device = tiles_devices[threads];
    const bool forward = is_forward(p->form);
    const int32_t added = added_input(p->form);
    const size_t bytes = tiles_count(&p->made) * sizeof *p->from, numbers = (size_t)p->lanes * sizeof(float);
    struct result result = {tiles_memory(bytes), tiles_memory(numbers), tiles_memory(numbers),
                            tiles_memory(bytes / 16)};
    struct cvy_op_desc desc = p->desc;
    struct cvy_kernel_plan plan = {.in_place = {-1, -1, -1}};

    cpu_of(device)->stream_bytes = past ? 0 : SIZE_MAX;
    assert_int_equal((forward ? cpu_tile_product_prepare : cpu_tile_product_bwd_data_prepare)(device, &desc, &plan),
                     CVY_OK);
    assert_int_equal(plan.in_place[0], added);
    assert_true(!reads_sign(p->form) || cpu_is_sign(&desc.in[7].layout));
    assert_true(p->form != AFTER || cpu_is_sign(&desc.out[3].layout));
    pack(device, p, &desc.in[forward ? 1 : 0]);
    void *const scratch = tiles_memory(plan.scratch_bytes);
    memset(scratch, 0xff, plan.scratch_bytes); /* NaN */
    memset(result.made, 0xff, bytes);
    void *in[CVY_MAX_INPUTS] = {forward ? p->from : p->packed, forward ? p->packed : p->from};
    void *out[CVY_MAX_OUTPUTS] = {result.made, result.first, result.second};
    void *const norm[] = {p->norm_x, p->gamma, p->beta, p->mean, p->rstd};
    if (has_norm(p->form))
        memcpy(in + 2, norm, sizeof norm);
    if (p->form == AFTER) {
        memcpy(in + 8, norm + 1, sizeof norm - sizeof *norm);
        out[1] = out[2] = NULL;
        out[3] = result.passed;
    }
    if (p->form == MASKED)
        out[1] = NULL;
    if (reads_sign(p->form))
        in[7] = p->sign;
    if (added >= 0)
        in[added] = in_place ? memcpy(result.made, p->more, bytes) : p->more;
    assert_int_equal((forward ? cpu_tile_product_run : cpu_tile_product_bwd_data_run)(device, &plan, in, out, scratch),
                     CVY_OK);
    cpu_state_release(device, &plan);
    tiles_release(scratch);
    return result;
}

static void release(struct result *result)
{
    tiles_release(result->made);
    tiles_release(result->first);
    tiles_release(result->second);
    tiles_release(result->passed);
}

static void check_number(const struct problem *p, int64_t lane, float got, double expected, const char *which)
{
    const double allowed = 1e-6 * (p->form == STATISTICS ? fabs(expected) + 1e-3 * p->scale[lane] : p->scale[lane]);

    if (!(fabs((double)got - expected) <= allowed))
        fail_msg("form %d, %lld pixels, lane %lld of %lld: the %s number is %.9g, not %.9g", (int)p->form,
                 (long long)p->pixels, (long long)lane, (long long)p->lanes, which, (double)got, expected);
}

/* The numbers, and the same bits with one thread. */
static void check(struct problem *p, int threads, bool past, bool in_place)
{
    struct result result = run(p, threads, past, in_place), single = run(p, 1, false, false);

    for (size_t i = 0; i < tiles_count(&p->made); i++)
        if (tiles_widen(result.made[i]) != tiles_widen(p->expected[i]))
            fail_msg("form %d with %d threads: number %zu is %g, not %g", (int)p->form, threads, i,
                     (double)tiles_widen(result.made[i]), (double)tiles_widen(p->expected[i]));
    for (int64_t lane = 0; lane < p->lanes; lane++) {
        check_number(p, lane, result.first[lane], p->first[lane], "first");
        check_number(p, lane, result.second[lane], p->second[lane], "second");
    }
    assert_memory_equal(result.passed, p->passed, tiles_count(&p->made) / 8);
    assert_memory_equal(result.first, single.first, (size_t)p->lanes * sizeof(float));
    assert_memory_equal(result.second, single.second, (size_t)p->lanes * sizeof(float));
    release(&result);
    release(&single);
}

static void check_problems(bool model)
{
    tiles_need(model);
    for (int i = 0; i < (model ? PROBLEMS / 4 : PROBLEMS); i++) {
        struct cvy_rng rng = cvy_rng_new(6, CVY_RNG_INIT, 0, (uint32_t)i);
        struct problem p;
        set_up_problem(&p, &rng, (enum form)(i % FORMS), false);
        expect(&p);
        for (int turn = 0; turn < 2; turn++)
            check(&p, 1 + (int)cvy_rng_below(&rng, TILES_THREADS), turn == 0, turn == 1);
        tear_down_problem(&p);
    }
}

static void sums_by_the_processors_tiles(void **state)
{
    check_problems(false);
}

static void sums_by_tiles_in_memory(void **state)
{
    check_problems(true);
}

static void deep_problems(void **state)
{
    tiles_need(cvy_cpu_isa() < CVY_ISA_AMX_BF16);
    for (int form = 0; form < FORMS; form++) {
        struct cvy_rng rng = cvy_rng_new(6, CVY_RNG_INIT, 1, (uint32_t)form);
        struct problem p;
        set_up_problem(&p, &rng, (enum form)form, true);
        expect(&p);
        check(&p, 4, false, false);
        tear_down_problem(&p);
    }
}

/* Numbers a thousand deviations from 0 keep the digits of their variance. */
static void variance_far_from_zero(void **state)
{
    struct cvy_rng rng = cvy_rng_new(6, CVY_RNG_INIT, 2, 0);
    struct problem p;

    tiles_need(cvy_cpu_isa() < CVY_ISA_AMX_BF16);
    do {
        set_up_problem(&p, &rng, STATISTICS, false);
        if (p.pixels < 300)
            tear_down_problem(&p);
    } while (p.pixels < 300);
    for (size_t i = 0; i < tiles_count(&p.x); i++) /* channel 0: 128 times 16; another of 0 and 1; nothing else */
        p.from[i] = i % (size_t)p.depth == 0   ? tiles_narrow(128)
                    : i % (size_t)p.depth == 1 ? tiles_narrow((float)cvy_rng_below(&rng, 2))
                                               : 0;
    for (int64_t i = 0; i < p.lanes * p.depth; i++)
        p.weights[i] = tiles_narrow(i % p.depth == 0 ? 16 : 1);
    expect(&p);
    for (int64_t lane = 0; lane < p.lanes; lane++) {
        assert_true(p.first[lane] > 2047 && p.second[lane] < 0.3 && p.second[lane] > 0.2);
        p.scale[lane] = 1;
    }
    check(&p, 3, false, false);
    tear_down_problem(&p);
}

/* ---- refusals ---- */

static void check_refused(struct problem *p, void (*spoil)(struct cvy_op_desc *))
{
    const bool forward = is_forward(p->form);
    struct cvy_op_desc desc = p->desc;
    struct cvy_kernel_plan plan = {0};

    spoil(&desc);
    assert_int_equal(
        (forward ? cpu_tile_product_prepare : cpu_tile_product_bwd_data_prepare)(tiles_devices[1], &desc, &plan),
        CVY_UNAVAILABLE);
}

static void without_variance(struct cvy_op_desc *desc)
{
    desc->out[2].shape.rank = -1;
}

static void with_activation(struct cvy_op_desc *desc)
{
    desc->attr.conv2d.activation = CVY_ACTIVATION_RELU;
}

static void with_bias(struct cvy_op_desc *desc)
{
    desc->inputs = desc->inputs < 3 ? 3 : desc->inputs;
    desc->in[2] = (struct cvy_tensor){.shape = cvy_shape1(desc->in[1].shape.dim[0]), .dtype = CVY_F32};
}

static void without_rstd(struct cvy_op_desc *desc)
{
    desc->in[6].shape.rank = -1;
}

static void without_more(struct cvy_op_desc *desc)
{
    desc->in[8].shape.rank = -1;
}

static void with_sign_alone(struct cvy_op_desc *desc)
{
    for (int i = 2; i < 7; i++)
        desc->in[i].shape.rank = -1;
    for (int i = 1; i < 3; i++)
        desc->out[i].shape.rank = -1;
}

static void outside_training(struct cvy_op_desc *desc)
{
    desc->inference = true;
    desc->training = false;
}

static void with_stride(struct cvy_op_desc *desc)
{
    desc->attr.conv2d.stride[0] = 2;
    desc->in[1].shape.dim[2] = (desc->in[1].shape.dim[2] + 1) / 2;
}

static void without_residual(struct cvy_op_desc *desc)
{
    desc->in[3].shape.rank = -1;
}

static void without_sign(struct cvy_op_desc *desc)
{
    desc->out[3].shape.rank = -1;
}

static void with_other_activation(struct cvy_op_desc *desc)
{
    desc->attr.conv2d.activation = CVY_ACTIVATION_RELU6;
}

static void without_sum(struct cvy_op_desc *desc)
{
    desc->out[2].shape.rank = -1;
}

static void without_mask(struct cvy_op_desc *desc)
{
    desc->in[7].shape.rank = -1;
}

static void what_does_not_fit_is_refused(void **state)
{
    static const struct {
        enum form form;
        void (*spoil)(struct cvy_op_desc *);
    } cases[] = {{STATISTICS, without_variance}, {STATISTICS, with_activation},  {STATISTICS, with_bias},
                 {STATISTICS, outside_training}, {WITHIN_BLOCK, without_rstd},   {BLOCK_END, without_more},
                 {BLOCK_END, with_sign_alone},   {WITHIN_BLOCK, with_stride},    {WITHIN_TWO, without_rstd},
                 {WITHIN_TWO, with_stride},      {MASKED, without_more},         {MASKED, without_sum},
                 {MASKED, without_mask},         {MASKED, with_stride},          {AFTER, without_residual},
                 {AFTER, without_sign},          {AFTER, with_other_activation}, {AFTER, with_bias}};
    struct cvy_rng rng = cvy_rng_new(6, CVY_RNG_INIT, 3, 0);

    tiles_need(true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct problem p;
        set_up_problem(&p, &rng, cases[i].form, false);
        check_refused(&p, cases[i].spoil);
        tear_down_problem(&p);
    }
}

RUN_TESTS(tiles_open, tiles_close, TEST(sums_by_the_processors_tiles), TEST(sums_by_tiles_in_memory),
          TEST(deep_problems), TEST(variance_far_from_zero), TEST(what_does_not_fit_is_refused))
