/* The optimizer step: kernels over as many segments of the arenas as fit into their arguments. */
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

static void for_segments(void *stream, const struct cvy_sgd *step, struct gpu_sgd_args *args,
                         void (*launch)(void *stream, struct gpu_sgd_args *args))
{
    for (int32_t s = 0; s < step->segment_count; s++) {
        const struct cvy_sgd_segment *segment = &step->segments[s];
        if (segment->count > 0)
            args->segments[args->segment_count++] = (struct gpu_sgd_segment){
                .first = segment->first,
                .count = segment->count,
                .learning_rate = segment->learning_rate,
                .weight_decay = segment->weight_decay,
            };
        if (args->segment_count == GPU_SGD_SEGMENTS || s + 1 == step->segment_count) {
            launch(stream, args);
            args->segment_count = 0;
        }
    }
}

cvy_status gpu_sgd(cvy_device *device, const struct cvy_sgd *step)
{
    struct gpu_sgd_args args = {
        .weights = step->weights,
        .momentum_buffer = step->momentum_buffer,
        .gradients = step->gradients,
        .momentum = step->momentum,
        .damping = 1 - step->dampening,
        .gradient_scale = step->gradient_scale,
        .nesterov = step->nesterov,
        .scaler = step->scaler,
    };

    if (!step->momentum_buffer)
        return cvy_fail(CVY_FAILED, "the optimizer step has no momentum buffer");
    if (step->scaler && step->rule.skips)
        for_segments(gpu_of(device)->stream, step, &args, gpu_find_overflow);
    for_segments(gpu_of(device)->stream, step, &args, gpu_sgd_step);
    if (step->scaler)
        gpu_end_step(gpu_of(device)->stream, step->scaler, &step->rule);
    return gpu_queued(gpu_of(device));
}
