/* Convolutions on kernels of our own beside the engine's: which is the faster one. */
#include <stdio.h>

#include "backend/cuda/conv_engine.h"

cvy_status gpu_check_tensor_cores(const struct gpu_device *device)
{
    return 10 * device->info.major + device->info.minor < 75 && !device->described
               ? cvy_fail(CVY_UNAVAILABLE, "our kernels on tensor cores need compute capability 7.5")
               : CVY_OK;
}

cvy_status gpu_engine_seconds(struct gpu_device *device, struct gpu_conv_problem problem, double *seconds)
{
    struct gpu_conv *conv;
    double fused;
    cvy_status status;

    CVY_TRY(gpu_conv_open(device, &problem, &conv));
    *seconds = gpu_conv_seconds(conv);
    gpu_conv_close(conv);
    if (problem.statistics != GPU_STATISTICS_SEPARATE || device->statistics == GPU_STATISTICS_ALWAYS_SEPARATE)
        return CVY_OK;
    problem.statistics = GPU_STATISTICS_FUSED;
    status = gpu_conv_open(device, &problem, &conv);
    if (status == CVY_OK) {
        fused = gpu_conv_seconds(conv);
        gpu_conv_close(conv);
        if (device->statistics == GPU_STATISTICS_ALWAYS_FUSED || (fused > 0 && fused < *seconds))
            *seconds = fused;
    }
    return status == CVY_UNAVAILABLE ? CVY_OK : status; /* then they are separate, whatever was asked for */
}

cvy_status gpu_own_seconds(struct gpu_device *device, const struct gpu_conv_problem *problem,
                           const struct gpu_own_conv *own, double *seconds)
{
    return gpu_conv_measure(device, problem, own->name, own->run, own->context, own->scratch_bytes, seconds);
}

cvy_status gpu_own_compare(struct gpu_device *device, const struct gpu_conv_problem *problem,
                           const struct gpu_own_conv *own, struct cvy_kernel_plan *plan)
{
    double ours, engine;
    cvy_status status;

    CVY_TRY(gpu_own_seconds(device, problem, own, &ours));
    status = gpu_engine_seconds(device, *problem, &engine);
    if (status == CVY_UNAVAILABLE) /* there is nothing to lose against */
        return CVY_OK;
    CVY_TRY(status);
    if (ours <= 0 || engine <= 0)
        return cvy_fail(CVY_UNAVAILABLE, "not timed");
    if (engine <= ours)
        return cvy_fail(CVY_UNAVAILABLE, "%.3f ms, cuDNN %.3f ms", 1e3 * ours, 1e3 * engine);
    snprintf(plan->reason, sizeof plan->reason, "tensor cores: %.3f ms, cuDNN %.3f ms", 1e3 * ours, 1e3 * engine);
    return CVY_OK;
}
