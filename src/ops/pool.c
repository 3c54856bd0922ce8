/* Pooling: maximum over windows, mean over the whole map. */
#include "ops/rules.h"

cvy_val cvy_max_pool(struct cvy_graph *graph, cvy_val x, const struct cvy_max_pool *options)
{
    const int32_t kernel = options->kernel, stride = options->stride ? options->stride : kernel;
    union cvy_attr attr = {.pool = {.kernel = {kernel, kernel}, .stride = {stride, stride}}};
    int32_t *pad = attr.pool.pad;
    struct cvy_shape xs, ys;
    int32_t node;

    if (!cvy_rule_float(graph, "max pool", "an input", x, 4))
        return CVY_NONE;
    for (int i = 0; i < 4; i++) {
        pad[i] = options->use_pads ? options->pads[i] : options->pad;
        /* Else a window could lie in the padding alone and have no maximum. */
        if (kernel > 0 && pad[i] >= kernel)
            return cvy_graph_fail(graph, CVY_USAGE, "max pool needs a padding below its kernel of %d, not %d",
                                  (int)kernel, (int)pad[i]);
    }
    if (kernel > 16)
        return cvy_graph_fail(graph, CVY_USAGE, "max pool takes kernels up to 16, not %d", (int)kernel);
    xs = graph->values[x].shape;
    ys = cvy_shape4(xs.dim[0], xs.dim[1],
                    cvy_rule_window(graph, "max pool", xs.dim[2], kernel, stride, 1, pad[0], pad[1]),
                    cvy_rule_window(graph, "max pool", xs.dim[3], kernel, stride, 1, pad[2], pad[3]));
    attr.pool.input[0] = (int32_t)xs.dim[2];
    attr.pool.input[1] = (int32_t)xs.dim[3];
    node = cvy_graph_node(graph, CVY_OP_MAX_POOL, &attr, 1, &x, 2, (struct cvy_shape[]){ys, ys},
                          (enum cvy_dtype[]){graph->values[x].dtype, CVY_U8});
    return node < 0 ? CVY_NONE : graph->nodes[node].out[0];
}

void cvy_max_pool_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need,
                           cvy_val *din)
{
    if (need[0])
        din[0] = cvy_rule_gradient_node(graph, CVY_OP_MAX_POOL_BWD, &node->attr, 2, (cvy_val[]){dout[0], node->out[1]},
                                        node->in[0]);
}

/* One comparison for each element of each window; scale and shift 2 and ReLU 1 of a batch norm before it. */
double cvy_max_pool_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const double norm = node->inputs > 1 ? 3 * cvy_rule_elements(graph, node->in[0]) : 0;

    return (double)node->attr.pool.kernel[0] * node->attr.pool.kernel[1] * cvy_rule_elements(graph, node->out[0]) +
           norm;
}

/* One for each element of dy, one more of a sum; the batch norm before it as in cvy_batch_norm_bwd_flops. */
double cvy_max_pool_bwd_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const bool two = cvy_node_has(node, 2);
    const double norm = node->inputs > 3 ? 10 * cvy_rule_elements(graph, node->in[3]) : 0;

    return (two ? 2 : 1) * cvy_rule_elements(graph, node->in[0]) + norm;
}

cvy_val cvy_global_avg_pool(struct cvy_graph *graph, cvy_val x)
{
    union cvy_attr attr = {.pool = {.kernel = {0}}};
    struct cvy_shape xs;

    if (!cvy_rule_float(graph, "global average pool", "an input", x, 4))
        return CVY_NONE;
    xs = graph->values[x].shape;
    if (xs.dim[2] > INT32_MAX || xs.dim[3] > INT32_MAX)
        return cvy_graph_fail(graph, CVY_USAGE, "global average pool has an input that is too large");
    for (int i = 0; i < 2; i++) {
        attr.pool.kernel[i] = attr.pool.input[i] = (int32_t)xs.dim[2 + i];
        attr.pool.stride[i] = 1;
    }
    return cvy_rule_node(graph, CVY_OP_GLOBAL_AVG_POOL, &attr, 1, &x, cvy_shape2(xs.dim[0], xs.dim[1]),
                         graph->values[x].dtype);
}

void cvy_global_avg_pool_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                                  const bool *need, cvy_val *din)
{
    if (need[0])
        din[0] = cvy_rule_gradient_node(graph, CVY_OP_GLOBAL_AVG_POOL_BWD, &node->attr, 1, dout, node->in[0]);
}

double cvy_global_avg_pool_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return cvy_rule_elements(graph, node->in[0]);
}
