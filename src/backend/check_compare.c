/* How far a kernel may deviate from the reference: limits derived from the number of roundings, relative to the size of
 * the terms. */
#include <assert.h>
#include <math.h>

#include "backend/check_internal.h"
#include "ops/ops.h"

enum { LONGEST_CHAIN = 4096 };

double check_unit(enum cvy_dtype dtype)
{
    switch (dtype) {
    case CVY_F64:
        return 0x1p-53;
    case CVY_F16:
        return 0x1p-11;
    case CVY_BF16:
        return 0x1p-8;
    default:
        return 0x1p-24;
    }
}

enum cvy_op_check check_kind(const struct cvy_op_desc *desc)
{
    /* A product alone is rounded once; one that becomes a 16-bit float twice. */
    if (desc->op == CVY_OP_SCALE_CHANNELS && check_unit(desc->out[0].dtype) <= check_unit(CVY_F32) &&
        !cvy_tensor_present(&desc->in[2]) && !cvy_tensor_present(&desc->in[3]))
        return CVY_CHECK_EXACT;
    return cvy_ops[desc->op].check;
}

/* ---- limits ---- */

/* Elements of each channel. */
static int64_t image_terms(const struct cvy_shape *image)
{
    return cvy_shape_elements(image) / image->dim[1];
}

/* Terms in the sums of the op. */
static int64_t sum_terms(const struct cvy_op_desc *desc)
{
    const int64_t *a = desc->in[0].shape.dim, *b = desc->in[1].shape.dim;

    switch (desc->op) {
    case CVY_OP_CONV2D: /* w (K,C/g,R,S) */
        return b[1] * b[2] * b[3];
    case CVY_OP_CONV2D_BWD_DATA: /* w (K,C/g,R,S) */
        return a[0] / desc->attr.conv2d.groups * a[2] * a[3];
    case CVY_OP_CONV2D_BWD_WEIGHTS: /* dy (N,K,P,Q) */
        return b[0] * b[2] * b[3];
    case CVY_OP_CONV2D_BWD_BIAS:
        return a[0] * a[2] * a[3];
    case CVY_OP_FOLD_BATCH_NORM_BWD:
        return cvy_shape_elements(&desc->in[0].shape) / a[0];
    case CVY_OP_BATCH_NORM:
    case CVY_OP_BATCH_NORM_BWD:
        return image_terms(&desc->in[0].shape);
    case CVY_OP_MAX_POOL_BWD:
        return (int64_t)desc->attr.pool.kernel[0] * desc->attr.pool.kernel[1];
    case CVY_OP_UPSAMPLE_BWD:
        return 4;
    case CVY_OP_GLOBAL_AVG_POOL:
    case CVY_OP_SCALE_CHANNELS_BWD_SCALE:
        return a[2] * a[3];
    case CVY_OP_LINEAR: /* x (N,C) */
        return a[1];
    case CVY_OP_LINEAR_BWD_DATA:    /* w (K,C) */
    case CVY_OP_LINEAR_BWD_WEIGHTS: /* x (N,C) */
        return a[0];
    case CVY_OP_SOFTMAX:
    case CVY_OP_SOFTMAX_CROSS_ENTROPY:
    case CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD:
        return a[1];
    case CVY_OP_FOCAL_LOSS:
    case CVY_OP_SMOOTH_L1_LOSS:
        return a[0] * a[1] * a[2];
    case CVY_OP_L2_LOSS:
        return cvy_shape_elements(&desc->in[1].shape) * (desc->inputs - 1);
    default:
        return 1;
    }
}

/* Roundings outside the sum, in units of the type: additions, multiplications, a division, a root. Softmax, the
 * sigmoid and the losses take an exponential or a logarithm, which good vector libraries give to 4 units. */
static double other_roundings(const struct cvy_op_desc *desc)
{
    const int32_t roundings = cvy_ops[desc->op].roundings;

    if (desc->op == CVY_OP_NORMALIZE && cvy_tensor_present(&desc->in[1])) /* 1 - c, two products and a sum more */
        return 2 * roundings;
    return roundings > 0 ? roundings : 8;
}

/* In a sum of K terms of like size the k-th addition rounds a partial sum of k terms: the errors add like random
 * numbers to sqrt(sum k^2) = K^1.5 / sqrt(3) terms, so that relative to K terms the error is below sqrt(K) units (and
 * far below it when the signs differ). A kernel that adds more than a few thousand terms in one chain is too careless
 * to pass: from there on it must sum in pieces or in double. */
static double limit_of(const struct cvy_op_desc *desc, int32_t index)
{
    const enum cvy_dtype dtype = desc->out[index].dtype;
    const bool statistics = desc->op == CVY_OP_CONV2D && index > 0;
    const int64_t terms = statistics ? image_terms(&desc->out[0].shape) : sum_terms(desc);
    const double chain = sqrt((double)(terms < LONGEST_CHAIN ? terms : LONGEST_CHAIN));
    /* Sums run in single precision at least; a shorter output type adds the rounding of the result. */
    const double working = check_unit(dtype == CVY_F64 ? CVY_F64 : CVY_F32);

    if (statistics) /* of y as it is stored, or before it is rounded */
        return working * (chain + sqrt((double)sum_terms(desc)) + other_roundings(desc)) +
               check_unit(desc->out[0].dtype);
    return working * (chain + other_roundings(desc)) + (check_unit(dtype) > working ? check_unit(dtype) : 0);
}

/* ---- scales ---- */

static int64_t elements(const struct cvy_tensor *tensor)
{
    return cvy_shape_elements(&tensor->shape);
}

void check_make_absolute(struct check_case *item)
{
    const struct cvy_op_desc *desc = item->desc;
    const bool subtracts = desc->op == CVY_OP_BATCH_NORM_APPLY || desc->op == CVY_OP_BATCH_NORM_INFERENCE ||
                           desc->op == CVY_OP_FOLD_BATCH_NORM;

    for (int32_t i = 0; i < desc->inputs; i++) {
        double *values = item->in[i];
        if (!values || !cvy_dtype_is_float(desc->in[i].dtype))
            continue;
        for (int64_t e = 0; e < elements(&desc->in[i]); e++)
            values[e] = subtracts && i == 3 ? -fabs(values[e]) : fabs(values[e]); /* in[3]: mean */
    }
}

/* A tensor as images of channels of planes. */
struct planes {
    int64_t images, channels, plane;
};

static struct planes planes_of(const struct cvy_tensor *tensor)
{
    struct planes planes = {tensor->shape.dim[0], tensor->shape.dim[1], 1};

    planes.plane = elements(tensor) / (planes.images * planes.channels);
    return planes;
}

static double pixel(const struct check_case *item, int64_t at)
{
    return item->desc->in[0].dtype == CVY_U8 ? ((const uint8_t *)item->in[0])[at]
                                             : fabs(((const double *)item->in[0])[at]);
}

/* A convolution's output as large as its terms, all of one sign (scale 0, which gave scale 1, its mean): the variance
 * is as exact as the mean of its squares. */
void check_scale_variance(struct check_case *item)
{
    const struct planes d = planes_of(&item->desc->out[0]);

    for (int64_t c = 0; c < d.channels; c++) {
        double squares = 0;
        for (int64_t n = 0; n < d.images; n++) {
            const double *size = item->scale[0] + (n * d.channels + c) * d.plane;
            for (int64_t i = 0; i < d.plane; i++)
                squares += size[i] * size[i];
        }
        item->scale[2][c] = squares / (double)(d.images * d.plane);
    }
}

static void normalize_scales(struct check_case *item)
{
    const struct cvy_normalize_attr *attr = &item->desc->attr.normalize;
    const struct planes d = planes_of(&item->desc->out[0]);
    const int32_t *partner = item->in[1];
    const double *coefficient = item->in[2];

    for (int64_t n = 0; n < d.images; n++) {
        const double share = partner ? coefficient[n] : 1;
        const int64_t other = partner ? partner[n] : n;
        for (int64_t c = 0; c < d.channels; c++) {
            for (int64_t i = 0; i < d.plane; i++) {
                const double own_pixel = pixel(item, (n * d.plane + i) * d.channels + c);
                const double other_pixel = pixel(item, (other * d.plane + i) * d.channels + c);
                const double size = fabs(share) * own_pixel + fabs(1 - share) * other_pixel;
                item->scale[0][(n * d.channels + c) * d.plane + i] =
                    (size + (fabs(share) + fabs(1 - share)) * fabs((double)attr->mean[c])) / (double)attr->std[c];
            }
        }
    }
}

/* Forward, training: the error of the mean is proportional to the mean of |x|. */
static void batch_norm_scales(struct check_case *item)
{
    const struct planes d = planes_of(&item->desc->in[0]);
    const double *x = item->in[0], *gamma = item->in[1], *beta = item->in[2], *old_mean = item->in[3];
    const double *given = item->in[6], *residual = item->in[5], *rstd = item->reference[2],
                 *new_variance = item->reference[4];
    const double momentum = (double)item->desc->attr.batch_norm.momentum;

    for (int64_t c = 0; c < d.channels; c++) {
        double size = 0;
        for (int64_t n = 0; n < d.images; n++) {
            for (int64_t i = 0; i < d.plane; i++)
                size += fabs(x[(n * d.channels + c) * d.plane + i]);
        }
        size = given ? fabs(given[c]) : size / (double)(d.images * d.plane);
        for (int64_t n = 0; n < d.images; n++) {
            const int64_t first = (n * d.channels + c) * d.plane;
            for (int64_t i = first; i < first + d.plane; i++)
                item->scale[0][i] =
                    (fabs(x[i]) + size) * rstd[c] * fabs(gamma[c]) + fabs(beta[c]) + (residual ? fabs(residual[i]) : 0);
        }
        item->scale[1][c] = size;
        item->scale[2][c] = rstd[c];
        if (item->scale[3])
            item->scale[3][c] = fabs((1 - momentum) * old_mean[c]) + momentum * size;
        if (item->scale[4])
            item->scale[4][c] = fabs(new_variance[c]); /* a sum of squares: nothing cancels */
    }
}

/* Whether dy passes the activation of a batch norm whose output is y. */
static bool passes(const struct check_case *item, double y)
{
    const enum cvy_activation activation = item->desc->attr.batch_norm.activation;

    return activation == CVY_ACTIVATION_NONE || (y > 0 && (activation != CVY_ACTIVATION_RELU6 || y < 6));
}

/* Size of the gradient of element i, both parts of it, after the mask (in[6], where there is an activation). */
static double gradient_size(const struct check_case *item, int64_t i)
{
    const double *dy = item->in[5], *mask = item->in[6], *more = item->in[7];

    if (mask && !passes(item, mask[i]))
        return 0;
    return fabs(dy[i]) + (more ? fabs(more[i]) : 0);
}

static void batch_norm_bwd_scales(struct check_case *item)
{
    const struct planes d = planes_of(&item->desc->in[0]);
    const double *x = item->in[0], *gamma = item->in[1], *mean = item->in[3], *rstd = item->in[4];

    for (int64_t c = 0; c < d.channels; c++) {
        const double count = (double)(d.images * d.plane);
        double sum = 0, projection = 0;
        for (int64_t n = 0; n < d.images; n++) {
            const int64_t first = (n * d.channels + c) * d.plane;
            for (int64_t i = first; i < first + d.plane; i++) {
                const double g = gradient_size(item, i);
                sum += g;
                projection += g * fabs(x[i] - mean[c]) * rstd[c];
            }
        }
        for (int64_t n = 0; n < d.images; n++) {
            const int64_t first = (n * d.channels + c) * d.plane;
            for (int64_t i = first; i < first + d.plane; i++) {
                const double g = gradient_size(item, i), h = fabs(x[i] - mean[c]) * rstd[c];
                if (item->scale[0])
                    item->scale[0][i] = fabs(gamma[c]) * rstd[c] * (g + (sum + h * projection) / count);
                if (item->scale[3])
                    item->scale[3][i] = g;
            }
        }
        if (item->scale[1])
            item->scale[1][c] = projection;
        if (item->scale[2])
            item->scale[2][c] = sum;
    }
}

static double target_alone(const struct check_case *item, int64_t n, int64_t k)
{
    const int64_t classes = item->desc->in[0].shape.dim[1];

    if (item->desc->in[1].dtype == CVY_I32)
        return ((const int32_t *)item->in[1])[n] == k;
    return ((const double *)item->in[1])[n * classes + k];
}

/* The input that holds the partners; coefficients and class weights follow. */
static int mix_slot(const struct check_case *item)
{
    return item->desc->op == CVY_OP_SOFTMAX_CROSS_ENTROPY ? 2 : 3;
}

static double target_mixed(const struct check_case *item, int64_t n, int64_t k)
{
    const int32_t *partner = item->in[mix_slot(item)];
    const double *coefficient = item->in[mix_slot(item) + 1], own = target_alone(item, n, k);

    return partner ? coefficient[n] * own + (1 - coefficient[n]) * target_alone(item, partner[n], k) : own;
}

static double target_of(const struct check_case *item, int64_t n, int64_t k)
{
    const double smoothing = (double)item->desc->attr.loss.smoothing, *weights = item->in[mix_slot(item) + 2];
    const double classes = (double)item->desc->in[0].shape.dim[1];

    return fabs(((1 - smoothing) * target_mixed(item, n, k) + smoothing / classes) * (weights ? weights[k] : 1));
}

static double loss_divisor(const struct check_case *item)
{
    const struct planes d = planes_of(&item->desc->in[0]);
    const double *weights = item->in[mix_slot(item) + 2];
    double divisor = 0;

    if (!weights || item->desc->in[1].dtype != CVY_I32)
        return (double)d.images;
    for (int64_t n = 0; n < d.images; n++) {
        for (int64_t k = 0; k < d.channels; k++)
            divisor += weights[k] * target_mixed(item, n, k);
    }
    return divisor;
}

/* log p = (x - largest) - log(sum): the first two are known to a unit of the difference, and the sum (1 or more) to a
 * unit of itself, which its logarithm turns into an absolute error. */
static void loss_scales(struct check_case *item)
{
    const struct planes d = planes_of(&item->desc->in[0]);
    const double *logits = item->in[0], *probabilities = item->reference[1];
    double total = 0;

    for (int64_t n = 0; n < d.images; n++) {
        double largest = logits[n * d.channels];
        for (int64_t k = 1; k < d.channels; k++)
            largest = fmax(largest, logits[n * d.channels + k]);
        for (int64_t k = 0; k < d.channels; k++) {
            const double below = largest - logits[n * d.channels + k];
            total += target_of(item, n, k) * (1 + below + log((double)d.channels));
            if (item->scale[1])
                item->scale[1][n * d.channels + k] = probabilities[n * d.channels + k];
        }
    }
    item->scale[0][0] = total / loss_divisor(item);
}

static void loss_bwd_scales(struct check_case *item)
{
    const struct planes d = planes_of(&item->desc->in[0]);
    const double *probabilities = item->in[0], *dloss = item->in[2], divisor = loss_divisor(item);

    for (int64_t n = 0; n < d.images; n++) {
        double sum = 0;
        for (int64_t k = 0; k < d.channels; k++)
            sum += target_of(item, n, k);
        for (int64_t k = 0; k < d.channels; k++)
            item->scale[0][n * d.channels + k] =
                fabs(*dloss) * (probabilities[n * d.channels + k] * sum + target_of(item, n, k)) / divisor;
    }
}

/* Element i of an output as the judge has it. */
static double number_at(const struct cvy_tensor *tensor, const void *data, int64_t i)
{
    if (cvy_dtype_is_float(tensor->dtype))
        return ((const double *)data)[i];
    return tensor->dtype == CVY_I32 ? ((const int32_t *)data)[i] : ((const uint8_t *)data)[i];
}

/* Nothing cancels. Of elementwise ops errors are absolute below the smallest normal float. */
static void result_scales(struct check_case *item)
{
    const double min = cvy_ops[item->desc->op].elementwise ? 0x1p-126 : 0;

    for (int k = 0; k < item->desc->outputs; k++) {
        for (int64_t i = 0; item->scale[k] && i < elements(&item->desc->out[k]); i++)
            item->scale[k][i] = fmax(fabs(number_at(&item->desc->out[k], item->reference[k], i)), min);
    }
}

void check_fill_scales(struct check_case *item)
{
    if (check_kind(item->desc) == CVY_CHECK_RESULT) {
        result_scales(item);
        return;
    }
    switch (item->desc->op) {
    case CVY_OP_NORMALIZE:
        normalize_scales(item);
        break;
    case CVY_OP_BATCH_NORM:
        batch_norm_scales(item);
        break;
    case CVY_OP_BATCH_NORM_BWD:
        batch_norm_bwd_scales(item);
        break;
    case CVY_OP_SOFTMAX_CROSS_ENTROPY:
        loss_scales(item);
        break;
    case CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD:
        loss_bwd_scales(item);
        break;
    default:
        assert(!"an op without a rule for its scale");
    }
}

/* ---- masks ---- */

/* The recomputed y of an element, and the size of its terms. */
static double recomputed(const struct check_case *item, int64_t c, int64_t i, double *size)
{
    const double x = ((const double *)item->in[0])[i], gamma = ((const double *)item->in[1])[c];
    const double beta = ((const double *)item->in[2])[c], mean = ((const double *)item->in[3])[c];
    const double rstd = ((const double *)item->in[4])[c];

    *size = (fabs(x) + fabs(mean)) * rstd * fabs(gamma) + fabs(beta);
    return (x - mean) * rstd * gamma + beta;
}

void check_fill_mask(const struct check_case *item, double *mask)
{
    const struct planes d = planes_of(&item->desc->in[0]);

    for (int64_t i = 0; i < elements(&item->desc->in[0]); i++) {
        double size;
        mask[i] = passes(item, recomputed(item, i / d.plane % d.channels, i, &size));
    }
}

bool check_follow_mask(const struct check_case *item, double *mask)
{
    const struct planes d = planes_of(&item->desc->in[0]);
    const double *gamma = item->in[1], *rstd = item->in[4], *dy = item->in[5], *more = item->in[7];
    const double *checked = item->checked[0], *reference = item->reference[0];
    /* Four roundings make y, in single precision at least, whatever x is stored in. A wider margin would take the
     * rounding of a 16-bit dx for a changed mask where dy is small. */
    const double rounding = 4 * check_unit(item->desc->in[0].dtype == CVY_F64 ? CVY_F64 : CVY_F32);
    const bool six = item->desc->attr.batch_norm.activation == CVY_ACTIVATION_RELU6;
    bool changed = false;

    for (int64_t i = 0; checked && i < elements(&item->desc->in[0]); i++) {
        const int64_t c = i / d.plane % d.channels;
        double size, y = recomputed(item, c, i, &size);
        if (fabs(y) > rounding * size && !(six && fabs(y - 6) <= rounding * (size + 6)))
            continue;
        /* The other choice moves dx by gamma * rstd * dy. */
        if (fabs(checked[i] - reference[i]) > 0.5 * fabs(gamma[c] * rstd[c] * (dy[i] + (more ? more[i] : 0)))) {
            mask[i] = mask[i] > 0 ? 0 : 1;
            changed = true;
        }
    }
    return changed;
}

/* ---- the verdict ---- */

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

bool check_judge(const struct check_case *item, int32_t index, double *error, double *limit)
{
    const struct cvy_tensor *tensor = &item->desc->out[index];
    /* dresidual is dy, masked: no rounding where it has one part. */
    const bool exact = check_kind(item->desc) == CVY_CHECK_EXACT || !cvy_dtype_is_float(tensor->dtype) ||
                       (item->desc->op == CVY_OP_BATCH_NORM_BWD && index == 3 && !item->in[7]);
    double difference = 0, size = 0;

    *limit = exact ? 0 : limit_of(item->desc, index) + item->coarseness;
    for (int64_t i = 0; i < elements(tensor); i++) {
        const double checked = number_at(tensor, item->checked[index], i);
        const double reference = number_at(tensor, item->reference[index], i);
        double scale;
        if (same(checked, reference) && !isfinite(checked))
            continue; /* the same infinity, or NaN on both sides */
        scale = exact ? fabs(reference) : item->scale[index][i];
        difference += (checked - reference) * (checked - reference);
        size += isfinite(scale) ? scale * scale : 0;
    }
    *error = difference == 0 ? 0 : sqrt(difference / size); /* infinite where nothing was expected, NaN for NaN */
    return *error <= *limit;
}
