/* Rows of softmax and its cross-entropy, and of the gradients of biases. */
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

struct rows {
    int64_t rows, columns;
    enum cvy_dtype dtype; /* of conv2d_bwd_bias */
    float smoothing;
    bool labels;
};

/* `partners`: the input that holds them, before coefficients and class weights; 0 where there is no target. */
static cvy_status rows_prepare(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, int partners)
{
    enum cvy_dtype dtype;
    struct rows rows = {
        .rows = desc->in[0].shape.dim[0],
        .columns = desc->in[0].shape.dim[1],
        .smoothing = desc->op == CVY_OP_SOFTMAX ? 0 : desc->attr.loss.smoothing,
        .labels = partners > 0 && desc->in[1].dtype == CVY_I32,
    };

    if (partners > 0 && cvy_tensor_present(&desc->in[partners]) && desc->in[partners].dtype != CVY_I32)
        return cvy_fail(CVY_UNAVAILABLE, "partners are i32, not %s", cvy_dtype_name(desc->in[partners].dtype));
    CVY_TRY(gpu_expect(desc, 0, 0, (rows.labels ? 1U << 1 : 0) | (partners > 0 ? 1U << partners : 0), 0, &dtype));
    gpu_lay_out(desc, 0, 0);
    return gpu_state(plan, &rows, sizeof rows);
}

cvy_status gpu_softmax_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return rows_prepare(desc, plan, 0);
}

static struct gpu_targets targets_of(const struct rows *rows, void *const *in, int partners)
{
    return (struct gpu_targets){
        .labels = rows->labels ? in[1] : NULL,
        .soft = rows->labels ? NULL : in[1],
        .partner = in[partners],
        .coefficient = in[partners + 1],
        .class_weights = in[partners + 2],
        .smoothing = rows->smoothing,
    };
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
    plan->extra_launches = 1; /* the mean of the rows' losses */
    return rows_prepare(desc, plan, 2);
}

cvy_status gpu_softmax_cross_entropy_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                         void *const *out, void *scratch)
{
    const struct rows *rows = plan->state;
    const struct gpu_targets targets = targets_of(rows, in, 2);

    gpu_cross_entropy(gpu_of(device)->stream, in[0], &targets, out[0], out[1], scratch, rows->rows, rows->columns);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_softmax_cross_entropy_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                 struct cvy_kernel_plan *plan)
{
    (void)device;
    return rows_prepare(desc, plan, 3);
}

cvy_status gpu_softmax_cross_entropy_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                             void *const *out, void *scratch)
{
    const struct rows *rows = plan->state;
    const struct gpu_targets targets = targets_of(rows, in, 3);

    (void)scratch;
    gpu_cross_entropy_bwd(gpu_of(device)->stream, in[0], &targets, in[2], out[0], rows->rows, rows->columns);
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
