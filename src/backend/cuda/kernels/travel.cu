/* Gradients on their way to other GPUs in 16 bits. */
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/kernels.h"

enum { TRAVEL_THREADS = 256, TRAVEL_EACH = 8 };

struct travel_args {
    float *wide;
    uint16_t *narrow;
    int64_t count;
    float factor;
    enum cvy_dtype dtype; /* of narrow: f16 or bf16 */
};

GPU_KERNEL(narrow, struct travel_args, TRAVEL_THREADS)
{
    const int64_t start = (int64_t)GPU_BLOCK_X * (TRAVEL_THREADS * TRAVEL_EACH) + GPU_THREAD;

    GPU_UNROLL
    for (int k = 0; k < TRAVEL_EACH; k++) {
        const int64_t i = start + k * TRAVEL_THREADS;
        if (i < a.count)
            gpu_put_any(a.dtype, a.narrow, i, a.factor * a.wide[i]);
    }
}

GPU_KERNEL(widen, struct travel_args, TRAVEL_THREADS)
{
    const int64_t start = (int64_t)GPU_BLOCK_X * (TRAVEL_THREADS * TRAVEL_EACH) + GPU_THREAD;

    GPU_UNROLL
    for (int k = 0; k < TRAVEL_EACH; k++) {
        const int64_t i = start + k * TRAVEL_THREADS;
        if (i < a.count)
            a.wide[i] = a.factor * gpu_get_any(a.dtype, a.narrow, i);
    }
}

static int64_t blocks_of(int64_t count)
{
    return (count + TRAVEL_THREADS * TRAVEL_EACH - 1) / (TRAVEL_THREADS * TRAVEL_EACH);
}

GPU_EXTERN void gpu_narrow_floats(void *stream, enum cvy_dtype dtype, uint16_t *to, float *from, int64_t count,
                                  float factor)
{
    struct travel_args args = {from, to, count, factor, dtype};

    if (count > 0)
        GPU_LAUNCH(narrow, stream, blocks_of(count), 1, TRAVEL_THREADS, args);
}

GPU_EXTERN void gpu_widen_floats(void *stream, enum cvy_dtype dtype, float *to, uint16_t *from, int64_t count,
                                 float factor)
{
    struct travel_args args = {to, from, count, factor, dtype};

    if (count > 0)
        GPU_LAUNCH(widen, stream, blocks_of(count), 1, TRAVEL_THREADS, args);
}
