/* The table of operations. */
#include "ops/rules.h"

/* Slots that stay f32 among 16-bit floats. */
#define SLOT(i)         (1U << (i))
#define SLOTS(from, to) ((2U << (to)) - (1U << (from)))
#define ALL             (~0U)

const struct cvy_op_info cvy_ops[CVY_OP_COUNT] = {
    /* op, name, inputs from-to, outputs from-to, gradient, FLOPs, inputs and outputs in f32, follows its inputs */
    [CVY_OP_NORMALIZE] = {"normalize", 1, 3, 1, 1, NULL, cvy_normalize_flops, SLOT(0) | SLOT(2), 0, false},
    [CVY_OP_CAST] = {"cast", 1, 1, 1, 1, cvy_cast_gradient, NULL, 0, 0, true},
    [CVY_OP_REORDER] = {"reorder", 1, 1, 1, 1, NULL, NULL, 0, 0, true},
    [CVY_OP_CONV2D] = {"conv2d", 2, 8, 1, 3, cvy_conv2d_gradient, cvy_conv2d_flops, SLOT(2) | SLOTS(4, 7), SLOTS(1, 2),
                       false},
    [CVY_OP_CONV2D_BWD_DATA] = {"conv2d_bwd_data", 2, 7, 1, 3, NULL, cvy_conv2d_bwd_data_flops, SLOTS(3, 6),
                                SLOTS(1, 2), false},
    [CVY_OP_CONV2D_BWD_WEIGHTS] = {"conv2d_bwd_weights", 2, 6, 1, 1, NULL, cvy_conv2d_bwd_weights_flops, SLOTS(2, 5),
                                   SLOT(0), false},
    [CVY_OP_CONV2D_BWD_BIAS] = {"conv2d_bwd_bias", 1, 1, 1, 1, NULL, cvy_conv2d_bwd_bias_flops, 0, SLOT(0), false},
    [CVY_OP_BATCH_NORM] = {"batch_norm", 5, 8, 5, 5, cvy_batch_norm_gradient, cvy_batch_norm_flops,
                           SLOTS(1, 4) | SLOTS(6, 7), SLOTS(1, 4), false},
    [CVY_OP_BATCH_NORM_BWD] = {"batch_norm_bwd", 6, 10, 3, 4, NULL, cvy_batch_norm_bwd_flops, SLOTS(1, 4) | SLOTS(8, 9),
                               SLOTS(1, 2), false},
    [CVY_OP_BATCH_NORM_APPLY] = {"batch_norm_apply", 5, 6, 1, 1, NULL, cvy_batch_norm_apply_flops, SLOTS(1, 4), 0,
                                 false},
    [CVY_OP_BATCH_NORM_INFERENCE] = {"batch_norm_inference", 5, 6, 1, 1, cvy_batch_norm_inference_gradient,
                                     cvy_batch_norm_apply_flops, SLOTS(1, 4), 0, false},
    [CVY_OP_BATCH_NORM_INFERENCE_BWD] = {"batch_norm_inference_bwd", 3, 3, 1, 1, NULL, cvy_elementwise_flops,
                                         SLOTS(1, 2), 0, false},
    [CVY_OP_FOLD_BATCH_NORM] = {"fold_batch_norm", 5, 6, 2, 2, NULL, cvy_fold_batch_norm_flops, ALL, ALL, false},
    [CVY_OP_RELU] = {"relu", 1, 1, 1, 1, cvy_relu_gradient, cvy_elementwise_flops, 0, 0, true},
    [CVY_OP_RELU_BWD] = {"relu_bwd", 2, 2, 1, 1, NULL, cvy_elementwise_flops, 0, 0, true},
    [CVY_OP_RELU6] = {"relu6", 1, 1, 1, 1, cvy_relu6_gradient, cvy_elementwise_flops, 0, 0, true},
    [CVY_OP_RELU6_BWD] = {"relu6_bwd", 2, 2, 1, 1, NULL, cvy_elementwise_flops, 0, 0, true},
    [CVY_OP_SIGMOID] = {"sigmoid", 1, 1, 1, 1, cvy_sigmoid_gradient, cvy_sigmoid_flops, 0, 0, true},
    [CVY_OP_SIGMOID_BWD] = {"sigmoid_bwd", 2, 2, 1, 1, NULL, cvy_sigmoid_bwd_flops, 0, 0, true},
    [CVY_OP_ADD] = {"add", 2, 2, 1, 1, cvy_add_gradient, cvy_add_flops, 0, 0, true},
    [CVY_OP_FAKE_QUANTIZE] = {"fake_quantize", 2, 2, 1, 2, cvy_fake_quantize_gradient, cvy_fake_quantize_flops, SLOT(1),
                              SLOT(1), true},
    [CVY_OP_FAKE_QUANTIZE_BWD] = {"fake_quantize_bwd", 3, 3, 1, 1, NULL, cvy_fake_quantize_bwd_flops, SLOT(1), 0, true},
    [CVY_OP_MAX_POOL] = {"max_pool", 1, 1, 2, 2, cvy_max_pool_gradient, cvy_max_pool_flops, 0, 0, false},
    [CVY_OP_MAX_POOL_BWD] = {"max_pool_bwd", 2, 2, 1, 1, NULL, cvy_max_pool_bwd_flops, 0, 0, false},
    [CVY_OP_GLOBAL_AVG_POOL] = {"global_avg_pool", 1, 1, 1, 1, cvy_global_avg_pool_gradient, cvy_global_avg_pool_flops,
                                0, ALL, false},
    [CVY_OP_GLOBAL_AVG_POOL_BWD] = {"global_avg_pool_bwd", 1, 1, 1, 1, NULL, cvy_elementwise_flops, ALL, 0, false},
    [CVY_OP_SCALE_CHANNELS] = {"scale_channels", 2, 4, 1, 1, cvy_scale_channels_gradient, cvy_scale_channels_flops,
                               SLOTS(1, 2), 0, false},
    [CVY_OP_SCALE_CHANNELS_BWD_SCALE] = {"scale_channels_bwd_scale", 2, 2, 1, 1, NULL,
                                         cvy_scale_channels_bwd_scale_flops, 0, ALL, false},
    [CVY_OP_LINEAR] = {"linear", 2, 3, 1, 1, cvy_linear_gradient, cvy_linear_flops, ALL, ALL, false},
    [CVY_OP_LINEAR_BWD_DATA] = {"linear_bwd_data", 2, 2, 1, 1, NULL, cvy_linear_bwd_data_flops, ALL, ALL, false},
    [CVY_OP_LINEAR_BWD_WEIGHTS] = {"linear_bwd_weights", 2, 2, 1, 2, NULL, cvy_linear_bwd_weights_flops, ALL, ALL,
                                   false},
    [CVY_OP_SOFTMAX] = {"softmax", 1, 1, 1, 1, NULL, cvy_softmax_flops, ALL, ALL, false},
    [CVY_OP_SOFTMAX_CROSS_ENTROPY] = {"softmax_cross_entropy", 2, 5, 2, 2, cvy_softmax_cross_entropy_gradient,
                                      cvy_softmax_cross_entropy_flops, ALL, ALL, false},
    [CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD] = {"softmax_cross_entropy_bwd", 3, 6, 1, 1, NULL,
                                          cvy_softmax_cross_entropy_bwd_flops, ALL, ALL, false},
    [CVY_OP_DETECTION_MATCH] = {"detection_match", 2, 2, 3, 3, NULL, cvy_detection_match_flops, ALL, ALL, false},
    /* What the heads predict may have 16 bits; the losses are sums of floats. */
    [CVY_OP_FOCAL_LOSS] = {"focal_loss", 3, 3, 1, 1, cvy_focal_loss_gradient, cvy_focal_loss_flops, ~SLOT(0), ALL,
                           false},
    [CVY_OP_FOCAL_LOSS_BWD] = {"focal_loss_bwd", 4, 4, 1, 1, NULL, cvy_focal_loss_bwd_flops, ~SLOT(0), ~SLOT(0), false},
    [CVY_OP_SMOOTH_L1_LOSS] = {"smooth_l1_loss", 4, 4, 1, 1, cvy_smooth_l1_loss_gradient, cvy_smooth_l1_loss_flops,
                               ~SLOT(0), ALL, false},
    [CVY_OP_SMOOTH_L1_LOSS_BWD] = {"smooth_l1_loss_bwd", 5, 5, 1, 1, NULL, cvy_smooth_l1_loss_bwd_flops, ~SLOT(0),
                                   ~SLOT(0), false},
    [CVY_OP_L2_LOSS] = {"l2_loss", 2, CVY_MAX_INPUTS, 1, 1, NULL, cvy_l2_loss_flops, ALL, ALL, false},
    [CVY_OP_DETECT] = {"detect", 2, 2, 4, 4, NULL, cvy_detect_flops, ALL, ALL, false},
    [CVY_OP_UPSAMPLE] = {"upsample", 1, 1, 1, 1, cvy_upsample_gradient, NULL, 0, 0, false},
    [CVY_OP_UPSAMPLE_BWD] = {"upsample_bwd", 1, 1, 1, 1, NULL, cvy_upsample_bwd_flops, 0, 0, false},
    [CVY_OP_FLATTEN_LEVELS] = {"flatten_levels", 1, CVY_MAX_MAPS, 1, 1, cvy_flatten_levels_gradient, NULL, 0, 0, false},
    [CVY_OP_FLATTEN_LEVELS_BWD] = {"flatten_levels_bwd", 1, 1, 1, CVY_MAX_MAPS, NULL, NULL, 0, 0, false},
};

double cvy_node_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return cvy_ops[node->op].flops ? cvy_ops[node->op].flops(graph, node) : 0;
}

double cvy_graph_forward_flops(const struct cvy_graph *graph)
{
    double flops = 0;

    for (int32_t n = 0; n < graph->node_count; n++) {
        if (!graph->nodes[n].backward)
            flops += cvy_node_flops(graph, &graph->nodes[n]);
    }
    return flops;
}
