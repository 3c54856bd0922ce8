/* Rows of grouped 3x3 convolutions on kernels of ours (kernels/grouped.cu), rivals to the engine's. Nobody has timed
 * them on a GPU, so they are taken only where CONVOY_CUDA_GROUPED=own asks for them. */
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

static bool fits_kernel(const struct cvy_conv2d_attr *attr, int64_t width, int64_t outputs)
{
    return attr->kernel[0] == 3 && attr->kernel[1] == 3 && attr->dilation[0] == 1 && attr->dilation[1] == 1 &&
           attr->stride[0] == attr->stride[1] && attr->stride[0] <= 2 && width == outputs &&
           (width == 4 || width == 8 || width == 16 || width == 32);
}

/* x and y: of the forward pass. Inputs from `others` on must be absent. */
static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, const struct cvy_tensor *x,
                          const struct cvy_tensor *y, int others, struct cvy_kernel_plan *plan)
{
    const struct cvy_conv2d_attr *attr = &desc->attr.conv2d;
    const struct gpu_grouped call = {.dtype = x->dtype,
                                     .n = x->shape.dim[0],
                                     .h = x->shape.dim[2],
                                     .w = x->shape.dim[3],
                                     .p = y->shape.dim[2],
                                     .q = y->shape.dim[3],
                                     .channels = x->shape.dim[1],
                                     .width = (int32_t)(x->shape.dim[1] / attr->groups),
                                     .stride = attr->stride[0],
                                     .pad = {attr->pad[0], attr->pad[2]}};
    const int64_t most = (int64_t)1 << 30; /* tiles of at least 32 pixels: fewer than 2^31 of them */

    plan->quiet = attr->groups == 1 || !gpu_of(device)->own_grouped;
    if (!gpu_of(device)->own_grouped)
        return cvy_fail(CVY_UNAVAILABLE, "CONVOY_CUDA_GROUPED is not \"own\"");
    if (x->dtype != CVY_F16 && x->dtype != CVY_BF16)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for groups compute in f16 and bf16");
    if (!fits_kernel(attr, call.width, y->shape.dim[1] / attr->groups) || call.channels % 32 != 0)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for groups do 3x3 of 4, 8, 16 or 32 channels each");
    if (call.n * call.h * call.w > most || call.n * call.p * call.q > most || call.h > 8192 || call.w > 8192)
        return cvy_fail(CVY_UNAVAILABLE, "the images are too large or too many");
    for (int i = others; i < CVY_MAX_INPUTS; i++) {
        if (cvy_tensor_present(&desc->in[i]))
            return cvy_fail(CVY_UNAVAILABLE, "our kernels for groups do the convolution alone");
    }
    if (attr->activation != CVY_ACTIVATION_NONE && desc->op == CVY_OP_CONV2D)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for groups do the convolution alone");
    return gpu_state(plan, &call, sizeof call);
}

cvy_status gpu_conv2d_grouped_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cvy_shape *y = &desc->out[0].shape;
    int64_t tiles, floats;
    enum cvy_dtype dtype;

    CVY_TRY(gpu_expect(desc, 0xB, 1, 0, 0, &dtype)); /* all but the bias */
    CVY_TRY(prepare(device, desc, &desc->in[0], &desc->out[0], 2, plan));
    gpu_lay_out(desc, 3, 1);
    if (!cvy_tensor_present(&desc->out[1]))
        return CVY_OK;
    gpu_batch_norm_shape(y->dim[0] * y->dim[2] * y->dim[3], y->dim[1], &tiles, &floats);
    if (tiles > GPU_TICKETS)
        return cvy_fail(CVY_UNAVAILABLE, "%lld channels are too many", (long long)y->dim[1]);
    plan->scratch_bytes = (size_t)floats * sizeof(float);
    return CVY_OK;
}

cvy_status gpu_conv2d_grouped_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    const struct gpu_grouped *call = plan->state;
    struct gpu_device *gpu = gpu_of(device);

    gpu_grouped_forward(gpu->stream, call, in[0], in[1], out[0]);
    if (out[1])
        gpu_statistics(gpu->stream, call->dtype, out[0], call->n * call->p * call->q, call->channels, out[1], out[2],
                       scratch, gpu->tickets);
    return gpu_queued(gpu);
}

cvy_status gpu_conv2d_bwd_data_grouped_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                               struct cvy_kernel_plan *plan)
{
    enum cvy_dtype dtype;

    CVY_TRY(gpu_expect(desc, 7, 1, 0, 0, &dtype));
    CVY_TRY(prepare(device, desc, &desc->out[0], &desc->in[1], 2, plan));
    gpu_lay_out(desc, 3, 1);
    return CVY_OK;
}

cvy_status gpu_conv2d_bwd_data_grouped_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                           void *const *out, void *scratch)
{
    (void)scratch;
    gpu_grouped_data(gpu_of(device)->stream, plan->state, in[0], in[1], out[0]);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_conv2d_bwd_weights_grouped_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                  struct cvy_kernel_plan *plan)
{
    enum cvy_dtype dtype;

    CVY_TRY(gpu_expect(desc, 3, 0, 0, 0, &dtype));
    CVY_TRY(prepare(device, desc, &desc->in[0], &desc->in[1], 2, plan));
    gpu_lay_out(desc, 3, 0);
    plan->scratch_bytes = (size_t)gpu_grouped_scratch(plan->state) * sizeof(float);
    return CVY_OK;
}

cvy_status gpu_conv2d_bwd_weights_grouped_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                              void *const *out, void *scratch)
{
    gpu_grouped_weights(gpu_of(device)->stream, plan->state, in[0], in[1], out[0], scratch);
    return gpu_queued(gpu_of(device));
}
