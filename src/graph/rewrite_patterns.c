/* A convolution with the batch norm before it, where a device has kernels for both together and found them faster:
 * the device asks for what there is and takes what it likes (cvy_backend.rewrite). */
#include "graph/order.h"

/* ---- forward, and the gradient of weights ---- */

/* A convolution that does nothing else and gives the statistics of its output. */
static bool plain_with_statistics(const struct cvy_node *conv)
{
    return conv->op == CVY_OP_CONV2D && conv->outputs == 3 && conv->attr.conv2d.activation == CVY_ACTIVATION_NONE &&
           !cvy_node_has(conv, 2) && !cvy_node_has(conv, 3) && !cvy_node_has(conv, 4);
}

/* A batch norm with ReLU alone, that need not look at x for its statistics. */
static bool norm_with_relu(const struct cvy_node *norm)
{
    return norm->op == CVY_OP_BATCH_NORM && norm->attr.batch_norm.activation == CVY_ACTIVATION_RELU &&
           !cvy_node_has(norm, 5) && cvy_node_has(norm, 6);
}

bool cvy_prologue_find(const struct cvy_graph *graph, int32_t conv, struct cvy_conv_pattern *found)
{
    const struct cvy_node *node = &graph->nodes[conv];
    const cvy_val x = node->in[0];
    int32_t readers = 1;

    if (!plain_with_statistics(node) || graph->values[x].producer < 0)
        return false;
    *found = (struct cvy_conv_pattern){.norm = graph->values[x].producer, .conv = conv, .weights = -1};
    if (!norm_with_relu(&graph->nodes[found->norm]))
        return false;
    for (int32_t n = 0; n < graph->node_count && found->weights < 0; n++) {
        if (graph->nodes[n].op == CVY_OP_CONV2D_BWD_WEIGHTS && graph->nodes[n].in[0] == x &&
            !cvy_node_has(&graph->nodes[n], 2))
            found->weights = n;
    }
    readers += found->weights >= 0;
    return cvy_graph_uses(graph, x) == readers;
}

/* The batch norm's input becomes the node's, its gamma, beta, mean and rstd inputs `first` to `first` + 3. */
static void read_through(struct cvy_node *node, cvy_val x, const cvy_val numbers[4], int32_t first)
{
    for (int32_t i = node->inputs; i < first; i++)
        node->in[i] = CVY_NONE;
    for (int32_t i = 0; i < 4; i++)
        node->in[first + i] = numbers[i];
    node->in[0] = x;
    node->inputs = first + 4;
}

void cvy_prologue_fuse(struct cvy_graph *graph, const struct cvy_conv_pattern *pattern)
{
    struct cvy_node *norm = &graph->nodes[pattern->norm];
    const cvy_val numbers[] = {norm->in[1], norm->in[2], norm->out[1], norm->out[2]};

    read_through(&graph->nodes[pattern->conv], norm->in[0], numbers, 4);
    if (pattern->weights >= 0)
        read_through(&graph->nodes[pattern->weights], norm->in[0], numbers, 2);
    graph->values[norm->out[0]].producer = -1;
    norm->out[0] = CVY_NONE;
}

bool cvy_weights_take_norm(struct cvy_graph *graph, int32_t weights)
{
    struct cvy_node *node = &graph->nodes[weights], norm;
    int32_t producer;

    if (node->op != CVY_OP_CONV2D_BWD_WEIGHTS || cvy_node_has(node, 2))
        return false;
    producer = graph->values[node->in[0]].producer;
    if (producer < 0 || graph->nodes[producer].op != CVY_OP_BATCH_NORM_APPLY || cvy_graph_uses(graph, node->in[0]) != 1)
        return false;
    norm = graph->nodes[producer];
    if (norm.attr.batch_norm.activation != CVY_ACTIVATION_RELU || cvy_node_has(&norm, 5))
        return false;
    for (int32_t i = 1; i < 5; i++) {
        if (!cvy_node_has(&norm, i))
            return false;
    }
    read_through(node, norm.in[0], &norm.in[1], 2);
    cvy_graph_detach(graph, producer);
    return true;
}

/* ---- the gradient of data ---- */

/* `with_more`: there may be another reader's gradient. */
static int32_t find_sums(const struct cvy_graph *graph, int32_t data, bool with_more)
{
    const struct cvy_node *node = &graph->nodes[data], *norm;
    int32_t reader;

    if (node->op != CVY_OP_CONV2D_BWD_DATA || node->outputs != 1)
        return -1;
    reader = cvy_graph_sole_reader(graph, node->out[0]);
    norm = reader < 0 ? NULL : &graph->nodes[reader];
    if (!norm || norm->op != CVY_OP_BATCH_NORM_BWD || norm->attr.batch_norm.activation != CVY_ACTIVATION_RELU ||
        norm->in[5] != node->out[0] || norm->outputs != 3 || norm->out[1] == CVY_NONE || norm->out[2] == CVY_NONE)
        return -1;
    for (int32_t i = 6; i < norm->inputs; i++) {
        if (norm->in[i] != CVY_NONE && !(with_more && i == 7))
            return -1;
    }
    return reader;
}

int32_t cvy_gradient_sums_find(const struct cvy_graph *graph, int32_t data)
{
    return find_sums(graph, data, false);
}

int32_t cvy_gradient_sums_find_two(const struct cvy_graph *graph, int32_t data)
{
    return find_sums(graph, data, true);
}

/* The sums go from the batch norm's node to that of the data gradient, which reads what they are made of. */
static void move_sums(struct cvy_graph *graph, int32_t data, int32_t norm_bwd)
{
    struct cvy_node *node = &graph->nodes[data], *norm = &graph->nodes[norm_bwd];

    for (int32_t i = 0; i < 5; i++) /* x, gamma, beta, mean, rstd */
        node->in[2 + i] = norm->in[i];
    node->inputs = 7;
    for (int32_t i = norm->inputs; i < 8; i++)
        norm->in[i] = CVY_NONE;
    for (int32_t i = 1; i < 3; i++) { /* dgamma, dbeta */
        node->out[i] = norm->in[7 + i] = norm->out[i];
        graph->values[norm->out[i]].producer = data;
        norm->out[i] = CVY_NONE;
    }
    node->outputs = 3;
    norm->inputs = 10;
}

void cvy_gradient_sums_fuse(struct cvy_graph *graph, int32_t data, int32_t norm_bwd)
{
    struct cvy_node *const node = &graph->nodes[data], *const norm = &graph->nodes[norm_bwd];
    const cvy_val more = norm->inputs > 7 ? norm->in[7] : CVY_NONE;

    move_sums(graph, data, norm_bwd);
    if (more == CVY_NONE)
        return;
    norm->in[7] = node->in[7] = CVY_NONE;
    node->in[8] = more;
    node->inputs = 9;
}

/* ---- the gradient of data, where it is one of two ---- */

int32_t cvy_residual_sums_wanted(const struct cvy_graph *graph, int32_t data)
{
    const struct cvy_node *node = &graph->nodes[data], *norm;
    int32_t reader;

    if (node->op != CVY_OP_CONV2D_BWD_DATA || node->outputs != 1 || node->inputs > 2)
        return -1;
    reader = cvy_graph_sole_reader(graph, node->out[0]);
    norm = reader < 0 ? NULL : &graph->nodes[reader];
    if (!norm || norm->op != CVY_OP_BATCH_NORM_BWD || norm->attr.batch_norm.activation != CVY_ACTIVATION_RELU ||
        norm->inputs != 8 || norm->outputs != 4 || norm->in[6] == CVY_NONE || norm->in[7] == CVY_NONE ||
        (norm->in[5] != node->out[0] && norm->in[7] != node->out[0]))
        return -1;
    for (int32_t i = 0; i < norm->outputs; i++) {
        if (norm->out[i] == CVY_NONE)
            return -1;
    }
    return reader;
}

int32_t cvy_residual_sums_find(const struct cvy_graph *graph, int32_t data)
{
    const int32_t reader = cvy_residual_sums_wanted(graph, data);
    const struct cvy_node *norm, *forward;
    int32_t producer;

    if (reader < 0)
        return -1;
    norm = &graph->nodes[reader];
    producer = graph->values[norm->in[6]].producer; /* gives the sign beside y */
    forward = producer < 0 ? NULL : &graph->nodes[producer];
    return forward && forward->op == CVY_OP_BATCH_NORM && forward->outputs == 6 && forward->out[5] == norm->in[6]
               ? reader
               : -1;
}

void cvy_residual_sums_fuse(struct cvy_graph *graph, int32_t data, int32_t norm_bwd)
{
    struct cvy_node *node = &graph->nodes[data], *norm = &graph->nodes[norm_bwd];
    const cvy_val more = norm->in[norm->in[5] == node->out[0] ? 7 : 5], gradient = norm->out[3];

    move_sums(graph, data, norm_bwd);
    node->in[7] = norm->in[6];
    node->in[8] = more;
    node->inputs = 9;
    cvy_graph_move_output(graph, data, gradient);
    norm->in[5] = gradient;
    norm->in[6] = norm->in[7] = CVY_NONE;
    norm->out[3] = CVY_NONE;
    norm->outputs = 3;
}

void cvy_rewrite_order(struct cvy_graph *graph)
{
    cvy_graph_sort(graph, NULL, 0);
}
