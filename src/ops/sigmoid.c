/* Logistic function: y = 1 / (1 + exp(-x)). */
#include "ops/rules.h"

cvy_val cvy_sigmoid(struct cvy_graph *graph, cvy_val x)
{
    if (graph->status != CVY_OK)
        return CVY_NONE;
    if (x < 0 || x >= graph->value_count)
        return cvy_graph_fail(graph, CVY_FAILED, "sigmoid has no input");
    if (!cvy_rule_float(graph, "sigmoid", "an input", x, graph->values[x].shape.rank))
        return CVY_NONE;
    return cvy_rule_gradient_node(graph, CVY_OP_SIGMOID, NULL, 1, &x, x);
}

void cvy_sigmoid_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need,
                          cvy_val *din)
{
    if (need[0])
        din[0] =
            cvy_rule_gradient_node(graph, CVY_OP_SIGMOID_BWD, NULL, 2, (cvy_val[]){node->out[0], dout[0]}, node->in[0]);
}

/* Negation, exponential, addition, division. */
double cvy_sigmoid_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 4 * cvy_rule_elements(graph, node->out[0]);
}

/* 1 - y and two products. */
double cvy_sigmoid_bwd_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 3 * cvy_rule_elements(graph, node->out[0]);
}
