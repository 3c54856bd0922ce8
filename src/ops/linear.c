/* Fully connected layer: y = x w^T + bias. */
#include <math.h>

#include "ops/rules.h"

cvy_val cvy_linear_from(struct cvy_graph *graph, cvy_val x, const struct cvy_linear *options)
{
    struct cvy_init usual = {CVY_INIT_UNIFORM, 0};
    const int32_t out = options->out;
    struct cvy_shape xs, ws;
    cvy_val in[3];

    if (!cvy_rule_float(graph, "linear", "an input", x, 2))
        return CVY_NONE;
    if (out < 1)
        return cvy_graph_fail(graph, CVY_USAGE, "linear needs 1 or more outputs, not %d", (int)out);
    xs = graph->values[x].shape;
    usual.scale = (float)(1 / sqrt((double)xs.dim[1]));
    ws = options->as_1x1 ? cvy_shape4(out, xs.dim[1], 1, 1) : cvy_shape2(out, xs.dim[1]);
    in[0] = x;
    in[1] = cvy_graph_param(graph, "weight", CVY_PARAM_TRAINABLE, ws, options->init ? *options->init : usual);
    in[2] = cvy_graph_param(graph, "bias", CVY_PARAM_TRAINABLE, cvy_shape1(out),
                            options->init ? (struct cvy_init){CVY_INIT_ZERO, 0} : usual);
    if (!cvy_rule_same(graph, "linear", "weights", in[1], ws, x))
        return CVY_NONE;
    return cvy_rule_node(graph, CVY_OP_LINEAR, NULL, 3, in, cvy_shape2(xs.dim[0], out), graph->values[x].dtype);
}

cvy_val cvy_linear(struct cvy_graph *graph, cvy_val x, int32_t out)
{
    return cvy_linear_from(graph, x, &(struct cvy_linear){.out = out});
}

cvy_val cvy_linear_1x1(struct cvy_graph *graph, cvy_val x, int32_t out)
{
    return cvy_linear_from(graph, x, &(struct cvy_linear){.out = out, .as_1x1 = true});
}

void cvy_linear_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need,
                         cvy_val *din)
{
    const cvy_val x = node->in[0], w = node->in[1], bias = node->in[2];

    if (need[1] || need[2]) {
        const struct cvy_shape shapes[] = {*cvy_shape_of(graph, w),
                                           need[2] ? *cvy_shape_of(graph, bias) : cvy_shape0()};
        const enum cvy_dtype dtype = graph->values[w].dtype, dtypes[] = {dtype, dtype};
        int32_t made = cvy_graph_node(graph, CVY_OP_LINEAR_BWD_WEIGHTS, NULL, 2, (cvy_val[]){x, dout[0]},
                                      need[2] ? 2 : 1, shapes, dtypes);
        if (made < 0)
            return;
        din[1] = need[1] ? graph->nodes[made].out[0] : CVY_NONE;
        din[2] = need[2] ? graph->nodes[made].out[1] : CVY_NONE;
    }
    if (need[0])
        din[0] = cvy_rule_gradient_node(graph, CVY_OP_LINEAR_BWD_DATA, NULL, 2, (cvy_val[]){w, dout[0]}, x);
}

double cvy_linear_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    double outputs = cvy_rule_elements(graph, node->out[0]);

    return 2 * outputs * (double)cvy_shape_of(graph, node->in[1])->dim[1] + (node->in[2] != CVY_NONE ? outputs : 0);
}

double cvy_linear_bwd_data_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 2 * cvy_rule_elements(graph, node->in[1]) * (double)cvy_shape_of(graph, node->in[0])->dim[1];
}

double cvy_linear_bwd_weights_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    double outputs = cvy_rule_elements(graph, node->in[1]);

    return 2 * outputs * (double)cvy_shape_of(graph, node->out[0])->dim[1] + (node->out[1] != CVY_NONE ? outputs : 0);
}
