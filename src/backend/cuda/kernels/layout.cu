/* Tensors of four dimensions from one order of elements to another. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { REARRANGE_THREADS = 256 };

struct rearrange_args {
    struct gpu_rearrangement what;
    const void *x;
    void *y;
    int64_t count; /* elements of y */
};

/* Element i of a side: its place (n, c, h, w); c may lie beyond the channels. */
GPU_BODY void place_of(const struct gpu_rearrangement *what, int64_t stored, int64_t i, int64_t place[4])
{
    if (stored) {
        place[1] = i % stored;
        i /= stored;
        place[3] = i % what->w;
        i /= what->w;
        place[2] = i % what->h;
        place[0] = i / what->h;
    } else {
        place[3] = i % what->w;
        i /= what->w;
        place[2] = i % what->h;
        i /= what->h;
        place[1] = i % what->c;
        place[0] = i / what->c;
    }
}

GPU_BODY int64_t index_of(const struct gpu_rearrangement *what, int64_t stored, const int64_t place[4])
{
    if (stored)
        return ((place[0] * what->h + place[2]) * what->w + place[3]) * stored + place[1];
    return ((place[0] * what->c + place[1]) * what->h + place[2]) * what->w + place[3];
}

/* Bytes as they are, where the type does not change. */
GPU_KERNEL(move_bytes1, struct rearrange_args, REARRANGE_THREADS)
{
    const int64_t i = (int64_t)GPU_BLOCK_X * REARRANGE_THREADS + GPU_THREAD;
    int64_t place[4];

    if (i >= a.count)
        return;
    place_of(&a.what, a.what.to_stored, i, place);
    ((uint8_t *)a.y)[i] =
        place[1] < a.what.c ? ((const uint8_t *)a.x)[index_of(&a.what, a.what.from_stored, place)] : (uint8_t)0;
}

GPU_KERNEL(move_bytes2, struct rearrange_args, REARRANGE_THREADS)
{
    const int64_t i = (int64_t)GPU_BLOCK_X * REARRANGE_THREADS + GPU_THREAD;
    int64_t place[4];

    if (i >= a.count)
        return;
    place_of(&a.what, a.what.to_stored, i, place);
    ((uint16_t *)a.y)[i] =
        place[1] < a.what.c ? ((const uint16_t *)a.x)[index_of(&a.what, a.what.from_stored, place)] : (uint16_t)0;
}

GPU_KERNEL(move_bytes4, struct rearrange_args, REARRANGE_THREADS)
{
    const int64_t i = (int64_t)GPU_BLOCK_X * REARRANGE_THREADS + GPU_THREAD;
    int64_t place[4];

    if (i >= a.count)
        return;
    place_of(&a.what, a.what.to_stored, i, place);
    ((uint32_t *)a.y)[i] =
        place[1] < a.what.c ? ((const uint32_t *)a.x)[index_of(&a.what, a.what.from_stored, place)] : 0;
}

GPU_KERNEL(move_values, struct rearrange_args, REARRANGE_THREADS)
{
    const int64_t i = (int64_t)GPU_BLOCK_X * REARRANGE_THREADS + GPU_THREAD;
    int64_t place[4];

    if (i >= a.count)
        return;
    place_of(&a.what, a.what.to_stored, i, place);
    gpu_put_any(a.what.to, a.y, i,
                place[1] < a.what.c ? gpu_get_any(a.what.from, a.x, index_of(&a.what, a.what.from_stored, place)) : 0);
}

GPU_EXTERN void gpu_rearrange(void *stream, const struct gpu_rearrangement *what, const void *x, void *y)
{
    const int64_t channels = what->to_stored ? what->to_stored : what->c;
    struct rearrange_args args = {*what, x, y, what->n * channels * what->h * what->w};
    const int64_t blocks = (args.count + REARRANGE_THREADS - 1) / REARRANGE_THREADS;
    const bool half = what->from == CVY_F16 || what->from == CVY_BF16;

    if (blocks == 0)
        return;
    if (what->from != what->to)
        GPU_LAUNCH(move_values, stream, blocks, 1, REARRANGE_THREADS, args);
    else if (what->from == CVY_U8 || what->from == CVY_I8)
        GPU_LAUNCH(move_bytes1, stream, blocks, 1, REARRANGE_THREADS, args);
    else if (half)
        GPU_LAUNCH(move_bytes2, stream, blocks, 1, REARRANGE_THREADS, args);
    else
        GPU_LAUNCH(move_bytes4, stream, blocks, 1, REARRANGE_THREADS, args);
}

/* ---- longer rows ---- */

struct pad_args {
    const void *x;
    void *y;
    int64_t columns, padded;
};

/* A block for each row. */
GPU_KERNEL(pad_rows2, struct pad_args, REARRANGE_THREADS)
{
    const uint16_t *x = (const uint16_t *)a.x + GPU_BLOCK_X * a.columns;
    uint16_t *y = (uint16_t *)a.y + GPU_BLOCK_X * a.padded;

    for (int64_t i = GPU_THREAD; i < a.padded; i += REARRANGE_THREADS)
        y[i] = i < a.columns ? x[i] : (uint16_t)0;
}

GPU_KERNEL(pad_rows4, struct pad_args, REARRANGE_THREADS)
{
    const uint32_t *x = (const uint32_t *)a.x + GPU_BLOCK_X * a.columns;
    uint32_t *y = (uint32_t *)a.y + GPU_BLOCK_X * a.padded;

    for (int64_t i = GPU_THREAD; i < a.padded; i += REARRANGE_THREADS)
        y[i] = i < a.columns ? x[i] : 0;
}

GPU_EXTERN void gpu_pad_rows(void *stream, enum cvy_dtype dtype, int64_t rows, int64_t columns, int64_t padded,
                             const void *x, void *y)
{
    const struct pad_args args = {x, y, columns, padded};

    if (rows == 0)
        return;
    if (dtype == CVY_F32)
        GPU_LAUNCH(pad_rows4, stream, rows, 1, REARRANGE_THREADS, args);
    else
        GPU_LAUNCH(pad_rows2, stream, rows, 1, REARRANGE_THREADS, args);
}
