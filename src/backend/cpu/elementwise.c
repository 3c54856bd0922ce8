/* Operations that look at one element at a time, casts, and the normalisation of images. */
#include <string.h>

#include "backend/cpu/cpu.h"

/* ---- y = f(x), y = f(a, b): every layout is the same to them as long as all tensors share it ---- */
struct flat {
    size_t count;
    enum cvy_op op;
    enum cvy_dtype dtype;
    bool relu; /* of add */
};

cvy_status cpu_elementwise_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    CVY_TRY(cpu_expect_images(desc, ~0U, ~0U, 0, 0));
    const int64_t elements = cvy_shape_elements(&desc->out[0].shape);
    if (elements < 0)
        return cvy_fail(CVY_UNAVAILABLE, "the tensor has too many elements");
    cpu_agree(cpu_of(device), desc, ~0U, ~0U);
    const struct flat flat = {.count = (size_t)elements,
                              .op = desc->op,
                              .dtype = desc->out[0].dtype,
                              .relu = desc->op == CVY_OP_ADD && desc->attr.add.relu};
    return cpu_state(plan, &flat, sizeof(flat));
}

static int64_t chunks_of(size_t count)
{
    return (int64_t)((count + CPU_CHUNK - 1) / CPU_CHUNK);
}

static size_t chunk_length(size_t count, int64_t chunk)
{
    const size_t first = (size_t)chunk * CPU_CHUNK;
    return count - first < CPU_CHUNK ? count - first : CPU_CHUNK;
}

cvy_status cpu_unary_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                         void *scratch)
{
    (void)scratch;
    const struct flat *flat = plan->state;
    void (*const function)(void *, const void *, size_t) = cpu_loops_for(device, flat->dtype)->unary[flat->op];
    const int64_t chunks = chunks_of(flat->count);
    const size_t size = cvy_dtype_size(flat->dtype);
#pragma omp parallel for num_threads(device->threads) schedule(static) if (chunks > 1)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const size_t at = (size_t)chunk * CPU_CHUNK * size;
        function(cpu_run_at(out[0], at), cpu_run_of(in[0], at), chunk_length(flat->count, chunk));
    }
    return CVY_OK;
}

cvy_status cpu_binary_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                          void *scratch)
{
    (void)scratch;
    const struct flat *flat = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, flat->dtype);
    void (*const function)(void *, const void *, const void *, size_t) =
        flat->relu ? loops->add_relu : loops->binary[flat->op];
    const int64_t chunks = chunks_of(flat->count);
    const size_t size = cvy_dtype_size(flat->dtype);
#pragma omp parallel for num_threads(device->threads) schedule(static) if (chunks > 1)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const size_t at = (size_t)chunk * CPU_CHUNK * size;
        function(cpu_run_at(out[0], at), cpu_run_of(in[0], at), cpu_run_of(in[1], at),
                 chunk_length(flat->count, chunk));
    }
    return CVY_OK;
}

/* ---- casts ---- */
struct cast {
    size_t count;
    enum cvy_dtype from, to;
};

static bool castable(enum cvy_dtype from, enum cvy_dtype to)
{
    if (to == CVY_F32)
        return from == CVY_F32 || from == CVY_BF16 || from == CVY_U8 || from == CVY_I32;
    return to == CVY_BF16 && (from == CVY_F32 || from == CVY_BF16);
}

cvy_status cpu_cast_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const enum cvy_dtype from = desc->in[0].dtype, to = desc->out[0].dtype;
    if (!castable(from, to))
        return cvy_fail(CVY_UNAVAILABLE, "no cast from %s to %s", cvy_dtype_name(from), cvy_dtype_name(to));
    const int64_t elements = cvy_shape_elements(&desc->out[0].shape);
    if (elements < 0)
        return cvy_fail(CVY_UNAVAILABLE, "the tensor has too many elements");
    cpu_agree(cpu_of(device), desc, ~0U, ~0U);
    const struct cast cast = {.count = (size_t)elements, .from = from, .to = to};
    return cpu_state(plan, &cast, sizeof(cast));
}

static void cast_chunk(const struct cpu_kernels *kernels, const struct cast *cast, void *to, const void *from,
                       size_t first, size_t end)
{
    float *f32 = to;
    if (cast->from == cast->to) {
        const size_t size = cvy_dtype_size(cast->from);
        memcpy((char *)to + first * size, (const char *)from + first * size, (end - first) * size);
        return;
    }
    if (cast->to == CVY_BF16)
        kernels->to_bf16((uint16_t *)to + first, (const float *)from + first, end - first);
    else if (cast->from == CVY_BF16)
        kernels->from_bf16(f32 + first, (const uint16_t *)from + first, end - first);
    else if (cast->from == CVY_U8)
        for (size_t i = first; i < end; i++)
            f32[i] = (float)((const uint8_t *)from)[i];
    else
        for (size_t i = first; i < end; i++)
            f32[i] = (float)((const int32_t *)from)[i];
}

cvy_status cpu_cast_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                        void *scratch)
{
    (void)scratch;
    const struct cast *cast = plan->state;
    const int64_t chunks = chunks_of(cast->count);
#pragma omp parallel for num_threads(device->threads) schedule(static) if (chunks > 1)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const size_t first = (size_t)chunk * CPU_CHUNK;
        cast_chunk(cpu_of(device)->kernels, cast, out[0], in[0], first, first + chunk_length(cast->count, chunk));
    }
    return CVY_OK;
}

/* ---- images: bytes (N, H, W, C) to numbers (N, C, H, W) ---- */
#define MAX_IMAGE_CHANNELS 4
struct normalize {
    int64_t batch, rows, width;
    int32_t channels;
    enum cvy_dtype dtype;
    union { /* every byte has its answer */
        float f32[256];
        uint16_t bf16[256];
    } table[MAX_IMAGE_CHANNELS];
    float exact[MAX_IMAGE_CHANNELS][256]; /* the same before they are mixed with another, whatever comes out */
    bool floats;                          /* images of f32: computed, from */
    float mean[MAX_IMAGE_CHANNELS], std[MAX_IMAGE_CHANNELS];
    bool nhwc; /* what comes out is channels-last; only of bytes that are looked up */
};

cvy_status cpu_normalize_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cvy_shape *shape = &desc->in[0].shape;
    if ((desc->in[0].dtype != CVY_U8 && desc->in[0].dtype != CVY_F32) ||
        (desc->out[0].dtype != CVY_F32 && desc->out[0].dtype != CVY_BF16))
        return cvy_fail(CVY_UNAVAILABLE, "images go from u8 or f32 to f32 or bf16 here, not from %s to %s",
                        cvy_dtype_name(desc->in[0].dtype), cvy_dtype_name(desc->out[0].dtype));
    if (shape->rank != 4 || shape->dim[1] < 1 || shape->dim[1] > MAX_IMAGE_CHANNELS)
        return cvy_fail(CVY_UNAVAILABLE, "images have 1 to %d channels", MAX_IMAGE_CHANNELS);
    if (cvy_tensor_present(&desc->in[1]) && (desc->in[1].dtype != CVY_I32 || desc->in[2].dtype != CVY_F32))
        return cvy_fail(CVY_UNAVAILABLE, "images are mixed by partners of i32 and coefficients of f32, not %s and %s",
                        cvy_dtype_name(desc->in[1].dtype), cvy_dtype_name(desc->in[2].dtype));
    desc->in[0].layout = (struct cvy_layout){.kind = CVY_LAYOUT_NHWC};
    cpu_plain(desc, 1U << 0, 0);
    const bool looked_up = desc->in[0].dtype == CVY_U8 && !cvy_tensor_present(&desc->in[1]);
    if (looked_up && cpu_prefers_nhwc(cpu_of(device), desc->images, desc->out[0].dtype))
        desc->out[0].layout = (struct cvy_layout){.kind = CVY_LAYOUT_NHWC};
    struct normalize state = {.batch = shape->dim[0],
                              .rows = shape->dim[2],
                              .width = shape->dim[3],
                              .channels = (int32_t)shape->dim[1],
                              .dtype = desc->out[0].dtype,
                              .floats = desc->in[0].dtype == CVY_F32,
                              .nhwc = desc->out[0].layout.kind == CVY_LAYOUT_NHWC};
    memcpy(state.mean, desc->attr.normalize.mean, sizeof state.mean);
    memcpy(state.std, desc->attr.normalize.std, sizeof state.std);
    for (int32_t c = 0; c < state.channels; c++) {
        float *answers = state.exact[c];
        for (int value = 0; value < 256; value++)
            answers[value] =
                (float)(((double)value - (double)desc->attr.normalize.mean[c]) / (double)desc->attr.normalize.std[c]);
        if (state.dtype == CVY_BF16)
            cpu_of(device)->kernels->to_bf16(state.table[c].bf16, answers, 256);
        else
            memcpy(state.table[c].f32, answers, sizeof(state.table[c].f32));
    }
    return cpu_state(plan, &state, sizeof(state));
}

/* Channel c of bytes side by side, mixed with those of the partner: what they stand for, each times its share. */
static void mix_bytes(const struct normalize *state, int64_t c, float share, const uint8_t *own, const uint8_t *other,
                      float *to, int64_t count)
{
    const float *answers = state->exact[c], rest = 1 - share;
    const int64_t channels = state->channels;
    for (int64_t i = 0; i < count; i++)
        to[i] = share * answers[own[i * channels + c]] + rest * answers[other[i * channels + c]];
}

/* The same of pixels of f32; `other` may be `own`: then they are not mixed. */
static void mix_floats(const struct normalize *state, int64_t c, float share, const float *own, const float *other,
                       float *to, int64_t count)
{
    const float mean = state->mean[c], std = state->std[c], rest = 1 - share;
    const int64_t channels = state->channels;
    for (int64_t i = 0; i < count; i++)
        to[i] = (own[i * channels + c] - mean) / std;
    for (int64_t i = 0; i < count && own != other; i++)
        to[i] = share * to[i] + rest * ((other[i * channels + c] - mean) / std);
}

static void mix_row(const struct cpu_kernels *kernels, const struct normalize *state, int64_t c, float share,
                    const void *own, const void *other, void *out, int64_t at)
{
    float piece[256];
    for (int64_t first = 0; first < state->width; first += 256) {
        const int64_t count = state->width - first < 256 ? state->width - first : 256, from = first * state->channels;
        float *to = state->dtype == CVY_F32 ? (float *)out + at + first : piece;
        if (state->floats)
            mix_floats(state, c, share, (const float *)own + from, (const float *)other + from, to, count);
        else
            mix_bytes(state, c, share, (const uint8_t *)own + from, (const uint8_t *)other + from, to, count);
        if (state->dtype != CVY_F32)
            kernels->to_bf16((uint16_t *)out + at + first, piece, (size_t)count);
    }
}

/* Images that are not looked up alone: mixed, or of f32. partner NULL: not mixed. */
static void mix_images(cvy_device *device, const struct normalize *state, const void *images, const int32_t *partner,
                       const float *coefficient, void *out)
{
    const int64_t channels = state->channels, width = state->width, rows = state->rows;
    const int64_t row_bytes = width * channels * (int64_t)(state->floats ? sizeof(float) : 1);
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < state->batch; n++)
        for (int64_t h = 0; h < rows; h++) {
            const char *own = (const char *)images + (n * rows + h) * row_bytes;
            const char *other = partner ? (const char *)images + (partner[n] * rows + h) * row_bytes : own;
            for (int64_t c = 0; c < channels; c++)
                mix_row(cpu_of(device)->kernels, state, c, partner ? coefficient[n] : 1, own, other, out,
                        ((n * channels + c) * rows + h) * width);
        }
}

cvy_status cpu_normalize_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                             void *scratch)
{
    (void)scratch;
    const struct normalize *state = plan->state;
    const int64_t channels = state->channels, width = state->width, rows = state->rows;
    if (in[1])
        CVY_TRY(cpu_check_partners(in[1], state->batch));
    if (in[1] || state->floats) {
        mix_images(device, state, in[0], in[1], in[2], out[0]);
        return CVY_OK;
    }
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < state->batch; n++)
        for (int64_t h = 0; h < rows; h++) {
            const uint8_t *from = (const uint8_t *)in[0] + (n * rows + h) * width * channels;
            for (int64_t c = 0; c < channels; c++) {
                const int64_t at =
                    state->nhwc ? (n * rows + h) * width * channels + c : ((n * channels + c) * rows + h) * width;
                const int64_t step = state->nhwc ? channels : 1;
                if (state->dtype == CVY_BF16)
                    for (int64_t w = 0; w < width; w++)
                        ((uint16_t *)out[0])[at + w * step] = state->table[c].bf16[from[w * channels + c]];
                else
                    for (int64_t w = 0; w < width; w++)
                        ((float *)out[0])[at + w * step] = state->table[c].f32[from[w * channels + c]];
            }
        }
    return CVY_OK;
}
