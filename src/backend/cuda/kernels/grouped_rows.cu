/* Grouped 3x3 convolutions at stride 1 of narrow groups (4, 8, 16 or 32 channels, as ResNeXt has them) in 16-bit floats,
 * channels last: products on tensor cores, sums in f32. One kernel makes outputs with their statistics, and gradients of
 * data with the weights turned round; another one makes gradients of weights, in pieces that are added in a fixed order.
 *
 * What limits such convolutions is how often shared memory is read: an input is needed under nine taps. A warp therefore
 * makes a strip of four lines of outputs, one below the other, and goes through the rows of inputs: what it has loaded of
 * a row, for the three taps of a row of weights, serves all lines of outputs that the row belongs to. Where groups have
 * 16 channels it also makes both octets of them. A line is 16 pixels of a row, or in images of up to 8 columns two rows
 * of 8.
 *
 * A block walks over tiles, strips of 32 channels each: it brings a tile with what lies around it into shared memory
 * while it computes the one before. */
#include "backend/cuda/kernels/channels.h"
#include "backend/cuda/kernels/grouped.h"

enum {
    LINE_BITS = 2,
    LINES = 1 << LINE_BITS, /* of a strip */
    STRIP = LINES * 16,  /* pixels */
    LOADS = 6,           /* at most, of a row of inputs */
    NARROW = 8,          /* columns */
    NARROW_HALO = 10,    /* rows, columns */
    HALO_2 = 6 * 34,     /* pixels around two strips at most */
    HALO_4 = 4 * NARROW_HALO * NARROW_HALO, /* around four */
    TWO_STRIPS = 2,
    FOUR_STRIPS = 4,
};

struct rows_args {
    const void *x, *w; /* of a data gradient x is dy; of weights' gradients y is dy */
    void *y;
    float *partial; /* of statistics: (walkers, 2, channels), or NULL; of weights: pieces */
    int32_t in[2], out[2], pad[2];
    int32_t channels, width, images;
    int32_t across_bits; /* 1 << these strips of a tile lie next to each other; of narrow images each is one of its own */
    int32_t halo_rows, halo_columns;
    int32_t tiles_across, tiles_down, tiles;
    /* GROUPED_THREADS / OCTETS pixels of the halo, in rows and columns; in elements of x, and from the end of a row of the
     * halo to the next. */
    int32_t stage_rows, stage_columns, stage_elements, row_elements;
    struct gpu_divisor by_halo_columns, by_tiles_across, by_tiles_down;
    bool data;
};

/* ---- what differs by the width of groups: all of it is known when the kernels are compiled ---- */

enum kind { GROUPS_8, GROUPS_16, GROUPS_32 };

#define STRIPS_OF(kind) ((kind) == GROUPS_16 ? FOUR_STRIPS : TWO_STRIPS)
/* Octets that a warp makes. */
#define OCTETS_OF(kind) ((kind) == GROUPS_16 ? 2 : 1)
/* Loads of a row of inputs, for a row of weights: two taps and the third one; three; three with two halves of the inputs. */
#define LOADS_OF(kind) ((kind) == GROUPS_8 ? 2 : (kind) == GROUPS_16 ? 3 : 6)
#define STEPS_OF(kind) (3 * LOADS_OF(kind))
#define HALO_OF(kind)  ((kind) == GROUPS_16 ? HALO_4 : HALO_2)

/* From a row's first load to another one of it. */
GPU_BODY int32_t load_place(enum kind kind, int load)
{
    return kind == GROUPS_8 ? 2 * load * HALO_PIXEL
                            : kind == GROUPS_16 ? load * HALO_PIXEL : load / 2 * HALO_PIXEL + load % 2 * 16;
}

/* What the lanes of the first load bring that have inputs 8 to 15: of narrow groups those under the next tap. */
GPU_BODY int32_t half_place(enum kind kind, int32_t half)
{
    return half * (kind == GROUPS_8 ? HALO_PIXEL : 8);
}

GPU_BODY int32_t first_channel(enum kind kind, int32_t group)
{
    return kind == GROUPS_8 ? group * 8 : kind == GROUPS_16 ? group * 16 : 0;
}

/* ---- where strips lie ---- */

/* The image and the first output. */
struct strip {
    int32_t n, row, column;
};

/* A tile's first strip; of a narrow image's tile strips have to be looked up one by one. */
GPU_BODY struct strip tile_of(const struct rows_args *a, bool narrow, int strips, int32_t tile)
{
    struct strip first = {tile * strips, 0, 0};

    if (!narrow) {
        const int32_t line = gpu_quotient(tile, &a->by_tiles_across, &first.column);
        first.n = gpu_quotient(line, &a->by_tiles_down, &first.row);
        first.row *= strips >> a->across_bits << LINE_BITS;
        first.column <<= a->across_bits + 4;
    }
    return first;
}

GPU_BODY struct strip strip_of(const struct rows_args *a, bool narrow, struct strip tile, int32_t index)
{
    if (narrow) {
        tile.n = gpu_quotient(tile.n + index, &a->by_tiles_down, &tile.row);
        tile.row *= 2 * LINES;
    } else {
        tile.row += index >> a->across_bits << LINE_BITS;
        tile.column += (index & ((1 << a->across_bits) - 1)) << 4;
    }
    return tile;
}

/* In shared memory, where the inputs of a strip begin. */
GPU_BODY int32_t strip_place(const struct rows_args *a, bool narrow, int32_t index)
{
    if (narrow)
        return index * NARROW_HALO * NARROW_HALO * HALO_PIXEL;
    return ((index >> a->across_bits << LINE_BITS) * a->halo_columns + ((index & ((1 << a->across_bits) - 1)) << 4)) *
           HALO_PIXEL;
}

/* From a strip's first pixel of inputs to that of a line's pixel. */
GPU_BODY int32_t pixel_place(bool narrow, int32_t pixel)
{
    return (narrow ? pixel / NARROW * NARROW_HALO + pixel % NARROW : pixel) * HALO_PIXEL;
}

/* The first of an image's numbers in the slab. */
GPU_BODY const uint16_t *image_of(const struct rows_args *a, const void *images, const int32_t extent[2], int32_t n)
{
    return (const uint16_t *)images + (int64_t)n * extent[0] * extent[1] * a->channels + GPU_BLOCK_Y * SLAB;
}

GPU_BODY bool is_inside(const int32_t extent[2], int32_t row, int32_t column)
{
    return (uint32_t)row < (uint32_t)extent[0] && (uint32_t)column < (uint32_t)extent[1];
}

/* 32 channels of the pixels around a tile, zeros outside the image. A thread has an octet of every 64th. */
GPU_BODY void stage_wide(const struct rows_args *a, struct strip tile, uint16_t *to)
{
    const int32_t thread = gpu_thread_again(), first = thread / OCTETS, octet = thread % OCTETS * 8;
    const int32_t top = tile.row - a->pad[0], left = tile.column - a->pad[1];
    const uint16_t *const image = image_of(a, a->x, a->in, tile.n) + octet;
    int32_t column, row = gpu_quotient(first, &a->by_halo_columns, &column) + top, from;

    column += left;
    from = (row * a->in[1] + column) * a->channels;
    to += first * HALO_PIXEL + octet;
    GPU_ROLLED
    while (row < top + a->halo_rows) {
        const bool there = is_inside(a->in, row, column);
        gpu_copy_words(to, image + (there ? from : 0), there);
        to += GROUPED_THREADS / OCTETS * HALO_PIXEL;
        from += a->stage_elements;
        row += a->stage_rows;
        column += a->stage_columns;
        if (column >= left + a->halo_columns) {
            column -= a->halo_columns;
            from += a->row_elements;
            row++;
        }
    }
}

GPU_BODY void stage_narrow(const struct rows_args *a, int strips, struct strip tile, uint16_t *to)
{
    const int32_t thread = gpu_thread_again(), first = thread / OCTETS, octet = thread % OCTETS * 8;

    GPU_ROLLED
    for (int32_t place = first; place < strips * NARROW_HALO * NARROW_HALO; place += GROUPED_THREADS / OCTETS) {
        const int32_t index = place / (NARROW_HALO * NARROW_HALO);
        const int32_t pixel = place - index * NARROW_HALO * NARROW_HALO;
        const struct strip strip = strip_of(a, true, tile, index);
        const int32_t row = strip.row + pixel / NARROW_HALO - a->pad[0], column = pixel % NARROW_HALO - a->pad[1];
        const bool there = strip.n < a->images && is_inside(a->in, row, column);
        gpu_copy_words(to + place * HALO_PIXEL + octet,
                       there ? image_of(a, a->x, a->in, strip.n) + (row * a->in[1] + column) * a->channels + octet
                             : (const uint16_t *)a->x,
                       there);
    }
}

GPU_BODY void stage_halo(const struct rows_args *a, bool narrow, int strips, struct strip tile, uint16_t *to)
{
    if (narrow)
        stage_narrow(a, strips, tile, to);
    else
        stage_wide(a, tile, to);
}

/* Outputs that a thread moves: an octet of a pixel of each strip. NULL: there is none. */
GPU_BODY const uint16_t *output_of(const struct rows_args *a, bool narrow, struct strip tile, int32_t index,
                                   int32_t pixel, int32_t octet)
{
    const struct strip strip = strip_of(a, narrow, tile, index);
    const int32_t row = strip.row + (narrow ? pixel / NARROW : pixel / 16);
    const int32_t column = strip.column + (narrow ? pixel % NARROW : pixel % 16);

    if (!is_inside(a->out, row, column) || (narrow && strip.n >= a->images))
        return NULL;
    return image_of(a, a->y, a->out, strip.n) + (row * a->out[1] + column) * a->channels + octet * 8;
}

/* The gradients of a tile's outputs. */
GPU_BODY void stage_outputs(const struct rows_args *a, bool narrow, int strips, struct strip tile, uint16_t *to)
{
    const int32_t thread = gpu_thread_again(), octet = thread % OCTETS, pixel = thread / OCTETS;

    to += words_of(pixel, octet);
    GPU_UNROLL
    for (int i = 0; i < strips; i++) {
        const uint16_t *from = output_of(a, narrow, tile, i, pixel, octet);
        gpu_copy_words(to + i * STRIP * SLAB, from ? from : (const uint16_t *)a->y, from != NULL);
    }
}

/* What a block has made of a tile. */
GPU_BODY void write_outputs(const struct rows_args *a, bool narrow, int strips, struct strip tile, const uint16_t *made)
{
    const int32_t thread = gpu_thread_again(), octet = thread % OCTETS, pixel = thread / OCTETS;

    made += words_of(pixel, octet);
    GPU_UNROLL
    for (int i = 0; i < strips; i++) {
        uint16_t *const to = (uint16_t *)(uintptr_t)output_of(a, narrow, tile, i, pixel, octet);
        if (to)
            gpu_store_words(to, gpu_load_words(made + i * STRIP * SLAB));
    }
}

/* ---- statistics ---- */

/* Sums of what a lane has made, and of their squares: of each octet two channels. */
struct lane_sums {
    float first[2][2], second[2][2];
};

/* Those of 32 lines of lanes and strips, added in order, are the walker's. `numbers`: 2 x 8 strips x SLAB. */
GPU_BODY void leave_sums(const struct rows_args *a, enum kind kind, const struct lane_sums *sums, int32_t group,
                         int32_t strip, float *numbers)
{
    const int lines = 8 * STRIPS_OF(kind);
    const int32_t lane = GPU_LANE, line = strip * 8 + lane / 4;

    GPU_SYNC();
    GPU_UNROLL
    for (int p = 0; p < OCTETS_OF(kind); p++) {
        GPU_UNROLL
        for (int i = 0; i < 2; i++) {
            const int32_t channel = (group * OCTETS_OF(kind) + p) * 8 + lane % 4 * 2 + i;
            numbers[line * SLAB + channel] = sums->first[p][i];
            numbers[(lines + line) * SLAB + channel] = sums->second[p][i];
        }
    }
    GPU_SYNC();
    if (GPU_THREAD < 2 * SLAB) {
        const int32_t which = GPU_THREAD / SLAB, channel = GPU_THREAD % SLAB;
        float sum = 0;
        for (int i = 0; i < lines; i++)
            sum += numbers[(which * lines + i) * SLAB + channel];
        a->partial[((int64_t)GPU_BLOCK_X * 2 + which) * a->channels + GPU_BLOCK_Y * SLAB + channel] = sum;
    }
}

/* ---- kernels ---- */

/* Shared memory, in numbers of 16 bits. */
#define ROOM_OF(kind)        (2 * HALO_OF(kind) * HALO_PIXEL + STRIPS_OF(kind) * STRIP * SLAB)
#define WEIGHTS_ROOM_OF(kind) (ROOM_OF(kind) + STRIPS_OF(kind) * STRIP * SLAB)

#define TYPE f16
#include "backend/cuda/kernels/grouped_rows.inc"
#undef TYPE
#define TYPE bf16
#include "backend/cuda/kernels/grouped_rows.inc"
#undef TYPE

/* ---- launches ---- */

static enum kind kind_of(const struct gpu_grouped *what)
{
    return what->width <= 8 ? GROUPS_8 : what->width == 16 ? GROUPS_16 : GROUPS_32;
}

/* How the strips of a tile lie, so that there are as few tiles as possible, with as little around them. */
static void arrange(struct rows_args *args, int strips)
{
    int64_t least = INT64_MAX;

    for (int bits = 0; 1 << bits <= strips; bits++) {
        const int rows = (strips >> bits) * LINES, columns = 16 << bits;
        const int64_t over = (args->out[1] + columns - 1) / columns, down = (args->out[0] + rows - 1) / rows;
        const int64_t cost = over * down * 1024 + (rows + 2) * (columns + 2);
        if (cost >= least)
            continue;
        least = cost;
        args->across_bits = bits;
        args->tiles_across = (int32_t)over;
        args->tiles_down = (int32_t)down;
        args->halo_rows = rows + 2;
        args->halo_columns = columns + 2;
    }
    args->tiles = (int32_t)(args->images * (int64_t)args->tiles_across * args->tiles_down);
}

static bool is_narrow(const struct rows_args *args)
{
    return args->out[1] <= NARROW;
}

static struct rows_args args_of(const struct gpu_grouped *what, bool data)
{
    const int strips = STRIPS_OF(kind_of(what));
    struct rows_args args;

    memset(&args, 0, sizeof args);
    args.in[0] = (int32_t)(data ? what->p : what->h);
    args.in[1] = (int32_t)(data ? what->q : what->w);
    args.out[0] = (int32_t)(data ? what->h : what->p);
    args.out[1] = (int32_t)(data ? what->w : what->q);
    for (int i = 0; i < 2; i++)
        args.pad[i] = data ? 2 - what->pad[i] : what->pad[i];
    args.channels = (int32_t)what->channels;
    args.width = what->width;
    args.images = (int32_t)what->n;
    args.data = data;
    if (is_narrow(&args)) {
        args.tiles_across = 1;
        args.tiles_down = (args.out[0] + 2 * LINES - 1) / (2 * LINES);
        args.halo_rows = strips * NARROW_HALO;
        args.halo_columns = NARROW_HALO;
        args.tiles = (int32_t)(((int64_t)args.images * args.tiles_down + strips - 1) / strips);
    } else {
        arrange(&args, strips);
    }
    args.stage_rows = GROUPED_THREADS / OCTETS / args.halo_columns;
    args.stage_columns = GROUPED_THREADS / OCTETS % args.halo_columns;
    args.stage_elements = (args.stage_rows * args.in[1] + args.stage_columns) * args.channels;
    args.row_elements = (args.in[1] - args.halo_columns) * args.channels;
    args.by_halo_columns = gpu_divisor_of(args.halo_columns);
    args.by_tiles_across = gpu_divisor_of(args.tiles_across);
    args.by_tiles_down = gpu_divisor_of(args.tiles_down);
    return args;
}

/* Blocks that walk over the tiles of a slab: in all no more than there is room for at once, `each` on a processor. */
static int64_t walkers_of(const struct gpu_grouped *what, const struct rows_args *args, int each)
{
    const int64_t slabs = what->channels / SLAB, maximum = each * GPU_PROCESSORS / slabs;

    return maximum < 1 ? 1 : maximum < args->tiles ? maximum : args->tiles;
}

/* By registers: as the kernels are declared. */
#define EACH_OF(kind)         ((kind) == GROUPS_8 ? 4 : 2)
#define WEIGHTS_EACH_OF(kind) ((kind) == GROUPS_8 ? 3 : 2) /* each leaves a piece to be added */

#define LAUNCH_KIND(name, each, room)                                                                                  \
    do {                                                                                                               \
        const int64_t blocks = walkers_of(what, &args, each), slabs = what->channels / SLAB;                           \
        const int which = 2 * (what->dtype == CVY_F16) + is_narrow(&args);                                             \
        if (which == 0)                                                                                                \
            GPU_LAUNCH_ROOM(name##_bf16, stream, blocks, slabs, GROUPED_THREADS, 2 * (room), args);                    \
        else if (which == 1)                                                                                           \
            GPU_LAUNCH_ROOM(name##_narrow_bf16, stream, blocks, slabs, GROUPED_THREADS, 2 * (room), args);             \
        else if (which == 2)                                                                                           \
            GPU_LAUNCH_ROOM(name##_f16, stream, blocks, slabs, GROUPED_THREADS, 2 * (room), args);                     \
        else                                                                                                           \
            GPU_LAUNCH_ROOM(name##_narrow_f16, stream, blocks, slabs, GROUPED_THREADS, 2 * (room), args);              \
    } while (0)

static void launch(void *stream, const struct gpu_grouped *what, struct rows_args args)
{
    switch (kind_of(what)) {
    case GROUPS_8: LAUNCH_KIND(rows8, EACH_OF(GROUPS_8), ROOM_OF(GROUPS_8)); break;
    case GROUPS_16: LAUNCH_KIND(rows16, EACH_OF(GROUPS_16), ROOM_OF(GROUPS_16)); break;
    case GROUPS_32: LAUNCH_KIND(rows32, EACH_OF(GROUPS_32), ROOM_OF(GROUPS_32)); break;
    }
}

static int64_t forward_walkers(const struct gpu_grouped *what)
{
    const struct rows_args args = args_of(what, false);

    return walkers_of(what, &args, EACH_OF(kind_of(what)));
}

GPU_EXTERN int64_t gpu_grouped_rows_sums(const struct gpu_grouped *what)
{
    return forward_walkers(what) * 2 * what->channels;
}

GPU_EXTERN void gpu_grouped_rows_forward(void *stream, const struct gpu_grouped *what, const void *x, const void *w,
                                         void *y, float *mean, float *variance, float *scratch)
{
    struct rows_args args = args_of(what, false);

    args.x = x;
    args.w = w;
    args.y = y;
    args.partial = mean ? scratch : NULL;
    launch(stream, what, args);
    if (mean)
        gpu_walkers_moments(stream, scratch, forward_walkers(what), what->n * what->p * what->q, what->channels, mean,
                            variance);
}

GPU_EXTERN void gpu_grouped_rows_data(void *stream, const struct gpu_grouped *what, const void *w, const void *dy,
                                      void *dx)
{
    struct rows_args args = args_of(what, true);

    args.x = dy;
    args.w = w;
    args.y = dx;
    launch(stream, what, args);
}

GPU_EXTERN int64_t gpu_grouped_rows_scratch(const struct gpu_grouped *what)
{
    const struct rows_args args = args_of(what, false);

    return walkers_of(what, &args, WEIGHTS_EACH_OF(kind_of(what))) * (what->channels / SLAB) *
           STEPS_OF(kind_of(what)) * FRAGMENTS;
}

GPU_EXTERN void gpu_grouped_rows_weights(void *stream, const struct gpu_grouped *what, const void *x, const void *dy,
                                         float *dw, float *scratch)
{
    struct rows_args args = args_of(what, false);

    args.x = x;
    args.y = (void *)(uintptr_t)dy; /* read only */
    args.partial = scratch;
    switch (kind_of(what)) {
    case GROUPS_8: LAUNCH_KIND(rows8_weights, WEIGHTS_EACH_OF(GROUPS_8), WEIGHTS_ROOM_OF(GROUPS_8)); break;
    case GROUPS_16: LAUNCH_KIND(rows16_weights, WEIGHTS_EACH_OF(GROUPS_16), WEIGHTS_ROOM_OF(GROUPS_16)); break;
    case GROUPS_32: LAUNCH_KIND(rows32_weights, WEIGHTS_EACH_OF(GROUPS_32), WEIGHTS_ROOM_OF(GROUPS_32)); break;
    }
    gpu_grouped_add(stream, what, STEPS_OF(kind_of(what)),
                    walkers_of(what, &args, WEIGHTS_EACH_OF(kind_of(what))), scratch, dw);
}
