/* Fake quantisation: the range of a tensor, then its values rounded to 8 bits. */
#include "backend/cuda/kernels/launch.h"
#define CVY_QUANTIZER_FUNCTION GPU_BODY
#include "backend/cuda/kernels/kernels.h"
#include "graph/quantizer.h"

enum { QUANTIZE_THREADS = 256, RANGE_BLOCKS = 1024 }; /* GPU_QUANTIZE_SCRATCH has room for their ranges */

struct quantize_args {
    struct gpu_quantize what;
    float *ranges, *now; /* ranges: two numbers of each block */
    int32_t blocks;
};

/* Both limits of the threads of a block; thread 0 writes them. `shared_sums`: 2 * QUANTIZE_THREADS floats. */
GPU_BODY void block_range(float *shared_sums, float low, float high, float *to)
{
    float *const lows = shared_sums, *const highs = shared_sums + QUANTIZE_THREADS;

    lows[GPU_THREAD] = low;
    highs[GPU_THREAD] = high;
    GPU_SYNC();
    for (int32_t step = QUANTIZE_THREADS / 2; step > 0; step /= 2) {
        if (GPU_THREAD < step) {
            const float other_low = lows[GPU_THREAD + step], other_high = highs[GPU_THREAD + step];
            lows[GPU_THREAD] = other_low < lows[GPU_THREAD] ? other_low : lows[GPU_THREAD];
            highs[GPU_THREAD] = other_high > highs[GPU_THREAD] ? other_high : highs[GPU_THREAD];
        }
        GPU_SYNC();
    }
    if (GPU_THREAD == 0) {
        to[0] = lows[0];
        to[1] = highs[0];
    }
}

#define TYPE f32
#include "backend/cuda/kernels/quantize.inc"
#undef TYPE
#define TYPE f16
#include "backend/cuda/kernels/quantize.inc"
#undef TYPE
#define TYPE bf16
#include "backend/cuda/kernels/quantize.inc"
#undef TYPE

/* One block: from the ranges of the blocks to the state. */
GPU_KERNEL_SHARED(observe_range, struct quantize_args, QUANTIZE_THREADS)
{
    GPU_SHARED float shared_sums[2 * QUANTIZE_THREADS];
    GPU_SHARED float range[2];
    float low = 0, high = 0;

    for (int32_t i = GPU_THREAD; i < a.blocks; i += QUANTIZE_THREADS) {
        low = a.ranges[2 * i] < low ? a.ranges[2 * i] : low;
        high = a.ranges[2 * i + 1] > high ? a.ranges[2 * i + 1] : high;
    }
    block_range(shared_sums, low, high, range);
    if (GPU_THREAD == 0) {
        const float old[3] = {a.what.observed[0], a.what.observed[1], a.what.observed[2]};
        cvy_quantizer_observe(&a.what.attr, range[0], range[1], a.what.steps, old, a.now);
    }
}

#define LAUNCH_TYPE(name, stream, blocks, args)                                                                        \
    do {                                                                                                               \
        if ((args).what.dtype == CVY_F16)                                                                              \
            GPU_LAUNCH(name##_f16, stream, blocks, 1, QUANTIZE_THREADS, args);                                         \
        else if ((args).what.dtype == CVY_BF16)                                                                        \
            GPU_LAUNCH(name##_bf16, stream, blocks, 1, QUANTIZE_THREADS, args);                                        \
        else                                                                                                           \
            GPU_LAUNCH(name##_f32, stream, blocks, 1, QUANTIZE_THREADS, args);                                         \
    } while (0)

/* Eight elements for each thread. */
static int64_t blocks_for(int64_t count)
{
    return (count + 8 * QUANTIZE_THREADS - 1) / (8 * QUANTIZE_THREADS);
}

GPU_EXTERN void gpu_quantize_range(void *stream, const struct gpu_quantize *what, float *now, float *scratch)
{
    struct quantize_args args = {*what, scratch, now, 0};
    const int64_t blocks = blocks_for(what->count);

    args.blocks = (int32_t)(blocks < RANGE_BLOCKS ? blocks : RANGE_BLOCKS);
    if (args.blocks == 0)
        return;
    LAUNCH_TYPE(find_range, stream, args.blocks, args);
    GPU_LAUNCH(observe_range, stream, 1, 1, QUANTIZE_THREADS, args);
}

GPU_EXTERN void gpu_fake_quantize(void *stream, const struct gpu_quantize *what)
{
    struct quantize_args args = {*what, 0, 0, 0};
    const int64_t blocks = blocks_for(what->count);

    if (blocks && what->attr.channels)
        LAUNCH_TYPE(fake_quantize_rows, stream, what->rows, args);
    else if (blocks)
        LAUNCH_TYPE(fake_quantize, stream, blocks, args);
}

GPU_EXTERN void gpu_fake_quantize_bwd(void *stream, const struct gpu_quantize *what)
{
    struct quantize_args args = {*what, 0, 0, 0};
    const int64_t blocks = blocks_for(what->count);

    if (blocks)
        LAUNCH_TYPE(fake_quantize_bwd, stream, blocks, args);
}
