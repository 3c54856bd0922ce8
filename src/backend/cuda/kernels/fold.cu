/* Batch norms as part of the weights of the convolutions before them: for inference, and for training whose weights are
 * rounded then (ops/fold.c). */
#include "backend/cuda/kernels/channels.h"
#include "backend/cuda/kernels/kernels.h"

struct fold_args {
    struct gpu_fold what;
};

/* A block for each filter. */
SPREAD_KERNEL(fold, struct fold_args)
{
    const struct gpu_fold *w = &a.what;
    const int64_t k = GPU_BLOCK_X;
    const double scale = (double)w->gamma[k] / sqrt((double)w->var[k] + (double)w->eps);

    for (int64_t i = GPU_THREAD; i < w->weights; i += SPREAD_THREADS)
        w->new_w[k * w->weights + i] = (float)((double)w->w[k * w->weights + i] * scale);
    if (GPU_THREAD == 0)
        w->new_bias[k] = (float)((double)w->beta[k] + ((w->bias ? (double)w->bias[k] : 0) - (double)w->mean[k]) * scale);
}

GPU_EXTERN void gpu_fold_batch_norm(void *stream, const struct gpu_fold *what)
{
    const struct fold_args args = {*what};

    GPU_LAUNCH(fold, stream, what->filters, 1, SPREAD_THREADS, args);
}

struct fold_bwd_args {
    struct gpu_fold_bwd what;
};

/* A block for each filter; thread 0 adds up what the threads have. */
GPU_KERNEL_SHARED(fold_bwd, struct fold_bwd_args, SPREAD_THREADS)
{
    GPU_SHARED double sums[SPREAD_THREADS];
    const int64_t k = GPU_BLOCK_X;
    const double rstd = 1 / sqrt((double)a.what.var[k] + (double)a.what.eps);
    const double factor = (double)a.what.gamma[k] * rstd;
    double sum = 0;

    for (int64_t i = GPU_THREAD; i < a.what.weights; i += SPREAD_THREADS) {
        const int64_t at = k * a.what.weights + i;
        sum += (double)a.what.dfolded[at] * (double)a.what.w[at];
        if (a.what.dw)
            a.what.dw[at] = (float)((double)a.what.dfolded[at] * factor);
    }
    sums[GPU_THREAD] = sum;
    GPU_SYNC();
    if (GPU_THREAD != 0 || !a.what.dgamma)
        return;
    sum = 0;
    for (int32_t i = 0; i < SPREAD_THREADS; i++)
        sum += sums[i];
    a.what.dgamma[k] = (float)(sum * rstd);
}

GPU_EXTERN void gpu_fold_batch_norm_bwd(void *stream, const struct gpu_fold_bwd *what)
{
    const struct fold_bwd_args args = {*what};

    GPU_LAUNCH(fold_bwd, stream, what->filters, 1, SPREAD_THREADS, args);
}

struct correction_args {
    struct gpu_correction what;
};

/* Whether the running statistics count alone by now. */
GPU_BODY bool correction_stays(const struct gpu_correction *what)
{
    return what->freeze > 0 && what->observed && (double)what->observed[2] >= (double)what->freeze;
}

/* A thread for each channel. */
SPREAD_KERNEL(correction, struct correction_args)
{
    const int64_t c = (int64_t)GPU_BLOCK_X * SPREAD_THREADS + GPU_THREAD;
    const struct gpu_correction *w = &a.what;
    double sigma;
    bool stays;

    if (c >= w->channels)
        return;
    stays = correction_stays(w);
    sigma = sqrt((double)w->old_var[c] + (double)w->eps);
    w->scale[c] = (float)(stays ? 1 / (double)w->rstd[c] : sigma);
    w->shift[c] = w->beta[c];
    w->center[c] = (float)((double)(stays ? w->old_mean[c] : w->mean[c]) * (double)w->gamma[c] / sigma);
    w->factor[c] = w->rstd[c];
    if (w->new_mean)
        w->new_mean[c] = stays ? w->old_mean[c] : w->next_mean[c];
    if (w->new_var)
        w->new_var[c] = stays ? w->old_var[c] : w->next_var[c];
}

/* The same; the formulas are beside the reference's. */
SPREAD_KERNEL(correction_bwd, struct correction_args)
{
    const int64_t c = (int64_t)GPU_BLOCK_X * SPREAD_THREADS + GPU_THREAD;
    const struct gpu_correction *w = &a.what;
    double sigma, s;
    bool stays;

    if (c >= w->channels)
        return;
    stays = correction_stays(w);
    sigma = sqrt((double)w->old_var[c] + (double)w->eps);
    s = (double)w->rstd[c];
    if (w->dgamma)
        w->dgamma[c] =
            (float)(-(stays ? (double)w->old_mean[c] / sigma : (double)w->mean[c] * s) * (double)w->dshift[c]);
    if (w->slope)
        w->slope[c] = stays ? 0 : (float)(-s * sigma * (double)w->dscale[c] / w->count);
    if (w->offset)
        w->offset[c] = stays ? 0 : (float)(-(double)w->gamma[c] * s * (double)w->dshift[c] / w->count);
}

GPU_EXTERN void gpu_fold_correction(void *stream, const struct gpu_correction *what)
{
    const struct correction_args args = {*what};

    GPU_LAUNCH(correction, stream, gpu_parts(what->channels, SPREAD_THREADS), 1, SPREAD_THREADS, args);
}

GPU_EXTERN void gpu_fold_correction_bwd(void *stream, const struct gpu_correction *what)
{
    const struct correction_args args = {*what};

    GPU_LAUNCH(correction_bwd, stream, gpu_parts(what->channels, SPREAD_THREADS), 1, SPREAD_THREADS, args);
}
