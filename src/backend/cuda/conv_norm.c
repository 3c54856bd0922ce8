/* The batch norm before a convolution, where the convolution's row does its work too: with our own kernels around
 * the engine's, or with small ones that bring its numbers to where the engine's own kernel takes them. */
#include "backend/cuda/conv_engine.h"
#include "backend/cuda/kernels/kernels.h"

static size_t align_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* The next `bytes` of `memory`. */
static void *next(char *memory, size_t *used, size_t bytes)
{
    void *at = memory ? memory + *used : NULL;

    *used += align_up(bytes);
    return at;
}

size_t gpu_norm_scratch(const struct gpu_conv_problem *problem, char *memory, struct gpu_norm_scratch *scratch)
{
    const size_t vector = (size_t)problem->c * sizeof(float), element = cvy_dtype_size(problem->dtype);
    const int64_t rows = problem->n * problem->h * problem->w;
    struct gpu_norm_scratch made = {0};
    int64_t tiles, floats;
    size_t used = 0;

    if (problem->prologue == GPU_PART_SEPARATE)
        made.x = next(memory, &used, (size_t)(rows * problem->c) * element);
    if (problem->prologue == GPU_PART_FUSED) {
        made.made_scale = next(memory, &used, (size_t)problem->c * element);
        made.made_shift = next(memory, &used, (size_t)problem->c * element);
    }
    if (problem->gradient_sums == GPU_PART_SEPARATE) {
        gpu_batch_norm_shape(rows, problem->c, &tiles, &floats);
        made.sums = next(memory, &used, (size_t)floats * sizeof(float));
    }
    if (problem->gradient_sums == GPU_PART_FUSED) {
        made.vectors[0] = next(memory, &used, vector);
        made.vectors[1] = next(memory, &used, vector);
        made.dgamma = next(memory, &used, vector);
        made.dbeta = next(memory, &used, vector);
        for (int i = 0; i < 3; i++)
            made.slopes[i] = next(memory, &used, vector);
    }
    if (scratch)
        *scratch = made;
    return used;
}

struct gpu_conv_extra gpu_norm_extra(const struct gpu_conv_problem *problem)
{
    const int64_t element = (int64_t)cvy_dtype_size(problem->dtype);
    const int64_t x = problem->n * problem->h * problem->w * problem->c * element;
    const int64_t y = problem->n * problem->p * problem->q * problem->k * element;
    struct gpu_conv_extra extra = {0, 0};

    if (problem->prologue == GPU_PART_SEPARATE) /* written, and read by the convolution */
        extra = (struct gpu_conv_extra){1, 2 * x};
    if (problem->prologue == GPU_PART_FUSED)
        extra = (struct gpu_conv_extra){1, 0};
    if (problem->gradient_sums == GPU_PART_SEPARATE) /* dx is read, and written again with its mask */
        extra = (struct gpu_conv_extra){1, problem->unmasked ? x : 2 * x};
    if (problem->statistics != GPU_STATISTICS_NONE)
        extra.launches++;
    if (problem->statistics == GPU_STATISTICS_SEPARATE)
        extra.bytes += y;
    return extra;
}

static bool aligned(const void *memory)
{
    return ((uintptr_t)memory & 15) == 0;
}

/* In the arenas a parameter may begin anywhere: then it is copied to `scratch`. */
static cvy_status place(struct gpu_device *device, const float *from, size_t bytes, float *scratch, const float **at)
{
    *at = aligned(from) ? from : scratch;
    return aligned(from) ? CVY_OK : gpu_copy(device->stream, scratch, from, bytes);
}

cvy_status gpu_norm_before(struct gpu_device *device, const struct gpu_conv_problem *problem,
                           const struct gpu_conv_memory *memory, struct gpu_norm_scratch *scratch)
{
    const size_t vector = (size_t)problem->c * sizeof(float);

    if (problem->prologue == GPU_PART_SEPARATE) {
        const struct gpu_batch_norm call = {.dtype = problem->dtype,
                                            .rows = problem->n * problem->h * problem->w,
                                            .channels = problem->c,
                                            .x = memory->x,
                                            .y = scratch->x,
                                            .gamma = memory->gamma,
                                            .beta = memory->beta,
                                            .mean = memory->norm_mean,
                                            .rstd = memory->norm_rstd,
                                            .activation = CVY_ACTIVATION_RELU};
        gpu_batch_norm_apply(device->stream, &call);
    } else if (problem->prologue == GPU_PART_FUSED && memory->scale) {
        scratch->scale = memory->scale;
        scratch->shift = memory->shift;
    } else if (problem->prologue == GPU_PART_FUSED) {
        scratch->scale = scratch->made_scale;
        scratch->shift = scratch->made_shift;
        gpu_scale_and_shift(device->stream, problem->dtype, memory->gamma, memory->beta, memory->norm_mean,
                            memory->norm_rstd, problem->c, scratch->made_scale, scratch->made_shift);
    }
    if (problem->gradient_sums == GPU_PART_FUSED) {
        if (!aligned(memory->norm_mean) || !aligned(memory->norm_rstd))
            return cvy_fail(CVY_FAILED, "a batch norm's statistics do not begin at a multiple of 16 bytes");
        CVY_TRY(place(device, memory->gamma, vector, scratch->vectors[0], &scratch->gamma));
        CVY_TRY(place(device, memory->beta, vector, scratch->vectors[1], &scratch->beta));
        if (aligned(memory->dgamma))
            scratch->dgamma = memory->dgamma;
        if (aligned(memory->dbeta))
            scratch->dbeta = memory->dbeta;
    }
    return gpu_queued(device);
}

cvy_status gpu_norm_after(struct gpu_device *device, const struct gpu_conv_problem *problem,
                          const struct gpu_conv_memory *memory, const struct gpu_norm_scratch *scratch)
{
    const size_t vector = (size_t)problem->c * sizeof(float);

    if (problem->gradient_sums == GPU_PART_SEPARATE) {
        /* The first of its two kernels, the one that sums; it leaves the masked gradient where it was. */
        const struct gpu_batch_norm_bwd call = {.dtype = problem->dtype,
                                                .rows = problem->n * problem->h * problem->w,
                                                .channels = problem->c,
                                                .x = memory->norm_x,
                                                .dy = memory->x,
                                                .more = memory->residual,
                                                .y = memory->sign_in_bits ? NULL : memory->sign,
                                                .sign = memory->sign_in_bits ? memory->sign : NULL,
                                                .gamma = memory->gamma,
                                                .beta = memory->beta,
                                                .mean = memory->norm_mean,
                                                .rstd = memory->norm_rstd,
                                                .dresidual = problem->unmasked ? NULL : memory->x,
                                                .dgamma = memory->dgamma,
                                                .dbeta = memory->dbeta,
                                                .activation = CVY_ACTIVATION_RELU};
        gpu_batch_norm_bwd(device->stream, &call, scratch->sums, device->tickets);
    }
    if (problem->gradient_sums == GPU_PART_FUSED && scratch->dgamma != memory->dgamma)
        CVY_TRY(gpu_copy(device->stream, memory->dgamma, scratch->dgamma, vector));
    if (problem->gradient_sums == GPU_PART_FUSED && scratch->dbeta != memory->dbeta)
        CVY_TRY(gpu_copy(device->stream, memory->dbeta, scratch->dbeta, vector));
    return gpu_queued(device);
}
