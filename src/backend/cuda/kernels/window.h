/* Windows of pools, for the kernels that look through them. */
#ifndef CVY_BACKEND_CUDA_KERNELS_WINDOW_H
#define CVY_BACKEND_CUDA_KERNELS_WINDOW_H

#include "backend/cuda/kernels/channels.h"
#include "backend/cuda/kernels/kernels.h"

struct gpu_window {
    const void *x, *more; /* backward: dy, and what is added to it, or NULL */
    void *y;              /* backward: dx */
    uint8_t *index;
    int64_t n, c, h, w, p, q;
    int32_t kernel[2], stride[2], pad[2];
    struct gpu_known_norm norm; /* of kernel norm_pool */
};

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
    return args;
}

/* The first output whose window reaches pixel `at` of dimension d. */
GPU_BODY int32_t gpu_first_window(int32_t at, const struct gpu_window *a, int d)
{
    const int32_t after = at + a->pad[d] - a->kernel[d]; /* of the last window that ends before `at` */

    return after < 0 ? 0 : after / a->stride[d] + 1;
}

/* 8 bytes at addresses that are multiples of 8, or one anywhere. */
GPU_BODY void gpu_get_bytes(const uint8_t *from, int32_t *values, int32_t width)
{
    uint32_t half[2];

    if (width == 1) {
        values[0] = *from;
        return;
    }
    gpu_load_pair(from, half);
    GPU_UNROLL
    for (int i = 0; i < 8; i++)
        values[i] = (int32_t)(half[i / 4] >> 8 * (i % 4) & 255);
}

#endif
