/* Convolutions and matrix products as plain loops: what cuDNN and cuBLASLt do on a GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/conv_engine.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kernels/kernels.h"
#include "capture.h"
#include "emulate.h"

/* ---- elements ---- */

static float get(enum cvy_dtype dtype, const void *x, int64_t i)
{
    if (dtype == CVY_F16)
        return gpu_from_f16(((const uint16_t *)x)[i]);
    if (dtype == CVY_BF16)
        return gpu_from_bf16(((const uint16_t *)x)[i]);
    return ((const float *)x)[i];
}

static void put(enum cvy_dtype dtype, void *y, int64_t i, float value)
{
    if (dtype == CVY_F16)
        ((uint16_t *)y)[i] = gpu_to_f16(value);
    else if (dtype == CVY_BF16)
        ((uint16_t *)y)[i] = gpu_to_bf16(value);
    else
        ((float *)y)[i] = value;
}

/* A copy as floats, freed by the caller. */
static float *widened(enum cvy_dtype dtype, const void *x, int64_t count)
{
    float *copy = malloc((size_t)count * sizeof *copy);

    if (!copy)
        abort();
    for (int64_t i = 0; i < count; i++)
        copy[i] = get(dtype, x, i);
    return copy;
}

/* ---- convolutions ---- */

struct gpu_conv {
    struct gpu_conv_problem problem;
};

struct conv_call {
    struct gpu_conv_problem p;
    void *x, *w, *y;
    const float *bias;
    const void *residual;
    float *sums, *squares;     /* of y and its squares, k of each; NULL: not asked for */
    const void *scale, *shift; /* of x, in its type; NULL: nothing precedes it */
    /* For the sums of a data gradient; dgamma NULL: not requested. */
    const void *norm_x;
    const float *gamma, *beta, *mean, *rstd;
    float *dgamma, *dbeta;
};

cvy_status gpu_conv_open(struct gpu_device *device, const struct gpu_conv_problem *problem, struct gpu_conv **conv)
{
    (void)device;
    *conv = cvy_calloc(1, sizeof **conv);
    if (!*conv)
        return cvy_fail_memory(sizeof **conv, "a convolution");
    (*conv)->problem = *problem;
    return CVY_OK;
}

void gpu_conv_close(struct gpu_conv *conv)
{
    cvy_free(conv);
}

/* Nothing is timed, unless a test says what it would take: CONVOY_EMULATED_MS=ENGINE,OTHERS. */
static void told_seconds(double seconds[2])
{
    const char *text = getenv("CONVOY_EMULATED_MS");

    seconds[0] = seconds[1] = 0;
    if (!text || sscanf(text, "%lf,%lf", &seconds[0], &seconds[1]) != 2)
        return;
    seconds[0] *= 1e-3;
    seconds[1] *= 1e-3;
}

double gpu_conv_seconds(const struct gpu_conv *conv)
{
    double seconds[2];

    (void)conv;
    told_seconds(seconds);
    return seconds[0];
}

bool gpu_conv_is_timed(struct gpu_device *device, const struct gpu_conv_problem *problem)
{
    (void)device, (void)problem;
    return getenv("CONVOY_EMULATED_MS") != NULL;
}

cvy_status gpu_conv_measure(struct gpu_device *device, const struct gpu_conv_problem *problem, const char *name,
                            gpu_conv_runner *run, const void *context, size_t scratch_bytes, double *seconds)
{
    double told[2];

    (void)device, (void)problem, (void)name, (void)run, (void)context, (void)scratch_bytes;
    told_seconds(told);
    *seconds = told[1];
    return CVY_OK;
}

static size_t sum_bytes(int64_t floats)
{
    return ((size_t)floats * sizeof(float) + 255) / 256 * 256;
}

size_t gpu_conv_scratch(const struct gpu_conv *conv)
{
    const struct gpu_conv_problem *p = &conv->problem;
    int64_t tiles, floats = 0;

    if (p->statistics == GPU_STATISTICS_FUSED)
        floats = 2 * p->k;
    else if (p->statistics == GPU_STATISTICS_SEPARATE)
        gpu_batch_norm_shape(p->n * p->p * p->q, p->k, &tiles, &floats);
    return sum_bytes(floats) + gpu_norm_scratch(p, NULL, NULL);
}

struct gpu_conv_extra gpu_conv_extra(const struct gpu_conv *conv)
{
    return gpu_norm_extra(&conv->problem);
}

void gpu_conv_text(const struct gpu_conv *conv, char implementation[48], char reason[160])
{
    static const char *const norms[] = {
        [GPU_PART_NONE] = "", [GPU_PART_SEPARATE] = ", norm separate", [GPU_PART_FUSED] = ", norm fused"};

    snprintf(implementation, 48, "loops%s%s%s",
             conv->problem.statistics == GPU_STATISTICS_FUSED      ? ", statistics fused"
             : conv->problem.statistics == GPU_STATISTICS_SEPARATE ? ", statistics separate"
                                                                   : "",
             norms[conv->problem.prologue], norms[conv->problem.gradient_sums]);
    reason[0] = '\0';
}

static int64_t x_index(const struct gpu_conv_problem *p, int64_t n, int64_t h, int64_t w, int64_t c)
{
    return ((n * p->h + h) * p->w + w) * p->c + c;
}

static int64_t w_index(const struct gpu_conv_problem *p, int64_t k, int64_t r, int64_t s, int64_t c)
{
    return ((k * p->r + r) * p->s + s) * (p->c / p->groups) + c;
}

static int64_t y_index(const struct gpu_conv_problem *p, int64_t n, int64_t row, int64_t column, int64_t k)
{
    return ((n * p->p + row) * p->q + column) * p->k + k;
}

/* The pixel of x under tap r of output row i; -1 outside. */
static int64_t under(int64_t i, int32_t stride, int64_t r, int32_t dilation, int32_t pad, int64_t extent)
{
    const int64_t at = i * stride + r * dilation - pad;

    return at >= 0 && at < extent ? at : -1;
}

/* What the loops read, as floats. */
struct conv_data {
    struct gpu_conv_problem p;
    float *x, *w, *y; /* NULL: written, not read */
};

static struct conv_data widen_inputs(const struct conv_call *call)
{
    const struct gpu_conv_problem *p = &call->p;
    struct conv_data d = {.p = *p};

    if (p->pass != GPU_CONV_DATA)
        d.x = widened(p->dtype, call->x, p->n * p->h * p->w * p->c);
    for (int64_t i = 0; call->scale && i < p->n * p->h * p->w * p->c; i++) {
        const float y = fmaf(d.x[i], get(p->dtype, call->scale, i % p->c), get(p->dtype, call->shift, i % p->c));
        float capacity; /* tensor cores multiply 16 bits */
        put(p->dtype, &capacity, 0, y > 0 ? y : 0);
        d.x[i] = get(p->dtype, &capacity, 0);
    }
    if (p->pass != GPU_CONV_WEIGHTS)
        d.w = widened(p->dtype, call->w, p->k * p->r * p->s * (p->c / p->groups));
    if (p->pass != GPU_CONV_FORWARD)
        d.y = widened(p->dtype, call->y, p->n * p->p * p->q * p->k);
    return d;
}

static void release_inputs(struct conv_data *d)
{
    free(d->x);
    free(d->w);
    free(d->y);
}

static double product(const float *a, const float *b, int64_t count)
{
    double sum = 0;

    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static float forward_one(const struct conv_data *d, int64_t n, int64_t row, int64_t column, int64_t k)
{
    const struct gpu_conv_problem *p = &d->p;
    const int64_t width = p->c / p->groups, first = k / (p->k / p->groups) * width;
    double sum = 0;

    for (int64_t r = 0; r < p->r; r++) {
        const int64_t h = under(row, p->stride[0], r, p->dilation[0], p->pad[0], p->h);
        for (int64_t s = 0; s < p->s && h >= 0; s++) {
            const int64_t w = under(column, p->stride[1], s, p->dilation[1], p->pad[2], p->w);
            if (w >= 0)
                sum += product(d->x + x_index(p, n, h, w, first), d->w + w_index(p, k, r, s, 0), width);
        }
    }
    return (float)sum;
}

/* As cuDNN may do it: of the elements before they are rounded, in single precision, parts of a few rows at a time. */
static void sum_outputs(const struct gpu_conv_problem *p, const float *y, float *sums, float *squares)
{
    enum { PART = 64 };
    const int64_t rows = p->n * p->p * p->q;

#pragma omp parallel for
    for (int64_t k = 0; k < p->k; k++) {
        float total[2] = {0, 0};
        for (int64_t first = 0; first < rows; first += PART) {
            float part[2] = {0, 0};
            for (int64_t i = first; i < first + PART && i < rows; i++) {
                const float value = y[i * p->k + k];
                part[0] += value;
                part[1] += value * value;
            }
            total[0] += part[0];
            total[1] += part[1];
        }
        sums[k] = total[0];
        squares[k] = total[1];
    }
}

static void replay_forward(const void *data)
{
    const struct conv_call *call = data;
    const struct gpu_conv_problem *p = &call->p;
    struct conv_data d = widen_inputs(call);
    float *kept = call->sums ? malloc((size_t)(p->n * p->p * p->q * p->k) * sizeof *kept) : NULL;

    if (call->sums && !kept)
        abort();
#pragma omp parallel for collapse(2)
    for (int64_t n = 0; n < p->n; n++) {
        for (int64_t row = 0; row < p->p; row++) {
            for (int64_t i = 0; i < p->q * p->k; i++) {
                const int64_t column = i / p->k, k = i % p->k, at = y_index(p, n, row, column, k);
                float value = forward_one(&d, n, row, column, k);
                if (kept)
                    kept[at] = value;
                if (call->bias)
                    value += call->bias[k];
                if (call->residual)
                    value += get(p->dtype, call->residual, at);
                put(p->dtype, call->y, at,
                    p->activation != CVY_ACTIVATION_NONE && value <= 0   ? 0
                    : p->activation == CVY_ACTIVATION_RELU6 && value > 6 ? 6
                                                                         : value);
            }
        }
    }
    if (kept)
        sum_outputs(p, kept, call->sums, call->squares);
    free(kept);
    release_inputs(&d);
}

/* What reaches pixel (h, w), for all its channels. */
static void data_pixel(const struct conv_data *d, int64_t n, int64_t h, int64_t w, double *sums)
{
    const struct gpu_conv_problem *p = &d->p;
    const int64_t width = p->c / p->groups, outputs = p->k / p->groups;

    for (int64_t c = 0; c < p->c; c++)
        sums[c] = 0;
    for (int64_t r = 0; r < p->r; r++) {
        const int64_t row = h + p->pad[0] - r * p->dilation[0];
        if (row < 0 || row % p->stride[0] || row / p->stride[0] >= p->p)
            continue;
        for (int64_t s = 0; s < p->s; s++) {
            const int64_t column = w + p->pad[2] - s * p->dilation[1];
            if (column < 0 || column % p->stride[1] || column / p->stride[1] >= p->q)
                continue;
            for (int64_t k = 0; k < p->k; k++) {
                const double dy = (double)d->y[y_index(p, n, row / p->stride[0], column / p->stride[1], k)];
                const float *weights = d->w + w_index(p, k, r, s, 0);
                double *to = sums + k / outputs * width;
                for (int64_t c = 0; c < width; c++)
                    to[c] += dy * (double)weights[c];
            }
        }
    }
}

/* Masks the gradient, of f32 still, and sums it over the rows. */
static void mask_and_sum(const struct conv_call *call, float *dx)
{
    const struct gpu_conv_problem *p = &call->p;
    const int64_t rows = p->n * p->h * p->w;

#pragma omp parallel for
    for (int64_t c = 0; c < p->c; c++) {
        double sum = 0, projection = 0;
        for (int64_t i = 0; i < rows; i++) {
            const float h = (get(p->dtype, call->norm_x, i * p->c + c) - call->mean[c]) * call->rstd[c];
            if (h * call->gamma[c] + call->beta[c] <= 0)
                dx[i * p->c + c] = 0;
            sum += (double)dx[i * p->c + c];
            projection += (double)dx[i * p->c + c] * (double)h;
        }
        call->dgamma[c] = (float)projection;
        call->dbeta[c] = (float)sum;
    }
}

static void replay_data(const void *data)
{
    const struct conv_call *call = data;
    const struct gpu_conv_problem *p = &call->p;
    struct conv_data d = widen_inputs(call);
    const int64_t elements = p->n * p->h * p->w * p->c;
    float *dx = malloc((size_t)elements * sizeof *dx);

    if (!dx)
        abort();
#pragma omp parallel for
    for (int64_t n = 0; n < p->n; n++) {
        double *sums = malloc((size_t)p->c * sizeof *sums);
        if (!sums)
            abort();
        for (int64_t i = 0; i < p->h * p->w; i++) {
            data_pixel(&d, n, i / p->w, i % p->w, sums);
            for (int64_t c = 0; c < p->c; c++)
                dx[x_index(p, n, i / p->w, i % p->w, c)] = (float)sums[c];
        }
        free(sums);
    }
    if (call->dgamma)
        mask_and_sum(call, dx);
    for (int64_t i = 0; i < elements; i++)
        put(p->dtype, call->x, i, dx[i]);
    free(dx);
    release_inputs(&d);
}

/* The gradient of one tap of output channel k, for all its inputs. */
static void weight_tap(const struct conv_data *d, int64_t k, int64_t r, int64_t s, double *sums)
{
    const struct gpu_conv_problem *p = &d->p;
    const int64_t width = p->c / p->groups, first = k / (p->k / p->groups) * width;

    for (int64_t c = 0; c < width; c++)
        sums[c] = 0;
    for (int64_t n = 0; n < p->n; n++) {
        for (int64_t row = 0; row < p->p; row++) {
            const int64_t h = under(row, p->stride[0], r, p->dilation[0], p->pad[0], p->h);
            for (int64_t column = 0; column < p->q && h >= 0; column++) {
                const int64_t w = under(column, p->stride[1], s, p->dilation[1], p->pad[2], p->w);
                const double dy = (double)d->y[y_index(p, n, row, column, k)];
                const float *x = w >= 0 ? d->x + x_index(p, n, h, w, first) : NULL;
                for (int64_t c = 0; x && c < width; c++)
                    sums[c] += dy * (double)x[c];
            }
        }
    }
}

static void replay_weights(const void *data)
{
    const struct conv_call *call = data;
    const struct gpu_conv_problem *p = &call->p;
    const int64_t width = p->c / p->groups;
    struct conv_data d = widen_inputs(call);

#pragma omp parallel for
    for (int64_t k = 0; k < p->k; k++) {
        double *sums = malloc((size_t)width * sizeof *sums);
        if (!sums)
            abort();
        for (int64_t i = 0; i < p->r * p->s; i++) {
            weight_tap(&d, k, i / p->s, i % p->s, sums);
            for (int64_t c = 0; c < width; c++)
                put(p->dtype, call->w, w_index(p, k, i / p->s, i % p->s, c), (float)sums[c]);
        }
        free(sums);
    }
    release_inputs(&d);
}

cvy_status gpu_conv_run(struct gpu_device *device, const struct gpu_conv *conv, const struct gpu_conv_memory *memory)
{
    static void (*const replays[])(const void *) = {replay_forward, replay_data, replay_weights};
    const struct gpu_conv_problem *p = &conv->problem;
    const bool fused = p->statistics == GPU_STATISTICS_FUSED;
    struct conv_call call = {.p = *p,
                             .x = memory->x,
                             .w = memory->w,
                             .y = memory->y,
                             .bias = memory->bias,
                             .residual = memory->residual,
                             .sums = !fused         ? NULL
                                     : memory->sums ? memory->sums
                                                    : memory->scratch,
                             .squares = !fused            ? NULL
                                        : memory->squares ? memory->squares
                                                          : (float *)memory->scratch + p->k};
    struct gpu_norm_scratch capacity;

    (void)gpu_norm_scratch(p, (char *)memory->scratch + gpu_conv_scratch(conv) - gpu_norm_scratch(p, NULL, NULL),
                           &capacity);
    CVY_TRY(gpu_norm_before(device, p, memory, &capacity));
    if (capacity.x)
        call.x = capacity.x;
    call.scale = capacity.scale;
    call.shift = capacity.shift;
    if (p->gradient_sums == GPU_PART_FUSED) {
        call.norm_x = memory->norm_x;
        call.gamma = capacity.gamma;
        call.beta = capacity.beta;
        call.mean = memory->norm_mean;
        call.rstd = memory->norm_rstd;
        call.dgamma = capacity.dgamma;
        call.dbeta = capacity.dbeta;
    }
    emulated_do(device->stream, replays[p->pass], &call, sizeof call);
    CVY_TRY(gpu_norm_after(device, p, memory, &capacity));
    if (fused && memory->sums)
        return gpu_queued(device);
    if (fused)
        gpu_moments(device->stream, memory->scratch, (float *)memory->scratch + p->k, p->n * p->p * p->q, p->k,
                    memory->mean, memory->variance);
    else if (p->statistics == GPU_STATISTICS_SEPARATE)
        gpu_statistics(device->stream, p->dtype, memory->y, p->n * p->p * p->q, p->k, memory->mean, memory->variance,
                       memory->scratch, device->tickets);
    return gpu_queued(device);
}

/* ---- matrix products ---- */

struct gpu_gemm {
    struct gpu_gemm_problem problem;
};

struct gemm_call {
    struct gpu_gemm_problem p;
    const void *a, *b;
    const float *bias;
    void *c;
};

cvy_status gpu_gemm_open(struct gpu_device *device, const struct gpu_gemm_problem *problem, struct gpu_gemm **gemm)
{
    (void)device;
    *gemm = cvy_calloc(1, sizeof **gemm);
    if (!*gemm)
        return cvy_fail_memory(sizeof **gemm, "a matrix product");
    (*gemm)->problem = *problem;
    return CVY_OK;
}

void gpu_gemm_close(struct gpu_gemm *gemm)
{
    cvy_free(gemm);
}

size_t gpu_gemm_scratch(const struct gpu_gemm *gemm)
{
    (void)gemm;
    return 0;
}

static void replay_gemm(const void *data)
{
    const struct gemm_call *call = data;
    const struct gpu_gemm_problem *p = &call->p;

#pragma omp parallel for
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            double sum = call->bias ? (double)call->bias[j] : 0;
            for (int64_t k = 0; k < p->k; k++)
                sum += (double)get(p->dtype, call->a, p->transpose_a ? k * p->m + i : i * p->k + k) *
                       (double)get(p->dtype, call->b, p->transpose_b ? j * p->k + k : k * p->n + j);
            put(p->dtype, call->c, i * p->n + j, (float)sum);
        }
    }
}

cvy_status gpu_gemm_run(struct gpu_device *device, const struct gpu_gemm *gemm, const void *a, const void *b,
                        const float *bias, void *c, void *scratch)
{
    const struct gemm_call call = {gemm->problem, a, b, bias, c};

    (void)scratch;
    emulated_do(device->stream, replay_gemm, &call, sizeof call);
    return CVY_OK;
}

/* ---- libraries ---- */

cvy_status gpu_libraries_open(struct gpu_device *device)
{
    (void)device;
    return CVY_OK;
}

void gpu_libraries_close(struct gpu_device *device)
{
    (void)device;
}

void gpu_libraries_text(const struct gpu_device *device, char *text, size_t size)
{
    (void)device;
    snprintf(text, size, "plain loops");
}
