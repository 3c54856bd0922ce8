/* Trades memory for a little work: outputs of batch norms and the normalised images are made again in the backward pass
 * instead of being kept. */
#include "base/error.h"
#include "base/memory.h"
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

/* Appends a node that makes the first output of node `n` again, and lets the backward pass read its result, which is
 * returned (CVY_NONE: an error sticks in the graph). */
static cvy_val repeat(struct cvy_graph *graph, int32_t n, enum cvy_op op, int32_t inputs, const cvy_val *in,
                      int32_t node_count)
{
    const struct cvy_node node = graph->nodes[n];
    const cvy_val y = node.out[0];
    const struct cvy_shape shape = graph->values[y].shape;
    const enum cvy_dtype dtype = graph->values[y].dtype;
    const int32_t made = cvy_graph_node(graph, op, &node.attr, inputs, in, 1, &shape, &dtype);

    if (made < 0)
        return CVY_NONE;
    graph->nodes[made].scope = node.scope;
    graph->nodes[made].backward = true;
    for (int32_t r = 0; r < node_count; r++) {
        struct cvy_node *reader = &graph->nodes[r];
        for (int32_t i = 0; reader->backward && i < reader->inputs; i++) {
            if (reader->in[i] == y)
                reader->in[i] = graph->nodes[made].out[0];
        }
    }
    return graph->nodes[made].out[0];
}

/* What makes the output of batch norm `n` again, where that costs no more than reading what is there and writing it;
 * `again` as below. CVY_NONE: it is better kept. */
static cvy_val repeat_norm(struct cvy_graph *graph, int32_t n, const cvy_val *again, int32_t node_count)
{
    const struct cvy_node norm = graph->nodes[n];
    cvy_val residual = norm.inputs > 5 ? norm.in[5] : CVY_NONE;

    if (residual != CVY_NONE && again[residual] != CVY_NONE)
        residual = again[residual];
    else if (residual != CVY_NONE && !read_backward(graph, residual, node_count))
        return CVY_NONE; /* the residual would have to be kept for this alone */
    return repeat(graph, n, CVY_OP_BATCH_NORM_APPLY, residual == CVY_NONE ? 5 : 6,
                  (cvy_val[]){norm.in[0], norm.in[1], norm.in[2], norm.out[1], norm.out[2], residual}, node_count);
}

void cvy_rewrite_recompute(struct cvy_graph *graph)
{
    const int32_t node_count = graph->node_count, value_count = graph->value_count;
    cvy_val *again; /* of each value: what the backward pass reads instead */

    if (graph->status != CVY_OK)
        return;
    again = cvy_calloc((size_t)value_count + 1, sizeof *again);
    if (!again) {
        cvy_graph_fail(graph, CVY_NO_MEMORY, "out of memory while rewriting the graph");
        return;
    }
    for (cvy_val v = 0; v < value_count; v++)
        again[v] = CVY_NONE;
    /* In the order of the forward pass, so that a residual that is made again is so before it is asked for. */
    for (int32_t n = 0; n < node_count && graph->status == CVY_OK; n++) {
        const struct cvy_node node = graph->nodes[n];

        if (node.outputs == 0 || !read_backward(graph, node.out[0], node_count))
            continue;
        if (node.op == CVY_OP_BATCH_NORM)
            again[node.out[0]] = repeat_norm(graph, n, again, node_count);
        else if (node.op == CVY_OP_NORMALIZE && !node.backward)
            again[node.out[0]] = repeat(graph, n, node.op, node.inputs, node.in, node_count);
    }
    cvy_free(again);
    /* Moves each appended node in front of its first reader. */
    cvy_graph_sort(graph, NULL, 0);
}
