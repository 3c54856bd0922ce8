/* Images times one number for each channel of each image: the excitation of squeeze-and-excitation (Hu, Shen and Sun
 * 2018). */
#include "ops/rules.h"

/* The plain product. */
static cvy_val scaled(struct cvy_graph *graph, cvy_val x, cvy_val s)
{
    const union cvy_attr attr = {.scale_channels = {.shift_factor = 1}};

    return cvy_rule_gradient_node(graph, CVY_OP_SCALE_CHANNELS, &attr, 2, (cvy_val[]){x, s}, x);
}

cvy_val cvy_scale_channels(struct cvy_graph *graph, cvy_val x, cvy_val s)
{
    struct cvy_shape xs;

    if (!cvy_rule_float(graph, "scale channels", "an input", x, 4))
        return CVY_NONE;
    xs = graph->values[x].shape;
    if (!cvy_rule_same(graph, "scale channels", "factors", s, cvy_shape2(xs.dim[0], xs.dim[1]), x))
        return CVY_NONE;
    return scaled(graph, x, s);
}

/* A shift stands in the backward pass alone, where a rewrite puts it. */
void cvy_scale_channels_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                                 const bool *need, cvy_val *din)
{
    const cvy_val x = node->in[0], s = node->in[1];
    cvy_val dy = dout[0];

    if (need[2]) {
        cvy_graph_fail(graph, CVY_USAGE, "scale_channels cannot be differentiated by its shift");
        return;
    }
    if (node->attr.scale_channels.relu)
        dy = cvy_activation_mask(graph, CVY_ACTIVATION_RELU, node->out[0], dy);
    if (need[1])
        din[1] = cvy_rule_gradient_node(graph, CVY_OP_SCALE_CHANNELS_BWD_SCALE, NULL, 2, (cvy_val[]){x, dy}, s);
    if (need[0])
        din[0] = scaled(graph, dy, s);
    if (need[3])
        din[3] = dy;
}

/* The product; shift, residual and ReLU one each. */
double cvy_scale_channels_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const int each = 1 + (node->in[2] != CVY_NONE) + (node->in[3] != CVY_NONE) + node->attr.scale_channels.relu;

    return each * cvy_rule_elements(graph, node->out[0]);
}

/* A product and an addition for each element. */
double cvy_scale_channels_bwd_scale_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 2 * cvy_rule_elements(graph, node->in[0]);
}
