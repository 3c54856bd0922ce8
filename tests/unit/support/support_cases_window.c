/* Kernel cases of ops that slide a window: convolution and pooling. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support_cases.h"

/* ---- convolutions ---- */

static int64_t conv_extent(const struct conv_shape *s, int d)
{
    const int in = d ? s->w : s->h, taps = d ? s->s : s->r;
    return (in + s->pad[2 * d] + s->pad[2 * d + 1] - s->dilation[d] * (taps - 1) - 1) / s->stride[d] + 1;
}

static struct kernel_case conv_case(const struct conv_shape *s, enum cvy_op op, enum kernel_data data, const char *form)
{
    struct kernel_case kernel = kernel_begin(op, data, "%dx%dx%dx%d k%d %dx%d s%d,%d p%d,%d,%d,%d d%d g%d%s", s->n,
                                             s->c, s->h, s->w, s->k, s->r, s->s, s->stride[0], s->stride[1], s->pad[0],
                                             s->pad[1], s->pad[2], s->pad[3], s->dilation[0], s->groups, form);
    kernel.desc.attr.conv2d = (struct cvy_conv2d_attr){.kernel = {s->r, s->s},
                                                       .stride = {s->stride[0], s->stride[1]},
                                                       .dilation = {s->dilation[0], s->dilation[1]},
                                                       .pad = {s->pad[0], s->pad[1], s->pad[2], s->pad[3]},
                                                       .groups = s->groups,
                                                       .input = {s->h, s->w}};
    kernel.flops =
        2.0 * s->n * s->k * (double)conv_extent(s, 0) * (double)conv_extent(s, 1) * s->c / s->groups * s->r * s->s;
    return kernel;
}

/* With the statistics of its output. y has errors of kernel_sum_bound; so has the mean, and the variance twice the
 * errors of y times y. Sums over the rows, in pieces or in one chain, add errors that grow with the root of their
 * number times the mean of the squares, which is not far above the largest variance. */
static void check_conv_statistics(const struct conv_shape *s, enum kernel_data data)
{
    const struct cvy_shape x = cvy_shape4(s->n, s->c, s->h, s->w), channels = cvy_shape1(s->k);
    const struct cvy_shape y = cvy_shape4(s->n, s->k, conv_extent(s, 0), conv_extent(s, 1));
    const double terms = (double)s->c / s->groups * s->r * s->s, third = 1.0 / 3;
    const double deviation = data == DATA_INTEGERS ? 2 * sqrt(terms) : third * sqrt(terms);
    const double rows = (double)(y.dim[0] * y.dim[2] * y.dim[3]);
    struct kernel_case kernel = conv_case(s, CVY_OP_CONV2D, data, " statistics");

    kernel.images = 1U << 0;
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_input(&kernel, cvy_shape4(s->k, s->c / s->groups, s->r, s->s), FILL_SMALL);
    kernel_output(&kernel, y, kernel_sum_bound(data, terms, third));
    kernel_output(&kernel, channels, (struct kernel_bound){.ulps = 16 + 4 * sqrt(terms), .scale = deviation});
    kernel_output(&kernel, channels,
                  (struct kernel_bound){.ulps = 16 + 4 * sqrt(terms) + sqrt(rows), .scale = deviation * deviation});
    kernel.output_statistics = true;
    kernel_check(&kernel);
}

/* gamma, beta, mean and rstd of the batch norm before a convolution, with whose x every step of it is exact in
 * f32: so all agree about the ReLU, whose input is never 0, where cuDNN's engines let a gradient pass. */
static void norm_inputs(struct kernel_case *kernel, struct cvy_shape channels)
{
    kernel_input(kernel, channels, FILL_EIGHTHS);
    kernel_input(kernel, channels, FILL_BETWEEN);
    kernel_input(kernel, channels, FILL_DYADIC);
    kernel_input(kernel, channels, FILL_POWERS);
}

/* The gradient of weights with the batch norm before the convolution, as below; the CPU has a kernel where there are
 * tiles and images are channels-last. */
static void check_conv_norm_weights(const struct conv_shape *s, enum kernel_data data)
{
    const struct cvy_shape y = cvy_shape4(s->n, s->k, conv_extent(s, 0), conv_extent(s, 1));
    struct kernel_case kernel = conv_case(s, CVY_OP_CONV2D_BWD_WEIGHTS, data, " norm");

    kernel.images = 1U << 0 | 1U << 1;
    kernel_input(&kernel, cvy_shape4(s->n, s->c, s->h, s->w), FILL_DYADIC);
    kernel_input(&kernel, y, FILL_SMALL);
    norm_inputs(&kernel, cvy_shape1(s->c));
    kernel_output(&kernel, cvy_shape4(s->k, s->c / s->groups, s->r, s->s),
                  kernel_sum_bound(DATA_FLOATS, (double)(y.dim[0] * y.dim[2] * y.dim[3]), 2));
    kernel.inner_roundings = 4;
    kernel.optional = !suite.cpu->gpu;
    kernel_check(&kernel);
}

/* With the batch norm before it, whose output is about 2 in size and is rounded to 16 bits, as scale and shift are
 * where the convolution's own kernel does it: half a unit each of every term, scale and shift the same for all taps of
 * a channel. So errors grow as those of R S terms at a time do; twice that. */
static void check_conv_norm(const struct conv_shape *s, enum kernel_data data)
{
    const struct cvy_shape x = cvy_shape4(s->n, s->c, s->h, s->w), inputs = cvy_shape1(s->c);
    const struct cvy_shape w = cvy_shape4(s->k, s->c / s->groups, s->r, s->s), outputs = cvy_shape1(s->k);
    const struct cvy_shape y = cvy_shape4(s->n, s->k, conv_extent(s, 0), conv_extent(s, 1));
    const double terms = (double)s->c / s->groups * s->r * s->s, rows = (double)(y.dim[0] * y.dim[2] * y.dim[3]);
    const double deviation = 2 * sqrt(terms), taps = sqrt(s->r * s->s);
    const double pixels = (double)s->n * s->h * s->w, terms_back = (double)s->k / s->groups * s->r * s->s;
    struct kernel_case kernel = conv_case(s, CVY_OP_CONV2D, data, " norm statistics");

    kernel.images = 1U << 0;
    kernel_input(&kernel, x, FILL_DYADIC);
    kernel_input(&kernel, w, FILL_SMALL);
    kernel_absent_input(&kernel);
    kernel_absent_input(&kernel);
    norm_inputs(&kernel, inputs);
    kernel_output(&kernel, y, kernel_sum_bound(DATA_FLOATS, terms, 2));
    kernel_output(&kernel, outputs, (struct kernel_bound){.ulps = 16 + 4 * sqrt(terms), .scale = deviation});
    kernel_output(&kernel, outputs,
                  (struct kernel_bound){.ulps = 16 + 4 * sqrt(terms) + sqrt(rows), .scale = 2 * deviation * deviation});
    kernel.output_statistics = true;
    kernel.inner_roundings = 2 * (1 + taps);
    kernel_check(&kernel);

    check_conv_norm_weights(s, data);
    for (int residual = 0; residual < 2; residual++) {
        /* The sums may be of the gradient as it is rounded, half a unit of each term; once more before one is added. */
        kernel = conv_case(s, CVY_OP_CONV2D_BWD_DATA, data, residual ? " norm sums of two" : " norm sums");
        kernel.images = 1U << 1 | 1U << 2 | 1U << 7 | 1U << 8;
        kernel_input(&kernel, w, FILL_SMALL);
        kernel_input(&kernel, y, FILL_SMALL);
        kernel_input(&kernel, x, FILL_DYADIC);
        norm_inputs(&kernel, inputs);
        if (residual) {
            kernel_input(&kernel, x, FILL_RECTIFIED); /* y of the batch norm */
            kernel_input(&kernel, x, FILL_SMALL);
        }
        kernel_output(&kernel, x, kernel_sum_bound(DATA_FLOATS, terms_back + residual, 2));
        kernel_output(&kernel, inputs, kernel_sum_bound(DATA_FLOATS, pixels, 8 * sqrt(terms_back + residual)));
        kernel_output(&kernel, inputs, kernel_sum_bound(DATA_FLOATS, pixels, 2 * sqrt(terms_back + residual)));
        kernel.inner_roundings = 1 + residual;
        kernel_check(&kernel);
    }
}

void check_conv(const struct conv_shape *s, enum kernel_data data)
{
    const struct cvy_shape x = cvy_shape4(s->n, s->c, s->h, s->w);
    const struct cvy_shape y = cvy_shape4(s->n, s->k, conv_extent(s, 0), conv_extent(s, 1));
    const struct cvy_shape w = cvy_shape4(s->k, s->c / s->groups, s->r, s->s), bias = cvy_shape1(s->k);
    const double third = 1.0 / 3; /* deviation of a product of two uniform(-1, 1) */
    const double forward_terms = (double)s->c / s->groups * s->r * s->s;
    const double forward_flops = 2 * forward_terms * (double)cvy_shape_elements(&y);
    static const char *const forms[] = {"",          " bias",       " bias relu", " bias residual relu",
                                        " residual", " bias relu6", " relu6"};

    for (int form = 0; form < 7; form++) {
        struct kernel_case kernel = conv_case(s, CVY_OP_CONV2D, data, forms[form]);
        kernel.images = 1U << 0 | 1U << 3;
        kernel.desc.inference = form > 0;
        kernel.desc.attr.conv2d.activation = form >= 5                ? CVY_ACTIVATION_RELU6
                                             : form == 2 || form == 3 ? CVY_ACTIVATION_RELU
                                                                      : CVY_ACTIVATION_NONE;
        kernel_input(&kernel, x, data == DATA_SPECIAL ? FILL_RARE : FILL_SMALL);
        kernel_input(&kernel, w, data == DATA_SPECIAL ? FILL_POWERS : FILL_SMALL);
        if (form == 5)
            kernel_input(&kernel, bias, FILL_ACROSS);
        else if (form >= 1 && form <= 3)
            kernel_input(&kernel, bias, data == DATA_SPECIAL ? FILL_RARE : FILL_SMALL);
        else
            kernel_absent_input(&kernel);
        if (form == 3 || form == 4)
            kernel_input(&kernel, y, data == DATA_SPECIAL ? FILL_RARE : FILL_SMALL);
        struct kernel_bound bound = kernel_sum_bound(data, forward_terms, third);
        if (form >= 5) /* what is cut off at 6 hides how large sums become: as four standard deviations, and the bias */
            bound.scale = 4 * bound.scale + (form == 5 ? 8 : 0);
        kernel_output(&kernel, y, bound);
        /* All forms where they cost little, else the plain one and the one with everything. */
        if (kernel.flops < 5e7 || form == (data == DATA_INTEGERS ? 3 : 0))
            kernel_check(&kernel);
    }
    if (data == DATA_SPECIAL)
        return;
    if (suite.cpu->gpu)
        check_conv_statistics(s, data);
    if (s->c / s->groups >= 4 && s->k >= 4 && data == DATA_FLOATS && forward_flops < 2e6)
        (suite.cpu->gpu ? check_conv_norm : check_conv_norm_weights)(s, data);
    struct kernel_case kernel = conv_case(s, CVY_OP_CONV2D_BWD_DATA, data, "");
    kernel.images = 1U << 1;
    kernel_input(&kernel, w, FILL_SMALL);
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_output(&kernel, x, kernel_sum_bound(data, (double)s->k / s->groups * s->r * s->s, third));
    kernel_check(&kernel);

    kernel = conv_case(s, CVY_OP_CONV2D_BWD_WEIGHTS, data, "");
    kernel.images = 1U << 0 | 1U << 1;
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_output(&kernel, w, kernel_sum_bound(data, (double)s->n * (double)(y.dim[2] * y.dim[3]), third));
    kernel_check(&kernel);

    kernel = conv_case(s, CVY_OP_CONV2D_BWD_BIAS, data, "");
    kernel.flops = 0;
    kernel.bytes = 4.0 * (double)cvy_shape_elements(&y);
    kernel.images = 1U << 0;
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_output(&kernel, bias, kernel_sum_bound(data, (double)s->n * (double)(y.dim[2] * y.dim[3]), 0.6));
    kernel_check(&kernel);

    for (int with_bias = 0; with_bias < 2 && data == DATA_FLOATS; with_bias++) {
        kernel = conv_case(s, CVY_OP_FOLD_BATCH_NORM, data, with_bias ? " bias" : "");
        kernel.desc.attr.batch_norm = (struct cvy_batch_norm_attr){.eps = 1e-3f};
        kernel.flops = 0;
        kernel_input(&kernel, w, FILL_SMALL);
        kernel_input(&kernel, bias, FILL_SMALL);
        kernel_input(&kernel, bias, FILL_SMALL);
        kernel_input(&kernel, bias, FILL_SMALL);
        kernel_input(&kernel, bias, FILL_POSITIVE);
        if (with_bias)
            kernel_input(&kernel, bias, FILL_SMALL);
        kernel_output(&kernel, w, kernel_few);
        kernel_output(&kernel, bias, kernel_few);
        kernel_check(&kernel);
    }
    if (data != DATA_FLOATS)
        return;
    kernel = conv_case(s, CVY_OP_FOLD_BATCH_NORM_BWD, data, "");
    kernel.desc.attr.batch_norm = (struct cvy_batch_norm_attr){.eps = 1e-3f};
    kernel.flops = 0;
    kernel_input(&kernel, w, FILL_SMALL);
    kernel_input(&kernel, bias, FILL_SMALL);
    kernel_input(&kernel, bias, FILL_POSITIVE);
    kernel_input(&kernel, w, FILL_SMALL);
    kernel_output(&kernel, w, kernel_few);
    kernel_output(&kernel, bias, kernel_sum_bound(data, (double)s->c / s->groups * s->r * s->s, third));
    kernel_check(&kernel);
}

/* ---- pooling ---- */

static int64_t pool_extent(const struct pool_shape *s, int d)
{
    const int in = d ? s->w : s->h, taps = d ? s->s : s->r;
    return (in + s->pad[2 * d] + s->pad[2 * d + 1] - taps) / s->stride[d] + 1;
}

static struct kernel_case pool_case(const struct pool_shape *s, enum cvy_op op, enum kernel_data data)
{
    struct kernel_case kernel =
        kernel_begin(op, data, "%dx%dx%dx%d %dx%d s%d,%d p%d,%d,%d,%d", s->n, s->c, s->h, s->w, s->r, s->s,
                     s->stride[0], s->stride[1], s->pad[0], s->pad[1], s->pad[2], s->pad[3]);
    kernel.images = ~0U;
    kernel.desc.attr.pool = (struct cvy_pool_attr){.kernel = {s->r, s->s},
                                                   .stride = {s->stride[0], s->stride[1]},
                                                   .pad = {s->pad[0], s->pad[1], s->pad[2], s->pad[3]},
                                                   .input = {s->h, s->w}};
    kernel.bytes = 4.0 * s->n * s->c * (s->h * s->w + 1.25 * (double)(pool_extent(s, 0) * pool_extent(s, 1)));
    return kernel;
}

void check_pool(const struct pool_shape *s, enum kernel_data data)
{
    const struct cvy_shape x = cvy_shape4(s->n, s->c, s->h, s->w);
    const struct cvy_shape y = cvy_shape4(s->n, s->c, pool_extent(s, 0), pool_extent(s, 1));
    for (int with_index = 1; with_index >= 0; with_index--) {
        struct kernel_case kernel = pool_case(s, CVY_OP_MAX_POOL, data);
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_output(&kernel, y, kernel_exact);
        kernel_output(&kernel, y, kernel_exact);
        kernel.desc.out[1].dtype = CVY_U8;
        if (!with_index)
            kernel.desc.out[1].shape.rank = -1;
        kernel_check(&kernel);
    }
    if (data == DATA_SPECIAL)
        return;
    /* The index comes from a forward pass. */
    struct kernel_case forward = pool_case(s, CVY_OP_MAX_POOL, data);
    kernel_input(&forward, x, FILL_SMALL);
    kernel_output(&forward, y, kernel_exact);
    kernel_output(&forward, y, kernel_exact);
    forward.desc.out[1].dtype = CVY_U8;
    kernel_fill_inputs(&forward, 3);
    assert_int_equal(kernel_reference(&forward, suite.ref), CVY_OK);

    struct kernel_case kernel = pool_case(s, CVY_OP_MAX_POOL_BWD, data);
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_input(&kernel, y, FILL_GIVEN);
    kernel.desc.in[1].dtype = CVY_U8;
    kernel.in[1] = forward.want[1];
    forward.want[1] = NULL;
    kernel_case_release(&forward);
    /* up to R S gradients meet in a pixel */
    kernel_output(&kernel, x, kernel_sum_bound(data, s->r * s->s, 0.6));
    kernel_check(&kernel);
}
