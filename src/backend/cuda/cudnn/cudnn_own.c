/* Times kernels of our own, as candidates beside the engine's plans, and treats them as those: what was found is kept,
 * what ends the GPU's work or differs from separate kernels is not taken again. */
#include "backend/cuda/cudnn/cudnn_engine.h"
#include "base/log.h"

struct own {
    struct cudnn_way way;
    const char *name; /* of its faults */
    const struct cudnn_plan *separate;
    struct gpu_conv_problem problem; /* as the engine's plan has it */
};

/* What does a batch norm's work too is held against a plan of the engine and batch norm's own kernel. */
static bool is_to_be_compared(const struct gpu_device *device, const struct gpu_conv_problem *problem)
{
    return device->compares && problem->gradient_sums == GPU_PART_SEPARATE;
}

static cvy_status find_separate(struct gpu_device *device, struct own *own)
{
    const struct cudnn_tuned *separate;
    cvy_status status;

    if (!is_to_be_compared(device, &own->problem))
        return CVY_OK;
    status = cudnn_choose_locked(device, &own->problem, &separate);
    if (status == CVY_OK)
        own->separate = &separate->plan;
    return status == CVY_UNAVAILABLE ? CVY_OK : status;
}

/* CVY_UNAVAILABLE where the results differ. *compared: they do not, or there is nothing to compare them with. */
static cvy_status check_results(struct gpu_device *device, const struct own *own, const struct cudnn_timing *timing,
                                bool *compared)
{
    cvy_status status;

    *compared = device->compares;
    if (!own->separate)
        return CVY_OK;
    status = cudnn_compare_with(device, &own->problem, own->separate, timing, own->way);
    if (status != CVY_NO_MEMORY)
        return status;
    *compared = false;
    cvy_log(CVY_LOG_WARNING, "a kernel of ours is not compared with separate ones: %s", cvy_error());
    return CVY_OK;
}

/* CVY_UNAVAILABLE where it does not run, or not as it must; CVY_FAILED where it has broken the GPU's context. */
static cvy_status try_own(struct gpu_device *device, const struct own *own, const struct cudnn_timing *timing,
                          double *seconds, bool *compared)
{
    struct cudnn_faults *faults = &device->libraries->convolutions->faults;
    cvy_status status;

    cudnn_faults_try(faults, own->name);
    status = cudnn_time(device, own->way.run, own->way.context, timing, seconds);
    if (status == CVY_OK)
        status = check_results(device, own, timing, compared);
    if (status == CVY_UNAVAILABLE) {
        cvy_log(CVY_LOG_WARNING, "a kernel of ours is left out: %s (%s)", cvy_error(), own->name);
        (void)cudnn_faults_refuse(faults, own->name);
    } else if (status != CVY_OK && gpu_stream_wait(device->stream) != CVY_OK) {
        faults->kept = !cudnn_faults_refuse(faults, own->name);
        status = cvy_fail_context(CVY_FAILED,
                                  "a kernel of ours ended all work on the GPU; start again: it will be left out");
    } else if (status != CVY_OK) {
        cvy_log(CVY_LOG_WARNING, "a kernel of ours is not timed: %s", cvy_error());
        status = CVY_UNAVAILABLE;
    }
    cudnn_faults_tried(faults);
    return status;
}

/* Times what no record tells of, and keeps it. 0 where there is no memory to try it in, and where it is left out. */
static cvy_status measure(struct gpu_device *device, struct own *own, const char *key, size_t scratch_bytes,
                          double *seconds)
{
    struct cudnn_cache_entry record = {.key = key, .tensor_cores = true, .candidates = 1};
    struct cudnn_timing timing;
    size_t other_bytes;
    cvy_status status;

    CVY_TRY(find_separate(device, own));
    other_bytes = own->separate ? cudnn_scratch_bytes(&own->problem, own->separate) : 0;
    if (cudnn_timing_open(device, &own->problem, scratch_bytes > other_bytes ? scratch_bytes : other_bytes, &timing) !=
        CVY_OK) {
        cvy_log(CVY_LOG_WARNING, "a kernel of ours is not timed: %s", cvy_error());
        cudnn_timing_close(&timing);
        return CVY_OK;
    }
    status = try_own(device, own, &timing, seconds, &record.compared);
    cudnn_timing_close(&timing);
    if (status != CVY_OK) {
        *seconds = 0;
        return status == CVY_UNAVAILABLE ? CVY_OK : status;
    }
    record.nanoseconds = (int64_t)(1e9 * *seconds + 0.5);
    cudnn_cache_add(&device->libraries->convolutions->cache, &record, "{}");
    return CVY_OK;
}

/* `name`: "refused <key>". */
static cvy_status find_or_measure(struct gpu_device *device, struct own *own, const char *key, size_t scratch_bytes,
                                  double *seconds)
{
    struct cudnn_autotuner *autotuner = device->libraries->convolutions;
    struct cudnn_cache_entry record;

    if (cudnn_faults_refuses(&autotuner->faults, own->name))
        return CVY_OK;
    /* A time that was taken without a comparison is not believed by a run that compares. */
    if (cudnn_cache_find(&autotuner->cache, key, &record) &&
        (record.compared || device->base.dry_run || !is_to_be_compared(device, &own->problem))) {
        *seconds = 1e-9 * (double)record.nanoseconds;
        return CVY_OK;
    }
    return device->base.dry_run ? CVY_OK : measure(device, own, key, scratch_bytes, seconds);
}

cvy_status gpu_conv_measure(struct gpu_device *device, const struct gpu_conv_problem *problem, const char *name,
                            gpu_conv_runner *run, const void *context, size_t scratch_bytes, double *seconds)
{
    static const char refused[] = "refused ";
    struct gpu_libraries *libraries = device->libraries;
    struct own own = {.way = {run, context}, .problem = *problem};
    struct cvy_text key = {0};
    cvy_status status;

    *seconds = 0;
    if (!libraries->timing)
        return CVY_OK;
    own.problem.any_order = device->order == GPU_ORDER_ANY;
    cvy_text_printf(&key, "%s%s: ", refused, name);
    cudnn_problem_key(problem, &key);
    if (key.failed) {
        cvy_text_release(&key);
        return cvy_fail_memory(key.capacity, "the key of a convolution");
    }
    own.name = key.text;
    pthread_mutex_lock(&libraries->lock);
    status = find_or_measure(device, &own, key.text + sizeof refused - 1, scratch_bytes, seconds);
    pthread_mutex_unlock(&libraries->lock);
    cvy_text_release(&key);
    return status;
}
