/* Rows of 1x1 convolutions with the statistics of their output on our own kernels (kernels/pointwise.cu), candidates
 * beside the engine's: taken where they were measured to be faster, and where nothing is timed not
 * (CONVOY_CUDA_POINTWISE). And of their gradients of data with the sums of the batch norm before, where that has a
 * residual: what a block ends with. */
#include <stdio.h>

#include "backend/cuda/conv_engine.h"
#include "backend/cuda/kernels/kernels.h"

/* Kept times are of these names: new numbers for new kernels. */
static const char kernels_name[] = "pointwise 2", backward_name[] = "pointwise backward 1";
enum { MAX_PIXELS = 1 << 30 };

/* A block takes 96 KiB of shared memory, which Turing has not. */
static cvy_status check_shared_memory(const struct gpu_device *device)
{
    return device->info.major < 8 && !device->described
               ? cvy_fail(CVY_UNAVAILABLE, "our kernels for 1x1 convolutions need compute capability 8.0")
               : CVY_OK;
}

/* CVY_UNAVAILABLE where the kernels do not do it, in either direction. */
static cvy_status check_problem(const struct gpu_conv_problem *p)
{
    if (p->dtype != CVY_F16 && p->dtype != CVY_BF16)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for 1x1 convolutions compute in f16 and bf16");
    if (p->stride[0] != p->stride[1] || p->pad[0] != 0 || p->pad[1] != 0 || p->pad[2] != 0 || p->pad[3] != 0 ||
        p->c % 8 != 0 || p->k % 8 != 0)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for 1x1 convolutions do those without padding, of channels that "
                                         "8 divides");
    if (p->n * p->h * p->w > MAX_PIXELS || p->c > INT32_MAX / 2 || p->k > INT32_MAX / 2)
        return cvy_fail(CVY_UNAVAILABLE, "the images are too large or too many");
    return CVY_OK;
}

static cvy_status call_of(const struct gpu_conv_problem *p, struct gpu_pointwise *call)
{
    CVY_TRY(check_problem(p));
    if (p->bias || p->residual || p->activation != CVY_ACTIVATION_NONE || p->prologue != GPU_PART_NONE)
        return cvy_fail(CVY_UNAVAILABLE,
                        "our kernels for 1x1 convolutions do the convolution and its statistics alone");
    *call = (struct gpu_pointwise){.dtype = p->dtype,
                                   .n = p->n,
                                   .h = p->h,
                                   .w = p->w,
                                   .p = p->p,
                                   .q = p->q,
                                   .inputs = p->c,
                                   .outputs = p->k,
                                   .stride = p->stride[0]};
    return CVY_OK;
}

static cvy_status run_candidate(struct gpu_device *device, const void *context, const struct gpu_conv_memory *memory)
{
    gpu_pointwise_forward(device->stream, context, memory->x, memory->w, memory->y, memory->mean, memory->variance,
                          memory->scratch);
    return gpu_queued(device);
}

cvy_status gpu_conv2d_pointwise_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct gpu_device *gpu = gpu_of(device);
    const struct cvy_conv2d_attr *attr = &desc->attr.conv2d;
    struct gpu_conv_problem problem;
    struct gpu_pointwise call;
    struct gpu_own_conv own = {.name = kernels_name, .run = run_candidate, .context = &call};

    plan->quiet = attr->groups != 1 || attr->kernel[0] != 1 || attr->kernel[1] != 1 ||
                  !cvy_tensor_present(&desc->out[1]) || gpu->pointwise == GPU_OWN_NEVER ||
                  gpu->statistics == GPU_STATISTICS_ALWAYS_SEPARATE;
    if (plan->quiet)
        return cvy_fail(CVY_UNAVAILABLE, "not for our kernels for 1x1 convolutions");
    CVY_TRY(gpu_conv_describe(desc, &problem));
    plan->quiet = gpu->pointwise == GPU_OWN_TIMED && !gpu_conv_is_timed(gpu, &problem);
    if (plan->quiet)
        return cvy_fail(CVY_UNAVAILABLE, "not timed");
    CVY_TRY(check_shared_memory(gpu));
    CVY_TRY(call_of(&problem, &call));
    own.scratch_bytes = (size_t)gpu_pointwise_scratch(&call) * sizeof(float);
    plan->scratch_bytes = own.scratch_bytes;
    plan->extra_launches = 1; /* adds the sums up */
    plan->extra_bytes = 2 * (int64_t)plan->scratch_bytes;
    if (gpu->pointwise == GPU_OWN_TIMED)
        CVY_TRY(gpu_own_compare(gpu, &problem, &own, plan));
    return gpu_state(plan, &call, sizeof call);
}

cvy_status gpu_conv2d_pointwise_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                    void *const *out, void *scratch)
{
    gpu_pointwise_forward(gpu_of(device)->stream, plan->state, in[0], in[1], out[0], out[1], out[2], scratch);
    return gpu_queued(gpu_of(device));
}

/* ---- the gradient of data at the end of a block ---- */

static cvy_status backward_call_of(const struct gpu_conv_problem *p, struct gpu_pointwise *call)
{
    if (p->r != 1 || p->s != 1 || p->groups != 1 || p->stride[0] != 1 || p->stride[1] != 1)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for gradients with sums do 1x1 convolutions at stride 1");
    CVY_TRY(check_problem(p));
    *call = (struct gpu_pointwise){.dtype = p->dtype,
                                   .n = p->n,
                                   .h = p->h,
                                   .w = p->w,
                                   .p = p->h,
                                   .q = p->w,
                                   .inputs = p->k,
                                   .outputs = p->c,
                                   .stride = 1};
    return CVY_OK;
}

static cvy_status run_backward(struct gpu_device *device, const void *context, const struct gpu_conv_memory *memory)
{
    const struct gpu_pointwise_gradient gradient = {.dy = memory->y,
                                                    .w = memory->w,
                                                    .x = memory->norm_x,
                                                    .more = memory->residual,
                                                    .sign = memory->sign,
                                                    .mean = memory->norm_mean,
                                                    .rstd = memory->norm_rstd,
                                                    .dx = memory->x,
                                                    .dgamma = memory->dgamma,
                                                    .dbeta = memory->dbeta};

    gpu_pointwise_backward(device->stream, context, &gradient, memory->scratch);
    return gpu_queued(device);
}

static size_t backward_scratch(const struct gpu_pointwise *call)
{
    return (size_t)gpu_pointwise_scratch(call) * sizeof(float);
}

cvy_status gpu_pointwise_backward_ask(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                      double *seconds)
{
    struct gpu_pointwise call;

    *seconds = 0;
    if (device->pointwise == GPU_OWN_NEVER)
        return cvy_fail(CVY_UNAVAILABLE, "kernels of our own are not asked for");
    CVY_TRY(check_shared_memory(device));
    CVY_TRY(backward_call_of(problem, &call));
    const struct gpu_own_conv own = {
        .name = backward_name, .run = run_backward, .context = &call, .scratch_bytes = backward_scratch(&call)};
    if (device->pointwise == GPU_OWN_ALWAYS || device->patterns == GPU_STATISTICS_ALWAYS_FUSED)
        return CVY_OK;
    if (!gpu_conv_is_timed(device, problem))
        return cvy_fail(CVY_UNAVAILABLE, "not timed");
    CVY_TRY(gpu_own_seconds(device, problem, &own, seconds));
    return *seconds > 0 ? CVY_OK
                        : cvy_fail(CVY_UNAVAILABLE, "our kernel was not timed, or is left out as a warning has said");
}

/* Whether that is worth its while was asked before the graph came to be so (patterns.c). */
cvy_status gpu_conv2d_bwd_data_pointwise_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                 struct cvy_kernel_plan *plan)
{
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_conv_problem problem;
    struct gpu_pointwise call;

    plan->quiet = !cvy_tensor_present(&desc->in[8]) || gpu_form_of(&desc->in[7]) != GPU_FORM_SIGN ||
                  gpu->pointwise == GPU_OWN_NEVER;
    if (plan->quiet)
        return cvy_fail(CVY_UNAVAILABLE, "not for our kernels for gradients with sums");
    CVY_TRY(check_shared_memory(gpu));
    CVY_TRY(gpu_conv_describe(desc, &problem));
    CVY_TRY(backward_call_of(&problem, &call));
    plan->in_place[0] = 8;
    plan->scratch_bytes = backward_scratch(&call);
    plan->extra_launches = 1; /* adds the sums up */
    plan->extra_bytes = 2 * (int64_t)plan->scratch_bytes;
    snprintf(plan->implementation, sizeof plan->implementation, "with a second gradient, mask and sums");
    return gpu_state(plan, &call, sizeof call);
}

cvy_status gpu_conv2d_bwd_data_pointwise_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                             void *const *out, void *scratch)
{
    const struct gpu_pointwise_gradient gradient = {.dy = in[1],
                                                    .w = in[0],
                                                    .x = in[2],
                                                    .more = in[8],
                                                    .sign = in[7],
                                                    .mean = in[5],
                                                    .rstd = in[6],
                                                    .dx = out[0],
                                                    .dgamma = out[1],
                                                    .dbeta = out[2]};

    gpu_pointwise_backward(gpu_of(device)->stream, plan->state, &gradient, scratch);
    return gpu_queued(gpu_of(device));
}
