/* The check backend: "check:cpu" runs every kernel of the cpu device and, on the same inputs, the reference kernel in
 * double, and fails on the first output that is further away than rounding explains. Slow; for finding a wrong kernel.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/check_internal.h"
#include "base/error.h"

enum { SGD_CHUNK = 65536 }; /* elements of the optimizer's step that are compared at a time */

cvy_status check_reserve(struct check_device *check, int index, size_t bytes)
{
    cvy_device *owner = index == SLOT_STAGE || index == SLOT_STAGE_SCRATCH ? check->inner : check->reference;
    struct check_buffer *buffer = &check->slots[index];

    if (bytes <= buffer->bytes)
        return CVY_OK;
    owner->backend->release(owner, buffer->memory);
    *buffer = (struct check_buffer){NULL, 0};
    CVY_TRY(owner->backend->allocate(owner, bytes, &buffer->memory));
    buffer->bytes = bytes;
    return CVY_OK;
}

/* ---- device ---- */

static void close_device(cvy_device *device)
{
    struct check_device *check = check_of(device);

    if (!check)
        return;
    for (int i = 0; i < SLOT_COUNT; i++) {
        cvy_device *owner = i == SLOT_STAGE || i == SLOT_STAGE_SCRATCH ? check->inner : check->reference;
        if (owner)
            owner->backend->release(owner, check->slots[i].memory);
    }
    cvy_device_close(check->inner);
    cvy_device_close(check->reference);
    if (check->lock_made)
        pthread_mutex_destroy(&check->lock);
    cvy_free(check);
}

cvy_status check_wrap(cvy_device *inner, cvy_device **device)
{
    struct check_device *check = cvy_calloc(1, sizeof *check);
    cvy_status status;

    *device = NULL;
    if (!check) {
        cvy_device_close(inner);
        return cvy_fail_memory(sizeof *check, "a device");
    }
    check->base.backend = &cvy_backend_check;
    check->base.threads = inner->threads;
    check->base.gpu = inner->gpu;
    check->inner = inner;
    inner->checked = true;
    if (pthread_mutex_init(&check->lock, NULL) != 0) {
        status = cvy_fail(CVY_FAILED, "a lock cannot be made");
        goto fail;
    }
    check->lock_made = true;
    CVY_GOTO(cvy_device_open("ref", inner->threads, &check->reference));
    for (int i = SLOT_IN; i < SLOT_IN + 5; i++) /* of the optimizer step */
        CVY_GOTO(check_reserve(check, i, SGD_CHUNK * sizeof(float)));
    snprintf(check->base.description, sizeof check->base.description, "check of %.*s",
             (int)sizeof check->base.description - 10, inner->description);
    memcpy(check->base.settings, inner->settings, sizeof check->base.settings);
    check->base.choices = inner->choices; /* its rows do not compete: what is chosen is chosen among the inner ones */
    *device = &check->base;
    return CVY_OK;
fail:
    close_device(&check->base);
    return status;
}

static cvy_status open_device(const struct cvy_backend *backend, const char *spec, int threads, cvy_device **device)
{
    cvy_device *inner;

    (void)backend;
    *device = NULL;
    if (!spec || !spec[0] || strncmp(spec, "check", 5) == 0)
        return cvy_fail(CVY_USAGE, "device \"check\" needs the device to check, as in check:cpu");
    CVY_TRY(cvy_device_open(spec, threads, &inner));
    return check_wrap(inner, device);
}

static cvy_status allocate(cvy_device *device, size_t bytes, void **memory)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->allocate(inner, bytes, memory);
}

static void release(cvy_device *device, void *memory)
{
    cvy_device *inner = check_of(device)->inner;

    inner->backend->release(inner, memory);
}

static cvy_status upload(cvy_device *device, void *to, const void *host, size_t bytes)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->upload(inner, to, host, bytes);
}

static cvy_status download(cvy_device *device, void *host, const void *from, size_t bytes)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->download(inner, host, from, bytes);
}

static cvy_status synchronize(cvy_device *device)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->synchronize(inner);
}

static size_t tensor_bytes(cvy_device *device, const struct cvy_tensor *tensor)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->tensor_bytes(inner, tensor);
}

/* ---- the optimizer ---- */

/* One chunk of one segment: the step on the checked device, then here from what was there before. */
static cvy_status check_step(struct check_device *check, const struct cvy_sgd *step, const struct cvy_sgd_segment *part,
                             void *context)
{
    cvy_device *inner = check->inner;
    const size_t bytes = (size_t)part->count * sizeof(float);
    float *before_weights = check_slot(check, SLOT_IN), *before_momentum = check_slot(check, SLOT_IN + 1);
    float *gradients = check_slot(check, SLOT_IN + 2), *weights = check_slot(check, SLOT_IN + 3);
    float *momentum = check_slot(check, SLOT_IN + 4);
    struct cvy_sgd one = *step;
    double difference[2] = {0, 0}, size[2] = {0, 0};
    /* Five roundings on the way to a weight. */
    const double limit = 5 * check_unit(CVY_F32);

    (void)context;
    one.segments = part;
    one.segment_count = 1;
    CVY_TRY(inner->backend->download(inner, before_weights, step->weights + part->first, bytes));
    CVY_TRY(inner->backend->download(inner, before_momentum, step->momentum_buffer + part->first, bytes));
    CVY_TRY(inner->backend->download(inner, gradients, step->gradients + part->first, bytes));
    CVY_TRY(inner->backend->sgd(inner, &one));
    CVY_TRY(inner->backend->download(inner, weights, step->weights + part->first, bytes));
    CVY_TRY(inner->backend->download(inner, momentum, step->momentum_buffer + part->first, bytes));
    for (int64_t i = 0; i < part->count; i++) {
        const double w = (double)before_weights[i], rate = (double)part->learning_rate;
        const double gradient = (double)gradients[i] * (double)step->gradient_scale;
        const double decay = (double)part->weight_decay * w, d = gradient + decay;
        const double kept = (double)step->momentum * (double)before_momentum[i];
        const double v = kept + (1 - (double)step->dampening) * d;
        const double change = step->nesterov ? d + (double)step->momentum * v : v;
        const double v_size = fabs(kept) + fabs(gradient) + fabs(decay);
        const double w_size = fabs(w) + rate * (v_size + (step->nesterov ? fabs(gradient) + fabs(decay) : 0));
        const double expected[2] = {v, w - rate * change}, found[2] = {(double)momentum[i], (double)weights[i]};
        const double sizes[2] = {v_size, w_size};
        for (int k = 0; k < 2; k++) {
            /* Where a right step leaves no finite float, in a run that diverged, there is nothing to compare. */
            if (!(fabs(expected[k]) <= (double)FLT_MAX))
                continue;
            difference[k] += pow(found[k] - expected[k], 2);
            size[k] += sizes[k] * sizes[k];
        }
    }
    for (int i = 0; i < 2; i++) {
        if (!(difference[i] <= limit * limit * size[i])) /* NaN where a finite number was expected is a fault */
            return cvy_fail(
                CVY_FAILED,
                "the sgd step of %s disagrees with ref: %s %lld to %lld, relative rms error %.3g, limit %.3g",
                inner->backend->name, i ? "weights" : "momentum", (long long)part->first,
                (long long)(part->first + part->count - 1), sqrt(difference[i] / size[i]), limit);
    }
    return CVY_OK;
}

/* The chunks of all segments, in turn. */
static cvy_status for_chunks(struct check_device *check, const struct cvy_sgd *step,
                             cvy_status (*function)(struct check_device *check, const struct cvy_sgd *step,
                                                    const struct cvy_sgd_segment *part, void *context),
                             void *context)
{
    for (int32_t s = 0; s < step->segment_count; s++) {
        struct cvy_sgd_segment part = step->segments[s];
        const int64_t end = part.first + part.count;
        for (; part.first < end; part.first += SGD_CHUNK) {
            part.count = end - part.first < SGD_CHUNK ? end - part.first : SGD_CHUNK;
            CVY_TRY(function(check, step, &part, context));
        }
    }
    return CVY_OK;
}

static cvy_status find_overflow(struct check_device *check, const struct cvy_sgd *step,
                                const struct cvy_sgd_segment *part, void *context)
{
    float *gradients = check_slot(check, SLOT_IN + 2);
    bool *overflow = context;

    CVY_TRY(check->inner->backend->download(check->inner, gradients, step->gradients + part->first,
                                            (size_t)part->count * sizeof *gradients));
    for (int64_t i = 0; i < part->count; i++)
        *overflow = *overflow || !isfinite(gradients[i]);
    return CVY_OK;
}

/* With a loss scale: its rule is followed here, and the chunks are checked as steps without one. */
static cvy_status check_sgd(struct check_device *check, const struct cvy_sgd *step)
{
    const struct cvy_backend *backend = check->inner->backend;
    struct cvy_sgd plain = *step;
    struct cvy_scaler scaler;
    bool overflow = false;

    if (!step->scaler)
        return for_chunks(check, step, check_step, NULL);
    CVY_TRY(backend->download(check->inner, &scaler, step->scaler, sizeof scaler));
    if (step->rule.skips)
        CVY_TRY(for_chunks(check, step, find_overflow, &overflow));
    scaler.overflow = overflow;
    plain.scaler = NULL;
    plain.gradient_scale = step->gradient_scale / scaler.scale;
    if (!overflow)
        CVY_TRY(for_chunks(check, &plain, check_step, NULL));
    cvy_scaler_update(&scaler, &step->rule);
    return backend->upload(check->inner, step->scaler, &scaler, sizeof scaler);
}

static cvy_status sgd(cvy_device *device, const struct cvy_sgd *step)
{
    struct check_device *check = check_of(device);
    cvy_status status;

    pthread_mutex_lock(&check->lock);
    status = check_sgd(check, step);
    pthread_mutex_unlock(&check->lock);
    return status;
}

/* ---- the table ---- */

#define ROW(op, name)                                                                                                  \
    {                                                                                                                  \
        "check." name, op, check_prepare, check_run, check_release, false, 0                                           \
    }
static const struct cvy_kernel kernels[] = {
    ROW(CVY_OP_NORMALIZE, "normalize"),
    ROW(CVY_OP_CAST, "cast"),
    ROW(CVY_OP_REORDER, "reorder"),
    ROW(CVY_OP_CONV2D, "conv2d"),
    ROW(CVY_OP_CONV2D_BWD_DATA, "conv2d_bwd_data"),
    ROW(CVY_OP_CONV2D_BWD_WEIGHTS, "conv2d_bwd_weights"),
    ROW(CVY_OP_CONV2D_BWD_BIAS, "conv2d_bwd_bias"),
    ROW(CVY_OP_BATCH_NORM, "batch_norm"),
    ROW(CVY_OP_BATCH_NORM_BWD, "batch_norm_bwd"),
    ROW(CVY_OP_BATCH_NORM_APPLY, "batch_norm_apply"),
    ROW(CVY_OP_BATCH_NORM_INFERENCE, "batch_norm_inference"),
    ROW(CVY_OP_BATCH_NORM_INFERENCE_BWD, "batch_norm_inference_bwd"),
    ROW(CVY_OP_FOLD_BATCH_NORM, "fold_batch_norm"),
    ROW(CVY_OP_RELU, "relu"),
    ROW(CVY_OP_RELU_BWD, "relu_bwd"),
    ROW(CVY_OP_SIGMOID, "sigmoid"),
    ROW(CVY_OP_SIGMOID_BWD, "sigmoid_bwd"),
    ROW(CVY_OP_ADD, "add"),
    ROW(CVY_OP_FAKE_QUANTIZE, "fake_quantize"),
    ROW(CVY_OP_FAKE_QUANTIZE_BWD, "fake_quantize_bwd"),
    ROW(CVY_OP_MAX_POOL, "max_pool"),
    ROW(CVY_OP_MAX_POOL_BWD, "max_pool_bwd"),
    ROW(CVY_OP_GLOBAL_AVG_POOL, "global_avg_pool"),
    ROW(CVY_OP_GLOBAL_AVG_POOL_BWD, "global_avg_pool_bwd"),
    ROW(CVY_OP_SCALE_CHANNELS, "scale_channels"),
    ROW(CVY_OP_SCALE_CHANNELS_BWD_SCALE, "scale_channels_bwd_scale"),
    ROW(CVY_OP_LINEAR, "linear"),
    ROW(CVY_OP_LINEAR_BWD_DATA, "linear_bwd_data"),
    ROW(CVY_OP_LINEAR_BWD_WEIGHTS, "linear_bwd_weights"),
    ROW(CVY_OP_SOFTMAX, "softmax"),
    ROW(CVY_OP_SOFTMAX_CROSS_ENTROPY, "softmax_cross_entropy"),
    ROW(CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD, "softmax_cross_entropy_bwd"),
};

const struct cvy_backend cvy_backend_check = {
    .name = "check",
    .open = open_device,
    .close = close_device,
    .allocate = allocate,
    .release = release,
    .upload = upload,
    .download = download,
    .synchronize = synchronize,
    .sgd = sgd,
    .tensor_bytes = tensor_bytes,
    .kernels = kernels,
    .kernel_count = sizeof kernels / sizeof *kernels,
    .host_memory = false, /* that depends on the device it checks */
};
