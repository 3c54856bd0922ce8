/* Numbers of a channel that several kernels make of others, with the same bits. */
#ifndef CVY_BACKEND_CUDA_KERNELS_MOMENTS_H
#define CVY_BACKEND_CUDA_KERNELS_MOMENTS_H

#include "backend/cuda/kernels/launch.h"

/* From the sums, in f32, of a channel and of its squares: what cancels here is lost (doc/cuda.md). `share`: 1 / rows,
 * by which is multiplied: a division of doubles takes as long as some rows. */
GPU_BODY void gpu_moments_of(float sum, float squares, double share, float *mean, float *variance)
{
    const double first = (double)sum * share, second = (double)squares * share - first * first;

    *mean = (float)first;
    *variance = second < 0 ? 0 : (float)second;
}

/* What batch norm does to x as x * scale + shift. */
GPU_BODY void gpu_put_scale_and_shift(enum cvy_dtype dtype, int64_t c, float gamma, float beta, float mean, float rstd,
                                      void *scale, void *shift)
{
    const double factor = (double)gamma * (double)rstd;

    gpu_put_any(dtype, scale, c, (float)factor);
    gpu_put_any(dtype, shift, c, (float)((double)beta - (double)mean * factor));
}

#endif
