/* The reference kernels against results worked out by hand or by the shortest possible loops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ops/ops.h"
#include "support_executor.h"

/* A few roundings of numbers below 10 in double. */
static const double rounding = 1e-14;

/* Integers from -3 to 3: their sums are exact in any order, so results are compared to the last bit. */
static double *integers(struct cvy_rng *rng, int64_t count)
{
    double *numbers = malloc((size_t)count * sizeof *numbers);

    assert_non_null(numbers);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = (double)cvy_rng_below(rng, 7) - 3;
    return numbers;
}

/* ---- convolution ---- */

struct conv_case {
    int64_t n, c, h, w, k;
    struct cvy_conv2d_attr attr;
    bool bias, residual;
};
static const struct conv_case conv_cases[] = {
    {2, 3, 5, 6, 4, {{3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1, false, {5, 6}}, false, false},
    {2, 4, 7, 6, 6, {{3, 2}, {2, 1}, {1, 2}, {1, 0, 2, 1}, 2, false, {7, 6}}, true, false},
    {1, 4, 9, 8, 4, {{2, 3}, {3, 2}, {2, 3}, {0, 3, 4, 1}, 4, true, {9, 8}}, true, true},
    {3, 6, 4, 4, 3, {{1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}, 3, true, {4, 4}}, false, true},
    /* More padding than image, and taps that never meet the image. */
    {1, 1, 1, 2, 2, {{3, 5}, {1, 1}, {1, 2}, {4, 3, 6, 5}, 1, false, {1, 2}}, false, false},
    {1, 2, 3, 3, 2, {{3, 3}, {5, 5}, {1, 1}, {2, 2, 2, 2}, 1, false, {3, 3}}, false, false},
};

static int64_t outputs_of(const struct cvy_conv2d_attr *a, int axis, int64_t extent)
{
    return (extent + a->pad[2 * axis] + a->pad[2 * axis + 1] - a->dilation[axis] * (a->kernel[axis] - 1) - 1) /
               a->stride[axis] +
           1;
}

/* Everything of one case, by the definition: seven loops, each product added where it belongs. */
struct conv_data {
    int64_t p, q;
    double *x, *weight, *bias, *residual, *dy, *y, *dx, *dw;
};

static void convolve(const struct conv_case *t, struct conv_data *d)
{
    const struct cvy_conv2d_attr *a = &t->attr;
    const int64_t cg = t->c / a->groups, kg = t->k / a->groups;

    for (int64_t n = 0; n < t->n; n++)
        for (int64_t k = 0; k < t->k; k++)
            for (int64_t p = 0; p < d->p; p++)
                for (int64_t q = 0; q < d->q; q++) {
                    const int64_t at = ((n * t->k + k) * d->p + p) * d->q + q;
                    double sum = (t->bias ? d->bias[k] : 0) + (t->residual ? d->residual[at] : 0);
                    for (int64_t c = 0; c < cg; c++)
                        for (int64_t r = 0; r < a->kernel[0]; r++)
                            for (int64_t s = 0; s < a->kernel[1]; s++) {
                                const int64_t row = p * a->stride[0] - a->pad[0] + r * a->dilation[0];
                                const int64_t column = q * a->stride[1] - a->pad[2] + s * a->dilation[1];
                                const int64_t xi = ((n * t->c + k / kg * cg + c) * t->h + row) * t->w + column;
                                const int64_t wi = ((k * cg + c) * a->kernel[0] + r) * a->kernel[1] + s;
                                if (row < 0 || row >= t->h || column < 0 || column >= t->w)
                                    continue;
                                sum += d->x[xi] * d->weight[wi];
                                d->dx[xi] += d->dy[at] * d->weight[wi];
                                d->dw[wi] += d->dy[at] * d->x[xi];
                            }
                    d->y[at] = a->activation != CVY_ACTIVATION_NONE && sum < 0 ? 0 : sum;
                }
}

/* The same numbers in f32 or f64, in a block of their own. */
static void *as_type(const double *numbers, int64_t count, enum cvy_dtype dtype)
{
    void *typed = malloc((size_t)count * sizeof(double));

    assert_non_null(typed);
    for (int64_t i = 0; i < count; i++) {
        if (dtype == CVY_F32)
            ((float *)typed)[i] = (float)numbers[i];
        else
            ((double *)typed)[i] = numbers[i];
    }
    return typed;
}

/* Run `desc` in `dtype` on numbers given as doubles; compare output 0 exactly. */
static void expect_exact(cvy_device *device, struct cvy_op_desc *desc, enum cvy_dtype dtype, const double *const *in,
                         const double *wanted)
{
    void *typed[CVY_MAX_INPUTS] = {NULL}, *out[CVY_MAX_OUTPUTS] = {NULL};
    const int64_t count = cvy_shape_elements(&desc->out[0].shape);

    for (int i = 0; i < desc->inputs; i++) {
        if (desc->in[i].shape.rank >= 0)
            typed[i] = as_type(in[i], cvy_shape_elements(&desc->in[i].shape), dtype);
        desc->in[i].dtype = dtype;
    }
    desc->out[0].dtype = dtype;
    out[0] = malloc((size_t)count * sizeof(double));
    assert_non_null(out[0]);
    executor_run_checked(device, desc, (const void *const *)typed, out);
    for (int64_t i = 0; i < count; i++) {
        const double is = dtype == CVY_F32 ? (double)((float *)out[0])[i] : ((double *)out[0])[i];
        if (is != wanted[i])
            fail_msg("%s: element %lld is %g, not %g", cvy_ops[desc->op].name, (long long)i, is, wanted[i]);
    }
    for (int i = 0; i < desc->inputs; i++)
        free(typed[i]);
    free(out[0]);
}

static void check_conv(cvy_device *device, const struct conv_case *t, enum cvy_dtype dtype)
{
    struct cvy_rng rng = cvy_rng_new(1, CVY_RNG_TEST, 0, 0);
    struct conv_data d = {.p = outputs_of(&t->attr, 0, t->h), .q = outputs_of(&t->attr, 1, t->w)};
    const struct cvy_shape x = cvy_shape4(t->n, t->c, t->h, t->w), y = cvy_shape4(t->n, t->k, d.p, d.q);
    const struct cvy_shape w = cvy_shape4(t->k, t->c / t->attr.groups, t->attr.kernel[0], t->attr.kernel[1]);
    struct cvy_op_desc desc = executor_desc(CVY_OP_CONV2D, 4, 1);

    d.x = integers(&rng, cvy_shape_elements(&x));
    d.weight = integers(&rng, cvy_shape_elements(&w));
    d.bias = integers(&rng, t->k);
    d.residual = integers(&rng, cvy_shape_elements(&y));
    d.dy = integers(&rng, cvy_shape_elements(&y));
    d.y = calloc((size_t)cvy_shape_elements(&y), sizeof(double));
    d.dx = calloc((size_t)cvy_shape_elements(&x), sizeof(double));
    d.dw = calloc((size_t)cvy_shape_elements(&w), sizeof(double));
    assert_true(d.y && d.dx && d.dw);
    convolve(t, &d);

    desc.attr.conv2d = t->attr;
    desc.in[0].shape = x;
    desc.in[1].shape = w;
    if (t->bias)
        desc.in[2].shape = cvy_shape1(t->k);
    if (t->residual)
        desc.in[3].shape = y;
    desc.out[0].shape = y;
    expect_exact(device, &desc, dtype, (const double *[]){d.x, d.weight, d.bias, d.residual}, d.y);

    desc = executor_desc(CVY_OP_CONV2D_BWD_DATA, 2, 1);
    desc.attr.conv2d = t->attr;
    desc.in[0].shape = w;
    desc.in[1].shape = y;
    desc.out[0].shape = x;
    expect_exact(device, &desc, dtype, (const double *[]){d.weight, d.dy}, d.dx);

    desc = executor_desc(CVY_OP_CONV2D_BWD_WEIGHTS, 2, 1);
    desc.attr.conv2d = t->attr;
    desc.in[0].shape = x;
    desc.in[1].shape = y;
    desc.out[0].shape = w;
    expect_exact(device, &desc, dtype, (const double *[]){d.x, d.dy}, d.dw);
    free(d.x);
    free(d.weight);
    free(d.bias);
    free(d.residual);
    free(d.dy);
    free(d.y);
    free(d.dx);
    free(d.dw);
}

static void convolutions_match_the_definition(void **state)
{
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++) {
        check_conv(*state, &conv_cases[i], CVY_F32);
        check_conv(*state, &conv_cases[i], CVY_F64);
    }
}

static void bias_gradient_sums_over_images_and_pixels(void **state)
{
    const double dy[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct cvy_op_desc desc = executor_desc(CVY_OP_CONV2D_BWD_BIAS, 1, 1);

    desc.in[0].shape = cvy_shape4(2, 2, 1, 2);
    desc.out[0].shape = cvy_shape1(2);
    expect_exact(*state, &desc, CVY_F32, (const double *[]){dy}, (const double[]){1 + 2 + 5 + 6, 3 + 4 + 7 + 8});
}

/* ---- batch norm ---- */

static struct cvy_op_desc norm_desc(enum cvy_op op, struct cvy_shape x, int32_t outputs)
{
    struct cvy_op_desc desc = executor_desc(op, 5, outputs);

    desc.attr.batch_norm = (struct cvy_batch_norm_attr){.eps = 0.5F, .momentum = 0.25F};
    desc.in[0] = desc.out[0] = executor_tensor(CVY_F64, x);
    for (int i = 1; i < 5; i++)
        desc.in[i] = executor_tensor(CVY_F64, cvy_shape1(x.dim[1]));
    for (int i = 1; i < outputs; i++)
        desc.out[i] = executor_tensor(CVY_F64, cvy_shape1(x.dim[1]));
    return desc;
}

static void batch_norm_keeps_unbiased_statistics(void **state)
{
    /* Channel 0: 1 2 3 4, mean 2.5, biased variance 1.25, unbiased 5 / 3. Channel 1: constant 7. */
    const double x[] = {1, 2, 7, 7, 3, 4, 7, 7}, gamma[] = {2, 3}, beta[] = {-1, 5};
    const double running_mean[] = {1, 2}, running_var[] = {4, 8};
    const double r = 1 / sqrt(1.25 + 0.5), r1 = 1 / sqrt(0.5);
    const double y_wanted[] = {2 * -1.5 * r - 1, 2 * -0.5 * r - 1, 5, 5, 2 * 0.5 * r - 1, 2 * 1.5 * r - 1, 5, 5};
    double y[8], mean[2], rstd[2], new_mean[2], new_var[2];
    struct cvy_op_desc desc = norm_desc(CVY_OP_BATCH_NORM, cvy_shape4(2, 2, 1, 2), 5);

    executor_run_checked(*state, &desc, (const void *[]){x, gamma, beta, running_mean, running_var},
                         (void *[]){y, mean, rstd, new_mean, new_var});
    executor_same(y, y_wanted, 8, rounding);
    executor_same(mean, (const double[]){2.5, 7}, 2, rounding);
    executor_same(rstd, (const double[]){r, r1}, 2, rounding);
    executor_same(new_mean, (const double[]){0.75 * 1 + 0.25 * 2.5, 0.75 * 2 + 0.25 * 7}, 2, rounding);
    executor_same(new_var, (const double[]){0.75 * 4 + 0.25 * 5 / 3, 0.75 * 8}, 2, rounding);
}

static void batch_norm_adds_the_residual_before_the_relu(void **state)
{
    const double x[] = {-1, 1, -1, 1}, gamma[] = {1}, beta[] = {0}, zero[] = {0}, residual[] = {3, -3, 0, NAN};
    const double r = 1 / sqrt(1 + 0.5);
    double y[4], mean[1], rstd[1], new_mean[1], new_var[1];
    struct cvy_op_desc desc = norm_desc(CVY_OP_BATCH_NORM, cvy_shape2(4, 1), 5);

    desc.attr.batch_norm.activation = CVY_ACTIVATION_RELU;
    desc.inputs = 6;
    desc.in[5] = desc.in[0];
    executor_run_checked(*state, &desc, (const void *[]){x, gamma, beta, zero, zero, residual},
                         (void *[]){y, mean, rstd, new_mean, new_var});
    executor_same(y, (const double[]){3 - r, 0, 0, NAN}, 4, rounding);
}

static void batch_norm_needs_more_than_one_value(void **state)
{
    const double one[] = {1};
    double out[5];
    struct cvy_op_desc desc = norm_desc(CVY_OP_BATCH_NORM, cvy_shape2(1, 1), 5);

    assert_int_equal(executor_run_op(*state, &desc, (const void *[]){one, one, one, one, one},
                                     (void *[]){out, out + 1, out + 2, out + 3, out + 4}),
                     CVY_UNAVAILABLE);
}

/* In float, where the mean is rounded before it is used. */
static void apply_repeats_batch_norm_to_the_bit(void **state)
{
    enum { N = 3, C = 4, PLANE = 35 };
    float x[N * C * PLANE], y[N * C * PLANE], again[N * C * PLANE];
    float gamma[C], beta[C], zero[C] = {0}, mean[C], rstd[C], new_mean[C], new_var[C];
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_TEST, 0, 0);
    struct cvy_op_desc desc = norm_desc(CVY_OP_BATCH_NORM, cvy_shape4(N, C, 5, 7), 5);

    for (int i = 0; i < N * C * PLANE; i++)
        x[i] = (float)(10 + cvy_rng_normal(&rng));
    for (int i = 0; i < C; i++) {
        gamma[i] = (float)cvy_rng_normal(&rng);
        beta[i] = (float)cvy_rng_normal(&rng);
    }
    desc.attr.batch_norm.activation = CVY_ACTIVATION_RELU;
    for (int i = 0; i < 5; i++)
        desc.in[i].dtype = desc.out[i].dtype = CVY_F32;
    executor_run_checked(*state, &desc, (const void *[]){x, gamma, beta, zero, zero},
                         (void *[]){y, mean, rstd, new_mean, new_var});
    desc.op = CVY_OP_BATCH_NORM_APPLY;
    desc.outputs = 1;
    executor_run_checked(*state, &desc, (const void *[]){x, gamma, beta, mean, rstd}, (void *[]){again});
    assert_memory_equal(y, again, sizeof y);
}

static void folding_changes_nothing(void **state)
{
    enum { X = 2 * 3 * 4 * 4, W = 5 * 3 * 2 * 2, Y = 2 * 5 * 3 * 3, K = 5 };
    struct cvy_rng rng = cvy_rng_new(6, CVY_RNG_TEST, 0, 0);
    double x[X], w[W], bias[K], gamma[K], beta[K], mean[K], var[K];
    double y[Y], normed[Y], folded[W], folded_bias[K], direct[Y];
    const struct cvy_tensor weights = executor_tensor(CVY_F64, cvy_shape4(K, 3, 2, 2)),
                            vector = executor_tensor(CVY_F64, cvy_shape1(K));
    struct cvy_op_desc conv = executor_desc(CVY_OP_CONV2D, 3, 1), norm,
                       fold = executor_desc(CVY_OP_FOLD_BATCH_NORM, 6, 2);

    for (int i = 0; i < X; i++)
        x[i] = cvy_rng_normal(&rng);
    for (int i = 0; i < W; i++)
        w[i] = cvy_rng_normal(&rng);
    for (int i = 0; i < K; i++) {
        bias[i] = cvy_rng_normal(&rng);
        gamma[i] = cvy_rng_normal(&rng);
        beta[i] = cvy_rng_normal(&rng);
        mean[i] = cvy_rng_normal(&rng);
        var[i] = cvy_rng_range(&rng, 0.1, 2);
    }
    conv.attr.conv2d = (struct cvy_conv2d_attr){.kernel = {2, 2}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    conv.in[0] = executor_tensor(CVY_F64, cvy_shape4(2, 3, 4, 4));
    conv.in[1] = weights;
    conv.in[2] = vector;
    conv.out[0] = executor_tensor(CVY_F64, cvy_shape4(2, K, 3, 3));
    norm = norm_desc(CVY_OP_BATCH_NORM_INFERENCE, conv.out[0].shape, 1);
    fold.attr.batch_norm = norm.attr.batch_norm;
    fold.in[0] = fold.out[0] = weights;
    for (int i = 1; i < 6; i++)
        fold.in[i] = vector;
    fold.out[1] = vector;
    executor_run_checked(*state, &conv, (const void *[]){x, w, bias}, (void *[]){y});
    executor_run_checked(*state, &norm, (const void *[]){y, gamma, beta, mean, var}, (void *[]){normed});
    executor_run_checked(*state, &fold, (const void *[]){w, gamma, beta, mean, var, bias},
                         (void *[]){folded, folded_bias});
    executor_run_checked(*state, &conv, (const void *[]){x, folded, folded_bias}, (void *[]){direct});
    /* Some thirty roundings of numbers of about 10. */
    executor_same(direct, normed, Y, 1e-13);
    /* Without a bias it counts as 0. */
    fold.in[5].shape.rank = -1;
    memset(bias, 0, sizeof bias);
    executor_run_checked(*state, &conv, (const void *[]){x, w, bias}, (void *[]){y});
    executor_run_checked(*state, &norm, (const void *[]){y, gamma, beta, mean, var}, (void *[]){normed});
    executor_run_checked(*state, &fold, (const void *[]){w, gamma, beta, mean, var, NULL},
                         (void *[]){folded, folded_bias});
    executor_run_checked(*state, &conv, (const void *[]){x, folded, folded_bias}, (void *[]){direct});
    executor_same(direct, normed, Y, 1e-13);
}

/* ---- optimizer and threads ---- */

static void sgd_follows_the_formula(void **state)
{
    cvy_device *device = *state;

    for (int nesterov = 0; nesterov < 2; nesterov++) {
        float w[4] = {1, -2, 0.5F, 9}, v[4] = {0.25F, 0, -1, 9};
        const float g[4] = {8, -4, 2, 9};
        const struct cvy_update_segment segments[] = {{0, 1, 2, 0.125F}, {1, 2, 1, 0}};
        const float rate = 0.25F;
        const struct cvy_update step = {.weights = w,
                                        .momentum_buffer = v,
                                        .gradients = g,
                                        .segments = segments,
                                        .segment_count = 2,
                                        .learning_rate = &rate,
                                        .momentum = 0.5F,
                                        .dampening = 0.25F,
                                        .gradient_scale = 0.5F,
                                        .nesterov = nesterov};
        double d[3] = {8 * 0.5 + 0.125, -4 * 0.5, 2 * 0.5}, kept[3] = {0.25, 0, -1}, start[3] = {1, -2, 0.5};
        assert_int_equal(device->backend->update(device, &step), CVY_OK);
        for (int i = 0; i < 3; i++) {
            const double velocity = 0.5 * kept[i] + 0.75 * d[i];
            const double move = nesterov ? d[i] + 0.5 * velocity : velocity;
            assert_true((double)v[i] == velocity); /* all numbers are short binary fractions */
            assert_true((double)w[i] == start[i] - (i ? 0.25 : 0.5) * move);
        }
        assert_true(w[3] == 9 && v[3] == 9); /* in no segment */
    }
}

static void threads_change_nothing(void **state)
{
    enum { X = 2 * 8 * 9 * 9, W = 8 * 8 * 3 * 3, Y = 2 * 8 * 9 * 9 };
    static float x[X], w[W], y[2][Y];
    cvy_device *devices[] = {executor_device("ref", 1), executor_device("ref", 3)};
    struct cvy_rng rng = cvy_rng_new(9, CVY_RNG_TEST, 0, 0);

    (void)state;
    for (int i = 0; i < X; i++)
        x[i] = (float)cvy_rng_normal(&rng);
    for (int i = 0; i < W; i++)
        w[i] = (float)cvy_rng_normal(&rng);
    for (int t = 0; t < 2; t++) {
        struct cvy_op_desc desc = executor_desc(CVY_OP_CONV2D, 2, 1);
        desc.attr.conv2d = (struct cvy_conv2d_attr){
            .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad = {1, 1, 1, 1}, .groups = 1};
        desc.in[0] = desc.out[0] = executor_tensor(CVY_F32, cvy_shape4(2, 8, 9, 9));
        desc.in[1] = executor_tensor(CVY_F32, cvy_shape4(8, 8, 3, 3));
        executor_run_checked(devices[t], &desc, (const void *[]){x, w}, (void *[]){y[t]});
        cvy_device_close(devices[t]);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_match_the_definition),
        cmocka_unit_test(bias_gradient_sums_over_images_and_pixels),
        cmocka_unit_test(batch_norm_keeps_unbiased_statistics),
        cmocka_unit_test(batch_norm_adds_the_residual_before_the_relu),
        cmocka_unit_test(batch_norm_needs_more_than_one_value),
        cmocka_unit_test(apply_repeats_batch_norm_to_the_bit),
        cmocka_unit_test(folding_changes_nothing),
        cmocka_unit_test(sgd_follows_the_formula),
        cmocka_unit_test(threads_change_nothing),
    };

    return cmocka_run_group_tests(tests, executor_setup, executor_teardown);
}
