/* Grouped 3x3 convolutions of narrow groups (4, 8, 16 or 32 channels, as ResNeXt has them) in 16-bit floats, channels
 * last: products and sums in f32. One kernel makes outputs, and gradients of data with the weights turned round;
 * another one makes gradients of weights, in pieces that a third one adds in a fixed order.
 *
 * A block works on 32 channels, whole groups of them, and on a tile of pixels, which it brings into shared memory with
 * what lies around it: each element comes from memory about once. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum {
    SLAB = 32,
    TAPS = 9,
    GROUPED_THREADS = 256,
    MOST_TILE = 8 * 16,
    MOST_HALO = 10 * 18, /* of a tile at stride 1; at stride 2 the tile is 4 x 8, and 9 x 17 pixels are around it */
    NOTHING = -0x4000,   /* no row or column */
    WEIGHT_BLOCKS = 264, /* twice the processors of an H200 */
};

struct grouped_args {
    const void *x, *w; /* of a data gradient x is dy; of weights' gradients y is dy */
    void *y;
    float *partial;
    int32_t in[2], out[2];   /* rows, columns */
    int32_t channels, width; /* width: channels of a group */
    int32_t stride, pad[2];
    int32_t tile_rows, tile_columns, tiles_across, tiles_down, tiles, halo_rows, halo_columns;
    bool data;
};

/* Rows, or columns: that of the input under an output and a tap; NOTHING where there is none. */
GPU_BODY int32_t source_of(const struct grouped_args *a, int32_t at, int32_t tap, int32_t pad)
{
    const int32_t up = at + pad - tap;

    if (!a->data)
        return at * a->stride + tap - pad;
    return up % a->stride == 0 ? up / a->stride : NOTHING;
}

struct tile {
    int32_t n, row, column;    /* of the outputs */
    int32_t in_row, in_column; /* the first ones that it reads */
};

/* The first row or column that outputs from `at` on read. */
GPU_BODY int32_t first_of(const struct grouped_args *a, int32_t at, int32_t pad)
{
    const int32_t up = at + pad - 2;

    if (!a->data)
        return at * a->stride - pad;
    return up >= 0 ? up / a->stride : -((-up + a->stride - 1) / a->stride);
}

GPU_BODY struct tile tile_of(const struct grouped_args *a, int32_t index)
{
    struct tile tile;

    tile.column = index % a->tiles_across * a->tile_columns;
    tile.row = index / a->tiles_across % a->tiles_down * a->tile_rows;
    tile.n = index / (a->tiles_across * a->tiles_down);
    tile.in_row = first_of(a, tile.row, a->pad[0]);
    tile.in_column = first_of(a, tile.column, a->pad[1]);
    return tile;
}

GPU_BODY const void *image_of(const void *images, int32_t n, const int32_t extent[2], int32_t channels)
{
    return (const uint16_t *)images + (int64_t)n * extent[0] * extent[1] * channels;
}

#define TYPE f16
#include "backend/cuda/kernels/grouped.inc"
#undef TYPE
#define TYPE bf16
#include "backend/cuda/kernels/grouped.inc"
#undef TYPE

struct grouped_sum_args {
    const float *partial;
    float *dw;
    int64_t count;
    int32_t pieces;
};

/* A thread for each weight. */
GPU_KERNEL(grouped_sum, struct grouped_sum_args, GROUPED_THREADS)
{
    const int64_t i = (int64_t)GPU_BLOCK_X * GROUPED_THREADS + GPU_THREAD;
    float sum = 0;

    if (i >= a.count)
        return;
    for (int32_t p = 0; p < a.pieces; p++)
        sum += a.partial[p * a.count + i];
    a.dw[i] = sum;
}

/* ---- launches ---- */

static struct grouped_args args_of(const struct gpu_grouped *what, bool data)
{
    struct grouped_args args;
    int64_t across, down;

    memset(&args, 0, sizeof args);
    args.in[0] = (int32_t)(data ? what->p : what->h);
    args.in[1] = (int32_t)(data ? what->q : what->w);
    args.out[0] = (int32_t)(data ? what->h : what->p);
    args.out[1] = (int32_t)(data ? what->w : what->q);
    args.channels = (int32_t)what->channels;
    args.width = what->width;
    args.stride = what->stride;
    args.pad[0] = what->pad[0];
    args.pad[1] = what->pad[1];
    args.data = data;
    args.tile_rows = what->stride == 1 || data ? 8 : 4;
    args.tile_columns = 2 * args.tile_rows;
    /* A data gradient at stride 2 reads fewer, but not by how much the tile is off an even row. */
    args.halo_rows = data ? args.tile_rows + 2 : (args.tile_rows - 1) * what->stride + 3;
    args.halo_columns = data ? args.tile_columns + 2 : (args.tile_columns - 1) * what->stride + 3;
    across = (args.out[1] + args.tile_columns - 1) / args.tile_columns;
    down = (args.out[0] + args.tile_rows - 1) / args.tile_rows;
    args.tiles_across = (int32_t)across;
    args.tiles_down = (int32_t)down;
    args.tiles = (int32_t)(what->n * across * down);
    return args;
}

static void launch(void *stream, const struct gpu_grouped *what, struct grouped_args args)
{
    const int threads = args.tile_rows * args.tile_columns / 2 * (SLAB / 8);

    if (what->dtype == CVY_F16)
        GPU_LAUNCH(grouped_f16, stream, args.tiles, what->channels / SLAB, threads, args);
    else
        GPU_LAUNCH(grouped_bf16, stream, args.tiles, what->channels / SLAB, threads, args);
}

GPU_EXTERN void gpu_grouped_forward(void *stream, const struct gpu_grouped *what, const void *x, const void *w, void *y)
{
    struct grouped_args args = args_of(what, false);

    args.x = x;
    args.w = w;
    args.y = y;
    launch(stream, what, args);
}

GPU_EXTERN void gpu_grouped_data(void *stream, const struct gpu_grouped *what, const void *w, const void *dy, void *dx)
{
    struct grouped_args args = args_of(what, true);

    args.x = dy;
    args.w = w;
    args.y = dx;
    launch(stream, what, args);
}

/* Blocks that walk over the tiles of a slab. */
static int64_t walkers(const struct gpu_grouped *what, const struct grouped_args *args)
{
    const int64_t slabs = what->channels / SLAB, wanted = (WEIGHT_BLOCKS + slabs - 1) / slabs;

    return wanted < args->tiles ? wanted : args->tiles;
}

/* Of the pieces of a gradient of weights: for each walker one for all threads that have the same weights. */
static int64_t pieces(const struct gpu_grouped *what, const struct grouped_args *args)
{
    return walkers(what, args) * (GROUPED_THREADS / (SLAB * (what->width / 4)));
}

GPU_EXTERN int64_t gpu_grouped_scratch(const struct gpu_grouped *what)
{
    const struct grouped_args args = args_of(what, false);

    return pieces(what, &args) * what->channels * what->width * TAPS;
}

GPU_EXTERN void gpu_grouped_weights(void *stream, const struct gpu_grouped *what, const void *x, const void *dy,
                                    float *dw, float *scratch)
{
    struct grouped_args args = args_of(what, false);
    struct grouped_sum_args sum;

    args.x = x;
    args.y = (void *)(uintptr_t)dy; /* read only */
    args.partial = scratch;
    if (what->dtype == CVY_F16)
        GPU_LAUNCH(grouped_weights_f16, stream, walkers(what, &args), what->channels / SLAB, GROUPED_THREADS, args);
    else
        GPU_LAUNCH(grouped_weights_bf16, stream, walkers(what, &args), what->channels / SLAB, GROUPED_THREADS, args);
    memset(&sum, 0, sizeof sum);
    sum.partial = scratch;
    sum.dw = dw;
    sum.count = what->channels * what->width * TAPS;
    sum.pieces = (int32_t)pieces(what, &args);
    GPU_LAUNCH(grouped_sum, stream, (sum.count + GROUPED_THREADS - 1) / GROUPED_THREADS, 1, GROUPED_THREADS, sum);
}
