/* What the files of ops/ share: checks used by shape rules, and the rows' functions for the table in table.c. */
#ifndef CVY_OPS_RULES_H
#define CVY_OPS_RULES_H

#include "base/error.h"
#include "ops/ops.h"

/* Whether `x` is a value of a float type with the given rank; records "<op> needs ..." otherwise. */
bool cvy_rule_float(struct cvy_graph *graph, const char *op, const char *what, cvy_val x, int32_t rank);
/* Whether `value` has this shape and the type of `like`. */
bool cvy_rule_same(struct cvy_graph *graph, const char *op, const char *what, cvy_val value, struct cvy_shape shape,
                   cvy_val like);
/* Output extent of a window that slides over one padded dimension; 0 (and the error recorded) when it does not fit or
 * an argument is impossible. */
int64_t cvy_rule_window(struct cvy_graph *graph, const char *op, int64_t input, int32_t kernel, int32_t stride,
                        int32_t dilation, int32_t pad_before, int32_t pad_after);
/* Adds a node with one output; returns that output. */
cvy_val cvy_rule_node(struct cvy_graph *graph, enum cvy_op op, const union cvy_attr *attr, int32_t inputs,
                      const cvy_val *in, struct cvy_shape shape, enum cvy_dtype dtype);
/* The same with the shape and type of an existing value: what a gradient looks like. */
cvy_val cvy_rule_gradient_node(struct cvy_graph *graph, enum cvy_op op, const union cvy_attr *attr, int32_t inputs,
                               const cvy_val *in, cvy_val like);
/* Whether `mix` is absent, or pairs the samples of a batch of `batch` with coefficients of `dtype`. */
bool cvy_rule_mix(struct cvy_graph *graph, const char *op, struct cvy_mix_values mix, int64_t batch,
                  enum cvy_dtype dtype);
/* A node of one input, of a float type and any shape, whose output looks like it. */
cvy_val cvy_rule_unary(struct cvy_graph *graph, enum cvy_op op, cvy_val x);
/* dout where y > 0, of ReLU6 where 0 < y < 6: the gradient before an activation whose output is y; dout itself without
 * one. */
cvy_val cvy_activation_mask(struct cvy_graph *graph, enum cvy_activation activation, cvy_val y, cvy_val dout);
/* Elements of a value for one sample; 0 for CVY_NONE. */
double cvy_rule_elements(const struct cvy_graph *graph, cvy_val value);
/* FLOPs of ops that do one operation for each element of their first output. */
double cvy_elementwise_flops(const struct cvy_graph *graph, const struct cvy_node *node);

#define CVY_GRADIENT_RULE(name)                                                                                        \
    void name(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need, cvy_val *din)
#define CVY_FLOPS_RULE(name) double name(const struct cvy_graph *graph, const struct cvy_node *node)

CVY_FLOPS_RULE(cvy_normalize_flops);
CVY_GRADIENT_RULE(cvy_cast_gradient);
CVY_GRADIENT_RULE(cvy_conv2d_gradient);
CVY_FLOPS_RULE(cvy_conv2d_flops);
CVY_FLOPS_RULE(cvy_conv2d_bwd_data_flops);
CVY_FLOPS_RULE(cvy_conv2d_bwd_weights_flops);
CVY_FLOPS_RULE(cvy_conv2d_bwd_bias_flops);
CVY_GRADIENT_RULE(cvy_batch_norm_gradient);
CVY_GRADIENT_RULE(cvy_batch_norm_inference_gradient);
CVY_FLOPS_RULE(cvy_batch_norm_flops);
CVY_FLOPS_RULE(cvy_batch_norm_bwd_flops);
CVY_FLOPS_RULE(cvy_batch_norm_apply_flops);
CVY_FLOPS_RULE(cvy_fold_batch_norm_flops);
CVY_GRADIENT_RULE(cvy_relu_gradient);
CVY_GRADIENT_RULE(cvy_relu6_gradient);
CVY_GRADIENT_RULE(cvy_sigmoid_gradient);
CVY_FLOPS_RULE(cvy_sigmoid_flops);
CVY_FLOPS_RULE(cvy_sigmoid_bwd_flops);
CVY_GRADIENT_RULE(cvy_add_gradient);
CVY_FLOPS_RULE(cvy_add_flops);
CVY_GRADIENT_RULE(cvy_fake_quantize_gradient);
CVY_FLOPS_RULE(cvy_fake_quantize_flops);
CVY_FLOPS_RULE(cvy_fake_quantize_bwd_flops);
CVY_GRADIENT_RULE(cvy_max_pool_gradient);
CVY_FLOPS_RULE(cvy_max_pool_flops);
CVY_FLOPS_RULE(cvy_max_pool_bwd_flops);
CVY_GRADIENT_RULE(cvy_global_avg_pool_gradient);
CVY_FLOPS_RULE(cvy_global_avg_pool_flops);
CVY_GRADIENT_RULE(cvy_scale_channels_gradient);
CVY_FLOPS_RULE(cvy_scale_channels_flops);
CVY_FLOPS_RULE(cvy_scale_channels_bwd_scale_flops);
CVY_GRADIENT_RULE(cvy_linear_gradient);
CVY_FLOPS_RULE(cvy_linear_flops);
CVY_FLOPS_RULE(cvy_linear_bwd_data_flops);
CVY_FLOPS_RULE(cvy_linear_bwd_weights_flops);
CVY_FLOPS_RULE(cvy_softmax_flops);
CVY_GRADIENT_RULE(cvy_softmax_cross_entropy_gradient);
CVY_FLOPS_RULE(cvy_softmax_cross_entropy_flops);
CVY_FLOPS_RULE(cvy_softmax_cross_entropy_bwd_flops);
CVY_FLOPS_RULE(cvy_detection_match_flops);
CVY_GRADIENT_RULE(cvy_focal_loss_gradient);
CVY_FLOPS_RULE(cvy_focal_loss_flops);
CVY_FLOPS_RULE(cvy_focal_loss_bwd_flops);
CVY_GRADIENT_RULE(cvy_smooth_l1_loss_gradient);
CVY_FLOPS_RULE(cvy_smooth_l1_loss_flops);
CVY_FLOPS_RULE(cvy_smooth_l1_loss_bwd_flops);
CVY_FLOPS_RULE(cvy_l2_loss_flops);
CVY_FLOPS_RULE(cvy_detect_flops);
CVY_GRADIENT_RULE(cvy_upsample_gradient);
CVY_FLOPS_RULE(cvy_upsample_bwd_flops);
CVY_GRADIENT_RULE(cvy_flatten_levels_gradient);

#endif
