/* The optimizer step and operations on whole arenas: one pass each. Elements are independent, so the order does not
 * matter. */
#include <string.h>

#include "backend/cpu/cpu.h"

/* Pieces of every segment, dealt to the threads in turn. */
cvy_status cpu_update(cvy_device *device, const struct cvy_update *step)
{
    const struct cpu_kernels *kernels = cpu_of(device)->kernels;
    float factor;
    bool take;

    CVY_TRY(cvy_update_check(step));
    take = cvy_update_begin(step, device->threads, &factor);
#pragma omp parallel num_threads(device->threads)
    for (int32_t s = 0; s < step->segment_count && take; s++) {
        const struct cvy_update_segment *segment = &step->segments[s];
        const struct cpu_update_run run = {.learning_rate = *step->learning_rate * segment->rate,
                                           .weight_decay = segment->weight_decay,
                                           .momentum = step->momentum,
                                           .damping = 1 - step->dampening,
                                           .alpha = (float)step->alpha,
                                           .fresh = (float)(1 - step->alpha),
                                           .epsilon = (float)step->epsilon,
                                           .gradient_scale = factor,
                                           .nesterov = step->nesterov};
        const int64_t pieces = (segment->count + CPU_CHUNK - 1) / CPU_CHUNK;
#pragma omp for schedule(static) nowait
        for (int64_t piece = 0; piece < pieces; piece++) {
            const int64_t first = segment->first + piece * CPU_CHUNK;
            const int64_t rest = segment->first + segment->count - first;
            const size_t count = (size_t)(rest < CPU_CHUNK ? rest : CPU_CHUNK);
            if (step->kind == CVY_UPDATE_RMSPROP)
                kernels->rmsprop(step->weights + first, step->momentum_buffer + first, step->square_average + first,
                                 step->gradients + first, count, &run);
            else
                kernels->sgd(step->weights + first, step->momentum_buffer + first, step->gradients + first, count,
                             &run);
        }
    }
    if (step->scaler)
        cvy_scaler_update(step->scaler, &step->rule);
    return CVY_OK;
}

cvy_status cpu_combine(cvy_device *device, enum cvy_combine how, float *y, const float *x, int64_t count,
                       const float *share)
{
    const struct cpu_kernels *kernels = cpu_of(device)->kernels;
    const int64_t pieces = (count + CPU_CHUNK - 1) / CPU_CHUNK;

#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        const int64_t first = piece * CPU_CHUNK, rest = count - first;
        const size_t part = (size_t)(rest < CPU_CHUNK ? rest : CPU_CHUNK);
        if (how == CVY_COMBINE_COPY)
            memcpy(y + first, x + first, part * sizeof *y);
        else if (how == CVY_COMBINE_ADD)
            kernels->f32->binary[CVY_OP_ADD](y + first, y + first, x + first, part);
        else
            kernels->towards(y + first, x + first, part, *share);
    }
    return CVY_OK;
}
