/* Feature pyramids: maps of twice the extent, levels as rows. Maps are channels-last. */
#include "backend/cuda/kernels/channels.h"
#include "backend/cuda/kernels/kernels.h"

struct upsample_args {
    const void *x;
    void *y;
    int64_t pixels; /* of the map that the threads stand over, all images */
    int32_t width;  /* of its rows */
    int32_t channels;
};

#define KERNELS "backend/cuda/kernels/levels.inc"
#include "backend/cuda/kernels/widths.inc"

static void upsample_launch(void *stream, enum cvy_dtype dtype, const void *x, void *y, int64_t pixels, int64_t width,
                            int64_t channels, bool backward)
{
    struct upsample_args args = {x, y, pixels, (int32_t)width, (int32_t)channels};
    const int32_t lanes = gpu_width(channels);
    const int64_t blocks = gpu_parts(pixels * (channels / lanes), SPREAD_THREADS);

    if (blocks == 0)
        return;
    if (backward)
        GPU_LAUNCH_WIDTH(upsample_bwd, dtype, lanes, stream, blocks, 1, args);
    else
        GPU_LAUNCH_WIDTH(upsample, dtype, lanes, stream, blocks, 1, args);
}

GPU_EXTERN void gpu_upsample(void *stream, enum cvy_dtype dtype, const void *x, void *y, int64_t images, int64_t height,
                             int64_t width, int64_t channels)
{
    upsample_launch(stream, dtype, x, y, images * height * width, width, channels, false);
}

GPU_EXTERN void gpu_upsample_bwd(void *stream, enum cvy_dtype dtype, const void *dy, void *dx, int64_t images,
                                 int64_t height, int64_t width, int64_t channels)
{
    upsample_launch(stream, dtype, dy, dx, images * height * width, width, channels, true);
}

/* ---- levels as rows ---- */

struct level_args {
    struct gpu_level what;
    const void *x;
    void *y;
};

enum { LEVEL_EACH = 4 }; /* elements of a thread, a block apart */

GPU_KERNEL(move_level, struct level_args, SPREAD_THREADS)
{
    const int64_t count = a.what.images * a.what.map;

    GPU_UNROLL
    for (int k = 0; k < LEVEL_EACH; k++) {
        const int64_t i = ((int64_t)GPU_BLOCK_X * LEVEL_EACH + k) * SPREAD_THREADS + GPU_THREAD;
        const int64_t at = i / a.what.map * a.what.table + a.what.first + i % a.what.map;
        if (i >= count)
            return;
        gpu_put_any(a.what.dtype, a.y, a.what.to_rows ? at : i,
                    gpu_get_any(a.what.dtype, a.x, a.what.to_rows ? i : at));
    }
}

GPU_EXTERN void gpu_move_level(void *stream, const struct gpu_level *what, const void *x, void *y)
{
    struct level_args args = {*what, x, y};
    const int64_t blocks = gpu_parts(what->images * what->map, (int64_t)SPREAD_THREADS * (int64_t)LEVEL_EACH);

    if (blocks)
        GPU_LAUNCH(move_level, stream, blocks, 1, SPREAD_THREADS, args);
}
