/* Ops that look at one element at a time: builders, gradients, FLOPs. */
#include "ops/rules.h"

/* A node of one input, of a float type and any shape, whose output looks like it. */
static cvy_val build_unary(struct cvy_graph *graph, enum cvy_op op, cvy_val x)
{
    const char *name = cvy_ops[op].name;

    if (graph->status != CVY_OK)
        return CVY_NONE;
    if (x < 0 || x >= graph->value_count)
        return cvy_graph_fail(graph, CVY_FAILED, "%s has no input", name);
    if (!cvy_rule_float(graph, name, "an input", x, graph->values[x].shape.rank))
        return CVY_NONE;
    return cvy_rule_gradient_node(graph, op, NULL, 1, &x, x);
}

/* cvy_relu, cvy_sigmoid, ... */
#define CVY_OP(...)
#define CVY_OP_UNARY(ID, name, ...)                                                                                    \
    cvy_val cvy_##name(struct cvy_graph *graph, cvy_val x)                                                             \
    {                                                                                                                  \
        return build_unary(graph, CVY_OP_##ID, x);                                                                     \
    }
#include "graph/ops.def"

void cvy_elementwise_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                              const bool *need, cvy_val *din)
{
    const struct cvy_op_info *info = &cvy_ops[node->op];
    const cvy_val kept = info->backward_reads_input ? node->in[0] : node->out[0];

    if (need[0])
        din[0] = cvy_rule_gradient_node(graph, info->backward, NULL, 2, (cvy_val[]){kept, dout[0]}, node->in[0]);
}

/* ---- the sum of two values of one shape, with an optional ReLU ---- */

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
