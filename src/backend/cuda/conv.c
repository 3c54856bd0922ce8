/* Rows of the convolution: what the engine (conv_engine.h) needs to know, and gradients of weights on their way from
 * the engine's order and type into the arena's. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/conv_engine.h"
#include "backend/cuda/kernels/kernels.h"

struct conv {
    struct gpu_conv *engine;
    bool bias, residual, statistics, prologue, sums;
    bool sign;    /* what passes the batch norm's activation is given in bits */
    bool forms;   /* outputs are in a form that the next kernel takes: sums of y, or the engine's gradient of weights */
    bool numbers; /* scale and shift of the prologue are there */
    /* For gradients of a convolution with a number of outputs that tensor cores do not take: the engine's outputs are
     * more, and the gradient of y, of DATA the weights too, are first copied with zeros for the others. 0: as they are.
     */
    int64_t outputs, padded_outputs;
    int64_t pixels;       /* of all images of y */
    int64_t filter;       /* weights of one output */
    enum cvy_dtype dtype; /* of x, w and y */
    int64_t inputs;       /* channels of x */
    size_t gradient_bytes, weight_bytes;
    /* For weight gradients: copies the engine's result from the start of the scratch memory to the output; f32. */
    struct gpu_rearrangement rearrangement;
    size_t result_bytes;
};

static size_t align_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static void fill_problem(const struct cvy_op_desc *desc, const struct cvy_tensor *x, const struct cvy_tensor *y,
                         struct gpu_conv_problem *problem)
{
    const struct cvy_conv2d_attr *attr = &desc->attr.conv2d;

    *problem = (struct gpu_conv_problem){
        .dtype = x->dtype,
        .n = x->shape.dim[0],
        .c = gpu_stored_channels(x),
        .h = x->shape.dim[2],
        .w = x->shape.dim[3],
        .k = y->shape.dim[1],
        .p = y->shape.dim[2],
        .q = y->shape.dim[3],
        .r = attr->kernel[0],
        .s = attr->kernel[1],
        .groups = attr->groups,
    };
    memcpy(problem->stride, attr->stride, sizeof problem->stride);
    memcpy(problem->dilation, attr->dilation, sizeof problem->dilation);
    memcpy(problem->pad, attr->pad, sizeof problem->pad);
}

/* What a group takes in must be as stored: padded channels only where there is one group. */
static cvy_status check_channels(const struct cvy_op_desc *desc, const struct cvy_tensor *x, const struct cvy_tensor *y)
{
    if (desc->attr.conv2d.groups > 1 && x->shape.dim[1] / desc->attr.conv2d.groups < 4)
        return cvy_fail(CVY_UNAVAILABLE, "a convolution of groups of %d channels is too narrow",
                        (int)(x->shape.dim[1] / desc->attr.conv2d.groups));
    if (y->shape.dim[1] < 4)
        return cvy_fail(CVY_UNAVAILABLE, "a convolution of %d outputs is too narrow", (int)y->shape.dim[1]);
    return CVY_OK;
}

/* Tensor cores take channels by 16 bytes: a detector with 91 logits for each of 6 anchors has 546 outputs. */
static void pad_outputs(struct gpu_conv_problem *problem, struct conv *conv)
{
    const int64_t multiple = problem->dtype != CVY_F32 ? 8 : problem->tf32 ? 4 : 1;
    const int64_t padded = (problem->k + multiple - 1) / multiple * multiple;
    const size_t size = cvy_dtype_size(problem->dtype);

    if (problem->pass == GPU_CONV_FORWARD || problem->groups != 1 || padded == problem->k ||
        problem->prologue != GPU_PART_NONE || problem->gradient_sums != GPU_PART_NONE)
        return;
    conv->outputs = problem->k;
    conv->padded_outputs = problem->k = padded;
    conv->pixels = problem->n * problem->p * problem->q;
    conv->filter = problem->r * problem->s * problem->c;
    conv->dtype = problem->dtype;
    conv->gradient_bytes = align_up((size_t)(conv->pixels * padded) * size);
    conv->weight_bytes = problem->pass == GPU_CONV_DATA ? align_up((size_t)(padded * conv->filter) * size) : 0;
}

/* Replaces what the engine reads by padded copies at the start of the scratch. */
static void copy_padded(cvy_device *device, const struct conv *conv, struct gpu_conv_memory *memory)
{
    const struct gpu_rearrangement weights = {.n = 1,
                                              .c = conv->outputs * conv->filter,
                                              .h = 1,
                                              .w = 1,
                                              .from_stored = conv->outputs * conv->filter,
                                              .to_stored = conv->padded_outputs * conv->filter,
                                              .from = conv->dtype,
                                              .to = conv->dtype};
    char *scratch = memory->scratch;

    if (!conv->padded_outputs)
        return;
    gpu_pad_rows(gpu_of(device)->stream, conv->dtype, conv->pixels, conv->outputs, conv->padded_outputs, memory->y,
                 scratch);
    memory->y = scratch;
    scratch += conv->gradient_bytes;
    if (conv->weight_bytes) {
        gpu_rearrange(gpu_of(device)->stream, &weights, memory->w, scratch);
        memory->w = scratch;
        scratch += conv->weight_bytes;
    }
    memory->scratch = scratch;
}

/* plan->state becomes a struct conv. */
static cvy_status open_engine(cvy_device *device, struct gpu_conv_problem *problem, struct cvy_kernel_plan *plan)
{
    struct conv *conv = cvy_calloc(1, sizeof *conv);
    size_t used;

    if (!conv)
        return cvy_fail_memory(sizeof *conv, plan->kernel->name);
    plan->state = conv;
    problem->tf32 = device->tf32;
    pad_outputs(problem, conv);
    conv->inputs = problem->c;
    conv->bias = problem->bias;
    conv->residual = problem->residual;
    conv->statistics = problem->statistics != GPU_STATISTICS_NONE;
    conv->prologue = problem->prologue != GPU_PART_NONE;
    conv->sums = problem->gradient_sums != GPU_PART_NONE;
    CVY_TRY(gpu_conv_open(gpu_of(device), problem, &conv->engine));
    plan->scratch_bytes = gpu_conv_scratch(conv->engine) + conv->gradient_bytes + conv->weight_bytes;
    plan->extra_launches =
        gpu_conv_extra(conv->engine).launches + (conv->padded_outputs > 0) + (conv->weight_bytes > 0);
    plan->extra_bytes = gpu_conv_extra(conv->engine).bytes + 2 * (int64_t)(conv->gradient_bytes + conv->weight_bytes);
    gpu_conv_text(conv->engine, plan->implementation, plan->reason);
    used = strlen(plan->reason);
    if (conv->padded_outputs)
        snprintf(plan->reason + used, sizeof plan->reason - used, "; outputs padded to %lld",
                 (long long)conv->padded_outputs);
    return CVY_OK;
}

void gpu_conv2d_release(cvy_device *device, struct cvy_kernel_plan *plan)
{
    struct conv *conv = plan->state;

    (void)device;
    if (conv)
        gpu_conv_close(conv->engine);
    cvy_free(conv);
    plan->state = NULL;
}

/* ---- forward ---- */

/* Whatever is asked for; statistics are computed by a separate kernel. */
static cvy_status describe_forward(struct cvy_op_desc *desc, struct gpu_conv_problem *problem)
{
    int64_t tiles, floats;
    enum cvy_dtype dtype;

    CVY_TRY(gpu_expect(desc, 0xB, 1, 0, 0, &dtype)); /* all but the bias */
    CVY_TRY(check_channels(desc, &desc->in[0], &desc->out[0]));
    gpu_lay_out(desc, 0xB, 1);
    fill_problem(desc, &desc->in[0], &desc->out[0], problem);
    problem->pass = GPU_CONV_FORWARD;
    problem->bias = desc->inputs > 2 && cvy_tensor_present(&desc->in[2]);
    problem->residual = desc->inputs > 3 && cvy_tensor_present(&desc->in[3]);
    problem->activation = desc->attr.conv2d.activation;
    problem->prologue = cvy_tensor_present(&desc->in[4]) ? GPU_PART_SEPARATE : GPU_PART_NONE;
    if (problem->prologue != GPU_PART_NONE && problem->c != desc->in[0].shape.dim[1])
        return cvy_fail(CVY_UNAVAILABLE, "%lld channels are too few", (long long)desc->in[0].shape.dim[1]);
    if (!cvy_tensor_present(&desc->out[1]))
        return CVY_OK;
    problem->statistics = GPU_STATISTICS_SEPARATE;
    gpu_batch_norm_shape(problem->n * problem->p * problem->q, problem->k, &tiles, &floats);
    if (tiles > GPU_TICKETS)
        return cvy_fail(CVY_UNAVAILABLE, "%lld channels are too many", (long long)problem->k);
    return CVY_OK;
}

cvy_status gpu_conv2d_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct gpu_conv_problem problem;

    CVY_TRY(describe_forward(desc, &problem));
    return open_engine(device, &problem, plan);
}

cvy_status gpu_check_fusable(const struct gpu_conv_problem *problem)
{
    if (problem->dtype == CVY_F32)
        return cvy_fail(CVY_UNAVAILABLE, "no kernel takes a batch norm along in f32");
    if (problem->dtype == CVY_BF16 && problem->pass != GPU_CONV_FORWARD)
        return cvy_fail(CVY_UNAVAILABLE, "no gradient takes a batch norm along in bf16");
    if (problem->bias || problem->residual || problem->activation != CVY_ACTIVATION_NONE)
        return cvy_fail(CVY_UNAVAILABLE, "more follows the convolution than its statistics");
    return CVY_OK;
}

/* Scale and shift of the batch norm before it lie behind rstd, input `rstd`. */
static void take_numbers(const struct cvy_op_desc *desc, int rstd, struct cvy_kernel_plan *plan)
{
    struct conv *conv = plan->state;

    conv->numbers = gpu_form_of(&desc->in[rstd]) == GPU_FORM_NUMBERS;
    plan->extra_launches -= conv->numbers;
}

/* The sums are left as they are for the batch norm that reads them. */
static void leave_sums(const cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct conv *conv = plan->state;

    if (!gpu_may_form(device, desc))
        return;
    conv->forms = true;
    plan->extra_launches--;
    desc->out[1].layout = desc->out[2].layout = gpu_form_layout(GPU_FORM_SUMS, CVY_F32);
}

/* The candidate that makes statistics in one kernel with the convolution: refuses where the two kernels of the row
 * below were measured to be faster, and where nothing is known of either. */
static cvy_status beats_separate(cvy_device *device, struct gpu_conv_problem *problem, const struct gpu_conv *fused,
                                 struct cvy_kernel_plan *plan)
{
    const size_t used = strlen(plan->reason);
    const double seconds = gpu_conv_seconds(fused);
    struct gpu_conv *separate;
    double other;
    cvy_status status;

    if (gpu_of(device)->statistics == GPU_STATISTICS_ALWAYS_FUSED)
        return CVY_OK;
    if (seconds <= 0)
        return cvy_fail(CVY_UNAVAILABLE, "not timed");
    problem->statistics = GPU_STATISTICS_SEPARATE;
    status = gpu_conv_open(gpu_of(device), problem, &separate);
    if (status == CVY_UNAVAILABLE) /* there is nothing to lose against */
        return CVY_OK;
    CVY_TRY(status);
    other = gpu_conv_seconds(separate);
    gpu_conv_close(separate);
    if (other > 0 && other <= seconds)
        return cvy_fail(CVY_UNAVAILABLE, "%.3f ms, separate %.3f ms", 1e3 * seconds, 1e3 * other);
    if (other > 0)
        snprintf(plan->reason + used, sizeof plan->reason - used, "; separate %.3f ms", 1e3 * other);
    return CVY_OK;
}

cvy_status gpu_conv2d_statistics_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct gpu_conv_problem problem;
    struct conv *conv;

    if (!cvy_tensor_present(&desc->out[1]) || cvy_tensor_present(&desc->in[4]) ||
        gpu_of(device)->statistics == GPU_STATISTICS_ALWAYS_SEPARATE) {
        plan->quiet = true;
        return cvy_fail(CVY_UNAVAILABLE, "no statistics are asked for");
    }
    CVY_TRY(describe_forward(desc, &problem));
    if (problem.dtype == CVY_F32)
        return cvy_fail(CVY_UNAVAILABLE, "sums of f32 would lose digits that f32 has");
    if (problem.bias || problem.residual || problem.activation != CVY_ACTIVATION_NONE)
        return cvy_fail(CVY_UNAVAILABLE, "more follows the convolution than its statistics");
    problem.statistics = GPU_STATISTICS_FUSED;
    if (gpu_of(device)->statistics == GPU_STATISTICS_TIMED && !gpu_conv_is_timed(gpu_of(device), &problem))
        return cvy_fail(CVY_UNAVAILABLE, "not timed"); /* and not planned: engines may have to be compiled for it */
    CVY_TRY(open_engine(device, &problem, plan));
    conv = plan->state;
    leave_sums(device, desc, plan);
    return beats_separate(device, &problem, conv->engine, plan);
}

/* With the preceding batch norm in the same kernel too. Whether that is worth its while was asked before the graph came
 * to be so (patterns.c). */
cvy_status gpu_conv2d_prologue_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct gpu_conv_problem problem;

    if (!cvy_tensor_present(&desc->in[4]) || !cvy_tensor_present(&desc->out[1])) {
        plan->quiet = true;
        return cvy_fail(CVY_UNAVAILABLE, "no batch norm precedes it, or no statistics are asked for");
    }
    CVY_TRY(describe_forward(desc, &problem));
    problem.prologue = GPU_PART_FUSED;
    problem.statistics = GPU_STATISTICS_FUSED;
    CVY_TRY(gpu_check_fusable(&problem));
    CVY_TRY(open_engine(device, &problem, plan));
    leave_sums(device, desc, plan);
    take_numbers(desc, 7, plan);
    return CVY_OK;
}

cvy_status gpu_conv2d_prologue_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    return gpu_conv2d_run(device, plan, in, out, scratch);
}

cvy_status gpu_conv2d_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                          void *scratch)
{
    const struct conv *conv = plan->state;
    const struct gpu_conv_memory memory = {.x = in[0],
                                           .w = in[1],
                                           .y = out[0],
                                           .scratch = scratch,
                                           .bias = conv->bias ? in[2] : NULL,
                                           .residual = conv->residual ? in[3] : NULL,
                                           .mean = conv->statistics && !conv->forms ? out[1] : NULL,
                                           .variance = conv->statistics && !conv->forms ? out[2] : NULL,
                                           .sums = conv->forms ? out[1] : NULL,
                                           .squares = conv->forms ? out[2] : NULL,
                                           .scale = conv->numbers ? gpu_form_scale(in[7], conv->inputs) : NULL,
                                           .shift = conv->numbers ? gpu_form_shift(in[7], conv->inputs) : NULL,
                                           .gamma = conv->prologue ? in[4] : NULL,
                                           .beta = conv->prologue ? in[5] : NULL,
                                           .norm_mean = conv->prologue ? in[6] : NULL,
                                           .norm_rstd = conv->prologue ? in[7] : NULL};

    return gpu_conv_run(gpu_of(device), conv->engine, &memory);
}

cvy_status gpu_conv2d_statistics_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                     void *const *out, void *scratch)
{
    return gpu_conv2d_run(device, plan, in, out, scratch);
}

/* ---- gradients ---- */

static cvy_status describe_data(struct cvy_op_desc *desc, struct gpu_conv_problem *problem)
{
    const uint32_t images = 7U | 1U << 7 | 1U << 8;
    int64_t tiles, floats;
    enum cvy_dtype dtype;

    CVY_TRY(gpu_expect(desc, images, 1, 0, 0, &dtype));
    CVY_TRY(check_channels(desc, &desc->out[0], &desc->in[1]));
    gpu_lay_out(desc, images, 1);
    fill_problem(desc, &desc->out[0], &desc->in[1], problem);
    problem->pass = GPU_CONV_DATA;
    if (!cvy_tensor_present(&desc->in[2]))
        return CVY_OK;
    problem->gradient_sums = GPU_PART_SEPARATE;
    problem->residual = cvy_tensor_present(&desc->in[8]);
    gpu_batch_norm_shape(problem->n * problem->h * problem->w, problem->c, &tiles, &floats);
    if (tiles > GPU_TICKETS || problem->c != desc->out[0].shape.dim[1])
        return cvy_fail(CVY_UNAVAILABLE, "%lld channels are too many or too few", (long long)problem->c);
    return CVY_OK;
}

cvy_status gpu_conv2d_bwd_data_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct gpu_conv_problem problem;

    CVY_TRY(describe_data(desc, &problem));
    CVY_TRY(open_engine(device, &problem, plan));
    ((struct conv *)plan->state)->sign = gpu_form_of(&desc->in[7]) == GPU_FORM_SIGN;
    return CVY_OK;
}

/* With the mask and the sums of the preceding batch norm in the same kernel. */
cvy_status gpu_conv2d_bwd_data_sums_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct gpu_conv_problem problem;

    if (!cvy_tensor_present(&desc->in[2]) || cvy_tensor_present(&desc->in[7])) {
        plan->quiet = true;
        return cvy_fail(CVY_UNAVAILABLE, "no sums are asked for, or those of two gradients");
    }
    CVY_TRY(describe_data(desc, &problem));
    problem.gradient_sums = GPU_PART_FUSED;
    CVY_TRY(gpu_check_fusable(&problem));
    return open_engine(device, &problem, plan);
}

cvy_status gpu_conv2d_bwd_data_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    const struct conv *conv = plan->state;
    struct gpu_conv_memory memory = {.x = out[0],
                                     .w = in[0],
                                     .y = in[1],
                                     .scratch = scratch,
                                     .residual = conv->sums ? in[8] : NULL,
                                     .sign = conv->sums ? in[7] : NULL,
                                     .sign_in_bits = conv->sign,
                                     .norm_x = conv->sums ? in[2] : NULL,
                                     .gamma = conv->sums ? in[3] : NULL,
                                     .beta = conv->sums ? in[4] : NULL,
                                     .norm_mean = conv->sums ? in[5] : NULL,
                                     .norm_rstd = conv->sums ? in[6] : NULL,
                                     .dgamma = conv->sums ? out[1] : NULL,
                                     .dbeta = conv->sums ? out[2] : NULL};

    copy_padded(device, conv, &memory);
    return gpu_conv_run(gpu_of(device), conv->engine, &memory);
}

cvy_status gpu_conv2d_bwd_data_sums_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                        void *const *out, void *scratch)
{
    return gpu_conv2d_bwd_data_run(device, plan, in, out, scratch);
}

static cvy_status describe_weights(struct cvy_op_desc *desc, struct gpu_conv_problem *problem)
{
    enum cvy_dtype dtype;

    CVY_TRY(gpu_expect(desc, 3, 0, 0, 0, &dtype));
    CVY_TRY(check_channels(desc, &desc->in[0], &desc->in[1]));
    gpu_lay_out(desc, 3, 0);
    fill_problem(desc, &desc->in[0], &desc->in[1], problem);
    problem->pass = GPU_CONV_WEIGHTS;
    problem->prologue = cvy_tensor_present(&desc->in[2]) ? GPU_PART_SEPARATE : GPU_PART_NONE;
    if (problem->prologue != GPU_PART_NONE && problem->c != desc->in[0].shape.dim[1])
        return cvy_fail(CVY_UNAVAILABLE, "%lld channels are too few", (long long)desc->in[0].shape.dim[1]);
    return CVY_OK;
}

cvy_status gpu_conv_describe(struct cvy_op_desc *desc, struct gpu_conv_problem *problem)
{
    return desc->op == CVY_OP_CONV2D            ? describe_forward(desc, problem)
           : desc->op == CVY_OP_CONV2D_BWD_DATA ? describe_data(desc, problem)
                                                : describe_weights(desc, problem);
}

/* The engine writes K x R x S x C/g in the type of the images, before its own scratch; a second kernel brings that
 * into the plain f32 of the arena. */
static cvy_status prepare_weights(cvy_device *device, struct cvy_op_desc *desc, bool fused,
                                  struct cvy_kernel_plan *plan)
{
    struct cvy_tensor result = desc->out[0];
    struct gpu_conv_problem problem;
    enum cvy_dtype dtype;
    struct conv *conv;

    CVY_TRY(describe_weights(desc, &problem));
    dtype = problem.dtype;
    if (fused)
        problem.prologue = GPU_PART_FUSED;
    if (fused)
        CVY_TRY(gpu_check_fusable(&problem));
    CVY_TRY(open_engine(device, &problem, plan));
    conv = plan->state;
    result.dtype = dtype;
    result.shape.dim[0] = problem.k; /* as the engine has them */
    result.layout = gpu_image_layout(dtype, result.shape.dim[1]);
    conv->rearrangement = (struct gpu_rearrangement){
        .n = desc->out[0].shape.dim[0],
        .c = result.shape.dim[1],
        .h = result.shape.dim[2],
        .w = result.shape.dim[3],
        .from_stored = gpu_stored_channels(&result),
        .from = dtype,
        .to = CVY_F32,
    };
    if (fused)
        take_numbers(desc, 5, plan);
    if (gpu_may_form(device, desc) && !conv->padded_outputs) { /* the planner sees to it, for many layers at once */
        conv->forms = true;
        desc->out[0].layout = dtype == CVY_F32 ? result.layout : gpu_form_layout(GPU_FORM_NARROW, dtype);
        return CVY_OK;
    }
    conv->result_bytes = align_up(gpu_tensor_bytes(device, &result));
    plan->scratch_bytes += conv->result_bytes;
    plan->extra_launches++;
    plan->extra_bytes += 2 * (int64_t)conv->result_bytes;
    return CVY_OK;
}

cvy_status gpu_conv2d_bwd_weights_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare_weights(device, desc, false, plan);
}

/* With the preceding batch norm in the same kernel. */
cvy_status gpu_conv2d_bwd_weights_prologue_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                   struct cvy_kernel_plan *plan)
{
    if (cvy_tensor_present(&desc->in[2]))
        return prepare_weights(device, desc, true, plan);
    plan->quiet = true;
    return cvy_fail(CVY_UNAVAILABLE, "no batch norm precedes it");
}

cvy_status gpu_conv2d_bwd_weights_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                      void *const *out, void *scratch)
{
    const struct conv *conv = plan->state;
    struct gpu_conv_memory memory = {.x = in[0],
                                     .w = conv->forms ? out[0] : scratch,
                                     .y = in[1],
                                     .scratch = (char *)scratch + conv->result_bytes,
                                     .gamma = conv->prologue ? in[2] : NULL,
                                     .beta = conv->prologue ? in[3] : NULL,
                                     .norm_mean = conv->prologue ? in[4] : NULL,
                                     .norm_rstd = conv->prologue ? in[5] : NULL,
                                     .scale = conv->numbers ? gpu_form_scale(in[5], conv->inputs) : NULL,
                                     .shift = conv->numbers ? gpu_form_shift(in[5], conv->inputs) : NULL};

    copy_padded(device, conv, &memory);
    CVY_TRY(gpu_conv_run(gpu_of(device), conv->engine, &memory));
    if (conv->forms)
        return CVY_OK;
    gpu_rearrange(gpu_of(device)->stream, &conv->rearrangement, scratch, out[0]);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_conv2d_bwd_weights_prologue_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                               void *const *out, void *scratch)
{
    return gpu_conv2d_bwd_weights_run(device, plan, in, out, scratch);
}
