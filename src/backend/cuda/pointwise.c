/* Rows of 1x1 convolutions with the statistics of their output on our own kernels (kernels/pointwise.cu), candidates
 * beside the engine's: taken where they were measured to be faster, and where nothing is timed not
 * (CONVOY_CUDA_POINTWISE). */
#include "backend/cuda/conv_engine.h"
#include "backend/cuda/kernels/kernels.h"

static const char kernels_name[] = "pointwise 2"; /* kept times are of this name: a new number for new kernels */
enum { MAX_PIXELS = 1 << 30 };

/* A block takes 96 KiB of shared memory, which Turing has not. */
static cvy_status check_shared_memory(const struct gpu_device *device)
{
    return device->info.major < 8 && !device->described
               ? cvy_fail(CVY_UNAVAILABLE, "our kernels for 1x1 convolutions need compute capability 8.0")
               : CVY_OK;
}

/* CVY_UNAVAILABLE where the kernels do not do it. */
static cvy_status call_of(const struct gpu_conv_problem *p, struct gpu_pointwise *call)
{
    if (p->dtype != CVY_F16 && p->dtype != CVY_BF16)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for 1x1 convolutions compute in f16 and bf16");
    if (p->stride[0] != p->stride[1] || p->pad[0] != 0 || p->pad[1] != 0 || p->pad[2] != 0 || p->pad[3] != 0 ||
        p->c % 8 != 0 || p->k % 8 != 0)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for 1x1 convolutions do those without padding, of channels that "
                                         "8 divides");
    if (p->n * p->h * p->w > MAX_PIXELS || p->c > INT32_MAX / 2 || p->k > INT32_MAX / 2)
        return cvy_fail(CVY_UNAVAILABLE, "the images are too large or too many");
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
