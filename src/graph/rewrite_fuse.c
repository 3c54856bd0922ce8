/* Fusing: chains of small nodes become one, so that a tensor is read and written once. */
#include "graph/order.h"

/* The node of kind `op` that alone reads `value`; -1 when there is no such node. */
static int32_t sole_reader_of(const struct cvy_graph *graph, cvy_val value, enum cvy_op op)
{
    int32_t reader = cvy_graph_sole_reader(graph, value);

    return reader >= 0 && graph->nodes[reader].op == op ? reader : -1;
}

/* The ReLU or ReLU6 that alone reads `value`; -1 when there is none. */
static int32_t sole_activation(const struct cvy_graph *graph, cvy_val value, enum cvy_activation *activation)
{
    const int32_t reader = cvy_graph_sole_reader(graph, value);
    const enum cvy_op op = reader < 0 ? CVY_OP_COUNT : graph->nodes[reader].op;

    *activation = op == CVY_OP_RELU    ? CVY_ACTIVATION_RELU
                  : op == CVY_OP_RELU6 ? CVY_ACTIVATION_RELU6
                                       : CVY_ACTIVATION_NONE;
    return *activation == CVY_ACTIVATION_NONE ? -1 : reader;
}

/* The operand of an add that is not `mine`. */
static cvy_val other_operand(const struct cvy_node *add, cvy_val mine)
{
    return add->in[0] == mine ? add->in[1] : add->in[0];
}

/* ---- batch norm with what follows it ---- */

/* y = relu(batch_norm(x) + residual), or ReLU6: one node with the residual as input 5. */
static void fuse_batch_norm_add_relu(struct cvy_graph *graph, int32_t norm)
{
    struct cvy_node *node = &graph->nodes[norm];
    int32_t add = sole_reader_of(graph, node->out[0], CVY_OP_ADD), relu;
    enum cvy_activation activation;

    if (node->attr.batch_norm.activation || node->in[5] != CVY_NONE || add < 0 || graph->nodes[add].attr.add.relu)
        return;
    relu = sole_activation(graph, graph->nodes[add].out[0], &activation);
    if (relu < 0)
        return;
    node->in[5] = other_operand(&graph->nodes[add], node->out[0]);
    node->inputs = 6;
    node->attr.batch_norm.activation = activation;
    cvy_graph_move_output(graph, norm, graph->nodes[relu].out[0]);
    cvy_graph_detach(graph, add);
    cvy_graph_detach(graph, relu);
}

static void fuse_batch_norm_relu(struct cvy_graph *graph, int32_t norm)
{
    struct cvy_node *node = &graph->nodes[norm];
    enum cvy_activation activation;
    int32_t relu = sole_activation(graph, node->out[0], &activation);

    if (node->attr.batch_norm.activation || relu < 0)
        return;
    node->attr.batch_norm.activation = activation;
    cvy_graph_move_output(graph, norm, graph->nodes[relu].out[0]);
    cvy_graph_detach(graph, relu);
}

/* ---- convolution with what follows it ---- */

/* A parameter that training leaves as it is, or something folded, which is made of such. Absent: nothing moves. */
static bool fixed(const struct cvy_graph *graph, cvy_val value)
{
    const struct cvy_value *v = value == CVY_NONE ? NULL : &graph->values[value];

    if (!graph->training || !v)
        return true;
    return (v->param >= 0 && cvy_graph_param_fixed(graph, v->param)) ||
           (v->producer >= 0 && graph->nodes[v->producer].op == CVY_OP_FOLD_BATCH_NORM);
}

/* A convolution that may take in what follows it. In training only a frozen one does: it gives what it will give in
 * inference. */
static bool plain_conv(const struct cvy_graph *graph, int32_t node)
{
    const struct cvy_node *conv = node < 0 ? NULL : &graph->nodes[node];

    return conv && conv->op == CVY_OP_CONV2D && conv->outputs > 0 && conv->in[3] == CVY_NONE &&
           !conv->attr.conv2d.activation && fixed(graph, conv->in[1]) && fixed(graph, conv->in[2]);
}

/* batch_norm(conv(x, w)) = conv(x, w') + bias'. */
static void fold_batch_norm(struct cvy_graph *graph, int32_t conv)
{
    int32_t norm = sole_reader_of(graph, graph->nodes[conv].out[0], CVY_OP_BATCH_NORM_INFERENCE), fold;
    const struct cvy_node *b = norm < 0 ? NULL : &graph->nodes[norm];
    const cvy_val w = graph->nodes[conv].in[1], bias = graph->nodes[conv].in[2];
    enum cvy_dtype dtype;

    if (!plain_conv(graph, conv) || !b || b->in[0] != graph->nodes[conv].out[0] || b->in[5] != CVY_NONE)
        return;
    dtype = graph->values[w].dtype;
    fold = cvy_graph_node(graph, CVY_OP_FOLD_BATCH_NORM, &b->attr, bias == CVY_NONE ? 5 : 6,
                          (cvy_val[]){w, b->in[1], b->in[2], b->in[3], b->in[4], bias}, 2,
                          (struct cvy_shape[]){*cvy_shape_of(graph, w), *cvy_shape_of(graph, b->in[1])},
                          (enum cvy_dtype[]){dtype, dtype});
    if (fold < 0)
        return;
    graph->nodes[fold].scope = graph->nodes[norm].scope;
    graph->nodes[fold].attr.batch_norm.activation = CVY_ACTIVATION_NONE;
    graph->nodes[conv].in[1] = graph->nodes[fold].out[0];
    graph->nodes[conv].in[2] = graph->nodes[fold].out[1];
    graph->nodes[conv].inputs = 3;
    graph->nodes[conv].attr.conv2d.activation = graph->nodes[norm].attr.batch_norm.activation;
    cvy_graph_move_output(graph, conv, graph->nodes[norm].out[0]);
    cvy_graph_detach(graph, norm);
}

/* conv + residual, where the add alone reads the convolution: then the other operand cannot depend on it. */
static void fuse_residual(struct cvy_graph *graph, int32_t add)
{
    for (int i = 0; i < 2; i++) {
        const struct cvy_node *node = &graph->nodes[add];
        const cvy_val mine = node->in[i];
        const int32_t conv = graph->values[mine].producer;

        if (!plain_conv(graph, conv) || cvy_graph_sole_reader(graph, mine) != add)
            continue;
        graph->nodes[conv].in[3] = node->in[1 - i];
        graph->nodes[conv].inputs = 4;
        graph->nodes[conv].attr.conv2d.activation = node->attr.add.relu ? CVY_ACTIVATION_RELU : CVY_ACTIVATION_NONE;
        cvy_graph_move_output(graph, conv, node->out[0]);
        cvy_graph_detach(graph, add);
        return;
    }
}

static void fuse_conv_relu(struct cvy_graph *graph, int32_t conv)
{
    enum cvy_activation activation;
    int32_t relu = sole_activation(graph, graph->nodes[conv].out[0], &activation);

    if (relu < 0 || graph->nodes[conv].attr.conv2d.activation || !fixed(graph, graph->nodes[conv].in[1]) ||
        !fixed(graph, graph->nodes[conv].in[2]))
        return;
    graph->nodes[conv].attr.conv2d.activation = activation;
    cvy_graph_move_output(graph, conv, graph->nodes[relu].out[0]);
    cvy_graph_detach(graph, relu);
}

/* relu(a + b), where no batch norm and no convolution took the addition: a squeeze-and-excitation block ends so, and
 * then its factors take both. */
static void fuse_add_relu(struct cvy_graph *graph, int32_t add)
{
    int32_t relu = sole_reader_of(graph, graph->nodes[add].out[0], CVY_OP_RELU);

    if (relu < 0 || graph->nodes[add].attr.add.relu)
        return;
    graph->nodes[add].attr.add.relu = true;
    cvy_graph_move_output(graph, add, graph->nodes[relu].out[0]);
    cvy_graph_detach(graph, relu);
}

/* ---- factors for each channel with what is added to the product ---- */

/* The node whose output `value` is, a product alone that only node `reader` reads; -1 otherwise. */
static int32_t sole_product(const struct cvy_graph *graph, cvy_val value, int32_t reader)
{
    const int32_t n = graph->values[value].producer;
    const struct cvy_node *scale = n < 0 ? NULL : &graph->nodes[n];

    if (!scale || scale->op != CVY_OP_SCALE_CHANNELS || scale->in[2] != CVY_NONE || scale->in[3] != CVY_NONE ||
        scale->attr.scale_channels.relu || cvy_graph_sole_reader(graph, value) != reader)
        return -1;
    return n;
}

/* relu(x * s + residual) */
static void fuse_scale_residual(struct cvy_graph *graph, int32_t add)
{
    const struct cvy_node sum = graph->nodes[add];

    for (int i = 0; i < 2; i++) {
        const int32_t scale = sole_product(graph, sum.in[i], add);

        if (scale < 0)
            continue;
        graph->nodes[scale].inputs = 4;
        graph->nodes[scale].in[3] = sum.in[1 - i];
        graph->nodes[scale].attr.scale_channels.relu = sum.attr.add.relu;
        cvy_graph_move_output(graph, scale, sum.out[0]);
        cvy_graph_detach(graph, add);
        return;
    }
}

/* dy * s + the mean's share of its gradient: what squeeze and excitation hand back to the layer before them. */
static void fuse_scale_shift(struct cvy_graph *graph, int32_t add)
{
    const struct cvy_node sum = graph->nodes[add];

    for (int i = 0; i < 2 && !sum.attr.add.relu; i++) {
        const int32_t scale = sole_product(graph, sum.in[i], add), mean = graph->values[sum.in[1 - i]].producer;
        const struct cvy_node *share = mean < 0 ? NULL : &graph->nodes[mean];

        if (scale < 0 || !share || share->op != CVY_OP_GLOBAL_AVG_POOL_BWD ||
            cvy_graph_sole_reader(graph, sum.in[1 - i]) != add)
            continue;
        graph->nodes[scale].inputs = 3;
        graph->nodes[scale].in[2] = share->in[0];
        graph->nodes[scale].attr.scale_channels.shift_factor =
            1 / ((double)share->attr.pool.input[0] * share->attr.pool.input[1]);
        cvy_graph_move_output(graph, scale, sum.out[0]);
        cvy_graph_detach(graph, mean);
        cvy_graph_detach(graph, add);
        return;
    }
}

/* ---- the rewrites ---- */

struct pass {
    enum cvy_op op;
    void (*fuse)(struct cvy_graph *graph, int32_t node);
};

static void run_passes(struct cvy_graph *graph, const struct pass *passes, size_t count)
{
    for (size_t p = 0; p < count; p++) {
        for (int32_t n = 0; n < graph->node_count && graph->status == CVY_OK; n++) {
            if (graph->nodes[n].op == passes[p].op && graph->nodes[n].outputs > 0)
                passes[p].fuse(graph, n);
        }
    }
    /* A residual may be computed after the node that now reads it. */
    cvy_graph_sort(graph, NULL, 0);
}

/* Batch norms in inference form belong to frozen layers; those after a convolution that is trained stay. */
void cvy_rewrite_fuse_training(struct cvy_graph *graph)
{
    static const struct pass passes[] = {
        {CVY_OP_CONV2D, fold_batch_norm},
        {CVY_OP_BATCH_NORM, fuse_batch_norm_add_relu},
        {CVY_OP_BATCH_NORM, fuse_batch_norm_relu},
        {CVY_OP_BATCH_NORM_INFERENCE, fuse_batch_norm_add_relu},
        {CVY_OP_BATCH_NORM_INFERENCE, fuse_batch_norm_relu},
        {CVY_OP_ADD, fuse_residual},
        {CVY_OP_CONV2D, fuse_conv_relu},
        {CVY_OP_ADD, fuse_add_relu},
        {CVY_OP_ADD, fuse_scale_residual},
    };

    run_passes(graph, passes, sizeof passes / sizeof *passes);
}

/* batch_norm_bwd(.., a + b): the node adds while it reads. */
static void fuse_gradient_sum(struct cvy_graph *graph, int32_t add)
{
    const struct cvy_node *sum = &graph->nodes[add];
    const int32_t reader = sole_reader_of(graph, sum->out[0], CVY_OP_BATCH_NORM_BWD);
    struct cvy_node *norm = reader < 0 ? NULL : &graph->nodes[reader];

    if (!norm || sum->attr.add.relu || norm->in[5] != sum->out[0] || cvy_node_has(norm, 7))
        return;
    for (int32_t i = norm->inputs; i < 8; i++)
        norm->in[i] = CVY_NONE;
    norm->inputs = 8;
    norm->in[5] = sum->in[0];
    norm->in[7] = sum->in[1];
    cvy_graph_detach(graph, add);
}

void cvy_rewrite_fuse_backward(struct cvy_graph *graph)
{
    static const struct pass passes[] = {
        {CVY_OP_ADD, fuse_scale_shift},
        {CVY_OP_ADD, fuse_gradient_sum},
    };

    run_passes(graph, passes, sizeof passes / sizeof *passes);
}

void cvy_rewrite_fuse_inference(struct cvy_graph *graph)
{
    static const struct pass passes[] = {
        {CVY_OP_CONV2D, fold_batch_norm}, {CVY_OP_ADD, fuse_residual},       {CVY_OP_CONV2D, fuse_conv_relu},
        {CVY_OP_ADD, fuse_add_relu},      {CVY_OP_ADD, fuse_scale_residual},
    };

    run_passes(graph, passes, sizeof passes / sizeof *passes);
}
