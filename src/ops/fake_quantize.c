/* Fake quantisation (Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only
 * inference", 2018): values are rounded to what 8 bits can say, so that training learns to live with it. */
#include "ops/rules.h"

cvy_val cvy_fake_quantize(struct cvy_graph *graph, cvy_val x, const char *name,
                          const struct cvy_fake_quantize_attr *options)
{
    if (graph->status != CVY_OK)
        return CVY_NONE;
    if (x < 0 || x >= graph->value_count)
        return cvy_graph_fail(graph, CVY_FAILED, "fake quantize has no input");
    if (!cvy_rule_float(graph, "fake quantize", "an input", x, graph->values[x].shape.rank))
        return CVY_NONE;
    if (options->delay < 0)
        return cvy_graph_fail(graph, CVY_USAGE, "fake quantize cannot begin %lld batches before the first",
                              (long long)-options->delay);
    return cvy_graph_quantizer(graph, x, name, options);
}

/* Straight through: rounding counts as doing nothing, cutting as a constant. The range of weights is their own:
 * nothing of them is cut by more than the rounding of its ends. TensorFlow's FakeQuantWithMinMaxVars cuts gradients
 * beyond the outermost levels, those of weights too (attr.ends); its QuantizeAndDequantize none (attr.straight). */
void cvy_fake_quantize_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                                const bool *need, cvy_val *din)
{
    const cvy_val observed = node->outputs > 1 && node->out[1] != CVY_NONE ? node->out[1] : node->in[1];

    if (need[1] || (node->outputs > 1 && dout[1] != CVY_NONE)) {
        cvy_graph_fail(graph, CVY_USAGE, "the range of a quantizer cannot be differentiated");
        return;
    }
    if (!need[0])
        return;
    din[0] = dout[0];
    if (!node->attr.fake_quantize.straight && (node->attr.fake_quantize.ends || !node->attr.fake_quantize.weights))
        din[0] = cvy_rule_gradient_node(graph, CVY_OP_FAKE_QUANTIZE_BWD, &node->attr, 3,
                                        (cvy_val[]){node->in[0], observed, dout[0]}, node->in[0]);
}

/* Two comparisons where the range is looked for; division, rounding, two limits and a product. */
double cvy_fake_quantize_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const bool needs_range = (node->outputs > 1 && node->out[1] != CVY_NONE) || node->attr.fake_quantize.weights;

    return (needs_range ? 7 : 5) * cvy_rule_elements(graph, node->out[0]);
}

/* Division, rounding, two comparisons, the choice. */
double cvy_fake_quantize_bwd_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 5 * cvy_rule_elements(graph, node->out[0]);
}
