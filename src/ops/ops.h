/* Builders of every op (each in a file of its own, beside its shape rule, gradient and FLOPs) and the op table.
 * Every builder returns the first output; CVY_NONE once the graph has failed. */
#ifndef CVY_OPS_OPS_H
#define CVY_OPS_OPS_H

#include "graph/graph.h"

/* One row for each enum cvy_op, in its order. */
extern const struct cvy_op_info cvy_ops[CVY_OP_COUNT];
/* The input whose memory the first output may take over (struct cvy_op_info); -1: none. */
int32_t cvy_op_in_place(enum cvy_op op);

/* Options are structs; zero means the default named beside the field. */
struct cvy_conv2d {
    int32_t out;                                        /* output channels */
    int32_t kernel;                                     /* square; or kernel_hw */
    int32_t stride;                                     /* 1 */
    int32_t pad;                                        /* 0, on every side; or pads */
    int32_t dilation;                                   /* 1 */
    int32_t groups;                                     /* 1 */
    int32_t kernel_hw[2], stride_hw[2], dilation_hw[2]; /* used where not zero */
    int32_t pads[4];                                    /* top, bottom, left, right, used where `use_pads` */
    bool use_pads;
    bool bias;                 /* adds parameter "bias" */
    struct cvy_init init;      /* of the weight */
    struct cvy_init bias_init; /* zero */
};
/* Parameters "weight" (out, C / groups, R, S) and, if asked for, "bias", under the current scope. */
cvy_val cvy_conv2d(struct cvy_graph *graph, cvy_val x, const struct cvy_conv2d *options);
/* The bare op over given values; w (K,C/g,R,S); bias, residual may be CVY_NONE. */
cvy_val cvy_conv2d_values(struct cvy_graph *graph, cvy_val x, cvy_val w, cvy_val bias, cvy_val residual,
                          const struct cvy_conv2d_attr *options);

struct cvy_batch_norm {
    float eps;       /* 1e-5 */
    float momentum;  /* 0.1 */
    bool gamma_zero; /* start gamma at 0 */
};
/* Parameters weight, bias, running_mean, running_var, num_batches_tracked under the current scope. Training or
 * inference form by graph->training. In training the new running statistics become results, unless weight and bias are
 * frozen: then the form is that of inference, and the statistics and their counter stay. */
cvy_val cvy_batch_norm(struct cvy_graph *graph, cvy_val x, const struct cvy_batch_norm *options);

cvy_val cvy_normalize(struct cvy_graph *graph, cvy_val image, const float mean[3], const float std[3]);
/* The samples of a batch mixed in pairs (op.h): partner i32 (N), each in 0..N - 1, coefficient (N); both CVY_NONE: not
 * mixed. */
struct cvy_mix_values {
    cvy_val partner, coefficient;
};
cvy_val cvy_normalize_mixed(struct cvy_graph *graph, cvy_val image, struct cvy_mix_values mix, const float mean[3],
                            const float std[3]);
cvy_val cvy_cast(struct cvy_graph *graph, cvy_val x, enum cvy_dtype dtype);
/* y = f(x), element by element: cvy_relu(graph, x), cvy_relu6, cvy_sigmoid; graph/ops.def has the formulas. */
#define CVY_OP(...)
#define CVY_OP_UNARY(ID, name, ...) cvy_val cvy_##name(struct cvy_graph *graph, cvy_val x);
#include "graph/ops.def"
/* x through a quantizer of this name (graph/graph.h: cvy_graph_quantizer). */
cvy_val cvy_fake_quantize(struct cvy_graph *graph, cvy_val x, const char *name,
                          const struct cvy_fake_quantize_attr *options);
cvy_val cvy_add(struct cvy_graph *graph, cvy_val a, cvy_val b);
struct cvy_max_pool {
    int32_t kernel;  /* 16 at most */
    int32_t stride;  /* the kernel */
    int32_t pad;     /* 0 */
    int32_t pads[4]; /* top, bottom, left, right, used where `use_pads` */
    bool use_pads;
};
cvy_val cvy_max_pool(struct cvy_graph *graph, cvy_val x, const struct cvy_max_pool *options);
cvy_val cvy_global_avg_pool(struct cvy_graph *graph, cvy_val x);
/* x (N,C,H,W) -> (N,C,2H,2W), each pixel four times. */
cvy_val cvy_upsample(struct cvy_graph *graph, cvy_val x);
/* Maps (N, A * columns, H, W) of several extents -> (N, all rows, columns); op.h has the order. */
cvy_val cvy_flatten_levels(struct cvy_graph *graph, int32_t levels, const cvy_val *maps, int32_t columns);
/* x (N,C,H,W) times s (N,C), one factor for each channel of each image. */
cvy_val cvy_scale_channels(struct cvy_graph *graph, cvy_val x, cvy_val s);
struct cvy_linear {
    int32_t out;
    bool as_1x1;                 /* a weight of (out, C, 1, 1) instead of (out, C) */
    const struct cvy_init *init; /* of the weight, with a bias of 0; NULL: both uniform(-1/sqrt(C), 1/sqrt(C)) */
};
/* Parameters "weight" and "bias" (out) under the current scope. */
cvy_val cvy_linear_from(struct cvy_graph *graph, cvy_val x, const struct cvy_linear *options);
/* Parameters "weight" (out, C) and "bias" (out), uniform(-1/sqrt(C), 1/sqrt(C)). */
cvy_val cvy_linear(struct cvy_graph *graph, cvy_val x, int32_t out);
/* The same with a weight of (out, C, 1, 1): the shape under which files keep a linear layer written as a 1x1
 * convolution over one pixel. */
cvy_val cvy_linear_1x1(struct cvy_graph *graph, cvy_val x, int32_t out);
cvy_val cvy_softmax(struct cvy_graph *graph, cvy_val logits);
/* `target` is i32 (N) labels or float (N,K) soft targets. The loss; probabilities are its second output. */
cvy_val cvy_softmax_cross_entropy(struct cvy_graph *graph, cvy_val logits, cvy_val target, float smoothing);
/* The same with mixed targets, and with a factor for each class, class_weights (K), or CVY_NONE. */
cvy_val cvy_softmax_cross_entropy_mixed(struct cvy_graph *graph, cvy_val logits, cvy_val target,
                                        struct cvy_mix_values mix, cvy_val class_weights, float smoothing);

/* ---- detection of objects (op.h says what each computes) ---- */
/* boxes f32 (N,R,4), labels i32 (N,R). */
struct cvy_match_values {
    cvy_val classes, targets, positives;
};
struct cvy_match_values cvy_detection_match(struct cvy_graph *graph, cvy_val boxes, cvy_val labels,
                                            const struct cvy_anchors *anchors);
/* Losses: scalars. */
cvy_val cvy_focal_loss(struct cvy_graph *graph, cvy_val logits, cvy_val classes, cvy_val positives);
cvy_val cvy_smooth_l1_loss(struct cvy_graph *graph, cvy_val codes, cvy_val targets, cvy_val classes, cvy_val positives);
/* factor / 2 times the sum of the squares of `count` values, for reports: it has no gradient (weight decay is the
 * optimizer's). A chain of nodes, since one takes this many inputs and no more. */
cvy_val cvy_l2_loss(struct cvy_graph *graph, const cvy_val *weights, int32_t count, float factor);
struct cvy_detect {
    float iou;             /* 0.6: boxes of one class that overlap by more are one */
    float score;           /* 1e-8: what does not score more is no box */
    int32_t max_per_class; /* 100 boxes of one class */
    int32_t max_boxes;     /* 100 boxes of one image */
};
struct cvy_detect_values {
    cvy_val boxes, scores, classes, count;
};
/* `options` may be NULL. */
struct cvy_detect_values cvy_detect(struct cvy_graph *graph, cvy_val codes, cvy_val logits,
                                    const struct cvy_anchors *anchors, const struct cvy_detect *options);

/* FLOPs of one node for one sample (multiply-add = 2). */
double cvy_node_flops(const struct cvy_graph *graph, const struct cvy_node *node);
/* Multiply-adds of the convolutions and linear layers for one image. */
double cvy_graph_macs(const struct cvy_graph *graph);

#endif
