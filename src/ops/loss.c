/* Softmax, and its cross-entropy with labels or soft targets and label smoothing (Szegedy et al. 2016). */
#include "ops/rules.h"

cvy_val cvy_softmax(struct cvy_graph *graph, cvy_val logits)
{
    if (!cvy_rule_float(graph, "softmax", "logits", logits, 2))
        return CVY_NONE;
    return cvy_rule_gradient_node(graph, CVY_OP_SOFTMAX, NULL, 1, &logits, logits);
}

/* Maximum, subtract, exponential, sum, divide. */
double cvy_softmax_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 5 * cvy_rule_elements(graph, node->out[0]);
}

static bool valid_target(struct cvy_graph *graph, cvy_val target, cvy_val logits)
{
    const struct cvy_shape *shape = cvy_shape_of(graph, logits);
    const struct cvy_value *value;
    char text[96];

    if (target < 0 || target >= graph->value_count) {
        cvy_graph_fail(graph, CVY_FAILED, "cross-entropy has no target");
        return false;
    }
    value = &graph->values[target];
    if (cvy_dtype_is_float(value->dtype))
        return cvy_rule_same(graph, "cross-entropy", "soft targets", target, *shape, logits);
    if (value->dtype == CVY_I32 && value->shape.rank == 1 && value->shape.dim[0] == shape->dim[0])
        return true;
    cvy_graph_fail(graph, CVY_USAGE, "cross-entropy needs one i32 label a sample or soft targets, not %s %s",
                   cvy_dtype_name(value->dtype), cvy_shape_text(&value->shape, text));
    return false;
}

cvy_val cvy_softmax_cross_entropy(struct cvy_graph *graph, cvy_val logits, cvy_val target, float smoothing)
{
    return cvy_softmax_cross_entropy_mixed(graph, logits, target, (struct cvy_mix_values){CVY_NONE, CVY_NONE}, CVY_NONE,
                                           smoothing);
}

cvy_val cvy_softmax_cross_entropy_mixed(struct cvy_graph *graph, cvy_val logits, cvy_val target,
                                        struct cvy_mix_values mix, cvy_val class_weights, float smoothing)
{
    const cvy_val in[] = {logits, target, mix.partner, mix.coefficient, class_weights};
    const int32_t inputs = class_weights != CVY_NONE ? 5 : mix.partner != CVY_NONE ? 4 : 2;
    union cvy_attr attr = {.loss = {smoothing}};
    const struct cvy_shape *shape;
    enum cvy_dtype dtype;
    int32_t node;

    if (!cvy_rule_float(graph, "cross-entropy", "logits", logits, 2) || !valid_target(graph, target, logits))
        return CVY_NONE;
    shape = cvy_shape_of(graph, logits);
    dtype = graph->values[logits].dtype;
    if (!cvy_rule_mix(graph, "cross-entropy", mix, shape->dim[0], dtype))
        return CVY_NONE;
    if (class_weights != CVY_NONE &&
        !cvy_rule_same(graph, "cross-entropy", "class weights", class_weights, cvy_shape1(shape->dim[1]), logits))
        return CVY_NONE;
    if (!(smoothing >= 0 && smoothing <= 1))
        return cvy_graph_fail(graph, CVY_USAGE, "label smoothing must lie between 0 and 1, not be %g",
                              (double)smoothing);
    node = cvy_graph_node(graph, CVY_OP_SOFTMAX_CROSS_ENTROPY, &attr, inputs, in, 2,
                          (struct cvy_shape[]){cvy_shape0(), *cvy_shape_of(graph, logits)},
                          (enum cvy_dtype[]){dtype, dtype});
    return node < 0 ? CVY_NONE : graph->nodes[node].out[0];
}

void cvy_softmax_cross_entropy_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                                        const bool *need, cvy_val *din)
{
    const cvy_val in[] = {node->out[1], node->in[1], dout[0], node->in[2], node->in[3], node->in[4]};

    if (dout[1] != CVY_NONE || need[1] || need[3] || need[4]) {
        cvy_graph_fail(graph, CVY_USAGE, "cross-entropy can be differentiated for its logits and by its loss only");
        return;
    }
    if (need[0] && dout[0] != CVY_NONE)
        din[0] = cvy_rule_gradient_node(graph, CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD, &node->attr, node->inputs + 1, in,
                                        node->in[0]);
}

/* The softmax, then logarithm, target and product. */
double cvy_softmax_cross_entropy_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 8 * cvy_rule_elements(graph, node->in[0]);
}

double cvy_softmax_cross_entropy_bwd_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 4 * cvy_rule_elements(graph, node->out[0]);
}
