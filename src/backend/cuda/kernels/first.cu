/* First convolutions, of images of up to four channels, in 16-bit floats, channels last: products on tensor cores, sums
 * in f32. One kernel makes outputs and the statistics of these, another one gradients of weights, in pieces that a
 * third one adds in a fixed order.
 *
 * A block works on 64 outputs and walks over tiles of 8 x 16 pixels of them. It brings the pixels that the next tile
 * reads into shared memory while it computes one. There a pixel has four channels, so that two neighbours, an octet of
 * numbers, are a row of a matrix for tensor cores, and four neighbours 16 inputs of an output: the taps of a row of the
 * filter, filled up with zeros to four or eight. The octets of neighbouring outputs follow each other at stride 2; at
 * stride 1 those of every second output do, and a row lies there twice, the second time without its first pixel.
 *
 * A row of the image is a row of several outputs, under another row of the filter each: a fragment of it is loaded once
 * for all of them. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/warp.h"

enum {
    SLAB = 64,
    OCTETS = SLAB / 8,
    FIRST_THREADS = 256,
    WARPS = FIRST_THREADS / 32,
    TILE_ROWS = 8,
    TILE_COLUMNS = 16,
    TILE = TILE_ROWS * TILE_COLUMNS,
    WARP_ROWS = 4,    /* of a tile, and 16 of its outputs: what a warp makes */
    MAX_ROWS = 7,     /* of a filter */
    MAX_STEPS = 2,    /* of 16 inputs, four taps, for a row of a filter */
    COPY_OCTETS = 12, /* of a row at stride 1, and of the same row without its first pixel: in other banks */
    MAX_PATCH = (2 * (TILE_ROWS - 1) + MAX_ROWS + 1) * (TILE_COLUMNS + 2 * MAX_STEPS - 1) * 8,
    FRAGMENTS = FIRST_THREADS * 4, /* numbers of a row of a gradient of weights, for one or two times 16 outputs */
    BLOCKS_EACH = 2,               /* on a processor */
    SUM_NUMBERS = 32,              /* of a block that adds pieces */
};

struct first_args {
    const void *x, *w;
    const float *bias;
    void *y; /* of weights' gradients dy */
    float *partial, *mean, *variance;
    uint32_t *tickets;
    int64_t image, result; /* numbers of an image, and of its outputs */
    int32_t in[2], out[2]; /* rows, columns */
    int32_t channels;      /* of a pixel, as stored: 4, or 8 of which the last four are zeros */
    int32_t outputs, kernel[2], pad[2];
    int32_t tiles_across, tiles_down, tiles;
    enum cvy_activation activation;
};

/* ---- tiles ---- */

struct tile {
    int32_t n, row, column; /* of the outputs */
};

/* A block's tiles are neighbours, one after the other, from here up to where those of the next block begin. */
GPU_BODY int32_t first_tile(const struct first_args *a, int32_t block)
{
    return (int32_t)((int64_t)a->tiles * block / GPU_BLOCKS_X);
}

GPU_BODY int32_t tiles_of_block(const struct first_args *a)
{
    return first_tile(a, GPU_BLOCK_X + 1) - first_tile(a, GPU_BLOCK_X);
}

GPU_BODY struct tile tile_of(const struct first_args *a, int32_t index)
{
    struct tile tile;

    tile.column = index % a->tiles_across * TILE_COLUMNS;
    tile.row = index / a->tiles_across % a->tiles_down * TILE_ROWS;
    tile.n = index / (a->tiles_across * a->tiles_down);
    return tile;
}

GPU_BODY struct tile tile_after(const struct first_args *a, struct tile tile)
{
    tile.column += TILE_COLUMNS;
    if (tile.column < a->out[1])
        return tile;
    tile.column = 0;
    tile.row += TILE_ROWS;
    if (tile.row < a->out[0])
        return tile;
    tile.row = 0;
    tile.n++;
    return tile;
}

/* Octets of a row in shared memory. */
GPU_BODY int across_of(const int steps, const int stride)
{
    return stride == 2 ? TILE_COLUMNS + 2 * steps - 1 : 2 * COPY_OCTETS;
}

/* The rows that a tile reads. */
GPU_BODY int patch_rows_of(const int rows, const int stride)
{
    return (TILE_ROWS - 1) * stride + rows;
}

/* The first octet of a row that an output's column reads. */
GPU_BODY int32_t octet_under(const int stride, int32_t column)
{
    return stride == 2 ? column : column / 2 + column % 2 * COPY_OCTETS;
}

/* The pixels that a tile reads, four channels of each, zeros outside the image. A warp has every eighth row. */
GPU_BODY void stage_patch(const struct first_args *a, const struct tile *tile, uint16_t *to, const int rows,
                          const int steps, const int stride)
{
    enum { MAX_COPIES = 2 };
    const int across = 2 * across_of(steps, stride), copies = (across + 31) / 32;
    const uint16_t *image = (const uint16_t *)a->x + tile->n * a->image;
    const int32_t row_size = a->in[1] * a->channels, thread = gpu_thread_again(), warp = thread / 32;
    int32_t h = tile->row * stride - a->pad[0] + warp, from[MAX_COPIES];
    bool there[MAX_COPIES];

    GPU_UNROLL
    for (int32_t i = 0; i < copies; i++) {
        const int32_t place = thread % 32 + 32 * i;
        const bool second = stride == 1 && place >= 2 * COPY_OCTETS;
        const int32_t w = tile->column * stride - a->pad[1] + place - (second ? 2 * COPY_OCTETS - 1 : 0);
        there[i] = w >= 0 && w < a->in[1];
        from[i] = h * row_size + w * a->channels;
    }
    to += (warp * across + thread % 32) * 4;
    GPU_ROLLED
    for (int32_t row = warp; row < patch_rows_of(rows, stride); row += WARPS) {
        GPU_UNROLL
        for (int32_t i = 0; i < copies; i++) {
            const bool inside = there[i] && h >= 0 && h < a->in[0];
            if (thread % 32 + 32 * i < across)
                gpu_copy_four(to + 128 * i, image + (inside ? from[i] : 0), inside);
            from[i] += WARPS * row_size;
        }
        h += WARPS;
        to += WARPS * across * 4;
    }
}

/* ---- outputs and their gradients: a thread has an octet of every second row ---- */

/* Where 8 outputs of a pixel of the tile lie in shared memory: those of 8 neighbours in banks of their own. */
GPU_BODY int32_t words_of(int32_t pixel, int32_t octet)
{
    return pixel * SLAB + (octet ^ (pixel & 7)) * 8;
}

struct own_octet {
    int32_t octet, row, column; /* the first one's, of the tile */
    int32_t place;              /* in shared memory; the others are rows away */
};

GPU_BODY struct own_octet own_octet(void)
{
    const int32_t thread = gpu_thread_again();
    struct own_octet own;

    own.octet = thread % OCTETS;
    own.row = thread / OCTETS / TILE_COLUMNS;
    own.column = thread / OCTETS % TILE_COLUMNS;
    own.place = words_of(thread / OCTETS, own.octet);
    return own;
}

/* A thread's octets of a tile: in memory, and whether they are those of an image. */
struct octets {
    uint16_t *first;
    int32_t step; /* to the next one, two rows below */
    int32_t rows; /* that there are from the first one on */
};

GPU_BODY struct octets octets_of(const struct first_args *a, const struct tile *tile, const struct own_octet *own)
{
    const int32_t row = tile->row + own->row, column = tile->column + own->column;
    const int32_t output = GPU_BLOCK_Y * SLAB + own->octet * 8;
    struct octets octets;

    octets.first = (uint16_t *)a->y + tile->n * a->result + (row * a->out[1] + column) * a->outputs + output;
    octets.step = 2 * a->out[1] * a->outputs;
    octets.rows = column < a->out[1] && output < a->outputs ? a->out[0] - row : 0;
    return octets;
}

GPU_BODY void stage_gradient(const struct first_args *a, const struct tile *tile, uint16_t *to)
{
    const struct own_octet own = own_octet();
    const struct octets octets = octets_of(a, tile, &own);

    GPU_UNROLL
    for (int32_t i = 0; i < TILE_ROWS / 2; i++) {
        const bool there = 2 * i < octets.rows;
        gpu_copy_words(to + own.place + 2 * i * TILE_COLUMNS * SLAB,
                       there ? octets.first + i * octets.step : (const uint16_t *)a->y, there);
    }
}

GPU_BODY void store_tile(const struct first_args *a, const struct tile *tile, const uint16_t *made)
{
    const struct own_octet own = own_octet();
    const struct octets octets = octets_of(a, tile, &own);

    GPU_UNROLL
    for (int32_t i = 0; i < TILE_ROWS / 2; i++)
        if (2 * i < octets.rows)
            gpu_store_words(octets.first + i * octets.step,
                            gpu_load_words(made + own.place + 2 * i * TILE_COLUMNS * SLAB));
}

/* What of the bias belongs to the sums of a lane: two neighbours of an octet. */
GPU_BODY void add_bias(const struct first_args *a, int32_t octet, int32_t lane, float sum[WARP_ROWS][2][4])
{
    GPU_UNROLL
    for (int i = 0; i < 4; i++) { /* octets, neighbours */
        const int32_t output = GPU_BLOCK_Y * SLAB + (octet + i / 2) * 8 + lane % 4 * 2 + i % 2;
        const float bias = output < a->outputs ? a->bias[output] : 0;
        GPU_UNROLL
        for (int p = 0; p < WARP_ROWS; p++) {
            sum[p][i / 2][i % 2] += bias;
            sum[p][i / 2][i % 2 + 2] += bias;
        }
    }
}

/* ---- statistics ---- */

/* Whether this block is the last one of its outputs to come here: then what all of them have written can be read. */
GPU_BODY bool is_last(const struct first_args *a)
{
    GPU_SHARED bool last;

    GPU_SYNC();
    if (GPU_THREAD == 0) {
        last = GPU_TICKET(&a->tickets[GPU_BLOCK_Y]) == (uint32_t)GPU_BLOCKS_X - 1;
        if (last)
            a->tickets[GPU_BLOCK_Y] = 0;
        GPU_FENCE();
    }
    GPU_SYNC();
    return last;
}

/* Mean and variance of the outputs, of what the products of a warp's octet with itself and with ones have added up to:
 * {products of output g with 2t and 2t + 1; sums of 2t and 2t + 1}, g = lane / 4, t = lane % 4. What a block leaves:
 * the sums of its outputs, then those of their squares. */
GPU_BODY void put_statistics(const struct first_args *a, const float total[4])
{
    enum { NUMBERS = 2 * SLAB, PARTS = FIRST_THREADS / NUMBERS, BATCH = 16 };
    GPU_SHARED double shared_totals[FIRST_THREADS];
    const int32_t thread = gpu_thread_again(), g = thread / 4 % 8, t = thread % 4;
    const int32_t number = thread % NUMBERS, channel = thread % SLAB;
    float *to = a->partial + ((int64_t)GPU_BLOCK_X * GPU_BLOCKS_Y + GPU_BLOCK_Y) * NUMBERS + thread / 32 * 8;
    double sum = 0;

    if (g == 0) {
        to[2 * t] = total[2];
        to[2 * t + 1] = total[3];
    }
    if (g / 2 == t)
        to[SLAB + g] = g % 2 ? total[1] : total[0];
    if (!is_last(a))
        return;
    for (int32_t block = thread / NUMBERS; block < GPU_BLOCKS_X; block += BATCH * PARTS) {
        float part[BATCH];
        GPU_UNROLL
        for (int32_t i = 0; i < BATCH; i++)
            part[i] = block + i * PARTS < GPU_BLOCKS_X
                          ? a->partial[((int64_t)(block + i * PARTS) * GPU_BLOCKS_Y + GPU_BLOCK_Y) * NUMBERS + number]
                          : 0;
        GPU_UNROLL
        for (int32_t i = 0; i < BATCH; i++)
            sum += (double)part[i];
    }
    shared_totals[thread] = sum;
    GPU_SYNC();
    if (thread < SLAB && GPU_BLOCK_Y * SLAB + channel < a->outputs) {
        const double rows = (double)(a->tiles / (a->tiles_across * a->tiles_down)) * a->out[0] * a->out[1];
        const double mean = (shared_totals[channel] + shared_totals[NUMBERS + channel]) / rows;
        const double squares = (shared_totals[SLAB + channel] + shared_totals[NUMBERS + SLAB + channel]) / rows;
        const double variance = squares - mean * mean;
        a->mean[GPU_BLOCK_Y * SLAB + channel] = (float)mean;
        a->variance[GPU_BLOCK_Y * SLAB + channel] = variance < 0 ? 0 : (float)variance;
    }
}

#define ONES_f16  0x3c003c00U /* two of them */
#define ONES_bf16 0x3f803f80U
#define TYPE      f16
#include "backend/cuda/kernels/first.inc"
#undef TYPE
#define TYPE bf16
#include "backend/cuda/kernels/first.inc"
#undef TYPE

/* ---- the sum of the pieces of a gradient of weights ---- */

struct first_sum_args {
    const float *partial;
    float *dw;
    int64_t count; /* of a piece: slabs, rows of the filter, parts, threads, four numbers */
    int32_t pieces, rows, steps, outputs, planes, kernel[2];
};

GPU_BODY int first_parts_of(const int steps) /* times 16 outputs of a warp */
{
    return steps == 2 ? 2 : 1;
}

/* Where the number `at` of a piece belongs; -1: it is the product of zeros. */
GPU_BODY int64_t weight_at(const struct first_sum_args *a, int64_t at)
{
    const int parts = first_parts_of(a->steps);
    const int32_t i = (int32_t)(at % 4), lane = (int32_t)(at / 4 % 32), warp = (int32_t)(at / 128 % WARPS);
    const int32_t part = (int32_t)(at / FRAGMENTS % parts), r = (int32_t)(at / FRAGMENTS / parts % a->rows);
    const int32_t input = warp % (2 * a->steps) * 8 + lane % 4 * 2 + i % 2, s = input / 4, plane = input % 4;
    const int64_t output =
        at / FRAGMENTS / parts / a->rows * SLAB + (warp / (2 * a->steps) * parts + part) * 16 + i / 2 * 8 + lane / 4;

    if (at >= a->count || r >= a->kernel[0] || s >= a->kernel[1] || plane >= a->planes || output >= a->outputs)
        return -1;
    return ((output * a->planes + plane) * a->kernel[0] + r) * a->kernel[1] + s;
}

/* A block has 32 numbers, a thread every eighth piece of one. */
GPU_KERNEL_SHARED(first_sum, struct first_sum_args, FIRST_THREADS)
{
    enum { PARTS = FIRST_THREADS / SUM_NUMBERS };
    GPU_SHARED float shared_sums[FIRST_THREADS];
    const int64_t at = (int64_t)GPU_BLOCK_X * SUM_NUMBERS + GPU_THREAD % SUM_NUMBERS, to = weight_at(&a, at);
    float sum = 0;

    for (int32_t p = GPU_THREAD / SUM_NUMBERS; to >= 0 && p < a.pieces; p += PARTS)
        sum += a.partial[p * a.count + at];
    shared_sums[GPU_THREAD] = sum;
    GPU_SYNC();
    if (GPU_THREAD >= SUM_NUMBERS || to < 0)
        return;
    for (int32_t i = 1; i < PARTS; i++)
        sum += shared_sums[i * SUM_NUMBERS + GPU_THREAD];
    a.dw[to] = sum;
}

/* ---- launches ---- */

static struct first_args args_of(const struct gpu_first *what)
{
    struct first_args args;

    memset(&args, 0, sizeof args);
    args.in[0] = (int32_t)what->h;
    args.in[1] = (int32_t)what->w;
    args.out[0] = (int32_t)what->p;
    args.out[1] = (int32_t)what->q;
    args.image = what->h * what->w * what->channels;
    args.result = what->p * what->q * what->outputs;
    args.channels = what->channels;
    args.outputs = (int32_t)what->outputs;
    for (int i = 0; i < 2; i++) {
        args.kernel[i] = what->kernel[i];
        args.pad[i] = what->pad[i];
    }
    args.tiles_across = (args.out[1] + TILE_COLUMNS - 1) / TILE_COLUMNS;
    args.tiles_down = (args.out[0] + TILE_ROWS - 1) / TILE_ROWS;
    args.tiles = (int32_t)what->n * args.tiles_across * args.tiles_down;
    return args;
}

static int64_t slabs_of(const struct gpu_first *what)
{
    return (what->outputs + SLAB - 1) / SLAB;
}

/* Blocks that walk over the tiles of a slab: in all no more than there is room for at once. */
static int64_t walkers(const struct gpu_first *what)
{
    const int64_t maximum = BLOCKS_EACH * GPU_PROCESSORS / slabs_of(what), tiles = args_of(what).tiles;

    return maximum < 1 ? 1 : maximum < tiles ? maximum : tiles;
}

/* Filters of up to 3 x 4, and the others. */
static bool is_small(const struct gpu_first *what)
{
    return what->kernel[0] <= 3 && what->kernel[1] <= 4;
}

/* Numbers of a piece. */
static int64_t piece_of(const struct gpu_first *what)
{
    return slabs_of(what) * FRAGMENTS * (is_small(what) ? 3 : 2 * MAX_ROWS);
}

/* The kernel of the filter, the stride and the type; `suffix`: what its name ends with. */
#define LAUNCH(suffix)                                                                                                 \
    do {                                                                                                               \
        const int64_t blocks = walkers(what), slabs = slabs_of(what);                                                  \
        const int kind = (is_small(what) ? 0 : 4) + (what->stride == 1 ? 0 : 2) + (what->dtype == CVY_F16);            \
        if (kind == 0)                                                                                                 \
            GPU_LAUNCH(first3x1##suffix##_bf16, stream, blocks, slabs, FIRST_THREADS, args);                           \
        else if (kind == 1)                                                                                            \
            GPU_LAUNCH(first3x1##suffix##_f16, stream, blocks, slabs, FIRST_THREADS, args);                            \
        else if (kind == 2)                                                                                            \
            GPU_LAUNCH(first3x2##suffix##_bf16, stream, blocks, slabs, FIRST_THREADS, args);                           \
        else if (kind == 3)                                                                                            \
            GPU_LAUNCH(first3x2##suffix##_f16, stream, blocks, slabs, FIRST_THREADS, args);                            \
        else if (kind == 4)                                                                                            \
            GPU_LAUNCH(first7x1##suffix##_bf16, stream, blocks, slabs, FIRST_THREADS, args);                           \
        else if (kind == 5)                                                                                            \
            GPU_LAUNCH(first7x1##suffix##_f16, stream, blocks, slabs, FIRST_THREADS, args);                            \
        else if (kind == 6)                                                                                            \
            GPU_LAUNCH(first7x2##suffix##_bf16, stream, blocks, slabs, FIRST_THREADS, args);                           \
        else                                                                                                           \
            GPU_LAUNCH(first7x2##suffix##_f16, stream, blocks, slabs, FIRST_THREADS, args);                            \
    } while (0)

GPU_EXTERN int64_t gpu_first_statistics_scratch(const struct gpu_first *what)
{
    return walkers(what) * slabs_of(what) * 2 * SLAB;
}

GPU_EXTERN void gpu_first_forward(void *stream, const struct gpu_first *what, const struct gpu_first_memory *memory)
{
    struct first_args args = args_of(what);

    args.x = memory->x;
    args.w = memory->w;
    args.bias = memory->bias;
    args.activation = what->activation;
    args.y = memory->y;
    args.mean = memory->mean;
    args.variance = memory->variance;
    args.partial = memory->scratch;
    args.tickets = memory->tickets;
    LAUNCH();
}

GPU_EXTERN int64_t gpu_first_weights_scratch(const struct gpu_first *what)
{
    return walkers(what) * piece_of(what);
}

GPU_EXTERN void gpu_first_weights(void *stream, const struct gpu_first *what, const void *x, const void *dy, float *dw,
                                  float *scratch)
{
    struct first_args args = args_of(what);
    struct first_sum_args sum;

    args.x = x;
    args.y = (void *)(uintptr_t)dy; /* read only */
    args.partial = scratch;
    LAUNCH(_weights);
    memset(&sum, 0, sizeof sum);
    sum.partial = scratch;
    sum.dw = dw;
    sum.count = piece_of(what);
    sum.pieces = (int32_t)walkers(what);
    sum.rows = is_small(what) ? 3 : MAX_ROWS;
    sum.steps = is_small(what) ? 1 : MAX_STEPS;
    sum.outputs = (int32_t)what->outputs;
    sum.planes = what->planes;
    sum.kernel[0] = what->kernel[0];
    sum.kernel[1] = what->kernel[1];
    GPU_LAUNCH(first_sum, stream, (sum.count + SUM_NUMBERS - 1) / SUM_NUMBERS, 1, FIRST_THREADS, sum);
}
