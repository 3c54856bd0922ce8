/* Rows of grouped 3x3 convolutions on our own kernels (kernels/grouped.cu), candidates beside the engine's: taken where
 * they were measured to be faster, and where nothing is timed not (CONVOY_CUDA_GROUPED). */
#include "backend/cuda/conv_engine.h"
#include "backend/cuda/kernels/kernels.h"

static const char kernels_name[] = "grouped 3"; /* kept times are of this name: a new number for new kernels */
enum { MAX_PIXELS_PER_IMAGE = 1 << 30, MAX_SIDE = 8192 }; /* tiles of at least 32 pixels: fewer than 2^31 of them */

/* CVY_UNAVAILABLE where the kernels do not do it. */
static cvy_status call_of(const struct gpu_conv_problem *p, struct gpu_grouped *call)
{
    const int64_t width = p->c / p->groups;

    if (p->dtype != CVY_F16 && p->dtype != CVY_BF16)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for groups compute in f16 and bf16");
    if (p->r != 3 || p->s != 3 || p->dilation[0] != 1 || p->dilation[1] != 1 || p->stride[0] != p->stride[1] ||
        p->stride[0] > 2 || p->k != p->c || p->c % 32 != 0 || (width != 4 && width != 8 && width != 16 && width != 32))
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for groups do 3x3 of 4, 8, 16 or 32 channels each");
    if (p->n * p->h * p->w > MAX_PIXELS_PER_IMAGE || p->n * p->p * p->q > MAX_PIXELS_PER_IMAGE || p->h > MAX_SIDE ||
        p->w > MAX_SIDE || (p->h + 2) * (p->w + 2) * p->c > INT32_MAX || p->p * p->q * p->c > INT32_MAX)
        return cvy_fail(CVY_UNAVAILABLE, "the images are too large or too many");
    if (p->bias || p->residual || p->activation != CVY_ACTIVATION_NONE || p->prologue != GPU_PART_NONE ||
        p->gradient_sums != GPU_PART_NONE)
        return cvy_fail(CVY_UNAVAILABLE, "our kernels for groups do the convolution alone");
    *call = (struct gpu_grouped){.dtype = p->dtype,
                                 .n = p->n,
                                 .h = p->h,
                                 .w = p->w,
                                 .p = p->p,
                                 .q = p->q,
                                 .channels = p->c,
                                 .width = (int32_t)width,
                                 .stride = p->stride[0],
                                 .pad = {p->pad[0], p->pad[2]}};
    return CVY_OK;
}

/* At stride 1 there are kernels by rows, for which Turing has too little shared memory. */
static bool is_by_rows(const struct gpu_device *device, const struct gpu_grouped *call)
{
    return call->stride == 1 && (device->info.major >= 8 || device->described);
}

/* For statistics of a forward pass: by rows they are made on the way, else of what it wrote. */
static size_t statistics_bytes(const struct gpu_device *device, const struct gpu_conv_problem *problem,
                               const struct gpu_grouped *call)
{
    int64_t tiles, floats;

    if (problem->statistics == GPU_STATISTICS_NONE)
        return 0;
    if (is_by_rows(device, call))
        floats = gpu_grouped_rows_sums(call);
    else
        gpu_batch_norm_shape(problem->n * problem->p * problem->q, problem->k, &tiles, &floats);
    return (size_t)floats * sizeof(float);
}

static int64_t weights_floats(const struct gpu_device *device, const struct gpu_grouped *call)
{
    return is_by_rows(device, call) ? gpu_grouped_rows_scratch(call) : gpu_grouped_scratch(call);
}

/* `mean` NULL: no statistics. */
static void queue_forward(struct gpu_device *device, const struct gpu_grouped *call, const void *x, const void *w,
                          void *y, float *mean, float *variance, void *scratch)
{
    if (is_by_rows(device, call)) {
        gpu_grouped_rows_forward(device->stream, call, x, w, y, mean, variance, scratch);
        return;
    }
    gpu_grouped_forward(device->stream, call, x, w, y);
    if (mean)
        gpu_statistics(device->stream, call->dtype, y, call->n * call->p * call->q, call->channels, mean, variance,
                       scratch, device->tickets);
}

static void queue_data(struct gpu_device *device, const struct gpu_grouped *call, const void *w, const void *dy,
                       void *dx)
{
    if (is_by_rows(device, call))
        gpu_grouped_rows_data(device->stream, call, w, dy, dx);
    else
        gpu_grouped_data(device->stream, call, w, dy, dx);
}

static void queue_weights(struct gpu_device *device, const struct gpu_grouped *call, const void *x, const void *dy,
                          float *dw, float *scratch)
{
    if (is_by_rows(device, call))
        gpu_grouped_rows_weights(device->stream, call, x, dy, dw, scratch);
    else
        gpu_grouped_weights(device->stream, call, x, dy, dw, scratch);
}

/* ---- the choice ---- */

struct candidate {
    const struct gpu_conv_problem *problem;
    struct gpu_grouped call;
};

static cvy_status run_candidate(struct gpu_device *device, const void *context, const struct gpu_conv_memory *memory)
{
    const struct candidate *candidate = context;
    const struct gpu_grouped *call = &candidate->call;

    if (candidate->problem->pass == GPU_CONV_WEIGHTS) {
        /* The result lies after the pieces. */
        float *dw = (float *)memory->scratch + weights_floats(device, call);
        queue_weights(device, call, memory->x, memory->y, dw, memory->scratch);
    } else if (candidate->problem->pass == GPU_CONV_DATA) {
        queue_data(device, call, memory->w, memory->y, memory->x);
    } else {
        queue_forward(device, call, memory->x, memory->w, memory->y, memory->mean, memory->variance, memory->scratch);
    }
    return gpu_queued(device);
}

/* Our kernels for the problem, of which candidate->call is given. */
static struct gpu_own_conv own_of(const struct gpu_device *device, const struct candidate *candidate)
{
    const struct gpu_conv_problem *problem = candidate->problem;
    size_t bytes = statistics_bytes(device, problem, &candidate->call);

    if (problem->pass == GPU_CONV_WEIGHTS)
        bytes =
            (size_t)(weights_floats(device, &candidate->call) + problem->k * candidate->call.width * 9) * sizeof(float);
    return (struct gpu_own_conv){
        .name = kernels_name, .run = run_candidate, .context = candidate, .scratch_bytes = bytes};
}

cvy_status gpu_grouped_gain(struct gpu_device *device, struct gpu_conv_problem problem, double *seconds)
{
    struct candidate candidate = {.problem = &problem};
    struct gpu_own_conv ours;
    double own, engine;
    cvy_status status;

    *seconds = 0;
    problem.prologue = problem.gradient_sums = GPU_PART_NONE;
    problem.statistics = problem.pass == GPU_CONV_FORWARD ? GPU_STATISTICS_SEPARATE : GPU_STATISTICS_NONE;
    problem.unmasked = false;
    if (problem.groups == 1 || device->grouped == GPU_OWN_NEVER || gpu_check_tensor_cores(device) != CVY_OK ||
        call_of(&problem, &candidate.call) != CVY_OK)
        return CVY_OK;
    if (device->grouped == GPU_OWN_ALWAYS)
        return cvy_fail(CVY_UNAVAILABLE, "CONVOY_CUDA_GROUPED is \"own\"");
    ours = own_of(device, &candidate);
    CVY_TRY(gpu_own_seconds(device, &problem, &ours, &own));
    status = gpu_engine_seconds(device, problem, &engine);
    if (status == CVY_OK && own > 0 && own < engine)
        *seconds = engine - own;
    return status == CVY_UNAVAILABLE ? CVY_OK : status;
}

/* ---- rows ---- */

static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct gpu_conv_problem *problem,
                          struct cvy_kernel_plan *plan)
{
    struct gpu_device *gpu = gpu_of(device);
    struct candidate candidate = {.problem = problem};
    struct gpu_own_conv own;

    plan->quiet = desc->attr.conv2d.groups == 1 || gpu->grouped == GPU_OWN_NEVER;
    if (plan->quiet)
        return cvy_fail(CVY_UNAVAILABLE, "not for our kernels for groups");
    CVY_TRY(gpu_conv_describe(desc, problem));
    plan->quiet = gpu->grouped == GPU_OWN_TIMED && !gpu_conv_is_timed(gpu, problem);
    if (plan->quiet)
        return cvy_fail(CVY_UNAVAILABLE, "not timed");
    CVY_TRY(gpu_check_tensor_cores(gpu));
    CVY_TRY(call_of(problem, &candidate.call));
    own = own_of(gpu, &candidate);
    if (gpu->grouped == GPU_OWN_TIMED)
        CVY_TRY(gpu_own_compare(gpu, problem, &own, plan));
    return gpu_state(plan, &candidate.call, sizeof candidate.call);
}

cvy_status gpu_conv2d_grouped_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct gpu_conv_problem problem;

    CVY_TRY(prepare(device, desc, &problem, plan));
    plan->scratch_bytes = statistics_bytes(gpu_of(device), &problem, plan->state);
    plan->extra_launches = gpu_norm_extra(&problem).launches;
    plan->extra_bytes =
        is_by_rows(gpu_of(device), plan->state) ? 2 * (int64_t)plan->scratch_bytes : gpu_norm_extra(&problem).bytes;
    return CVY_OK;
}

cvy_status gpu_conv2d_grouped_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    queue_forward(gpu_of(device), plan->state, in[0], in[1], out[0], out[1], out[2], scratch);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_conv2d_bwd_data_grouped_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                               struct cvy_kernel_plan *plan)
{
    struct gpu_conv_problem problem;

    return prepare(device, desc, &problem, plan);
}

cvy_status gpu_conv2d_bwd_data_grouped_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                           void *const *out, void *scratch)
{
    (void)scratch;
    queue_data(gpu_of(device), plan->state, in[0], in[1], out[0]);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_conv2d_bwd_weights_grouped_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                  struct cvy_kernel_plan *plan)
{
    struct gpu_conv_problem problem;

    CVY_TRY(prepare(device, desc, &problem, plan));
    plan->scratch_bytes = (size_t)weights_floats(gpu_of(device), plan->state) * sizeof(float);
    plan->extra_launches = 1; /* adds the pieces */
    plan->extra_bytes = 2 * (int64_t)plan->scratch_bytes;
    return CVY_OK;
}

cvy_status gpu_conv2d_bwd_weights_grouped_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                              void *const *out, void *scratch)
{
    queue_weights(gpu_of(device), plan->state, in[0], in[1], out[0], scratch);
    return gpu_queued(gpu_of(device));
}
