/* Statistics of a convolution's output, made by the convolution instead of the batch norm after it. */
#include "graph/order.h"

/* The convolution whose output batch norm `n` normalises; -1: there is none, or its statistics are given already. */
static int32_t convolution_before(const struct cvy_graph *graph, int32_t n)
{
    const struct cvy_node *norm = &graph->nodes[n];
    const int32_t producer = graph->values[norm->in[0]].producer;

    if (norm->in[6] != CVY_NONE || producer < 0 || graph->nodes[producer].op != CVY_OP_CONV2D)
        return -1;
    return producer;
}

static void take_statistics(struct cvy_graph *graph, int32_t n, int32_t conv)
{
    /* The type of the batch norm's own statistics: f32 next to 16-bit floats. */
    const cvy_val mean = graph->nodes[n].out[1];
    const struct cvy_value like = graph->values[mean];
    struct cvy_node *norm = &graph->nodes[n];

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
        const int32_t conv = graph->nodes[n].op == CVY_OP_BATCH_NORM ? convolution_before(graph, n) : -1;

        if (conv >= 0)
            take_statistics(graph, n, conv);
    }
}
