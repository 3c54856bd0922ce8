/* The batch norm at the end of a residual block in closed form. The 1 x 1 convolution before it gives y = w x for m
 * pixels, and all that the batch norm asks of y is linear or quadratic in x:
 *
 *     mean = w s / m,   variance = diag(w S w^T) / m - mean^2   with s = sum of x, S = sum of x x^T over the pixels
 *
 * so statistics come from S and s (ops PRODUCT_NORM), which are small, and the convolution writes what comes after the
 * batch norm, the residual and the ReLU at once: y is never there. In the backward pass, with g the masked gradient
 * and a = gamma rstd, the gradient of y is a (g - sum g / m - (y - mean) rstd dgamma / m), which the gradients of w and
 * x multiply by x and w. What is subtracted there is linear in y = w x again: with R = sum of g x^T,
 *
 *     dgamma = rstd (diag(w R^T) - mean sum g),   dw = a (R - (sum g s^T + dgamma rstd w (S - s s^T / m)) / m)
 *     dx = (a w)^T g - w^T (a rstd dgamma / m) w x + a constant vector
 *
 * (PRODUCT_NORM_BWD; the small product of x is a convolution of its own, whose result the gradient of the data takes
 * as another reader's). So y, the largest tensor of a block, is neither kept nor made again, and the block's output is
 * kept in its place. */
#include "graph/order.h"

/* The only node of this op that has `value` as input `slot`; -1: none, or several. */
static int32_t reader_at(const struct cvy_graph *graph, cvy_val value, enum cvy_op op, int32_t slot)
{
    int32_t found = -1;

    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *node = &graph->nodes[n];
        if (node->op != op || slot >= node->inputs || node->in[slot] != value)
            continue;
        if (found >= 0)
            return -1;
        found = n;
    }
    return found;
}

static bool lacks(const struct cvy_node *node, int32_t from)
{
    for (int32_t i = from; i < node->inputs; i++) {
        if (node->in[i] != CVY_NONE)
            return false;
    }
    return true;
}

static bool is_dense(const struct cvy_conv2d_attr *attr)
{
    for (int i = 0; i < 2; i++) {
        if (attr->kernel[i] != 1 || attr->stride[i] != 1 || attr->pad[2 * i] != 0 || attr->pad[2 * i + 1] != 0)
            return false;
    }
    return attr->groups == 1;
}

/* The convolution of the data's gradient that makes one of the two gradients of the block's output; -1: none. */
static int32_t gradient_after(const struct cvy_graph *graph, const struct cvy_node *norm_bwd)
{
    int32_t found = -1;

    for (int i = 5; i < 8; i += 2) {
        const int32_t n = graph->values[norm_bwd->in[i]].producer;
        if (n >= 0 && graph->nodes[n].op == CVY_OP_CONV2D_BWD_DATA && graph->nodes[n].inputs == 2 &&
            graph->nodes[n].outputs == 1 && is_dense(&graph->nodes[n].attr.conv2d) &&
            cvy_graph_uses(graph, norm_bwd->in[i]) == 1)
            found = n;
    }
    return found;
}

/* The nodes of the backward pass, from the batch norm's. */
static bool find_backward(const struct cvy_graph *graph, cvy_val weights, struct cvy_product_norm *found)
{
    const struct cvy_node *const back = &graph->nodes[found->norm_bwd];
    const struct cvy_node *data, *before;

    if (!cvy_node_writes(back, 4) || back->in[7] == CVY_NONE)
        return false;
    found->after = gradient_after(graph, back);
    found->weights = reader_at(graph, back->out[0], CVY_OP_CONV2D_BWD_WEIGHTS, 1);
    found->data = reader_at(graph, back->out[0], CVY_OP_CONV2D_BWD_DATA, 1);
    if (found->after < 0 || found->weights < 0 || found->data < 0 || cvy_graph_uses(graph, back->out[0]) != 2)
        return false;
    data = &graph->nodes[found->data];
    if (data->inputs != 2 || data->outputs != 1 || data->in[0] != weights || graph->nodes[found->weights].inputs != 2)
        return false;
    found->norm_before = cvy_graph_sole_reader(graph, data->out[0]);
    before = found->norm_before < 0 ? NULL : &graph->nodes[found->norm_before];
    return before && before->op == CVY_OP_BATCH_NORM_BWD && before->in[5] == data->out[0] &&
           cvy_node_writes(before, 3) && lacks(before, 6);
}

/* Whether the gradient is masked by the batch norm's output, or by what makes that again. */
static bool masks_by(const struct cvy_graph *graph, cvy_val output, const struct cvy_product_norm *found)
{
    const struct cvy_node *const back = &graph->nodes[found->norm_bwd];

    return back->inputs == 8 &&
           (back->in[6] == output || (found->again >= 0 && back->in[6] == graph->nodes[found->again].out[0]));
}

bool cvy_product_norm_find(const struct cvy_graph *graph, int32_t norm, struct cvy_product_norm *found)
{
    const struct cvy_node *const node = &graph->nodes[norm], *conv;
    cvy_val y;

    if (node->op != CVY_OP_BATCH_NORM || node->attr.batch_norm.activation != CVY_ACTIVATION_RELU || node->inputs != 6 ||
        node->in[5] == CVY_NONE || !cvy_node_writes(node, 5))
        return false;
    y = node->in[0];
    *found = (struct cvy_product_norm){.norm = norm, .conv = graph->values[y].producer};
    if (found->conv < 0 || graph->nodes[found->conv].op != CVY_OP_CONV2D)
        return false;
    conv = &graph->nodes[found->conv];
    if (!lacks(conv, 2) || conv->outputs != 1 || !is_dense(&conv->attr.conv2d) ||
        conv->attr.conv2d.activation != CVY_ACTIVATION_NONE)
        return false;
    found->norm_bwd = reader_at(graph, y, CVY_OP_BATCH_NORM_BWD, 0);
    found->again = reader_at(graph, y, CVY_OP_BATCH_NORM_APPLY, 0);
    return found->norm_bwd >= 0 && cvy_graph_uses(graph, y) == 2 + (found->again >= 0) &&
           masks_by(graph, node->out[0], found) && find_backward(graph, conv->in[1], found);
}

/* ---- fusing ---- */

static cvy_val append(struct cvy_graph *graph, int32_t like, enum cvy_op op, const union cvy_attr *attr, int32_t inputs,
                      const cvy_val *in, struct cvy_shape shape, enum cvy_dtype dtype)
{
    const int32_t made = cvy_graph_node(graph, op, attr, inputs, in, 1, &shape, &dtype);

    if (made < 0)
        return CVY_NONE;
    graph->nodes[made].scope = graph->nodes[like].scope;
    graph->nodes[made].backward = graph->nodes[like].backward;
    return graph->nodes[made].out[0];
}

/* Lets `node` write `value` as output `slot`, instead of what it wrote there or nothing. */
static void write_there(struct cvy_graph *graph, int32_t node, int32_t slot, cvy_val value)
{
    struct cvy_node *const n = &graph->nodes[node];

    if (slot < n->outputs && n->out[slot] != CVY_NONE && graph->values[n->out[slot]].producer == node)
        graph->values[n->out[slot]].producer = -1;
    for (int32_t i = 0; i < slot; i++) {
        if (i >= n->outputs)
            n->out[i] = CVY_NONE;
    }
    n->out[slot] = value;
    n->outputs = n->outputs > slot ? n->outputs : slot + 1;
    graph->values[value].producer = node;
}

static void replace_readers(struct cvy_graph *graph, cvy_val from, cvy_val to)
{
    for (int32_t n = 0; n < graph->node_count; n++) {
        for (int32_t i = 0; i < graph->nodes[n].inputs; i++) {
            if (graph->nodes[n].in[i] == from)
                graph->nodes[n].in[i] = to;
        }
    }
}

/* What the forward pass leaves for the backward pass. */
struct kept {
    cvy_val moments, sums, sign;
};

/* A node that writes values there are; -1: an error sticks in the graph. */
static int32_t append_to(struct cvy_graph *graph, int32_t like, enum cvy_op op, const union cvy_attr *attr,
                         int32_t inputs, const cvy_val *in, int32_t outputs, const cvy_val *out)
{
    const struct cvy_value first = graph->values[out[0]]; /* a copy: the table may move */
    const cvy_val value = append(graph, like, op, attr, inputs, in, first.shape, first.dtype);
    const int32_t made = value == CVY_NONE ? -1 : graph->values[value].producer;

    if (made < 0)
        return -1;
    for (int32_t i = 0; i < outputs; i++)
        write_there(graph, made, i, out[i]);
    return made;
}

/* The moments of x, and the statistics from them instead of the batch norm, which is gone. */
static void append_statistics(struct cvy_graph *graph, const struct cvy_product_norm *p, const struct cvy_node *norm,
                              struct kept *kept)
{
    const struct cvy_node conv = graph->nodes[p->conv];
    const int64_t channels = graph->values[conv.in[1]].shape.dim[1];
    const enum cvy_dtype numbers = graph->values[norm->out[1]].dtype;
    const cvy_val x = conv.in[0];

    kept->moments = append(graph, p->conv, CVY_OP_CONV2D_BWD_WEIGHTS, &conv.attr, 2, (cvy_val[]){x, x},
                           cvy_shape4(channels, channels, 1, 1), numbers);
    kept->sums = append(graph, p->conv, CVY_OP_CONV2D_BWD_BIAS, NULL, 1, &x, cvy_shape1(channels), numbers);
    (void)append_to(graph, p->conv, CVY_OP_PRODUCT_NORM, &norm->attr, 6,
                    (cvy_val[]){x, conv.in[1], kept->moments, kept->sums, norm->in[3], norm->in[4]}, 4, norm->out + 1);
}

/* The convolution with all that follows it. */
static void take_norm(struct cvy_graph *graph, int32_t conv, const struct cvy_node *norm, struct kept *kept)
{
    const struct cvy_value y = graph->values[norm->out[0]]; /* a copy: the table may move */
    struct cvy_node *const node = &graph->nodes[conv];

    for (int32_t i = node->inputs; i < 12; i++)
        node->in[i] = CVY_NONE;
    node->in[3] = norm->in[5];
    node->in[8] = norm->in[1];
    node->in[9] = norm->in[2];
    node->in[10] = norm->out[1];
    node->in[11] = norm->out[2];
    node->inputs = 12;
    node->attr.conv2d.activation = norm->attr.batch_norm.activation;
    write_there(graph, conv, 0, norm->out[0]);
    node->out[1] = node->out[2] = CVY_NONE;
    node->outputs = 3;
    kept->sign = cvy_graph_add_output(graph, conv, y.dtype, &y.shape);
}

/* The gradient of the block's output, masked where it is made, and its sum. */
static void mask_gradient(struct cvy_graph *graph, const struct cvy_product_norm *p, const struct cvy_node *back,
                          cvy_val sign)
{
    struct cvy_node *const node = &graph->nodes[p->after];
    const cvy_val more = back->in[back->in[5] == node->out[0] ? 7 : 5];

    for (int32_t i = 2; i < 7; i++)
        node->in[i] = CVY_NONE;
    node->in[7] = sign;
    node->in[8] = more;
    node->inputs = 9;
    write_there(graph, p->after, 0, back->out[3]);
    write_there(graph, p->after, 2, back->out[2]);
}

/* The gradients of weights and data, of the masked gradient g. */
static void fuse_backward(struct cvy_graph *graph, const struct cvy_product_norm *p, const struct cvy_node *norm,
                          const struct cvy_node *back, const struct kept *kept)
{
    const struct cvy_node weights = graph->nodes[p->weights];
    const cvy_val w = graph->nodes[p->conv].in[1], x = weights.in[0], dw = weights.out[0], g = back->out[3];
    const struct cvy_shape shape = graph->values[w].shape, inputs = cvy_shape1(shape.dim[1]);
    const struct cvy_shape square = cvy_shape4(shape.dim[1], shape.dim[1], 1, 1), image = graph->values[x].shape;
    const enum cvy_dtype dtype = graph->values[x].dtype, numbers = graph->values[norm->out[1]].dtype;
    const union cvy_attr attr = {.conv2d = weights.attr.conv2d};
    struct cvy_node *node;
    cvy_val raw, more;
    int32_t made;

    graph->nodes[p->weights].in[1] = g;
    graph->nodes[p->weights].outputs = 0;
    raw = cvy_graph_add_output(graph, p->weights, graph->values[dw].dtype, &shape);
    made = append_to(
        graph, p->weights, CVY_OP_PRODUCT_NORM_BWD, &norm->attr, 9,
        (cvy_val[]){g, w, raw, kept->moments, kept->sums, norm->in[1], norm->out[1], norm->out[2], back->out[2]}, 2,
        (cvy_val[]){dw, back->out[1]});
    if (made < 0 || cvy_graph_add_output(graph, made, dtype, &shape) == CVY_NONE ||
        cvy_graph_add_output(graph, made, dtype, &square) == CVY_NONE ||
        cvy_graph_add_output(graph, made, numbers, &inputs) == CVY_NONE)
        return;
    graph->nodes[p->data].in[0] = graph->nodes[made].out[2];
    graph->nodes[p->data].in[1] = g;
    more = append(graph, p->data, CVY_OP_CONV2D, &attr, 3,
                  (cvy_val[]){x, graph->nodes[made].out[3], graph->nodes[made].out[4]}, image, dtype);
    node = &graph->nodes[p->norm_before];
    node->in[6] = CVY_NONE;
    node->in[7] = more;
    node->inputs = 8;
}

void cvy_product_norm_fuse(struct cvy_graph *graph, const struct cvy_product_norm *pattern)
{
    const struct cvy_node norm = graph->nodes[pattern->norm], back = graph->nodes[pattern->norm_bwd];
    struct kept kept;

    if (pattern->again >= 0) {
        replace_readers(graph, graph->nodes[pattern->again].out[0], norm.out[0]);
        cvy_graph_detach(graph, pattern->again);
    }
    cvy_graph_detach(graph, pattern->norm);
    cvy_graph_detach(graph, pattern->norm_bwd);
    append_statistics(graph, pattern, &norm, &kept);
    if (graph->status != CVY_OK)
        return;
    take_norm(graph, pattern->conv, &norm, &kept);
    mask_gradient(graph, pattern, &back, kept.sign);
    fuse_backward(graph, pattern, &norm, &back, &kept);
}
