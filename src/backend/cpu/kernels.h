/* The inner loops of the CPU backend: one table for each instruction set, all compiled from kernels.inc.
 *
 * Most of them work on a "run": contiguous elements that share one set of per-channel numbers. Channel-dependent
 * numbers come as CPU_LANES values, and element i of a run uses number i % CPU_LANES: in nChw16c the lanes are the 16
 * channels of a block, in nChw8c the 8 channels twice, in nchw one channel 16 times. In nhwc, where the channels lie
 * beside each other, loops take rows instead (struct cpu_rows). */
#ifndef CVY_BACKEND_CPU_KERNELS_H
#define CVY_BACKEND_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/op.h"

#define CPU_LANES 16

/* y = (x - mean) * scale + shift, by lane. */
struct cpu_affine {
    float mean[CPU_LANES], scale[CPU_LANES], shift[CPU_LANES];
};

/* What a gradient of batch norm takes away from the masked gradient, by lane. */
struct cpu_slope {
    float offset[CPU_LANES], slope[CPU_LANES];
};

/* Two sums of a run, by lane or by channel of its block. */
struct cpu_sums {
    double first[CPU_LANES], second[CPU_LANES];
};

/* Pixels of a channels-last image: rows of `channels` numbers, a multiple of CPU_LANES, which begin `stride` elements
 * apart. What belongs to channels comes as one struct, or CPU_LANES numbers, for each block of CPU_LANES of them. */
struct cpu_rows {
    size_t pixels, channels, stride;
    bool stream; /* results go past the cache, where the instruction set can and they are whole lines of it */
    /* Images of bf16 alone, channels and stride multiples of 32; NULL: none. What passes the activation, in bits
     * (sign.h), of these pixels: rows_affine makes it of y as it is stored; backward it decides instead of y. */
    uint32_t *sign;
};

/* A pooling window sliding over one channel block (lanes channels wide). */
struct cpu_pool {
    int32_t height, width, out_height, out_width;
    int32_t kernel[2], stride[2], pad[2]; /* pad: top, left */
    int32_t lanes;                        /* 1, 8, a multiple of 16 */
};

struct cpu_update_run {
    float learning_rate, weight_decay, momentum, gradient_scale;
    float damping; /* SGD: 1 - dampening */
    bool nesterov;
    float alpha, fresh, epsilon; /* RMSprop; fresh: 1 - alpha */
};

/* Operations on images, for one element type, f32 or bf16; counts are in elements, the arithmetic is float. Per-channel
 * numbers are always floats. */
struct cpu_loops {
    size_t size; /* bytes of an element */
    /* One for each CVY_OP_UNARY and CVY_OP_BINARY (graph/ops.def); y may be x, a or b. The sigmoid is right to three
     * units in the last place. */
    void (*unary[CVY_OP_COUNT])(void *y, const void *x, size_t count);
    void (*binary[CVY_OP_COUNT])(void *y, const void *a, const void *b, size_t count);
    void (*add_relu)(void *y, const void *a, const void *b, size_t count);
    /* The lowest and the highest value, or 0 where there is none below or above it; NaN does not count. */
    void (*range)(const void *x, size_t count, float range[2]);
    /* y = limit(round(x / scale), low, high) * scale, NaN stays NaN; y may be x. */
    void (*fake_quantize)(void *y, const void *x, size_t count, float scale, float low, float high);
    /* dx = dy where low <= round(x / scale) <= high, with `ends` low <= x / scale <= high, else 0; dx may be x or dy.
     */
    void (*fake_quantize_bwd)(void *dx, const void *x, const void *dy, size_t count, float scale, float low, float high,
                              bool ends);
    /* y[i] += bias[i] */
    void (*accumulate)(void *y, const void *bias, size_t count);
    /* y = x * factor by lane; y may be x. */
    void (*scale)(void *y, const void *x, size_t count, const float factor[CPU_LANES]);
    void (*fill)(void *y, size_t count, const float value[CPU_LANES]);

    /* Sums by lane: float over short pieces, double beyond. The result is stored, not added. */
    void (*sum)(const void *x, size_t count, double sum[CPU_LANES]);
    void (*sum_squares)(const void *x, size_t count, const float centre[CPU_LANES], double sum[CPU_LANES]);
    void (*sum_products)(const void *x, const void *y, size_t count, double sum[CPU_LANES]);
    /* y = affine(x) (+ residual), then the activation. residual may be NULL; y may be x or residual. */
    void (*affine)(void *y, const void *x, const void *residual, size_t count, const struct cpu_affine *lanes,
                   enum cvy_activation activation);
    /* Sums of g and g * (x - mean), g being dy (+ more, which may be NULL) masked by what the activation does to the
     * forward result: `y` where given, else affine(x). g is stored where it is not NULL, which it must not be
     * with `more`; it may be dy or more. */
    void (*batch_norm_bwd_sums)(void *g, const void *x, const void *dy, const void *more, const void *y, size_t count,
                                const struct cpu_affine *lanes, enum cvy_activation activation, struct cpu_sums *sums);
    /* dx = scale * (g - offset - slope * (x - mean)), with g made from dy alone; dx may be any of the inputs. */
    void (*batch_norm_bwd)(void *dx, const void *x, const void *dy, const void *y, size_t count,
                           const struct cpu_affine *lanes, const struct cpu_slope *slope,
                           enum cvy_activation activation);

    /* The same over rows: sum and sum_products into `first`, sum_squares into `second`, bwd_sums into both; `centre`
     * and `value` have a number for each channel. */
    void (*rows_sum)(const void *x, const struct cpu_rows *rows, struct cpu_sums *sums);
    void (*rows_sum_squares)(const void *x, const struct cpu_rows *rows, const float *centre, struct cpu_sums *sums);
    void (*rows_sum_products)(const void *x, const void *y, const struct cpu_rows *rows, struct cpu_sums *sums);
    void (*rows_fill)(void *y, const struct cpu_rows *rows, const float *value);
    void (*rows_affine)(void *y, const void *x, const void *residual, const struct cpu_rows *rows,
                        const struct cpu_affine *lanes, enum cvy_activation activation);
    void (*rows_bwd_sums)(void *g, const void *x, const void *dy, const void *more, const void *y,
                          const struct cpu_rows *rows, const struct cpu_affine *lanes, enum cvy_activation activation,
                          struct cpu_sums *sums);
    void (*rows_bwd)(void *dx, const void *x, const void *dy, const void *y, const struct cpu_rows *rows,
                     const struct cpu_affine *lanes, const struct cpu_slope *slopes, enum cvy_activation activation);

    /* One channel block of one image; index may be NULL. */
    void (*max_pool)(void *y, uint8_t *index, const void *x, const struct cpu_pool *pool);
    void (*max_pool_bwd)(void *dx, const void *dy, const uint8_t *index, const struct cpu_pool *pool);

    /* Sum of p^2 log(1 + exp(x)), p = sigmoid(x), each term to 8 units in its last place. */
    double (*focal_loss)(const void *x, size_t count);
    /* dx = scale times its derivative; dx may be x. */
    void (*focal_loss_bwd)(void *dx, const void *x, size_t count, float scale);
    /* dx[w] = the sum of dy[2 w] and dy[2 w + 1] of two rows of dy, for `width` pixels of this many lanes. */
    void (*sum_2x2)(void *dx, const void *above, const void *below, size_t width, size_t lanes);
};

struct cpu_kernels {
    const char *isa;
    const struct cpu_loops *f32, *bf16;
    /* Rounded to nearest, ties to even; NaN stays NaN. */
    void (*to_bf16)(uint16_t *y, const float *x, size_t count);
    void (*from_bf16)(float *y, const uint16_t *x, size_t count);
    void (*sgd)(float *weights, float *momentum, const float *gradients, size_t count,
                const struct cpu_update_run *run);
    void (*rmsprop)(float *weights, float *momentum, float *squares, const float *gradients, size_t count,
                    const struct cpu_update_run *run);
    /* Copies whole lines of 64 bytes, aligned, past the cache where the processor can; finish_past() before another
     * thread reads them. */
    void (*copy_past)(void *to, const void *from, size_t bytes);
    void (*finish_past)(void);
    /* y += share (x - y) */
    void (*towards)(float *y, const float *x, size_t count, float share);
    /* The largest of `count` numbers of each row, -infinity where there is none; NaN does not count. */
    void (*row_maxima)(float *maxima, const float *x, size_t rows, size_t stride, size_t count);
    /* One block of weights, (window, 16 input channels, 16 output channels), into 16 rows (output channel) of (input
     * channel, window), `row` elements apart. NULL where vectors have fewer than 16 numbers. */
    void (*unblock)(float *to, const float *from, int64_t row, int64_t window);
};

extern const struct cpu_kernels cpu_kernels_base, cpu_kernels_avx2, cpu_kernels_avx512;

#endif
