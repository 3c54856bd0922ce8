/* The optimizer step: one pass over the arenas. */
#include "backend/cpu/cpu.h"

/* Pieces of every segment, dealt to the threads in turn. Elements do not meet, so the order does not matter. */
cvy_status cpu_sgd(cvy_device *device, const struct cvy_sgd *step)
{
    if (!step->momentum_buffer)
        return cvy_fail(CVY_FAILED, "the optimizer step has no momentum buffer");
    const struct cpu_kernels *kernels = cpu_of(device)->kernels;
    float factor;
    const bool take = cvy_sgd_begin(step, device->threads, &factor);
#pragma omp parallel num_threads(device->threads)
    for (int32_t s = 0; s < step->segment_count && take; s++) {
        const struct cvy_sgd_segment *segment = &step->segments[s];
        const struct cpu_sgd_run run = {.learning_rate = segment->learning_rate,
                                        .weight_decay = segment->weight_decay,
                                        .momentum = step->momentum,
                                        .damping = 1 - step->dampening,
                                        .gradient_scale = factor,
                                        .nesterov = step->nesterov};
        const int64_t pieces = (segment->count + CPU_CHUNK - 1) / CPU_CHUNK;
#pragma omp for schedule(static) nowait
        for (int64_t piece = 0; piece < pieces; piece++) {
            const int64_t first = segment->first + piece * CPU_CHUNK;
            const int64_t rest = segment->first + segment->count - first;
            kernels->sgd(step->weights + first, step->momentum_buffer + first, step->gradients + first,
                         (size_t)(rest < CPU_CHUNK ? rest : CPU_CHUNK), &run);
        }
    }
    if (step->scaler)
        cvy_scaler_update(step->scaler, &step->rule);
    return CVY_OK;
}
