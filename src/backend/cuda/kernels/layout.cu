/* Tensors of four dimensions from one order of elements to another, tile by tile: a block writes its tile in the order
 * of the result, and what it reads across lies in few enough cache lines to be read from memory once. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { MOVE_THREADS = 256, MOVE_TILE = 2048 /* elements */, MOVE_POSITIONS = 64 };

/* A tensor as images of `positions` x `channels`, and how it is cut into tiles. */
struct move_item {
    const void *x;
    void *y;
    int64_t block;                    /* the first one that works on it */
    int64_t channels, positions;      /* of x */
    int64_t from_stored, to_stored;   /* as in gpu_rearrangement */
    int32_t tile_positions;           /* a tile has this many, */
    int32_t tile_shift;               /* of 2^tile_shift channels each */
    int32_t tiles_across, tiles_down; /* positions, channels */
    enum cvy_dtype from, to;
};

GPU_BODY uint32_t get_bits(enum cvy_dtype dtype, const void *x, int64_t i)
{
    if (dtype == CVY_U8 || dtype == CVY_I8)
        return ((const uint8_t *)x)[i];
    if (dtype == CVY_F16 || dtype == CVY_BF16)
        return ((const uint16_t *)x)[i];
    return ((const uint32_t *)x)[i];
}

GPU_BODY void put_bits(enum cvy_dtype dtype, void *y, int64_t i, uint32_t bits)
{
    if (dtype == CVY_U8 || dtype == CVY_I8)
        ((uint8_t *)y)[i] = (uint8_t)bits;
    else if (dtype == CVY_F16 || dtype == CVY_BF16)
        ((uint16_t *)y)[i] = (uint16_t)bits;
    else
        ((uint32_t *)y)[i] = bits;
}

GPU_BODY float value_of_bits(enum cvy_dtype dtype, uint32_t bits)
{
    if (dtype == CVY_F16)
        return gpu_from_f16((uint16_t)bits);
    return gpu_float_of_bits(dtype == CVY_BF16 ? bits << 16 : bits);
}

/* Element i of a tile, in the order of the result: its channel and position in the tile. */
GPU_BODY void place_of(const struct move_item *t, int32_t i, int32_t *channel, int32_t *position)
{
    if (t->to_stored) {
        *channel = i & ((1 << t->tile_shift) - 1);
        *position = i >> t->tile_shift;
    } else {
        *channel = (int32_t)((uint32_t)i / (uint32_t)t->tile_positions);
        *position = i - *channel * t->tile_positions;
    }
}

GPU_BODY int64_t index_of(const struct move_item *t, int64_t stored, int64_t image, int64_t channel, int64_t position)
{
    return stored ? (image * t->positions + position) * stored + channel
                  : (image * t->channels + channel) * t->positions + position;
}

GPU_BODY void move_tile(const struct move_item *t, uint32_t block)
{
    const int64_t position0 = (int64_t)(block % (uint32_t)t->tiles_across) * t->tile_positions;
    const int64_t channel0 = (int64_t)(block / (uint32_t)t->tiles_across % (uint32_t)t->tiles_down) << t->tile_shift;
    const int64_t image = block / (uint32_t)t->tiles_across / (uint32_t)t->tiles_down;
    const int64_t written = t->to_stored ? t->to_stored : t->channels;
    const int32_t count = t->tile_positions << t->tile_shift;

    for (int32_t i = GPU_THREAD; i < count; i += MOVE_THREADS) {
        int32_t c, p;
        place_of(t, i, &c, &p);
        if (position0 + p < t->positions && channel0 + c < written) {
            const int64_t from = index_of(t, t->from_stored, image, channel0 + c, position0 + p);
            const int64_t to = index_of(t, t->to_stored, image, channel0 + c, position0 + p);
            const uint32_t bits = channel0 + c < t->channels ? get_bits(t->from, t->x, from) : 0;
            if (t->from == t->to)
                put_bits(t->to, t->y, to, bits);
            else
                gpu_put_any(t->to, t->y, to, value_of_bits(t->from, bits));
        }
    }
}

GPU_BODY void move_single(const struct move_item *item)
{
    move_tile(item, (uint32_t)GPU_BLOCK_X);
}

GPU_KERNEL_OF(move_one, struct move_item, MOVE_THREADS, move_single)

struct move_args {
    int32_t count;
    struct move_item items[GPU_MOVES];
};

/* An item's blocks are the ones from its first to the next item's. */
GPU_BODY void move_several(const struct move_args *a)
{
    int32_t low = 0, high = a->count - 1;

    while (low < high) {
        const int32_t middle = (low + high + 1) / 2;
        if (a->items[middle].block <= GPU_BLOCK_X)
            low = middle;
        else
            high = middle - 1;
    }
    move_tile(&a->items[low], (uint32_t)(GPU_BLOCK_X - a->items[low].block));
}

GPU_KERNEL_OF(move_many, struct move_args, MOVE_THREADS, move_several)

/* The tiles of a tensor, from block `block` on; how many they are. */
static int64_t cut_item(const struct gpu_move *move, int64_t block, struct move_item *item)
{
    const struct gpu_rearrangement *what = &move->what;
    /* Without padding one position an image is one image. */
    const bool flat = what->h * what->w == 1 && (!what->from_stored || what->from_stored == what->c) &&
                      (!what->to_stored || what->to_stored == what->c);
    const int64_t images = flat ? 1 : what->n, channels = flat ? what->n * what->c : what->c;
    const int64_t written = !flat && what->to_stored ? what->to_stored : channels;

    memset(item, 0, sizeof *item);
    item->x = move->x;
    item->y = move->y;
    item->block = block;
    item->channels = channels;
    item->positions = what->h * what->w;
    item->from_stored = flat ? 0 : what->from_stored;
    item->to_stored = flat ? 0 : what->to_stored;
    item->from = what->from;
    item->to = what->to;
    item->tile_positions = (int32_t)(item->positions < MOVE_POSITIONS ? item->positions : MOVE_POSITIONS);
    while ((item->tile_positions << (item->tile_shift + 1)) <= MOVE_TILE && ((int64_t)1 << item->tile_shift) < written)
        item->tile_shift++;
    if (item->tile_positions == 0)
        return 0;
    item->tiles_across = (int32_t)((item->positions + item->tile_positions - 1) / item->tile_positions);
    item->tiles_down = (int32_t)((written + ((int64_t)1 << item->tile_shift) - 1) >> item->tile_shift);
    return images * item->tiles_across * item->tiles_down;
}

GPU_EXTERN void gpu_move_tensors(void *stream, const struct gpu_move *moves, int32_t count)
{
    struct move_args args;
    int64_t blocks = 0;

    args.count = 0;
    for (int32_t i = 0; i < count; i++) {
        const int64_t more = cut_item(&moves[i], blocks, &args.items[args.count]);

        if (more == 0)
            continue;
        args.count++;
        blocks += more;
        if (args.count < GPU_MOVES && i + 1 < count)
            continue;
        GPU_LAUNCH(move_many, stream, blocks, 1, MOVE_THREADS, args);
        args.count = 0;
        blocks = 0;
    }
    if (args.count)
        GPU_LAUNCH(move_many, stream, blocks, 1, MOVE_THREADS, args);
}

GPU_EXTERN void gpu_rearrange(void *stream, const struct gpu_rearrangement *what, const void *x, void *y)
{
    const struct gpu_move move = {*what, x, y};
    struct move_item item;
    const int64_t blocks = cut_item(&move, 0, &item);

    if (blocks)
        GPU_LAUNCH(move_one, stream, blocks, 1, MOVE_THREADS, item);
}

/* ---- longer rows ---- */

struct pad_args {
    const void *x;
    void *y;
    int64_t columns, padded;
};

/* A block for each row. */
GPU_KERNEL(pad_rows2, struct pad_args, MOVE_THREADS)
{
    const uint16_t *x = (const uint16_t *)a.x + GPU_BLOCK_X * a.columns;
    uint16_t *y = (uint16_t *)a.y + GPU_BLOCK_X * a.padded;

    for (int64_t i = GPU_THREAD; i < a.padded; i += MOVE_THREADS)
        y[i] = i < a.columns ? x[i] : (uint16_t)0;
}

GPU_KERNEL(pad_rows4, struct pad_args, MOVE_THREADS)
{
    const uint32_t *x = (const uint32_t *)a.x + GPU_BLOCK_X * a.columns;
    uint32_t *y = (uint32_t *)a.y + GPU_BLOCK_X * a.padded;

    for (int64_t i = GPU_THREAD; i < a.padded; i += MOVE_THREADS)
        y[i] = i < a.columns ? x[i] : 0;
}

GPU_EXTERN void gpu_pad_rows(void *stream, enum cvy_dtype dtype, int64_t rows, int64_t columns, int64_t padded,
                             const void *x, void *y)
{
    const struct pad_args args = {x, y, columns, padded};

    if (rows == 0)
        return;
    if (dtype == CVY_F32)
        GPU_LAUNCH(pad_rows4, stream, rows, 1, MOVE_THREADS, args);
    else
        GPU_LAUNCH(pad_rows2, stream, rows, 1, MOVE_THREADS, args);
}
