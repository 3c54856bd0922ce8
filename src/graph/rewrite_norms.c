/* Batch norms with their neighbours, where a device has kernels for both together (cvy_backend.rewrite): nothing else
 * is computed, but tensors are read and written less often. */
#include "graph/order.h"

static const struct cvy_node *producer_of(const struct cvy_graph *graph, cvy_val value, enum cvy_op op)
{
    const int32_t producer = value == CVY_NONE ? -1 : graph->values[value].producer;

    return producer >= 0 && graph->nodes[producer].op == op ? &graph->nodes[producer] : NULL;
}

/* ---- the mask of the gradient ---- */

bool cvy_norm_keep_sign(struct cvy_graph *graph, int32_t norm_bwd)
{
    struct cvy_node *back = &graph->nodes[norm_bwd];
    const struct cvy_node *norm;
    int32_t n;

    if (back->op != CVY_OP_BATCH_NORM_BWD || back->attr.batch_norm.activation == CVY_ACTIVATION_NONE ||
        !cvy_node_has(back, 6) || cvy_node_has(back, 8))
        return false;
    norm = producer_of(graph, back->in[3], CVY_OP_BATCH_NORM);
    if (!norm || norm->in[0] != back->in[0] || norm->out[0] == CVY_NONE ||
        norm->attr.batch_norm.activation != back->attr.batch_norm.activation ||
        (norm->outputs > 5 && norm->out[5] == back->in[6]))
        return false;
    n = graph->values[back->in[3]].producer;
    if (norm->outputs == 5) {
        const struct cvy_value y = graph->values[norm->out[0]]; /* a copy: the table may move */
        if (cvy_graph_add_output(graph, n, y.dtype, &y.shape) == CVY_NONE)
            return false;
    }
    back->in[6] = graph->nodes[n].out[5];
    return true;
}

/* ---- the residual's batch norm ---- */

bool cvy_norm_take_residual(struct cvy_graph *graph, int32_t norm)
{
    struct cvy_node *node = &graph->nodes[norm], *other;

    if (node->op != CVY_OP_BATCH_NORM || !cvy_node_has(node, 5) || cvy_node_has(node, 8) || node->out[0] == CVY_NONE ||
        !producer_of(graph, node->in[5], CVY_OP_BATCH_NORM) || cvy_graph_uses(graph, node->in[5]) != 1)
        return false;
    other = &graph->nodes[graph->values[node->in[5]].producer];
    if (other->out[0] != node->in[5] || other->attr.batch_norm.activation != CVY_ACTIVATION_NONE ||
        cvy_node_has(other, 5) || (other->outputs > 5 && other->out[5] != CVY_NONE))
        return false;
    for (int32_t i = node->inputs; i < 8; i++)
        node->in[i] = CVY_NONE;
    node->in[5] = other->in[0];
    node->in[8] = other->in[1];
    node->in[9] = other->in[2];
    node->in[10] = other->out[1];
    node->in[11] = other->out[2];
    node->inputs = 12;
    graph->values[other->out[0]].producer = -1;
    other->out[0] = CVY_NONE;
    return true;
}

/* Whether all that the node reads but its gradient is there before node `n`. */
static bool is_ready_before(const struct cvy_graph *graph, const struct cvy_node *norm_bwd, int32_t n)
{
    for (int32_t i = 0; i < 5; i++) {
        if (graph->values[norm_bwd->in[i]].producer >= n)
            return false;
    }
    return true;
}

bool cvy_norm_take_residual_gradient(struct cvy_graph *graph, int32_t norm_bwd)
{
    struct cvy_node *node = &graph->nodes[norm_bwd], other;
    const struct cvy_node *norm;
    int32_t reader;

    if (node->op != CVY_OP_BATCH_NORM_BWD || !cvy_node_writes(node, 4) || !cvy_node_has(node, 6) ||
        cvy_node_has(node, 8) || cvy_node_has(node, 10))
        return false;
    norm = producer_of(graph, node->in[6], CVY_OP_BATCH_NORM);
    if (!norm || norm->outputs < 6 || norm->out[5] != node->in[6]) /* y itself is not read in bits */
        return false;
    reader = cvy_graph_sole_reader(graph, node->out[3]);
    if (reader < 0 || graph->nodes[reader].op != CVY_OP_BATCH_NORM_BWD)
        return false;
    other = graph->nodes[reader];
    if (other.in[5] != node->out[3] || other.attr.batch_norm.activation != CVY_ACTIVATION_NONE ||
        !cvy_node_writes(&other, 3) || cvy_node_has(&other, 7) || cvy_node_has(&other, 8) ||
        !is_ready_before(graph, &other, norm_bwd))
        return false;
    cvy_graph_detach(graph, reader);
    graph->values[node->out[3]].producer = -1;
    for (int32_t i = node->inputs; i < 10; i++)
        node->in[i] = CVY_NONE;
    node->in[10] = other.in[0];
    node->in[11] = other.in[1];
    node->in[12] = other.in[3];
    node->in[13] = other.in[4];
    node->inputs = 14;
    node->out[3] = other.out[0];
    node->out[4] = other.out[1];
    node->out[5] = other.out[2];
    node->outputs = 6;
    for (int32_t i = 3; i < 6; i++)
        graph->values[node->out[i]].producer = norm_bwd;
    return true;
}

/* ---- a max pool and what lies on either side of it ---- */

bool cvy_pool_take_norm(struct cvy_graph *graph, int32_t pool)
{
    struct cvy_node *node = &graph->nodes[pool], *norm;

    if (node->op != CVY_OP_MAX_POOL || cvy_node_has(node, 1) || !producer_of(graph, node->in[0], CVY_OP_BATCH_NORM) ||
        cvy_graph_uses(graph, node->in[0]) != 1)
        return false;
    norm = &graph->nodes[graph->values[node->in[0]].producer];
    if (norm->out[0] != node->in[0] || norm->attr.batch_norm.activation != CVY_ACTIVATION_RELU ||
        cvy_node_has(norm, 5) || norm->outputs != 5)
        return false;
    node->in[0] = norm->in[0];
    node->in[1] = norm->in[1];
    node->in[2] = norm->in[2];
    node->in[3] = norm->out[1];
    node->in[4] = norm->out[2];
    node->inputs = 5;
    graph->values[norm->out[0]].producer = -1;
    norm->out[0] = CVY_NONE;
    return true;
}

bool cvy_pool_take_norm_gradient(struct cvy_graph *graph, int32_t pool_bwd)
{
    struct cvy_node *node = &graph->nodes[pool_bwd], norm;
    int32_t reader;

    if (node->op != CVY_OP_MAX_POOL_BWD || !cvy_node_writes(node, 1) || cvy_node_has(node, 3))
        return false;
    reader = cvy_graph_sole_reader(graph, node->out[0]);
    if (reader < 0 || graph->nodes[reader].op != CVY_OP_BATCH_NORM_BWD)
        return false;
    norm = graph->nodes[reader];
    if (norm.in[5] != node->out[0] || norm.attr.batch_norm.activation != CVY_ACTIVATION_RELU ||
        !cvy_node_writes(&norm, 3) || !is_ready_before(graph, &norm, pool_bwd))
        return false;
    for (int32_t i = 6; i < norm.inputs; i++) {
        if (norm.in[i] != CVY_NONE)
            return false;
    }
    cvy_graph_detach(graph, reader);
    graph->values[node->out[0]].producer = -1;
    if (node->inputs < 3)
        node->in[2] = CVY_NONE;
    for (int32_t i = 0; i < 5; i++) /* x, gamma, beta, mean, rstd */
        node->in[3 + i] = norm.in[i];
    node->inputs = 8;
    for (int32_t i = 0; i < 3; i++) {
        node->out[i] = norm.out[i];
        graph->values[norm.out[i]].producer = pool_bwd;
    }
    node->outputs = 3;
    return true;
}

bool cvy_pool_take_sum(struct cvy_graph *graph, int32_t pool_bwd)
{
    struct cvy_node *node = &graph->nodes[pool_bwd];
    const struct cvy_node *sum;
    int32_t add;

    if (node->op != CVY_OP_MAX_POOL_BWD || cvy_node_has(node, 2) || !producer_of(graph, node->in[0], CVY_OP_ADD) ||
        cvy_graph_uses(graph, node->in[0]) != 1)
        return false;
    add = graph->values[node->in[0]].producer;
    sum = &graph->nodes[add];
    if (sum->attr.add.relu)
        return false;
    if (node->inputs < 3)
        node->inputs = 3;
    node->in[0] = sum->in[0];
    node->in[2] = sum->in[1];
    cvy_graph_detach(graph, add);
    return true;
}
