/* The vocabulary of operations: names and attributes; graph/ops.def has the meaning of every input and output. The
 * rules (shape, gradient, FLOPs) live in ops/, the arithmetic in backend/. */
#ifndef CVY_GRAPH_OP_H
#define CVY_GRAPH_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"

/* CVY_OP_NORMALIZE, ...: in the order of graph/ops.def, which says what each op computes. */
enum cvy_op {
#define CVY_OP(ID, name, ...) CVY_OP_##ID,
#include "graph/ops.def"
    CVY_OP_COUNT
};

#define CVY_MAX_INPUTS  14
#define CVY_MAX_TERMS   10 /* inputs of an L2_LOSS */
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

/* The activation applied at the end of convolutions and batch norms: none, max(y, 0), min(max(y, 0), 6). */
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
    int64_t freeze; /* of FOLD_CORRECTION: batches after which the running statistics count alone; 0: never */
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
    bool channels;  /* symmetric weights: each row (output channel) has the range and the scale of its own values */
    bool positive;  /* symmetric, not weights: no value is below zero, and all 255 levels lie above it */
    bool ends;      /* no gradient beyond the lowest and the highest level, of weights neither; else half a level wider,
                     * and that of weights passes */
    bool straight;  /* every gradient passes */
    int64_t delay;  /* batches before values are rounded */
};
/* What bytes stand for: value = (byte - zero) * scale; scale 0: floats (graph/int8.h). */
struct cvy_int8_levels {
    float scale;
    int32_t zero;
};
/* For every op of integer inference, which uses what it needs. */
struct cvy_int8_attr {
    struct cvy_conv2d_attr conv2d; /* the window of max pools too, and the activation of additions */
    struct cvy_normalize_attr normalize;
    struct cvy_int8_levels x, y;
    struct cvy_int8_levels middle;   /* what a convolution's result is rounded to before the addition; scale 0: none */
    struct cvy_int8_levels residual; /* of what is added */
};
struct cvy_detect_attr {
    struct cvy_anchors anchors;
    float iou;             /* a box that overlaps a better one of its class by more is left out */
    float score;           /* only scores above it count */
    int32_t max_per_class; /* boxes of a class, before the clipping */
    int32_t max_boxes;     /* boxes of an image */
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
    struct cvy_int8_attr int8;
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
