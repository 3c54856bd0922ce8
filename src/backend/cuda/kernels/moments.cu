/* Statistics of convolutions and what batch norms make of them, beside an engine that wants them so. */
#include "backend/cuda/kernels/moments.h"

#include "backend/cuda/kernels/channels.h"
#include "backend/cuda/kernels/kernels.h"

struct scale_args {
    const float *gamma, *beta, *mean, *rstd;
    void *scale, *shift;
    int64_t channels;
    enum cvy_dtype dtype;
};

/* A thread for each channel. */
SPREAD_KERNEL(scale_and_shift, struct scale_args)
{
    const int64_t c = (int64_t)GPU_BLOCK_X * SPREAD_THREADS + GPU_THREAD;

    if (c < a.channels)
        gpu_put_scale_and_shift(a.dtype, c, a.gamma[c], a.beta[c], a.mean[c], a.rstd[c], a.scale, a.shift);
}

GPU_EXTERN void gpu_scale_and_shift(void *stream, enum cvy_dtype dtype, const float *gamma, const float *beta,
                                    const float *mean, const float *rstd, int64_t channels, void *scale, void *shift)
{
    const struct scale_args args = {gamma, beta, mean, rstd, scale, shift, channels, dtype};

    GPU_LAUNCH(scale_and_shift, stream, gpu_parts(channels, SPREAD_THREADS), 1, SPREAD_THREADS, args);
}

struct moments_args {
    const float *sums, *squares;
    float *mean, *variance;
    int64_t channels;
    double share;
};

/* A thread for each channel. */
SPREAD_KERNEL(moments, struct moments_args)
{
    const int64_t c = (int64_t)GPU_BLOCK_X * SPREAD_THREADS + GPU_THREAD;

    if (c < a.channels)
        gpu_moments_of(a.sums[c], a.squares[c], a.share, &a.mean[c], &a.variance[c]);
}

GPU_EXTERN void gpu_moments(void *stream, const float *sums, const float *squares, int64_t rows, int64_t channels,
                            float *mean, float *variance)
{
    struct moments_args args;

    memset(&args, 0, sizeof args);
    args.sums = sums;
    args.squares = squares;
    args.mean = mean;
    args.variance = variance;
    args.channels = channels;
    args.share = 1 / (double)rows;
    GPU_LAUNCH(moments, stream, gpu_parts(channels, SPREAD_THREADS), 1, SPREAD_THREADS, args);
}
