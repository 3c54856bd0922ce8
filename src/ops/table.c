/* The table of operations, made from graph/ops.def. */
#include "ops/rules.h"

/* What follows from the class comes first. */
#define CVY_OP(ID, text, ...)        [CVY_OP_##ID] = {.name = #text, __VA_ARGS__},
#define ELEMENTWISE(count)           .elementwise = (count), .inputs = {(count), (count)}, .outputs = {1, 1}, .follows = true
#define CVY_OP_UNARY(ID, text, ...)  CVY_OP(ID, text, ELEMENTWISE(1), __VA_ARGS__)
#define CVY_OP_BINARY(ID, text, ...) CVY_OP(ID, text, ELEMENTWISE(2), __VA_ARGS__)

#define CVY_OP_INT8(ID, text, ...)                                                                                     \
    CVY_OP(ID, text, .int8 = true, .f32_inputs = CVY_ALL_SLOTS, .f32_outputs = CVY_ALL_SLOTS,                          \
           .check = CVY_CHECK_EXACT, __VA_ARGS__)

#define CVY_OP_CLOSED(ID, text, ...) CVY_OP(ID, text, .closed = true, .check = CVY_CHECK_ABSOLUTE, __VA_ARGS__)

const struct cvy_op_info cvy_ops[CVY_OP_COUNT] = {
#include "graph/ops.def"
};

int32_t cvy_op_in_place(enum cvy_op op)
{
    const uint32_t slots = cvy_ops[op].in_place;
    int32_t input = 0;

    while (input < CVY_MAX_INPUTS && !(slots & CVY_SLOT(input)))
        input++;
    return input < CVY_MAX_INPUTS ? input : -1;
}

double cvy_node_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const struct cvy_op_info *info = &cvy_ops[node->op];

    return info->flops ? info->flops(graph, node) : info->element_flops * cvy_rule_elements(graph, node->out[0]);
}

double cvy_graph_macs(const struct cvy_graph *graph)
{
    double sum = 0;

    for (int32_t i = 0; i < graph->node_count; i++) {
        const struct cvy_node *node = &graph->nodes[i];
        double places = 1;

        if (node->backward || (node->op != CVY_OP_CONV2D && node->op != CVY_OP_LINEAR))
            continue;
        if (node->op == CVY_OP_CONV2D)
            places =
                (double)cvy_shape_of(graph, node->out[0])->dim[2] * (double)cvy_shape_of(graph, node->out[0])->dim[3];
        sum += places * (double)cvy_shape_elements(cvy_shape_of(graph, node->in[1]));
    }
    return sum;
}
