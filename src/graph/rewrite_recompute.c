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

/* Appends a node of the backward pass that makes the first output of `node` from other inputs; returns its own
 * (CVY_NONE: an error sticks in the graph). */
static cvy_val append(struct cvy_graph *graph, const struct cvy_node *node, enum cvy_op op, int32_t inputs,
                      const cvy_val *in)
{
    const struct cvy_value y = graph->values[node->out[0]]; /* a copy: the table may move */
    const int32_t made = cvy_graph_node(graph, op, &node->attr, inputs, in, 1, &y.shape, &y.dtype);

    if (made < 0)
        return CVY_NONE;
    graph->nodes[made].scope = node->scope;
    graph->nodes[made].backward = true;
    return graph->nodes[made].out[0];
}

/* The same for node `n`, and the backward pass reads the result. */
static cvy_val repeat(struct cvy_graph *graph, int32_t n, enum cvy_op op, int32_t inputs, const cvy_val *in,
                      int32_t node_count)
{
    const struct cvy_node node = graph->nodes[n];
    const cvy_val made = append(graph, &node, op, inputs, in);

    for (int32_t r = 0; r < node_count && made != CVY_NONE; r++) {
        struct cvy_node *reader = &graph->nodes[r];
        for (int32_t i = 0; reader->backward && i < reader->inputs; i++) {
            if (reader->in[i] == node.out[0])
                reader->in[i] = made;
        }
    }
    return made;
}

/* `value` as the backward pass has it: made again (see `again` below), or read by it anyway. CVY_NONE: it would have to
 * be kept for this alone. */
static cvy_val at_hand(const struct cvy_graph *graph, cvy_val value, const cvy_val *again, int32_t node_count)
{
    if (again[value] != CVY_NONE)
        return again[value];
    return read_backward(graph, value, node_count) ? value : CVY_NONE;
}

/* The output of the batch norm without residual that `value` is, appended for one reader; CVY_NONE: it is none. */
static cvy_val append_norm(struct cvy_graph *graph, cvy_val value)
{
    const int32_t producer = graph->values[value].producer;
    struct cvy_node norm;

    if (producer < 0 || graph->nodes[producer].op != CVY_OP_BATCH_NORM)
        return CVY_NONE;
    norm = graph->nodes[producer];
    if (cvy_node_has(&norm, 5))
        return CVY_NONE;
    return append(graph, &norm, CVY_OP_BATCH_NORM_APPLY, 5,
                  (cvy_val[]){norm.in[0], norm.in[1], norm.in[2], norm.out[1], norm.out[2]});
}

/* What makes the output of batch norm `n` again from what is there: its input, and its residual or the input of the
 * batch norm that made that one (a block's projection); `again` as below. CVY_NONE: it is better kept. */
static cvy_val repeat_norm(struct cvy_graph *graph, int32_t n, const cvy_val *again, int32_t node_count)
{
    const struct cvy_node norm = graph->nodes[n];
    const bool with_residual = cvy_node_has(&norm, 5);
    cvy_val residual = with_residual ? at_hand(graph, norm.in[5], again, node_count) : CVY_NONE;

    if (with_residual && residual == CVY_NONE)
        residual = append_norm(graph, norm.in[5]);
    if (with_residual && residual == CVY_NONE)
        return CVY_NONE;
    return repeat(graph, n, CVY_OP_BATCH_NORM_APPLY, with_residual ? 6 : 5,
                  (cvy_val[]){norm.in[0], norm.in[1], norm.in[2], norm.out[1], norm.out[2], residual}, node_count);
}

/* The same for factors and what is added to the product: the end of a block with squeeze and excitation. The image
 * under the factors is needed twice in the backward pass: here, which is before the blocks after this one, and for the
 * factors' gradient. It is made twice: kept in between, it would cost what is saved. */
static cvy_val repeat_scale(struct cvy_graph *graph, int32_t n, const cvy_val *again, int32_t node_count)
{
    const struct cvy_node scale = graph->nodes[n];
    const cvy_val image = again[scale.in[0]];
    cvy_val in[4];

    for (int32_t i = 0; i < 4; i++) {
        in[i] = scale.in[i] == CVY_NONE ? CVY_NONE : at_hand(graph, scale.in[i], again, node_count);
        if (in[i] == CVY_NONE && scale.in[i] != CVY_NONE)
            return CVY_NONE;
    }
    if (image != CVY_NONE) {
        const struct cvy_node maker = graph->nodes[graph->values[image].producer];

        in[0] = append(graph, &maker, maker.op, maker.inputs, maker.in);
    }
    return repeat(graph, n, scale.op, scale.inputs, in, node_count);
}

/* Values in 8 bits, from those they were made of, by the range that the forward pass came to. */
static cvy_val repeat_quantize(struct cvy_graph *graph, int32_t n, const cvy_val *again, int32_t node_count)
{
    const struct cvy_node node = graph->nodes[n];
    const cvy_val x = at_hand(graph, node.in[0], again, node_count);

    if (x == CVY_NONE || node.attr.fake_quantize.weights)
        return CVY_NONE;
    return repeat(graph, n, node.op, 2, (cvy_val[]){x, node.outputs > 1 ? node.out[1] : node.in[1]}, node_count);
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
        else if (node.op == CVY_OP_SCALE_CHANNELS && !node.backward)
            again[node.out[0]] = repeat_scale(graph, n, again, node_count);
        else if (node.op == CVY_OP_FAKE_QUANTIZE && !node.backward)
            again[node.out[0]] = repeat_quantize(graph, n, again, node_count);
        else if (node.op == CVY_OP_NORMALIZE && !node.backward)
            again[node.out[0]] = repeat(graph, n, node.op, node.inputs, node.in, node_count);
    }
    cvy_free(again);
    /* Moves each appended node before its first reader. */
    cvy_graph_sort(graph, NULL, 0);
}
