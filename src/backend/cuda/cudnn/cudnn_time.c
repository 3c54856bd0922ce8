/* Times a plan, on buffers of the real sizes filled with random numbers. */
#include "backend/cuda/cudnn/cudnn_engine.h"
#include "backend/cuda/kernels/kernels.h"

enum { RUNS = 3, MAX_REPEATS = 20 };
static const double run_seconds = 200e-6; /* short kernels are repeated to about this: events tell about 1 us apart */

/* ---- buffers ---- */

/* Memory that cudnn_timing_close gives back. */
static void **slot(struct cudnn_timing *timing)
{
    int used = 0;

    while (timing->allocated[used])
        used++;
    return &timing->allocated[used];
}

/* A buffer of numbers. */
static cvy_status make_one(struct gpu_device *device, enum cvy_dtype dtype, int64_t elements, const void *noise,
                           struct cudnn_timing *timing, void **memory)
{
    void **made = slot(timing);
    const cvy_status status = gpu_allocate_noise(device, dtype, elements, noise, (int)(made - timing->allocated), made);

    *memory = *made;
    return status;
}

static cvy_status make_all(struct gpu_device *device, const struct gpu_conv_problem *p, const void *noise,
                           struct cudnn_timing *timing)
{
    const int64_t outputs = p->n * p->k * p->p * p->q;
    struct gpu_conv_memory *memory = &timing->memory;
    const bool norm = p->prologue != GPU_PART_NONE || p->gradient_sums != GPU_PART_NONE;
    void *vectors[3] = {NULL}, *residual = NULL; /* vectors: bias, mean, variance */
    void *numbers[6] = {NULL}, *norm_x = NULL;   /* gamma, beta, mean, rstd, dgamma, dbeta */
    const int64_t inputs = p->n * p->c * p->h * p->w;
    void *sign = NULL;

    CVY_TRY(make_one(device, p->dtype, inputs, noise, timing, &memory->x));
    CVY_TRY(make_one(device, p->dtype, p->k * p->c / p->groups * p->r * p->s, noise, timing, &memory->w));
    CVY_TRY(make_one(device, p->dtype, outputs, noise, timing, &memory->y));
    for (int i = 0; i < 3; i++) {
        if (i == 0 ? p->bias : p->statistics != GPU_STATISTICS_NONE)
            CVY_TRY(make_one(device, CVY_F32, p->k, noise, timing, &vectors[i]));
    }
    if (p->residual)
        CVY_TRY(make_one(device, p->dtype, p->pass == GPU_CONV_FORWARD ? outputs : inputs, noise, timing, &residual));
    if (p->residual && p->pass == GPU_CONV_DATA) /* bits of numbers will do for bits */
        CVY_TRY(make_one(device, CVY_F32, gpu_sign_bytes(inputs / p->c, p->c) / 4 + 1, noise, timing, &sign));
    for (int i = 0; norm && i < 6; i++)
        CVY_TRY(make_one(device, CVY_F32, p->c, noise, timing, &numbers[i]));
    if (p->gradient_sums != GPU_PART_NONE)
        CVY_TRY(make_one(device, p->dtype, inputs, noise, timing, &norm_x));
    memory->sign = sign;
    memory->sign_in_bits = sign != NULL;
    memory->gamma = numbers[0];
    memory->beta = numbers[1];
    memory->norm_mean = numbers[2];
    memory->norm_rstd = numbers[3];
    memory->dgamma = numbers[4];
    memory->dbeta = numbers[5];
    memory->norm_x = norm_x;
    memory->bias = vectors[0];
    memory->mean = vectors[1];
    memory->variance = vectors[2];
    memory->residual = residual;
    return CVY_OK;
}

cvy_status cudnn_timing_open(struct gpu_device *device, const struct gpu_conv_problem *problem, size_t scratch_bytes,
                             struct cudnn_timing *timing)
{
    void *noise = NULL, **scratch;
    cvy_status status;

    *timing = (struct cudnn_timing){0};
    CVY_GOTO(gpu_event_open(true, &timing->before));
    CVY_GOTO(gpu_event_open(true, &timing->after));
    CVY_GOTO(gpu_noise_open(device, &noise));
    CVY_GOTO(make_all(device, problem, noise, timing));
    scratch = slot(timing);
    CVY_GOTO(gpu_allocate(device->stream, scratch_bytes, scratch));
    timing->memory.scratch = *scratch;
fail:
    gpu_release(noise); /* waits */
    return status;
}

void cudnn_timing_close(struct cudnn_timing *timing)
{
    for (int i = 0; i < CUDNN_TIMING_BUFFERS; i++)
        gpu_release(timing->allocated[i]);
    gpu_event_close(timing->before);
    gpu_event_close(timing->after);
    *timing = (struct cudnn_timing){0};
}

/* ---- times ---- */

static cvy_status time_runs(struct gpu_device *device, gpu_conv_runner *run, const void *context,
                            const struct cudnn_timing *timing, int repeats, double *seconds)
{
    CVY_TRY(gpu_event_record(timing->before, device->stream));
    for (int i = 0; i < repeats; i++)
        CVY_TRY(run(device, context, &timing->memory));
    CVY_TRY(gpu_event_record(timing->after, device->stream));
    CVY_TRY(gpu_event_wait(timing->after));
    CVY_TRY(gpu_event_seconds(timing->before, timing->after, seconds));
    *seconds /= repeats;
    return CVY_OK;
}

/* The median of three runs; the first of all, which loads the kernel, does not count. */
cvy_status cudnn_time(struct gpu_device *device, gpu_conv_runner *run, const void *context,
                      const struct cudnn_timing *timing, double *seconds)
{
    double runs[RUNS], low, high;
    int repeats;

    CVY_TRY(time_runs(device, run, context, timing, 1, seconds));
    CVY_TRY(time_runs(device, run, context, timing, 1, seconds));
    repeats = *seconds > run_seconds                 ? 1
              : *seconds * MAX_REPEATS > run_seconds ? (int)(run_seconds / *seconds) + 1
                                                     : MAX_REPEATS;
    for (int i = 0; i < RUNS; i++)
        CVY_TRY(time_runs(device, run, context, timing, repeats, &runs[i]));
    low = runs[0] < runs[1] ? runs[0] : runs[1];
    high = runs[0] < runs[1] ? runs[1] : runs[0];
    *seconds = runs[2] < low ? low : runs[2] > high ? high : runs[2];
    return CVY_OK;
}
