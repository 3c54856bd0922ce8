/* What the kernels of images share: how threads are spread over rows (pixels) and channels, elements 8 channels at a
 * time or one, and sums over rows. Sums run in an order that depends on the shape alone, never on the GPU. */
#ifndef CVY_BACKEND_CUDA_KERNELS_CHANNELS_H
#define CVY_BACKEND_CUDA_KERNELS_CHANNELS_H

#include "backend/cuda/kernels/launch.h"
#include "base/types.h"

enum {
    SPREAD_THREADS = 256,
    /* Two blocks of 256 threads on each of the 132 processors of an H200; less would leave some idle, and more make
     * more partial sums. */
    SUM_BLOCKS = 264,
    SUM_MIN_ROWS = 16,  /* of a thread, before rows are shared by more blocks */
    SUM_MAX_ROWS = 512, /* in one chain of additions */
    MAP_ENOUGH_BLOCKS = 8 * GPU_PROCESSORS,
    MAX_ROWS = 8,  /* of a thread in a slice, in sums */
    MAP_ROWS = 16, /* in work on each element: what a thread does once should not count */
};

/* The rows of each image are cut into slices. The blocks of a kernel stand over tiles of channels in y, and in x over
 * the slices of image 0, then of image 1, ...; or (`walkers` > 0, sums over one image) walker b takes slices b,
 * b + walkers, ... counted from the last one. The threads of a block are `across` next to each other, in `down` such
 * lines. */
struct gpu_spread {
    int64_t rows;
    int32_t slice_rows, slices, walkers, tiles; /* the last slice may be shorter */
    int32_t channels, across, down;
};

/* Where a thread stands. */
struct gpu_place {
    int64_t origin;   /* element of its first channel in the first row of the slice */
    int32_t row, end; /* its first row, and how many the slice has */
    int32_t image, channel;
    bool inside; /* else the thread has nothing to do */
};

/* ---- on the host ---- */

static inline int64_t gpu_parts(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

/* Channels of a thread. */
static inline int32_t gpu_width(int64_t channels)
{
    return channels % 8 == 0 ? 8 : 1;
}

/* Division of numbers from 0 to 2^31 - 1 by one that does not change: floor(i factor / 2^shift). With 2^(shift - 31)
 * the power of two that is not below `by`, factor is 2^shift / by and less than one more, which moves no result so far.
 */
struct gpu_divisor {
    uint32_t factor;
    int32_t by, shift;
};

static inline struct gpu_divisor gpu_divisor_of(int32_t by)
{
    struct gpu_divisor divisor = {0, by, 31};

    while ((int64_t)1 << (divisor.shift - 31) < by)
        divisor.shift++;
    divisor.factor = (uint32_t)((((uint64_t)1 << divisor.shift) + (uint64_t)by - 1) / (uint64_t)by);
    return divisor;
}

/* One slice; `maximum` threads across at most. */
static inline struct gpu_spread gpu_spread_over(int64_t rows, int64_t channels, int32_t maximum)
{
    const int64_t units = channels / gpu_width(channels);
    struct gpu_spread spread;

    spread.rows = rows;
    spread.slice_rows = (int32_t)rows;
    spread.slices = 1;
    spread.walkers = 0;
    spread.channels = (int32_t)channels;
    spread.across = (int32_t)gpu_parts(units, gpu_parts(units, maximum));
    spread.down = SPREAD_THREADS / spread.across;
    spread.tiles = (int32_t)gpu_parts(units, spread.across);
    return spread;
}

/* Slices of this many rows for each thread. */
static inline void gpu_slice(struct gpu_spread *spread, int32_t each)
{
    spread->slice_rows = spread->down * each;
    spread->slices = (int32_t)gpu_parts(spread->rows, spread->slice_rows);
}

/* For sums over all rows of one image. All walkers go through it together, from its end, which is what was written last
 * and may still be in the cache, to its beginning, where the kernel that follows begins. */
static inline struct gpu_spread gpu_spread_sums(int64_t rows, int64_t channels)
{
    /* Lines of 128 bytes of 16-bit floats at least; of wide images more, as they have tiles enough. */
    const int32_t maximum = gpu_width(channels) == 1 ? 32 : channels >= 512 ? 16 : 8;
    struct gpu_spread spread = gpu_spread_over(rows, channels, maximum);
    const int64_t minimum = gpu_parts(rows, (int64_t)spread.down * SUM_MAX_ROWS);
    const int64_t enough = rows / ((int64_t)spread.down * SUM_MIN_ROWS);
    int64_t walkers = SUM_BLOCKS / spread.tiles;

    walkers = walkers > enough ? enough : walkers;
    spread.walkers = (int32_t)(walkers < minimum ? minimum : walkers);
    gpu_slice(&spread, MAX_ROWS);
    return spread;
}

/* For work on each element. */
static inline struct gpu_spread gpu_spread_map(int64_t images, int64_t rows, int64_t channels)
{
    struct gpu_spread spread = gpu_spread_over(rows, channels, SPREAD_THREADS);
    int32_t each = MAP_ROWS;

    while (each > 1 && images * gpu_parts(rows, (int64_t)spread.down * each) * spread.tiles < MAP_ENOUGH_BLOCKS)
        each /= 2;
    gpu_slice(&spread, each);
    return spread;
}

/* Starts kernel name_f16x8 or whichever of the six fits. */
#define GPU_LAUNCH_WIDTH(name, dtype, width, stream, blocks_x, blocks_y, args)                                         \
    do {                                                                                                               \
        if ((dtype) == CVY_F16 && (width) == 8)                                                                        \
            GPU_LAUNCH(name##_f16x8, stream, blocks_x, blocks_y, SPREAD_THREADS, args);                                \
        else if ((dtype) == CVY_F16)                                                                                   \
            GPU_LAUNCH(name##_f16x1, stream, blocks_x, blocks_y, SPREAD_THREADS, args);                                \
        else if ((dtype) == CVY_BF16 && (width) == 8)                                                                  \
            GPU_LAUNCH(name##_bf16x8, stream, blocks_x, blocks_y, SPREAD_THREADS, args);                               \
        else if ((dtype) == CVY_BF16)                                                                                  \
            GPU_LAUNCH(name##_bf16x1, stream, blocks_x, blocks_y, SPREAD_THREADS, args);                               \
        else if ((width) == 8)                                                                                         \
            GPU_LAUNCH(name##_f32x8, stream, blocks_x, blocks_y, SPREAD_THREADS, args);                                \
        else                                                                                                           \
            GPU_LAUNCH(name##_f32x1, stream, blocks_x, blocks_y, SPREAD_THREADS, args);                                \
    } while (0)
#define GPU_LAUNCH_SPREAD(name, dtype, stream, images, spread, args)                                                   \
    GPU_LAUNCH_WIDTH(name, dtype, gpu_width((spread).channels), stream,                                                \
                     (spread).walkers ? (spread).walkers : (int64_t)(images) * (spread).slices, (spread).tiles, args)

/* ---- on the GPU ---- */

/* Kernels of SPREAD_THREADS, with registers for two blocks on a processor at least, or for `blocks`: without a number
 * to aim at, ptxas aims at more, and spills. */
#ifdef __CUDACC__
#define SPREAD_KERNEL_OF(name, type, blocks)                                                                           \
    static __global__ void __launch_bounds__(SPREAD_THREADS, blocks) name(const type a)
#define SPREAD_KERNEL(name, type)        SPREAD_KERNEL_OF(name, type, 2)
#define SPREAD_KERNEL_SHARED(name, type) SPREAD_KERNEL(name, type)
#else
#define SPREAD_KERNEL_OF(name, type, blocks) GPU_KERNEL_SHARED(name, type, SPREAD_THREADS)
#define SPREAD_KERNEL(name, type)            GPU_KERNEL(name, type, SPREAD_THREADS)
#define SPREAD_KERNEL_SHARED(name, type)     GPU_KERNEL_SHARED(name, type, SPREAD_THREADS)
#endif

/* Puts the thread into a slice of its image. */
GPU_BODY void gpu_enter_slice(const struct gpu_spread *spread, int32_t slice, struct gpu_place *place)
{
    const int64_t first = (int64_t)slice * spread->slice_rows, left = spread->rows - first;

    place->origin = (place->image * spread->rows + first) * spread->channels + place->channel;
    place->end = left < spread->slice_rows ? (int32_t)left : spread->slice_rows;
}

/* In its slice, or in the first one of its walker. */
GPU_BODY struct gpu_place gpu_place_of(const struct gpu_spread *spread, int32_t width)
{
    struct gpu_place place;

    place.image = spread->walkers ? 0 : GPU_BLOCK_X / spread->slices;
    place.row = GPU_THREAD / spread->across;
    place.channel = (GPU_BLOCK_Y * spread->across + GPU_THREAD % spread->across) * width;
    place.inside = place.row < spread->down && place.channel < spread->channels;
    gpu_enter_slice(spread, spread->walkers ? spread->slices - 1 - GPU_BLOCK_X : GPU_BLOCK_X % spread->slices, &place);
    return place;
}

/* Rows of walkers: the first ones take a slice more than the others, and the shorter slice is walker 0's first. */
struct gpu_walks {
    int32_t longer; /* walkers */
    double rows, more, missing;
};

GPU_BODY struct gpu_walks gpu_walks_of(const struct gpu_spread *spread)
{
    const int64_t missing = (int64_t)spread->slices * spread->slice_rows - spread->rows;
    struct gpu_walks walks;

    walks.longer = spread->slices % spread->walkers;
    walks.rows = (double)((int64_t)(spread->slices / spread->walkers) * spread->slice_rows);
    walks.more = (double)spread->slice_rows;
    walks.missing = (double)missing;
    return walks;
}

GPU_BODY double gpu_walker_rows(const struct gpu_walks *walks, int32_t walker)
{
    const double rows = walker < walks->longer ? walks->rows + walks->more : walks->rows;

    return walker == 0 ? rows - walks->missing : rows;
}

/* i = whole * by + rest, the short way where numbers are small. */
GPU_BODY int64_t gpu_divide(int64_t i, int32_t by, int32_t *rest)
{
    if (i <= UINT32_MAX) {
        const uint32_t whole = (uint32_t)i / (uint32_t)by;
        *rest = (int32_t)((uint32_t)i - whole * (uint32_t)by);
        return whole;
    }
    *rest = (int32_t)(i % by);
    return i / by;
}

GPU_BODY int32_t gpu_quotient(int32_t i, const struct gpu_divisor *divisor, int32_t *rest)
{
    const int32_t whole = (int32_t)((uint64_t)(uint32_t)i * divisor->factor >> divisor->shift);

    *rest = i - whole * divisor->by;
    return whole;
}

/* What was loaded and is not yet used, so that several loads are on their way at a time. */
struct gpu_raw_f32x8 {
    struct gpu_words words[2];
};
struct gpu_raw_f16x8 {
    struct gpu_words words[1];
};
struct gpu_raw_f32x1 {
    float element;
};
struct gpu_raw_f16x1 {
    uint16_t element;
};
#define gpu_raw_bf16x8 gpu_raw_f16x8
#define gpu_raw_bf16x1 gpu_raw_f16x1

GPU_BODY struct gpu_raw_f32x8 gpu_load_f32x8(const float *from)
{
    struct gpu_raw_f32x8 raw;

    raw.words[0] = gpu_load_words(from);
    raw.words[1] = gpu_load_words(from + 4);
    return raw;
}

GPU_BODY void gpu_widen_f32x8(const struct gpu_raw_f32x8 *raw, float v[8])
{
    gpu_widen8_f32(raw->words, v);
}

GPU_BODY void gpu_store_f32x8(float *to, const float v[8])
{
    gpu_put8_f32(to, v);
}

GPU_BODY struct gpu_raw_f32x1 gpu_load_f32x1(const float *from)
{
    struct gpu_raw_f32x1 raw;

    raw.element = *from;
    return raw;
}

GPU_BODY void gpu_widen_f32x1(const struct gpu_raw_f32x1 *raw, float v[1])
{
    v[0] = raw->element;
}

GPU_BODY void gpu_store_f32x1(float *to, const float v[1])
{
    *to = v[0];
}

#define GPU_HALVES(type)                                                                                               \
    GPU_BODY struct gpu_raw_f16x8 gpu_load_##type##x8(const uint16_t *from)                                            \
    {                                                                                                                  \
        struct gpu_raw_f16x8 raw;                                                                                      \
        raw.words[0] = gpu_load_words(from);                                                                           \
        return raw;                                                                                                    \
    }                                                                                                                  \
    GPU_BODY void gpu_widen_##type##x8(const struct gpu_raw_f16x8 *raw, float v[8])                                    \
    {                                                                                                                  \
        gpu_widen8_##type(raw->words, v);                                                                              \
    }                                                                                                                  \
    GPU_BODY void gpu_store_##type##x8(uint16_t *to, const float v[8])                                                 \
    {                                                                                                                  \
        gpu_put8_##type(to, v);                                                                                        \
    }                                                                                                                  \
    GPU_BODY struct gpu_raw_f16x1 gpu_load_##type##x1(const uint16_t *from)                                            \
    {                                                                                                                  \
        struct gpu_raw_f16x1 raw;                                                                                      \
        raw.element = *from;                                                                                           \
        return raw;                                                                                                    \
    }                                                                                                                  \
    GPU_BODY void gpu_widen_##type##x1(const struct gpu_raw_f16x1 *raw, float v[1])                                    \
    {                                                                                                                  \
        v[0] = gpu_from_##type(raw->element);                                                                          \
    }                                                                                                                  \
    GPU_BODY void gpu_store_##type##x1(uint16_t *to, const float v[1])                                                 \
    {                                                                                                                  \
        *to = gpu_to_##type(v[0]);                                                                                     \
    }
GPU_HALVES(f16)
GPU_HALVES(bf16)
#undef GPU_HALVES

#define GPU_LOAD_IF(form, raw, element)                                                                                \
    GPU_BODY struct raw gpu_load_if_##form(bool there, const element *from)                                            \
    {                                                                                                                  \
        struct raw loaded;                                                                                             \
        memset(&loaded, 0, sizeof loaded);                                                                             \
        if (there)                                                                                                     \
            loaded = gpu_load_##form(from);                                                                            \
        return loaded;                                                                                                 \
    }
GPU_LOAD_IF(f32x8, gpu_raw_f32x8, float)
GPU_LOAD_IF(f32x1, gpu_raw_f32x1, float)
GPU_LOAD_IF(f16x8, gpu_raw_f16x8, uint16_t)
GPU_LOAD_IF(f16x1, gpu_raw_f16x1, uint16_t)
GPU_LOAD_IF(bf16x8, gpu_raw_bf16x8, uint16_t)
GPU_LOAD_IF(bf16x1, gpu_raw_bf16x1, uint16_t)
#undef GPU_LOAD_IF

/* Their sums, rounded to their type: in the place of the first. */
GPU_BODY void gpu_add_f32x8(struct gpu_raw_f32x8 *raw, const struct gpu_raw_f32x8 *more)
{
    GPU_UNROLL
    for (int i = 0; i < 8; i++)
        raw->words[i / 4].word[i % 4] = gpu_bits_of_float(gpu_float_of_bits(raw->words[i / 4].word[i % 4]) +
                                                          gpu_float_of_bits(more->words[i / 4].word[i % 4]));
}

GPU_BODY void gpu_add_f32x1(struct gpu_raw_f32x1 *raw, const struct gpu_raw_f32x1 *more)
{
    raw->element += more->element;
}

#define GPU_ADD_HALVES(type)                                                                                           \
    GPU_BODY void gpu_add_##type##x8(struct gpu_raw_f16x8 *raw, const struct gpu_raw_f16x8 *more)                      \
    {                                                                                                                  \
        GPU_UNROLL                                                                                                     \
        for (int i = 0; i < 4; i++)                                                                                    \
            raw->words[0].word[i] = gpu_add_pair_##type(raw->words[0].word[i], more->words[0].word[i]);                \
    }                                                                                                                  \
    GPU_BODY void gpu_add_##type##x1(struct gpu_raw_f16x1 *raw, const struct gpu_raw_f16x1 *more)                      \
    {                                                                                                                  \
        raw->element = gpu_to_##type(gpu_from_##type(raw->element) + gpu_from_##type(more->element));                  \
    }
GPU_ADD_HALVES(f16)
GPU_ADD_HALVES(bf16)
#undef GPU_ADD_HALVES

/* 8 bytes at an address that is a multiple of 8. */
GPU_BODY void gpu_load_two_words(const void *from, uint32_t words[2])
{
#ifdef __CUDACC__
    const uint2 v = *(const uint2 *)from;
    words[0] = v.x;
    words[1] = v.y;
#else
    assert(((uintptr_t)from & 7) == 0);
    memcpy(words, from, 8);
#endif
}

GPU_BODY void gpu_store_two_words(void *to, uint32_t first, uint32_t second)
{
#ifdef __CUDACC__
    *(uint2 *)to = make_uint2(first, second);
#else
    const uint32_t words[2] = {first, second};
    assert(((uintptr_t)to & 7) == 0);
    memcpy(to, words, 8);
#endif
}

/* Rows that a thread has on their way at a time, of all its tensors together: 128 bytes. */
enum { GPU_FLIGHT_f32x8 = 4, GPU_FLIGHT_f16x8 = 8, GPU_FLIGHT_bf16x8 = 8 };
enum { GPU_FLIGHT_f32x1 = 8, GPU_FLIGHT_f16x1 = 8, GPU_FLIGHT_bf16x1 = 8 };

/* `width` numbers of a vector of f32, which may begin anywhere. */
GPU_BODY void gpu_get_channels(const float *from, int32_t channel, int32_t width, float *v)
{
    if (width == 8 && ((uintptr_t)from & 15) == 0) {
        gpu_get8_f32(from + channel, v);
        return;
    }
    GPU_UNROLL
    for (int32_t i = 0; i < width; i++)
        v[i] = from[channel + i];
}

/* A batch norm whose statistics are known. */
struct gpu_known_norm {
    const float *gamma, *beta, *mean, *rstd;
};

/* The one place that says what batch norm does to an element: all that normalise, and the masks of the backward pass,
 * agree to the last bit. */
GPU_BODY float gpu_normalized(float x, float mean, float scale, float beta)
{
    return fmaf(x - mean, scale, beta);
}

GPU_BODY void gpu_known_numbers(const struct gpu_known_norm *norm, int32_t channel, int32_t width, float *mean,
                                float *scale, float *beta)
{
    float gamma[8];

    gpu_get_channels(norm->gamma, channel, width, gamma);
    gpu_get_channels(norm->rstd, channel, width, scale);
    gpu_get_channels(norm->mean, channel, width, mean);
    gpu_get_channels(norm->beta, channel, width, beta);
    GPU_UNROLL
    for (int32_t i = 0; i < width; i++)
        scale[i] *= gamma[i];
}

/* Adds up the lines of a block: shared_sums[i][thread] of the threads of line 0 become the sums of their columns. All
 * threads come here, whether or not they have anything. */
GPU_BODY void gpu_block_column_sums(const struct gpu_spread *spread, float (*shared_sums)[SPREAD_THREADS],
                                    int32_t count)
{
    const int32_t line = GPU_THREAD / spread->across;
    int32_t half = 1;

    while (2 * half < spread->down)
        half *= 2;
    GPU_SYNC();
    for (; half > 0; half /= 2) {
        if (line < half && line + half < spread->down) {
            GPU_UNROLL
            for (int32_t i = 0; i < count; i++)
                shared_sums[i][GPU_THREAD] += shared_sums[i][GPU_THREAD + half * spread->across];
        }
        GPU_SYNC();
    }
}

#endif
