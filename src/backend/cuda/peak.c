/* What a GPU can do at most: products of large square matrices by cuBLASLt, and copies within its memory. */
#include <math.h>

#include "backend/cuda/gemm.h"

enum {
    RUNS = 5,         /* of which the median counts */
    FIRST_EDGE = 128, /* of the matrices; doubled until a run is long enough */
    LAST_EDGE = 8192
};
static const double long_enough = 1e-3; /* seconds */
static const size_t first_bytes = 1 << 20, last_bytes = (size_t)4 << 30;

struct bench {
    struct gpu_device *device;
    void *before, *after; /* events */
    void *noise;
    void *a, *b, *c, *scratch;
    struct gpu_gemm *gemm;
    size_t bytes; /* of a copy */
};

static cvy_status open_bench(struct gpu_device *device, struct bench *bench)
{
    *bench = (struct bench){.device = device};
    CVY_TRY(gpu_event_open(true, &bench->before));
    CVY_TRY(gpu_event_open(true, &bench->after));
    return gpu_noise_open(device, &bench->noise);
}

static void release_operands(struct bench *bench)
{
    gpu_gemm_close(bench->gemm);
    gpu_release(bench->a);
    gpu_release(bench->b);
    gpu_release(bench->c);
    gpu_release(bench->scratch);
    bench->gemm = NULL;
    bench->a = bench->b = bench->c = bench->scratch = NULL;
}

static void close_bench(struct bench *bench)
{
    release_operands(bench);
    gpu_release(bench->noise);
    gpu_event_close(bench->before);
    gpu_event_close(bench->after);
}

static cvy_status make_operand(const struct bench *bench, enum cvy_dtype dtype, int64_t elements, void **memory)
{
    return gpu_allocate_noise(bench->device, dtype, elements, bench->noise, 0, memory);
}

static cvy_status run_once(const struct bench *bench)
{
    if (bench->gemm)
        return gpu_gemm_run(bench->device, bench->gemm, bench->a, bench->b, NULL, bench->c, bench->scratch);
    return gpu_copy(bench->device->stream, bench->b, bench->a, bench->bytes);
}

/* The median of some runs, after one that does not count. */
static cvy_status time_runs(const struct bench *bench, double *median)
{
    double runs[RUNS];

    CVY_TRY(run_once(bench));
    for (int i = 0; i < RUNS; i++) {
        int at = i;
        double seconds;
        CVY_TRY(gpu_event_record(bench->before, bench->device->stream));
        CVY_TRY(run_once(bench));
        CVY_TRY(gpu_event_record(bench->after, bench->device->stream));
        CVY_TRY(gpu_event_wait(bench->after));
        CVY_TRY(gpu_event_seconds(bench->before, bench->after, &seconds));
        for (; at > 0 && runs[at - 1] > seconds; at--)
            runs[at] = runs[at - 1];
        runs[at] = seconds;
    }
    *median = fmax(runs[RUNS / 2], 1e-9); /* the emulated GPU's events can be that close */
    return CVY_OK;
}

/* C = A B of `edge` rows and columns. */
static cvy_status time_product(struct bench *bench, enum cvy_dtype dtype, int64_t edge, double *seconds)
{
    const struct gpu_gemm_problem problem = {
        .m = edge, .n = edge, .k = edge, .dtype = dtype, .tf32 = bench->device->base.tf32};
    const int64_t elements = edge * edge;
    cvy_status status;

    CVY_GOTO(gpu_gemm_open(bench->device, &problem, &bench->gemm));
    CVY_GOTO(make_operand(bench, dtype, elements, &bench->a));
    CVY_GOTO(make_operand(bench, dtype, elements, &bench->b));
    CVY_GOTO(gpu_allocate(bench->device->stream, (size_t)elements * cvy_dtype_size(dtype), &bench->c));
    CVY_GOTO(gpu_allocate(bench->device->stream, gpu_gemm_scratch(bench->gemm), &bench->scratch));
    CVY_GOTO(time_runs(bench, seconds));
fail:
    release_operands(bench);
    return status;
}

static cvy_status measure_products(struct bench *bench, enum cvy_dtype dtype, double *flops)
{
    for (int64_t edge = FIRST_EDGE; edge <= LAST_EDGE; edge *= 2) {
        double seconds;
        const cvy_status status = time_product(bench, dtype, edge, &seconds);
        if (status == CVY_NO_MEMORY && *flops > 0) /* the plan has the rest */
            break;
        CVY_TRY(status);
        *flops = fmax(*flops, 2.0 * (double)edge * (double)edge * (double)edge / seconds);
        if (seconds > long_enough)
            break;
    }
    return CVY_OK;
}

static cvy_status time_copy(struct bench *bench, double *seconds)
{
    cvy_status status;

    CVY_GOTO(make_operand(bench, CVY_F32, (int64_t)(bench->bytes / sizeof(float)), &bench->a));
    CVY_GOTO(gpu_allocate(bench->device->stream, bench->bytes, &bench->b));
    CVY_GOTO(time_runs(bench, seconds));
fail:
    release_operands(bench);
    return status;
}

/* What is read and what is written counts. */
static cvy_status measure_copies(struct bench *bench, double *rate)
{
    double seconds = 0;

    for (bench->bytes = first_bytes; bench->bytes <= last_bytes && seconds <= long_enough; bench->bytes *= 2) {
        const cvy_status status = time_copy(bench, &seconds);
        if (status == CVY_NO_MEMORY && *rate > 0)
            break;
        CVY_TRY(status);
        *rate = 2 * (double)bench->bytes / seconds; /* not the largest: small ones lie in a cache */
    }
    return CVY_OK;
}

cvy_status gpu_peak(cvy_device *device, enum cvy_peak_part last, struct cvy_device_peak *limits)
{
    struct bench bench;
    cvy_status status;

    *limits = (struct cvy_device_peak){0};
    if (gpu_of(device)->described)
        return CVY_OK;
    CVY_GOTO(open_bench(gpu_of(device), &bench));
    CVY_GOTO(measure_products(&bench, CVY_F32, &limits->flops_f32));
    CVY_GOTO(measure_products(&bench, CVY_F16, &limits->flops_bf16));
    if (last >= CVY_PEAK_MEMORY)
        CVY_GOTO(measure_copies(&bench, &limits->copy));
fail:
    close_bench(&bench);
    return status;
}
