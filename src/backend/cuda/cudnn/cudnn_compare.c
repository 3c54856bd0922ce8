/* Compares what two ways of computing a convolution write for the same input. */
#include <math.h>
#include <stdio.h>

#include "backend/cuda/cudnn/cudnn_engine.h"
#include "backend/cuda/kernels/kernels.h"

/* How far results may be apart, as parts of the root mean square of what is expected: one element, and the root mean
 * square of all differences. Where a fused kernel rounds once (scale and shift of a batch norm to 16 bits, for
 * instance) and separate ones twice, 2^-11 (f16) or 2^-8 (bf16) of a value are to be expected, and values are
 * up to six times the root mean square; a factor of about ten stays. TF32 has the digits of f16. */
static const struct {
    float element, all;
} tolerances[] = {[CVY_F16] = {0.03F, 0.004F}, [CVY_BF16] = {0.25F, 0.03F}, [CVY_F32] = {0.03F, 0.004F}};

enum { MAX_RESULTS = 3 };

/* What a convolution writes. */
struct result {
    const char *name;
    void *memory, *expected; /* expected: a copy of what the first way wrote */
    int64_t count;
    enum cvy_dtype dtype;
    bool masked; /* a mask has made zeros in it */
};

static int results_of(const struct gpu_conv_problem *p, const struct gpu_conv_memory *memory,
                      struct result results[MAX_RESULTS])
{
    int count = 0;

    switch (p->pass) {
    case GPU_CONV_FORWARD:
        results[count++] = (struct result){"y", memory->y, NULL, p->n * p->k * p->p * p->q, p->dtype, false};
        if (p->statistics == GPU_STATISTICS_NONE)
            break;
        results[count++] = (struct result){"the mean", memory->mean, NULL, p->k, CVY_F32, false};
        results[count++] = (struct result){"the variance", memory->variance, NULL, p->k, CVY_F32, false};
        break;
    case GPU_CONV_DATA:
        results[count++] = (struct result){"the gradient of x",       memory->x, NULL,
                                           p->n * p->c * p->h * p->w, p->dtype,  p->gradient_sums != GPU_PART_NONE};
        if (p->gradient_sums == GPU_PART_NONE)
            break;
        results[count++] = (struct result){"dgamma", memory->dgamma, NULL, p->c, CVY_F32, false};
        results[count++] = (struct result){"dbeta", memory->dbeta, NULL, p->c, CVY_F32, false};
        break;
    case GPU_CONV_WEIGHTS:
        results[count++] = (struct result){"the gradient of the weights",         memory->w, NULL,
                                           p->k * p->c / p->groups * p->r * p->s, p->dtype,  false};
        break;
    }
    return count;
}

static size_t bytes_of(const struct result *result)
{
    return (size_t)result->count * cvy_dtype_size(result->dtype);
}

/* ---- differences ---- */

/* The blocks' results added up. `explained`: what a mask that turned may make of an element. */
static cvy_status find_difference(struct gpu_device *device, const struct result *result, float limit, float explained,
                                  struct gpu_difference *blocks, struct gpu_difference *total)
{
    struct gpu_difference host[GPU_COMPARE_BLOCKS];

    gpu_compare(device->stream, result->dtype, result->expected, result->memory, result->count, limit, explained,
                result->masked, blocks);
    CVY_TRY(gpu_queued(device));
    CVY_TRY(gpu_download(device->stream, host, blocks, sizeof host));
    *total = (struct gpu_difference){.at = -1};
    for (int i = 0; i < GPU_COMPARE_BLOCKS; i++) {
        total->expected_square += host[i].expected_square;
        total->square += host[i].square;
        total->expected_largest = fmaxf(total->expected_largest, host[i].expected_largest);
        total->beyond += host[i].beyond;
        total->wrong += host[i].wrong;
        if (host[i].at >= 0 && (total->at < 0 || !(host[i].largest <= total->largest))) {
            total->largest = host[i].largest;
            total->at = host[i].at;
        }
    }
    return CVY_OK;
}

/* Fails with the place of the largest difference and both numbers there, which `blocks` serves to bring. `square`: of
 * all differences that are numbers. */
static cvy_status report(struct gpu_device *device, const struct gpu_conv_problem *problem, const struct result *result,
                         const struct gpu_difference *found, float square, float rms, struct gpu_difference *blocks)
{
    const size_t offset = (size_t)found->at * cvy_dtype_size(result->dtype);
    const int64_t channels = result->count == problem->c || result->dtype == CVY_F32 ? 1
                             : problem->pass == GPU_CONV_FORWARD                     ? problem->k
                                                                                     : problem->c;
    float *both = (float *)(void *)blocks, numbers[2];

    gpu_cast(device->stream, result->dtype, CVY_F32, (char *)result->expected + offset, both, 1);
    gpu_cast(device->stream, result->dtype, CVY_F32, (char *)result->memory + offset, both + 1, 1);
    CVY_TRY(gpu_queued(device));
    CVY_TRY(gpu_download(device->stream, numbers, both, sizeof numbers));
    return cvy_fail(CVY_UNAVAILABLE,
                    "%s differs from that of separate kernels: %lld of %lld elements, the most at element %lld (row "
                    "%lld, channel %lld): %.6g instead of %.6g; the root mean square is %.3g, of the differences %.3g",
                    result->name, (long long)found->beyond, (long long)result->count, (long long)found->at,
                    (long long)(found->at / channels), (long long)(found->at % channels), (double)numbers[1],
                    (double)numbers[0], (double)rms, sqrt((double)square / (double)result->count));
}

/* With a residual both ways read the mask's bits. */
static bool mask_may_turn(const struct gpu_conv_problem *problem)
{
    return problem->gradient_sums != GPU_PART_NONE && !problem->residual;
}

/* Numbers whose sign decides a mask may lie so near zero that the order of an addition turns it: one in a million, and
 * of the sums of channels, where there are few images, those that have it. They are numbers all the same. */
static int64_t allowed_beyond(const struct gpu_conv_problem *problem, const struct result *result)
{
    if (!mask_may_turn(problem))
        return 0;
    return result->dtype == CVY_F32 ? result->count >> 6 : 8 + (result->count >> 20);
}

/* What a mask that turns for one element makes of a result: of the gradient itself the element or zero, whatever its
 * size; of a channel's sums up to that element times the normalized x, of two elements at most, as few as there are
 * (x is seldom above six deviations). `gradient`: the largest element of the gradient. */
enum { TURNED_IN_A_CHANNEL = 2, LARGEST_NORMALIZED = 8 };

static float explained_by_masks(const struct gpu_conv_problem *problem, const struct result *result, float gradient)
{
    if (!mask_may_turn(problem))
        return 0;
    return result->masked ? 2 * gradient : TURNED_IN_A_CHANNEL * LARGEST_NORMALIZED * gradient;
}

/* *gradient: the largest expected element of the first result, which is compared first. */
static cvy_status compare_result(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                 const struct result *result, float *gradient, struct gpu_difference *blocks)
{
    struct gpu_difference all, found;
    float rms, limit;

    CVY_TRY(find_difference(device, result, INFINITY, INFINITY, blocks, &all));
    rms = sqrtf(all.expected_square / (float)result->count);
    if (all.beyond > 0) /* no numbers: elements that were not written */
        return report(device, problem, result, &all, all.square, rms, blocks);
    if (result->dtype == problem->dtype)
        *gradient = all.expected_largest;
    limit = tolerances[problem->dtype].element * rms;
    CVY_TRY(find_difference(device, result, limit, explained_by_masks(problem, result, *gradient), blocks, &found));
    if (found.wrong > 0 || found.beyond > allowed_beyond(problem, result) ||
        sqrtf(found.square / (float)result->count) > tolerances[problem->dtype].all * rms)
        return report(device, problem, result, &found, all.square, rms, blocks);
    return CVY_OK;
}

/* ---- both ways ---- */

/* Results of which nothing may be left over from before: no finite number. */
static cvy_status spoil(struct gpu_device *device, const struct result *result, const void *nan)
{
    size_t filled = sizeof(float), total = bytes_of(result);

    filled = filled < total ? filled : total;
    CVY_TRY(gpu_copy(device->stream, result->memory, nan, filled));
    while (filled < total) {
        const size_t more = filled < total - filled ? filled : total - filled;
        CVY_TRY(gpu_copy(device->stream, (char *)result->memory + filled, result->memory, more));
        filled += more;
    }
    return CVY_OK;
}

cvy_status cudnn_compare(struct gpu_device *device, const struct gpu_conv_problem *problem,
                         const struct cudnn_timing *timing, struct cudnn_way expected, struct cudnn_way candidate)
{
    static const uint32_t nan_bits = 0xffffffffU; /* of f32, and of two 16-bit floats */
    struct result results[MAX_RESULTS];
    const int count = results_of(problem, &timing->memory, results);
    void *blocks = NULL, *nan = NULL;
    float gradient = 0;
    cvy_status status;

    CVY_GOTO(gpu_allocate(device->stream, GPU_COMPARE_BLOCKS * sizeof(struct gpu_difference), &blocks));
    CVY_GOTO(gpu_allocate(device->stream, sizeof nan_bits, &nan));
    CVY_GOTO(gpu_upload(device->stream, nan, &nan_bits, sizeof nan_bits));
    for (int i = 0; i < count; i++)
        CVY_GOTO(gpu_allocate(device->stream, bytes_of(&results[i]), &results[i].expected));
    CVY_GOTO(expected.run(device, expected.context, &timing->memory));
    for (int i = 0; i < count; i++) {
        CVY_GOTO(gpu_copy(device->stream, results[i].expected, results[i].memory, bytes_of(&results[i])));
        CVY_GOTO(spoil(device, &results[i], nan));
    }
    CVY_GOTO(candidate.run(device, candidate.context, &timing->memory));
    for (int i = 0; i < count; i++)
        CVY_GOTO(compare_result(device, problem, &results[i], &gradient, blocks));
fail:
    for (int i = 0; i < count; i++)
        gpu_release(results[i].expected);
    gpu_release(nan);
    gpu_release(blocks);
    return status;
}
