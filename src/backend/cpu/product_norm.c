/* The batch norm after a 1 x 1 convolution from moments of the convolution's input (ops.def; the formulas are derived
 * in graph/rewrite_product_norm.c). The means' share of the moments is subtracted in double; products of matrices are
 * made in blocks that depend on the shape alone. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"

struct product_norm {
    int64_t outputs, inputs; /* channels of the convolution: K, C */
    double count;            /* pixels of the batch */
    float eps, momentum;
    enum cvy_dtype dtype;          /* of the weights */
    const struct cpu_loops *loops; /* of floats */
};

/* The extent of in[0] alone is read: any layout will do. `outputs`: those that have the weights' type; `matrices` as
 * large as the weights: scratch memory, beside one as large as the moments. */
static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, uint32_t outputs,
                          int64_t matrices)
{
    const int64_t *const x = desc->in[0].shape.dim, *const w = desc->in[1].shape.dim;

    CVY_TRY(cpu_expect_images(desc, 1U << 0 | 1U << 1, outputs, 0, 0));
    if (cvy_device_ranks(device) > 1)
        return cvy_fail(CVY_UNAVAILABLE, "batches of several ranks cannot count as one where moments are those of one");
    cpu_agree(cpu_of(device), desc, 1U << 0, 0);
    cpu_plain(desc, 1U << 0, 0);
    const struct product_norm state = {.outputs = w[0],
                                       .inputs = w[1],
                                       .count = (double)x[0] * (double)x[2] * (double)x[3],
                                       .eps = desc->attr.batch_norm.eps,
                                       .momentum = desc->attr.batch_norm.momentum,
                                       .dtype = desc->in[1].dtype,
                                       .loops = cpu_loops_for(device, CVY_F32)};
    plan->scratch_bytes = (size_t)(w[0] * w[1] * matrices + w[1] * w[1]) * sizeof(float);
    return cpu_state(plan, &state, sizeof(state));
}

/* The weights in float: as they are, or in `floats`. */
static const float *weights_of(cvy_device *device, const struct product_norm *s, const void *w, float *floats)
{
    if (s->dtype == CVY_F32)
        return w;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t k = 0; k < s->outputs; k++)
        cpu_of(device)->kernels->from_bf16(floats + k * s->inputs, (const uint16_t *)w + k * s->inputs,
                                           (size_t)s->inputs);
    return floats;
}

/* The sum of the products of two rows: as many as fill vectors by the processor's own loops. */
static double dot(const struct product_norm *s, const float *a, const float *b)
{
    const int64_t whole = s->inputs / CPU_LANES * CPU_LANES;
    double lanes[CPU_LANES] = {0}, total = 0;

    if (whole > 0)
        s->loops->sum_products(a, b, (size_t)whole, lanes);
    for (int lane = 0; lane < CPU_LANES; lane++)
        total += lanes[lane];
    for (int64_t i = whole; i < s->inputs; i++)
        total += (double)a[i] * (double)b[i];
    return total;
}

/* Moments around the means. */
static void center(const cvy_device *device, const struct product_norm *s, const float *moments, const float *sums,
                   float *to)
{
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t c = 0; c < s->inputs; c++) {
        const double mean = (double)sums[c] / s->count;
        for (int64_t d = 0; d < s->inputs; d++)
            to[c * s->inputs + d] = (float)((double)moments[c * s->inputs + d] - mean * (double)sums[d]);
    }
}

/* ---- forward ---- */

cvy_status cpu_product_norm_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->in_place[2] = 4;
    plan->in_place[3] = 5;
    return prepare(device, desc, plan, 0, 2);
}

cvy_status cpu_product_norm_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    const struct product_norm *const s = plan->state;
    const float *const sums = in[3], *const running_mean = in[4], *const running_var = in[5];
    float *const mean = out[0], *const rstd = out[1], *const new_mean = out[2], *const new_var = out[3];
    float *const centred = scratch, *const product = centred + s->inputs * s->inputs; /* w times the former */
    const float *const w = weights_of(device, s, in[1], product + s->outputs * s->inputs);

    center(device, s, in[2], sums, centred);
    CVY_TRY(cpu_sgemm_blocks(device, s->outputs, s->inputs, s->inputs, w, centred, product));
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t k = 0; k < s->outputs; k++) {
        const float *const row = w + k * s->inputs;
        const double own_mean = dot(s, row, sums) / s->count, momentum = (double)s->momentum;
        const double sum = dot(s, row, product + k * s->inputs), squares = sum > 0 || sum != sum ? sum : 0;
        mean[k] = (float)own_mean;
        rstd[k] = (float)(1.0 / sqrt(squares / s->count + (double)s->eps));
        if (new_mean)
            new_mean[k] = (float)((1 - momentum) * (double)running_mean[k] + momentum * own_mean);
        if (new_var)
            new_var[k] = (float)((1 - momentum) * (double)running_var[k] + momentum * squares / (s->count - 1));
    }
    return CVY_OK;
}

/* ---- backward ---- */

cvy_status cpu_product_norm_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, 1U << 2 | 1U << 3, 3);
}

struct backward {
    const struct product_norm *state;
    const float *w, *raw, *sums, *gamma, *mean, *rstd, *dbeta;
    float *dw, *dgamma;
    float *scaled; /* (K,C): w', before it is rounded and after */
    float *less;   /* (K,C): w times the moments around the means, then w times what stands before it in the product */
};

/* Channel k of the output, and what stands before w in the product: a rstd dgamma / m. */
static void make_row(const struct backward *f, int64_t k, float *factors)
{
    const struct product_norm *const s = f->state;
    const int64_t first = k * s->inputs;
    const double rstd = (double)f->rstd[k], a = (double)f->gamma[k] * rstd, dbeta = (double)f->dbeta[k];
    const double dgamma = rstd * (dot(s, f->w + first, f->raw + first) - (double)f->mean[k] * dbeta);
    const float scale = (float)a, by_sums = (float)(a * dbeta / s->count);
    const float by_product = (float)(a * dgamma * rstd / s->count);
    const float *const w = f->w + first, *const raw = f->raw + first, *const product = f->less + first;

    if (f->dgamma)
        f->dgamma[k] = (float)dgamma;
    for (int64_t c = 0; f->dw && c < s->inputs; c++)
        f->dw[first + c] = scale * raw[c] - by_sums * f->sums[c] - by_product * product[c];
    for (int64_t c = 0; c < s->inputs; c++) {
        f->scaled[first + c] = scale * w[c];
        factors[first + c] = -by_product * w[c];
    }
}

/* Rows as wide as the weights', rounded to their type, and so in float again. */
static void write_weights(cvy_device *device, const struct product_norm *s, float *from, int64_t rows, void *to)
{
    const struct cpu_kernels *const kernels = cpu_of(device)->kernels;
    const size_t count = (size_t)s->inputs;

#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t k = 0; k < rows; k++) {
        float *const row = from + (size_t)k * count;
        uint16_t *const narrow = (uint16_t *)to + (size_t)k * count;
        if (s->dtype == CVY_F32) {
            memcpy((float *)to + (size_t)k * count, row, count * sizeof(*row));
            continue;
        }
        kernels->to_bf16(narrow, row, count);
        kernels->from_bf16(row, narrow, count);
    }
}

/* offset[c] = -(sum over k of scaled[k][c] dbeta[k] + sum over d of product[c][d] sums[d]) / m, a few channels at a
 * time. */
static void make_offset(const cvy_device *device, const struct backward *f, const float *product, float *offset)
{
    enum { TOGETHER = 64 };
    const struct product_norm *const s = f->state;

#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t first = 0; first < s->inputs; first += TOGETHER) {
        const int64_t count = s->inputs - first < TOGETHER ? s->inputs - first : TOGETHER;
        double sum[TOGETHER] = {0};
        for (int64_t k = 0; k < s->outputs; k++)
            for (int64_t c = 0; c < count; c++)
                sum[c] += (double)f->scaled[k * s->inputs + first + c] * (double)f->dbeta[k];
        for (int64_t c = 0; c < count; c++)
            sum[c] += dot(s, product + (first + c) * s->inputs, f->sums);
        for (int64_t c = 0; c < count; c++)
            offset[first + c] = (float)(-sum[c] / s->count);
    }
}

cvy_status cpu_product_norm_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                    void *const *out, void *scratch)
{
    const struct product_norm *const s = plan->state;
    const int64_t weights = s->outputs * s->inputs;
    float *const square = scratch; /* moments around the means, then the product */
    float *const matrices = square + s->inputs * s->inputs;
    struct backward f = {.state = s,
                         .w = weights_of(device, s, in[1], matrices),
                         .raw = in[2],
                         .sums = in[4],
                         .gamma = in[5],
                         .mean = in[6],
                         .rstd = in[7],
                         .dbeta = in[8],
                         .dw = out[0],
                         .dgamma = out[1],
                         .scaled = matrices + weights,
                         .less = matrices + 2 * weights};

    center(device, s, in[3], f.sums, square);
    CVY_TRY(cpu_sgemm_blocks(device, s->outputs, s->inputs, s->inputs, f.w, square, f.less));
    /* A row of what is subtracted is read before the factors are written over it. */
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t k = 0; k < s->outputs; k++)
        make_row(&f, k, f.less);
    CVY_TRY(cpu_sgemm_columns(device, s->inputs, s->inputs, s->outputs, f.less, f.w, square));
    write_weights(device, s, square, s->inputs, out[3]);
    write_weights(device, s, f.scaled, s->outputs, out[2]);
    make_offset(device, &f, square, out[4]);
    return CVY_OK;
}
