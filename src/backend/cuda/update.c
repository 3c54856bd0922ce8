/* The optimizer step: kernels over as many segments of the arenas as fit into their arguments; sums over whole arenas.
 */
#include <assert.h>

#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

/* What finds overflows knows no rules: neighbours in the arena are one segment to it. */
static void for_stretches(void *stream, const struct cvy_update *step, struct gpu_update_args *args)
{
    for (int32_t s = 0; s < step->segment_count; s++) {
        const struct cvy_update_segment *segment = &step->segments[s];
        struct gpu_update_segment *last = args->segment_count ? &args->segments[args->segment_count - 1] : NULL;

        if (last && last->first + last->count == segment->first) {
            last->count += segment->count;
            continue;
        }
        if (args->segment_count == GPU_UPDATE_SEGMENTS) {
            gpu_find_overflow(stream, args);
            args->segment_count = 0;
        }
        args->segments[args->segment_count++] =
            (struct gpu_update_segment){.first = segment->first, .count = segment->count};
    }
    gpu_find_overflow(stream, args);
    args->segment_count = 0;
}

static void for_segments(void *stream, const struct cvy_update *step, struct gpu_update_args *args)
{
    for (int32_t s = 0; s < step->segment_count; s++) {
        const struct cvy_update_segment *segment = &step->segments[s];
        if (segment->count > 0)
            args->segments[args->segment_count++] = (struct gpu_update_segment){
                .first = segment->first,
                .count = segment->count,
                .rate = segment->rate,
                .weight_decay = segment->weight_decay,
            };
        if (args->segment_count == GPU_UPDATE_SEGMENTS || s + 1 == step->segment_count) {
            gpu_update_step(stream, args);
            args->segment_count = 0;
        }
    }
}

cvy_status gpu_update(cvy_device *device, const struct cvy_update *step)
{
    struct gpu_update_args args = {
        .weights = step->weights,
        .square_average = step->kind == CVY_UPDATE_RMSPROP ? step->square_average : NULL,
        .momentum_buffer = step->momentum_buffer,
        .gradients = step->gradients,
        .learning_rate = step->learning_rate,
        .momentum = step->momentum,
        .damping = 1 - step->dampening,
        .gradient_scale = step->gradient_scale,
        .nesterov = step->nesterov,
        .alpha = (float)step->alpha,
        .fresh = (float)(1 - step->alpha),
        .epsilon = (float)step->epsilon,
        .scaler = step->scaler,
    };

    CVY_TRY(cvy_update_check(step));
    CVY_TRY(gpu_enter_of(gpu_of(device)));
    if (step->scaler && step->rule.skips)
        for_stretches(gpu_of(device)->stream, step, &args);
    for_segments(gpu_of(device)->stream, step, &args);
    if (step->scaler)
        gpu_end_step(gpu_of(device)->stream, step->scaler, &step->rule);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_combine(cvy_device *device, enum cvy_combine how, float *y, const float *x, int64_t count,
                       const float *share)
{
    void *stream = gpu_of(device)->stream;

    CVY_TRY(gpu_enter_of(gpu_of(device)));
    if (how == CVY_COMBINE_COPY)
        return gpu_copy(stream, y, x, (size_t)count * sizeof *y);
    if (how == CVY_COMBINE_ADD)
        gpu_sum_floats(stream, y, x, count);
    else
        gpu_average_floats(stream, y, x, count, share);
    return gpu_queued(gpu_of(device));
}

static_assert((int)GPU_SMALL_UPLOAD_BYTES == (int)CVY_SMALL_UPLOAD_BYTES,
              "what a launch takes along is what may be put");

cvy_status gpu_upload_small(cvy_device *device, void *to, const void *host, size_t bytes)
{
    if (bytes > CVY_SMALL_UPLOAD_BYTES)
        return cvy_fail(CVY_FAILED, "%zu bytes are too many to be put", bytes);
    CVY_TRY(gpu_enter_of(gpu_of(device)));
    gpu_put_bytes(gpu_of(device)->stream, to, host, bytes);
    return gpu_queued(gpu_of(device));
}
