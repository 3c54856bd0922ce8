/* Gradients being sent to other GPUs in 16 bits. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { COMPRESS_THREADS = 256, COMPRESS_EACH = 8 };

/* ---- f16: as large as fits ---- */

struct largest_args {
    const float *x;
    float *to; /* of each block */
    int64_t count;
};

/* The largest finite size among the numbers of each block: every block has one row of threads in every so many. */
GPU_KERNEL_SHARED(largest, struct largest_args, COMPRESS_THREADS)
{
    GPU_SHARED float shared_sums[COMPRESS_THREADS];
    const int64_t stride = (int64_t)GPU_BLOCKS_X * GPU_THREADS;
    uint32_t maximum = 0;

    for (int64_t i = (int64_t)GPU_BLOCK_X * GPU_THREADS + GPU_THREAD; i < a.count; i += stride) {
        const uint32_t bits = gpu_bits_of_float(a.x[i]) & 0x7fffffffU;
        maximum = bits < 0x7f800000U && bits > maximum ? bits : maximum;
    }
    shared_sums[GPU_THREAD] = gpu_float_of_bits(maximum);
    GPU_SYNC();
    for (int32_t step = COMPRESS_THREADS / 2; step > 0; step /= 2) {
        if (GPU_THREAD < step && shared_sums[GPU_THREAD + step] > shared_sums[GPU_THREAD])
            shared_sums[GPU_THREAD] = shared_sums[GPU_THREAD + step];
        GPU_SYNC();
    }
    if (GPU_THREAD == 0)
        a.to[GPU_BLOCK_X] = shared_sums[0];
}

GPU_EXTERN void gpu_find_largest(void *stream, const float *x, int64_t count, float *bound)
{
    const int64_t wanted = (count + COMPRESS_THREADS * COMPRESS_EACH - 1) / (COMPRESS_THREADS * COMPRESS_EACH);
    const int64_t blocks = wanted < GPU_LARGEST_BLOCKS ? wanted : GPU_LARGEST_BLOCKS;
    struct largest_args each = {x, bound + 1, count}, all = {bound + 1, bound, blocks};

    if (count < 1)
        return;
    GPU_LAUNCH(largest, stream, blocks, 1, COMPRESS_THREADS, each);
    GPU_LAUNCH(largest, stream, 1, 1, COMPRESS_THREADS, all);
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

struct compress_args {
    float *wide;
    uint16_t *narrow;
    const float *bound;
    int64_t count;
    enum cvy_dtype dtype; /* of narrow: f16 or bf16 */
};

GPU_KERNEL(narrow, struct compress_args, COMPRESS_THREADS)
{
    const int64_t start = (int64_t)GPU_BLOCK_X * (COMPRESS_THREADS * COMPRESS_EACH) + GPU_THREAD;
    const float factor = factor_of(a.bound, false);

    GPU_UNROLL
    for (int k = 0; k < COMPRESS_EACH; k++) {
        const int64_t i = start + k * COMPRESS_THREADS;
        if (i < a.count)
            gpu_put_any(a.dtype, a.narrow, i, factor * a.wide[i]);
    }
}

GPU_KERNEL(widen, struct compress_args, COMPRESS_THREADS)
{
    const int64_t start = (int64_t)GPU_BLOCK_X * (COMPRESS_THREADS * COMPRESS_EACH) + GPU_THREAD;
    const float factor = factor_of(a.bound, true);

    GPU_UNROLL
    for (int k = 0; k < COMPRESS_EACH; k++) {
        const int64_t i = start + k * COMPRESS_THREADS;
        if (i < a.count)
            a.wide[i] = factor * gpu_get_any(a.dtype, a.narrow, i);
    }
}

static int64_t blocks_of(int64_t count)
{
    return (count + COMPRESS_THREADS * COMPRESS_EACH - 1) / (COMPRESS_THREADS * COMPRESS_EACH);
}

GPU_EXTERN void gpu_narrow_floats(void *stream, enum cvy_dtype dtype, uint16_t *to, float *from, int64_t count,
                                  const float *bound)
{
    struct compress_args args = {from, to, bound, count, dtype};

    if (count > 0)
        GPU_LAUNCH(narrow, stream, blocks_of(count), 1, COMPRESS_THREADS, args);
}

GPU_EXTERN void gpu_widen_floats(void *stream, enum cvy_dtype dtype, float *to, uint16_t *from, int64_t count,
                                 const float *bound)
{
    struct compress_args args = {to, from, bound, count, dtype};

    if (count > 0)
        GPU_LAUNCH(widen, stream, blocks_of(count), 1, COMPRESS_THREADS, args);
}
