/* What the .cu files offer: functions that put one kernel or a few into a stream. Device pointers throughout. An image
 * of N x H x W pixels of C channels is `rows` = N * H * W rows of C elements; `dtype` is f32, f16 or bf16. Errors are
 * read later (gpu_last_error). */
#ifndef CVY_BACKEND_CUDA_KERNELS_KERNELS_H
#define CVY_BACKEND_CUDA_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/scaler.h"
#include "base/types.h"
#include "graph/boxes.h"
#include "graph/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elementwise.cu: one element at a time ---- */
/* y = f(a), or f(a, b), of a CVY_OP_UNARY or CVY_OP_BINARY; `relu`: an addition with ReLU. */
void gpu_elementwise(void *stream, enum cvy_op op, enum cvy_dtype dtype, const void *a, const void *b, void *y,
                     int64_t count, bool relu);
void gpu_cast(void *stream, enum cvy_dtype from, enum cvy_dtype to, const void *x, void *y, int64_t count);
/* Pixels of uint8 or f32, of `planes` (1 to 4) channels -> (value - mean) / std, `channels` (4 or 8, the rest zero) for
 * each pixel. With partners: that of image n times coefficient[n], and that of image partner[n] times the rest. */
struct gpu_normalize {
    enum cvy_dtype dtype; /* of y */
    bool floats;          /* x is f32 */
    int64_t images, pixels;
    int32_t planes, channels;
    float mean[4], std[4];
    const int32_t *partner;   /* (images), each below their number; NULL: not mixed */
    const float *coefficient; /* (images) */
};
void gpu_normalize(void *stream, const struct gpu_normalize *what, const void *x, void *y);

/* ---- epilogue.cu ---- */
/* In place, rows x channels: y = y + residual (like y, or NULL) + bias (f32, or NULL), then ReLU where asked for. */
void gpu_epilogue(void *stream, enum cvy_dtype dtype, void *y, const float *bias, const void *residual,
                  enum cvy_activation activation, int64_t rows, int64_t channels);

/* ---- layout.cu ---- */
/* A tensor of four dimensions between plain (N,C,H,W) and channels-last with `stored` >= C channels, the added ones
 * zero. Floats may change their type on the way. Either way or both. */
struct gpu_rearrangement {
    int64_t n, c, h, w;
    int64_t from_stored, to_stored; /* channels of a channels-last side; 0: that side is plain */
    enum cvy_dtype from, to;        /* f32, f16, bf16; where both are the same, any type */
};
void gpu_rearrange(void *stream, const struct gpu_rearrangement *what, const void *x, void *y);
/* Several of them, GPU_MOVES in a launch. */
struct gpu_move {
    struct gpu_rearrangement what;
    const void *x;
    void *y;
};
enum { GPU_MOVES = 64 };
void gpu_move_tensors(void *stream, const struct gpu_move *moves, int32_t count);
/* Rows of `columns` elements to rows of `padded`, the rest of each zeros. f32, f16, bf16. */
void gpu_pad_rows(void *stream, enum cvy_dtype dtype, int64_t rows, int64_t columns, int64_t padded, const void *x,
                  void *y);

/* ---- product.cu: where cuBLASLt has nothing ---- */
/* C (m x n) = op(A) op(B) + bias, row-major f32; op transposes where asked for: A is m x k or k x m, B is k x n or n x
 * k. bias (n) may be NULL. m is at most 16 * 65535. Sums in f32, in the order of k. */
struct gpu_product {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
};
void gpu_product(void *stream, const struct gpu_product *what, const float *a, const float *b, const float *bias,
                 float *c);

/* ---- conv_plain.cu: any convolution, tensors in the plain layout ---- */
struct gpu_plain_conv {
    enum cvy_dtype dtype; /* of x, w, y, residual; dw is f32 */
    int64_t n, c, h, w, k, p, q;
    int32_t r, s, stride[2], dilation[2], pad[2] /* top, left */, groups;
    enum cvy_activation activation;
};
/* bias (f32) and residual (like y) may be NULL. */
void gpu_plain_forward(void *stream, const struct gpu_plain_conv *conv, const void *x, const void *w, const float *bias,
                       const void *residual, void *y);
/* Mean and biased variance of each channel of y. */
void gpu_plain_statistics(void *stream, const struct gpu_plain_conv *conv, const void *y, float *mean, float *variance);
void gpu_plain_data(void *stream, const struct gpu_plain_conv *conv, const void *w, const void *dy, void *dx);
void gpu_plain_weights(void *stream, const struct gpu_plain_conv *conv, const void *x, const void *dy, float *dw);

/* ---- grouped.cu: 3x3 convolutions of as many groups as there are channels by `width`, channels last ---- */
struct gpu_grouped {
    enum cvy_dtype dtype;                   /* f16 or bf16, of x, w, y; dw is f32 */
    int64_t n, h, w, p, q, channels;        /* a multiple of 32 */
    int32_t width;                          /* channels of a group: 4, 8, 16, 32 */
    int32_t stride, pad[2] /* top, left */; /* stride: 1 or 2 */
};
/* w: K x 3 x 3 x width. */
void gpu_grouped_forward(void *stream, const struct gpu_grouped *what, const void *x, const void *w, void *y);
void gpu_grouped_data(void *stream, const struct gpu_grouped *what, const void *w, const void *dy, void *dx);
/* dw in the arena's order, K x width x 3 x 3; `scratch`: this many floats. */
int64_t gpu_grouped_scratch(const struct gpu_grouped *what);
void gpu_grouped_weights(void *stream, const struct gpu_grouped *what, const void *x, const void *dy, float *dw,
                         float *scratch);
/* grouped_rows.cu: the same at stride 1 only, faster; takes up to 97 KiB of shared memory. The forward pass gives mean
 * and variance of its output (channels) unless they are NULL; `scratch` is this many floats then. */
int64_t gpu_grouped_rows_sums(const struct gpu_grouped *what);
void gpu_grouped_rows_forward(void *stream, const struct gpu_grouped *what, const void *x, const void *w, void *y,
                              float *mean, float *variance, float *scratch);
void gpu_grouped_rows_data(void *stream, const struct gpu_grouped *what, const void *w, const void *dy, void *dx);
int64_t gpu_grouped_rows_scratch(const struct gpu_grouped *what);
void gpu_grouped_rows_weights(void *stream, const struct gpu_grouped *what, const void *x, const void *dy, float *dw,
                              float *scratch);

/* ---- first.cu: convolutions of images of up to 4 channels with filters of up to 7 x 7, channels last ---- */
struct gpu_first {
    enum cvy_dtype dtype;           /* f16 or bf16, of x, w, y; dw is f32 */
    int64_t n, h, w, p, q, outputs; /* outputs: a multiple of 8 */
    int32_t channels, planes;       /* of a pixel: 4 or 8 as stored, of which up to 4 are not zeros; 4 are read */
    int32_t kernel[2], stride, pad[2] /* top, left */; /* stride: 1 or 2 */
    enum cvy_activation activation;                    /* after the bias */
};
struct gpu_first_memory {
    const void *x, *w; /* w: K x R x S x channels */
    const float *bias; /* or NULL */
    void *y;
    float *mean, *variance, *scratch; /* statistics of y; NULL: not asked for */
    uint32_t *tickets;                /* a zero for every 64 outputs, zero again afterwards */
};
int64_t gpu_first_statistics_scratch(const struct gpu_first *what); /* floats */
void gpu_first_forward(void *stream, const struct gpu_first *what, const struct gpu_first_memory *memory);
/* dw in the arena's order, K x planes x R x S; `scratch`: this many floats. */
int64_t gpu_first_weights_scratch(const struct gpu_first *what);
void gpu_first_weights(void *stream, const struct gpu_first *what, const void *x, const void *dy, float *dw,
                       float *scratch);

/* ---- loss.cu: one block for each of `rows` rows of `classes` ---- */
void gpu_softmax(void *stream, const float *logits, float *probabilities, int64_t rows, int64_t classes);
/* q = w ((1 - smoothing) t + smoothing / classes), t from labels or (labels NULL) from soft targets, mixed with the
 * partner's as images are. */
struct gpu_targets {
    const int32_t *labels;      /* (rows) */
    const float *soft;          /* (rows, classes) */
    const int32_t *partner;     /* (rows), NULL: not mixed */
    const float *coefficient;   /* (rows) */
    const float *class_weights; /* (classes), NULL: 1 */
    float smoothing;
};
/* loss = sum over the rows of sum_k -q_k log p_k, divided by their number, or by the weights of their labels where
 * there are class weights. `losses`: scratch of `rows` floats. */
void gpu_cross_entropy(void *stream, const float *logits, const struct gpu_targets *targets, float *loss,
                       float *probabilities, float *losses, int64_t rows, int64_t classes);
void gpu_cross_entropy_bwd(void *stream, const float *probabilities, const struct gpu_targets *targets,
                           const float *dloss, float *dlogits, int64_t rows, int64_t classes);
/* sums[c] = sum over the rows of x (rows x columns): f32 sums in a fixed order. */
void gpu_column_sums(void *stream, enum cvy_dtype dtype, const void *x, float *sums, int64_t rows, int64_t columns);

/* ---- detection_loss.cu ---- */
enum { GPU_LOSS_BLOCKS = 1024 }; /* floats of scratch that each sum needs */
struct gpu_predictions {
    enum cvy_dtype dtype;     /* of predictions and gradient */
    int64_t anchors, columns; /* of all images; 4 for codes */
    const void *predictions;  /* (anchors, columns) */
    const float *targets;     /* (anchors, 4), of codes */
    const int32_t *classes;   /* (anchors) */
    const float *positives, *dloss;
    void *gradient; /* may be the predictions */
};
void gpu_focal_loss(void *stream, const struct gpu_predictions *what, float *loss, float *scratch);
void gpu_focal_loss_bwd(void *stream, const struct gpu_predictions *what);
void gpu_smooth_l1_loss(void *stream, const struct gpu_predictions *what, float *loss, float *scratch);
void gpu_smooth_l1_loss_bwd(void *stream, const struct gpu_predictions *what);
struct gpu_l2_loss {
    const float *term; /* may be NULL */
    const float *weight[CVY_MAX_TERMS];
    int64_t count[CVY_MAX_TERMS];
    int32_t weights;
    float factor;
};
/* scratch: GPU_LOSS_BLOCKS floats for each weight */
void gpu_l2_loss(void *stream, const struct gpu_l2_loss *what, float *loss, float *scratch);

/* ---- detection.cu ---- */
struct gpu_match {
    struct cvy_anchor_grid grid;
    int64_t images, rows;
    const float *boxes;    /* (images, rows, 4) */
    const int32_t *labels; /* (images, rows) */
    int32_t *classes;      /* (images, A) */
    float *targets;        /* (images, A, 4) */
    float *positives;
};
int64_t gpu_match_scratch(const struct gpu_match *what); /* floats */
void gpu_detection_match(void *stream, const struct gpu_match *what, float *scratch);
struct gpu_detect {
    struct cvy_detect_attr attr;
    struct cvy_anchor_grid grid;
    int64_t images, classes;     /* classes: without background */
    const float *codes, *logits; /* (images, A, 4), (images, A, classes + 1) */
    float *boxes, *scores;       /* (images, most, 4), (images, most) */
    int32_t *labels, *counts;    /* (images, most), (images) */
};
int64_t gpu_detect_scratch(const struct gpu_detect *what); /* floats */
void gpu_detect(void *stream, const struct gpu_detect *what, float *scratch);

/* ---- batch_norm.cu, moments.cu ---- */
struct gpu_batch_norm {
    enum cvy_dtype dtype; /* of x, residual, y */
    int64_t rows, channels;
    const void *x, *residual; /* residual: may be NULL */
    void *y;                  /* may be x */
    /* The residual's batch norm, which is done on the way; NULL: the residual is added as it is. */
    const float *residual_gamma, *residual_beta, *residual_mean, *residual_rstd;
    uint8_t *sign; /* gpu_sign_bytes: what of y passes the activation; NULL: not wanted */
    const float *gamma, *beta, *running_mean, *running_var;
    float *mean, *rstd;        /* of the batch */
    float *new_mean, *new_var; /* may be NULL, or the running ones */
    bool sums;                 /* given: the sums of x and of its squares are, instead of mean and variance */
    void *scale, *shift;       /* gpu_batch_norm_numbers: as gpu_scale_and_shift, or NULL */
    float eps, momentum;
    enum cvy_activation activation;
};
struct gpu_batch_norm_bwd {
    enum cvy_dtype dtype; /* of x, dy, more, y, dx, dresidual */
    int64_t rows, channels;
    const void *x, *dy, *more, *y; /* more: a second gradient, or NULL; y: NULL where the mask is recomputed from x */
    const uint8_t *sign;           /* instead of y: what gpu_batch_norm made; NULL: it was not asked */
    const float *gamma, *beta, *mean, *rstd;
    void *dx, *dresidual; /* may be NULL; dx may be x, dresidual may be dy */
    float *dgamma, *dbeta;
    const float *given_dgamma, *given_dbeta; /* NULL, or the sums are there and dy is masked: dx alone is made */
    enum cvy_activation activation;
};
/* What passes an activation: a bit for each element, eight channels to a byte; where 8 do not divide the channels, a
 * byte for each. */
static inline int64_t gpu_sign_bytes(int64_t rows, int64_t channels)
{
    return channels % 8 == 0 ? rows * (channels / 8) : rows * channels;
}
/* The counters and the scratch memory that gpu_batch_norm and gpu_batch_norm_bwd need. */
void gpu_batch_norm_shape(int64_t rows, int64_t channels, int64_t *tiles, int64_t *scratch_floats);
/* y (unless NULL), mean, rstd and the new running statistics. `tickets`: a zero for each tile, zero again afterwards.
 */
void gpu_batch_norm(void *stream, const struct gpu_batch_norm *what, float *scratch, uint32_t *tickets);
/* The same where a convolution has made the statistics of x: mean and biased variance. */
void gpu_batch_norm_given(void *stream, const struct gpu_batch_norm *what, const float *mean, const float *variance);
/* These statistics: of x itself (scratch and tickets as gpu_batch_norm's), or from sums of its elements and of their
 * squares. */
void gpu_statistics(void *stream, enum cvy_dtype dtype, const void *x, int64_t rows, int64_t channels, float *mean,
                    float *variance, float *scratch, uint32_t *tickets);
void gpu_moments(void *stream, const float *sums, const float *squares, int64_t rows, int64_t channels, float *mean,
                 float *variance);
/* The same but y: mean, rstd and the new running statistics. */
void gpu_batch_norm_numbers(void *stream, const struct gpu_batch_norm *what, const float *mean, const float *variance);
/* What batch norm does to x as x * scale + shift, rounded to `dtype`, for each channel. */
void gpu_scale_and_shift(void *stream, enum cvy_dtype dtype, const float *gamma, const float *beta, const float *mean,
                         const float *rstd, int64_t channels, void *scale, void *shift);
void gpu_batch_norm_apply(void *stream, const struct gpu_batch_norm *what); /* y from mean and rstd, the same bits */
void gpu_batch_norm_inference(void *stream, const struct gpu_batch_norm *what); /* y from the running statistics */
/* y = x gamma / sqrt(running_var + eps) */
void gpu_batch_norm_inference_bwd(void *stream, const struct gpu_batch_norm *what);
void gpu_batch_norm_bwd(void *stream, const struct gpu_batch_norm_bwd *what, float *scratch, uint32_t *tickets);
/* The same of two batch norms whose outputs were added: `what` has the sign of the sum, `residual` has x, gamma, mean,
 * rstd, dx, dgamma and dbeta of the other. No dresidual; dx of either may be x of either, dy or more, in its place.
 * Twice the scratch memory. */
void gpu_batch_norm_pair_bwd(void *stream, const struct gpu_batch_norm_bwd *what,
                             const struct gpu_batch_norm_bwd *residual, float *scratch, uint32_t *tickets);
struct gpu_fold {
    const float *w, *gamma, *beta, *mean, *var, *bias; /* w (filters, weights); bias: may be NULL */
    float *new_w, *new_bias;                           /* new_w may be w */
    int64_t filters, weights;
    float eps;
};
void gpu_fold_batch_norm(void *stream, const struct gpu_fold *what);
struct gpu_fold_bwd {
    const float *w, *gamma, *var, *dfolded; /* w, dfolded (filters, weights) */
    float *dw, *dgamma;                     /* may be NULL */
    int64_t filters, weights;
    float eps;
};
void gpu_fold_batch_norm_bwd(void *stream, const struct gpu_fold_bwd *what);
struct gpu_correction {
    const float *gamma, *beta, *mean, *rstd, *old_mean, *old_var, *next_mean, *next_var;
    const float *observed;                                       /* (3), or NULL */
    float *scale, *shift, *center, *factor, *new_mean, *new_var; /* the last two may be NULL */
    /* The backward pass: its results may be NULL. */
    const float *dscale, *dshift;
    float *dgamma, *slope, *offset;
    int64_t channels, freeze;
    double count; /* elements of a channel */
    float eps;
};
void gpu_fold_correction(void *stream, const struct gpu_correction *what);
void gpu_fold_correction_bwd(void *stream, const struct gpu_correction *what);

/* ---- pool.cu ---- */
struct gpu_pool {
    enum cvy_dtype dtype;
    int64_t n, c, h, w, p, q; /* x (n,c,h,w), y (n,c,p,q) */
    int32_t kernel[2], stride[2], pad[2];
    /* The batch norm before it, whose input x is: relu of what that makes of x is pooled; NULL: x itself. */
    const float *gamma, *beta, *mean, *rstd;
    const void *more; /* backward: a second gradient of y, or NULL */
};
/* index: may be NULL */
void gpu_max_pool(void *stream, const struct gpu_pool *pool, const void *x, void *y, uint8_t *index);
void gpu_max_pool_bwd(void *stream, const struct gpu_pool *pool, const void *dy, const uint8_t *index, void *dx);
/* The same and the backward pass of the batch norm with ReLU before the pool (batch_norm.cu), whose x, gamma, beta,
 * mean, rstd, dx, dgamma and dbeta are in `norm`; dx may be x. Scratch and tickets as gpu_batch_norm_bwd's. */
void gpu_norm_pool_bwd(void *stream, const struct gpu_pool *pool, const void *dy, const uint8_t *index,
                       const struct gpu_batch_norm_bwd *norm, float *scratch, uint32_t *tickets);
/* sums (images, channels) = sum over the rows of each image of x, or of x dy where dy is given; then over `divisor`. */
void gpu_image_sums(void *stream, enum cvy_dtype dtype, const void *x, const void *dy, float *sums, int64_t images,
                    int64_t rows, int64_t channels, float divisor);
/* Each row of an image becomes values (images, channels) / divisor. */
void gpu_fill_images(void *stream, enum cvy_dtype dtype, const float *values, void *y, int64_t images, int64_t rows,
                     int64_t channels, float divisor);

/* ---- levels.cu; maps are channels-last ---- */
/* y: each pixel of x four times; dx: sums of 2 by 2. The extent is that of the small map. */
void gpu_upsample(void *stream, enum cvy_dtype dtype, const void *x, void *y, int64_t images, int64_t height,
                  int64_t width, int64_t channels);
void gpu_upsample_bwd(void *stream, enum cvy_dtype dtype, const void *dy, void *dx, int64_t images, int64_t height,
                      int64_t width, int64_t channels);
/* Maps of `map` elements each, whose rows begin at element `first` of tables of `table` elements. */
struct gpu_level {
    enum cvy_dtype dtype;
    bool to_rows; /* from the maps to the tables, or back */
    int64_t images, map, table, first;
};
void gpu_move_level(void *stream, const struct gpu_level *what, const void *x, void *y);

/* ---- scale_channels.cu ---- */
struct gpu_scale_channels {
    enum cvy_dtype dtype; /* of x, residual, y */
    int64_t images, rows, channels;
    const void *x, *residual;    /* residual: may be NULL */
    void *y;                     /* may be x */
    const float *factor, *shift; /* (images, channels); shift: may be NULL */
    float shift_factor;
    bool relu;
};
/* y = x factor + shift shift_factor + residual, ReLU */
void gpu_scale_channels(void *stream, const struct gpu_scale_channels *what);

/* ---- quantize.cu ---- */
enum { GPU_QUANTIZE_SCRATCH = 2 * 1024 + 3 }; /* floats */
struct gpu_quantize {
    enum cvy_dtype dtype; /* of x, dy, y */
    struct cvy_fake_quantize_attr attr;
    int64_t count, rows;      /* rows: of attr.channels */
    int64_t stored, channels; /* of a pixel, with and without those that fill it up */
    const void *x, *dy;
    void *y;               /* dx of the backward pass; may be x or dy */
    const float *observed; /* (3): what decides the levels */
    int steps;             /* of gpu_quantize_range: what it adds to the batches seen */
};
/* The range of x, and what becomes of the state by it: `now` (3), which may be what->observed. */
void gpu_quantize_range(void *stream, const struct gpu_quantize *what, float *now, float *scratch);
void gpu_fake_quantize(void *stream, const struct gpu_quantize *what);
void gpu_fake_quantize_bwd(void *stream, const struct gpu_quantize *what);

/* ---- update.cu ---- */
/* Segments are passed as arguments of the kernel: this many in one launch. */
enum { GPU_UPDATE_SEGMENTS = 256 };
struct gpu_update_segment {
    int64_t first, count;
    int64_t block; /* the first block that works on it; set by gpu_update_step */
    float rate, weight_decay;
};
struct gpu_update_args {
    float *weights, *momentum_buffer, *square_average; /* square_average: of RMSprop; NULL: SGD */
    const float *gradients;
    const float *learning_rate;
    float momentum, damping, gradient_scale; /* damping: 1 - dampening */
    bool nesterov;
    float alpha, fresh, epsilon; /* fresh: 1 - alpha */
    struct cvy_scaler *scaler;   /* or NULL */
    int32_t segment_count;
    struct gpu_update_segment segments[GPU_UPDATE_SEGMENTS];
};
void gpu_update_step(void *stream, struct gpu_update_args *args);
/* Sets scaler->overflow when a gradient of the segments is not finite. */
void gpu_find_overflow(void *stream, struct gpu_update_args *args);
/* The end of a step with a loss scale. */
void gpu_end_step(void *stream, struct cvy_scaler *scaler, const struct cvy_scaler_rule *rule);
/* y += x, or y += *share (x - y). */
void gpu_sum_floats(void *stream, float *y, const float *x, int64_t count);
void gpu_average_floats(void *stream, float *y, const float *x, int64_t count, const float *share);
/* Up to GPU_SMALL_UPLOAD_BYTES, which are passed as the launch's arguments. */
enum { GPU_SMALL_UPLOAD_BYTES = 64 };
void gpu_put_bytes(void *stream, void *to, const void *bytes, size_t count);
/* The largest finite size of the floats -> *bound, which has room for GPU_LARGEST_BLOCKS more after it. */
enum { GPU_LARGEST_BLOCKS = 256 };
void gpu_find_largest(void *stream, const float *x, int64_t count, float *bound);
/* Floats as f16 or bf16 and back. Where `bound` is not NULL they are multiplied by the power of two that brings numbers
 * up to *bound just below 2^15, and divided by it on the way back. */
void gpu_narrow_floats(void *stream, enum cvy_dtype dtype, uint16_t *to, float *from, int64_t count,
                       const float *bound);
void gpu_widen_floats(void *stream, enum cvy_dtype dtype, float *to, uint16_t *from, int64_t count, const float *bound);

/* ---- moments.cu ---- */
/* Mean and biased variance of `channels` over `rows`, of what walkers have summed: (walkers, 2, channels), the sums and
 * those of squares, which are added in order. */
void gpu_walkers_moments(void *stream, const float *partial, int64_t walkers, int64_t rows, int64_t channels,
                         float *mean, float *variance);
/* The same of a gradient g, and of g (x - mean): the gradients of a batch norm's parameters. */
void gpu_walkers_gradients(void *stream, const float *partial, int64_t walkers, int64_t channels, const float *rstd,
                           float *dgamma, float *dbeta);

/* ---- pointwise.cu ---- */
/* 1x1 convolutions of f16 or bf16, channels last: x (n, h, w, inputs), w (outputs, inputs), y (n, p, q, outputs);
 * inputs and outputs are multiples of 8, and there are fewer than 2^31 pixels. */
struct gpu_pointwise {
    enum cvy_dtype dtype;
    int64_t n, h, w, p, q;
    int64_t inputs, outputs;
    int32_t stride;
};
/* Floats of scratch memory. */
int64_t gpu_pointwise_scratch(const struct gpu_pointwise *what);
/* mean and variance (outputs): of what is written, over all pixels. */
void gpu_pointwise_forward(void *stream, const struct gpu_pointwise *what, const void *x, const void *w, void *y,
                           float *mean, float *variance, float *scratch);
/* The gradient of data at stride 1, for a batch norm whose output has another reader too: of `what` inputs are the
 * channels of dy, and outputs those of the rest; w (inputs, outputs). dx = (dy w + more) where a bit of sign says that
 * it passes (gpu_sign_bytes), as both are rounded to 16 bits; dx may be `more`. */
struct gpu_pointwise_gradient {
    const void *dy, *w, *x, *more; /* x: that of the batch norm */
    const uint8_t *sign;
    const float *mean, *rstd; /* (outputs) */
    void *dx;
    float *dgamma, *dbeta;
};
void gpu_pointwise_backward(void *stream, const struct gpu_pointwise *what,
                            const struct gpu_pointwise_gradient *gradient, float *scratch);

/* ---- compare.cu ---- */
/* How far `found` is from `expected`, of the elements that a block of the launch has seen. Elements of f16 whose
 * expected value is above 2^15 do not count. */
struct gpu_difference {
    float expected_square, square; /* sums of squares: of what is expected, of the differences within the limit */
    float largest;                 /* the largest difference; NaN where an element of one of them is none */
    float expected_largest;        /* magnitude */
    int64_t beyond;                /* how many differences are above the limit, or NaN */
    int64_t wrong;                 /* of these, those that no mask explains */
    int64_t at;                    /* where the largest is; -1: no element differs */
};
enum { GPU_COMPARE_BLOCKS = 264 };
/* `count` elements of f32, f16 or bf16; `blocks`: GPU_COMPARE_BLOCKS results on the device, for the host to add up.
 * Above the limit is an element that is off by more than it and two units in the last place of its 16 bits. A mask
 * explains a difference of up to `explained`, and where it makes zeros itself (`masked`), one between zero and another
 * number. */
void gpu_compare(void *stream, enum cvy_dtype dtype, const void *expected, const void *found, int64_t count,
                 float limit, float explained, bool masked, struct gpu_difference *blocks);

/* ---- crop.cu ---- */
/* Parts of images of R, G and B, resized and mirrored: Pillow's arithmetic, as data/image/resize.c has it. */
struct gpu_crop_axis {
    double origin, extent;               /* of the source, which the full result shows */
    int32_t size, out, first, count, at; /* as in struct cvy_resize_axis */
    int32_t from, lines;                 /* positions of the source that the results read */
    int32_t most;                        /* weights of a result, at most */
    int32_t *table;                      /* (count, 2 + most): the first position, how many, their weights */
};
struct gpu_crop {
    const uint8_t *source; /* rows `stride` bytes apart */
    int64_t stride;
    uint8_t *rows; /* (down.lines, across.count, 3): after the horizontal pass */
    uint8_t *to;   /* (side, side, 3) */
    struct gpu_crop_axis across, down;
    bool cubic, antialiased, flip;
};
/* Sets from, lines and most of an axis. */
void gpu_crop_measure(struct gpu_crop_axis *axis, bool cubic, bool antialiased);
/* `crops`, `count` of them: of the device. `rows`: the most pixels that are after the horizontal pass of one of them.
 */
void gpu_crop(void *stream, const struct gpu_crop *crops, int32_t count, int32_t side, int64_t rows);

#ifdef __cplusplus
}
#endif

#endif
