/* Statistics of a convolution's output, made by the convolution instead of the batch norm after it. */
#include "graph/order.h"

int32_t cvy_statistics_find(const struct cvy_graph *graph, int32_t norm)
{
    const struct cvy_node *node = &graph->nodes[norm];
    const int32_t producer = node->op == CVY_OP_BATCH_NORM ? graph->values[node->in[0]].producer : -1;

    if (producer < 0 || cvy_node_has(node, 6) || graph->nodes[producer].op != CVY_OP_CONV2D)
        return -1;
    return producer;
}

void cvy_statistics_take(struct cvy_graph *graph, int32_t norm_node)
{
    const int32_t conv = graph->values[graph->nodes[norm_node].in[0]].producer;
    /* The type of the batch norm's own statistics: f32 next to 16-bit floats. */
    const cvy_val mean = graph->nodes[norm_node].out[1];
    const struct cvy_value like = graph->values[mean];
    struct cvy_node *norm = &graph->nodes[norm_node];

    for (int i = 1; i < 3 && graph->nodes[conv].outputs < 3; i++) {
        if (cvy_graph_add_output(graph, conv, like.dtype, &like.shape) == CVY_NONE)
            return;
    }
    for (int32_t i = norm->inputs; i < 6; i++)
        norm->in[i] = CVY_NONE;
    norm->in[6] = graph->nodes[conv].out[1];
    norm->in[7] = graph->nodes[conv].out[2];
    norm->inputs = 8;
}

void cvy_rewrite_statistics(struct cvy_graph *graph)
{
    for (int32_t n = 0; n < graph->node_count && graph->status == CVY_OK; n++) {
        if (cvy_statistics_find(graph, n) >= 0)
            cvy_statistics_take(graph, n);
    }
}
