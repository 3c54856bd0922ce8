/* Parts of images, resized with Pillow's arithmetic (data/image/resize.c says which): weights made in double and rounded
 * to 22 bits, sums of integers, the horizontal pass first, each pass rounded to a byte. Every product is rounded by
 * itself, as it is there. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { CROP_THREADS = 256, WEIGHT_THREADS = 64, WEIGHT_BITS = 22 };

#ifdef __CUDA_ARCH__
#define PRODUCT(a, b) __dmul_rn(a, b) /* not part of a fused addition */
#else
#define PRODUCT(a, b) ((a) * (b))
#endif
#ifdef __CUDACC__
#define BOTH static __host__ __device__ __forceinline__
#else
#define BOTH static inline
#endif

BOTH double scale_of(const struct gpu_crop_axis *axis)
{
    return axis->extent / axis->out;
}

BOTH double width_of(const struct gpu_crop_axis *axis, bool antialiased)
{
    const double scale = scale_of(axis);
    return scale < 1.0 || !antialiased ? 1.0 : scale;
}

BOTH double centre_of(const struct gpu_crop_axis *axis, int32_t x)
{
    return axis->origin + PRODUCT(x + 0.5, scale_of(axis));
}

BOTH int32_t first_of(double centre, double reach)
{
    const double low = centre - reach + 0.5;
    return low < 0 ? 0 : (int32_t)low;
}

BOTH int32_t end_of(double centre, double reach, int32_t size)
{
    const double high = centre + reach + 0.5;
    return high > size ? size : (int32_t)high;
}

BOTH double weight_at(bool cubic, double x)
{
    const double a = -0.5;

    if (!cubic)
        return x < 1.0 ? 1.0 - x : 0.0;
    if (x < 1.0)
        return PRODUCT(PRODUCT(PRODUCT(a + 2.0, x) - (a + 3.0), x), x) + 1.0;
    return x < 2.0 ? PRODUCT(PRODUCT(PRODUCT(x - 5.0, x) + 8.0, x) - 4.0, a) : 0.0;
}

GPU_EXTERN void gpu_crop_measure(struct gpu_crop_axis *axis, bool cubic, bool antialiased)
{
    const double reach = (cubic ? 2.0 : 1.0) * width_of(axis, antialiased);
    const int32_t last = axis->first + axis->count - 1;

    axis->from = first_of(centre_of(axis, axis->first), reach);
    axis->lines = end_of(centre_of(axis, last), reach, axis->size) - axis->from;
    axis->most = (int32_t)ceil(reach) * 2 + 1;
}

struct crop_args {
    const struct gpu_crop *crops;
    int32_t side;
};

/* A thread makes the weights of one result of an axis. */
GPU_KERNEL(crop_weights, struct crop_args, WEIGHT_THREADS)
{
    const struct gpu_crop *crop = &a.crops[GPU_BLOCK_Y];
    const int32_t i = GPU_BLOCK_X * GPU_THREADS + GPU_THREAD, wide = crop->across.count;
    const bool vertical = i >= wide;
    const struct gpu_crop_axis *axis = vertical ? &crop->down : &crop->across;
    const int32_t place = vertical ? i - wide : i;

    if (place < axis->count) {
        const int32_t x = axis->first + (!vertical && crop->flip ? axis->count - 1 - place : place);
        const double width = width_of(axis, crop->antialiased), reach = PRODUCT(crop->cubic ? 2.0 : 1.0, width);
        const double centre = centre_of(axis, x), inverse = 1.0 / width;
        const int32_t first = first_of(centre, reach), taps = end_of(centre, reach, axis->size) - first;
        int32_t *to = axis->table + (int64_t)place * (axis->most + 2);
        double sum = 0.0;

        to[0] = first;
        to[1] = taps;
        for (int32_t t = 0; t < taps; t++)
            sum += weight_at(crop->cubic, fabs(PRODUCT(t + first - centre + 0.5, inverse)));
        for (int32_t t = 0; t < taps; t++) {
            double w = weight_at(crop->cubic, fabs(PRODUCT(t + first - centre + 0.5, inverse)));
            if (sum != 0.0)
                w /= sum;
            to[2 + t] = (int32_t)((w < 0 ? -0.5 : 0.5) + w * (1 << WEIGHT_BITS));
        }
    }
}

/* Weighted sums of three bytes each, `step` bytes apart. */
GPU_BODY void sum_pixels(const int32_t *weights, int32_t taps, const uint8_t *from, int64_t step, uint8_t *to)
{
    int32_t sum[3];

    GPU_UNROLL
    for (int c = 0; c < 3; c++)
        sum[c] = 1 << (WEIGHT_BITS - 1);
    for (int32_t t = 0; t < taps; t++, from += step) {
        const int32_t weight = weights[t];
        GPU_UNROLL
        for (int c = 0; c < 3; c++)
            sum[c] += from[c] * weight;
    }
    GPU_UNROLL
    for (int c = 0; c < 3; c++) {
        const int32_t value = sum[c] >> WEIGHT_BITS;
        to[c] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

/* A thread makes one pixel between the passes. */
GPU_KERNEL(crop_rows, struct crop_args, CROP_THREADS)
{
    const struct gpu_crop *crop = &a.crops[GPU_BLOCK_Y];
    const int64_t i = (int64_t)GPU_BLOCK_X * GPU_THREADS + GPU_THREAD;
    const int32_t count = crop->across.count;

    if (i < (int64_t)crop->down.lines * count) {
        const int32_t y = (int32_t)(i / count), x = (int32_t)(i - (int64_t)y * count);
        const int32_t *table = crop->across.table + (int64_t)x * (crop->across.most + 2);
        const uint8_t *from = crop->source + (int64_t)(crop->down.from + y) * crop->stride + (int64_t)table[0] * 3;

        sum_pixels(table + 2, table[1], from, 3, crop->rows + i * 3);
    }
}

/* A thread makes one pixel of the result. */
GPU_KERNEL(crop_columns, struct crop_args, CROP_THREADS)
{
    const struct gpu_crop *crop = &a.crops[GPU_BLOCK_Y];
    const int32_t i = GPU_BLOCK_X * GPU_THREADS + GPU_THREAD;
    const int32_t row = i / a.side, x = i - row * a.side - crop->across.at, y = row - crop->down.at;

    if (i < a.side * a.side) {
        uint8_t *to = crop->to + (int64_t)i * 3;
        if (x < 0 || x >= crop->across.count || y < 0 || y >= crop->down.count) {
            to[0] = to[1] = to[2] = 0;
        } else {
            const int32_t *table = crop->down.table + (int64_t)y * (crop->down.most + 2);
            const int64_t step = (int64_t)crop->across.count * 3;

            sum_pixels(table + 2, table[1], crop->rows + (table[0] - crop->down.from) * step + (int64_t)x * 3, step,
                       to);
        }
    }
}

GPU_EXTERN void gpu_crop(void *stream, const struct gpu_crop *crops, int32_t count, int32_t side, int64_t rows)
{
    const struct crop_args args = {crops, side};

    GPU_LAUNCH(crop_weights, stream, (2 * side + WEIGHT_THREADS - 1) / WEIGHT_THREADS, count, WEIGHT_THREADS, args);
    GPU_LAUNCH(crop_rows, stream, (rows + CROP_THREADS - 1) / CROP_THREADS, count, CROP_THREADS, args);
    GPU_LAUNCH(crop_columns, stream, ((int64_t)side * side + CROP_THREADS - 1) / CROP_THREADS, count, CROP_THREADS,
               args);
}
