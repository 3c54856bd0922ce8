/* Gradients on their way to other GPUs in 16 bits. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { TRAVEL_THREADS = 256, TRAVEL_EACH = 8 };

/* ---- f16: as large as fits ---- */

struct largest_args {
    const float *x;
    float *to; /* of each block */
    int64_t count;
};

/* The largest finite size among the numbers of each block: every block has one row of threads in every so many. */
GPU_KERNEL_SHARED(largest, struct largest_args, TRAVEL_THREADS)
{
    GPU_SHARED float room[TRAVEL_THREADS];
    const int64_t stride = (int64_t)GPU_BLOCKS_X * GPU_THREADS;
    uint32_t most = 0;

    for (int64_t i = (int64_t)GPU_BLOCK_X * GPU_THREADS + GPU_THREAD; i < a.count; i += stride) {
        const uint32_t bits = gpu_bits_of_float(a.x[i]) & 0x7fffffffU;
        most = bits < 0x7f800000U && bits > most ? bits : most;
    }
    room[GPU_THREAD] = gpu_float_of_bits(most);
    GPU_SYNC();
    for (int32_t step = TRAVEL_THREADS / 2; step > 0; step /= 2) {
        if (GPU_THREAD < step && room[GPU_THREAD + step] > room[GPU_THREAD])
            room[GPU_THREAD] = room[GPU_THREAD + step];
        GPU_SYNC();
    }
    if (GPU_THREAD == 0)
        a.to[GPU_BLOCK_X] = room[0];
}

GPU_EXTERN void gpu_find_largest(void *stream, const float *x, int64_t count, float *bound)
{
    const int64_t wanted = (count + TRAVEL_THREADS * TRAVEL_EACH - 1) / (TRAVEL_THREADS * TRAVEL_EACH);
    const int64_t blocks = wanted < GPU_LARGEST_BLOCKS ? wanted : GPU_LARGEST_BLOCKS;
    struct largest_args each = {x, bound + 1, count}, all = {bound + 1, bound, blocks};

    if (count < 1)
        return;
    GPU_LAUNCH(largest, stream, blocks, 1, TRAVEL_THREADS, each);
    GPU_LAUNCH(largest, stream, 1, 1, TRAVEL_THREADS, all);
}

/* The power of two with which no sum leaves f16 that is finite in f32, as comm/sums.c has it: sums stay below 2^15. */
GPU_BODY float factor_of(const float *bound, bool back)
{
    int exponent = 0;

    if (bound && *bound > 0) {
        (void)frexpf(*bound, &exponent);
        exponent = 15 - exponent;
        exponent = exponent > 100 ? 100 : exponent < -115 ? -115 : exponent;
    }
    return ldexpf(1, back ? -exponent : exponent);
}

/* ---- in and out ---- */

struct travel_args {
    float *wide;
    uint16_t *narrow;
    const float *bound;
    int64_t count;
    enum cvy_dtype dtype; /* of narrow: f16 or bf16 */
};

GPU_KERNEL(narrow, struct travel_args, TRAVEL_THREADS)
{
    const int64_t start = (int64_t)GPU_BLOCK_X * (TRAVEL_THREADS * TRAVEL_EACH) + GPU_THREAD;
    const float factor = factor_of(a.bound, false);

    GPU_UNROLL
    for (int k = 0; k < TRAVEL_EACH; k++) {
        const int64_t i = start + k * TRAVEL_THREADS;
        if (i < a.count)
            gpu_put_any(a.dtype, a.narrow, i, factor * a.wide[i]);
    }
}

GPU_KERNEL(widen, struct travel_args, TRAVEL_THREADS)
{
    const int64_t start = (int64_t)GPU_BLOCK_X * (TRAVEL_THREADS * TRAVEL_EACH) + GPU_THREAD;
    const float factor = factor_of(a.bound, true);

    GPU_UNROLL
    for (int k = 0; k < TRAVEL_EACH; k++) {
        const int64_t i = start + k * TRAVEL_THREADS;
        if (i < a.count)
            a.wide[i] = factor * gpu_get_any(a.dtype, a.narrow, i);
    }
}

static int64_t blocks_of(int64_t count)
{
    return (count + TRAVEL_THREADS * TRAVEL_EACH - 1) / (TRAVEL_THREADS * TRAVEL_EACH);
}

GPU_EXTERN void gpu_narrow_floats(void *stream, enum cvy_dtype dtype, uint16_t *to, float *from, int64_t count,
                                  const float *bound)
{
    struct travel_args args = {from, to, bound, count, dtype};

    if (count > 0)
        GPU_LAUNCH(narrow, stream, blocks_of(count), 1, TRAVEL_THREADS, args);
}

GPU_EXTERN void gpu_widen_floats(void *stream, enum cvy_dtype dtype, float *to, uint16_t *from, int64_t count,
                                 const float *bound)
{
    struct travel_args args = {to, from, bound, count, dtype};

    if (count > 0)
        GPU_LAUNCH(widen, stream, blocks_of(count), 1, TRAVEL_THREADS, args);
}
