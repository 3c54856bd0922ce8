/* The batch norm after a 1 x 1 convolution, from moments of the convolution's input (graph/rewrite_product_norm.c). */
#include "ops/rules.h"

/* The moments around the means, the product of weights and moments, a dot product for each channel. */
double cvy_product_norm_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const double weights = cvy_rule_elements(graph, node->in[1]), moments = cvy_rule_elements(graph, node->in[2]);

    return 2 * moments + 2 * weights * (double)cvy_shape_of(graph, node->in[1])->dim[1] + 4 * weights;
}

/* The moments around the means; products of weights and these, and of weights and weights; dgamma 2, dw 4, w' 1, what
 * is multiplied 1, the offset 2 for each weight; and 2 for each number of the product. */
double cvy_product_norm_bwd_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const double weights = cvy_rule_elements(graph, node->in[1]), moments = cvy_rule_elements(graph, node->in[3]);

    return 4 * weights * (double)cvy_shape_of(graph, node->in[1])->dim[1] + 10 * weights + 4 * moments;
}
