/* Networks that were quantised with their batch norms folded, as other programs' formats can hold them. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "convert/convert.h"

/* A place for the new values of parameter `value`, which the list has then, and its old ones as floats; NULL: no memory
 * or no such tensor. */
static float *replace(struct cvy_conversion *c, cvy_val value, float **old)
{
    const char *name = c->table.params[c->table.values[value].param].name;

    for (size_t i = 0; i < c->weights.count; i++) {
        struct cvy_named_tensor *tensor = &c->weights.tensors[i];
        const size_t count = (size_t)cvy_shape_elements(&tensor->shape), bytes = count * sizeof(float);
        float *made;

        if (strcmp(tensor->name, name) != 0)
            continue;
        *old = cvy_arena_alloc(&c->arena, bytes);
        made = cvy_arena_alloc(&c->arena, bytes);
        if (!*old || !made)
            return NULL;
        cvy_tensor_floats(tensor, *old);
        tensor->dtype = CVY_F32;
        tensor->data = made;
        tensor->bytes = bytes;
        return made;
    }
    return NULL;
}

/* w gamma / sqrt(var + eps) with gamma 1, mean 0 and var + eps 1: the batch norm that follows changes no weight by as
 * much as half a rounding. */
static bool fold_layer(struct cvy_conversion *c, const struct cvy_node *node)
{
    const struct cvy_shape *shape = cvy_shape_of(&c->table, node->in[0]);
    const int64_t rows = shape->dim[0], length = cvy_shape_elements(shape) / rows;
    const double eps = (double)node->attr.batch_norm.eps;
    float *old[5], *made[5];

    for (int i = 0; i < 5; i++) {
        made[i] = replace(c, node->in[i], &old[i]);
        if (!made[i])
            return false;
    }
    for (int64_t k = 0; k < rows; k++) {
        const double scale = (double)old[1][k] / sqrt((double)old[4][k] + eps);

        for (int64_t i = k * length; i < (k + 1) * length; i++)
            made[0][i] = (float)((double)old[0][i] * scale);
        made[1][k] = 1;
        made[2][k] = (float)((double)old[2][k] - (double)old[3][k] * scale);
        made[3][k] = 0;
        made[4][k] = (float)(1 - eps);
    }
    return true;
}

/* The order and the names of the other form's parameters: the two differ in where quantizers stand. */
static cvy_status sort(struct cvy_conversion *c, const struct cvy_graph *table)
{
    const size_t bytes = c->weights.count * sizeof *c->weights.tensors;
    struct cvy_named_tensor *sorted = cvy_arena_alloc(&c->arena, bytes);
    size_t count = 0;

    if (!sorted)
        return cvy_fail_memory(bytes, "a list of tensors");
    for (int32_t p = 0; p < table->param_count; p++) {
        for (size_t i = 0; i < c->weights.count; i++) {
            if (strcmp(c->weights.tensors[i].name, table->params[p].name) != 0)
                continue;
            sorted[count] = c->weights.tensors[i];
            sorted[count++].name = table->params[p].name;
        }
    }
    c->weights.tensors = sorted;
    c->weights.count = count;
    return CVY_OK;
}

cvy_status cvy_convert_fold(struct cvy_conversion *c)
{
    struct cvy_graph table;
    cvy_status status;

    if (!cvy_quantize_folds(c->model.quantize))
        return CVY_OK;
    for (int32_t n = 0; n < c->table.node_count; n++) {
        if (c->table.nodes[n].op == CVY_OP_FOLD_BATCH_NORM && !fold_layer(c, &c->table.nodes[n]))
            return cvy_fail_memory((size_t)c->table.trainable_elements * sizeof(float), "folded weights");
    }
    c->folded = true;
    c->model.quantize = cvy_quantize_symmetric(c->model.quantize) ? CVY_QUANTIZE_SYMMETRIC : CVY_QUANTIZE_ASYMMETRIC;
    CVY_TRY(cvy_model_graph(c->architecture, &c->model, CVY_MODEL_INFER, false, &table));
    status = sort(c, &table);
    cvy_graph_release(&c->table);
    c->table = table;
    c->average.count = c->momentum.count = c->squares.count = 0;
    memset(c->last_good, 0, sizeof c->last_good);
    return status;
}
