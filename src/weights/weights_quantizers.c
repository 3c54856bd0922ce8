/* The state of quantizers in a file: three numbers each, of which one that no training writes would give any answer. */
#include <math.h>

#include "base/error.h"
#include "graph/quantizer.h"
#include "weights/weights.h"

/* What is wrong with a range; NULL: nothing. One that no batch was seen for is that of a quantizer that is off. */
static const char *problem(const struct cvy_fake_quantize_attr *attr, const float observed[3])
{
    const float range = cvy_quantizer_range(attr, observed);

    if (!isfinite(observed[0]) || !isfinite(observed[1]) || !isfinite(observed[2]))
        return "has a number that is not finite";
    if (observed[2] < 0)
        return "counts fewer batches than none";
    if (observed[0] > 0 || observed[1] < 0)
        return "has a range without 0 in it, whose scale would be negative";
    if (observed[2] == 0 && (observed[0] != 0 || observed[1] != 0))
        return "has a range of no batch";
    if ((attr->channels || attr->positive) && observed[2] > 0 && range == 0)
        return "has a scale of zero";
    if (range > 0 && range < CVY_SMALLEST_RANGE)
        return "has a scale so small that nothing can be divided by it";
    return NULL;
}

cvy_status cvy_weights_check_quantizers(const struct cvy_graph *table, const struct cvy_tensor_file *file,
                                        const char *what)
{
    for (int32_t n = 0; n < table->node_count; n++) {
        const struct cvy_node *node = &table->nodes[n];
        const int32_t param = node->op == CVY_OP_FAKE_QUANTIZE ? table->values[node->in[1]].param : -1;
        const struct cvy_named_tensor *tensor = param < 0 ? NULL : cvy_tensor_find(file, table->params[param].name);
        const char *wrong;
        float observed[3];

        if (!tensor || !cvy_weights_fits(&table->params[param], tensor))
            continue;
        cvy_tensor_floats(tensor, observed);
        wrong = problem(&node->attr.fake_quantize, observed);
        if (wrong)
            return cvy_fail(CVY_BAD_DATA, "%s: the quantizer %s %s", cvy_quote(what), tensor->name, wrong);
    }
    return CVY_OK;
}

cvy_status cvy_weights_quantizer_states(const struct cvy_graph *table, const struct cvy_tensor_file *file,
                                        float **states)
{
    *states = cvy_calloc((size_t)table->state_elements + 1, sizeof **states);
    if (!*states)
        return cvy_fail_memory((size_t)table->state_elements * sizeof **states, "the ranges of quantizers");
    for (int32_t n = 0; n < table->node_count; n++) {
        const struct cvy_node *node = &table->nodes[n];
        const int32_t param = node->op == CVY_OP_FAKE_QUANTIZE ? table->values[node->in[1]].param : -1;
        const struct cvy_named_tensor *tensor = param < 0 ? NULL : cvy_tensor_find(file, table->params[param].name);

        if (tensor && cvy_weights_fits(&table->params[param], tensor))
            cvy_tensor_floats(tensor, *states + table->params[param].offset);
    }
    return CVY_OK;
}
