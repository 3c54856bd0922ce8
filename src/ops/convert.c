/* Conversions: bytes or floats of an image to normalised floats, type to type, layout to layout. */
#include <math.h>

#include "ops/rules.h"

cvy_val cvy_normalize(struct cvy_graph *graph, cvy_val image, const float mean[3], const float std[3])
{
    return cvy_normalize_mixed(graph, image, (struct cvy_mix_values){CVY_NONE, CVY_NONE}, mean, std);
}

cvy_val cvy_normalize_mixed(struct cvy_graph *graph, cvy_val image, struct cvy_mix_values mix, const float mean[3],
                            const float std[3])
{
    const cvy_val in[] = {image, mix.partner, mix.coefficient};
    union cvy_attr attr = {.normalize = {.std = {1, 1, 1, 1}}};
    const struct cvy_value *value;
    char text[96];

    if (graph->status != CVY_OK)
        return CVY_NONE;
    if (image < 0 || image >= graph->value_count)
        return cvy_graph_fail(graph, CVY_FAILED, "normalize has no image");
    value = &graph->values[image];
    if ((value->dtype != CVY_U8 && value->dtype != CVY_F32) || value->shape.rank != 4 || value->shape.dim[1] != 3)
        return cvy_graph_fail(graph, CVY_USAGE, "normalize needs u8 or f32 images of 3 channels, not %s %s",
                              cvy_dtype_name(value->dtype), cvy_shape_text(&value->shape, text));
    if (!cvy_rule_mix(graph, "normalize", mix, value->shape.dim[0], CVY_F32))
        return CVY_NONE;
    for (int c = 0; c < 3; c++) {
        if (!isfinite(mean[c]) || !isfinite(std[c]) || std[c] <= 0)
            return cvy_graph_fail(graph, CVY_USAGE,
                                  "normalize needs a finite mean and a positive standard deviation, not %g and %g",
                                  (double)mean[c], (double)std[c]);
        attr.normalize.mean[c] = mean[c];
        attr.normalize.std[c] = std[c];
    }
    return cvy_rule_node(graph, CVY_OP_NORMALIZE, &attr, mix.partner == CVY_NONE ? 1 : 3, in, value->shape, CVY_F32);
}

double cvy_normalize_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    /* Subtract, divide; of two images, then two products and a sum. */
    return (node->inputs > 1 ? 7 : 2) * cvy_rule_elements(graph, node->out[0]);
}

cvy_val cvy_cast(struct cvy_graph *graph, cvy_val x, enum cvy_dtype dtype)
{
    union cvy_attr attr = {.cast = {dtype}};

    if (graph->status != CVY_OK)
        return CVY_NONE;
    if (x < 0 || x >= graph->value_count)
        return cvy_graph_fail(graph, CVY_FAILED, "cast has no input");
    if (dtype < 0 || dtype >= CVY_DTYPE_COUNT)
        return cvy_graph_fail(graph, CVY_USAGE, "cast to an unknown type");
    if (graph->values[x].dtype == dtype)
        return x;
    return cvy_rule_node(graph, CVY_OP_CAST, &attr, 1, &x, graph->values[x].shape, dtype);
}

void cvy_cast_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need,
                       cvy_val *din)
{
    if (need[0])
        din[0] = cvy_cast(graph, dout[0], graph->values[node->in[0]].dtype);
}
