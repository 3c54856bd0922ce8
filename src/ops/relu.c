/* Rectified linear unit. */
#include "ops/rules.h"

cvy_val cvy_relu(struct cvy_graph *graph, cvy_val x)
{
    return cvy_rule_unary(graph, CVY_OP_RELU, x);
}

void cvy_relu_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need,
                       cvy_val *din)
{
    if (need[0])
        din[0] = cvy_relu_mask(graph, node->out[0], dout[0]);
}
