/* Rows of softmax and its cross-entropy, and of the gradients of biases. */
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

struct rows {
    int64_t rows, columns;
    enum cvy_dtype dtype; /* of conv2d_bwd_bias */
    float smoothing;
    bool labels;
};

static cvy_status rows_prepare(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    enum cvy_dtype dtype;
    struct rows rows = {
        .rows = desc->in[0].shape.dim[0],
        .columns = desc->in[0].shape.dim[1],
        .smoothing = desc->op == CVY_OP_SOFTMAX ? 0 : desc->attr.loss.smoothing,
        .labels = desc->inputs > 1 && desc->in[1].dtype == CVY_I32,
    };

    CVY_TRY(gpu_expect(desc, 0, 0, rows.labels ? 2 : 0, 0, &dtype));
    gpu_lay_out(desc, 0, 0);
    return gpu_state(plan, &rows, sizeof rows);
}

cvy_status gpu_softmax_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return rows_prepare(desc, plan);
}

cvy_status gpu_softmax_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                           void *scratch)
{
    const struct rows *rows = plan->state;

    (void)scratch;
    gpu_softmax(gpu_of(device)->stream, in[0], out[0], rows->rows, rows->columns);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_softmax_cross_entropy_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    plan->scratch_bytes = (size_t)desc->in[0].shape.dim[0] * sizeof(float);
    return rows_prepare(desc, plan);
}

cvy_status gpu_softmax_cross_entropy_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                         void *const *out, void *scratch)
{
    const struct rows *rows = plan->state;

    gpu_cross_entropy(gpu_of(device)->stream, in[0], rows->labels ? in[1] : NULL, rows->labels ? NULL : in[1],
                      rows->smoothing, out[0], out[1], scratch, rows->rows, rows->columns);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_softmax_cross_entropy_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                 struct cvy_kernel_plan *plan)
{
    (void)device;
    return rows_prepare(desc, plan);
}

cvy_status gpu_softmax_cross_entropy_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                             void *const *out, void *scratch)
{
    const struct rows *rows = plan->state;

    (void)scratch;
    gpu_cross_entropy_bwd(gpu_of(device)->stream, in[0], rows->labels ? in[1] : NULL, rows->labels ? NULL : in[1],
                          rows->smoothing, in[2], out[0], rows->rows, rows->columns);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_conv2d_bwd_bias_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const int64_t *dim = desc->in[0].shape.dim;
    struct rows rows = {.rows = dim[0] * dim[2] * dim[3]};

    (void)device;
    CVY_TRY(gpu_expect(desc, 1, 0, 0, 0, &rows.dtype));
    if (dim[1] < 4)
        return cvy_fail(CVY_UNAVAILABLE, "a convolution of %d outputs is too narrow", (int)dim[1]);
    gpu_lay_out(desc, 1, 0);
    rows.columns = dim[1];
    return gpu_state(plan, &rows, sizeof rows);
}

cvy_status gpu_conv2d_bwd_bias_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    const struct rows *rows = plan->state;

    (void)scratch;
    gpu_column_sums(gpu_of(device)->stream, rows->dtype, in[0], out[0], rows->rows, rows->columns);
    return gpu_queued(gpu_of(device));
}
