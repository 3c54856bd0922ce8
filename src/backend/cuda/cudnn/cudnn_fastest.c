/* The fastest of a few plans that runs, and whose results are those of separate kernels. */
#include "backend/cuda/cudnn/cudnn_engine.h"
#include "base/log.h"

struct candidate {
    const struct gpu_conv_problem *problem;
    const struct cudnn_plan *plan;
};

static cvy_status run_candidate(struct gpu_device *device, const void *context, const struct gpu_conv_memory *memory)
{
    const struct candidate *candidate = context;

    return cudnn_run(device, candidate->problem, candidate->plan, memory);
}

/* CVY_UNAVAILABLE where the plan's results are not those of the reference, which is remembered. *compared: they are, or
 * there is none. */
static cvy_status check_results(struct gpu_device *device, const struct candidate *candidate,
                                const struct cudnn_reference *reference, const struct cudnn_timing *timing,
                                const char *name, bool *compared)
{
    const struct candidate separate = {&reference->problem, reference->plan};
    struct cudnn_faults *faults = &device->libraries->convolutions->faults;
    cvy_status status;

    *compared = device->compares;
    if (!reference->plan || candidate->plan->form == CUDNN_FORM_SEPARATE)
        return CVY_OK;
    status = cudnn_compare(device, candidate->problem, timing, (struct cudnn_way){run_candidate, &separate},
                           (struct cudnn_way){run_candidate, candidate});
    if (status == CVY_NO_MEMORY) {
        cvy_log(CVY_LOG_WARNING, "cuDNN's engine %lld is not compared with separate kernels: %s",
                (long long)candidate->plan->engine, cvy_error());
        *compared = false;
        return CVY_OK;
    }
    if (status != CVY_UNAVAILABLE)
        return status;
    cvy_log(CVY_LOG_WARNING, "cuDNN's engine %lld is left out: %s (%s)", (long long)candidate->plan->engine,
            cvy_error(), name);
    (void)cudnn_faults_refuse(faults, name);
    return status;
}

cvy_status cudnn_compare_with(struct gpu_device *device, const struct gpu_conv_problem *problem,
                              const struct cudnn_plan *plan, const struct cudnn_timing *timing,
                              struct cudnn_way candidate)
{
    const struct candidate separate = {problem, plan};

    return cudnn_compare(device, problem, timing, (struct cudnn_way){run_candidate, &separate}, candidate);
}

/* A kernel that faults takes the GPU's context with it: nothing runs in this process any more. */
static cvy_status check_context(struct gpu_device *device, const struct cudnn_plan *plan, const char *name)
{
    struct cudnn_faults *faults = &device->libraries->convolutions->faults;

    if (gpu_stream_wait(device->stream) == CVY_OK)
        return CVY_OK;
    faults->kept = !cudnn_faults_refuse(faults, name);
    cudnn_faults_tried(faults);
    return cvy_fail_context(CVY_FAILED,
                            "cuDNN's engine %lld ended all work on the GPU; start again: it will be left out",
                            (long long)plan->engine);
}

/* CVY_UNAVAILABLE where the candidate does not run, or not as it must. Whether it is faster than `limit` is known
 * before its results are compared: 0 for any time. */
static cvy_status try_candidate(struct gpu_device *device, const struct candidate *candidate,
                                const struct cudnn_reference *reference, const struct cudnn_timing *timing,
                                const char *name, double limit, double *seconds, bool *compared)
{
    struct cudnn_faults *faults = &device->libraries->convolutions->faults;
    cvy_status status;

    cudnn_faults_try(faults, name);
    status = cudnn_time(device, run_candidate, candidate, timing, seconds);
    if (status == CVY_OK && (limit == 0 || *seconds < limit))
        status = check_results(device, candidate, reference, timing, name, compared);
    if (status != CVY_OK && status != CVY_UNAVAILABLE) {
        cvy_log(CVY_LOG_DEBUG, "cuDNN's engine %lld cannot be timed: %s", (long long)candidate->plan->engine,
                cvy_error());
        CVY_TRY(check_context(device, candidate->plan, name));
        status = CVY_UNAVAILABLE;
    }
    cudnn_faults_tried(faults);
    return status;
}

static cvy_status time_candidates(struct gpu_device *device, const struct gpu_conv_problem *problem, const char *key,
                                  const struct cudnn_reference *reference, struct cudnn_plan *plans, int count,
                                  const struct cudnn_timing *timing, int *chosen, double *seconds)
{
    int fastest = -1;

    for (int i = 0; i < count; i++) {
        const struct candidate candidate = {problem, &plans[i]};
        char *name = cudnn_faults_name(device->libraries, key, candidate.plan);
        double found;
        const cvy_status status = try_candidate(device, &candidate, reference, timing, name, fastest < 0 ? 0 : *seconds,
                                                &found, &plans[i].compared);
        cvy_free(name);
        if (status != CVY_OK && status != CVY_UNAVAILABLE)
            return status;
        if (status == CVY_OK && (fastest < 0 || found < *seconds)) {
            fastest = i;
            *seconds = found;
        }
    }
    if (fastest < 0)
        return cvy_fail_context(CVY_UNAVAILABLE, "none of cuDNN's %d kernels for this convolution runs as it must",
                                count);
    *chosen = fastest;
    return CVY_OK;
}

cvy_status cudnn_find_fastest(struct gpu_device *device, const struct gpu_conv_problem *problem, const char *key,
                              const struct cudnn_reference *reference, struct cudnn_plan *plans, int count, int *chosen,
                              double *seconds)
{
    size_t scratch = reference->plan ? cudnn_scratch_bytes(&reference->problem, reference->plan) : 0;
    struct cudnn_timing timing;
    cvy_status status;

    *chosen = 0;
    *seconds = 0;
    for (int i = 0; i < count; i++) {
        const size_t bytes = cudnn_scratch_bytes(problem, &plans[i]);
        scratch = bytes > scratch ? bytes : scratch;
    }
    if (cudnn_timing_open(device, problem, scratch, &timing) != CVY_OK) {
        cvy_log(CVY_LOG_WARNING, "a convolution is not timed: %s", cvy_error());
        cudnn_timing_close(&timing);
        return CVY_OK;
    }
    status = time_candidates(device, problem, key, reference, plans, count, &timing, chosen, seconds);
    cudnn_timing_close(&timing);
    return status;
}
