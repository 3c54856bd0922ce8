#include "support_onnx.h"
#include "base/file.h"
#include "support_graph.h"
#include "support_test.h"

void onnx_make_tensors(struct onnx_example *e)
{
    static const int64_t steps = 7;
    int64_t total = 0, next = 0;

    check_graph(&e->graph);
    for (int32_t i = 0; i < e->graph.param_count; i++)
        total += cvy_shape_elements(&e->graph.params[i].shape);
    e->values = test_malloc((size_t)total * sizeof *e->values);
    for (int64_t i = 0; i < total; i++)
        e->values[i] = (float)(i % 65521) / 7;
    e->tensors = test_calloc((size_t)e->graph.param_count, sizeof *e->tensors);
    e->count = (size_t)e->graph.param_count;
    for (int32_t i = 0; i < e->graph.param_count; i++) {
        const struct cvy_param *param = &e->graph.params[i];
        const size_t elements = (size_t)cvy_shape_elements(&param->shape);
        const bool counter = param->kind == CVY_PARAM_COUNTER;
        e->tensors[i] = (struct cvy_named_tensor){param->name, counter ? CVY_I64 : CVY_F32, param->shape,
                                                  counter ? (const void *)&steps : e->values + next,
                                                  counter ? sizeof steps : elements * sizeof(float)};
        next += (int64_t)elements;
    }
}

void onnx_finish(struct onnx_example *e, cvy_val logits)
{
    cvy_graph_result(&e->graph, CVY_RESULT_NAMED, "logits", -1, logits);
    onnx_make_tensors(e);
}

void onnx_release(struct onnx_example *e)
{
    cvy_graph_release(&e->graph);
    test_free(e->tensors);
    test_free(e->values);
}

/* ---- reading back ---- */

static bool is_known(const Onnx__GraphProto *graph, size_t nodes, const char *name)
{
    bool known = false;

    for (size_t i = 0; i < graph->n_input; i++)
        known = known || strcmp(graph->input[i]->name, name) == 0;
    for (size_t i = 0; i < graph->n_initializer; i++)
        known = known || strcmp(graph->initializer[i]->name, name) == 0;
    for (size_t i = 0; i < nodes; i++)
        known = known || strcmp(graph->node[i]->output[0], name) == 0;
    return known;
}

/* Every name is made before it is read and made once. */
static void check_names(const Onnx__GraphProto *graph)
{
    for (size_t n = 0; n < graph->n_node; n++) {
        const Onnx__NodeProto *node = graph->node[n];
        assert_int_equal(node->n_output, 1);
        for (size_t i = 0; i < node->n_input; i++) {
            if (node->input[i][0] && !is_known(graph, n, node->input[i])) /* "": left out */
                fail_msg("%s reads %s before it is there", node->name, node->input[i]);
        }
        if (is_known(graph, n, node->output[0]))
            fail_msg("%s is made twice", node->output[0]);
        for (size_t i = 0; i < n; i++)
            assert_string_not_equal(graph->node[i]->name, node->name);
    }
    assert_true(graph->n_output > 0);
    for (size_t i = 0; i < graph->n_output; i++)
        assert_true(is_known(graph, graph->n_node, graph->output[i]->name));
}

Onnx__ModelProto *onnx_read(const char *path)
{
    Onnx__ModelProto *model;
    void *data = NULL;
    size_t size = 0;

    if (cvy_file_read(path, SIZE_MAX, &data, &size) != CVY_OK)
        fail_msg("%s", cvy_error());
    model = onnx__model_proto__unpack(NULL, size, data);
    cvy_free(data);
    assert_non_null(model);
    assert_non_null(model->graph);
    check_names(model->graph);
    return model;
}

size_t onnx_count(const Onnx__GraphProto *graph, const char *op_type)
{
    size_t count = 0;

    for (size_t i = 0; i < graph->n_node; i++)
        count += strcmp(graph->node[i]->op_type, op_type) == 0;
    return count;
}

const Onnx__NodeProto *onnx_node(const Onnx__GraphProto *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_node; i++) {
        if (strcmp(graph->node[i]->name, name) == 0)
            return graph->node[i];
    }
    fail_msg("there is no node %s", name);
    return NULL;
}

const Onnx__AttributeProto *onnx_attribute(const Onnx__NodeProto *node, const char *name)
{
    for (size_t i = 0; i < node->n_attribute; i++) {
        if (strcmp(node->attribute[i]->name, name) == 0)
            return node->attribute[i];
    }
    fail_msg("%s has no attribute %s", node->name, name);
    return NULL;
}

void onnx_check_int(const Onnx__NodeProto *node, const char *name, int64_t value)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);

    assert_int_equal(a->type, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    assert_int_equal(a->i, value);
}

void onnx_check_ints(const Onnx__NodeProto *node, const char *name, size_t count, const int64_t *values)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);

    assert_int_equal(a->type, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    assert_int_equal(a->n_ints, count);
    assert_memory_equal(a->ints, values, count * sizeof *values);
}

void onnx_check_value(const Onnx__ValueInfoProto *value, const char *name, size_t rank, const int64_t *dims)
{
    const Onnx__TypeProto__Tensor *type = value->type->tensor_type;

    assert_string_equal(value->name, name);
    assert_int_equal(value->type->value_case, ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE);
    assert_int_equal(type->elem_type, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    assert_int_equal(type->shape->n_dim, rank);
    assert_int_equal(type->shape->dim[0]->value_case, ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM);
    assert_string_equal(type->shape->dim[0]->dim_param, "batch");
    for (size_t i = 1; i < rank; i++) {
        assert_int_equal(type->shape->dim[i]->value_case, ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE);
        assert_int_equal(type->shape->dim[i]->dim_value, dims[i]);
    }
}

void onnx_check_initializers(const struct onnx_example *e, const Onnx__GraphProto *graph)
{
    size_t next = 0;

    for (size_t i = 0; i < e->count; i++) {
        const struct cvy_named_tensor *tensor = &e->tensors[i];
        const Onnx__TensorProto *made;

        if (tensor->dtype == CVY_I64)
            continue;
        assert_true(next < graph->n_initializer);
        made = graph->initializer[next++];
        assert_string_equal(made->name, tensor->name);
        assert_int_equal(made->data_type, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
        assert_int_equal(made->n_dims, tensor->shape.rank);
        for (int32_t d = 0; d < tensor->shape.rank; d++)
            assert_int_equal(made->dims[d], tensor->shape.dim[d]);
        assert_int_equal(made->raw_data.len, tensor->bytes);
        assert_memory_equal(made->raw_data.data, tensor->data, tensor->bytes);
    }
    assert_int_equal(next, graph->n_initializer);
}

void onnx_check_types(const Onnx__GraphProto *graph, size_t count, const char *const *types)
{
    for (size_t i = 0; i < graph->n_node && i < count; i++)
        assert_string_equal(graph->node[i]->op_type, types[i]);
    assert_int_equal(graph->n_node, count);
}
