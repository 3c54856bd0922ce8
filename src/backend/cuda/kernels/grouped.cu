/* Grouped 3x3 convolutions of narrow groups (4, 8, 16 or 32 channels, as ResNeXt has them) in 16-bit floats, channels
 * last, at stride 2, and at stride 1 where shared memory is too small for grouped_rows.cu: products on tensor cores,
 * sums in f32. One kernel makes outputs, and gradients of data with the weights turned round; another one makes
 * gradients of weights, in pieces that a third one adds in a fixed order.
 *
 * A block works on 32 channels, whole groups of them, and walks over tiles of pixels. It brings a tile with what lies
 * around it into shared memory while it computes the one before: each element comes from memory about once.
 *
 * Tensor cores multiply 16 pixels by 16 inputs by 8 outputs. The 8 outputs are an octet of neighbours; of groups of up
 * to 8 channels (several of 4: the weights between them are zeros) the inputs are the same octet under two taps, of
 * wider ones 16 channels under one. In gradients of weights these 16 inputs stand for the pixels, and pixels for the
 * inputs. */
#include "backend/cuda/kernels/grouped.h"

enum {
    HALVES = GROUPED_THREADS / 32 / OCTETS, /* warps with the same channels */
    MAX_TILE = 8 * 16,
    MAX_HALO = 10 * 18,    /* of a tile at stride 1; at stride 2 the tile is 4 x 8, and 9 x 17 pixels are around it */
    MAX_STEPS = STEPS_32,
    NOTHING = -1,
    WEIGHT_BLOCKS_EACH = 2, /* on a processor, for gradients of weights: each leaves a piece to be added */
};

struct grouped_args {
    const void *x, *w; /* of a data gradient x is dy; of weights' gradients y is dy */
    void *y;
    float *partial;
    int32_t in[2], out[2];   /* rows, columns */
    int32_t channels, width; /* width: channels of a group */
    int32_t stride, pad[2];
    int32_t tile_rows, column_bits /* of the tile's columns, 8 or 16 */;
    int32_t tiles_across, tiles_down, tiles, halo_rows, halo_columns;
    int32_t stage_rows, stage_columns; /* GROUPED_THREADS / OCTETS pixels around a tile, in rows and columns */
    bool data;
};

/* ---- steps ---- */

/* Steps that read the same pixels have a slot together, for where these are; the second one reads other channels. */
GPU_BODY int slots_of(int steps)
{
    return steps == STEPS_32 ? steps / 2 : steps;
}

GPU_BODY int slot_of(int steps, int32_t step)
{
    return steps == STEPS_32 ? step / 2 : step;
}

GPU_BODY int32_t more_of(int steps, int32_t step)
{
    return steps == STEPS_32 ? step % 2 * 16 : 0;
}

/* ---- tiles ---- */

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

    tile.column = index % a->tiles_across << a->column_bits;
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

/* Pixel p of the m-th 16 pixels of a tile. `gaps`: of a data gradient at stride 2, where a tap has a pixel for every
 * second row and column only; 16 pixels are then those of rows and columns of the same parity. */
struct spot {
    int32_t row, column;
};

/* Each half of the warps has rows of both parities, and columns: they have one, two or four taps. */
GPU_BODY int32_t row_parity(int32_t m)
{
    return m / 2 % 2;
}

GPU_BODY int32_t column_parity(int32_t m)
{
    return (m + m / 2) % 2;
}

GPU_BODY struct spot spot_of(const struct grouped_args *a, bool gaps, int32_t m, int32_t p)
{
    const int32_t bits = a->column_bits - gaps, i = (gaps ? m / 4 : m) * 16 + p;
    struct spot spot = {i >> bits, i & ((1 << bits) - 1)};

    if (gaps) {
        spot.row = 2 * spot.row + row_parity(m);
        spot.column = 2 * spot.column + column_parity(m);
    }
    return spot;
}

/* In shared memory, where an output's inputs begin, and from there on those of a slot for the lanes of a half (NOTHING:
 * there are none). */
GPU_BODY int32_t first_source_of(const struct grouped_args *a, bool gaps, struct spot spot)
{
    const int32_t stride = a->data ? 1 : a->stride;
    const int32_t row = gaps ? spot.row / 2 : spot.row * stride, column = gaps ? spot.column / 2 : spot.column * stride;

    return (row * a->halo_columns + column) * HALO_PIXEL;
}

GPU_BODY int32_t source_of(const struct grouped_args *a, bool gaps, const struct tile *tile, int32_t m, int steps,
                           int slot, int32_t half, int32_t outputs)
{
    const int32_t step = steps == STEPS_32 ? 2 * slot : slot, tap = tap_of(steps, step, half);
    int32_t r = tap / 3, s = tap % 3;

    if (tap >= TAPS)
        return NOTHING;
    if (gaps) {
        const int32_t up = tile->row + row_parity(m) + a->pad[0] - r;
        const int32_t left = tile->column + column_parity(m) + a->pad[1] - s;
        if (((up | left) & 1) != 0)
            return NOTHING;
        r = up / 2 - tile->in_row;
        s = left / 2 - tile->in_column;
    } else if (a->data) {
        r = 2 - r;
        s = 2 - s;
    }
    return (r * a->halo_columns + s) * HALO_PIXEL + octet_of(steps, step, half, outputs) * 8;
}

/* 32 channels of the pixels around a tile, zeros outside the image. A thread has an octet of every 64th. */
GPU_BODY void stage_inputs(const struct grouped_args *a, const struct tile *tile, uint16_t *to)
{
    const uint16_t *from =
        (const uint16_t *)image_of(a->x, tile->n, a->in, a->channels) + GPU_BLOCK_Y * SLAB + GPU_THREAD % OCTETS * 8;
    const int32_t first = GPU_THREAD / OCTETS;
    int32_t row = first / a->halo_columns, column = first - row * a->halo_columns;

    to += first * HALO_PIXEL + GPU_THREAD % OCTETS * 8;
    GPU_ROLLED
    while (row < a->halo_rows) {
        const int32_t h = tile->in_row + row, w = tile->in_column + column;
        const bool there = h >= 0 && h < a->in[0] && w >= 0 && w < a->in[1];
        gpu_copy_words(to, from + (there ? ((int64_t)h * a->in[1] + w) * a->channels : 0), there);
        to += GROUPED_THREADS / OCTETS * HALO_PIXEL;
        row += a->stage_rows;
        column += a->stage_columns;
        if (column >= a->halo_columns) {
            column -= a->halo_columns;
            row++;
        }
    }
}

/* The same, and after it the gradient of the tile's outputs. */
GPU_BODY void stage_both(const struct grouped_args *a, const struct tile *tile, uint16_t *to)
{
    const uint16_t *from =
        (const uint16_t *)image_of(a->y, tile->n, a->out, a->channels) + GPU_BLOCK_Y * SLAB + GPU_THREAD % OCTETS * 8;

    stage_inputs(a, tile, to);
    to += MAX_HALO * HALO_PIXEL;
    GPU_ROLLED
    for (int32_t pixel = GPU_THREAD / OCTETS; pixel < a->tile_rows << a->column_bits;
         pixel += GROUPED_THREADS / OCTETS) {
        const int32_t h = tile->row + (pixel >> a->column_bits);
        const int32_t w = tile->column + (pixel & ((1 << a->column_bits) - 1));
        const bool there = h < a->out[0] && w < a->out[1];
        gpu_copy_words(to + words_of(pixel, GPU_THREAD % OCTETS),
                       from + (there ? ((int64_t)h * a->out[1] + w) * a->channels : 0), there);
    }
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
    int64_t count; /* of a piece: slabs, steps, threads, four numbers */
    int32_t pieces, width, steps;
};

/* A thread for each number of a piece; those between groups and after the last tap are not used. */
GPU_KERNEL(grouped_sum, struct grouped_sum_args, GROUPED_THREADS)
{
    const int64_t at = (int64_t)GPU_BLOCK_X * GROUPED_THREADS + GPU_THREAD;
    const int32_t i = (int32_t)(at % 4), lane = (int32_t)(at / 4 % 32), octet = (int32_t)(at / 128 % OCTETS);
    const int32_t step = (int32_t)(at / FRAGMENTS % a.steps);
    const int64_t slab = at / FRAGMENTS / a.steps;
    const int32_t in = 8 * octet_of(a.steps, step, i / 2, octet) + lane / 4, tap = tap_of(a.steps, step, i / 2);
    const int32_t out = 8 * octet + lane % 4 * 2 + i % 2;
    float sum = 0;

    if (at >= a.count || tap >= TAPS || in / a.width != out / a.width)
        return;
    for (int32_t p = 0; p < a.pieces; p++)
        sum += a.partial[p * a.count + at];
    a.dw[((slab * SLAB + out) * a.width + in % a.width) * TAPS + tap] = sum;
}

/* ---- launches ---- */

GPU_EXTERN void gpu_grouped_add(void *stream, const struct gpu_grouped *what, int steps, int64_t pieces,
                                const float *partial, float *dw)
{
    struct grouped_sum_args sum;

    memset(&sum, 0, sizeof sum);
    sum.partial = partial;
    sum.dw = dw;
    sum.count = what->channels / SLAB * steps * FRAGMENTS;
    sum.pieces = (int32_t)pieces;
    sum.width = what->width;
    sum.steps = steps;
    GPU_LAUNCH(grouped_sum, stream, (sum.count + GROUPED_THREADS - 1) / GROUPED_THREADS, 1, GROUPED_THREADS, sum);
}

static struct grouped_args args_of(const struct gpu_grouped *what, bool data)
{
    struct grouped_args args;
    int64_t across, down;
    int32_t columns;

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
    args.column_bits = args.tile_rows == 8 && args.out[1] > 8 ? 4 : 3;
    columns = 1 << args.column_bits;
    args.halo_rows = data ? args.tile_rows / what->stride + 2 : (args.tile_rows - 1) * what->stride + 3;
    args.halo_columns = data ? columns / what->stride + 2 : (columns - 1) * what->stride + 3;
    args.stage_rows = GROUPED_THREADS / OCTETS / args.halo_columns;
    args.stage_columns = GROUPED_THREADS / OCTETS % args.halo_columns;
    across = (args.out[1] + columns - 1) / columns;
    down = (args.out[0] + args.tile_rows - 1) / args.tile_rows;
    args.tiles_across = (int32_t)across;
    args.tiles_down = (int32_t)down;
    args.tiles = (int32_t)(what->n * across * down);
    return args;
}

/* Blocks that walk over the tiles of a slab: in all no more than there is room for at once, `each` on a processor. */
static int64_t walkers(const struct gpu_grouped *what, const struct grouped_args *args, int each)
{
    const int64_t slabs = what->channels / SLAB, maximum = each * GPU_PROCESSORS / slabs;

    return maximum < 1 ? 1 : maximum < args->tiles ? maximum : args->tiles;
}

/* By registers, of which wider groups need more. */
static int blocks_each(const struct gpu_grouped *what)
{
    return what->width <= 8 ? 4 : what->width == 16 ? 3 : 2;
}

static int steps_of(const struct gpu_grouped *what)
{
    return what->width <= 8 ? STEPS_8 : what->width == 16 ? STEPS_16 : STEPS_32;
}

/* Numbers of a piece. */
static int64_t piece_of(const struct gpu_grouped *what)
{
    return what->channels / SLAB * steps_of(what) * FRAGMENTS;
}

/* The kernel of the width and the type; `suffix`: what its name ends with. */
#define LAUNCH(suffix, each)                                                                                           \
    do {                                                                                                               \
        const int64_t blocks = walkers(what, &args, each), slabs = what->channels / SLAB;                              \
        const int kind = (what->width <= 8 ? 0 : what->width == 16 ? 2 : 4) + (what->dtype == CVY_F16);                \
        if (kind == 0)                                                                                                 \
            GPU_LAUNCH(grouped8##suffix##_bf16, stream, blocks, slabs, GROUPED_THREADS, args);                         \
        else if (kind == 1)                                                                                            \
            GPU_LAUNCH(grouped8##suffix##_f16, stream, blocks, slabs, GROUPED_THREADS, args);                          \
        else if (kind == 2)                                                                                            \
            GPU_LAUNCH(grouped16##suffix##_bf16, stream, blocks, slabs, GROUPED_THREADS, args);                        \
        else if (kind == 3)                                                                                            \
            GPU_LAUNCH(grouped16##suffix##_f16, stream, blocks, slabs, GROUPED_THREADS, args);                         \
        else if (kind == 4)                                                                                            \
            GPU_LAUNCH(grouped32##suffix##_bf16, stream, blocks, slabs, GROUPED_THREADS, args);                        \
        else                                                                                                           \
            GPU_LAUNCH(grouped32##suffix##_f16, stream, blocks, slabs, GROUPED_THREADS, args);                         \
    } while (0)

static void launch(void *stream, const struct gpu_grouped *what, struct grouped_args args)
{
    if (args.data && args.stride == 2)
        LAUNCH(_gaps, blocks_each(what));
    else
        LAUNCH(, blocks_each(what));
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

GPU_EXTERN int64_t gpu_grouped_scratch(const struct gpu_grouped *what)
{
    const struct grouped_args args = args_of(what, false);

    return walkers(what, &args, WEIGHT_BLOCKS_EACH) * piece_of(what);
}

GPU_EXTERN void gpu_grouped_weights(void *stream, const struct gpu_grouped *what, const void *x, const void *dy,
                                    float *dw, float *scratch)
{
    struct grouped_args args = args_of(what, false);

    args.x = x;
    args.y = (void *)(uintptr_t)dy; /* read only */
    args.partial = scratch;
    LAUNCH(_weights, WEIGHT_BLOCKS_EACH);
    gpu_grouped_add(stream, what, steps_of(what), walkers(what, &args, WEIGHT_BLOCKS_EACH), scratch, dw);
}
