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

struct walkers_args {
    const float *partial, *rstd; /* rstd: NULL where moments are made */
    float *made[2];              /* mean and variance, or the gradients of gamma and beta */
    int64_t rows;
    int32_t channels, walkers;
};
enum { SUM_CHANNELS = 32, SUM_PARTS = SPREAD_THREADS / SUM_CHANNELS };

/* A line of threads for every eighth walker, which the first one adds up. */
GPU_KERNEL_SHARED(walkers_sums, struct walkers_args, SPREAD_THREADS)
{
    GPU_SHARED double shared_sums[2][SPREAD_THREADS];
    const int32_t part = GPU_THREAD / SUM_CHANNELS, channel = GPU_BLOCK_X * SUM_CHANNELS + GPU_THREAD % SUM_CHANNELS;
    double total[2] = {0, 0}, mean, variance;

    for (int32_t walker = part; channel < a.channels && walker < a.walkers; walker += SUM_PARTS) {
        const float *from = a.partial + (int64_t)walker * 2 * a.channels + channel;
        total[0] += (double)from[0];
        total[1] += (double)from[a.channels];
    }
    shared_sums[0][GPU_THREAD] = total[0];
    shared_sums[1][GPU_THREAD] = total[1];
    GPU_SYNC();
    if (part > 0 || channel >= a.channels)
        return;
    for (int32_t p = 1; p < SUM_PARTS; p++) {
        total[0] += shared_sums[0][GPU_THREAD + p * SUM_CHANNELS];
        total[1] += shared_sums[1][GPU_THREAD + p * SUM_CHANNELS];
    }
    if (a.rstd) {
        a.made[0][channel] = (float)(total[1] * (double)a.rstd[channel]);
        a.made[1][channel] = (float)total[0];
        return;
    }
    mean = total[0] / (double)a.rows;
    variance = total[1] / (double)a.rows - mean * mean;
    a.made[0][channel] = (float)mean;
    a.made[1][channel] = variance < 0 ? 0 : (float)variance;
}

static void add_walkers(void *stream, const float *partial, int64_t walkers, int64_t rows, int64_t channels,
                        const float *rstd, float *first, float *second)
{
    struct walkers_args args;

    memset(&args, 0, sizeof args);
    args.partial = partial;
    args.rstd = rstd;
    args.made[0] = first;
    args.made[1] = second;
    args.rows = rows;
    args.channels = (int32_t)channels;
    args.walkers = (int32_t)walkers;
    GPU_LAUNCH(walkers_sums, stream, gpu_parts(channels, SUM_CHANNELS), 1, SPREAD_THREADS, args);
}

GPU_EXTERN void gpu_walkers_moments(void *stream, const float *partial, int64_t walkers, int64_t rows, int64_t channels,
                                    float *mean, float *variance)
{
    add_walkers(stream, partial, walkers, rows, channels, 0, mean, variance);
}

GPU_EXTERN void gpu_walkers_gradients(void *stream, const float *partial, int64_t walkers, int64_t channels,
                                      const float *rstd, float *dgamma, float *dbeta)
{
    add_walkers(stream, partial, walkers, 1, channels, rstd, dgamma, dbeta);
}
