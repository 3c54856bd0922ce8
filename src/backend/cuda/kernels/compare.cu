/* How far two tensors are apart. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { COMPARE_THREADS = 256 };

struct compare_args {
    const void *expected, *found;
    struct gpu_difference *to;
    int64_t count;
    enum cvy_dtype dtype;
    float limit, explained;
    bool masked;
};

/* A result near the largest f16 may have become infinite in one way of summing and not in another. */
GPU_BODY bool comparable(enum cvy_dtype dtype, float expected)
{
    return dtype != CVY_F16 || fabsf(expected) <= 32768.0f;
}

/* Two units in the last place of the type, of numbers for which they are the largest part: what two more roundings of a
 * large element make, however small the others are. */
GPU_BODY float last_places(enum cvy_dtype dtype, float expected)
{
    const float unit = dtype == CVY_F16 ? 0x1p-10f : dtype == CVY_BF16 ? 0x1p-7f : 0;

    return 2 * unit * fabsf(expected);
}

GPU_KERNEL_SHARED(compare, struct compare_args, COMPARE_THREADS)
{
    GPU_SHARED struct gpu_difference threads[COMPARE_THREADS];
    struct gpu_difference mine = {0, 0, 0, 0, 0, 0, -1};

    for (int64_t i = (int64_t)GPU_BLOCK_X * GPU_THREADS + GPU_THREAD; i < a.count;
         i += (int64_t)GPU_BLOCKS_X * GPU_THREADS) {
        const float expected = gpu_get_any(a.dtype, a.expected, i), found = gpu_get_any(a.dtype, a.found, i);
        const float difference = fabsf(expected - found), limit = a.limit + last_places(a.dtype, expected);

        if (!comparable(a.dtype, expected))
            continue;
        mine.expected_square += expected * expected;
        mine.expected_largest = fmaxf(mine.expected_largest, fabsf(expected));
        if (expected == found)
            continue;
        if (difference <= limit)
            mine.square += difference * difference;
        else /* NaN, too */
            mine.beyond++;
        if (!(difference <= limit) && !(difference <= a.explained && (!a.masked || expected == 0 || found == 0)))
            mine.wrong++;
        if (mine.at < 0 || !(difference <= mine.largest)) {
            mine.largest = difference;
            mine.at = i;
        }
    }
    threads[GPU_THREAD] = mine;
    GPU_SYNC();
    if (GPU_THREAD != 0)
        return;
    for (int32_t t = 1; t < COMPARE_THREADS; t++) {
        mine.expected_square += threads[t].expected_square;
        mine.square += threads[t].square;
        mine.expected_largest = fmaxf(mine.expected_largest, threads[t].expected_largest);
        mine.beyond += threads[t].beyond;
        mine.wrong += threads[t].wrong;
        if (threads[t].at >= 0 && (mine.at < 0 || !(threads[t].largest <= mine.largest))) {
            mine.largest = threads[t].largest;
            mine.at = threads[t].at;
        }
    }
    a.to[GPU_BLOCK_X] = mine;
}

void gpu_compare(void *stream, enum cvy_dtype dtype, const void *expected, const void *found, int64_t count,
                 float limit, float explained, bool masked, struct gpu_difference *blocks)
{
    struct compare_args args = {expected, found, blocks, count, dtype, limit, explained, masked};

    GPU_LAUNCH(compare, stream, GPU_COMPARE_BLOCKS, 1, COMPARE_THREADS, args);
}
