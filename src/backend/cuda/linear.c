/* Rows of the fully connected layer: matrix products of f32. */
#include "backend/cuda/gemm.h"
#include "backend/cuda/kernels/kernels.h"

struct linear {
    struct gpu_gemm *gemm;
    int64_t rows, columns; /* of dy, for the gradient of the bias */
};

static cvy_status linear_prepare(cvy_device *device, struct cvy_op_desc *desc, const struct gpu_gemm_problem *problem,
                                 struct cvy_kernel_plan *plan)
{
    struct linear *linear;
    enum cvy_dtype dtype;
    cvy_status status;

    CVY_TRY(gpu_expect(desc, 0, 0, 0, 0, &dtype));
    gpu_lay_out(desc, 0, 0);
    linear = cvy_calloc(1, sizeof *linear);
    if (!linear)
        return cvy_fail_memory(sizeof *linear, plan->kernel->name);
    plan->state = linear;
    status = gpu_gemm_open(gpu_of(device), problem, &linear->gemm);
    if (status == CVY_OK)
        plan->scratch_bytes = gpu_gemm_scratch(linear->gemm);
    return status;
}

void gpu_linear_release(cvy_device *device, struct cvy_kernel_plan *plan)
{
    struct linear *linear = plan->state;

    (void)device;
    if (linear)
        gpu_gemm_close(linear->gemm);
    cvy_free(linear);
    plan->state = NULL;
}

/* y = x w^T + bias */
cvy_status gpu_linear_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct gpu_gemm_problem problem = {
        .m = desc->in[0].shape.dim[0],
        .n = desc->in[1].shape.dim[0],
        .k = desc->in[0].shape.dim[1],
        .transpose_b = true,
        .bias = desc->inputs > 2 && cvy_tensor_present(&desc->in[2]),
        .tf32 = device->tf32,
    };

    return linear_prepare(device, desc, &problem, plan);
}

cvy_status gpu_linear_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                          void *scratch)
{
    const struct linear *linear = plan->state;

    return gpu_gemm_run(gpu_of(device), linear->gemm, in[0], in[1], in[2], out[0], scratch);
}

/* dx = dy w */
cvy_status gpu_linear_bwd_data_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct gpu_gemm_problem problem = {
        .m = desc->in[1].shape.dim[0],
        .n = desc->in[0].shape.dim[1],
        .k = desc->in[1].shape.dim[1],
        .tf32 = device->tf32,
    };

    return linear_prepare(device, desc, &problem, plan);
}

cvy_status gpu_linear_bwd_data_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    const struct linear *linear = plan->state;

    return gpu_gemm_run(gpu_of(device), linear->gemm, in[1], in[0], NULL, out[0], scratch);
}

/* dw = dy^T x, dbias = the sums of dy's columns */
cvy_status gpu_linear_bwd_weights_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct gpu_gemm_problem problem = {
        .m = desc->in[1].shape.dim[1],
        .n = desc->in[0].shape.dim[1],
        .k = desc->in[0].shape.dim[0],
        .transpose_a = true,
        .tf32 = device->tf32,
    };
    struct linear *linear;

    CVY_TRY(linear_prepare(device, desc, &problem, plan));
    linear = plan->state;
    linear->rows = desc->in[1].shape.dim[0];
    linear->columns = desc->in[1].shape.dim[1];
    if (desc->outputs > 1 && cvy_tensor_present(&desc->out[1])) {
        plan->extra_launches = 1;
        plan->extra_bytes = (int64_t)gpu_tensor_bytes(device, &desc->in[1]);
    }
    return CVY_OK;
}

cvy_status gpu_linear_bwd_weights_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                      void *const *out, void *scratch)
{
    const struct linear *linear = plan->state;

    CVY_TRY(gpu_gemm_run(gpu_of(device), linear->gemm, in[1], in[0], NULL, out[0], scratch));
    if (!out[1])
        return CVY_OK;
    gpu_column_sums(gpu_of(device)->stream, CVY_F32, in[1], out[1], linear->rows, linear->columns);
    return gpu_queued(gpu_of(device));
}
