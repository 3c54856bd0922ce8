/* What the reference kernels accept: types, layouts, shapes, and the working memory they need. Shapes come from the
 * rules in ops/ and are only asserted; types and layouts are refused with a reason. */
#include <assert.h>

#include "backend/ref/ref.h"
#include "base/error.h"
#include "ops/anchors.h"
#include "ops/ops.h"

struct ref_window ref_conv_window(const struct cvy_conv2d_attr *attr, const struct cvy_shape *x,
                                  const struct cvy_shape *y)
{
    return (struct ref_window){
        .n = x->dim[0],
        .c = x->dim[1],
        .h = x->dim[2],
        .w = x->dim[3],
        .k = y->dim[1],
        .p = y->dim[2],
        .q = y->dim[3],
        .r = attr->kernel[0],
        .s = attr->kernel[1],
        .group_receive = x->dim[1] / attr->groups,
        .group_send = y->dim[1] / attr->groups,
        .stride = {attr->stride[0], attr->stride[1]},
        .dilation = {attr->dilation[0], attr->dilation[1]},
        .pad = {attr->pad[0], attr->pad[2]},
    };
}

struct ref_window ref_pool_window(const struct cvy_pool_attr *attr, const struct cvy_shape *x,
                                  const struct cvy_shape *y)
{
    return (struct ref_window){
        .n = x->dim[0],
        .c = x->dim[1],
        .h = x->dim[2],
        .w = x->dim[3],
        .k = y->dim[1],
        .p = y->dim[2],
        .q = y->dim[3],
        .r = attr->kernel[0],
        .s = attr->kernel[1],
        .group_receive = 1,
        .group_send = 1,
        .stride = {attr->stride[0], attr->stride[1]},
        .dilation = {1, 1},
        .pad = {attr->pad[0], attr->pad[2]},
    };
}

/* ---- types ---- */

/* Where the partners of a loss are, its backward pass having one input more before them; then come the
 * coefficients and the class weights. */
static int32_t first_mix_slot(enum cvy_op op)
{
    return op == CVY_OP_SOFTMAX_CROSS_ENTROPY ? 2 : 3;
}

/* The type that a slot must have when it is not the kernel's float type; CVY_DTYPE_COUNT: the float type. */
static enum cvy_dtype special_type(const struct cvy_op_desc *desc, bool output, int32_t slot)
{
    const struct cvy_op_info *info = &cvy_ops[desc->op];
    const enum cvy_dtype given = output ? desc->out[slot].dtype : desc->in[slot].dtype;
    const bool target = desc->op == CVY_OP_SOFTMAX_CROSS_ENTROPY || desc->op == CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD;

    if (!output &&
        ((desc->op == CVY_OP_NORMALIZE && slot == 0 && given == CVY_U8) || (target && slot == 1 && given == CVY_I32)))
        return given;
    if ((output ? info->i32_outputs : info->i32_inputs) & CVY_SLOT(slot))
        return CVY_I32;
    return (output ? info->u8_outputs : info->u8_inputs) & CVY_SLOT(slot) ? CVY_U8 : CVY_DTYPE_COUNT;
}

static cvy_status check_type(const struct cvy_op_desc *desc, bool output, int32_t slot, enum cvy_dtype real)
{
    const struct cvy_tensor *tensor = output ? &desc->out[slot] : &desc->in[slot];
    enum cvy_dtype wanted = special_type(desc, output, slot);

    if (!cvy_tensor_present(tensor))
        return CVY_OK;
    if (wanted == CVY_DTYPE_COUNT)
        wanted = real;
    if (tensor->dtype != wanted)
        return cvy_fail(CVY_UNAVAILABLE, "%s %d is %s, but the reference kernel needs %s", output ? "output" : "input",
                        slot, cvy_dtype_name(tensor->dtype), cvy_dtype_name(wanted));
    return CVY_OK;
}

/* What the kernel computes in. */
static enum cvy_dtype float_type(const struct cvy_op_desc *desc)
{
    const struct cvy_tensor *out = &desc->out[desc->op == CVY_OP_DETECTION_MATCH ? 1 : 0]; /* whose first are classes */

    return cvy_tensor_present(out) ? out->dtype : desc->in[0].dtype;
}

/* One float type throughout, single or double. */
static cvy_status check_types(const struct cvy_op_desc *desc)
{
    const enum cvy_dtype real = float_type(desc);

    if (real != CVY_F32 && real != CVY_F64)
        return cvy_fail(CVY_UNAVAILABLE, "the reference kernels compute in f32 and f64, not in %s",
                        cvy_dtype_name(real));
    for (int32_t i = 0; i < desc->inputs; i++)
        CVY_TRY(check_type(desc, false, i, real));
    for (int32_t i = 0; i < desc->outputs; i++)
        CVY_TRY(check_type(desc, true, i, real));
    return CVY_OK;
}

/* ---- shapes: asserts, since the rules in ops/ have made them ---- */

static bool same_shape(const struct cvy_tensor *a, const struct cvy_tensor *b)
{
    return cvy_shape_equal(&a->shape, &b->shape);
}

static bool absent_or_same(const struct cvy_tensor *tensor, const struct cvy_tensor *like)
{
    return !cvy_tensor_present(tensor) || same_shape(tensor, like);
}

static bool absent_or_vector(const struct cvy_tensor *tensor, int64_t length)
{
    return !cvy_tensor_present(tensor) || (tensor->shape.rank == 1 && tensor->shape.dim[0] == length);
}

/* Outputs of a window of `kernel` taps `dilation` apart over a padded extent. */
static int64_t window_outputs(int64_t extent, int64_t pad, int64_t kernel, int64_t dilation, int64_t stride)
{
    return (extent + pad - dilation * (kernel - 1) - 1) / stride + 1;
}

static bool conv_fits(const struct cvy_conv2d_attr *attr, const struct cvy_tensor *x, const struct cvy_tensor *w,
                      const struct cvy_tensor *y)
{
    const int64_t *a = x->shape.dim, *b = w->shape.dim, *c = y->shape.dim;

    return x->shape.rank == 4 && w->shape.rank == 4 && y->shape.rank == 4 && a[0] == c[0] && b[0] == c[1] &&
           attr->groups >= 1 && a[1] == b[1] * attr->groups && b[0] % attr->groups == 0 && b[2] == attr->kernel[0] &&
           b[3] == attr->kernel[1] &&
           c[2] == window_outputs(a[2], attr->pad[0] + attr->pad[1], b[2], attr->dilation[0], attr->stride[0]) &&
           c[3] == window_outputs(a[3], attr->pad[2] + attr->pad[3], b[3], attr->dilation[1], attr->stride[1]);
}

static bool pool_fits(const struct cvy_pool_attr *attr, const struct cvy_tensor *x, const struct cvy_tensor *y)
{
    const int64_t *a = x->shape.dim, *c = y->shape.dim;

    return x->shape.rank == 4 && y->shape.rank == 4 && a[0] == c[0] && a[1] == c[1] &&
           c[2] == window_outputs(a[2], attr->pad[0] + attr->pad[1], attr->kernel[0], 1, attr->stride[0]) &&
           c[3] == window_outputs(a[3], attr->pad[2] + attr->pad[3], attr->kernel[1], 1, attr->stride[1]);
}

static bool linear_fits(const struct cvy_tensor *x, const struct cvy_tensor *w, const struct cvy_tensor *y)
{
    const bool flat = w->shape.rank == 2, one_by_one = w->shape.rank == 4 && w->shape.dim[2] * w->shape.dim[3] == 1;

    return x->shape.rank == 2 && (flat || one_by_one) && y->shape.rank == 2 && x->shape.dim[0] == y->shape.dim[0] &&
           x->shape.dim[1] == w->shape.dim[1] && w->shape.dim[0] == y->shape.dim[1];
}

/* One factor for each channel of each image. */
static bool factors_fit(const struct cvy_tensor *x, const struct cvy_tensor *s)
{
    return x->shape.rank == 4 && s->shape.rank == 2 && x->shape.dim[0] == s->shape.dim[0] &&
           x->shape.dim[1] == s->shape.dim[1];
}

static bool vectors_fit(const struct cvy_tensor *tensors, int32_t count, int64_t length)
{
    for (int32_t i = 0; i < count; i++) {
        if (!absent_or_vector(&tensors[i], length))
            return false;
    }
    return true;
}

/* Partners and coefficients. */
static bool mix_fits(const struct cvy_tensor *mix, int64_t batch)
{
    return vectors_fit(mix, 2, batch) && cvy_tensor_present(&mix[0]) == cvy_tensor_present(&mix[1]);
}

/* The targets of a loss and what stands after them. */
static bool targets_fit(const struct cvy_op_desc *desc)
{
    const struct cvy_tensor *logits = &desc->in[0], *target = &desc->in[1];
    const struct cvy_tensor *mix = &desc->in[first_mix_slot(desc->op)];

    return (target->dtype == CVY_I32 ? absent_or_vector(target, logits->shape.dim[0]) : same_shape(logits, target)) &&
           mix_fits(mix, logits->shape.dim[0]) && absent_or_vector(&mix[2], logits->shape.dim[1]);
}

static bool norm_fits(const struct cvy_op_desc *desc)
{
    const struct cvy_tensor *in = desc->in, *out = desc->out;
    const int64_t channels = in[0].shape.dim[1];

    if (in[0].shape.rank < 2 || !absent_or_same(&out[0], &in[0]) || !vectors_fit(in + 1, 4, channels))
        return false;
    if (desc->op == CVY_OP_BATCH_NORM_BWD)
        return same_shape(&in[5], &in[0]) && absent_or_same(&in[6], &in[0]) && absent_or_same(&in[7], &in[0]) &&
               vectors_fit(in + 8, 2, channels) && absent_or_same(&in[10], &in[0]) &&
               vectors_fit(in + 11, 3, channels) && vectors_fit(out + 1, 2, channels) &&
               absent_or_same(&out[3], &in[0]) && vectors_fit(out + 4, 2, channels);
    if (desc->op == CVY_OP_BATCH_NORM &&
        (!vectors_fit(in + 6, 6, channels) || cvy_tensor_present(&in[6]) != cvy_tensor_present(&in[7])))
        return false;
    return absent_or_same(&in[5], &in[0]) && vectors_fit(out + 1, 4, channels) && absent_or_same(&out[5], &in[0]);
}

/* (N, A) of predictions (N, A, K). */
static bool one_for_each(const struct cvy_tensor *labels, const struct cvy_tensor *predictions)
{
    return predictions->shape.rank == 3 && labels->shape.rank == 2 &&
           labels->shape.dim[0] == predictions->shape.dim[0] && labels->shape.dim[1] == predictions->shape.dim[1];
}

static bool detection_fits(const struct cvy_op_desc *desc)
{
    const struct cvy_tensor *in = desc->in, *out = desc->out;

    switch (desc->op) {
    case CVY_OP_DETECTION_MATCH:
        return one_for_each(&in[1], &in[0]) && in[0].shape.dim[2] == 4 && one_for_each(&out[0], &out[1]) &&
               out[0].shape.dim[0] == in[0].shape.dim[0] &&
               out[0].shape.dim[1] == cvy_anchors_count(&desc->attr.anchors) && out[1].shape.dim[2] == 4 &&
               out[2].shape.rank == 0;
    case CVY_OP_FOCAL_LOSS:
        return one_for_each(&in[1], &in[0]) && in[2].shape.rank == 0 && out[0].shape.rank == 0;
    case CVY_OP_FOCAL_LOSS_BWD:
        return one_for_each(&in[1], &in[0]) && in[2].shape.rank == 0 && in[3].shape.rank == 0 &&
               same_shape(&in[0], &out[0]);
    case CVY_OP_SMOOTH_L1_LOSS:
        return same_shape(&in[0], &in[1]) && in[0].shape.dim[2] == 4 && one_for_each(&in[2], &in[0]) &&
               in[3].shape.rank == 0 && out[0].shape.rank == 0;
    case CVY_OP_SMOOTH_L1_LOSS_BWD:
        return same_shape(&in[0], &in[1]) && in[0].shape.dim[2] == 4 && one_for_each(&in[2], &in[0]) &&
               in[3].shape.rank == 0 && in[4].shape.rank == 0 && same_shape(&in[0], &out[0]);
    case CVY_OP_L2_LOSS:
        return (!cvy_tensor_present(&in[0]) || in[0].shape.rank == 0) && out[0].shape.rank == 0;
    default: /* DETECT */
        return in[0].shape.rank == 3 && in[0].shape.dim[1] == cvy_anchors_count(&desc->attr.detect.anchors) &&
               in[0].shape.dim[2] == 4 && in[1].shape.rank == 3 && in[1].shape.dim[0] == in[0].shape.dim[0] &&
               in[1].shape.dim[1] == in[0].shape.dim[1] && out[0].shape.dim[1] == desc->attr.detect.max_boxes &&
               one_for_each(&out[1], &out[0]) && one_for_each(&out[2], &out[0]) &&
               absent_or_vector(&out[3], in[0].shape.dim[0]);
    }
}

static bool upsample_fits(const struct cvy_tensor *x, const struct cvy_tensor *y)
{
    const int64_t *a = x->shape.dim, *b = y->shape.dim;

    return x->shape.rank == 4 && y->shape.rank == 4 && a[0] == b[0] && a[1] == b[1] && 2 * a[2] == b[2] &&
           2 * a[3] == b[3];
}

/* Every level has the channels of the first; together they have as many rows as the table. */
static bool levels_fit(const struct cvy_tensor *maps, int32_t levels, const struct cvy_shape *rows)
{
    int64_t sum = 0;

    for (int32_t i = 0; i < levels; i++) {
        const int64_t *dim = maps[i].shape.dim;
        if (maps[i].shape.rank != 4 || dim[0] != rows->dim[0] || dim[1] % rows->dim[2])
            return false;
        sum += dim[1] / rows->dim[2] * dim[2] * dim[3];
    }
    return rows->rank == 3 && sum == rows->dim[1];
}

/* An image, the weights of a 1 x 1 convolution, and moments of its input. */
static bool moments_fit(const struct cvy_tensor *in)
{
    const int64_t *w = in[1].shape.dim, *moments = in[2].shape.dim;

    return in[0].shape.rank == 4 && in[1].shape.rank == 4 && in[2].shape.rank == 4 && w[2] * w[3] == 1 &&
           in[0].shape.dim[1] == w[1] && moments[0] == w[1] && moments[1] == w[1];
}

static bool shapes_fit(const struct cvy_op_desc *desc)
{
    const struct cvy_tensor *in = desc->in, *out = desc->out;

    switch (desc->op) {
    case CVY_OP_CONV2D:
        return conv_fits(&desc->attr.conv2d, &in[0], &in[1], &out[0]) &&
               absent_or_vector(&in[2], out[0].shape.dim[1]) && absent_or_same(&in[3], &out[0]) &&
               vectors_fit(in + 4, 4, in[0].shape.dim[1]) && vectors_fit(in + 8, 4, out[0].shape.dim[1]) &&
               vectors_fit(out + 1, 2, out[0].shape.dim[1]) &&
               cvy_tensor_present(&out[1]) == cvy_tensor_present(&out[2]) && absent_or_same(&out[3], &out[0]);
    case CVY_OP_CONV2D_BWD_DATA:
        return conv_fits(&desc->attr.conv2d, &out[0], &in[0], &in[1]) && absent_or_same(&in[2], &out[0]) &&
               vectors_fit(in + 3, 4, out[0].shape.dim[1]) && absent_or_same(&in[7], &out[0]) &&
               absent_or_same(&in[8], &out[0]) && vectors_fit(out + 1, 2, out[0].shape.dim[1]) &&
               cvy_tensor_present(&in[2]) == cvy_tensor_present(&out[1]) &&
               (cvy_tensor_present(&in[2]) || cvy_tensor_present(&in[7])) == cvy_tensor_present(&out[2]) &&
               (!cvy_tensor_present(&in[8]) || cvy_tensor_present(&out[2]));
    case CVY_OP_CONV2D_BWD_WEIGHTS:
        return conv_fits(&desc->attr.conv2d, &in[0], &out[0], &in[1]) && vectors_fit(in + 2, 4, in[0].shape.dim[1]);
    case CVY_OP_CONV2D_BWD_BIAS:
        return in[0].shape.rank == 4 && absent_or_vector(&out[0], in[0].shape.dim[1]);
    case CVY_OP_BATCH_NORM:
    case CVY_OP_BATCH_NORM_BWD:
    case CVY_OP_BATCH_NORM_APPLY:
    case CVY_OP_BATCH_NORM_INFERENCE:
    case CVY_OP_BATCH_NORM_INFERENCE_BWD:
        return norm_fits(desc);
    case CVY_OP_FOLD_BATCH_NORM:
        return in[0].shape.rank >= 1 && same_shape(&in[0], &out[0]) && vectors_fit(in + 1, 5, in[0].shape.dim[0]) &&
               vectors_fit(out + 1, 1, in[0].shape.dim[0]);
    case CVY_OP_FOLD_BATCH_NORM_BWD:
        return in[0].shape.rank >= 1 && same_shape(&in[0], &in[3]) && absent_or_same(&out[0], &in[0]) &&
               vectors_fit(in + 1, 2, in[0].shape.dim[0]) && absent_or_vector(&out[1], in[0].shape.dim[0]);
    case CVY_OP_PRODUCT_NORM:
        return moments_fit(in) && vectors_fit(in + 3, 1, in[1].shape.dim[1]) &&
               vectors_fit(in + 4, 2, in[1].shape.dim[0]) && vectors_fit(out, 4, in[1].shape.dim[0]);
    case CVY_OP_PRODUCT_NORM_BWD:
        return in[0].shape.rank == 4 && in[1].shape.rank == 4 && same_shape(&in[1], &in[2]) &&
               same_shape(&in[1], &out[2]) && absent_or_same(&out[0], &in[1]) && same_shape(&in[3], &out[3]) &&
               vectors_fit(in + 4, 1, in[1].shape.dim[1]) && vectors_fit(in + 5, 4, in[1].shape.dim[0]) &&
               absent_or_vector(&out[1], in[1].shape.dim[0]) && out[3].shape.dim[0] == in[1].shape.dim[1] &&
               out[3].shape.dim[1] == in[1].shape.dim[1] && vectors_fit(out + 4, 1, in[1].shape.dim[1]);
    case CVY_OP_FOLD_CORRECTION:
        return in[0].shape.rank >= 2 && vectors_fit(in + 1, 8, in[0].shape.dim[1]) && absent_or_vector(&in[9], 3) &&
               vectors_fit(out, 6, in[0].shape.dim[1]);
    case CVY_OP_FOLD_CORRECTION_BWD:
        return in[0].shape.rank >= 2 && vectors_fit(in + 1, 7, in[0].shape.dim[1]) && absent_or_vector(&in[8], 3) &&
               vectors_fit(out, 3, in[0].shape.dim[1]);
    case CVY_OP_MAX_POOL:
        return pool_fits(&desc->attr.pool, &in[0], &out[0]) && absent_or_same(&out[1], &out[0]) &&
               vectors_fit(in + 1, 4, in[0].shape.dim[1]);
    case CVY_OP_MAX_POOL_BWD:
        return pool_fits(&desc->attr.pool, &out[0], &in[0]) && same_shape(&in[0], &in[1]) &&
               absent_or_same(&in[2], &in[0]) && absent_or_same(&in[3], &out[0]) &&
               vectors_fit(in + 4, 4, out[0].shape.dim[1]) && vectors_fit(out + 1, 2, out[0].shape.dim[1]);
    case CVY_OP_GLOBAL_AVG_POOL:
        return in[0].shape.rank == 4 && out[0].shape.rank == 2 && in[0].shape.dim[0] == out[0].shape.dim[0] &&
               in[0].shape.dim[1] == out[0].shape.dim[1];
    case CVY_OP_GLOBAL_AVG_POOL_BWD:
        return out[0].shape.rank == 4 && in[0].shape.rank == 2 && in[0].shape.dim[0] == out[0].shape.dim[0] &&
               in[0].shape.dim[1] == out[0].shape.dim[1];
    case CVY_OP_SCALE_CHANNELS:
        return same_shape(&in[0], &out[0]) && factors_fit(&in[0], &in[1]) &&
               (!cvy_tensor_present(&in[2]) || factors_fit(&in[0], &in[2])) && absent_or_same(&in[3], &in[0]);
    case CVY_OP_SCALE_CHANNELS_BWD_SCALE:
        return same_shape(&in[0], &in[1]) && factors_fit(&in[0], &out[0]);
    case CVY_OP_LINEAR:
        return linear_fits(&in[0], &in[1], &out[0]) && absent_or_vector(&in[2], out[0].shape.dim[1]);
    case CVY_OP_LINEAR_BWD_DATA:
        return linear_fits(&out[0], &in[0], &in[1]);
    case CVY_OP_LINEAR_BWD_WEIGHTS:
        return linear_fits(&in[0], &out[0], &in[1]) && absent_or_vector(&out[1], in[1].shape.dim[1]);
    case CVY_OP_SOFTMAX_CROSS_ENTROPY:
        return out[0].shape.rank == 0 && absent_or_same(&out[1], &in[0]) && targets_fit(desc);
    case CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD:
        return in[2].shape.rank == 0 && same_shape(&out[0], &in[0]) && targets_fit(desc);
    case CVY_OP_UPSAMPLE:
        return upsample_fits(&in[0], &out[0]);
    case CVY_OP_UPSAMPLE_BWD:
        return upsample_fits(&out[0], &in[0]);
    case CVY_OP_FLATTEN_LEVELS:
        return levels_fit(in, desc->inputs, &out[0].shape);
    case CVY_OP_FLATTEN_LEVELS_BWD:
        return levels_fit(out, desc->outputs, &in[0].shape);
    case CVY_OP_FAKE_QUANTIZE:
        return same_shape(&in[0], &out[0]) && vectors_fit(&in[1], 1, 3) && vectors_fit(&out[1], 1, 3);
    case CVY_OP_FAKE_QUANTIZE_BWD:
        return same_shape(&in[0], &out[0]) && vectors_fit(&in[1], 1, 3) && same_shape(&in[2], &out[0]);
    case CVY_OP_NORMALIZE:
        return out[0].shape.rank == 4 && out[0].shape.dim[1] <= 4 && same_shape(&in[0], &out[0]) &&
               mix_fits(&in[1], in[0].shape.dim[0]);
    case CVY_OP_DETECTION_MATCH:
    case CVY_OP_FOCAL_LOSS:
    case CVY_OP_FOCAL_LOSS_BWD:
    case CVY_OP_SMOOTH_L1_LOSS:
    case CVY_OP_SMOOTH_L1_LOSS_BWD:
    case CVY_OP_L2_LOSS:
    case CVY_OP_DETECT:
        return detection_fits(desc);
    default:
        return same_shape(&in[0], &out[0]) && (cvy_ops[desc->op].elementwise < 2 || same_shape(&in[1], &out[0]));
    }
}

/* ---- limits of the kernels ---- */

/* Reasons to refuse beyond types: positions that a u8 cannot hold, windows without a pixel, variance of one value. */
static cvy_status check_limits(const struct cvy_op_desc *desc)
{
    const struct cvy_pool_attr *pool = &desc->attr.pool;
    const struct cvy_shape *shape = &desc->in[0].shape;

    if (desc->op == CVY_OP_MAX_POOL || desc->op == CVY_OP_MAX_POOL_BWD) {
        if (pool->kernel[0] > 256 || pool->kernel[1] > 256 || pool->kernel[0] * pool->kernel[1] > 256)
            return cvy_fail(CVY_UNAVAILABLE, "a pooling window of %dx%d is too large (256 positions at most)",
                            pool->kernel[0], pool->kernel[1]);
        for (int i = 0; i < 4; i++) {
            if (pool->pad[i] >= pool->kernel[i / 2])
                return cvy_fail(CVY_UNAVAILABLE, "pooling pads by %d, but the window is only %d wide", pool->pad[i],
                                pool->kernel[i / 2]);
        }
    }
    if (desc->op == CVY_OP_BATCH_NORM && cvy_shape_elements(shape) == shape->dim[1])
        return cvy_fail(CVY_UNAVAILABLE, "batch norm in training needs more than one value per channel");
    return CVY_OK;
}

/* Doubles of working memory for each thread: a plane of sums; planes of what a convolution makes of its input. */
static int64_t scratch_elements(const struct cvy_op_desc *desc)
{
    const int64_t *in = desc->in[0].shape.dim, *out = desc->out[0].shape.dim;

    switch (desc->op) {
    case CVY_OP_CONV2D:
        return out[2] * out[3] + (cvy_tensor_present(&desc->in[4]) ? in[2] * in[3] : 0);
    case CVY_OP_CONV2D_BWD_WEIGHTS:
        return cvy_tensor_present(&desc->in[2]) ? in[0] * in[2] * in[3] : 0;
    case CVY_OP_CONV2D_BWD_DATA:
        return out[2] * out[3];
    case CVY_OP_MAX_POOL:
        return cvy_tensor_present(&desc->in[1]) ? in[2] * in[3] : 0;
    case CVY_OP_MAX_POOL_BWD: /* then two numbers for each channel of the batch norm before it */
        return out[2] * out[3] > 2 * out[1] ? out[2] * out[3] : 2 * out[1];
    case CVY_OP_LINEAR_BWD_DATA:
        return out[1];
    case CVY_OP_LINEAR_BWD_WEIGHTS:
        return in[1];
    case CVY_OP_BATCH_NORM: /* two numbers for each channel, for all threads together */
    case CVY_OP_BATCH_NORM_BWD:
        return 2 * in[1];
    case CVY_OP_PRODUCT_NORM_BWD: /* one for each output channel, likewise */
        return desc->in[1].shape.dim[0];
    case CVY_OP_DETECT: /* candidates in order, and boxes of 5 floats that are kept */
        return in[1] + 3 * (int64_t)desc->attr.detect.max_per_class;
    default:
        return 0;
    }
}

static bool convertible_layout(const struct cvy_tensor *tensor)
{
    return tensor->layout.kind == CVY_LAYOUT_PLAIN ||
           (tensor->layout.kind != CVY_LAYOUT_OPAQUE && tensor->shape.rank == 4);
}

/* REORDER keeps the layouts it is given; CAST takes plain ones. */
static cvy_status prepare_conversion(struct cvy_op_desc *desc, struct ref_state *state)
{
    const struct cvy_tensor *in = &desc->in[0], *out = &desc->out[0];

    assert(same_shape(in, out));
    if (desc->op == CVY_OP_REORDER) {
        assert(in->dtype == out->dtype);
        if (!convertible_layout(in) || !convertible_layout(out))
            return cvy_fail(CVY_UNAVAILABLE, "the reference backend does not know layout %s or %s of %d dimensions",
                            cvy_layout_name(&in->layout), cvy_layout_name(&out->layout), in->shape.rank);
        state->function = ref_reorder;
    } else {
        if (!cvy_dtype_is_float(in->dtype) || !cvy_dtype_is_float(out->dtype))
            return cvy_fail(CVY_UNAVAILABLE,
                            "the reference backend converts between floating-point types only, not %s "
                            "to %s",
                            cvy_dtype_name(in->dtype), cvy_dtype_name(out->dtype));
        desc->in[0].layout = desc->out[0].layout = (struct cvy_layout){CVY_LAYOUT_PLAIN, NULL, 0};
        state->function = ref_cast;
    }
    state->desc = *desc;
    return CVY_OK;
}

cvy_status ref_prepare_state(struct cvy_op_desc *desc, struct ref_state *state)
{
    const struct cvy_layout plain = {CVY_LAYOUT_PLAIN, NULL, 0};
    bool fits;
    int which;

    if (desc->op == CVY_OP_REORDER || desc->op == CVY_OP_CAST)
        return prepare_conversion(desc, state);
    CVY_TRY(check_types(desc));
    CVY_TRY(check_limits(desc));
    fits = shapes_fit(desc);
    assert(fits);
    (void)fits;
    for (int32_t i = 0; i < desc->inputs; i++)
        desc->in[i].layout = plain;
    for (int32_t i = 0; i < desc->outputs; i++)
        desc->out[i].layout = plain;
    if (desc->op == CVY_OP_NORMALIZE)
        desc->in[0].layout.kind = CVY_LAYOUT_NHWC;
    state->desc = *desc;
    which = desc->op == CVY_OP_ADD && desc->attr.add.relu ? REF_ADD_RELU : (int)desc->op;
    state->function = (float_type(desc) == CVY_F32 ? ref_functions_f32 : ref_functions_f64)[which];
    /* Whole cache lines, so that threads do not share one. */
    state->scratch_row = ((size_t)scratch_elements(desc) + 7) / 8 * 8;
    return CVY_OK;
}
