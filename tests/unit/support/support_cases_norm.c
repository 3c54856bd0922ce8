/* Kernel cases of batch norm. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "ops/ops.h"
#include "support_cases.h"

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
