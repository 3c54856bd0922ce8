/* Logistic function: y = 1 / (1 + exp(-x)). */
#include "ops/rules.h"

cvy_val cvy_sigmoid(struct cvy_graph *graph, cvy_val x)
{
    return cvy_rule_unary(graph, CVY_OP_SIGMOID, x);
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
