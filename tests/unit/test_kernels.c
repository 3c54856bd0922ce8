/* The kernel checker: every kernel of the cpu backend, in every layout the planner can bring about, against the
 * reference over the shapes of tests/shapes.
 *
 *   test_kernels                      the whole suite; runs itself again for the lesser instruction sets
 *   test_kernels --time [BATCH] [WORD]...
 *                                     the shortest time of each case whose name holds all the words, with GFLOP/s, GB/s
 *
 * Integers come first: their sums are exact in any order (of direct algorithms), so results must be equal bit for bit.
 * Then random floats, with a bound for each output. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/system.h"
#include "ops/ops.h"
#include "support_kernels.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INSTRUMENTED 1
#endif
#endif
#ifndef INSTRUMENTED
#define INSTRUMENTED 0
#endif

static struct {
    /* direct: the cpu without Winograd's algorithm, whose transforms have fractions that integers do not survive
     * exactly; single: with one thread. */
    cvy_device *cpu, *direct, *single, *ref;
    bool exercised[64]; /* rows of the cpu's table */
    int cases, runs, failures;
    bool time;
    int batch; /* of --time; 0: as in the file */
    char **words;
    int word_count;
} test;

/* ---- one case ---- */

static cvy_device *device_for(const struct kernel_case *kernel)
{
    return kernel->data == DATA_INTEGERS ? test.direct : test.cpu;
}

static bool same_layouts(const struct cvy_op_desc *a, const struct cvy_op_desc *b)
{
    for (int32_t i = 0; i < a->inputs; i++)
        if (cvy_tensor_present(&a->in[i]) && !cvy_layout_equal(&a->in[i].layout, &b->in[i].layout))
            return false;
    for (int32_t i = 0; i < a->outputs; i++)
        if (cvy_tensor_present(&a->out[i]) && !cvy_layout_equal(&a->out[i].layout, &b->out[i].layout))
            return false;
    return true;
}

static void report(const struct kernel_case *kernel, const struct kernel_run *run, const char *when)
{
    static const char *const data[] = {"integers", "floats", "special"};
    if (!run->trouble[0])
        return;
    if (test.failures++ < 40)
        fprintf(stderr, "%s, %s, %s in, %s out, %s%s: %s\n", kernel->name, data[kernel->data],
                cvy_layout_name(&run->desc.in[0].layout), cvy_layout_name(&run->desc.out[0].layout), when,
                run->plan.implementation, run->trouble);
}

static void check_in_place(struct kernel_case *kernel, const struct kernel_run *first)
{
    for (int32_t output = 0; output < kernel->desc.outputs; output++) {
        if (first->plan.in_place[output] < 0)
            continue;
        struct kernel_run run = {.variant = first->variant, .in_place = output};
        kernel_run(kernel, device_for(kernel), &run);
        kernel_compare(kernel, &run);
        report(kernel, &run, "in place ");
        kernel_run_release(&run);
        test.runs++;
    }
}

/* Our own kernels promise the same bits for any number of threads; matrix products are oneDNN's. */
static bool thread_promise(enum cvy_op op)
{
    return op != CVY_OP_CONV2D && op != CVY_OP_CONV2D_BWD_DATA && op != CVY_OP_CONV2D_BWD_WEIGHTS &&
           op != CVY_OP_LINEAR && op != CVY_OP_LINEAR_BWD_DATA && op != CVY_OP_LINEAR_BWD_WEIGHTS;
}

static void check_threads(struct kernel_case *kernel, const struct kernel_run *first)
{
    if (!thread_promise(kernel->desc.op))
        return;
    struct kernel_run run = {.variant = first->variant, .in_place = -1};
    kernel_run(kernel, test.single, &run);
    for (int32_t i = 0; i < kernel->desc.outputs && !run.trouble[0]; i++) {
        const struct cvy_tensor *tensor = &kernel->desc.out[i];
        const size_t bytes = (size_t)cvy_shape_elements(&tensor->shape) * cvy_dtype_size(tensor->dtype);
        if (cvy_tensor_present(tensor) && memcmp(run.got[i], first->got[i], bytes) != 0)
            snprintf(run.trouble, sizeof(run.trouble), "output %d depends on the number of threads", (int)i);
    }
    report(kernel, &run, "one thread ");
    kernel_run_release(&run);
    test.runs++;
}

static void time_case(struct kernel_case *kernel)
{
    for (int i = 0; i < test.word_count; i++)
        if (!strstr(kernel->name, test.words[i]))
            return;
    if (kernel->data != DATA_FLOATS)
        return;
    kernel_fill_inputs(kernel, 7);
    struct kernel_run run = {.in_place = -1, .seconds = 0.2};
    run.variant = VARIANT_BLOCKED16;
    kernel_run(kernel, device_for(kernel), &run);
    printf("%-64s %-8s %-28s %9.3f ms", kernel->name, cvy_layout_name(&run.desc.out[0].layout), run.plan.implementation,
           run.seconds * 1e3);
    if (kernel->flops > 0)
        printf(" %8.1f GFLOP/s", kernel->flops / run.seconds * 1e-9);
    if (kernel->bytes > 0)
        printf(" %8.1f GB/s", kernel->bytes / run.seconds * 1e-9);
    printf("%s\n", run.trouble);
    fflush(stdout);
    kernel_run_release(&run);
}

static void check_case(struct kernel_case *kernel)
{
    struct cvy_op_desc seen[VARIANT_COUNT];
    int seen_count = 0;
    if (test.time) {
        time_case(kernel);
        kernel_case_release(kernel);
        return;
    }
    test.cases++;
    kernel_fill_inputs(kernel, (uint64_t)test.cases);
    if (kernel_reference(kernel, test.ref) != CVY_OK) {
        struct kernel_run run = {.desc = kernel->desc};
        snprintf(run.trouble, sizeof(run.trouble), "%s", cvy_error());
        report(kernel, &run, "");
        kernel_case_release(kernel);
        return;
    }
    for (int variant = 0; variant < (kernel->fixed ? 1 : VARIANT_COUNT); variant++) {
        struct kernel_run run = {.variant = (enum kernel_variant)variant, .in_place = -1};
        bool known = false;
        kernel_prepare_only(kernel, device_for(kernel), &run);
        for (int i = 0; i < seen_count; i++)
            known = known || same_layouts(&run.desc, &seen[i]);
        if (known)
            continue;
        seen[seen_count++] = run.desc;
        kernel_run(kernel, device_for(kernel), &run);
        kernel_compare(kernel, &run);
        report(kernel, &run, "");
        test.runs++;
        if (!run.trouble[0]) {
            test.exercised[run.plan.kernel - cvy_backend_cpu.kernels] = true;
            check_in_place(kernel, &run);
            check_threads(kernel, &run);
        }
        kernel_run_release(&run);
    }
    kernel_case_release(kernel);
}

static struct kernel_case begin(enum cvy_op op, enum kernel_data data, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static struct kernel_case begin(enum cvy_op op, enum kernel_data data, const char *format, ...)
{
    struct kernel_case kernel = {.desc = {.op = op}, .data = data};
    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        kernel.desc.in[i].shape.rank = -1;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        kernel.desc.out[i].shape.rank = -1;
    const int length = snprintf(kernel.name, sizeof(kernel.name), "%s ", cvy_ops[op].name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(kernel.name + length, sizeof(kernel.name) - (size_t)length, format, arguments);
    va_end(arguments);
    return kernel;
}

/* ---- bounds ----
 * A float sum of T random terms around 0 with standard deviation d has partial sums of about sqrt(T) d, and each of its
 * T additions rounds by up to half a unit of 2^-23 of one: together sqrt(T) roundings' worth of error relative to the
 * result. Factor 2 and the 8 cover the extreme of millions of outputs and the few roundings that every result has. */
static struct kernel_bound sum_bound(enum kernel_data data, double terms, double deviation)
{
    if (data == DATA_INTEGERS)
        return (struct kernel_bound){0};
    return (struct kernel_bound){.ulps = 8 + 2 * sqrt(terms), .scale = sqrt(terms) * deviation};
}
static const struct kernel_bound exact = {0};
/* A handful of roundings in values of the size of the largest result. */
static const struct kernel_bound few = {.ulps = 8, .scale = 0};

/* ---- convolutions ---- */

struct conv_shape {
    int n, c, h, w, k, r, s, stride[2], pad[4], dilation[2], groups;
};

static int64_t conv_extent(const struct conv_shape *s, int d)
{
    const int in = d ? s->w : s->h, taps = d ? s->s : s->r;
    return (in + s->pad[2 * d] + s->pad[2 * d + 1] - s->dilation[d] * (taps - 1) - 1) / s->stride[d] + 1;
}

static struct kernel_case conv_case(const struct conv_shape *s, enum cvy_op op, enum kernel_data data, const char *form)
{
    struct kernel_case kernel =
        begin(op, data, "%dx%dx%dx%d k%d %dx%d s%d,%d p%d,%d,%d,%d d%d g%d%s", s->n, s->c, s->h, s->w, s->k, s->r, s->s,
              s->stride[0], s->stride[1], s->pad[0], s->pad[1], s->pad[2], s->pad[3], s->dilation[0], s->groups, form);
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

static void check_conv(const struct conv_shape *s, enum kernel_data data)
{
    const struct cvy_shape x = cvy_shape4(s->n, s->c, s->h, s->w);
    const struct cvy_shape y = cvy_shape4(s->n, s->k, conv_extent(s, 0), conv_extent(s, 1));
    const struct cvy_shape w = cvy_shape4(s->k, s->c / s->groups, s->r, s->s), bias = cvy_shape1(s->k);
    const double third = 1.0 / 3; /* deviation of a product of two uniform(-1, 1) */
    const double forward_terms = (double)s->c / s->groups * s->r * s->s;
    static const char *const forms[] = {"", " bias", " bias relu", " bias residual relu", " residual"};

    for (int form = 0; form < 5; form++) {
        struct kernel_case kernel = conv_case(s, CVY_OP_CONV2D, data, forms[form]);
        kernel.images = 1U << 0 | 1U << 3;
        kernel.desc.inference = form > 0;
        kernel.desc.attr.conv2d.relu = form == 2 || form == 3;
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_input(&kernel, w, FILL_SMALL);
        if (form >= 1 && form <= 3)
            kernel_input(&kernel, bias, FILL_SMALL);
        else
            kernel_absent_input(&kernel);
        if (form >= 3)
            kernel_input(&kernel, y, FILL_SMALL);
        kernel_output(&kernel, y, sum_bound(data, forward_terms, third));
        /* All forms where they cost little, else the plain one and the one with everything. */
        if (kernel.flops < 5e7 || form == (data == DATA_INTEGERS ? 3 : 0))
            check_case(&kernel);
    }
    struct kernel_case kernel = conv_case(s, CVY_OP_CONV2D_BWD_DATA, data, "");
    kernel.images = 1U << 1;
    kernel_input(&kernel, w, FILL_SMALL);
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_output(&kernel, x, sum_bound(data, (double)s->k / s->groups * s->r * s->s, third));
    check_case(&kernel);

    kernel = conv_case(s, CVY_OP_CONV2D_BWD_WEIGHTS, data, "");
    kernel.images = 1U << 0 | 1U << 1;
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_output(&kernel, w, sum_bound(data, (double)s->n * (double)(y.dim[2] * y.dim[3]), third));
    check_case(&kernel);

    kernel = conv_case(s, CVY_OP_CONV2D_BWD_BIAS, data, "");
    kernel.flops = 0;
    kernel.bytes = 4.0 * (double)cvy_shape_elements(&y);
    kernel.images = 1U << 0;
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_output(&kernel, bias, sum_bound(data, (double)s->n * (double)(y.dim[2] * y.dim[3]), 0.6));
    check_case(&kernel);

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
        kernel_output(&kernel, w, few);
        kernel_output(&kernel, bias, few);
        check_case(&kernel);
    }
}

/* ---- batch norm ---- */

static struct kernel_case norm_case(struct cvy_shape x, enum cvy_op op, enum kernel_data data, bool relu,
                                    const char *form, double passes)
{
    char shape[96];
    struct kernel_case kernel = begin(op, data, "%s%s%s", cvy_shape_text(&x, shape), form, relu ? " relu" : "");
    kernel.desc.attr.batch_norm = (struct cvy_batch_norm_attr){.eps = 1e-3f, .momentum = 0.3f, .relu = relu};
    kernel.bytes = passes * 4 * (double)cvy_shape_elements(&x);
    return kernel;
}

/* Statistics are sums in double of pieces summed in float: a few roundings of results of their size. The size of y
 * follows from gamma below 2 and values a few deviations away. */
static void check_norm_forward(struct cvy_shape x, enum kernel_data data)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    const struct kernel_bound output = {.ulps = 16, .scale = 2};
    for (int form = 0; form < 4; form++) {
        const bool relu = form & 1, residual = form & 2;
        struct kernel_case kernel =
            norm_case(x, CVY_OP_BATCH_NORM, data, relu, residual ? " residual" : "", residual ? 4 : 3);
        kernel.images = 1U << 0 | 1U << 5;
        kernel_input(&kernel, x, FILL_DYADIC);
        kernel_input(&kernel, c, FILL_EIGHTHS);
        kernel_input(&kernel, c, FILL_EIGHTHS);
        kernel_input(&kernel, c, FILL_SMALL);
        kernel_input(&kernel, c, FILL_POSITIVE);
        if (residual)
            kernel_input(&kernel, x, FILL_SMALL);
        kernel_output(&kernel, x, output);
        for (int i = 0; i < 4; i++)
            kernel_output(&kernel, c, few);
        check_case(&kernel);

        kernel = norm_case(x, CVY_OP_BATCH_NORM_INFERENCE, data, relu, residual ? " residual" : "", residual ? 3 : 2);
        kernel.images = 1U << 0 | 1U << 5;
        kernel_input(&kernel, x, FILL_SMALL);
        for (int i = 0; i < 3; i++)
            kernel_input(&kernel, c, FILL_SMALL);
        kernel_input(&kernel, c, FILL_POSITIVE);
        if (residual)
            kernel_input(&kernel, x, FILL_SMALL);
        kernel_output(&kernel, x, output);
        check_case(&kernel);
    }
    {
        struct kernel_case kernel = norm_case(x, CVY_OP_BATCH_NORM_INFERENCE_BWD, data, false, "", 2);
        kernel.images = 1U << 0;
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_input(&kernel, c, FILL_SMALL);
        kernel_input(&kernel, c, FILL_POSITIVE);
        kernel_output(&kernel, x, few); /* two products */
        check_case(&kernel);
    }
    for (int relu = 0; relu < 2; relu++) {
        struct kernel_case kernel = norm_case(x, CVY_OP_BATCH_NORM_APPLY, data, relu, "", 2);
        kernel.images = 1U << 0;
        kernel_input(&kernel, x, FILL_DYADIC);
        kernel_input(&kernel, c, FILL_EIGHTHS);
        kernel_input(&kernel, c, FILL_EIGHTHS);
        kernel_input(&kernel, c, FILL_DYADIC);
        kernel_input(&kernel, c, FILL_POWERS);
        kernel_output(&kernel, x, exact); /* every step is exact with such numbers */
        check_case(&kernel);
    }
}

/* The mask of the ReLU is recomputed: x, the statistics and gamma, beta are such that this is exact. */
static void check_norm_backward(struct cvy_shape x, enum kernel_data data)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    const double terms = (double)(cvy_shape_elements(&x) / x.dim[1]);
    for (int form = 0; form < 5; form++) { /* plain, relu, relu with y given, the last two with dresidual */
        const bool relu = form > 0, given = form == 2 || form == 3, residual = form >= 3;
        static const char *const forms[] = {"", "", " y", " y dresidual", " dresidual"};
        struct kernel_case kernel =
            norm_case(x, CVY_OP_BATCH_NORM_BWD, data, relu, forms[form], 5 + 2 * given + residual);
        kernel.images = 1U << 0 | 1U << 5 | 1U << 6;
        kernel_input(&kernel, x, FILL_DYADIC);
        kernel_input(&kernel, c, FILL_EIGHTHS);
        kernel_input(&kernel, c, FILL_EIGHTHS);
        kernel_input(&kernel, c, FILL_DYADIC);
        kernel_input(&kernel, c, FILL_POWERS);
        kernel_input(&kernel, x, FILL_SMALL);
        if (given)
            kernel_input(&kernel, x, FILL_RECTIFIED);
        kernel_output(&kernel, x, (struct kernel_bound){.ulps = 16, .scale = 2}); /* divides by the batch */
        kernel_output(&kernel, c, sum_bound(data, terms, 4)); /* dy (x - mean) rstd: up to 1 * 4 * 2 */
        kernel_output(&kernel, c, sum_bound(data, terms, 0.6));
        if (residual)
            kernel_output(&kernel, x, exact);
        check_case(&kernel);
    }
}

/* ---- elementwise, mean, reorders ---- */

static struct kernel_case plain_case(enum cvy_op op, enum kernel_data data, struct cvy_shape x, const char *form,
                                     double passes)
{
    char shape[96];
    struct kernel_case kernel = begin(op, data, "%s%s", cvy_shape_text(&x, shape), form);
    kernel.images = ~0U;
    kernel.bytes = passes * 4 * (double)cvy_shape_elements(&x);
    return kernel;
}

static void check_elementwise(struct cvy_shape x, enum kernel_data data)
{
    struct kernel_case kernel = plain_case(CVY_OP_RELU, data, x, "", 2);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_output(&kernel, x, exact);
    check_case(&kernel);

    kernel = plain_case(CVY_OP_RELU_BWD, data, x, "", 3);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_output(&kernel, x, exact);
    check_case(&kernel);

    kernel = plain_case(CVY_OP_SIGMOID, data, x, "", 2);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_output(&kernel, x, few);
    check_case(&kernel);

    kernel = plain_case(CVY_OP_SIGMOID_BWD, data, x, "", 3);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_output(&kernel, x, few);
    check_case(&kernel);

    for (int relu = 0; relu < 2; relu++) {
        kernel = plain_case(CVY_OP_ADD, data, x, relu ? " relu" : "", 3);
        kernel.desc.attr.add.relu = relu;
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_output(&kernel, x, exact); /* one rounding, the same everywhere */
        check_case(&kernel);
    }
}

static void check_mean(struct cvy_shape x, enum kernel_data data)
{
    const struct cvy_shape y = cvy_shape2(x.dim[0], x.dim[1]);
    const double pixels = (double)(x.dim[2] * x.dim[3]);
    struct kernel_case kernel = plain_case(CVY_OP_GLOBAL_AVG_POOL, data, x, "", 1);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_output(&kernel, y,
                  data == DATA_INTEGERS ? exact : (struct kernel_bound){.ulps = 8, .scale = 1 / sqrt(pixels)});
    check_case(&kernel);

    kernel = plain_case(CVY_OP_GLOBAL_AVG_POOL_BWD, data, x, "", 1);
    kernel.desc.attr.pool.input[0] = (int32_t)x.dim[2];
    kernel.desc.attr.pool.input[1] = (int32_t)x.dim[3];
    kernel.images = 0;
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_output(&kernel, x, few); /* a division, or a product with the reciprocal */
    check_case(&kernel);
}

static void check_scale_channels(struct cvy_shape x, enum kernel_data data)
{
    const struct cvy_shape s = cvy_shape2(x.dim[0], x.dim[1]);
    struct kernel_case kernel = plain_case(CVY_OP_SCALE_CHANNELS, data, x, "", 2);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_input(&kernel, s, FILL_SMALL);
    kernel_output(&kernel, x, exact); /* one rounding */
    check_case(&kernel);

    kernel = plain_case(CVY_OP_SCALE_CHANNELS_BWD_SCALE, data, x, "", 2);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_output(&kernel, s, sum_bound(data, (double)(x.dim[2] * x.dim[3]), 1.0 / 3));
    check_case(&kernel);
}

static void check_reorders(struct cvy_shape x)
{
    static const enum cvy_layout_kind kinds[] = {CVY_LAYOUT_PLAIN, CVY_LAYOUT_NHWC, CVY_LAYOUT_BLOCKED16,
                                                 CVY_LAYOUT_BLOCKED8};
    static const enum cvy_dtype dtypes[] = {CVY_F32, CVY_U8, CVY_BF16};
    char shape[96];
    for (int pair = 0; pair < 16; pair++)
        for (int t = 0; t < 3; t++) {
            struct kernel_case kernel =
                begin(CVY_OP_REORDER, DATA_FLOATS, "%s %s", cvy_shape_text(&x, shape), cvy_dtype_name(dtypes[t]));
            kernel_input(&kernel, x, dtypes[t] == CVY_F32 ? FILL_SMALL : FILL_BYTES);
            kernel_output(&kernel, x, exact);
            kernel.fixed = true;
            kernel.bytes = 2.0 * (double)cvy_dtype_size(dtypes[t]) * (double)cvy_shape_elements(&x);
            kernel.desc.in[0].dtype = kernel.desc.out[0].dtype = dtypes[t];
            kernel.desc.in[0].layout.kind = kinds[pair / 4];
            kernel.desc.out[0].layout.kind = kinds[pair % 4];
            check_case(&kernel);
        }
}

static void check_casts(struct cvy_shape x)
{
    static const enum cvy_dtype pairs[][2] = {{CVY_F32, CVY_BF16}, {CVY_BF16, CVY_F32}, {CVY_F32, CVY_F32}};
    for (int i = 0; i < 3; i++) {
        struct kernel_case kernel = plain_case(CVY_OP_CAST, i == 0 ? DATA_SPECIAL : DATA_FLOATS, x, "", 1.5);
        kernel_input(&kernel, x, pairs[i][0] == CVY_F32 ? FILL_SMALL : FILL_BYTES);
        kernel_output(&kernel, x, exact);
        kernel.desc.in[0].dtype = pairs[i][0];
        kernel.desc.out[0].dtype = kernel.desc.attr.cast.dtype = pairs[i][1];
        check_case(&kernel);
    }
}

/* ---- pooling ---- */

struct pool_shape {
    int n, c, h, w, r, s, stride[2], pad[4];
};

static int64_t pool_extent(const struct pool_shape *s, int d)
{
    const int in = d ? s->w : s->h, taps = d ? s->s : s->r;
    return (in + s->pad[2 * d] + s->pad[2 * d + 1] - taps) / s->stride[d] + 1;
}

static struct kernel_case pool_case(const struct pool_shape *s, enum cvy_op op, enum kernel_data data)
{
    struct kernel_case kernel = begin(op, data, "%dx%dx%dx%d %dx%d s%d,%d p%d,%d,%d,%d", s->n, s->c, s->h, s->w, s->r,
                                      s->s, s->stride[0], s->stride[1], s->pad[0], s->pad[1], s->pad[2], s->pad[3]);
    kernel.images = ~0U;
    kernel.desc.attr.pool = (struct cvy_pool_attr){.kernel = {s->r, s->s},
                                                   .stride = {s->stride[0], s->stride[1]},
                                                   .pad = {s->pad[0], s->pad[1], s->pad[2], s->pad[3]},
                                                   .input = {s->h, s->w}};
    kernel.bytes = 4.0 * s->n * s->c * (s->h * s->w + 1.25 * (double)(pool_extent(s, 0) * pool_extent(s, 1)));
    return kernel;
}

static void check_pool(const struct pool_shape *s, enum kernel_data data)
{
    const struct cvy_shape x = cvy_shape4(s->n, s->c, s->h, s->w);
    const struct cvy_shape y = cvy_shape4(s->n, s->c, pool_extent(s, 0), pool_extent(s, 1));
    for (int with_index = 1; with_index >= 0; with_index--) {
        struct kernel_case kernel = pool_case(s, CVY_OP_MAX_POOL, data);
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_output(&kernel, y, exact);
        kernel_output(&kernel, y, exact);
        kernel.desc.out[1].dtype = CVY_U8;
        if (!with_index)
            kernel.desc.out[1].shape.rank = -1;
        check_case(&kernel);
    }
    if (data == DATA_SPECIAL)
        return;
    /* The index comes from a forward pass. */
    struct kernel_case forward = pool_case(s, CVY_OP_MAX_POOL, data);
    kernel_input(&forward, x, FILL_SMALL);
    kernel_output(&forward, y, exact);
    kernel_output(&forward, y, exact);
    forward.desc.out[1].dtype = CVY_U8;
    kernel_fill_inputs(&forward, 3);
    assert_int_equal(kernel_reference(&forward, test.ref), CVY_OK);

    struct kernel_case kernel = pool_case(s, CVY_OP_MAX_POOL_BWD, data);
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_input(&kernel, y, FILL_GIVEN);
    kernel.desc.in[1].dtype = CVY_U8;
    kernel.in[1] = forward.want[1];
    forward.want[1] = NULL;
    kernel_case_release(&forward);
    /* up to R S gradients meet in a pixel */
    kernel_output(&kernel, x, sum_bound(data, s->r * s->s, 0.6));
    check_case(&kernel);
}

/* ---- linear, loss, images ---- */

/* `w`: (K,C) or (K,C,1,1) */
static void check_linear(int n, int c, int k, struct cvy_shape w, enum kernel_data data)
{
    const struct cvy_shape x = cvy_shape2(n, c), y = cvy_shape2(n, k), bias = cvy_shape1(k);
    const double third = 1.0 / 3, flops = 2.0 * n * c * k;
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        struct kernel_case kernel =
            begin(CVY_OP_LINEAR, data, "%dx%d k%d rank %d%s", n, c, k, w.rank, with_bias ? " bias" : "");
        kernel.flops = flops;
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_input(&kernel, w, FILL_SMALL);
        if (with_bias)
            kernel_input(&kernel, bias, FILL_SMALL);
        kernel_output(&kernel, y, sum_bound(data, c, third));
        check_case(&kernel);

        kernel =
            begin(CVY_OP_LINEAR_BWD_WEIGHTS, data, "%dx%d k%d rank %d%s", n, c, k, w.rank, with_bias ? " bias" : "");
        kernel.flops = flops;
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_input(&kernel, y, FILL_SMALL);
        kernel_output(&kernel, w, sum_bound(data, n, third));
        if (with_bias)
            kernel_output(&kernel, bias, sum_bound(data, n, 0.6));
        check_case(&kernel);
    }
    struct kernel_case kernel = begin(CVY_OP_LINEAR_BWD_DATA, data, "%dx%d k%d rank %d", n, c, k, w.rank);
    kernel.flops = flops;
    kernel_input(&kernel, w, FILL_SMALL);
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_output(&kernel, x, sum_bound(data, k, third));
    check_case(&kernel);
}

static void check_loss(int n, int k)
{
    const struct cvy_shape logits = cvy_shape2(n, k), scalar = cvy_shape0();
    struct kernel_case kernel = begin(CVY_OP_SOFTMAX, DATA_FLOATS, "%dx%d", n, k);
    kernel_input(&kernel, logits, FILL_DYADIC);
    kernel_output(&kernel, logits, few);
    check_case(&kernel);
    for (int form = 0; form < 4; form++) {
        const bool labels = form & 1;
        const float smoothing = form & 2 ? 0.1f : 0;
        for (int backward = 0; backward < 2; backward++) {
            kernel = begin(backward ? CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD : CVY_OP_SOFTMAX_CROSS_ENTROPY, DATA_FLOATS,
                           "%dx%d%s%s", n, k, labels ? " labels" : "", form & 2 ? " smoothing" : "");
            kernel.desc.attr.loss.smoothing = smoothing;
            kernel.labels = k;
            kernel_input(&kernel, logits, backward ? FILL_SHARES : FILL_DYADIC);
            kernel_input(&kernel, labels ? cvy_shape1(n) : logits, labels ? FILL_LABELS : FILL_SHARES);
            if (labels)
                kernel.desc.in[1].dtype = CVY_I32;
            if (backward)
                kernel_input(&kernel, scalar, FILL_POSITIVE);
            else
                kernel_output(&kernel, scalar, few);
            kernel_output(&kernel, logits, few);
            check_case(&kernel);
        }
    }
}

static void check_image(int n, int c, int h, int w)
{
    const struct cvy_shape x = cvy_shape4(n, c, h, w);
    struct kernel_case kernel = begin(CVY_OP_NORMALIZE, DATA_FLOATS, "%dx%dx%dx%d", n, c, h, w);
    kernel.desc.attr.normalize =
        (struct cvy_normalize_attr){.mean = {123.675f, 116.28f, 103.53f, 100}, .std = {58.395f, 57.12f, 57.375f, 50}};
    kernel.bytes = 5.0 * n * c * h * w;
    kernel.fixed = true;
    kernel_input(&kernel, x, FILL_BYTES);
    kernel.desc.in[0].dtype = CVY_U8;
    kernel.desc.in[0].layout.kind = CVY_LAYOUT_NHWC;
    kernel_output(&kernel, x, exact);
    check_case(&kernel);
}

/* ---- shapes from files ---- */

static void check_norm_line(struct cvy_shape x, bool large)
{
    static const enum kernel_data data[] = {DATA_INTEGERS, DATA_FLOATS};
    for (int i = 0; i < 2; i++) {
        if (x.dim[0] * x.dim[2] * x.dim[3] > 1)
            check_norm_forward(x, data[i]);
        check_norm_backward(x, data[i]);
        check_mean(x, data[i]);
        check_elementwise(x, data[i]);
        check_scale_channels(x, data[i]);
    }
    check_elementwise(x, DATA_SPECIAL);
    check_scale_channels(x, DATA_SPECIAL);
    if (!large) {
        check_reorders(x);
        check_casts(x);
        if (x.dim[2] * x.dim[3] == 1) /* what follows a linear layer */
            check_norm_forward(cvy_shape2(x.dim[0], x.dim[1]), DATA_FLOATS);
    }
}

static void check_line(const char *line, bool large)
{
    struct conv_shape c;
    struct pool_shape p;
    int v[4];
    char rebatched[256], kind[16];
    int used = 0;
    if (test.batch && sscanf(line, "%15s %*d%n", kind, &used) == 1 && used) {
        snprintf(rebatched, sizeof(rebatched), "%s %d%s", kind, test.batch, line + used);
        line = rebatched;
    }
    if (sscanf(line, "conv %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d", &c.n, &c.c, &c.h, &c.w, &c.k, &c.r, &c.s,
               &c.stride[0], &c.stride[1], &c.pad[0], &c.pad[1], &c.pad[2], &c.pad[3], &c.dilation[0], &c.dilation[1],
               &c.groups) == 16) {
        if (large && INSTRUMENTED) /* a hundred times slower: one image, the widest layers left to Release */
            c.n = 1;
        if (!(large && INSTRUMENTED && c.c * c.k > 128 * 128))
            check_conv(&c, DATA_INTEGERS);
        if (large && !test.time) /* the reference takes its time: floats on one image */
            c.n = 1;
        if (!(large && INSTRUMENTED))
            check_conv(&c, DATA_FLOATS);
    } else if (sscanf(line, "norm %d %d %d %d", &v[0], &v[1], &v[2], &v[3]) == 4) {
        if (!(large && INSTRUMENTED))
            check_norm_line(cvy_shape4(v[0], v[1], v[2], v[3]), large);
    } else if (sscanf(line, "pool %d %d %d %d %d %d %d %d %d %d %d %d", &p.n, &p.c, &p.h, &p.w, &p.r, &p.s,
                      &p.stride[0], &p.stride[1], &p.pad[0], &p.pad[1], &p.pad[2], &p.pad[3]) == 12) {
        check_pool(&p, DATA_INTEGERS);
        check_pool(&p, DATA_FLOATS);
        check_pool(&p, DATA_SPECIAL);
    } else if (sscanf(line, "linear %d %d %d", &v[0], &v[1], &v[2]) == 3) {
        for (int rank = 2; rank <= 4; rank += 2) {
            const struct cvy_shape w = rank == 4 ? cvy_shape4(v[2], v[1], 1, 1) : cvy_shape2(v[2], v[1]);
            check_linear(v[0], v[1], v[2], w, DATA_INTEGERS);
            check_linear(v[0], v[1], v[2], w, DATA_FLOATS);
        }
        check_loss(v[0], v[2]);
    } else if (sscanf(line, "image %d %d %d %d", &v[0], &v[1], &v[2], &v[3]) == 4) {
        check_image(v[0], v[1], v[2], v[3]);
    } else {
        fail_msg("not a shape: %s", line);
    }
}

static void check_file(const char *name, bool large)
{
    char path[512], line[256];
    snprintf(path, sizeof(path), "%s/shapes/%s", CONVOY_TEST_SOURCE, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    int lines = 0;
    while (fgets(line, sizeof(line), file))
        if (line[0] != '#' && line[0] != '\n') {
            check_line(line, large);
            lines++;
        }
    fclose(file);
    assert_true(lines > 0);
}

static void no_failures(void)
{
    if (test.failures)
        fail_msg("%d of %d runs are wrong", test.failures, test.runs);
}

/* ---- tests ---- */

static void test_every_op_has_a_kernel(void **state)
{
    (void)state;
    for (int op = 0; op < CVY_OP_COUNT; op++) {
        bool found = false;
        for (size_t i = 0; i < cvy_backend_cpu.kernel_count; i++)
            found = found || cvy_backend_cpu.kernels[i].op == (enum cvy_op)op;
        if (!found)
            fail_msg("the cpu backend has no kernel for \"%s\"", cvy_ops[op].name);
    }
}

static void test_odd_shapes(void **state)
{
    (void)state;
    check_file("odd.txt", false);
    no_failures();
}

static void test_network_shapes(void **state)
{
    (void)state;
    check_file("resnet.txt", true);
    no_failures();
}

static void test_every_kernel_was_run(void **state)
{
    (void)state;
    for (size_t i = 0; i < cvy_backend_cpu.kernel_count; i++) {
        const struct cvy_kernel *kernel = &cvy_backend_cpu.kernels[i];
        if (kernel->prepare && !test.exercised[i] && strcmp(kernel->name, "cpu.reorder_weights") != 0)
            fail_msg("no case runs \"%s\"", kernel->name); /* weights are reordered around every convolution */
    }
}

static void test_wrong_labels_are_refused(void **state)
{
    (void)state;
    float logits[8] = {0}, probabilities[8], loss;
    int32_t labels[2] = {1, 4};
    struct cvy_op_desc desc = begin(CVY_OP_SOFTMAX_CROSS_ENTROPY, DATA_FLOATS, "labels").desc;
    desc.inputs = desc.outputs = 2;
    desc.out[0].shape = cvy_shape0();
    desc.in[0].shape = desc.out[1].shape = cvy_shape2(2, 4);
    desc.in[1].shape = cvy_shape1(2);
    desc.in[1].dtype = CVY_I32;
    struct cvy_kernel_plan plan;
    double scratch[2];
    assert_int_equal(cvy_kernel_select(test.cpu, &desc, &plan), CVY_OK);
    assert_true(plan.scratch_bytes <= sizeof(scratch));
    void *in[CVY_MAX_INPUTS] = {logits, labels}, *out[CVY_MAX_OUTPUTS] = {&loss, probabilities};
    assert_int_equal(plan.kernel->run(test.cpu, &plan, in, out, scratch), CVY_FAILED);
    labels[1] = -1;
    assert_int_equal(plan.kernel->run(test.cpu, &plan, in, out, scratch), CVY_FAILED);
    labels[1] = 3;
    assert_int_equal(plan.kernel->run(test.cpu, &plan, in, out, scratch), CVY_OK);
    cvy_kernel_release(test.cpu, &plan);
}

#define SGD_ELEMENTS 150000
static void fill_sgd(float *weights, float *momentum, float *gradients)
{
    struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_TEST, 0, 0);
    for (int i = 0; i < SGD_ELEMENTS; i++) {
        weights[i] = (float)cvy_rng_range(&rng, -1, 1);
        momentum[i] = (float)cvy_rng_range(&rng, -1, 1);
        gradients[i] = (float)cvy_rng_range(&rng, -1, 1);
    }
}

static void test_sgd(void **state)
{
    (void)state;
    float *data[3][3];
    cvy_device *const devices[3] = {test.ref, test.cpu, test.single};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 3; i++)
            assert_non_null(data[d][i] = malloc(SGD_ELEMENTS * sizeof(float)));
    /* Segments of all lengths, with holes between them that must stay as they are. */
    const struct cvy_sgd_segment segments[] = {
        {0, 1, 0.1f, 1e-4f}, {3, 17, 0.2f, 0}, {64, 70000, 0.1f, 1e-2f}, {70064, 79930, 0.3f, 1e-4f}};
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        for (int d = 0; d < 3; d++) {
            fill_sgd(data[d][0], data[d][1], data[d][2]);
            const struct cvy_sgd step = {.weights = data[d][0],
                                         .momentum_buffer = data[d][1],
                                         .gradients = data[d][2],
                                         .segments = segments,
                                         .segment_count = 4,
                                         .momentum = 0.9f,
                                         .dampening = 0.25f,
                                         .gradient_scale = 0.5f,
                                         .nesterov = nesterov};
            assert_int_equal(devices[d]->backend->sgd(devices[d], &step), CVY_OK);
        }
        for (int i = 0; i < 2; i++) {
            for (int k = 0; k < SGD_ELEMENTS; k++) /* four roundings of numbers below 2 */
                assert_true(fabsf(data[0][i][k] - data[1][i][k]) <= 4 * 0x1p-23f);
            assert_memory_equal(data[1][i], data[2][i], SGD_ELEMENTS * sizeof(float));
            assert_true(data[1][i][1] == data[0][i][1] && data[1][i][40] == data[0][i][40]);
            assert_true(data[1][i][SGD_ELEMENTS - 1] == data[0][i][SGD_ELEMENTS - 1]);
        }
    }
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 3; i++)
            free(data[d][i]);
}

/* The instruction set is chosen once per process, so the lesser ones need processes of their own. */
static void run_with_isa(const char *isa)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("CONVOY_CPU_ISA", isa, 1);
        execl("/proc/self/exe", "test_kernels", "--child", (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_base_instructions(void **state)
{
    (void)state;
    run_with_isa("base");
}

static void test_avx2_instructions(void **state)
{
    (void)state;
    if (cvy_cpu_isa() == CVY_ISA_BASE)
        skip();
    run_with_isa("avx2");
}

static int open_devices(void **state)
{
    (void)state;
    const int threads = cvy_default_threads() > 1 || test.time ? 0 : 2;
    bool open = cvy_device_open("cpu", threads, &test.cpu) == CVY_OK &&
                cvy_device_open("cpu", 1, &test.single) == CVY_OK &&
                cvy_device_open("ref", threads, &test.ref) == CVY_OK;
    if (open && setenv("CONVOY_CPU_WINOGRAD", "0", 1) == 0) {
        open = cvy_device_open("cpu", threads, &test.direct) == CVY_OK;
        if (unsetenv("CONVOY_CPU_WINOGRAD") == 0 && open)
            return 0;
    }
    fprintf(stderr, "%s\n", cvy_error());
    return -1;
}

static int close_devices(void **state)
{
    (void)state;
    cvy_device_close(test.cpu);
    cvy_device_close(test.direct);
    cvy_device_close(test.single);
    cvy_device_close(test.ref);
    return 0;
}

static int time_kernels(int words, char **word)
{
    test.time = true;
    test.batch = words > 0 ? atoi(word[0]) : 0;
    if (test.batch > 0) {
        words--;
        word++;
    }
    test.words = word;
    test.word_count = words;
    if (open_devices(NULL) != 0)
        return 1;
    printf("%s\n", test.cpu->description);
    check_file("resnet.txt", true);
    return close_devices(NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_every_op_has_a_kernel),    cmocka_unit_test(test_odd_shapes),
        cmocka_unit_test(test_every_kernel_was_run),     cmocka_unit_test(test_network_shapes),
        cmocka_unit_test(test_wrong_labels_are_refused), cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_base_instructions),        cmocka_unit_test(test_avx2_instructions)};
    const struct CMUnitTest child[] = {cmocka_unit_test(test_odd_shapes), cmocka_unit_test(test_every_kernel_was_run),
                                       cmocka_unit_test(test_sgd)};
    if (argc > 1 && strcmp(argv[1], "--time") == 0)
        return time_kernels(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "--child") == 0)
        return cmocka_run_group_tests(child, open_devices, close_devices);
    return cmocka_run_group_tests(all, open_devices, close_devices);
}
