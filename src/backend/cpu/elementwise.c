/* Operations that look at one element at a time: ReLU, sigmoid, add, casts, and the normalisation of images. */
#include <string.h>

#include "backend/cpu/cpu.h"

/* ---- ReLU, sigmoid and add: every layout is the same to them as long as all tensors share it ---- */
struct flat {
    size_t count;
    bool relu; /* of add */
};

static cvy_status flat_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    CVY_TRY(cpu_expect_f32(desc, 0, 0));
    const int64_t elements = cvy_shape_elements(&desc->out[0].shape);
    if (elements < 0)
        return cvy_fail(CVY_UNAVAILABLE, "the tensor has too many elements");
    cpu_agree(cpu_of(device), desc, ~0U, ~0U);
    const struct flat flat = {.count = (size_t)elements, .relu = desc->op == CVY_OP_ADD && desc->attr.add.relu};
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

/* y = f(x) over all elements. */
static cvy_status run_one(cvy_device *device, const struct cvy_kernel_plan *plan, const float *x, float *y,
                          void (*function)(float *y, const float *x, size_t count))
{
    const struct flat *flat = plan->state;
    const int64_t chunks = chunks_of(flat->count);
#pragma omp parallel for num_threads(device->threads) schedule(static) if (chunks > 1)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const size_t first = (size_t)chunk * CPU_CHUNK;
        function(y + first, x + first, chunk_length(flat->count, chunk));
    }
    return CVY_OK;
}

/* The same of two tensors. */
static cvy_status run_two(cvy_device *device, const struct cvy_kernel_plan *plan, const float *a, const float *b,
                          float *y, void (*function)(float *y, const float *a, const float *b, size_t count))
{
    const struct flat *flat = plan->state;
    const int64_t chunks = chunks_of(flat->count);
#pragma omp parallel for num_threads(device->threads) schedule(static) if (chunks > 1)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const size_t first = (size_t)chunk * CPU_CHUNK;
        function(y + first, a + first, b + first, chunk_length(flat->count, chunk));
    }
    return CVY_OK;
}

cvy_status cpu_relu_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->in_place[0] = 0;
    return flat_prepare(device, desc, plan);
}

cvy_status cpu_relu_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                        void *scratch)
{
    (void)scratch;
    return run_one(device, plan, in[0], out[0], cpu_of(device)->kernels->relu);
}

cvy_status cpu_relu_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->in_place[0] = 1;
    return flat_prepare(device, desc, plan);
}

cvy_status cpu_relu_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                            void *scratch)
{
    (void)scratch;
    return run_two(device, plan, in[0], in[1], out[0], cpu_of(device)->kernels->relu_bwd);
}

cvy_status cpu_sigmoid_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->in_place[0] = 0;
    return flat_prepare(device, desc, plan);
}

cvy_status cpu_sigmoid_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    return run_one(device, plan, in[0], out[0], cpu_of(device)->kernels->sigmoid);
}

cvy_status cpu_sigmoid_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->in_place[0] = 1;
    return flat_prepare(device, desc, plan);
}

cvy_status cpu_sigmoid_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                               void *const *out, void *scratch)
{
    (void)scratch;
    return run_two(device, plan, in[0], in[1], out[0], cpu_of(device)->kernels->sigmoid_bwd);
}

cvy_status cpu_add_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->in_place[0] = 0;
    return flat_prepare(device, desc, plan);
}

cvy_status cpu_add_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                       void *scratch)
{
    (void)scratch;
    const struct cpu_kernels *kernels = cpu_of(device)->kernels;
    const struct flat *flat = plan->state;
    return run_two(device, plan, in[0], in[1], out[0], flat->relu ? kernels->add_relu : kernels->add);
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

static float bf16_to_float(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
}

/* Round to nearest, ties to even; NaN stays NaN. */
static uint16_t bf16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (value != value)
        return (uint16_t)(bits >> 16 | 0x40U);
    return (uint16_t)((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

static void cast_chunk(const struct cast *cast, void *to, const void *from, size_t first, size_t end)
{
    float *f32 = to;
    if (cast->from == cast->to) {
        const size_t size = cvy_dtype_size(cast->from);
        memcpy((char *)to + first * size, (const char *)from + first * size, (end - first) * size);
        return;
    }
    for (size_t i = first; i < end; i++) {
        if (cast->to == CVY_BF16)
            ((uint16_t *)to)[i] = bf16_from_float(((const float *)from)[i]);
        else if (cast->from == CVY_BF16)
            f32[i] = bf16_to_float(((const uint16_t *)from)[i]);
        else if (cast->from == CVY_U8)
            f32[i] = (float)((const uint8_t *)from)[i];
        else
            f32[i] = (float)((const int32_t *)from)[i];
    }
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
        cast_chunk(cast, out[0], in[0], first, first + chunk_length(cast->count, chunk));
    }
    return CVY_OK;
}

/* ---- images: bytes (N, H, W, C) to floats (N, C, H, W) ---- */
#define MAX_IMAGE_CHANNELS 4
struct normalize {
    int64_t batch, rows, width;
    int32_t channels;
    float table[MAX_IMAGE_CHANNELS][256]; /* every byte has its answer */
};

cvy_status cpu_normalize_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    const struct cvy_shape *shape = &desc->in[0].shape;
    if (desc->in[0].dtype != CVY_U8 || desc->out[0].dtype != CVY_F32)
        return cvy_fail(CVY_UNAVAILABLE, "images go from u8 to f32 here, not from %s to %s",
                        cvy_dtype_name(desc->in[0].dtype), cvy_dtype_name(desc->out[0].dtype));
    if (shape->rank != 4 || shape->dim[1] < 1 || shape->dim[1] > MAX_IMAGE_CHANNELS)
        return cvy_fail(CVY_UNAVAILABLE, "images have 1 to %d channels", MAX_IMAGE_CHANNELS);
    desc->in[0].layout = (struct cvy_layout){.kind = CVY_LAYOUT_NHWC};
    desc->out[0].layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    struct normalize state = {
        .batch = shape->dim[0], .rows = shape->dim[2], .width = shape->dim[3], .channels = (int32_t)shape->dim[1]};
    for (int32_t c = 0; c < state.channels; c++)
        for (int value = 0; value < 256; value++)
            state.table[c][value] =
                (float)(((double)value - (double)desc->attr.normalize.mean[c]) / (double)desc->attr.normalize.std[c]);
    return cpu_state(plan, &state, sizeof(state));
}

cvy_status cpu_normalize_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                             void *scratch)
{
    (void)scratch;
    const struct normalize *state = plan->state;
    const int64_t channels = state->channels, width = state->width, rows = state->rows;
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < state->batch; n++)
        for (int64_t h = 0; h < rows; h++) {
            const uint8_t *from = (const uint8_t *)in[0] + (n * rows + h) * width * channels;
            for (int64_t c = 0; c < channels; c++) {
                float *to = (float *)out[0] + ((n * channels + c) * rows + h) * width;
                for (int64_t w = 0; w < width; w++)
                    to[w] = state->table[c][from[w * channels + c]];
            }
        }
    return CVY_OK;
}
