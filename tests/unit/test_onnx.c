/* ONNX files, read back with the code that protobuf-c makes of ONNX's schema: nodes, attributes, constants, metadata,
 * and what is refused. Whether other programs compute the same with them is tested under parity/. */
#include <onnx.pb-c.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/error.h"
#include "export/onnx.h"
#include "models/models.h"
#include "ops/ops.h"
#include "support_folder.h"
#include "support_graph.h"
#include "support_writing.h"

/* ---- graphs with tensors for their parameters ---- */

struct example {
    struct cvy_graph graph;
    struct cvy_named_tensor *tensors;
    size_t count;
    float *values;
};

static const struct cvy_tensor_meta metadata[] = {
    {"convoy.arch", "\"net\""},
    {"convoy.classes", "[\"caf\xc3\xa9\", \"b\"]"},
};

/* Tensors in the order of the parameters, all in one block; the counters are there too, as in a weights file. */
static void make_tensors(struct example *e)
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

static void make_model(struct example *e, const char *arch, bool fuse)
{
    const struct cvy_model_options options = {.num_classes = 10, .image_size = 64, .std = {1, 1, 1}};

    *e = (struct example){.values = NULL};
    if (cvy_model_graph(cvy_architecture_find(arch), &options, CVY_MODEL_INFER, fuse, &e->graph) != CVY_OK)
        fail_msg("%s: %s", arch, cvy_error());
    make_tensors(e);
}

static void finish_graph(struct example *e, cvy_val logits)
{
    cvy_graph_result(&e->graph, CVY_RESULT_NAMED, "logits", -1, logits);
    make_tensors(e);
}

static void release(struct example *e)
{
    cvy_graph_release(&e->graph);
    test_free(e->tensors);
    test_free(e->values);
}

static cvy_status write_file(const struct example *e, const char *path)
{
    return cvy_onnx_write(path, &e->graph, e->tensors, e->count,
                          &(struct cvy_onnx_options){.name = "net", .metadata = metadata, .metadata_count = 2});
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
            if (!is_known(graph, n, node->input[i]))
                fail_msg("%s reads %s before it is there", node->name, node->input[i]);
        }
        if (is_known(graph, n, node->output[0]))
            fail_msg("%s is made twice", node->output[0]);
        for (size_t i = 0; i < n; i++)
            assert_string_not_equal(graph->node[i]->name, node->name);
    }
    assert_int_equal(graph->n_output, 1);
    assert_true(is_known(graph, graph->n_node, graph->output[0]->name));
}

static Onnx__ModelProto *read_file(const char *path)
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

static Onnx__ModelProto *write_and_read(const struct example *e, const char *path)
{
    if (write_file(e, path) != CVY_OK)
        fail_msg("%s", cvy_error());
    return read_file(path);
}

static size_t count_type(const Onnx__GraphProto *graph, const char *op_type)
{
    size_t count = 0;

    for (size_t i = 0; i < graph->n_node; i++)
        count += strcmp(graph->node[i]->op_type, op_type) == 0;
    return count;
}

static const Onnx__NodeProto *node_named(const Onnx__GraphProto *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_node; i++) {
        if (strcmp(graph->node[i]->name, name) == 0)
            return graph->node[i];
    }
    fail_msg("there is no node %s", name);
    return NULL;
}

static const Onnx__AttributeProto *attribute(const Onnx__NodeProto *node, const char *name)
{
    for (size_t i = 0; i < node->n_attribute; i++) {
        if (strcmp(node->attribute[i]->name, name) == 0)
            return node->attribute[i];
    }
    fail_msg("%s has no attribute %s", node->name, name);
    return NULL;
}

static void check_int(const Onnx__NodeProto *node, const char *name, int64_t value)
{
    const Onnx__AttributeProto *a = attribute(node, name);

    assert_int_equal(a->type, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    assert_int_equal(a->i, value);
}

static void check_ints(const Onnx__NodeProto *node, const char *name, size_t count, const int64_t *values)
{
    const Onnx__AttributeProto *a = attribute(node, name);

    assert_int_equal(a->type, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    assert_int_equal(a->n_ints, count);
    assert_memory_equal(a->ints, values, count * sizeof *values);
}

/* A float tensor whose first dimension is the symbol "batch". */
static void check_value(const Onnx__ValueInfoProto *value, const char *name, size_t rank, const int64_t *dims)
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

/* ---- a whole network ---- */

/* All parameters but the counters, in their order, with their bytes. */
static void check_initializers(const struct example *e, const Onnx__GraphProto *graph)
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

static void resnet18_is_written_as_it_is(void **state)
{
    struct example e;
    Onnx__ModelProto *model;
    const Onnx__GraphProto *graph;
    const Onnx__NodeProto *node;

    make_model(&e, "resnet18", false);
    model = write_and_read(&e, test_path(*state, "a.onnx"));
    graph = model->graph;
    assert_int_equal(model->ir_version, 7);
    assert_int_equal(model->n_opset_import, 1);
    assert_string_equal(model->opset_import[0]->domain, "");
    assert_int_equal(model->opset_import[0]->version, 13);
    assert_string_equal(model->producer_name, "convoy");
    assert_string_equal(model->producer_version, cvy_version());
    assert_non_null(strstr(model->doc_string, "net"));
    assert_string_equal(graph->name, "net");
    assert_int_equal(model->n_metadata_props, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(model->metadata_props[i]->key, metadata[i].key);
        assert_string_equal(model->metadata_props[i]->value, metadata[i].value);
    }
    assert_int_equal(graph->n_input, 1); /* constants are no inputs since version 4 */
    check_value(graph->input[0], "input", 4, (const int64_t[]){0, 3, 64, 64});
    check_value(graph->output[0], "logits", 2, (const int64_t[]){0, 10});
    check_initializers(&e, graph);

    assert_int_equal(count_type(graph, "Conv"), 20);
    assert_int_equal(count_type(graph, "BatchNormalization"), 20);
    assert_int_equal(count_type(graph, "Relu"), 17);
    assert_int_equal(count_type(graph, "Add"), 8);
    assert_int_equal(graph->n_node, 20 + 20 + 17 + 8 + 4); /* max pool, average pool, flatten, matrix product */
    node = node_named(graph, "conv1/Conv");
    assert_string_equal(node->input[0], "input");
    assert_string_equal(node->input[1], "conv1.weight");
    assert_int_equal(node->n_input, 2);
    check_ints(node, "kernel_shape", 2, (const int64_t[]){7, 7});
    check_ints(node, "strides", 2, (const int64_t[]){2, 2});
    check_ints(node, "pads", 4, (const int64_t[]){3, 3, 3, 3});
    check_ints(node, "dilations", 2, (const int64_t[]){1, 1});
    check_int(node, "group", 1);
    node = node_named(graph, "layer2.0.downsample.1/BatchNormalization");
    assert_string_equal(node->input[0], "layer2.0.downsample.0/Conv");
    assert_string_equal(node->input[1], "layer2.0.downsample.1.weight");
    assert_string_equal(node->input[2], "layer2.0.downsample.1.bias");
    assert_string_equal(node->input[3], "layer2.0.downsample.1.running_mean");
    assert_string_equal(node->input[4], "layer2.0.downsample.1.running_var");
    assert_int_equal(attribute(node, "epsilon")->type, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    assert_true(attribute(node, "epsilon")->f == 1e-5f);
    node = node_named(graph, "layer1.0/Relu_1");
    assert_string_equal(node->input[0], "layer1.0/Add");
    node = node_named(graph, "fc/Gemm");
    assert_string_equal(node->input[1], "fc.weight");
    assert_string_equal(node->input[2], "fc.bias");
    assert_string_equal(node->output[0], "logits");
    check_int(node, "transB", 1);
    onnx__model_proto__free_unpacked(model, NULL);
    release(&e);
}

/* Whether an operation has no form shows while the file is put together: /dev/null spares the disk a gigabyte. */
static void every_network_can_be_written(void **state)
{
    (void)state;
    for (size_t i = 0; cvy_architecture_at(i); i++) {
        struct example e;

        make_model(&e, cvy_architecture_at(i)->name, false);
        if (write_file(&e, "/dev/null") != CVY_OK)
            fail_msg("%s: %s", cvy_architecture_at(i)->name, cvy_error());
        release(&e);
    }
}

static void squeeze_and_excitation_networks_are_whole(void **state)
{
    struct example e;
    Onnx__ModelProto *model;
    const Onnx__GraphProto *graph;

    make_model(&e, "se-resnet50", false);
    model = write_and_read(&e, test_path(*state, "a.onnx"));
    graph = model->graph;
    check_initializers(&e, graph);
    assert_int_equal(count_type(graph, "BatchNormalization"), 53);
    assert_int_equal(count_type(graph, "Conv"), 53 + 2 * 16); /* two in each block for its factors */
    assert_int_equal(count_type(graph, "Sigmoid"), 16);
    assert_int_equal(count_type(graph, "Mul"), 16);
    assert_int_equal(count_type(graph, "GlobalAveragePool"), 17);
    assert_int_equal(count_type(graph, "Flatten"), 1);
    assert_int_equal(count_type(graph, "Gemm"), 1);
    assert_int_equal(count_type(graph, "Relu"), 49 + 16);
    assert_int_equal(count_type(graph, "Add"), 16);
    assert_int_equal(graph->n_node, 53 + 85 + 16 + 16 + 17 + 1 + 1 + 65 + 16 + 1);
    onnx__model_proto__free_unpacked(model, NULL);
    release(&e);
}

/* ---- operations ---- */

static void check_types(const Onnx__GraphProto *graph, size_t count, const char *const *types)
{
    for (size_t i = 0; i < graph->n_node && i < count; i++)
        assert_string_equal(graph->node[i]->op_type, types[i]);
    assert_int_equal(graph->n_node, count);
}

/* Squeeze and excitation of 1x1 convolutions stays with four dimensions; of matrices it goes there and back. */
static void squeeze_and_excitation(void **state)
{
    static const char *const convolutions[] = {"GlobalAveragePool", "Conv",    "Relu", "Conv", "Sigmoid", "Mul",
                                               "GlobalAveragePool", "Flatten", "Gemm"};
    static const char *const matrices[] = {
        "GlobalAveragePool", "Flatten", "Gemm", "Relu", "Gemm", "Sigmoid", "Unsqueeze", "Mul",
        "GlobalAveragePool", "Flatten", "Gemm"};

    for (int i = 0; i < 2; i++) {
        cvy_val (*const layer)(struct cvy_graph *, cvy_val, int32_t) = i ? cvy_linear : cvy_linear_1x1;
        struct example e = {.values = NULL};
        cvy_val x = start_graph(&e.graph, false, 4, 6, 5), s;
        Onnx__ModelProto *model;

        cvy_scope_push(&e.graph, "fc1");
        s = cvy_relu(&e.graph, layer(&e.graph, cvy_global_avg_pool(&e.graph, x), 2));
        cvy_scope_pop(&e.graph);
        cvy_scope_push(&e.graph, "fc2");
        s = cvy_sigmoid(&e.graph, layer(&e.graph, s, 4));
        cvy_scope_pop(&e.graph);
        x = cvy_global_avg_pool(&e.graph, cvy_scale_channels(&e.graph, x, s));
        finish_graph(&e, cvy_linear(&e.graph, x, 3));
        model = write_and_read(&e, test_path(*state, "a.onnx"));
        check_types(model->graph, i ? 11 : 9, i ? matrices : convolutions);
        check_value(model->graph->input[0], "x", 4, (const int64_t[]){0, 4, 6, 5});
        assert_string_equal(node_named(model->graph, "Mul")->input[0], "x");
        if (i) {
            const Onnx__TensorProto *axes = model->graph->initializer[model->graph->n_initializer - 1];
            const int64_t two_three[2] = {2, 3};
            check_int(node_named(model->graph, "fc1/Flatten"), "axis", 1);
            assert_string_equal(node_named(model->graph, "Unsqueeze")->input[1], axes->name);
            assert_int_equal(axes->data_type, ONNX__TENSOR_PROTO__DATA_TYPE__INT64);
            assert_int_equal(axes->n_dims, 1);
            assert_int_equal(axes->dims[0], 2);
            assert_int_equal(axes->raw_data.len, sizeof two_three);
            assert_memory_equal(axes->raw_data.data, two_three, sizeof two_three);
        } else {
            check_ints(node_named(model->graph, "fc1/Conv"), "kernel_shape", 2, (const int64_t[]){1, 1});
            check_initializers(&e, model->graph);
        }
        onnx__model_proto__free_unpacked(model, NULL);
        release(&e);
    }
}

/* What inference puts together is taken apart again: product, sum, ReLU. */
static void a_product_with_residual(void **state)
{
    static const char *const types[] = {"GlobalAveragePool", "Sigmoid", "Mul", "Add", "Relu",
                                        "GlobalAveragePool", "Flatten"};
    struct example e = {.values = NULL};
    cvy_val x = start_graph(&e.graph, false, 4, 6, 5), y;
    Onnx__ModelProto *model;

    y = cvy_scale_channels(&e.graph, x, cvy_sigmoid(&e.graph, cvy_global_avg_pool(&e.graph, x)));
    y = cvy_relu(&e.graph, cvy_add(&e.graph, y, x));
    finish_graph(&e, cvy_global_avg_pool(&e.graph, y));
    cvy_rewrite_fuse_inference(&e.graph);
    assert_int_equal(count_nodes(&e.graph, CVY_OP_ADD), 0);
    model = write_and_read(&e, test_path(*state, "a.onnx"));
    check_types(model->graph, 7, types);
    assert_string_equal(node_named(model->graph, "Add")->input[0], "Mul");
    assert_string_equal(node_named(model->graph, "Add")->input[1], "x");
    onnx__model_proto__free_unpacked(model, NULL);
    release(&e);
}

/* Every attribute of a window at a value of its own; bias, residual and ReLU inside the convolution. */
static void attributes_of_windows(void **state)
{
    static const char *const types[] = {"Conv",    "Conv",   "Add", "Relu", "MaxPool", "GlobalAveragePool",
                                        "Flatten", "Softmax"};
    const struct cvy_conv2d first = {.out = 6, .kernel = 1, .bias = true};
    const struct cvy_conv2d_attr attr = {.kernel = {2, 3},
                                         .stride = {1, 2},
                                         .dilation = {3, 1},
                                         .pad = {2, 1, 0, 3},
                                         .groups = 2,
                                         .activation = CVY_ACTIVATION_RELU};
    struct example e = {.values = NULL};
    cvy_val x = start_graph(&e.graph, false, 4, 9, 8), w, residual;
    Onnx__ModelProto *model;
    const Onnx__NodeProto *node;

    cvy_scope_push(&e.graph, "a");
    x = cvy_conv2d(&e.graph, x, &first);
    cvy_scope_pop(&e.graph);
    w = cvy_graph_param(&e.graph, "w", CVY_PARAM_TRAINABLE, cvy_shape4(4, 3, 2, 3), (struct cvy_init){0});
    residual = cvy_graph_param(&e.graph, "r", CVY_PARAM_TRAINABLE, cvy_shape4(1, 4, 9, 5), (struct cvy_init){0});
    e.graph.values[residual].shape.dim[0] = CVY_BATCH; /* the builder asks for the batch; a file does not */
    x = cvy_conv2d_values(&e.graph, x, w, CVY_NONE, residual, &attr);
    e.graph.values[residual].shape.dim[0] = 1;
    x = cvy_max_pool(&e.graph, x,
                     &(struct cvy_max_pool){.kernel = 4, .stride = 3, .pads = {3, 2, 1, 0}, .use_pads = true});
    finish_graph(&e, cvy_softmax(&e.graph, cvy_global_avg_pool(&e.graph, x)));
    model = write_and_read(&e, test_path(*state, "a.onnx"));
    check_types(model->graph, 8, types);
    check_initializers(&e, model->graph);
    node = node_named(model->graph, "a/Conv");
    assert_int_equal(node->n_input, 3);
    assert_string_equal(node->input[2], "a.bias");
    node = node_named(model->graph, "Conv");
    assert_int_equal(node->n_input, 2);
    check_ints(node, "kernel_shape", 2, (const int64_t[]){2, 3});
    check_ints(node, "strides", 2, (const int64_t[]){1, 2});
    check_ints(node, "dilations", 2, (const int64_t[]){3, 1});
    check_ints(node, "pads", 4, (const int64_t[]){2, 0, 1, 3}); /* top, left, bottom, right */
    check_int(node, "group", 2);
    assert_string_equal(node_named(model->graph, "Add")->input[0], "Conv");
    assert_string_equal(node_named(model->graph, "Add")->input[1], "r");
    node = node_named(model->graph, "MaxPool");
    assert_string_equal(node->input[0], "Relu");
    check_ints(node, "kernel_shape", 2, (const int64_t[]){4, 4});
    check_ints(node, "strides", 2, (const int64_t[]){3, 3});
    check_ints(node, "pads", 4, (const int64_t[]){3, 1, 2, 0});
    check_int(node_named(model->graph, "Softmax"), "axis", 1);
    onnx__model_proto__free_unpacked(model, NULL);
    release(&e);
}

/* ---- what is refused ---- */

static void check_refused(const struct example *e, const char *path, cvy_status expected, const char *part)
{
    assert_int_equal(write_file(e, path), expected);
    if (!strstr(cvy_error(), part))
        fail_msg("\"%s\" does not speak of \"%s\"", cvy_error(), part);
    assert_false(cvy_path_exists(path));
}

static void refuses_what_it_cannot_say(void **state)
{
    const char *path = test_path(*state, "a.onnx");
    struct example e;

    make_model(&e, "resnet18", true);
    check_refused(&e, path, CVY_FAILED, "fold_batch_norm of bn1 has no form in ONNX");
    release(&e);
    make_model(&e, "resnet18", false);
    e.tensors[3].dtype = CVY_F16;
    check_refused(&e, path, CVY_FAILED, "\"bn1.running_mean\"");
    e.tensors[3].dtype = CVY_F32;
    e.tensors[3].shape.dim[0]++;
    check_refused(&e, path, CVY_FAILED, "\"bn1.running_mean\"");
    e.tensors[3].shape.dim[0]--;
    e.count--; /* fc.bias is the last */
    check_refused(&e, path, CVY_FAILED, "\"fc.bias\"");
    e.count++;
    e.graph.result_count = 0;
    check_refused(&e, path, CVY_FAILED, "logits");
    release(&e);
    e = (struct example){.values = NULL};
    {
        cvy_val x = start_graph(&e.graph, false, 4, 6, 5);
        finish_graph(&e, cvy_cast(&e.graph, cvy_global_avg_pool(&e.graph, x), CVY_F64));
    }
    check_refused(&e, path, CVY_FAILED, "cast has no form in ONNX");
    release(&e);
}

/* The tensor of 2 GiB is address space without memory: it must be refused before anything is read or written. */
static void refuses_more_than_a_message_holds(void **state)
{
    const struct cvy_shape shape = cvy_shape2(1 << 19, 1 << 10);
    const size_t bytes = (size_t)1 << 31;
    struct example e = {.values = NULL};
    cvy_val x = start_graph(&e.graph, false, 1 << 10, 1, 1);
    void *space = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const struct cvy_named_tensor tensors[2] = {{"weight", CVY_F32, shape, space, bytes},
                                                {"bias", CVY_F32, cvy_shape1(1 << 19), space, 1 << 21}};

    assert_true(space != MAP_FAILED);
    cvy_graph_result(&e.graph, CVY_RESULT_NAMED, "logits", -1,
                     cvy_linear(&e.graph, cvy_global_avg_pool(&e.graph, x), 1 << 19));
    check_graph(&e.graph);
    e.tensors = (struct cvy_named_tensor *)(uintptr_t)tensors;
    e.count = 2;
    check_refused(&e, test_path(*state, "a.onnx"), CVY_FAILED, "more than the 2147483647 that an ONNX file can hold");
    munmap(space, bytes);
    cvy_graph_release(&e.graph);
}

static void make_small(struct example *e)
{
    cvy_val x;

    *e = (struct example){.values = NULL};
    x = start_graph(&e->graph, false, 4, 6, 5);
    finish_graph(e, cvy_linear(&e->graph, cvy_global_avg_pool(&e->graph, x), 30));
}

static void the_same_bytes_every_time(void **state)
{
    const char *paths[2] = {test_path(*state, "a.onnx"), test_path(*state, "b.onnx")};
    void *data[2] = {NULL, NULL};
    size_t size[2] = {0, 0};

    for (int i = 0; i < 2; i++) {
        struct example e;
        make_small(&e);
        assert_int_equal(write_file(&e, paths[i]), CVY_OK);
        assert_int_equal(cvy_file_read(paths[i], SIZE_MAX, &data[i], &size[i]), CVY_OK);
        release(&e);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(data[0], data[1], size[0]);
    cvy_free(data[0]);
    cvy_free(data[1]);
}

static cvy_status write_example(const char *path, void *context)
{
    return write_file(context, path);
}

static void full_disk(void **state)
{
    struct example e;

    make_small(&e);
    assert_true(test_full_disk_keeps_old(*state, "a.onnx", write_example, &e) > 50);
    onnx__model_proto__free_unpacked(read_file(test_path(*state, "a.onnx")), NULL);
    release(&e);
}

static void every_allocation_may_fail(void **state)
{
    struct example e;

    make_small(&e);
    assert_true(test_writing_without_memory(*state, "a.onnx", write_example, &e) > 5);
    assert_int_equal(write_file(&e, test_path(*state, "no/such.onnx")), CVY_CANNOT_CREATE);
    release(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(resnet18_is_written_as_it_is, test_folder_setup, test_folder_teardown),
        cmocka_unit_test_setup_teardown(every_network_can_be_written, test_folder_setup, test_folder_teardown),
        cmocka_unit_test_setup_teardown(squeeze_and_excitation_networks_are_whole, test_folder_setup,
                                        test_folder_teardown),
        cmocka_unit_test_setup_teardown(a_product_with_residual, test_folder_setup, test_folder_teardown),
        cmocka_unit_test_setup_teardown(the_same_bytes_every_time, test_folder_setup, test_folder_teardown),
        cmocka_unit_test_setup_teardown(squeeze_and_excitation, test_folder_setup, test_folder_teardown),
        cmocka_unit_test_setup_teardown(attributes_of_windows, test_folder_setup, test_folder_teardown),
        cmocka_unit_test_setup_teardown(refuses_what_it_cannot_say, test_folder_setup, test_folder_teardown),
        cmocka_unit_test_setup_teardown(refuses_more_than_a_message_holds, test_folder_setup, test_folder_teardown),
        cmocka_unit_test_setup_teardown(full_disk, test_folder_setup, test_folder_teardown),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, test_folder_setup, test_folder_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
