/* Trades memory for a little work: outputs of batch norms are made again in the backward pass instead of being kept. */
#include "graph/order.h"

static bool reads(const struct cvy_node *node, cvy_val value)
{
    for (int32_t i = 0; i < node->inputs; i++) {
        if (node->in[i] == value)
            return true;
    }
    return false;
}

static bool read_backward(const struct cvy_graph *graph, cvy_val value, int32_t node_count)
{
    for (int32_t n = 0; n < node_count; n++) {
        if (graph->nodes[n].backward && reads(&graph->nodes[n], value))
            return true;
    }
    return false;
}

/* Appends the node that recomputes the output of batch norm `n` and lets the backward pass read its result. */
static void recompute(struct cvy_graph *graph, int32_t n, int32_t node_count)
{
    const struct cvy_node norm = graph->nodes[n];
    const cvy_val y = norm.out[0];
    const cvy_val in[] = {norm.in[0], norm.in[1], norm.in[2], norm.out[1], norm.out[2]};
    const struct cvy_shape shape = graph->values[y].shape;
    const enum cvy_dtype dtype = graph->values[y].dtype;
    int32_t made = cvy_graph_node(graph, CVY_OP_BATCH_NORM_APPLY, &norm.attr, 5, in, 1, &shape, &dtype);

    if (made < 0)
        return;
    graph->nodes[made].scope = norm.scope;
    graph->nodes[made].backward = true;
    for (int32_t r = 0; r < node_count; r++) {
        struct cvy_node *reader = &graph->nodes[r];
        for (int32_t i = 0; reader->backward && i < reader->inputs; i++) {
            if (reader->in[i] == y)
                reader->in[i] = graph->nodes[made].out[0];
        }
    }
}

void cvy_rewrite_recompute(struct cvy_graph *graph)
{
    const int32_t node_count = graph->node_count;

    for (int32_t n = 0; n < node_count && graph->status == CVY_OK; n++) {
        const struct cvy_node *norm = &graph->nodes[n];

        if (norm->op != CVY_OP_BATCH_NORM || (norm->inputs > 5 && norm->in[5] != CVY_NONE))
            continue;
        if (read_backward(graph, norm->out[0], node_count))
            recompute(graph, n, node_count);
    }
    /* Moves each appended node in front of its first reader. */
    cvy_graph_sort(graph, NULL, 0);
}
