/* Ops of networks in 8-bit integers, which only a rewrite makes (graph/rewrite_int8.c): what there is to say of them is
 * their cost. */
#include "ops/rules.h"

/* A multiplication and an addition for each weight and place. */
double cvy_conv2d_int8_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const struct cvy_shape *w = cvy_shape_of(graph, node->in[1]);
    const double each = (double)cvy_shape_elements(w) / (double)w->dim[0];

    return 2 * each * cvy_rule_elements(graph, node->out[0]);
}

/* One comparison for each element of each window. */
double cvy_max_pool_int8_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const int32_t *kernel = node->attr.int8.conv2d.kernel;

    return (double)kernel[0] * kernel[1] * cvy_rule_elements(graph, node->out[0]);
}

double cvy_global_avg_pool_int8_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return cvy_rule_elements(graph, node->in[0]);
}
