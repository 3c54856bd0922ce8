/* Rectified linear units: max(x, 0), and with a ceiling min(max(x, 0), 6). */
#include "ops/rules.h"

cvy_val cvy_relu(struct cvy_graph *graph, cvy_val x)
{
    return cvy_rule_unary(graph, CVY_OP_RELU, x);
}

void cvy_relu_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need,
                       cvy_val *din)
{
    if (need[0])
        din[0] = cvy_activation_mask(graph, CVY_ACTIVATION_RELU, node->out[0], dout[0]);
}

cvy_val cvy_relu6(struct cvy_graph *graph, cvy_val x)
{
    return cvy_rule_unary(graph, CVY_OP_RELU6, x);
}

void cvy_relu6_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need,
                        cvy_val *din)
{
    if (need[0])
        din[0] = cvy_activation_mask(graph, CVY_ACTIVATION_RELU6, node->out[0], dout[0]);
}
