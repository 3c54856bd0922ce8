/* Pooling: maxima over windows, sums and means over whole images. */
#include "backend/cuda/kernels/channels.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/window.h"

struct sums_args {
    struct gpu_spread spread;
    const void *x, *dy; /* dy: may be NULL */
    float *sums;
    float divisor;
};

struct fill_args {
    struct gpu_spread spread;
    const float *values;
    void *y;
    float divisor;
};

/* What a thread stands for. */
struct pixel {
    int64_t image, element;
    int32_t row, column, channel;
};

GPU_BODY struct pixel pixel_of(const struct gpu_window *a, int32_t width, int32_t height, int32_t lanes)
{
    const int64_t i = (int64_t)GPU_BLOCK_X * SPREAD_THREADS + GPU_THREAD;
    struct pixel pixel;
    int32_t unit;

    pixel.element = i * lanes;
    pixel.image = gpu_divide(i, (int32_t)a->c / lanes, &unit);
    pixel.channel = unit * lanes;
    pixel.image = gpu_divide(pixel.image, width, &pixel.column);
    pixel.image = gpu_divide(pixel.image, height, &pixel.row);
    return pixel;
}

/* Whether `value`, which comes later, takes the place of the maximum so far: a larger one does, and the first NaN. */
GPU_BODY bool wins(float value, float maximum)
{
    return !(value <= maximum) && maximum == maximum;
}

/* What comes out of a ReLU and where, in one number, the larger the better: the bits of an element that is not negative
 * are in its order, NaN above all, and of equal ones the first has the highest place, from 8 down to 0. */
typedef uint32_t key_f16, key_bf16;
typedef uint64_t key_f32;

GPU_BODY key_f32 make_key_f32(float v)
{
    v = gpu_relu_of(v);
    return (uint64_t)(v == v ? gpu_bits_of_float(v) : 0x7fffffffU) << 32; /* one NaN, as the other types have */
}

GPU_BODY float key_value_f32(key_f32 key)
{
    return gpu_float_of_bits((uint32_t)(key >> 32));
}

GPU_BODY void make_keys_f32x8(const float v[8], key_f32 keys[8])
{
    GPU_UNROLL
    for (int i = 0; i < 8; i++)
        keys[i] = make_key_f32(v[i]);
}

GPU_BODY void make_keys_f32x1(const float v[1], key_f32 keys[1])
{
    keys[0] = make_key_f32(v[0]);
}

#define HALF_KEYS(type)                                                                                                \
    GPU_BODY float key_value_##type(uint32_t key)                                                                      \
    {                                                                                                                  \
        return gpu_from_##type((uint16_t)(key >> 16));                                                                 \
    }                                                                                                                  \
    GPU_BODY void make_keys_##type##x8(const float v[8], uint32_t keys[8])                                             \
    {                                                                                                                  \
        float y[8];                                                                                                    \
        GPU_UNROLL                                                                                                     \
        for (int i = 0; i < 8; i++)                                                                                    \
            y[i] = gpu_relu_of(v[i]);                                                                                  \
        const struct gpu_words words = gpu_narrow8_##type(y);                                                          \
        GPU_UNROLL                                                                                                     \
        for (int i = 0; i < 8; i++)                                                                                    \
            keys[i] = i % 2 ? words.word[i / 2] & 0xffff0000U : words.word[i / 2] << 16;                               \
    }                                                                                                                  \
    GPU_BODY void make_keys_##type##x1(const float v[1], uint32_t keys[1])                                             \
    {                                                                                                                  \
        keys[0] = (uint32_t)gpu_to_##type(gpu_relu_of(v[0])) << 16;                                                    \
    }
HALF_KEYS(f16)
HALF_KEYS(bf16)
#undef HALF_KEYS

/* 8 bytes at addresses that are multiples of 8, or one anywhere. */
GPU_BODY void put_bytes(uint8_t *to, const int32_t *values, int32_t width)
{
    uint32_t half[2] = {0, 0};

    if (width == 1) {
        *to = (uint8_t)values[0];
        return;
    }
    GPU_UNROLL
    for (int i = 0; i < 8; i++)
        half[i / 4] |= (uint32_t)(uint8_t)values[i] << 8 * (i % 4);
    gpu_store_two_words(to, half[0], half[1]);
}

#define KERNELS "backend/cuda/kernels/pool.inc"
#include "backend/cuda/kernels/widths.inc"

/* Blocks for an image of this many pixels in all. */
static int64_t blocks_for(const struct gpu_pool *pool, int64_t pixels)
{
    return gpu_parts(pixels * (pool->c / gpu_width(pool->c)), SPREAD_THREADS);
}

GPU_EXTERN void gpu_max_pool(void *stream, const struct gpu_pool *pool, const void *x, void *y, uint8_t *index)
{
    struct gpu_window args = gpu_window_of(pool);

    args.x = x;
    args.y = y;
    args.index = index;
    if (args.cells && pool->rstd)
        GPU_LAUNCH_WIDTH(norm_halving_pool, pool->dtype, gpu_width(pool->c), stream,
                         gpu_parts(gpu_strip_threads(&args), SPREAD_THREADS), 1, args);
    else if (args.cells)
        GPU_LAUNCH_WIDTH(halving_pool, pool->dtype, gpu_width(pool->c), stream,
                         gpu_parts(gpu_strip_threads(&args), SPREAD_THREADS), 1, args);
    else if (pool->rstd)
        GPU_LAUNCH_WIDTH(norm_pool, pool->dtype, gpu_width(pool->c), stream,
                         blocks_for(pool, pool->n * pool->p * pool->q), 1, args);
    else
        GPU_LAUNCH_WIDTH(max_pool, pool->dtype, gpu_width(pool->c), stream,
                         blocks_for(pool, pool->n * pool->p * pool->q), 1, args);
}

GPU_EXTERN void gpu_max_pool_bwd(void *stream, const struct gpu_pool *pool, const void *dy, const uint8_t *index,
                                 void *dx)
{
    struct gpu_window args = gpu_window_of(pool);

    args.x = dy;
    args.y = dx;
    args.index = (uint8_t *)(uintptr_t)index; /* which is only read */
    if (args.cells)
        GPU_LAUNCH_WIDTH(halving_bwd, pool->dtype, gpu_width(pool->c), stream,
                         gpu_parts(gpu_strip_threads(&args), SPREAD_THREADS), 1, args);
    else
        GPU_LAUNCH_WIDTH(max_pool_bwd, pool->dtype, gpu_width(pool->c), stream,
                         blocks_for(pool, pool->n * pool->h * pool->w), 1, args);
}

/* Threads across a tile of channels: a warp for each row of small images, which have few rows; fewer for larger ones,
 * and fewer still, down to one, where there would not be blocks enough. */
static int32_t tile_for(int64_t images, int64_t rows, int64_t channels)
{
    const int64_t units = channels / gpu_width(channels);
    int32_t maximum = rows <= 64 ? 32 : rows <= 256 ? 16 : 8;

    while (maximum > 1 && images * gpu_parts(units, maximum) < SUM_BLOCKS && rows > 4 * (SPREAD_THREADS / maximum))
        maximum /= 2;
    return maximum;
}

GPU_EXTERN void gpu_image_sums(void *stream, enum cvy_dtype dtype, const void *x, const void *dy, float *sums,
                               int64_t images, int64_t rows, int64_t channels, float divisor)
{
    struct sums_args args;

    memset(&args, 0, sizeof args);
    args.spread = gpu_spread_over(rows, channels, tile_for(images, rows, channels));
    args.x = x;
    args.dy = dy;
    args.sums = sums;
    args.divisor = divisor;
    GPU_LAUNCH_SPREAD(image_sums, dtype, stream, images, args.spread, args);
}

GPU_EXTERN void gpu_fill_images(void *stream, enum cvy_dtype dtype, const float *values, void *y, int64_t images,
                                int64_t rows, int64_t channels, float divisor)
{
    struct fill_args args;

    memset(&args, 0, sizeof args);
    args.spread = gpu_spread_map(images, rows, channels);
    args.values = values;
    args.y = y;
    args.divisor = divisor;
    GPU_LAUNCH_SPREAD(fill_images, dtype, stream, images, args.spread, args);
}
