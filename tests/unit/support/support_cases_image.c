/* Kernel cases of ops over images whose extent does not matter: elementwise, means, factors, layouts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "support_cases.h"

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
