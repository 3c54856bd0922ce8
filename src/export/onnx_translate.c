#include "export/onnx_translate.h"

#include <string.h>

struct cvy_onnx_node *cvy_onnx_add(struct cvy_onnx_translator *t, const struct cvy_node *node, const char *op_type,
                                   int inputs, const char *const *in)
{
    return cvy_onnx_add_node(t->model, node->scope, op_type, inputs, in);
}

const char *cvy_onnx_add_simple(struct cvy_onnx_translator *t, const struct cvy_node *node, const char *op_type,
                                int inputs, const char *const *in)
{
    return cvy_onnx_node_output(cvy_onnx_add(t, node, op_type, inputs, in));
}

/* Parameters and tensors are mostly in the same order: looks at the same place first. */
const struct cvy_named_tensor *cvy_onnx_find_tensor(const struct cvy_onnx_translator *t, int32_t param)
{
    const struct cvy_param *wanted = &t->graph->params[param];
    const struct cvy_named_tensor *found = NULL;

    if ((size_t)param < t->tensor_count && strcmp(t->tensors[param].name, wanted->name) == 0)
        found = &t->tensors[param];
    for (size_t i = 0; i < t->tensor_count && !found; i++) {
        if (strcmp(t->tensors[i].name, wanted->name) == 0)
            found = &t->tensors[i];
    }
    return found && found->dtype == CVY_F32 && cvy_shape_equal(&found->shape, &wanted->shape) ? found : NULL;
}
