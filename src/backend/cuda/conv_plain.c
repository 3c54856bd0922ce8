/* Rows of the convolutions that the engine does not support: narrow groups, few outputs. Any shape, in plain layouts;
 * slow.
 */
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

static cvy_status prepare_plain(struct cvy_op_desc *desc, const struct cvy_tensor *x, const struct cvy_tensor *y,
                                struct cvy_kernel_plan *plan)
{
    const struct cvy_conv2d_attr *attr = &desc->attr.conv2d;
    const struct gpu_plain_conv conv = {
        .dtype = x->dtype,
        .n = x->shape.dim[0],
        .c = x->shape.dim[1],
        .h = x->shape.dim[2],
        .w = x->shape.dim[3],
        .k = y->shape.dim[1],
        .p = y->shape.dim[2],
        .q = y->shape.dim[3],
        .r = attr->kernel[0],
        .s = attr->kernel[1],
        .stride = {attr->stride[0], attr->stride[1]},
        .dilation = {attr->dilation[0], attr->dilation[1]},
        .pad = {attr->pad[0], attr->pad[2]},
        .groups = attr->groups,
        .activation = attr->activation,
    };

    for (int i = desc->op == CVY_OP_CONV2D ? 4 : 2; i < CVY_MAX_INPUTS; i++) {
        if (cvy_tensor_present(&desc->in[i]))
            return cvy_fail(CVY_UNAVAILABLE, "this kernel knows nothing of a batch norm before the convolution");
    }
    gpu_lay_out(desc, 0, 0);
    return gpu_state(plan, &conv, sizeof conv);
}

cvy_status gpu_conv2d_plain_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    enum cvy_dtype dtype;

    CVY_TRY(gpu_expect(desc, 0xB, 1, 0, 0, &dtype)); /* all but the bias */
    if (cvy_tensor_present(&desc->out[1])) {
        plan->extra_launches = 1;
        plan->extra_bytes = (int64_t)gpu_tensor_bytes(device, &desc->out[0]);
    }
    return prepare_plain(desc, &desc->in[0], &desc->out[0], plan);
}

cvy_status gpu_conv2d_plain_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    (void)scratch;
    gpu_plain_forward(gpu_of(device)->stream, plan->state, in[0], in[1], in[2], in[3], out[0]);
    if (out[1])
        gpu_plain_statistics(gpu_of(device)->stream, plan->state, out[0], out[1], out[2]);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_conv2d_bwd_data_plain_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    enum cvy_dtype dtype;

    (void)device;
    CVY_TRY(gpu_expect(desc, 3, 1, 0, 0, &dtype));
    return prepare_plain(desc, &desc->out[0], &desc->in[1], plan);
}

cvy_status gpu_conv2d_bwd_data_plain_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                         void *const *out, void *scratch)
{
    (void)scratch;
    gpu_plain_data(gpu_of(device)->stream, plan->state, in[0], in[1], out[0]);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_conv2d_bwd_weights_plain_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                struct cvy_kernel_plan *plan)
{
    enum cvy_dtype dtype;

    (void)device;
    CVY_TRY(gpu_expect(desc, 3, 0, 0, 0, &dtype));
    return prepare_plain(desc, &desc->in[0], &desc->in[1], plan);
}

cvy_status gpu_conv2d_bwd_weights_plain_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                            void *const *out, void *scratch)
{
    (void)scratch;
    gpu_plain_weights(gpu_of(device)->stream, plan->state, in[0], in[1], out[0]);
    return gpu_queued(gpu_of(device));
}
