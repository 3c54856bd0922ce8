/* Rectified linear unit. */
#include "ops/rules.h"

cvy_val cvy_relu(struct cvy_graph *graph, cvy_val x)
{
    if (graph->status != CVY_OK)
        return CVY_NONE;
    if (x < 0 || x >= graph->value_count)
        return cvy_graph_fail(graph, CVY_FAILED, "relu has no input");
    if (!cvy_rule_float(graph, "relu", "an input", x, graph->values[x].shape.rank))
        return CVY_NONE;
    return cvy_rule_gradient_node(graph, CVY_OP_RELU, NULL, 1, &x, x);
}

void cvy_relu_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need,
                       cvy_val *din)
{
    if (need[0])
        din[0] = cvy_relu_mask(graph, node->out[0], dout[0]);
}
