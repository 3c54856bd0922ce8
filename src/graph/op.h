/* The vocabulary of operations: names, attributes, and the meaning of every input and output. The rules (shape,
 * gradient, FLOPs) live in ops/, the arithmetic in backend/. */
#ifndef CVY_GRAPH_OP_H
#define CVY_GRAPH_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"

/* Inputs -> outputs of every op. N batch, C channels, K outputs; "[x]" is optional (CVY_NONE when absent).
 * A gradient has the shape of what it is the gradient of. */
enum cvy_op {
    CVY_OP_NORMALIZE,          /* image u8 or f32 (N,C,H,W) stored NHWC, [partner i32 (N), coefficient (N)] -> (N,C,H,W)
                                * y[n] = x[n], x = (image - mean[c]) / std[c]; mixed with another image where a partner
                                * is given: coefficient[n] * x[n] + (1 - coefficient[n]) * x[partner[n]] */
    CVY_OP_CAST,               /* x -> the same in attr.cast.dtype */
    CVY_OP_REORDER,            /* x -> the same values in another layout; only planning makes these */
    CVY_OP_CONV2D,             /* x (N,C,H,W), w (K,C/g,R,S), [bias (K)], [residual (N,K,P,Q)],
                                * [gamma, beta, mean, rstd (C)] -> y (N,K,P,Q), [mean (K), variance (K)]
                                * with the last four inputs, of the batch norm in front of it, x is first made
                                * relu((x - mean) * rstd * gamma + beta): only rewrites make these;
                                * y = conv(x,w) + bias + residual, then attr.conv2d.activation; mean and biased
                                * variance of y over the batch, for the batch norm behind it; they have no gradient of
                                * their own, since the batch norm's counts them in */
    CVY_OP_CONV2D_BWD_DATA,    /* w, dy, [x (N,C,H,W), gamma, beta, mean, rstd (C)] -> dx, [dgamma, dbeta (C)]
                                * with the batch norm and ReLU in front of the convolution, whose input is x: dx is
                                * masked by the ReLU, and dgamma and dbeta are that batch norm's */
    CVY_OP_CONV2D_BWD_WEIGHTS, /* x, dy, [gamma, beta, mean, rstd (C)] -> dw; x made as in CONV2D */
    CVY_OP_CONV2D_BWD_BIAS,    /* dy -> dbias (K) */
    CVY_OP_BATCH_NORM,       /* training: x (N,C,H,W) or (N,C), gamma, beta, running_mean, running_var (C), [residual],
                              * [mean, variance of x (C)] -> y, mean (C), rstd (C), new running_mean, new running_var
                              * y = (x - mean) * rstd * gamma + beta (+ residual), then attr.batch_norm.activation;
                              * mean and biased variance over the batch, computed unless given; rstd = 1 / sqrt(var + eps);
                              * where they are given y may be absent: its readers make it themselves;
                              * new = (1 - momentum) * old + momentum * (mean | unbiased variance) */
    CVY_OP_BATCH_NORM_BWD,   /* x, gamma, beta, mean, rstd, dy, [y], [more dy], [dgamma, dbeta]
                              * -> dx, dgamma, dbeta, [dresidual]
                              * the gradient of y is dy + more dy (its two readers');
                              * with an activation dy is masked first: it stays where y > 0, and y < 6 of ReLU6. y is
                              * given in the residual form, else it is the recomputed (x - mean) * rstd * gamma + beta;
                              * dresidual = masked dy;
                              * where dgamma and dbeta are given, dy is masked already and dx the only output */
    CVY_OP_BATCH_NORM_APPLY, /* x, gamma, beta, mean, rstd, [residual] -> y = (x - mean) * rstd * gamma + beta
                              * (+ residual), then attr.batch_norm.activation: the y of BATCH_NORM again, bit for bit */
    CVY_OP_BATCH_NORM_INFERENCE,     /* x, gamma, beta, running_mean, running_var, [residual] -> y */
    CVY_OP_BATCH_NORM_INFERENCE_BWD, /* dy, gamma, running_var -> dx = dy * gamma / sqrt(var + eps) */
    CVY_OP_FOLD_BATCH_NORM,          /* w, gamma, beta, running_mean, running_var, [conv bias] -> w', bias'
                                      * w' = w * gamma / sqrt(var + eps), bias' = beta + (bias - mean) * gamma / sqrt(var + eps)
                                      */
    CVY_OP_RELU,                     /* x -> max(x, 0); NaN stays NaN */
    CVY_OP_RELU_BWD,                 /* y, dy -> y > 0 ? dy : 0 */
    CVY_OP_RELU6,                    /* x -> min(max(x, 0), 6); NaN stays NaN */
    CVY_OP_RELU6_BWD,                /* y, dy -> 0 < y < 6 ? dy : 0 */
    CVY_OP_SIGMOID,                  /* x -> 1 / (1 + exp(-x)); NaN stays NaN */
    CVY_OP_SIGMOID_BWD,              /* y, dy -> dy * y * (1 - y) */
    CVY_OP_ADD,                      /* a, b -> a + b, then ReLU when attr.add.relu */
    CVY_OP_FAKE_QUANTIZE,       /* x, observed (3) -> y, [new observed]: x rounded to the levels of 8 bits. observed:
                                 * lowest and highest value seen, batches seen. The levels follow from the new one; where
                                 * that is absent from the given one, of weights from x itself. graph/quantizer.h has
                                 * the formulas. */
    CVY_OP_FAKE_QUANTIZE_BWD,   /* x, observed, dy -> dx = dy where x rounds to a level, 0 where it was cut */
    CVY_OP_MAX_POOL,            /* x -> y, index u8 (shape of y): position of the maximum in the window, r * S + s, the
                                 * first in row order among equals; padding never wins; a NaN wins */
    CVY_OP_MAX_POOL_BWD,        /* dy, index -> dx (shape in attr.pool.input) */
    CVY_OP_GLOBAL_AVG_POOL,     /* x (N,C,H,W) -> (N,C) */
    CVY_OP_GLOBAL_AVG_POOL_BWD, /* dy (N,C) -> dx (N,C,H,W), extent in attr.pool.input */
    CVY_OP_SCALE_CHANNELS,      /* x (N,C,H,W), s (N,C), [shift (N,C)], [residual (N,C,H,W)] -> y (N,C,H,W)
                                 * y[n,c,h,w] = x[n,c,h,w] * s[n,c] + shift[n,c] * attr.scale_channels.shift_factor
                                 * (+ residual), then ReLU when attr.scale_channels.relu; on dy and s it gives dx */
    CVY_OP_SCALE_CHANNELS_BWD_SCALE,  /* x, dy -> ds (N,C) = sum over h, w of x * dy */
    CVY_OP_LINEAR,                    /* x (N,C), w (K,C) or (K,C,1,1), [bias (K)] -> y (N,K) = x w^T + bias */
    CVY_OP_LINEAR_BWD_DATA,           /* w, dy -> dx */
    CVY_OP_LINEAR_BWD_WEIGHTS,        /* x, dy -> dw, [dbias] */
    CVY_OP_SOFTMAX,                   /* logits (N,K) -> probabilities (N,K) */
    CVY_OP_SOFTMAX_CROSS_ENTROPY,     /* logits (N,K), target: labels i32 (N) or soft targets (N,K),
                                       * [partner i32 (N), coefficient (N)], [class weights w (K)]
                                       * -> loss scalar = sum over n, k of -q_nk log p_nk, over D; probabilities (N,K)
                                       * q_nk = w_k * ((1 - s) * t_nk + s / K), s = attr.loss.smoothing, w = 1 if absent
                                       * t: soft targets, or one-hot for labels; mixed where a partner is given:
                                       * coefficient[n] * t[n] + (1 - coefficient[n]) * t[partner[n]]
                                       * D = N, but sum over n, k of w_k * t_nk where labels have class weights: the
                                       * weighted mean, as PyTorch has it for labels and for soft targets */
    CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD, /* probabilities, target, dloss scalar, [partner, coefficient], [class weights]
                                       * -> dlogits = dloss * (p * sum_k q - q) / D */
    /* Detection of objects: R rows of truth for each image, A anchors (attr.anchors, attr.detect.anchors), boxes
     * [ymin, xmin, ymax, xmax] as shares of the image, codes as in graph/boxes.h. */
    CVY_OP_DETECTION_MATCH,    /* boxes (N,R,4), labels i32 (N,R): 1 and up, 0 no box
                                * -> classes i32 (N,A), targets (N,A,4), positives scalar
                                * classes: the label of the box that an anchor is to find, 0 if none; targets: the codes
                                * of that box, else 0; positives: max(anchors with a box, 1). An anchor finds the box
                                * that it overlaps most, where that is by 0.5 or more; whatever the rest says, each box
                                * is found by the anchor that overlaps it most. Lowest index first among equals, boxes
                                * and anchors alike. */
    CVY_OP_FOCAL_LOSS,         /* logits (N,A,K), classes i32 (N,A) in 0..K - 1, positives scalar -> loss scalar
                                * sum over n, a, k of -alpha (1 - q)^2 log q, over positives; p = sigmoid(logit);
                                * where k is the anchor's class and not 0: q = p, alpha = 0.25,
                                * elsewhere q = 1 - p, alpha = 0.75 */
    CVY_OP_FOCAL_LOSS_BWD,     /* logits, classes, positives, dloss scalar -> dlogits */
    CVY_OP_SMOOTH_L1_LOSS,     /* codes (N,A,4), targets (N,A,4), classes i32 (N,A), positives scalar -> loss scalar
                                * sum of (|d| <= 1 ? d^2 / 2 : |d| - 1/2) over the codes of anchors with a class, over
                                * 4 positives; d = code - target, 0 where the target is NaN */
    CVY_OP_SMOOTH_L1_LOSS_BWD, /* codes, targets, classes, positives, dloss scalar -> dcodes */
    CVY_OP_L2_LOSS,            /* [term scalar], w, [more w] -> scalar = term + attr.l2_loss.factor / 2 * sum of w^2 */
    CVY_OP_DETECT,             /* codes (N,A,4), logits (N,A,K), column 0 background
                                * -> boxes (N,T,4), scores (N,T), classes i32 (N,T), count i32 (N), T = attr.detect.most
                                * Of each class c = column - 1 the boxes that non-maximum suppression leaves; of all
                                * classes the T of highest score that have an area inside the image, clipped to it;
                                * zeros behind the count. Equal scores: lower class, then lower anchor. */
    CVY_OP_UPSAMPLE,           /* x (N,C,H,W) -> y (N,C,2H,2W), y[n,c,h,w] = x[n,c,h/2,w/2]: the nearest neighbour */
    CVY_OP_UPSAMPLE_BWD,       /* dy (N,C,2H,2W) -> dx (N,C,H,W): sums of 2 by 2 */
    CVY_OP_FLATTEN_LEVELS,     /* up to CVY_MAX_MAPS maps (N,A*K,H,W), each of its own extent -> rows (N,R,K), K =
                                * attr.levels.columns: first those of the first map, of which channel a * K + k at (h,w)
                                * is row (h * W + w) * A + a, column k; then those of the second, ... */
    CVY_OP_FLATTEN_LEVELS_BWD, /* drows (N,R,K) -> the gradient of each map */
    CVY_OP_COUNT
};

#define CVY_MAX_INPUTS  10
#define CVY_MAX_OUTPUTS 6
#define CVY_MAX_MAPS    5

/* Anchors of a pyramid of feature maps: level l has ceil(extent / 2^l) rows and columns of locations, and each location
 * every aspect at every scale, aspects outermost (ops/anchors.h). */
#define CVY_MAX_LEVELS  8
#define CVY_MAX_ASPECTS 4
#define CVY_MAX_SCALES  4
struct cvy_anchors {
    int32_t image[2]; /* height, width in pixels */
    int32_t first_level, levels;
    int32_t scales; /* for each octave: 2^(i / scales) */
    int32_t aspect_count;
    float aspects[CVY_MAX_ASPECTS]; /* width / height */
    float size;                     /* side of the square anchor of scale 1, in strides */
};

/* What convolutions and batch norms do to their sums at last: nothing, max(y, 0), min(max(y, 0), 6). */
enum cvy_activation { CVY_ACTIVATION_NONE, CVY_ACTIVATION_RELU, CVY_ACTIVATION_RELU6 };

/* As a part of longer texts: "", " relu", " relu6". */
static inline const char *cvy_activation_text(enum cvy_activation activation)
{
    return activation == CVY_ACTIVATION_RELU ? " relu" : activation == CVY_ACTIVATION_RELU6 ? " relu6" : "";
}

/* Padding is given per side; the zero-initialised attribute is not usable: builders fill in the defaults. */
struct cvy_conv2d_attr {
    int32_t kernel[2], stride[2], dilation[2]; /* height, width; dilation 1 = dense */
    int32_t pad[4];                            /* top, bottom, left, right */
    int32_t groups;
    enum cvy_activation activation;
    int32_t input[2]; /* extent of x, for the backward pass */
};
struct cvy_batch_norm_attr {
    float eps, momentum;
    enum cvy_activation activation;
};
struct cvy_pool_attr {
    int32_t kernel[2], stride[2], pad[4];
    int32_t input[2]; /* extent of x, for the backward pass */
};
struct cvy_normalize_attr {
    float mean[4], std[4];
};
struct cvy_fake_quantize_attr {
    bool symmetric; /* zero is the middle level; else the levels reach from the lowest to the highest value */
    bool weights;   /* the range is that of this tensor, else a moving average over the batches */
    int64_t delay;  /* batches before values are rounded */
};
struct cvy_detect_attr {
    struct cvy_anchors anchors;
    float iou;          /* a box that overlaps a better one of its class by more is left out */
    float score;        /* only scores above it count */
    int32_t most_class; /* boxes of a class, before the clipping */
    int32_t most;       /* boxes of an image */
};
union cvy_attr {
    struct cvy_conv2d_attr conv2d;
    struct cvy_batch_norm_attr batch_norm;
    struct cvy_pool_attr pool;
    struct cvy_normalize_attr normalize;
    struct {
        enum cvy_dtype dtype;
    } cast;
    struct {
        bool relu;
    } add;
    struct {
        double shift_factor; /* counts where there is a shift; double, since 1 / (H * W) must be exact enough for f64 */
        bool relu;
    } scale_channels;
    struct cvy_fake_quantize_attr fake_quantize;
    struct {
        float smoothing;
    } loss;
    struct cvy_anchors anchors; /* of DETECTION_MATCH */
    struct {
        float factor;
    } l2_loss;
    struct cvy_detect_attr detect;
    struct {
        int32_t columns;
    } levels;
};

#endif
