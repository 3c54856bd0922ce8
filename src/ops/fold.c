/* Training with batch norms folded into the weights before these are rounded: what TensorFlow's rewrite
 * (tf.contrib.quantize) builds, as Krishnamoorthi, "Quantizing deep convolutional networks for efficient inference"
 * (2018), section 3.2.2, describes it. With sigma_b of the batch and sigma_r of the running statistics
 *
 *     x = conv(in, w)                      for the statistics mean and sigma_b alone
 *     u = conv(in, round(w * gamma / sigma_r))
 *     y = u * sigma_r / sigma_b + beta - mean * gamma / sigma_b
 *
 * so that what is rounded moves as slowly as the running statistics, and y is that of the batch. */
#include "ops/rules.h"

/* w' = w * gamma / sigma_r. Running statistics have no gradient. */
void cvy_fold_batch_norm_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                                  const bool *need, cvy_val *din)
{
    const cvy_val w = node->in[0], gamma = node->in[1], in[] = {w, gamma, node->in[4], dout[0]};
    const enum cvy_dtype dtypes[] = {graph->values[w].dtype, graph->values[gamma].dtype};
    int32_t made;

    if (dout[1] != CVY_NONE) {
        cvy_graph_fail(graph, CVY_USAGE, "the bias of a folded batch norm cannot be differentiated");
        return;
    }
    if (dout[0] == CVY_NONE || (!need[0] && !need[1]))
        return;
    made = cvy_graph_node(graph, CVY_OP_FOLD_BATCH_NORM_BWD, &node->attr, 4, in, 2,
                          (struct cvy_shape[]){*cvy_shape_of(graph, w), *cvy_shape_of(graph, gamma)}, dtypes);
    if (made < 0)
        return;
    for (int i = 0; i < 2; i++)
        din[i] = need[i] ? graph->nodes[made].out[i] : CVY_NONE;
}

/* Where scale, shift, center and factor come from a FOLD_CORRECTION. The gradients of scale and shift are the sums that
 * a batch norm's backward pass makes; from them FOLD_CORRECTION_BWD knows those of center and factor. */
void cvy_batch_norm_apply_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                                   const bool *need, cvy_val *din)
{
    const cvy_val x = node->in[0], scale = node->in[1], dy = dout[0];
    const int32_t correction = graph->values[scale].producer;
    const cvy_val in[] = {x, scale, node->in[2], node->in[3], node->in[4], dy};
    const struct cvy_shape channels = *cvy_shape_of(graph, scale);
    const enum cvy_dtype dtype = graph->values[scale].dtype;
    int32_t sums;

    if (correction < 0 || graph->nodes[correction].op != CVY_OP_FOLD_CORRECTION ||
        node->attr.batch_norm.activation != CVY_ACTIVATION_NONE || need[5]) {
        cvy_graph_fail(graph, CVY_USAGE, "batch_norm_apply can be differentiated after a fold_correction alone");
        return;
    }
    sums = cvy_graph_node(graph, CVY_OP_BATCH_NORM_BWD, &node->attr, 6, in, 3,
                          (struct cvy_shape[]){*cvy_shape_of(graph, x), channels, channels},
                          (enum cvy_dtype[]){graph->values[x].dtype, dtype, dtype});
    if (sums < 0)
        return;
    if (need[0])
        din[0] = cvy_rule_gradient_node(graph, CVY_OP_BATCH_NORM_APPLY, &node->attr, 5,
                                        (cvy_val[]){dy, scale, CVY_NONE, CVY_NONE, node->in[4]}, x);
    for (int i = 1; i < 3; i++)
        din[i] = need[i] ? graph->nodes[sums].out[i] : CVY_NONE;
}

void cvy_fold_correction_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                                  const bool *need, cvy_val *din)
{
    const cvy_val x = node->in[0], gamma = node->in[1], mean = node->in[3], rstd = node->in[4];
    const cvy_val observed = node->inputs > 9 ? node->in[9] : CVY_NONE;
    const cvy_val in[] = {x, gamma, mean, rstd, node->in[5], node->in[6], dout[0], dout[1], observed};
    const struct cvy_shape channels = *cvy_shape_of(graph, gamma);
    const enum cvy_dtype dtype = graph->values[gamma].dtype;
    int32_t made;

    if (dout[0] == CVY_NONE || dout[1] == CVY_NONE) {
        cvy_graph_fail(graph, CVY_USAGE, "fold_correction has a gradient after batch_norm_apply alone");
        return;
    }
    made = cvy_graph_node(graph, CVY_OP_FOLD_CORRECTION_BWD, &node->attr, observed == CVY_NONE ? 8 : 9, in, 3,
                          (struct cvy_shape[]){channels, channels, channels}, (enum cvy_dtype[]){dtype, dtype, dtype});
    if (made < 0)
        return;
    if (need[0])
        din[0] =
            cvy_rule_gradient_node(graph, CVY_OP_BATCH_NORM_APPLY, &node->attr, 5,
                                   (cvy_val[]){x, graph->nodes[made].out[1], graph->nodes[made].out[2], mean, rstd}, x);
    if (need[1])
        din[1] = graph->nodes[made].out[0];
    if (need[2])
        din[2] = dout[1];
    /* The statistics hand nothing on by themselves: x has it all. */
}

/* Two products for each weight, a root and a division for each row. */
double cvy_fold_batch_norm_bwd_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 3 * cvy_rule_elements(graph, node->out[0]) + 4 * cvy_rule_elements(graph, node->out[1]);
}

/* A sum, a root, a product, a division. */
double cvy_fold_correction_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 4 * cvy_rule_elements(graph, node->out[0]);
}

double cvy_fold_correction_bwd_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 9 * cvy_rule_elements(graph, node->out[0]);
}
