/* Layouts, types and states, shared by the rows of all files. */
#include <string.h>

#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

struct cvy_layout gpu_image_layout(enum cvy_dtype dtype, int64_t channels)
{
    if (channels >= 4)
        return (struct cvy_layout){CVY_LAYOUT_NHWC, NULL, 0};
    return (struct cvy_layout){dtype == CVY_BF16 ? CVY_LAYOUT_NHWC8 : CVY_LAYOUT_NHWC4, NULL, 0};
}

int64_t gpu_stored_channels(const struct cvy_tensor *tensor)
{
    const int64_t multiple = tensor->layout.kind == CVY_LAYOUT_NHWC4   ? 4
                             : tensor->layout.kind == CVY_LAYOUT_NHWC8 ? 8
                                                                       : 1;
    return (tensor->shape.dim[1] + multiple - 1) / multiple * multiple;
}

/* ---- forms ---- */

struct form_detail {
    int32_t form, dtype;
};

struct cvy_layout gpu_form_layout(enum gpu_form form, enum cvy_dtype dtype)
{
    static const struct form_detail details[][2] = {
        [GPU_FORM_NONE] = {{0, 0}, {0, 0}},
        [GPU_FORM_NARROW] = {{GPU_FORM_NARROW, CVY_F16}, {GPU_FORM_NARROW, CVY_BF16}},
        [GPU_FORM_SUMS] = {{GPU_FORM_SUMS, CVY_F32}, {GPU_FORM_SUMS, CVY_F32}},
        [GPU_FORM_NUMBERS] = {{GPU_FORM_NUMBERS, CVY_F16}, {GPU_FORM_NUMBERS, CVY_BF16}},
        [GPU_FORM_SIGN] = {{GPU_FORM_SIGN, CVY_U8}, {GPU_FORM_SIGN, CVY_U8}},
    };

    return (struct cvy_layout){CVY_LAYOUT_OPAQUE, &details[form][dtype == CVY_BF16], sizeof(struct form_detail)};
}

static struct form_detail detail_of(const struct cvy_tensor *tensor)
{
    struct form_detail detail = {GPU_FORM_NONE, CVY_F32};

    if (tensor->layout.kind == CVY_LAYOUT_OPAQUE && tensor->layout.detail_size == sizeof detail)
        memcpy(&detail, tensor->layout.detail, sizeof detail);
    return detail;
}

enum gpu_form gpu_form_of(const struct cvy_tensor *tensor)
{
    return (enum gpu_form)detail_of(tensor).form;
}

struct cvy_tensor gpu_form_widened(const struct cvy_tensor *tensor)
{
    struct cvy_tensor known = *tensor;

    known.dtype = (enum cvy_dtype)detail_of(tensor).dtype;
    known.layout = gpu_image_layout(known.dtype, tensor->shape.dim[1]);
    return known;
}

static size_t aligned(int64_t count, size_t size)
{
    return ((size_t)count * size + 15) / 16 * 16;
}

void *gpu_form_scale(const void *numbers, int64_t channels)
{
    return (char *)(uintptr_t)numbers + aligned(channels, sizeof(float));
}

void *gpu_form_shift(const void *numbers, int64_t channels)
{
    return (char *)gpu_form_scale(numbers, channels) + aligned(channels, sizeof(uint16_t));
}

static size_t form_bytes(cvy_device *device, const struct cvy_tensor *tensor)
{
    const struct cvy_tensor known = gpu_form_widened(tensor);
    struct cvy_tensor plain = *tensor;
    size_t bytes;

    plain.layout = gpu_plain();
    bytes = gpu_tensor_bytes(device, &plain);
    if (gpu_form_of(tensor) == GPU_FORM_NARROW)
        return gpu_tensor_bytes(device, &known);
    if (gpu_form_of(tensor) == GPU_FORM_SIGN && bytes)
        return (size_t)gpu_sign_bytes(cvy_shape_elements(&tensor->shape) / tensor->shape.dim[1], tensor->shape.dim[1]);
    if (gpu_form_of(tensor) == GPU_FORM_NUMBERS && bytes)
        return aligned(tensor->shape.dim[0], sizeof(float)) + 2 * aligned(tensor->shape.dim[0], sizeof(uint16_t));
    return bytes;
}

size_t gpu_tensor_bytes(cvy_device *device, const struct cvy_tensor *tensor)
{
    struct cvy_shape stored = tensor->shape;
    size_t bytes;
    int64_t elements;

    if (gpu_form_of(tensor) != GPU_FORM_NONE)
        return form_bytes(device, tensor);
    if (tensor->layout.kind != CVY_LAYOUT_PLAIN && stored.rank != 4)
        return 0;
    if (stored.rank == 4)
        stored.dim[1] = gpu_stored_channels(tensor);
    elements = cvy_shape_elements(&stored);
    if (elements < 0 || !cvy_size_mul((size_t)elements, cvy_dtype_size(tensor->dtype), &bytes))
        return 0;
    return bytes ? bytes : 1;
}

void gpu_lay_out(struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs)
{
    for (int i = 0; i < desc->inputs; i++) {
        struct cvy_tensor *t = &desc->in[i];
        if (gpu_form_of(t) == GPU_FORM_NUMBERS || gpu_form_of(t) == GPU_FORM_SIGN)
            continue;
        t->layout = (inputs >> i & 1) && t->shape.rank == 4 ? gpu_image_layout(t->dtype, t->shape.dim[1]) : gpu_plain();
    }
    for (int i = 0; i < desc->outputs; i++) {
        struct cvy_tensor *t = &desc->out[i];
        t->layout =
            (outputs >> i & 1) && t->shape.rank == 4 ? gpu_image_layout(t->dtype, t->shape.dim[1]) : gpu_plain();
    }
}

static void without_padding(struct cvy_tensor *tensor)
{
    if (tensor->layout.kind != CVY_LAYOUT_PLAIN && gpu_form_of(tensor) == GPU_FORM_NONE)
        tensor->layout.kind = CVY_LAYOUT_NHWC;
}

void gpu_lay_out_dense(struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs)
{
    gpu_lay_out(desc, inputs, outputs);
    for (int i = 0; i < desc->inputs; i++)
        without_padding(&desc->in[i]);
    for (int i = 0; i < desc->outputs; i++)
        without_padding(&desc->out[i]);
}

static cvy_status expect_one(const struct cvy_tensor *tensor, const char *what, int slot, bool shared, bool any,
                             enum cvy_dtype *dtype)
{
    if (!cvy_tensor_present(tensor) || any)
        return CVY_OK;
    if (!shared)
        return tensor->dtype == CVY_F32 ? CVY_OK
                                        : cvy_fail(CVY_UNAVAILABLE, "%s %d is %s, but the kernel needs f32", what, slot,
                                                   cvy_dtype_name(tensor->dtype));
    if (*dtype == CVY_DTYPE_COUNT)
        *dtype = tensor->dtype;
    if (tensor->dtype != CVY_F32 && tensor->dtype != CVY_F16 && tensor->dtype != CVY_BF16)
        return cvy_fail(CVY_UNAVAILABLE, "%s %d is %s, but the kernel computes in f32, f16 and bf16", what, slot,
                        cvy_dtype_name(tensor->dtype));
    if (tensor->dtype != *dtype)
        return cvy_fail(CVY_UNAVAILABLE, "%s %d is %s among tensors of %s", what, slot, cvy_dtype_name(tensor->dtype),
                        cvy_dtype_name(*dtype));
    return CVY_OK;
}

cvy_status gpu_expect(const struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs, uint32_t except_inputs,
                      uint32_t except_outputs, enum cvy_dtype *dtype)
{
    enum cvy_dtype shared = CVY_DTYPE_COUNT;

    for (int i = 0; i < desc->inputs; i++)
        CVY_TRY(expect_one(&desc->in[i], "input", i, inputs >> i & 1, except_inputs >> i & 1, &shared));
    for (int i = 0; i < desc->outputs; i++)
        CVY_TRY(expect_one(&desc->out[i], "output", i, outputs >> i & 1, except_outputs >> i & 1, &shared));
    *dtype = shared == CVY_DTYPE_COUNT ? CVY_F32 : shared;
    return CVY_OK;
}

cvy_status gpu_state(struct cvy_kernel_plan *plan, const void *bytes, size_t size)
{
    plan->state = cvy_calloc(1, size);
    if (!plan->state)
        return cvy_fail_memory(size, plan->kernel->name);
    memcpy(plan->state, bytes, size);
    return CVY_OK;
}

void gpu_state_release(cvy_device *device, struct cvy_kernel_plan *plan)
{
    (void)device;
    cvy_free(plan->state);
    plan->state = NULL;
}
