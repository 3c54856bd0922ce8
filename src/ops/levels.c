/* The operations of a feature pyramid besides convolutions: maps of twice the extent, and the maps of several levels as
 * rows of one table. */
#include "ops/rules.h"

/* ---- nearest neighbour, twice the extent ---- */

cvy_val cvy_upsample(struct cvy_graph *graph, cvy_val x)
{
    struct cvy_shape shape;

    if (!cvy_rule_float(graph, "upsample", "an input", x, 4))
        return CVY_NONE;
    shape = graph->values[x].shape;
    if (shape.dim[2] > INT32_MAX / 2 || shape.dim[3] > INT32_MAX / 2)
        return cvy_graph_fail(graph, CVY_USAGE, "upsample has an input that is too large");
    shape.dim[2] *= 2;
    shape.dim[3] *= 2;
    return cvy_rule_node(graph, CVY_OP_UPSAMPLE, NULL, 1, &x, shape, graph->values[x].dtype);
}

void cvy_upsample_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout, const bool *need,
                           cvy_val *din)
{
    if (need[0])
        din[0] = cvy_rule_gradient_node(graph, CVY_OP_UPSAMPLE_BWD, NULL, 1, dout, node->in[0]);
}

/* Three additions for each element of dx. */
double cvy_upsample_bwd_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 3 * cvy_rule_elements(graph, node->out[0]);
}

/* ---- levels as rows ---- */

cvy_val cvy_flatten_levels(struct cvy_graph *graph, int32_t levels, const cvy_val *maps, int32_t columns)
{
    const union cvy_attr attr = {.levels = {.columns = columns}};
    int64_t rows = 0;
    struct cvy_shape first;

    if (graph->status != CVY_OK)
        return CVY_NONE;
    if (levels < 1 || levels > CVY_MAX_MAPS)
        return cvy_graph_fail(graph, CVY_USAGE, "flatten levels takes 1 to %d maps, not %d", CVY_MAX_MAPS, (int)levels);
    if (columns < 1)
        return cvy_graph_fail(graph, CVY_USAGE, "flatten levels needs 1 or more columns, not %d", (int)columns);
    for (int32_t i = 0; i < levels; i++) {
        struct cvy_shape wanted;

        if (!cvy_rule_float(graph, "flatten levels", "maps", maps[i], 4))
            return CVY_NONE;
        first = graph->values[maps[0]].shape;
        wanted = graph->values[maps[i]].shape;
        wanted.dim[0] = first.dim[0];
        wanted.dim[1] = first.dim[1];
        if (!cvy_rule_same(graph, "flatten levels", "maps", maps[i], wanted, maps[0]))
            return CVY_NONE;
        if (first.dim[1] % columns)
            return cvy_graph_fail(graph, CVY_USAGE, "flatten levels cannot cut %lld channels into rows of %d",
                                  (long long)first.dim[1], (int)columns);
        if (wanted.dim[2] > INT32_MAX / wanted.dim[3] ||
            first.dim[1] / columns * wanted.dim[2] * wanted.dim[3] > INT32_MAX - rows)
            return cvy_graph_fail(graph, CVY_USAGE, "flatten levels has an input that is too large");
        rows += first.dim[1] / columns * wanted.dim[2] * wanted.dim[3];
    }
    return cvy_rule_node(graph, CVY_OP_FLATTEN_LEVELS, &attr, levels, maps,
                         (struct cvy_shape){.rank = 3, .dim = {first.dim[0], rows, columns}},
                         graph->values[maps[0]].dtype);
}

/* One node gives the gradients of all levels. */
void cvy_flatten_levels_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                                 const bool *need, cvy_val *din)
{
    struct cvy_shape shapes[CVY_MAX_MAPS];
    enum cvy_dtype dtypes[CVY_MAX_MAPS];
    bool any = false;
    int32_t made;

    for (int32_t i = 0; i < node->inputs; i++) {
        shapes[i] = *cvy_shape_of(graph, node->in[i]);
        dtypes[i] = graph->values[node->in[i]].dtype;
        any |= need[i];
    }
    if (!any)
        return;
    made = cvy_graph_node(graph, CVY_OP_FLATTEN_LEVELS_BWD, &node->attr, 1, dout, node->inputs, shapes, dtypes);
    for (int32_t i = 0; i < node->inputs && made >= 0; i++) {
        if (need[i])
            din[i] = graph->nodes[made].out[i];
    }
}
