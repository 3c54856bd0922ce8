/* Convolutions of any shape in plain loops, in the plain layout: for what the libraries do not take. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { CONV_THREADS = 256 };

struct conv_args {
    struct gpu_plain_conv conv;
    const void *x, *w, *y; /* what is read */
    const float *bias;
    const void *residual;
    void *to;
    float *variance; /* of plain_statistics, which writes means to `to` */
    int64_t count;   /* elements of `to` */
};

/* The four places of element i of a tensor whose last three extents are b, c, d. */
GPU_BODY void conv_place(int64_t i, int64_t b, int64_t c, int64_t d, int64_t place[4])
{
    place[3] = i % d;
    i /= d;
    place[2] = i % c;
    i /= c;
    place[1] = i % b;
    place[0] = i / b;
}

/* A thread for each element of y. */
GPU_KERNEL(plain_forward, struct conv_args, CONV_THREADS)
{
    const struct gpu_plain_conv *v = &a.conv;
    const int64_t i = (int64_t)GPU_BLOCK_X * CONV_THREADS + GPU_THREAD, width = v->c / v->groups;
    int64_t at[4], first;
    float sum = 0;

    if (i >= a.count)
        return;
    conv_place(i, v->k, v->p, v->q, at);
    first = at[1] / (v->k / v->groups) * width;
    GPU_ROLLED
    for (int64_t c = 0; c < width; c++) {
        GPU_ROLLED
        for (int32_t r = 0; r < v->r; r++) {
            const int64_t h = at[2] * v->stride[0] + r * v->dilation[0] - v->pad[0];
            GPU_ROLLED
            for (int32_t s = 0; s < v->s; s++) {
                const int64_t w = at[3] * v->stride[1] + s * v->dilation[1] - v->pad[1];
                if (h >= 0 && h < v->h && w >= 0 && w < v->w)
                    sum += gpu_get_any(v->dtype, a.x, ((at[0] * v->c + first + c) * v->h + h) * v->w + w) *
                           gpu_get_any(v->dtype, a.w, ((at[1] * width + c) * v->r + r) * v->s + s);
            }
        }
    }
    if (a.bias)
        sum += a.bias[at[1]];
    if (a.residual)
        sum += gpu_get_any(v->dtype, a.residual, i);
    gpu_put_any(v->dtype, a.to, i, gpu_activated(sum, v->activation));
}

/* A thread for each element of dx: the outputs that have read it. */
GPU_KERNEL(plain_data, struct conv_args, CONV_THREADS)
{
    const struct gpu_plain_conv *v = &a.conv;
    const int64_t i = (int64_t)GPU_BLOCK_X * CONV_THREADS + GPU_THREAD;
    const int64_t width = v->c / v->groups, outputs = v->k / v->groups;
    int64_t at[4], group;
    float sum = 0;

    if (i >= a.count)
        return;
    conv_place(i, v->c, v->h, v->w, at);
    group = at[1] / width;
    GPU_ROLLED
    for (int32_t r = 0; r < v->r; r++) {
        const int64_t row = at[2] + v->pad[0] - r * v->dilation[0];
        if (row < 0 || row % v->stride[0] || row / v->stride[0] >= v->p)
            continue;
        GPU_ROLLED
        for (int32_t s = 0; s < v->s; s++) {
            const int64_t column = at[3] + v->pad[1] - s * v->dilation[1];
            if (column < 0 || column % v->stride[1] || column / v->stride[1] >= v->q)
                continue;
            GPU_ROLLED
            for (int64_t k = group * outputs; k < (group + 1) * outputs; k++)
                sum += gpu_get_any(v->dtype, a.y,
                                   ((at[0] * v->k + k) * v->p + row / v->stride[0]) * v->q + column / v->stride[1]) *
                       gpu_get_any(v->dtype, a.w, ((k * width + at[1] - group * width) * v->r + r) * v->s + s);
        }
    }
    gpu_put_any(v->dtype, a.to, i, sum);
}

/* A thread for each element of dw (f32): sums of rows, and their sum. */
GPU_KERNEL(plain_weights, struct conv_args, CONV_THREADS)
{
    const struct gpu_plain_conv *v = &a.conv;
    const int64_t i = (int64_t)GPU_BLOCK_X * CONV_THREADS + GPU_THREAD, width = v->c / v->groups;
    int64_t at[4], channel;
    float sum = 0;

    if (i >= a.count)
        return;
    conv_place(i, width, v->r, v->s, at);
    channel = at[0] / (v->k / v->groups) * width + at[1];
    GPU_ROLLED
    for (int64_t row = 0; row < v->n * v->p; row++) {
        const int64_t n = row / v->p, p = row % v->p, h = p * v->stride[0] + at[2] * v->dilation[0] - v->pad[0];
        float part = 0;
        GPU_ROLLED
        for (int64_t q = 0; q < v->q; q++) {
            const int64_t w = q * v->stride[1] + at[3] * v->dilation[1] - v->pad[1];
            if (h >= 0 && h < v->h && w >= 0 && w < v->w)
                part += gpu_get_any(v->dtype, a.x, ((n * v->c + channel) * v->h + h) * v->w + w) *
                        gpu_get_any(v->dtype, a.y, ((n * v->k + at[0]) * v->p + p) * v->q + q);
        }
        sum += part;
    }
    ((float *)a.to)[i] = sum;
}

/* A thread for each channel of y: its mean to a.to, and its variance around that. */
GPU_KERNEL(plain_statistics, struct conv_args, CONV_THREADS)
{
    const struct gpu_plain_conv *v = &a.conv;
    const int64_t k = (int64_t)GPU_BLOCK_X * CONV_THREADS + GPU_THREAD, plane = v->p * v->q;
    const double rows = (double)v->n * (double)plane;
    double sum = 0, squares = 0, mean;

    if (k >= a.count)
        return;
    GPU_ROLLED
    for (int64_t i = 0; i < v->n * plane; i++)
        sum += (double)gpu_get_any(v->dtype, a.y, (i / plane * v->k + k) * plane + i % plane);
    mean = sum / rows;
    GPU_ROLLED
    for (int64_t i = 0; i < v->n * plane; i++) {
        const double d = (double)gpu_get_any(v->dtype, a.y, (i / plane * v->k + k) * plane + i % plane) - mean;
        squares += d * d;
    }
    ((float *)a.to)[k] = (float)mean;
    a.variance[k] = (float)(squares / rows);
}

static struct conv_args conv_args_of(const struct gpu_plain_conv *conv, void *to, int64_t count)
{
    struct conv_args args;

    memset(&args, 0, sizeof args);
    args.conv = *conv;
    args.to = to;
    args.count = count;
    return args;
}

static int64_t conv_blocks(int64_t count)
{
    return (count + CONV_THREADS - 1) / CONV_THREADS;
}

GPU_EXTERN void gpu_plain_forward(void *stream, const struct gpu_plain_conv *conv, const void *x, const void *w,
                                  const float *bias, const void *residual, void *y)
{
    struct conv_args args = conv_args_of(conv, y, conv->n * conv->k * conv->p * conv->q);

    args.x = x;
    args.w = w;
    args.bias = bias;
    args.residual = residual;
    GPU_LAUNCH(plain_forward, stream, conv_blocks(args.count), 1, CONV_THREADS, args);
}

GPU_EXTERN void gpu_plain_statistics(void *stream, const struct gpu_plain_conv *conv, const void *y, float *mean,
                                     float *variance)
{
    struct conv_args args = conv_args_of(conv, mean, conv->k);

    args.y = y;
    args.variance = variance;
    GPU_LAUNCH(plain_statistics, stream, conv_blocks(args.count), 1, CONV_THREADS, args);
}

GPU_EXTERN void gpu_plain_data(void *stream, const struct gpu_plain_conv *conv, const void *w, const void *dy, void *dx)
{
    struct conv_args args = conv_args_of(conv, dx, conv->n * conv->c * conv->h * conv->w);

    args.w = w;
    args.y = dy;
    GPU_LAUNCH(plain_data, stream, conv_blocks(args.count), 1, CONV_THREADS, args);
}

GPU_EXTERN void gpu_plain_weights(void *stream, const struct gpu_plain_conv *conv, const void *x, const void *dy,
                                  float *dw)
{
    struct conv_args args = conv_args_of(conv, dw, conv->k * (conv->c / conv->groups) * conv->r * conv->s);

    args.x = x;
    args.y = dy;
    GPU_LAUNCH(plain_weights, stream, conv_blocks(args.count), 1, CONV_THREADS, args);
}
