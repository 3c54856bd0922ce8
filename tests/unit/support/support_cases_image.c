/* Kernel cases of ops over images whose extent does not matter: batch norm, elementwise, means, factors, layouts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "ops/ops.h"
#include "support_cases.h"

/* ---- batch norm ---- */

static struct kernel_case norm_case(struct cvy_shape x, enum cvy_op op, enum kernel_data data,
                                    enum cvy_activation activation, const char *form, double passes)
{
    char shape[96];
    struct kernel_case kernel =
        kernel_begin(op, data, "%s%s%s", cvy_shape_text(&x, shape), form, cvy_activation_text(activation));
    kernel.desc.attr.batch_norm =
        (struct cvy_batch_norm_attr){.eps = 1e-3f, .momentum = 0.3f, .activation = activation};
    kernel.bytes = passes * 4 * (double)cvy_shape_elements(&x);
    return kernel;
}

/* Such a beta that some sums lie beyond the ceiling, if there is one. */
static enum kernel_fill shift_of(enum cvy_activation activation)
{
    return activation == CVY_ACTIVATION_RELU6 ? FILL_SIXES : FILL_EIGHTHS;
}

/* The size of y follows from gamma below 2 and values a few deviations away; with a beta around 6 sums are larger,
 * also where the ceiling hides it. */
static struct kernel_bound norm_bound(enum cvy_activation activation)
{
    return (struct kernel_bound){.ulps = 16, .scale = activation == CVY_ACTIVATION_RELU6 ? 16 : 2};
}

/* Where the mean is a thousand deviations away, sums of squares around zero have no digit of the variance left: rstd
 * would be off by a tenth. The mean is rounded to a unit of 1000, and so are the means of parts of the batch where sums
 * run in single precision; 1 / sqrt(eps) = 32 and gamma = 2 at most make that larger in y. A deviation that is off by
 * such a unit moves rstd = 2 by 2^2 units, and the variance, of which momentum takes 0.3, by less than 2. */
static void check_far_from_zero(struct cvy_shape x)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    struct kernel_case kernel = norm_case(x, CVY_OP_BATCH_NORM, DATA_FLOATS, CVY_ACTIVATION_NONE, " far from zero", 3);
    kernel.images = 1U << 0;
    kernel_input(&kernel, x, FILL_FAR);
    kernel_input(&kernel, c, FILL_EIGHTHS);
    kernel_input(&kernel, c, FILL_EIGHTHS);
    kernel_input(&kernel, c, FILL_SMALL);
    kernel_input(&kernel, c, FILL_POSITIVE);
    kernel_output(&kernel, x, (struct kernel_bound){.ulps = 4, .scale = 1000 * 32 * 2});
    kernel_output(&kernel, c, kernel_few);
    kernel_output(&kernel, c, (struct kernel_bound){.ulps = 1, .scale = 1000 * 4});
    kernel_output(&kernel, c, kernel_few);
    kernel_output(&kernel, c, (struct kernel_bound){.ulps = 1, .scale = 1000});
    kernel_check(&kernel);
}

/* Forward without the output, backward with the sums: convolutions do the rest. */
static void check_halves(struct cvy_shape x, enum kernel_data data)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    struct kernel_case kernel = norm_case(x, CVY_OP_BATCH_NORM, data, CVY_ACTIVATION_RELU, " numbers alone", 0);

    kernel.images = 1U << 0;
    kernel_input(&kernel, x, FILL_DYADIC);
    for (int i = 0; i < 3; i++)
        kernel_input(&kernel, c, FILL_SMALL);
    kernel_input(&kernel, c, FILL_POSITIVE);
    kernel_absent_input(&kernel);
    kernel_input(&kernel, c, FILL_SMALL);
    kernel_input(&kernel, c, FILL_POSITIVE);
    kernel_output(&kernel, x, kernel_exact);
    kernel.desc.out[0].shape.rank = -1;
    kernel_output(&kernel, c, kernel_exact);
    for (int i = 0; i < 3; i++)
        kernel_output(&kernel, c, kernel_few);
    kernel_check(&kernel);

    kernel = norm_case(x, CVY_OP_BATCH_NORM_BWD, data, CVY_ACTIVATION_RELU, " given sums", 3);
    kernel.images = 1U << 0 | 1U << 5;
    kernel_input(&kernel, x, FILL_DYADIC);
    kernel_input(&kernel, c, FILL_EIGHTHS);
    kernel_input(&kernel, c, FILL_EIGHTHS);
    kernel_input(&kernel, c, FILL_DYADIC);
    kernel_input(&kernel, c, FILL_POWERS);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_absent_input(&kernel);
    kernel_absent_input(&kernel);
    kernel_input(&kernel, c, FILL_SMALL);
    kernel_input(&kernel, c, FILL_SMALL);
    /* The sums over the pixels, x - mean up to 4 times rstd: gamma rstd is up to 4. */
    kernel_output(&kernel, x, (struct kernel_bound){.ulps = 16, .scale = 8});
    kernel_check(&kernel);
}

/* What is given need not be the statistics of x: they are numbers as any others. */
static void check_given_statistics(struct cvy_shape x, enum kernel_data data, enum cvy_activation activation,
                                   bool residual)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    struct kernel_case kernel = norm_case(x, CVY_OP_BATCH_NORM, data, activation,
                                          residual ? " residual, given statistics" : " given statistics", 2 + residual);
    kernel.images = 1U << 0 | 1U << 5;
    kernel_input(&kernel, x, FILL_DYADIC);
    kernel_input(&kernel, c, FILL_EIGHTHS);
    kernel_input(&kernel, c, shift_of(activation));
    kernel_input(&kernel, c, FILL_SMALL);
    kernel_input(&kernel, c, FILL_POSITIVE);
    if (residual)
        kernel_input(&kernel, x, FILL_SMALL);
    else
        kernel_absent_input(&kernel);
    kernel_input(&kernel, c, FILL_SMALL);
    kernel_input(&kernel, c, FILL_POSITIVE);
    /* rstd below 1.5, gamma below 2, x within 3 of the mean */
    kernel_output(&kernel, x, norm_bound(activation));
    kernel_output(&kernel, c, kernel_exact);
    for (int i = 0; i < 3; i++)
        kernel_output(&kernel, c, kernel_few);
    kernel_check(&kernel);
}

/* What folded batch norms need of each channel, with and without running statistics that stay. */
static void check_correction(struct cvy_shape x, enum kernel_data data, bool stays)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    const float observed[] = {-1, 1, 8};
    struct kernel_case kernel =
        norm_case(x, CVY_OP_FOLD_CORRECTION, data, CVY_ACTIVATION_NONE, stays ? " frozen" : "", 0);

    for (int backward = 0; backward < 2; backward++) {
        if (backward)
            kernel = norm_case(x, CVY_OP_FOLD_CORRECTION_BWD, data, CVY_ACTIVATION_NONE, stays ? " frozen" : "", 0);
        kernel.desc.attr.batch_norm.freeze = stays ? 8 : 9;
        kernel.images = 1U << 0;
        kernel_input(&kernel, x, FILL_DYADIC);
        for (int i = 0; i < (backward ? 2 : 3); i++)
            kernel_input(&kernel, c, FILL_SMALL);
        kernel_input(&kernel, c, FILL_POWERS);
        kernel_input(&kernel, c, FILL_SMALL);
        kernel_input(&kernel, c, FILL_POSITIVE);
        for (int i = 0; i < 2; i++)
            kernel_input(&kernel, c, FILL_SMALL);
        kernel_input(&kernel, cvy_shape1(3), FILL_GIVEN);
        kernel.in[backward ? 8 : 9] = malloc(sizeof observed);
        memcpy(kernel.in[backward ? 8 : 9], observed, sizeof observed);
        for (int i = 0; i < (backward ? 3 : 6); i++)
            kernel_output(&kernel, c, kernel_few);
        kernel_check(&kernel);
    }
}

/* The next two inputs: sums of products of numbers of `channels` channels of as many pixels as the first input has, and
 * of the numbers. */
static void add_moments(struct kernel_case *kernel, int64_t channels)
{
    const struct cvy_shape *const x = &kernel->desc.in[0].shape;
    const int64_t pixels = x->dim[0] * x->dim[2] * x->dim[3];
    double *const sums = calloc((size_t)(channels + channels * channels), sizeof *sums), *const moments =
                                                                                             sums + channels;
    float *const to[2] = {malloc((size_t)(channels * channels) * sizeof(float)),
                          malloc((size_t)channels * sizeof(float))};

    for (int64_t i = 0; i < pixels; i++) {
        struct cvy_rng rng = cvy_rng_new(7, CVY_RNG_TEST, 0, (uint32_t)i);
        double number[64];
        for (int64_t c = 0; c < channels; c++) {
            number[c] = 0.5 + cvy_rng_normal(&rng);
            sums[c] += number[c];
        }
        for (int64_t c = 0; c < channels; c++)
            for (int64_t d = 0; d < channels; d++)
                moments[c * channels + d] += number[c] * number[d];
    }
    for (int64_t c = 0; c < channels * channels; c++)
        to[0][c] = (float)moments[c];
    for (int64_t c = 0; c < channels; c++)
        to[1][c] = (float)sums[c];
    kernel->in[kernel_input(kernel, cvy_shape4(channels, channels, 1, 1), FILL_GIVEN)] = to[0];
    kernel->in[kernel_input(kernel, cvy_shape1(channels), FILL_GIVEN)] = to[1];
    free(sums);
}

/* Batch norms in closed form, after a convolution that makes the x.dim[1] channels of fewer. What is computed in float
 * is a product of as many terms as there are channels of one side or the other. */
static void check_product_norm(struct cvy_shape x, enum kernel_data data)
{
    const int64_t outputs = x.dim[1], inputs = x.dim[1] / 4 + 1, pixels = x.dim[0] * x.dim[2] * x.dim[3];
    const struct cvy_shape w = cvy_shape4(outputs, inputs, 1, 1), k = cvy_shape1(outputs), c = cvy_shape1(inputs);
    const double terms = sqrt((double)inputs), few = 16 + 4 * terms;
    struct kernel_case kernel = norm_case(x, CVY_OP_PRODUCT_NORM, data, CVY_ACTIVATION_NONE, "", 0);

    kernel.images = 1U << 0;
    kernel.optional = suite.cpu->gpu;
    kernel_input(&kernel, cvy_shape4(x.dim[0], inputs, x.dim[2], x.dim[3]), FILL_SMALL);
    kernel_input(&kernel, w, FILL_POSITIVE);
    add_moments(&kernel, inputs);
    kernel_input(&kernel, k, FILL_SMALL);
    kernel_input(&kernel, k, FILL_POSITIVE);
    kernel_output(&kernel, k, (struct kernel_bound){.ulps = 4, .scale = 2 * (double)inputs});
    kernel_output(&kernel, k, (struct kernel_bound){.ulps = few, .scale = 8});
    kernel_output(&kernel, k, (struct kernel_bound){.ulps = 4, .scale = 2 * (double)inputs});
    kernel_output(&kernel, k, (struct kernel_bound){.ulps = few, .scale = 8 * (double)inputs});
    kernel_check(&kernel);

    kernel = norm_case(x, CVY_OP_PRODUCT_NORM_BWD, data, CVY_ACTIVATION_NONE, "", 0);
    kernel.images = 1U << 0;
    kernel.optional = suite.cpu->gpu;
    kernel_input(&kernel, x, FILL_SMALL);
    for (int i = 0; i < 2; i++) /* w, raw */
        kernel_input(&kernel, w, FILL_SMALL);
    add_moments(&kernel, inputs);
    kernel_input(&kernel, k, FILL_EIGHTHS);
    kernel_input(&kernel, k, FILL_DYADIC);
    kernel_input(&kernel, k, FILL_POWERS);
    kernel_input(&kernel, k, FILL_SMALL);
    kernel.inner_roundings = 2; /* the offset is of rounded weights */
    /* gamma and rstd are 2 at most, the mean 3; dgamma of `inputs` terms below 1. */
    kernel_output(&kernel, w, (struct kernel_bound){.ulps = 8, .scale = 4 + 16 * (1 + terms) * terms});
    kernel_output(&kernel, k, (struct kernel_bound){.ulps = 8, .scale = 8 + 4 * terms});
    kernel_output(&kernel, w, (struct kernel_bound){.ulps = 4, .scale = 4});
    kernel_output(&kernel, cvy_shape4(inputs, inputs, 1, 1),
                  (struct kernel_bound){.ulps = 16 + 4 * sqrt((double)outputs),
                                        .scale = 16 * (1 + terms) * sqrt((double)outputs) / (double)pixels});
    kernel_output(
        &kernel, c,
        (struct kernel_bound){.ulps = 16, .scale = 64 * (1 + terms) * terms * sqrt((double)outputs) / (double)pixels});
    kernel_check(&kernel);
}

/* Normalisation without shift and mean: the gradient of a folded one. */
static void check_scale_alone(struct cvy_shape x, enum kernel_data data)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    struct kernel_case kernel = norm_case(x, CVY_OP_BATCH_NORM_APPLY, data, CVY_ACTIVATION_NONE, " scale alone", 2);

    kernel.images = 1U << 0;
    kernel_input(&kernel, x, FILL_DYADIC);
    kernel_input(&kernel, c, FILL_EIGHTHS);
    kernel_absent_input(&kernel);
    kernel_absent_input(&kernel);
    kernel_input(&kernel, c, FILL_POWERS);
    kernel_output(&kernel, x, norm_bound(CVY_ACTIVATION_NONE));
    kernel_check(&kernel);
}

/* Activation and residual of one of six forms; of large images those with ReLU6 are left out: what they differ in small
 * ones show. */
static bool norm_form(struct cvy_shape x, int form, enum cvy_activation *activation, bool *residual)
{
    *activation = (enum cvy_activation)(form % 3);
    *residual = form >= 3;
    return *activation != CVY_ACTIVATION_RELU6 || cvy_shape_elements(&x) <= 1 << 16;
}

/* Statistics are sums in double of pieces summed in float: a few roundings of results of their size. */
void check_norm_forward(struct cvy_shape x, enum kernel_data data)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    enum cvy_activation activation;
    bool residual;
    check_scale_alone(x, data);
    for (int stays = 0; stays < 2 && data == DATA_FLOATS; stays++)
        check_correction(x, data, stays);
    if (x.rank == 4 && data == DATA_FLOATS && x.dim[1] / 4 < 64 && cvy_shape_elements(&x) < 1 << 20)
        check_product_norm(x, data);
    for (int form = 0; form < 6; form++) {
        if (!norm_form(x, form, &activation, &residual))
            continue;
        struct kernel_case kernel =
            norm_case(x, CVY_OP_BATCH_NORM, data, activation, residual ? " residual" : "", residual ? 4 : 3);
        kernel.images = 1U << 0 | 1U << 5;
        kernel_input(&kernel, x, FILL_DYADIC);
        kernel_input(&kernel, c, FILL_EIGHTHS);
        kernel_input(&kernel, c, shift_of(activation));
        kernel_input(&kernel, c, FILL_SMALL);
        kernel_input(&kernel, c, FILL_POSITIVE);
        if (residual)
            kernel_input(&kernel, x, FILL_SMALL);
        kernel_output(&kernel, x, norm_bound(activation));
        for (int i = 0; i < 4; i++)
            kernel_output(&kernel, c, kernel_few);
        kernel_check(&kernel);

        kernel =
            norm_case(x, CVY_OP_BATCH_NORM_INFERENCE, data, activation, residual ? " residual" : "", residual ? 3 : 2);
        kernel.images = 1U << 0 | 1U << 5;
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_input(&kernel, c, FILL_SMALL);
        kernel_input(&kernel, c, activation == CVY_ACTIVATION_RELU6 ? FILL_SIXES : FILL_SMALL);
        kernel_input(&kernel, c, FILL_SMALL);
        kernel_input(&kernel, c, FILL_POSITIVE);
        if (residual)
            kernel_input(&kernel, x, FILL_SMALL);
        kernel_output(&kernel, x, norm_bound(activation));
        kernel_check(&kernel);
    }
    {
        struct kernel_case kernel = norm_case(x, CVY_OP_BATCH_NORM_INFERENCE_BWD, data, CVY_ACTIVATION_NONE, "", 2);
        kernel.images = 1U << 0;
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_input(&kernel, c, FILL_SMALL);
        kernel_input(&kernel, c, FILL_POSITIVE);
        kernel_output(&kernel, x, kernel_few); /* two products */
        kernel_check(&kernel);
    }
    if (data == DATA_FLOATS)
        check_far_from_zero(x);
    for (int form = 0; form < 6; form++) {
        if (norm_form(x, form, &activation, &residual))
            check_given_statistics(x, data, activation, residual);
    }
    check_halves(x, data);
    for (int form = 0; form < 6; form++) {
        if (!norm_form(x, form, &activation, &residual))
            continue;
        struct kernel_case kernel =
            norm_case(x, CVY_OP_BATCH_NORM_APPLY, data, activation, residual ? " residual" : "", residual ? 3 : 2);
        kernel.images = 1U << 0 | 1U << 5;
        kernel_input(&kernel, x, FILL_DYADIC);
        kernel_input(&kernel, c, FILL_EIGHTHS);
        kernel_input(&kernel, c, shift_of(activation));
        kernel_input(&kernel, c, FILL_DYADIC);
        kernel_input(&kernel, c, FILL_POWERS);
        if (residual)
            kernel_input(&kernel, x, FILL_DYADIC);
        kernel_output(&kernel, x, kernel_exact); /* every step is exact with such numbers */
        kernel_check(&kernel);
    }
}

/* The mask of the activation is recomputed: x, the statistics and gamma, beta are such that this is exact. */
static void check_norm_backward_of(struct cvy_shape x, enum kernel_data data, enum cvy_activation with)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    const double terms = (double)(cvy_shape_elements(&x) / x.dim[1]);
    /* plain, activated, activated with y given, the last two with dresidual; all again with two gradients */
    for (int form = 0; form < 10; form++) {
        const int kind = form % 5;
        const enum cvy_activation activation = kind > 0 ? with : CVY_ACTIVATION_NONE;
        const bool given = kind == 2 || kind == 3, residual = kind >= 3, two = form >= 5;
        static const char *const forms[] = {
            "",         "",         " y",         " y dresidual",         " dresidual",
            " more dy", " more dy", " y more dy", " y more dy dresidual", " more dy dresidual"};
        struct kernel_case kernel =
            norm_case(x, CVY_OP_BATCH_NORM_BWD, data, activation, forms[form], 5 + given + residual + two);
        kernel.images = 1U << 0 | 1U << 5 | 1U << 6 | 1U << 7;
        kernel_input(&kernel, x, FILL_DYADIC);
        kernel_input(&kernel, c, FILL_EIGHTHS);
        kernel_input(&kernel, c, shift_of(activation));
        kernel_input(&kernel, c, FILL_DYADIC);
        kernel_input(&kernel, c, FILL_POWERS);
        kernel_input(&kernel, x, FILL_SMALL);
        if (given)
            kernel_input(&kernel, x, activation == CVY_ACTIVATION_RELU6 ? FILL_ACROSS : FILL_RECTIFIED);
        else if (two)
            kernel_absent_input(&kernel);
        if (two)
            kernel_input(&kernel, x, FILL_SMALL);
        kernel_output(&kernel, x, (struct kernel_bound){.ulps = 16, .scale = 2 << two}); /* divides by the batch */
        kernel_output(&kernel, c, kernel_sum_bound(data, terms, 4 << two)); /* dy (x - mean) rstd: up to 1 * 4 * 2 */
        kernel_output(&kernel, c, kernel_sum_bound(data, terms, two ? 1.2 : 0.6));
        if (residual)
            kernel_output(&kernel, x, kernel_exact);
        kernel_check(&kernel);
    }
}

void check_norm_backward(struct cvy_shape x, enum kernel_data data)
{
    check_norm_backward_of(x, data, CVY_ACTIVATION_RELU);
    if (cvy_shape_elements(&x) <= 1 << 16) /* large ones show that their ends are reached */
        check_norm_backward_of(x, data, CVY_ACTIVATION_RELU6);
}

/* ---- elementwise, mean, reorders ---- */

static struct kernel_case plain_case(enum cvy_op op, enum kernel_data data, struct cvy_shape x, const char *form,
                                     double passes)
{
    char shape[96];
    struct kernel_case kernel = kernel_begin(op, data, "%s%s", cvy_shape_text(&x, shape), form);
    kernel.images = ~0U;
    kernel.bytes = passes * 4 * (double)cvy_shape_elements(&x);
    return kernel;
}

static void check_one(enum cvy_op op, int inputs, bool relu, struct cvy_shape x, enum kernel_data data,
                      struct kernel_bound bound)
{
    const bool six = op == CVY_OP_RELU6 || op == CVY_OP_RELU6_BWD;
    struct kernel_case kernel = plain_case(op, data, x, relu ? " relu" : "", inputs + 1);
    if (op == CVY_OP_ADD)
        kernel.desc.attr.add.relu = relu;
    for (int i = 0; i < inputs; i++)
        kernel_input(&kernel, x, six && i == 0 ? FILL_ACROSS : FILL_SMALL);
    kernel_output(&kernel, x, bound);
    kernel_check(&kernel);
}

/* Which levels there are follows from the state, or from the values themselves. Levels and their products with the
 * scale are the same everywhere; the average of the range is rounded to f32 from double. */
static void check_quantize(struct cvy_shape x, enum kernel_data data, int form)
{
    static const char *const forms[] = {"",
                                        " asymmetric",
                                        " weights",
                                        " asymmetric weights",
                                        " update",
                                        " asymmetric update",
                                        " weights update",
                                        " asymmetric weights update",
                                        " positive",
                                        "",
                                        " channels",
                                        "",
                                        " positive update",
                                        "",
                                        " channels update"};
    const struct cvy_fake_quantize_attr attr = {.symmetric = !(form & 1),
                                                .weights = form & 2,
                                                .channels = form > 7 && (form & 2),
                                                .positive = form > 7 && !(form & 2),
                                                .delay = 3};
    /* Ranges that cut some values; 4 batches were enough. */
    const float observed[] = {form & 1 ? -0.7f : -0.9f * 128 / 127, 0.9f, 4};
    const bool update = form & 4;
    struct kernel_case kernel = plain_case(CVY_OP_FAKE_QUANTIZE, data, x, forms[form], update ? 3 : 2);
    kernel.desc.attr.fake_quantize = attr;
    kernel.images = 1U << 0;
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_input(&kernel, cvy_shape1(3), FILL_GIVEN);
    kernel.in[1] = malloc(sizeof observed);
    memcpy(kernel.in[1], observed, sizeof observed);
    kernel_output(&kernel, x, kernel_exact);
    if (update)
        kernel_output(&kernel, cvy_shape1(3), kernel_exact);
    kernel_check(&kernel);
    if (form > 1 && form != 8)
        return;
    for (int ends = 0; ends < 2; ends++) {
        kernel = plain_case(CVY_OP_FAKE_QUANTIZE_BWD, data, x, forms[form], 3);
        kernel.desc.attr.fake_quantize = attr;
        kernel.desc.attr.fake_quantize.ends = ends;
        kernel.images = 1U << 0 | 1U << 2;
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_input(&kernel, cvy_shape1(3), FILL_GIVEN);
        kernel.in[1] = malloc(sizeof observed);
        memcpy(kernel.in[1], observed, sizeof observed);
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_output(&kernel, x, kernel_exact);
        kernel_check(&kernel);
    }
}

void check_elementwise(struct cvy_shape x, enum kernel_data data)
{
#define BOUND(op) (cvy_ops[op].check == CVY_CHECK_EXACT ? kernel_exact : kernel_few)
#define CVY_OP(...)
#define CVY_OP_UNARY(ID, ...)  check_one(CVY_OP_##ID, 1, false, x, data, BOUND(CVY_OP_##ID));
#define CVY_OP_BINARY(ID, ...) check_one(CVY_OP_##ID, 2, false, x, data, BOUND(CVY_OP_##ID));
#include "graph/ops.def"
    check_one(CVY_OP_ADD, 2, true, x, data, BOUND(CVY_OP_ADD));
    /* What the first eight forms differ in small tensors show; large ones show that their ends are reached. */
    const bool large = cvy_shape_elements(&x) > 1 << 16;
    for (int form = 0; form < 8; form += large ? 5 : 1)
        check_quantize(x, data, form);
    for (int form = 8; form < 16; form += 2) /* positive values, and weights with a scale for each row */
        check_quantize(x, data, form);
}

void check_mean(struct cvy_shape x, enum kernel_data data)
{
    const struct cvy_shape y = cvy_shape2(x.dim[0], x.dim[1]);
    const double pixels = (double)(x.dim[2] * x.dim[3]);
    struct kernel_case kernel = plain_case(CVY_OP_GLOBAL_AVG_POOL, data, x, "", 1);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_output(&kernel, y,
                  data == DATA_INTEGERS ? kernel_exact : (struct kernel_bound){.ulps = 8, .scale = 1 / sqrt(pixels)});
    kernel_check(&kernel);

    kernel = plain_case(CVY_OP_GLOBAL_AVG_POOL_BWD, data, x, "", 1);
    kernel.desc.attr.pool.input[0] = (int32_t)x.dim[2];
    kernel.desc.attr.pool.input[1] = (int32_t)x.dim[3];
    kernel.images = 0;
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_output(&kernel, x, kernel_few); /* a division, or a product with the reciprocal */
    kernel_check(&kernel);
}

void check_scale_channels(struct cvy_shape x, enum kernel_data data)
{
    const struct cvy_shape s = cvy_shape2(x.dim[0], x.dim[1]);
    /* The factor of the shift is a power of two where sums are to be exact; there is one of any kind too. */
    const double factor = data == DATA_INTEGERS ? 0.25 : 1 / 49.0;
    struct kernel_case kernel;

    /* The product alone, with each part, with all of them. */
    for (int form = 0; form < 5; form++) {
        static const char *const forms[] = {"", " shift", " residual", " relu", " shift residual relu"};
        const bool shift = form == 1 || form == 4, residual = form == 2 || form == 4, relu = form >= 3;

        kernel = plain_case(CVY_OP_SCALE_CHANNELS, data, x, forms[form], 2 + residual);
        kernel.desc.attr.scale_channels.relu = relu;
        kernel.desc.attr.scale_channels.shift_factor = factor;
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_input(&kernel, s, FILL_SMALL);
        if (shift)
            kernel_input(&kernel, s, FILL_SMALL);
        else if (residual)
            kernel_absent_input(&kernel);
        if (residual)
            kernel_input(&kernel, x, FILL_SMALL);
        /* The product alone is rounded once, everywhere in the same way. A sum has terms of 1, 1/49 and 1 at most, of
         * which each, and each sum of them, is rounded. */
        kernel_output(&kernel, x,
                      data == DATA_INTEGERS || !(shift || residual) ? kernel_exact
                                                                    : (struct kernel_bound){.ulps = 4, .scale = 2});
        kernel_check(&kernel);
    }

    kernel = plain_case(CVY_OP_SCALE_CHANNELS_BWD_SCALE, data, x, "", 2);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_output(&kernel, s, kernel_sum_bound(data, (double)(x.dim[2] * x.dim[3]), 1.0 / 3));
    kernel_check(&kernel);
}

/* ---- feature pyramids ---- */

void check_upsample(struct cvy_shape x, enum kernel_data data)
{
    struct cvy_shape y = x;
    struct kernel_case kernel = plain_case(CVY_OP_UPSAMPLE, data, x, "", 5);
    y.dim[2] *= 2;
    y.dim[3] *= 2;
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_output(&kernel, y, kernel_exact);
    kernel_check(&kernel);

    kernel = plain_case(CVY_OP_UPSAMPLE_BWD, data, x, "", 5);
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_output(&kernel, x, data == DATA_INTEGERS ? kernel_exact : (struct kernel_bound){.ulps = 3, .scale = 4});
    kernel_check(&kernel);
}

void check_levels(struct cvy_shape x, enum kernel_data data)
{
    for (int32_t levels = 1; levels <= 3; levels += 2)
        for (int backward = 0; backward < 2; backward++) {
            struct kernel_case kernel = plain_case(backward ? CVY_OP_FLATTEN_LEVELS_BWD : CVY_OP_FLATTEN_LEVELS, data,
                                                   x, levels == 1 ? "" : " and two smaller ones", 2);
            const int64_t columns = x.dim[1] % 6 ? x.dim[1] : x.dim[1] / 6;
            struct cvy_shape maps[3], rows = {.rank = 3, .dim = {x.dim[0], 0, columns}};
            for (int i = 0; i < levels; i++) {
                maps[i] = x;
                maps[i].dim[2] = (x.dim[2] + (1 << i) - 1) >> i;
                maps[i].dim[3] = (x.dim[3] + (1 << i) - 1) >> i;
                rows.dim[1] += x.dim[1] / columns * maps[i].dim[2] * maps[i].dim[3];
            }
            kernel.desc.attr.levels.columns = (int32_t)columns;
            kernel.images = backward ? 0 : (1U << levels) - 1;
            if (backward)
                kernel_input(&kernel, rows, FILL_SMALL);
            for (int i = 0; i < levels; i++) {
                if (backward)
                    kernel_output(&kernel, maps[i], kernel_exact);
                else
                    kernel_input(&kernel, maps[i], FILL_SMALL);
            }
            if (!backward)
                kernel_output(&kernel, rows, kernel_exact);
            kernel_check(&kernel);
        }
}

void check_reorders(struct cvy_shape x)
{
    static const enum cvy_layout_kind of_cpu[] = {CVY_LAYOUT_PLAIN, CVY_LAYOUT_NHWC, CVY_LAYOUT_BLOCKED16,
                                                  CVY_LAYOUT_BLOCKED8};
    static const enum cvy_layout_kind of_gpu[] = {CVY_LAYOUT_PLAIN, CVY_LAYOUT_NHWC, CVY_LAYOUT_NHWC4,
                                                  CVY_LAYOUT_NHWC8};
    const enum cvy_layout_kind *kinds = suite.cpu->gpu ? of_gpu : of_cpu;
    static const enum cvy_dtype dtypes[] = {CVY_F32, CVY_U8, CVY_BF16};
    char shape[96];
    for (int pair = 0; pair < 16; pair++)
        for (int t = 0; t < 3; t++) {
            struct kernel_case kernel = kernel_begin(CVY_OP_REORDER, DATA_FLOATS, "%s %s", cvy_shape_text(&x, shape),
                                                     cvy_dtype_name(dtypes[t]));
            kernel_input(&kernel, x, dtypes[t] == CVY_F32 ? FILL_SMALL : FILL_BYTES);
            kernel_output(&kernel, x, kernel_exact);
            kernel.fixed = true;
            kernel.bytes = 2.0 * (double)cvy_dtype_size(dtypes[t]) * (double)cvy_shape_elements(&x);
            kernel.desc.in[0].dtype = kernel.desc.out[0].dtype = dtypes[t];
            kernel.desc.in[0].layout.kind = kinds[pair / 4];
            kernel.desc.out[0].layout.kind = kinds[pair % 4];
            kernel_check(&kernel);
        }
}

void check_casts(struct cvy_shape x)
{
    static const enum cvy_dtype pairs[][2] = {{CVY_F32, CVY_BF16}, {CVY_BF16, CVY_F32}, {CVY_F32, CVY_F32}};
    for (int i = 0; i < 3; i++) {
        struct kernel_case kernel = plain_case(CVY_OP_CAST, i == 0 ? DATA_SPECIAL : DATA_FLOATS, x, "", 1.5);
        kernel_input(&kernel, x, pairs[i][0] == CVY_F32 ? FILL_SMALL : FILL_BYTES);
        kernel_output(&kernel, x, kernel_exact);
        kernel.desc.in[0].dtype = pairs[i][0];
        kernel.desc.out[0].dtype = kernel.desc.attr.cast.dtype = pairs[i][1];
        kernel_check(&kernel);
    }
}

/* ---- images of bytes and of f32 ---- */

/* Mixed, a number of up to 2.7 of size is two products of rounded factors and a sum: a few units in its last place. */
static void check_normalized(struct cvy_shape x, bool mixed, bool floats)
{
    static const char *const names[] = {"", " mixed", " of f32", " of f32, mixed"};
    struct kernel_case kernel = plain_case(CVY_OP_NORMALIZE, DATA_FLOATS, x, names[mixed + 2 * floats], 1.25);
    kernel.desc.attr.normalize =
        (struct cvy_normalize_attr){.mean = {123.675f, 116.28f, 103.53f, 100}, .std = {58.395f, 57.12f, 57.375f, 50}};
    kernel.fixed = true;
    kernel_input(&kernel, x, floats ? FILL_POSITIVE : FILL_BYTES);
    kernel.desc.in[0].dtype = floats ? CVY_F32 : CVY_U8;
    kernel.desc.in[0].layout.kind = CVY_LAYOUT_NHWC;
    if (mixed) {
        kernel_input(&kernel, cvy_shape1(x.dim[0]), FILL_PARTNERS);
        kernel.desc.in[1].dtype = CVY_I32;
        kernel_input(&kernel, cvy_shape1(x.dim[0]), FILL_UNIT);
    }
    kernel_output(&kernel, x, mixed || floats ? kernel_few : kernel_exact);
    kernel_check(&kernel);
}

void check_image(struct cvy_shape x)
{
    for (int kind = 0; kind < 4; kind++)
        check_normalized(x, kind & 1, kind & 2);
}
