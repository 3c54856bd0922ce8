/* Windows of pools, for the kernels that look through them. */
#ifndef CVY_BACKEND_CUDA_KERNELS_WINDOW_H
#define CVY_BACKEND_CUDA_KERNELS_WINDOW_H

#include "backend/cuda/kernels/channels.h"
#include "backend/cuda/kernels/kernels.h"

enum { STRIP_CELLS = 8 };

struct gpu_window {
    const void *x, *more; /* backward: dy, and what is added to it, or NULL */
    void *y;              /* backward: dx */
    uint8_t *index;
    int64_t n, c, h, w, p, q;
    int32_t kernel[2], stride[2], pad[2];
    struct gpu_divisor columns, lines; /* of x */
    int32_t cells, strips;             /* cells: of a strip, down; 0: the pool does not halve its image */
    struct gpu_known_norm norm;        /* of kernels that pool what it makes of x */
};

/* Pools that halve an image: windows of 3x3 at a stride of 2, with a border of one. Window (p, q) stands on the cell of
 * the pixels 2 p, 2 p + 1 x 2 q, 2 q + 1, and on what is above and left of that; a cell is seen by its own window, the
 * next one, and the two below. A thread walks down a strip of a column of cells. */
static inline void gpu_cut_strips(struct gpu_window *a)
{
    const int64_t across = a->n * gpu_parts(a->q * (a->c / gpu_width(a->c)), SPREAD_THREADS);

    for (int d = 0; d < 2; d++) {
        if (a->kernel[d] != 3 || a->stride[d] != 2 || a->pad[d] != 1)
            return;
    }
    if (a->p != (a->h + 1) / 2 || a->q != (a->w + 1) / 2 || a->h * a->w * a->c > INT32_MAX / 2)
        return;
    a->cells = STRIP_CELLS;
    while (a->cells > 1 && across * gpu_parts(a->p, a->cells) < MAP_ENOUGH_BLOCKS)
        a->cells /= 2;
    a->strips = (int32_t)gpu_parts(a->p, a->cells);
}

/* Threads of all strips. */
static inline int64_t gpu_strip_threads(const struct gpu_window *a)
{
    return a->n * a->strips * a->q * (a->c / gpu_width(a->c));
}

static inline struct gpu_window gpu_window_of(const struct gpu_pool *pool)
{
    struct gpu_window args;

    memset(&args, 0, sizeof args);
    args.more = pool->more;
    args.norm.gamma = pool->gamma;
    args.norm.beta = pool->beta;
    args.norm.mean = pool->mean;
    args.norm.rstd = pool->rstd;
    args.n = pool->n;
    args.c = pool->c;
    args.h = pool->h;
    args.w = pool->w;
    args.p = pool->p;
    args.q = pool->q;
    for (int d = 0; d < 2; d++) {
        args.kernel[d] = pool->kernel[d];
        args.stride[d] = pool->stride[d];
        args.pad[d] = pool->pad[d];
    }
    args.columns = gpu_divisor_of((int32_t)pool->w);
    args.lines = gpu_divisor_of((int32_t)pool->h);
    gpu_cut_strips(&args);
    return args;
}

/* The first output whose window reaches pixel `at` of dimension d. */
GPU_BODY int32_t gpu_first_window(int32_t at, const struct gpu_window *a, int d)
{
    const int32_t after = at + a->pad[d] - a->kernel[d]; /* of the last window that ends before `at` */

    return after < 0 ? 0 : after / a->stride[d] + 1;
}

/* The strip of a thread: cells `cell` to `end` - 1 of a column. */
struct gpu_strip {
    int64_t image;
    int32_t column, cell, end, channel;
    bool inside; /* else the thread has nothing to do */
};

GPU_BODY struct gpu_strip gpu_strip_of(const struct gpu_window *a, int32_t width)
{
    struct gpu_strip strip;
    int64_t rest = (int64_t)GPU_BLOCK_X * SPREAD_THREADS + GPU_THREAD;
    int32_t unit, which;

    rest = gpu_divide(rest, (int32_t)a->c / width, &unit);
    rest = gpu_divide(rest, (int32_t)a->q, &strip.column);
    strip.image = gpu_divide(rest, a->strips, &which);
    strip.channel = unit * width;
    strip.cell = which * a->cells;
    strip.end = strip.cell + a->cells < a->p ? strip.cell + a->cells : (int32_t)a->p;
    strip.inside = strip.image < a->n;
    return strip;
}

/* 8 bytes at addresses that are multiples of 8, or one anywhere. */
GPU_BODY void gpu_get_bytes(const uint8_t *from, int32_t *values, int32_t width)
{
    uint32_t half[2];

    if (width == 1) {
        values[0] = *from;
        return;
    }
    gpu_load_two_words(from, half);
    GPU_UNROLL
    for (int i = 0; i < 8; i++)
        values[i] = (int32_t)(half[i / 4] >> 8 * (i % 4) & 255);
}

#endif
