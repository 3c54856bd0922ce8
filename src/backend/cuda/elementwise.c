/* Rows of the elementwise ops, and of those that move elements. */
#include <string.h>

#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

/* ---- y = f(x), y = f(a, b): any layout, as long as all tensors share it ---- */

struct flat {
    int64_t count;
    enum cvy_op op;
    enum cvy_dtype dtype;
    bool relu; /* of add */
};

cvy_status gpu_elementwise_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct flat flat = {.op = desc->op, .relu = desc->op == CVY_OP_ADD && desc->attr.add.relu};

    (void)device;
    CVY_TRY(gpu_expect(desc, ~0U, ~0U, 0, 0, &flat.dtype));
    gpu_lay_out_dense(desc, ~0U, ~0U);
    flat.count = cvy_shape_elements(&desc->out[0].shape);
    if (flat.count < 0)
        return cvy_fail(CVY_UNAVAILABLE, "the tensor has too many elements");
    return gpu_state(plan, &flat, sizeof flat);
}

cvy_status gpu_unary_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                         void *scratch)
{
    const struct flat *flat = plan->state;

    (void)scratch;
    gpu_elementwise(gpu_of(device)->stream, flat->op, flat->dtype, in[0], NULL, out[0], flat->count, false);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_binary_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                          void *scratch)
{
    const struct flat *flat = plan->state;

    (void)scratch;
    gpu_elementwise(gpu_of(device)->stream, flat->op, flat->dtype, in[0], in[1], out[0], flat->count, flat->relu);
    return gpu_queued(gpu_of(device));
}

/* ---- casts and reorders ---- */

struct move {
    bool flat; /* same order of elements: `count` of them */
    int64_t count;
    struct gpu_rearrangement what;
};

static struct gpu_rearrangement rearrangement(const struct cvy_tensor *from, const struct cvy_tensor *to)
{
    struct gpu_rearrangement what = {
        .n = from->shape.dim[0],
        .c = from->shape.dim[1],
        .h = from->shape.dim[2],
        .w = from->shape.dim[3],
        .from = from->dtype,
        .to = to->dtype,
    };

    if (from->layout.kind != CVY_LAYOUT_PLAIN)
        what.from_stored = gpu_stored_channels(from);
    if (to->layout.kind != CVY_LAYOUT_PLAIN)
        what.to_stored = gpu_stored_channels(to);
    return what;
}

static bool known(const struct cvy_tensor *tensor)
{
    const enum cvy_layout_kind kind = tensor->layout.kind;

    return kind == CVY_LAYOUT_PLAIN ||
           (tensor->shape.rank == 4 &&
            (kind == CVY_LAYOUT_NHWC || kind == CVY_LAYOUT_NHWC4 || kind == CVY_LAYOUT_NHWC8));
}

static cvy_status move_prepare(const struct cvy_tensor *from, const struct cvy_tensor *to, struct cvy_kernel_plan *plan)
{
    struct move move = {.count = cvy_shape_elements(&from->shape), .what = {.from = from->dtype, .to = to->dtype}};

    if (move.count < 0)
        return cvy_fail(CVY_UNAVAILABLE, "the tensor has too many elements");
    move.flat = cvy_layout_equal(&from->layout, &to->layout) &&
                (from->layout.kind == CVY_LAYOUT_PLAIN || from->layout.kind == CVY_LAYOUT_NHWC);
    if (!move.flat)
        move.what = rearrangement(from, to);
    return gpu_state(plan, &move, sizeof move);
}

static bool is_float(enum cvy_dtype dtype)
{
    return dtype == CVY_F32 || dtype == CVY_F16 || dtype == CVY_BF16;
}

/* What has four dimensions comes out channels-last: the weights of convolutions arrive here in plain f32. */
cvy_status gpu_cast_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    if (!is_float(desc->in[0].dtype) || !is_float(desc->out[0].dtype))
        return cvy_fail(CVY_UNAVAILABLE, "casts are between f32, f16 and bf16, not from %s to %s",
                        cvy_dtype_name(desc->in[0].dtype), cvy_dtype_name(desc->out[0].dtype));
    if (!known(&desc->in[0]))
        desc->in[0].layout = gpu_plain();
    desc->out[0].layout = gpu_plain();
    if (desc->out[0].shape.rank == 4)
        desc->out[0].layout = gpu_image_layout(desc->out[0].dtype, desc->out[0].shape.dim[1]);
    return move_prepare(&desc->in[0], &desc->out[0], plan);
}

cvy_status gpu_cast_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                        void *scratch)
{
    return gpu_reorder_run(device, plan, in, out, scratch);
}

cvy_status gpu_reorder_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const size_t size = cvy_dtype_size(desc->in[0].dtype);
    const bool narrow = gpu_form_of(&desc->in[0]) == GPU_FORM_NARROW;
    struct cvy_tensor from = narrow ? gpu_form_widened(&desc->in[0]) : desc->in[0];

    (void)device;
    if (gpu_form_of(&from) == GPU_FORM_NUMBERS)
        from.layout = gpu_plain(); /* as it begins */
    if (!known(&from) || !known(&desc->out[0]))
        return cvy_fail(CVY_UNAVAILABLE, "the GPU does not know layout %s or %s of %d dimensions",
                        cvy_layout_name(&desc->in[0].layout), cvy_layout_name(&desc->out[0].layout),
                        desc->in[0].shape.rank);
    if (size > 4)
        return cvy_fail(CVY_UNAVAILABLE, "no reorder for %s", cvy_dtype_name(desc->in[0].dtype));
    return move_prepare(&from, &desc->out[0], plan);
}

cvy_status gpu_reorder_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                           void *scratch)
{
    const struct move *move = plan->state;
    void *stream = gpu_of(device)->stream;

    (void)scratch;
    if (!move->flat)
        gpu_rearrange(stream, &move->what, in[0], out[0]);
    else if (move->what.from == move->what.to)
        return gpu_copy(stream, out[0], in[0], plan->out_bytes[0]);
    else
        gpu_cast(stream, move->what.from, move->what.to, in[0], out[0], move->count);
    return gpu_queued(gpu_of(device));
}

/* The same of several tensors, in one launch. */
cvy_status gpu_move_run_many(cvy_device *device, const struct cvy_kernel_call *calls, int count)
{
    struct gpu_move moves[CVY_MANY_CALLS];

    for (int i = 0; i < count; i++) {
        const struct move *move = calls[i].plan->state;

        moves[i] = (struct gpu_move){move->what, calls[i].in[0], calls[i].out[0]};
        if (!move->flat)
            continue;
        moves[i].what.n = moves[i].what.h = moves[i].what.w = 1;
        moves[i].what.c = move->count;
    }
    gpu_move_tensors(gpu_of(device)->stream, moves, count);
    return gpu_queued(gpu_of(device));
}

/* ---- images ---- */

cvy_status gpu_normalize_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct gpu_normalize normalize = {0};
    const int64_t *dim = desc->out[0].shape.dim;

    (void)device;
    CVY_TRY(gpu_expect(desc, 0, 1, 1 | 2, 0, &normalize.dtype));
    if ((desc->in[0].dtype != CVY_U8 && desc->in[0].dtype != CVY_F32) || dim[1] > 4)
        return cvy_fail(CVY_UNAVAILABLE, "images have 1 to 4 channels of u8 or f32, not %d of %s", (int)dim[1],
                        cvy_dtype_name(desc->in[0].dtype));
    if (cvy_tensor_present(&desc->in[1]) && desc->in[1].dtype != CVY_I32)
        return cvy_fail(CVY_UNAVAILABLE, "partners are i32, not %s", cvy_dtype_name(desc->in[1].dtype));
    gpu_lay_out(desc, 0, 0);
    desc->in[0].layout = (struct cvy_layout){CVY_LAYOUT_NHWC, NULL, 0};
    desc->out[0].layout = gpu_image_layout(normalize.dtype, dim[1]);
    normalize.floats = desc->in[0].dtype == CVY_F32;
    normalize.images = dim[0];
    normalize.pixels = dim[2] * dim[3];
    normalize.planes = (int32_t)dim[1];
    normalize.channels = (int32_t)gpu_stored_channels(&desc->out[0]);
    memcpy(normalize.mean, desc->attr.normalize.mean, sizeof normalize.mean);
    memcpy(normalize.std, desc->attr.normalize.std, sizeof normalize.std);
    return gpu_state(plan, &normalize, sizeof normalize);
}

cvy_status gpu_normalize_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                             void *scratch)
{
    struct gpu_normalize normalize = *(const struct gpu_normalize *)plan->state;

    (void)scratch;
    normalize.partner = in[1];
    normalize.coefficient = in[2];
    gpu_normalize(gpu_of(device)->stream, &normalize, in[0], out[0]);
    return gpu_queued(gpu_of(device));
}
