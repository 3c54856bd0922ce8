/* Sum of two values of one shape, with an optional ReLU. */
#include "ops/rules.h"

cvy_val cvy_add(struct cvy_graph *graph, cvy_val a, cvy_val b)
{
    if (graph->status != CVY_OK)
        return CVY_NONE;
    if (a < 0 || a >= graph->value_count)
        return cvy_graph_fail(graph, CVY_FAILED, "add has no first operand");
    if (!cvy_rule_float(graph, "add", "operands", a, graph->values[a].shape.rank) ||
        !cvy_rule_same(graph, "add", "a second operand", b, graph->values[a].shape, a))
        return CVY_NONE;
    return cvy_rule_gradient_node(graph, CVY_OP_ADD, &(union cvy_attr){.add = {false}}, 2, (cvy_val[]){a, b}, a);
}

void cvy_add_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need,
                      cvy_val *din)
{
    cvy_val dy = cvy_activation_mask(graph, node->attr.add.relu ? CVY_ACTIVATION_RELU : CVY_ACTIVATION_NONE,
                                     node->out[0], dout[0]);

    for (int i = 0; i < 2; i++) {
        if (need[i])
            din[i] = dy;
    }
}

double cvy_add_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return (node->attr.add.relu ? 2 : 1) * cvy_rule_elements(graph, node->out[0]);
}
