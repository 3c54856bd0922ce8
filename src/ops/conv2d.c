/* Convolution in two dimensions (cross-correlation, as in every framework), with stride, padding per side, dilation and
 * groups; bias, residual and ReLU or ReLU6 may be part of it. */
#include "ops/rules.h"

/* K and C of the operands must agree with the groups. */
static bool channels_agree(struct cvy_graph *graph, const struct cvy_shape *x, const struct cvy_shape *w,
                           int32_t groups)
{
    if (groups < 1)
        cvy_graph_fail(graph, CVY_USAGE, "conv2d needs 1 or more groups, not %d", (int)groups);
    else if (x->dim[1] % groups != 0 || w->dim[0] % groups != 0)
        cvy_graph_fail(graph, CVY_USAGE, "conv2d cannot split %lld input and %lld output channels into %d groups",
                       (long long)x->dim[1], (long long)w->dim[0], (int)groups);
    else if (w->dim[1] != x->dim[1] / groups)
        cvy_graph_fail(graph, CVY_USAGE, "conv2d has weights for %lld input channels a group, but its input has %lld",
                       (long long)w->dim[1], (long long)(x->dim[1] / groups));
    else
        return true;
    return false;
}

cvy_val cvy_conv2d_values(struct cvy_graph *graph, cvy_val x, cvy_val w, cvy_val bias, cvy_val residual,
                          const struct cvy_conv2d_attr *options)
{
    union cvy_attr attr = {.conv2d = *options};
    struct cvy_conv2d_attr *a = &attr.conv2d;
    struct cvy_shape xs, ws, ys;
    int32_t inputs = residual != CVY_NONE ? 4 : bias != CVY_NONE ? 3 : 2;

    if (!cvy_rule_float(graph, "conv2d", "an input", x, 4) || !cvy_rule_float(graph, "conv2d", "weights", w, 4))
        return CVY_NONE;
    xs = graph->values[x].shape;
    ws = graph->values[w].shape;
    if (!cvy_rule_same(graph, "conv2d", "weights", w, ws, x) || !channels_agree(graph, &xs, &ws, a->groups))
        return CVY_NONE;
    if (a->kernel[0] != ws.dim[2] || a->kernel[1] != ws.dim[3])
        return cvy_graph_fail(graph, CVY_USAGE, "conv2d of %dx%d has weights of %lldx%lld", (int)a->kernel[0],
                              (int)a->kernel[1], (long long)ws.dim[2], (long long)ws.dim[3]);
    ys = cvy_shape4(
        xs.dim[0], ws.dim[0],
        cvy_rule_window(graph, "conv2d", xs.dim[2], a->kernel[0], a->stride[0], a->dilation[0], a->pad[0], a->pad[1]),
        cvy_rule_window(graph, "conv2d", xs.dim[3], a->kernel[1], a->stride[1], a->dilation[1], a->pad[2], a->pad[3]));
    if (bias != CVY_NONE && !cvy_rule_same(graph, "conv2d", "a bias", bias, cvy_shape1(ws.dim[0]), x))
        return CVY_NONE;
    if (residual != CVY_NONE && !cvy_rule_same(graph, "conv2d", "a residual", residual, ys, x))
        return CVY_NONE;
    if (graph->status != CVY_OK)
        return CVY_NONE;
    a->input[0] = (int32_t)xs.dim[2];
    a->input[1] = (int32_t)xs.dim[3];
    return cvy_rule_node(graph, CVY_OP_CONV2D, &attr, inputs, (cvy_val[]){x, w, bias, residual}, ys,
                         graph->values[x].dtype);
}

/* The value given for one dimension, else the one for both, else the default. */
static int32_t choose(int32_t own, int32_t both, int32_t otherwise)
{
    return own != 0 ? own : both != 0 ? both : otherwise;
}

cvy_val cvy_conv2d(struct cvy_graph *graph, cvy_val x, const struct cvy_conv2d *options)
{
    struct cvy_conv2d_attr attr = {.groups = choose(options->groups, 0, 1)};
    cvy_val w, bias = CVY_NONE;
    int64_t channels;

    if (!cvy_rule_float(graph, "conv2d", "an input", x, 4))
        return CVY_NONE;
    for (int i = 0; i < 2; i++) {
        attr.kernel[i] = choose(options->kernel_hw[i], options->kernel, 0);
        attr.stride[i] = choose(options->stride_hw[i], options->stride, 1);
        attr.dilation[i] = choose(options->dilation_hw[i], options->dilation, 1);
        if (attr.kernel[i] < 1)
            return cvy_graph_fail(graph, CVY_USAGE, "conv2d needs a kernel of 1 or more, not %d", (int)attr.kernel[i]);
    }
    for (int i = 0; i < 4; i++)
        attr.pad[i] = options->use_pads ? options->pads[i] : options->pad;
    if (options->out < 1)
        return cvy_graph_fail(graph, CVY_USAGE, "conv2d needs 1 or more output channels, not %d", (int)options->out);
    channels = graph->values[x].shape.dim[1];
    if (attr.groups < 1 || channels % attr.groups != 0 || options->out % attr.groups != 0)
        return cvy_graph_fail(graph, CVY_USAGE, "conv2d cannot split %lld input and %d output channels into %d groups",
                              (long long)channels, (int)options->out, (int)attr.groups);
    w = cvy_graph_param(graph, "weight", CVY_PARAM_TRAINABLE,
                        cvy_shape4(options->out, channels / attr.groups, attr.kernel[0], attr.kernel[1]),
                        options->init);
    if (options->bias)
        bias = cvy_graph_param(graph, "bias", CVY_PARAM_TRAINABLE, cvy_shape1(options->out), options->bias_init);
    return cvy_conv2d_values(graph, x, w, bias, CVY_NONE, &attr);
}

/* The parameters' gradients come first: their all-reduce overlaps with the data's gradient. */
void cvy_conv2d_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need,
                         cvy_val *din)
{
    const cvy_val x = node->in[0], w = node->in[1], bias = node->in[2], y = node->out[0];
    cvy_val dy = cvy_activation_mask(graph, node->attr.conv2d.activation, y, dout[0]);

    if (need[1])
        din[1] = cvy_rule_gradient_node(graph, CVY_OP_CONV2D_BWD_WEIGHTS, &node->attr, 2, (cvy_val[]){x, dy}, w);
    if (need[2])
        din[2] = cvy_rule_gradient_node(graph, CVY_OP_CONV2D_BWD_BIAS, NULL, 1, &dy, bias);
    if (need[0])
        din[0] = cvy_rule_gradient_node(graph, CVY_OP_CONV2D_BWD_DATA, &node->attr, 2, (cvy_val[]){w, dy}, x);
    if (need[3])
        din[3] = dy;
}

/* Each element of y is a sum over the C/g * R * S weights of its output channel. */
static double multiply_adds(const struct cvy_graph *graph, cvy_val w, cvy_val y)
{
    return cvy_rule_elements(graph, y) * cvy_rule_elements(graph, w) / (double)cvy_shape_of(graph, w)->dim[0];
}

double cvy_conv2d_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const bool statistics = node->outputs > 1 && node->out[1] != CVY_NONE; /* mean 1, variance 3 for each element */
    const bool prologue = cvy_node_has(node, 4);                           /* scale, shift and ReLU of x */
    const bool epilogue = cvy_node_has(node, 8);                           /* scale and shift of the sum */
    int extra = 2 * epilogue + (node->in[2] != CVY_NONE) + (node->in[3] != CVY_NONE) +
                (node->attr.conv2d.activation != CVY_ACTIVATION_NONE) + 4 * statistics;

    return 2 * multiply_adds(graph, node->in[1], node->out[0]) + extra * cvy_rule_elements(graph, node->out[0]) +
           (prologue ? 3 * cvy_rule_elements(graph, node->in[0]) : 0);
}

double cvy_conv2d_bwd_data_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const bool sums = node->outputs > 2 && node->out[2] != CVY_NONE, norm = cvy_node_has(node, 2);
    /* Sums of 4, or of 1 without a batch norm; a mask of 3, made again of x, or of 1; an addition. */
    const int extra = !sums ? 0 : (norm ? 4 : 1) + (cvy_node_has(node, 7) ? 1 : 3) + cvy_node_has(node, 8);

    return 2 * multiply_adds(graph, node->in[0], node->in[1]) + extra * cvy_rule_elements(graph, node->out[0]);
}

double cvy_conv2d_bwd_weights_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const bool prologue = cvy_node_has(node, 2);

    return 2 * multiply_adds(graph, node->out[0], node->in[1]) +
           (prologue ? 3 * cvy_rule_elements(graph, node->in[0]) : 0);
}

double cvy_conv2d_bwd_bias_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return cvy_rule_elements(graph, node->in[0]);
}
