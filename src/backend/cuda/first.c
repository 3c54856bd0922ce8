/* Rows of first convolutions, of images of few channels, on our own kernels (kernels/first.cu), candidates beside the
 * engine's: taken where they were measured to be faster, and where nothing is timed not (CONVOY_CUDA_FIRST). */
#include "backend/cuda/conv_engine.h"
#include "backend/cuda/kernels/kernels.h"

static const char kernels_name[] = "first 2"; /* kept times are of this name: a new number for new kernels */
enum {
    MAX_PLANES = 4,
    MAX_TAPS = 7, /* of a filter, either way */
    MAX_PIXELS = 1 << 30,
    MAX_SIDE = 8192,      /* of an image, whose 8 channels of a pixel 32 bits count */
    MAX_RESULT = 1 << 30, /* outputs of an image, with tiles beyond its border */
};

struct first {
    struct gpu_first call;
    bool bias, statistics;
    bool sums;       /* the convolution's kernel makes the statistics; else another one reads y */
    int64_t scratch; /* floats: sums of blocks, or pieces of a gradient */
};

static cvy_status check_shape(const struct gpu_conv_problem *p)
{
    if (p->dtype != CVY_F16 && p->dtype != CVY_BF16)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for first convolutions compute in f16 and bf16");
    if (p->r > MAX_TAPS || p->s > MAX_TAPS || p->dilation[0] != 1 || p->dilation[1] != 1 ||
        p->stride[0] != p->stride[1] || p->stride[0] > 2 || p->k % 8 != 0)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for first convolutions do up to 7x7 at strides 1 and 2, of "
                                         "outputs that 8 divides");
    if (p->n * p->h * p->w > MAX_PIXELS || p->n * p->p * p->q > MAX_PIXELS || p->h > MAX_SIDE || p->w > MAX_SIDE ||
        p->p > MAX_SIDE || p->q > MAX_SIDE || p->p * p->q * p->k > MAX_RESULT || p->k > GPU_TICKETS)
        return cvy_fail(CVY_UNAVAILABLE, "the images are too large or too many");
    if (p->residual || p->prologue != GPU_PART_NONE)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for first convolutions take no other image");
    return CVY_OK;
}

/* CVY_UNAVAILABLE where the kernels do not do it. */
static cvy_status first_of(const struct gpu_device *device, const struct gpu_conv_problem *p, int64_t planes,
                           struct first *first)
{
    CVY_TRY(check_shape(p));
    first->call = (struct gpu_first){.dtype = p->dtype,
                                     .n = p->n,
                                     .h = p->h,
                                     .w = p->w,
                                     .p = p->p,
                                     .q = p->q,
                                     .outputs = p->k,
                                     .channels = (int32_t)p->c,
                                     .planes = (int32_t)planes,
                                     .kernel = {p->r, p->s},
                                     .stride = p->stride[0],
                                     .pad = {p->pad[0], p->pad[2]},
                                     .activation = p->activation};
    first->bias = p->bias;
    first->statistics = p->statistics != GPU_STATISTICS_NONE;
    first->sums = first->statistics && device->statistics != GPU_STATISTICS_ALWAYS_SEPARATE;
    if (p->pass == GPU_CONV_WEIGHTS)
        first->scratch = gpu_first_weights_scratch(&first->call);
    else if (first->sums)
        first->scratch = gpu_first_statistics_scratch(&first->call);
    else if (first->statistics) {
        int64_t tiles;
        gpu_batch_norm_shape(p->n * p->p * p->q, p->k, &tiles, &first->scratch);
    }
    return CVY_OK;
}

static void queue_forward(struct gpu_device *device, const struct first *first, struct gpu_first_memory memory)
{
    const struct gpu_first *call = &first->call;
    float *mean = memory.mean;

    memory.tickets = device->tickets;
    if (!first->bias)
        memory.bias = NULL;
    if (!first->sums)
        memory.mean = NULL;
    gpu_first_forward(device->stream, call, &memory);
    if (first->statistics && !first->sums)
        gpu_statistics(device->stream, call->dtype, memory.y, call->n * call->p * call->q, call->outputs, mean,
                       memory.variance, memory.scratch, device->tickets);
}

/* ---- the choice ---- */

struct candidate {
    const struct gpu_conv_problem *problem;
    struct first first;
};

static cvy_status run_candidate(struct gpu_device *device, const void *context, const struct gpu_conv_memory *memory)
{
    const struct candidate *candidate = context;
    const struct first *first = &candidate->first;

    if (candidate->problem->pass == GPU_CONV_WEIGHTS) {
        /* The result lies after the pieces. */
        gpu_first_weights(device->stream, &first->call, memory->x, memory->y, (float *)memory->scratch + first->scratch,
                          memory->scratch);
        return gpu_queued(device);
    }
    queue_forward(device, first,
                  (struct gpu_first_memory){.x = memory->x,
                                            .w = memory->w,
                                            .bias = memory->bias,
                                            .y = memory->y,
                                            .mean = memory->mean,
                                            .variance = memory->variance,
                                            .scratch = memory->scratch});
    return gpu_queued(device);
}

/* ---- rows ---- */

/* plan->state becomes a struct first. */
static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct gpu_conv_problem *problem,
                          struct cvy_kernel_plan *plan)
{
    struct gpu_device *gpu = gpu_of(device);
    const int64_t planes = desc->in[0].shape.dim[1];
    struct candidate candidate = {.problem = problem};
    struct gpu_own_conv own = {.name = kernels_name, .run = run_candidate, .context = &candidate};

    plan->quiet = desc->attr.conv2d.groups != 1 || planes > MAX_PLANES || gpu->first == GPU_OWN_NEVER;
    if (plan->quiet)
        return cvy_fail(CVY_UNAVAILABLE, "not for our kernels for first convolutions");
    CVY_TRY(gpu_conv_describe(desc, problem));
    plan->quiet = gpu->first == GPU_OWN_TIMED && !gpu_conv_is_timed(gpu, problem);
    if (plan->quiet)
        return cvy_fail(CVY_UNAVAILABLE, "not timed");
    CVY_TRY(gpu_check_tensor_cores(gpu));
    CVY_TRY(first_of(gpu, problem, planes, &candidate.first));
    own.scratch_bytes = (size_t)candidate.first.scratch * sizeof(float);
    plan->scratch_bytes = own.scratch_bytes;
    if (problem->pass == GPU_CONV_WEIGHTS)
        own.scratch_bytes += (size_t)(problem->k * planes * problem->r * problem->s) * sizeof(float);
    if (gpu->first == GPU_OWN_TIMED)
        CVY_TRY(gpu_own_compare(gpu, problem, &own, plan));
    return gpu_state(plan, &candidate.first, sizeof candidate.first);
}

cvy_status gpu_conv2d_first_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct gpu_conv_problem problem;
    const struct first *first;

    CVY_TRY(prepare(device, desc, &problem, plan));
    first = plan->state;
    if (!first->sums) {
        plan->extra_launches = gpu_norm_extra(&problem).launches;
        plan->extra_bytes = gpu_norm_extra(&problem).bytes;
    }
    return CVY_OK;
}

cvy_status gpu_conv2d_first_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    queue_forward(gpu_of(device), plan->state,
                  (struct gpu_first_memory){.x = in[0],
                                            .w = in[1],
                                            .bias = in[2],
                                            .y = out[0],
                                            .mean = out[1],
                                            .variance = out[2],
                                            .scratch = scratch});
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_conv2d_bwd_weights_first_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                struct cvy_kernel_plan *plan)
{
    struct gpu_conv_problem problem;

    CVY_TRY(prepare(device, desc, &problem, plan));
    plan->extra_launches = 1; /* adds the pieces */
    plan->extra_bytes = 2 * (int64_t)plan->scratch_bytes;
    return CVY_OK;
}

cvy_status gpu_conv2d_bwd_weights_first_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                            void *const *out, void *scratch)
{
    const struct first *first = plan->state;

    gpu_first_weights(gpu_of(device)->stream, &first->call, in[0], in[1], out[0], scratch);
    return gpu_queued(gpu_of(device));
}
