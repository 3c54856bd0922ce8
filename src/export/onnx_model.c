/* The messages of ONNX's schema, which protobuf-c's compiler turned into onnx.pb-c.h. */
#include "export/onnx_model.h"

#include <onnx.pb-c.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

struct cvy_onnx_node {
    Onnx__NodeProto proto; /* first: the list of nodes points here */
    struct cvy_onnx_model *model;
    const char *base; /* its name without a number */
};

struct cvy_onnx_model {
    struct cvy_arena arena;
    Onnx__ModelProto proto;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    bool failed; /* memory ran out */
};

/* ---- memory ---- */

/* Zeroed; NULL where memory runs out or has run out. */
static void *make(struct cvy_onnx_model *model, size_t bytes)
{
    void *made = model->failed ? NULL : cvy_arena_alloc(&model->arena, bytes);

    model->failed = !made;
    return made;
}

static char *copy(struct cvy_onnx_model *model, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *made = make(model, bytes);

    return made ? memcpy(made, text, bytes) : NULL;
}

/* A list of `count` pointers with room for one more: itself, or a copy of twice the size. NULL without memory. */
static void *with_room(struct cvy_onnx_model *model, void *list, size_t count)
{
    void *larger;

    if (model->failed)
        return NULL;
    if ((count & (count - 1)) != 0) /* grows where the count is a power of two */
        return list;
    larger = make(model, (count ? 2 * count : 1) * sizeof(void *));
    if (larger && count)
        memcpy(larger, list, count * sizeof(void *));
    return larger;
}

/* ---- a model and its parts ---- */

struct cvy_onnx_model *cvy_onnx_model_new(const char *name, const char *description)
{
    struct cvy_onnx_model *model = cvy_calloc(1, sizeof *model);

    if (!model)
        return NULL;
    onnx__model_proto__init(&model->proto);
    onnx__graph_proto__init(&model->graph);
    onnx__operator_set_id_proto__init(&model->opset);
    model->opset.domain = copy(model, ""); /* ONNX's own */
    model->opset.has_version = true;
    model->opset.version = CVY_ONNX_OPSET;
    model->opsets[0] = &model->opset;
    model->graph.name = copy(model, name);
    model->proto.has_ir_version = true;
    model->proto.ir_version = CVY_ONNX_IR_VERSION;
    model->proto.opset_import = model->opsets;
    model->proto.n_opset_import = 1;
    model->proto.producer_name = copy(model, "convoy");
    model->proto.producer_version = copy(model, cvy_version());
    model->proto.doc_string = copy(model, description);
    model->proto.graph = &model->graph;
    return model;
}

void cvy_onnx_model_free(struct cvy_onnx_model *model)
{
    if (!model)
        return;
    cvy_arena_release(&model->arena);
    cvy_free(model);
}

static Onnx__TensorShapeProto *make_shape(struct cvy_onnx_model *model, const struct cvy_shape *shape)
{
    Onnx__TensorShapeProto *made = make(model, sizeof *made);
    Onnx__TensorShapeProto__Dimension **dims = make(model, CVY_MAX_RANK * sizeof *dims);

    if (!dims)
        return NULL;
    onnx__tensor_shape_proto__init(made);
    made->dim = dims;
    for (int32_t i = 0; i < shape->rank; i++) {
        dims[i] = make(model, sizeof *dims[i]);
        if (!dims[i])
            return NULL;
        onnx__tensor_shape_proto__dimension__init(dims[i]);
        if (shape->dim[i] == CVY_BATCH) {
            dims[i]->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            dims[i]->dim_param = copy(model, "batch");
        } else {
            dims[i]->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dims[i]->dim_value = shape->dim[i];
        }
        made->n_dim++;
    }
    return made;
}

/* NULL without memory. */
static Onnx__ValueInfoProto *make_value(struct cvy_onnx_model *model, const char *name, const struct cvy_shape *shape)
{
    Onnx__ValueInfoProto *value = make(model, sizeof *value);
    Onnx__TypeProto *type = make(model, sizeof *type);
    Onnx__TypeProto__Tensor *tensor = make(model, sizeof *tensor);

    if (!tensor)
        return NULL;
    onnx__type_proto__tensor__init(tensor);
    tensor->has_elem_type = true;
    tensor->elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    tensor->shape = make_shape(model, shape);
    onnx__type_proto__init(type);
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor;
    onnx__value_info_proto__init(value);
    value->name = copy(model, name);
    value->type = type;
    return value;
}

static void add_value(struct cvy_onnx_model *model, Onnx__ValueInfoProto ***list, size_t *count, const char *name,
                      const struct cvy_shape *shape)
{
    Onnx__ValueInfoProto *value = make_value(model, name, shape);
    Onnx__ValueInfoProto **longer = with_room(model, *list, *count);

    if (!longer)
        return;
    *list = longer;
    longer[(*count)++] = value;
}

void cvy_onnx_add_input(struct cvy_onnx_model *model, const char *name, const struct cvy_shape *shape)
{
    add_value(model, &model->graph.input, &model->graph.n_input, name, shape);
}

void cvy_onnx_add_output(struct cvy_onnx_model *model, const char *name, const struct cvy_shape *shape)
{
    add_value(model, &model->graph.output, &model->graph.n_output, name, shape);
}

static int32_t element_type(enum cvy_dtype dtype)
{
    switch (dtype) {
    case CVY_I64:
        return ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    case CVY_I32:
        return ONNX__TENSOR_PROTO__DATA_TYPE__INT32;
    case CVY_I8:
        return ONNX__TENSOR_PROTO__DATA_TYPE__INT8;
    case CVY_U8:
        return ONNX__TENSOR_PROTO__DATA_TYPE__UINT8;
    default:
        return ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    }
}

void cvy_onnx_add_initializer(struct cvy_onnx_model *model, const struct cvy_named_tensor *tensor)
{
    Onnx__TensorProto *made = make(model, sizeof *made);
    int64_t *dims = make(model, sizeof tensor->shape.dim);
    Onnx__TensorProto **list = with_room(model, model->graph.initializer, model->graph.n_initializer);

    if (!list)
        return;
    onnx__tensor_proto__init(made);
    memcpy(dims, tensor->shape.dim, sizeof tensor->shape.dim);
    made->name = copy(model, tensor->name);
    made->dims = dims;
    made->n_dims = (size_t)tensor->shape.rank;
    made->has_data_type = true;
    made->data_type = element_type(tensor->dtype);
    made->has_raw_data = true;
    made->raw_data.len = tensor->bytes;
    made->raw_data.data = (uint8_t *)(uintptr_t)tensor->data; /* only ever read */
    model->graph.initializer = list;
    model->graph.initializer[model->graph.n_initializer++] = made;
}

void cvy_onnx_add_metadata(struct cvy_onnx_model *model, const char *key, const char *value)
{
    Onnx__StringStringEntryProto *entry = make(model, sizeof *entry);
    Onnx__StringStringEntryProto **list = with_room(model, model->proto.metadata_props, model->proto.n_metadata_props);

    if (!list)
        return;
    onnx__string_string_entry_proto__init(entry);
    entry->key = copy(model, key);
    entry->value = copy(model, value);
    model->proto.metadata_props = list;
    model->proto.metadata_props[model->proto.n_metadata_props++] = entry;
}

/* ---- nodes ---- */

static void name_node(struct cvy_onnx_node *node, const char *scope, const char *op_type)
{
    struct cvy_onnx_model *model = node->model;
    int same = 0;
    char *name;

    node->base = cvy_arena_printf(&model->arena, "%s%s%s", scope, scope[0] ? "/" : "", op_type);
    for (size_t i = 0; node->base && i < model->graph.n_node; i++)
        same += strcmp(((const struct cvy_onnx_node *)model->graph.node[i])->base, node->base) == 0;
    name = !node->base ? NULL
           : same      ? cvy_arena_printf(&model->arena, "%s_%d", node->base, same)
                       : copy(model, node->base);
    model->failed |= !name;
    node->proto.name = node->proto.output[0] = name;
}

struct cvy_onnx_node *cvy_onnx_add_node(struct cvy_onnx_model *model, const char *scope, const char *op_type,
                                        int inputs, const char *const *in)
{
    enum { MAX_ATTRIBUTES = 6 };
    struct cvy_onnx_node *node = make(model, sizeof *node);
    char **names = make(model, (size_t)(inputs + 1) * sizeof *names);
    Onnx__AttributeProto **attributes = make(model, MAX_ATTRIBUTES * sizeof *attributes);
    Onnx__NodeProto **list = with_room(model, model->graph.node, model->graph.n_node);

    if (!list)
        return NULL;
    onnx__node_proto__init(&node->proto);
    node->model = model;
    node->proto.op_type = copy(model, op_type);
    node->proto.input = names;
    node->proto.n_input = (size_t)inputs;
    for (int i = 0; i < inputs; i++)
        names[i] = copy(model, in[i]);
    node->proto.output = names + inputs;
    node->proto.n_output = 1;
    node->proto.attribute = attributes;
    name_node(node, scope, op_type);
    if (model->failed)
        return NULL;
    model->graph.node = list;
    model->graph.node[model->graph.n_node++] = &node->proto;
    return node;
}

const char *cvy_onnx_node_output(const struct cvy_onnx_node *node)
{
    return node ? node->proto.output[0] : "";
}

static Onnx__AttributeProto *add_attribute(struct cvy_onnx_node *node, const char *name,
                                           Onnx__AttributeProto__AttributeType type)
{
    Onnx__AttributeProto *attribute = node ? make(node->model, sizeof *attribute) : NULL;

    if (!attribute)
        return NULL;
    onnx__attribute_proto__init(attribute);
    attribute->name = copy(node->model, name);
    attribute->has_type = true;
    attribute->type = type;
    node->proto.attribute[node->proto.n_attribute++] = attribute;
    return attribute;
}

void cvy_onnx_set_int(struct cvy_onnx_node *node, const char *name, int64_t value)
{
    Onnx__AttributeProto *attribute = add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);

    if (!attribute)
        return;
    attribute->has_i = true;
    attribute->i = value;
}

void cvy_onnx_set_ints(struct cvy_onnx_node *node, const char *name, int count, const int32_t *values)
{
    Onnx__AttributeProto *attribute = add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    int64_t *ints = attribute ? make(node->model, (size_t)count * sizeof *ints) : NULL;

    if (!ints)
        return;
    for (int i = 0; i < count; i++)
        ints[i] = values[i];
    attribute->ints = ints;
    attribute->n_ints = (size_t)count;
}

void cvy_onnx_set_float(struct cvy_onnx_node *node, const char *name, float value)
{
    Onnx__AttributeProto *attribute = add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);

    if (!attribute)
        return;
    attribute->has_f = true;
    attribute->f = value;
}

void cvy_onnx_set_string(struct cvy_onnx_node *node, const char *name, const char *value)
{
    Onnx__AttributeProto *attribute = add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    char *text = attribute ? copy(node->model, value) : NULL;

    if (!text)
        return;
    attribute->has_s = true;
    attribute->s = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
}

static void rename_in(struct cvy_onnx_model *model, char **names, size_t count, const char *from, const char *to)
{
    for (size_t i = 0; i < count; i++) {
        if (names[i] && strcmp(names[i], from) == 0)
            names[i] = copy(model, to);
    }
}

void cvy_onnx_rename(struct cvy_onnx_model *model, const char *from, const char *to)
{
    for (size_t i = 0; i < model->graph.n_node && !model->failed; i++) {
        rename_in(model, model->graph.node[i]->input, model->graph.node[i]->n_input, from, to);
        rename_in(model, model->graph.node[i]->output, model->graph.node[i]->n_output, from, to);
    }
}

/* ---- the file ---- */

/* protobuf-c hands its bytes over piece by piece: tensors go from where they lie straight into the file. */
struct sink {
    ProtobufCBuffer base;
    struct cvy_output *output;
    cvy_status status;
};

static void append(ProtobufCBuffer *buffer, size_t length, const uint8_t *data)
{
    struct sink *sink = (struct sink *)buffer;

    if (sink->status == CVY_OK && length > 0)
        sink->status = cvy_output_write(sink->output, data, length);
}

cvy_status cvy_onnx_model_write(const struct cvy_onnx_model *model, const struct cvy_tensor_file *source,
                                const char *source_name, const char *path)
{
    struct cvy_output output = {0};
    struct sink sink = {.base = {.append = append}, .output = &output, .status = CVY_OK};
    size_t bytes;

    if (model->failed)
        return cvy_fail_memory(sizeof *model, "an ONNX model");
    bytes = protobuf_c_message_get_packed_size(&model->proto.base);
    if (bytes > INT32_MAX)
        return cvy_fail(CVY_FAILED, "%s would have %zu bytes, more than the %d that an ONNX file can hold",
                        cvy_quote(path), bytes, INT32_MAX);
    CVY_TRY(cvy_output_open(&output, path));
    protobuf_c_message_pack_to_buffer(&model->proto.base, &sink.base);
    if (source)
        sink.status = cvy_tensor_file_changed(source, source_name, sink.status);
    if (sink.status != CVY_OK) {
        cvy_output_abort(&output);
        return sink.status;
    }
    return cvy_output_commit(&output);
}
