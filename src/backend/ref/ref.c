/* The reference device: host memory, one row of kernels for each op, the optimizer step in double. */
#include "backend/ref/ref.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"

static cvy_status open_device(const struct cvy_backend *backend, const char *spec, int threads, cvy_device **device)
{
    cvy_device *opened;

    if (spec)
        return cvy_fail(CVY_USAGE, "device \"ref\" takes nothing after a colon, got %s", cvy_quote(spec));
    opened = cvy_calloc(1, sizeof *opened);
    if (!opened)
        return cvy_fail_memory(sizeof *opened, "a device");
    opened->backend = backend;
    opened->threads = threads > 0 ? threads : cvy_default_threads();
    snprintf(opened->description, sizeof opened->description, "reference kernels in plain C, %d thread%s",
             opened->threads, opened->threads == 1 ? "" : "s");
    *device = opened;
    return CVY_OK;
}

static void close_device(cvy_device *device)
{
    cvy_free(device);
}

/* ---- memory ---- */

static cvy_status allocate(cvy_device *device, size_t bytes, void **memory)
{
    (void)device;
    *memory = cvy_calloc_aligned(bytes);
    return *memory ? CVY_OK : cvy_fail_memory(bytes, "tensors");
}

static void release(cvy_device *device, void *memory)
{
    (void)device;
    cvy_free_aligned(memory);
}

static cvy_status copy(cvy_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    memcpy(to, from, bytes);
    return CVY_OK;
}

static cvy_status synchronize(cvy_device *device)
{
    (void)device;
    return CVY_OK;
}

/* ---- kernels ---- */

/* Inputs whose memory an output may take over: the kernels read each element before they write it, in the same
 * position, and read nothing else of that input afterwards. */
static void set_in_place(enum cvy_op op, int32_t *in_place)
{
    switch (op) {
    case CVY_OP_RELU:
    case CVY_OP_RELU6:
    case CVY_OP_SIGMOID:
    case CVY_OP_SCALE_CHANNELS:
    case CVY_OP_FAKE_QUANTIZE:
    case CVY_OP_ADD:
    case CVY_OP_BATCH_NORM:
    case CVY_OP_BATCH_NORM_APPLY:
    case CVY_OP_BATCH_NORM_INFERENCE:
    case CVY_OP_BATCH_NORM_INFERENCE_BWD:
        in_place[0] = 0;
        break;
    case CVY_OP_RELU_BWD:
    case CVY_OP_RELU6_BWD:
    case CVY_OP_SIGMOID_BWD:
        in_place[0] = 1;
        break;
    case CVY_OP_FAKE_QUANTIZE_BWD:
        in_place[0] = 2;
        break;
    case CVY_OP_BATCH_NORM_BWD:
        in_place[0] = 5; /* dx over dy */
        break;
    default:
        break;
    }
}

static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct ref_state found = {0}, *state;

    CVY_TRY(ref_prepare_state(desc, &found));
    if (!cvy_size_mul(found.scratch_row, sizeof(double) * (size_t)device->threads, &plan->scratch_bytes))
        return cvy_fail(CVY_NO_MEMORY, "the working memory of kernel %s is too large", plan->kernel->name);
    set_in_place(desc->op, plan->in_place);
    plan->state = state = cvy_calloc(1, sizeof *state);
    if (!state)
        return cvy_fail_memory(sizeof *state, plan->kernel->name);
    *state = found;
    return CVY_OK;
}

static cvy_status run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                      void *scratch)
{
    const struct ref_state *state = plan->state;
    const struct ref_call call = {&state->desc, in, out, scratch, state->scratch_row, device->threads, device};

    return state->function(&call);
}

static void release_kernel(cvy_device *device, struct cvy_kernel_plan *plan)
{
    (void)device;
    cvy_free(plan->state);
    plan->state = NULL;
}

#define ROW(operation, text)                                                                                           \
    {                                                                                                                  \
        .name = text, .op = operation, .prepare = prepare, .run = run, .release = release_kernel                       \
    }
static const struct cvy_kernel kernels[] = {
    ROW(CVY_OP_NORMALIZE, "ref.normalize"),
    ROW(CVY_OP_CAST, "ref.cast"),
    ROW(CVY_OP_REORDER, "ref.reorder"),
    ROW(CVY_OP_CONV2D, "ref.conv2d"),
    ROW(CVY_OP_CONV2D_BWD_DATA, "ref.conv2d_bwd_data"),
    ROW(CVY_OP_CONV2D_BWD_WEIGHTS, "ref.conv2d_bwd_weights"),
    ROW(CVY_OP_CONV2D_BWD_BIAS, "ref.conv2d_bwd_bias"),
    ROW(CVY_OP_BATCH_NORM, "ref.batch_norm"),
    ROW(CVY_OP_BATCH_NORM_BWD, "ref.batch_norm_bwd"),
    ROW(CVY_OP_BATCH_NORM_APPLY, "ref.batch_norm_apply"),
    ROW(CVY_OP_BATCH_NORM_INFERENCE, "ref.batch_norm_inference"),
    ROW(CVY_OP_BATCH_NORM_INFERENCE_BWD, "ref.batch_norm_inference_bwd"),
    ROW(CVY_OP_FOLD_BATCH_NORM, "ref.fold_batch_norm"),
    ROW(CVY_OP_RELU, "ref.relu"),
    ROW(CVY_OP_RELU_BWD, "ref.relu_bwd"),
    ROW(CVY_OP_RELU6, "ref.relu6"),
    ROW(CVY_OP_RELU6_BWD, "ref.relu6_bwd"),
    ROW(CVY_OP_SIGMOID, "ref.sigmoid"),
    ROW(CVY_OP_SIGMOID_BWD, "ref.sigmoid_bwd"),
    ROW(CVY_OP_ADD, "ref.add"),
    ROW(CVY_OP_FAKE_QUANTIZE, "ref.fake_quantize"),
    ROW(CVY_OP_FAKE_QUANTIZE_BWD, "ref.fake_quantize_bwd"),
    ROW(CVY_OP_MAX_POOL, "ref.max_pool"),
    ROW(CVY_OP_MAX_POOL_BWD, "ref.max_pool_bwd"),
    ROW(CVY_OP_GLOBAL_AVG_POOL, "ref.global_avg_pool"),
    ROW(CVY_OP_GLOBAL_AVG_POOL_BWD, "ref.global_avg_pool_bwd"),
    ROW(CVY_OP_SCALE_CHANNELS, "ref.scale_channels"),
    ROW(CVY_OP_SCALE_CHANNELS_BWD_SCALE, "ref.scale_channels_bwd_scale"),
    ROW(CVY_OP_LINEAR, "ref.linear"),
    ROW(CVY_OP_LINEAR_BWD_DATA, "ref.linear_bwd_data"),
    ROW(CVY_OP_LINEAR_BWD_WEIGHTS, "ref.linear_bwd_weights"),
    ROW(CVY_OP_SOFTMAX, "ref.softmax"),
    ROW(CVY_OP_SOFTMAX_CROSS_ENTROPY, "ref.softmax_cross_entropy"),
    ROW(CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD, "ref.softmax_cross_entropy_bwd"),
    ROW(CVY_OP_DETECTION_MATCH, "ref.detection_match"),
    ROW(CVY_OP_FOCAL_LOSS, "ref.focal_loss"),
    ROW(CVY_OP_FOCAL_LOSS_BWD, "ref.focal_loss_bwd"),
    ROW(CVY_OP_SMOOTH_L1_LOSS, "ref.smooth_l1_loss"),
    ROW(CVY_OP_SMOOTH_L1_LOSS_BWD, "ref.smooth_l1_loss_bwd"),
    ROW(CVY_OP_L2_LOSS, "ref.l2_loss"),
    ROW(CVY_OP_DETECT, "ref.detect"),
    ROW(CVY_OP_UPSAMPLE, "ref.upsample"),
    ROW(CVY_OP_UPSAMPLE_BWD, "ref.upsample_bwd"),
    ROW(CVY_OP_FLATTEN_LEVELS, "ref.flatten_levels"),
    ROW(CVY_OP_FLATTEN_LEVELS_BWD, "ref.flatten_levels_bwd"),
};

/* ---- the optimizer ---- */

/* One element; d as in update.h. */
static void update_element(const struct cvy_update *step, int64_t i, double d, double rate)
{
    const double momentum = (double)step->momentum, dampening = (double)step->dampening, alpha = step->alpha;
    double v, s, direction;

    if (step->kind == CVY_UPDATE_RMSPROP) {
        s = alpha * (double)step->square_average[i] + (1 - alpha) * d * d;
        v = momentum * (double)step->momentum_buffer[i] + d / (sqrt(s) + step->epsilon);
        step->square_average[i] = (float)s;
        direction = v;
    } else {
        v = momentum * (double)step->momentum_buffer[i] + (1 - dampening) * d;
        direction = step->nesterov ? d + momentum * v : v;
    }
    step->momentum_buffer[i] = (float)v;
    step->weights[i] = (float)((double)step->weights[i] - rate * direction);
}

static cvy_status update(cvy_device *device, const struct cvy_update *step)
{
    float factor;
    bool take;

    CVY_TRY(cvy_update_check(step));
    take = cvy_update_begin(step, device->threads, &factor);
    for (int32_t s = 0; s < step->segment_count && take; s++) {
        const struct cvy_update_segment *segment = &step->segments[s];
        const double rate = (double)(*step->learning_rate * segment->rate), decay = (double)segment->weight_decay;
#pragma omp parallel for num_threads(device->threads)
        for (int64_t i = segment->first; i < segment->first + segment->count; i++)
            update_element(step, i, (double)step->gradients[i] * (double)factor + decay * (double)step->weights[i],
                           rate);
    }
    if (step->scaler)
        cvy_scaler_update(step->scaler, &step->rule);
    return CVY_OK;
}

static cvy_status combine(cvy_device *device, enum cvy_combine how, float *y, const float *x, int64_t count,
                          const float *share)
{
    const double part = how == CVY_COMBINE_TOWARDS ? (double)*share : 0;

#pragma omp parallel for num_threads(device->threads)
    for (int64_t i = 0; i < count; i++) {
        if (how == CVY_COMBINE_COPY)
            y[i] = x[i];
        else
            y[i] =
                (float)((double)y[i] + (how == CVY_COMBINE_ADD ? (double)x[i] : part * ((double)x[i] - (double)y[i])));
    }
    return CVY_OK;
}

const struct cvy_backend cvy_backend_ref = {
    .name = "ref",
    .open = open_device,
    .close = close_device,
    .allocate = allocate,
    .release = release,
    .upload = copy,
    .download = copy,
    .synchronize = synchronize,
    .update = update,
    .combine = combine,
    .tensor_bytes = ref_tensor_bytes,
    .kernels = kernels,
    .kernel_count = sizeof kernels / sizeof *kernels,
    .host_memory = true,
};
