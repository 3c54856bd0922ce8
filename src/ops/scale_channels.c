/* Images times one number for each channel of each image: the excitation of squeeze-and-excitation (Hu, Shen and Sun
 * 2018). */
#include "ops/rules.h"

cvy_val cvy_scale_channels(struct cvy_graph *graph, cvy_val x, cvy_val s)
{
    struct cvy_shape xs;

    if (!cvy_rule_float(graph, "scale channels", "an input", x, 4))
        return CVY_NONE;
    xs = graph->values[x].shape;
    if (!cvy_rule_same(graph, "scale channels", "factors", s, cvy_shape2(xs.dim[0], xs.dim[1]), x))
        return CVY_NONE;
    return cvy_rule_gradient_node(graph, CVY_OP_SCALE_CHANNELS, NULL, 2, (cvy_val[]){x, s}, x);
}

void cvy_scale_channels_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                                 const bool *need, cvy_val *din)
{
    const cvy_val x = node->in[0], s = node->in[1];

    if (need[1])
        din[1] = cvy_rule_gradient_node(graph, CVY_OP_SCALE_CHANNELS_BWD_SCALE, NULL, 2, (cvy_val[]){x, dout[0]}, s);
    if (need[0])
        din[0] = cvy_rule_gradient_node(graph, CVY_OP_SCALE_CHANNELS, NULL, 2, (cvy_val[]){dout[0], s}, x);
}

/* A product and an addition for each element. */
double cvy_scale_channels_bwd_scale_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 2 * cvy_rule_elements(graph, node->in[0]);
}
