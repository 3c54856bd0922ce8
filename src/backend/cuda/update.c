/* The optimizer step: kernels over as many segments of the arenas as fit into their arguments; sums over whole arenas.
 */
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

static void for_segments(void *stream, const struct cvy_update *step, struct gpu_update_args *args,
                         void (*launch)(void *stream, struct gpu_update_args *args))
{
    for (int32_t s = 0; s < step->segment_count; s++) {
        const struct cvy_update_segment *segment = &step->segments[s];
        if (segment->count > 0)
            args->segments[args->segment_count++] = (struct gpu_update_segment){
                .first = segment->first,
                .count = segment->count,
                .learning_rate = segment->learning_rate,
                .weight_decay = segment->weight_decay,
            };
        if (args->segment_count == GPU_UPDATE_SEGMENTS || s + 1 == step->segment_count) {
            launch(stream, args);
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
        for_segments(gpu_of(device)->stream, step, &args, gpu_find_overflow);
    for_segments(gpu_of(device)->stream, step, &args, gpu_update_step);
    if (step->scaler)
        gpu_end_step(gpu_of(device)->stream, step->scaler, &step->rule);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_combine(cvy_device *device, enum cvy_combine how, float *y, const float *x, int64_t count, double share)
{
    void *stream = gpu_of(device)->stream;

    CVY_TRY(gpu_enter_of(gpu_of(device)));
    if (how == CVY_COMBINE_COPY)
        return gpu_copy(stream, y, x, (size_t)count * sizeof *y);
    if (how == CVY_COMBINE_ADD)
        gpu_sum_floats(stream, y, x, count);
    else
        gpu_average_floats(stream, y, x, count, (float)share);
    return gpu_queued(gpu_of(device));
}
