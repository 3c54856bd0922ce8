/* ONNX files, read back with the code that protobuf-c makes of ONNX's schema: nodes, attributes, constants, metadata,
 * and what is refused. Whether other programs compute the same with them is tested under parity/. */
#include <math.h>
#include <sys/mman.h>

#include "export/onnx.h"
#include "models/models.h"
#include "ops/ops.h"
#include "support_executor.h"
#include "support_folder.h"
#include "support_graph.h"
#include "support_onnx.h"
#include "support_test.h"
#include "support_writing.h"

static const struct cvy_tensor_meta metadata[] = {
    {"convoy.arch", "\"net\""},
    {"convoy.classes", "[\"caf\xc3\xa9\", \"b\"]"},
};

static void make_model(struct onnx_example *e, const char *arch, bool fuse)
{
    const struct cvy_model_options options = {.num_classes = 10, .image_size = 64, .std = {1, 1, 1}};

    *e = (struct onnx_example){.values = NULL};
    if (cvy_model_graph(cvy_architecture_find(arch), &options, CVY_MODEL_INFER, fuse, &e->graph) != CVY_OK)
        fail_msg("%s: %s", arch, cvy_error());
    onnx_make_tensors(e);
}

static cvy_status write_file(const struct onnx_example *e, const char *path)
{
    return cvy_onnx_write(path, &e->graph, e->tensors, e->count,
                          &(struct cvy_onnx_options){.name = "net", .metadata = metadata, .metadata_count = 2});
}

static Onnx__ModelProto *write_and_read(const struct onnx_example *e, const char *path)
{
    if (write_file(e, path) != CVY_OK)
        fail_msg("%s", cvy_error());
    return onnx_read(path);
}

/* ---- a whole network ---- */

static void resnet18_is_written_as_it_is(void **state)
{
    struct onnx_example e;
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
    onnx_check_value(graph->input[0], "input", 4, (const int64_t[]){0, 3, 64, 64});
    onnx_check_value(graph->output[0], "logits", 2, (const int64_t[]){0, 10});
    onnx_check_initializers(&e, graph);

    assert_int_equal(onnx_count(graph, "Conv"), 20);
    assert_int_equal(onnx_count(graph, "BatchNormalization"), 20);
    assert_int_equal(onnx_count(graph, "Relu"), 17);
    assert_int_equal(onnx_count(graph, "Add"), 8);
    assert_int_equal(graph->n_node, 20 + 20 + 17 + 8 + 4); /* max pool, average pool, flatten, matrix product */
    node = onnx_node(graph, "conv1/Conv");
    assert_string_equal(node->input[0], "input");
    assert_string_equal(node->input[1], "conv1.weight");
    assert_int_equal(node->n_input, 2);
    onnx_check_ints(node, "kernel_shape", 2, (const int64_t[]){7, 7});
    onnx_check_ints(node, "strides", 2, (const int64_t[]){2, 2});
    onnx_check_ints(node, "pads", 4, (const int64_t[]){3, 3, 3, 3});
    onnx_check_ints(node, "dilations", 2, (const int64_t[]){1, 1});
    onnx_check_int(node, "group", 1);
    node = onnx_node(graph, "layer2.0.downsample.1/BatchNormalization");
    assert_string_equal(node->input[0], "layer2.0.downsample.0/Conv");
    assert_string_equal(node->input[1], "layer2.0.downsample.1.weight");
    assert_string_equal(node->input[2], "layer2.0.downsample.1.bias");
    assert_string_equal(node->input[3], "layer2.0.downsample.1.running_mean");
    assert_string_equal(node->input[4], "layer2.0.downsample.1.running_var");
    assert_int_equal(onnx_attribute(node, "epsilon")->type, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    assert_true(onnx_attribute(node, "epsilon")->f == 1e-5f);
    node = onnx_node(graph, "layer1.0/Relu_1");
    assert_string_equal(node->input[0], "layer1.0/Add");
    node = onnx_node(graph, "fc/Gemm");
    assert_string_equal(node->input[1], "fc.weight");
    assert_string_equal(node->input[2], "fc.bias");
    assert_string_equal(node->output[0], "logits");
    onnx_check_int(node, "transB", 1);
    onnx__model_proto__free_unpacked(model, NULL);
    onnx_release(&e);
}

/* Whether an operation has no form shows while the file is put together: /dev/null spares the disk a gigabyte. */
static void every_network_can_be_written(void **state)
{
    for (size_t i = 0; cvy_architecture_at(i); i++) {
        struct onnx_example e;

        make_model(&e, cvy_architecture_at(i)->name, false);
        if (write_file(&e, "/dev/null") != CVY_OK)
            fail_msg("%s: %s", cvy_architecture_at(i)->name, cvy_error());
        onnx_release(&e);
    }
}

static void squeeze_and_excitation_networks_are_whole(void **state)
{
    struct onnx_example e;
    Onnx__ModelProto *model;
    const Onnx__GraphProto *graph;

    make_model(&e, "se-resnet50", false);
    model = write_and_read(&e, test_path(*state, "a.onnx"));
    graph = model->graph;
    onnx_check_initializers(&e, graph);
    assert_int_equal(onnx_count(graph, "BatchNormalization"), 53);
    assert_int_equal(onnx_count(graph, "Conv"), 53 + 2 * 16); /* two in each block for its factors */
    assert_int_equal(onnx_count(graph, "Sigmoid"), 16);
    assert_int_equal(onnx_count(graph, "Mul"), 16);
    assert_int_equal(onnx_count(graph, "GlobalAveragePool"), 17);
    assert_int_equal(onnx_count(graph, "Flatten"), 1);
    assert_int_equal(onnx_count(graph, "Gemm"), 1);
    assert_int_equal(onnx_count(graph, "Relu"), 49 + 16);
    assert_int_equal(onnx_count(graph, "Add"), 16);
    assert_int_equal(graph->n_node, 53 + 85 + 16 + 16 + 17 + 1 + 1 + 65 + 16 + 1);
    onnx__model_proto__free_unpacked(model, NULL);
    onnx_release(&e);
}

/* ---- operations ---- */

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
        struct onnx_example e = {.values = NULL};
        cvy_val x = start_graph(&e.graph, false, 4, 6, 5), s;
        Onnx__ModelProto *model;

        cvy_scope_push(&e.graph, "fc1");
        s = cvy_relu(&e.graph, layer(&e.graph, cvy_global_avg_pool(&e.graph, x), 2));
        cvy_scope_pop(&e.graph);
        cvy_scope_push(&e.graph, "fc2");
        s = cvy_sigmoid(&e.graph, layer(&e.graph, s, 4));
        cvy_scope_pop(&e.graph);
        x = cvy_global_avg_pool(&e.graph, cvy_scale_channels(&e.graph, x, s));
        onnx_finish(&e, cvy_linear(&e.graph, x, 3));
        model = write_and_read(&e, test_path(*state, "a.onnx"));
        onnx_check_types(model->graph, i ? 11 : 9, i ? matrices : convolutions);
        onnx_check_value(model->graph->input[0], "x", 4, (const int64_t[]){0, 4, 6, 5});
        assert_string_equal(onnx_node(model->graph, "Mul")->input[0], "x");
        if (i) {
            const Onnx__TensorProto *axes = model->graph->initializer[model->graph->n_initializer - 1];
            const int64_t two_three[2] = {2, 3};
            onnx_check_int(onnx_node(model->graph, "fc1/Flatten"), "axis", 1);
            assert_string_equal(onnx_node(model->graph, "Unsqueeze")->input[1], axes->name);
            assert_int_equal(axes->data_type, ONNX__TENSOR_PROTO__DATA_TYPE__INT64);
            assert_int_equal(axes->n_dims, 1);
            assert_int_equal(axes->dims[0], 2);
            assert_int_equal(axes->raw_data.len, sizeof two_three);
            assert_memory_equal(axes->raw_data.data, two_three, sizeof two_three);
        } else {
            onnx_check_ints(onnx_node(model->graph, "fc1/Conv"), "kernel_shape", 2, (const int64_t[]){1, 1});
            onnx_check_initializers(&e, model->graph);
        }
        onnx__model_proto__free_unpacked(model, NULL);
        onnx_release(&e);
    }
}

/* ---- what works element by element, computed as the file says ---- */

static const Onnx__NodeProto *maker(const Onnx__GraphProto *graph, const char *value)
{
    for (size_t i = 0; i < graph->n_node; i++)
        if (strcmp(graph->node[i]->output[0], value) == 0)
            return graph->node[i];
    return NULL;
}

/* A value of the file where its input has the value x; constants are scalars. */
static double compute(const Onnx__GraphProto *graph, const char *value, double x)
{
    const Onnx__NodeProto *node = maker(graph, value);
    double in[3] = {0};
    float constant;

    if (strcmp(value, "x") == 0)
        return x;
    if (!node) {
        for (size_t i = 0; i < graph->n_initializer; i++) {
            if (strcmp(graph->initializer[i]->name, value) == 0) {
                assert_int_equal(graph->initializer[i]->raw_data.len, sizeof constant);
                memcpy(&constant, graph->initializer[i]->raw_data.data, sizeof constant);
                return (double)constant;
            }
        }
        fail_msg("nothing makes %s", value);
    }
    assert_in_range(node->n_input, 1, 3);
    for (size_t i = 0; i < node->n_input; i++)
        in[i] = compute(graph, node->input[i], x);
    if (strcmp(node->op_type, "Relu") == 0)
        return fmax(in[0], 0);
    if (strcmp(node->op_type, "Clip") == 0)
        return fmin(fmax(in[0], in[1]), in[2]);
    if (strcmp(node->op_type, "Sigmoid") == 0)
        return 1 / (1 + exp(-in[0]));
    if (strcmp(node->op_type, "Mul") == 0)
        return in[0] * in[1];
    fail_msg("%s is not known to this test", node->op_type);
    return 0;
}

/* Every CVY_OP_UNARY that a network may have: the numbers of the reference device. */
static void elementwise_ops_compute_the_same(void **state)
{
    static const struct {
        cvy_val (*build)(struct cvy_graph *, cvy_val);
        enum cvy_op op;
    } ops[] = {
#define CVY_OP(...)
#define CVY_OP_UNARY(ID, name, ...) {cvy_##name, CVY_OP_##ID},
#include "graph/ops.def"
    };
    const double x[] = {-30, -6.5, -2, -0.25, 0, 0.5, 1, 5.75, 8, 40};
    enum { COUNT = sizeof x / sizeof *x };
    const struct cvy_shape shape = cvy_shape2(1, COUNT);
    cvy_device *ref = executor_device("ref", 1);

    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct onnx_example e = {.values = NULL};
        struct cvy_op_desc desc = executor_desc(ops[i].op, 1, 1);
        const Onnx__NodeProto *pool;
        Onnx__ModelProto *model;
        double y[COUNT];

        desc.in[0] = desc.out[0] = executor_tensor(CVY_F64, shape);
        executor_run_checked(ref, &desc, (const void *[]){x}, (void *[]){y});
        onnx_finish(&e, cvy_global_avg_pool(&e.graph, ops[i].build(&e.graph, start_graph(&e.graph, false, 4, 6, 5))));
        model = write_and_read(&e, test_path(*state, "a.onnx"));
        pool = onnx_node(model->graph, "GlobalAveragePool");
        for (size_t n = 0; n < COUNT; n++)
            assert_float_equal(compute(model->graph, pool->input[0], x[n]), y[n], 1e-12);
        onnx__model_proto__free_unpacked(model, NULL);
        onnx_release(&e);
    }
    cvy_device_close(ref);
}

/* What inference puts together is taken apart again: product, sum, ReLU. */
static void a_product_with_residual(void **state)
{
    static const char *const types[] = {"GlobalAveragePool", "Sigmoid", "Mul", "Add", "Relu",
                                        "GlobalAveragePool", "Flatten"};
    struct onnx_example e = {.values = NULL};
    cvy_val x = start_graph(&e.graph, false, 4, 6, 5), y;
    Onnx__ModelProto *model;

    y = cvy_scale_channels(&e.graph, x, cvy_sigmoid(&e.graph, cvy_global_avg_pool(&e.graph, x)));
    y = cvy_relu(&e.graph, cvy_add(&e.graph, y, x));
    onnx_finish(&e, cvy_global_avg_pool(&e.graph, y));
    cvy_rewrite_fuse_inference(&e.graph);
    assert_int_equal(count_nodes(&e.graph, CVY_OP_ADD), 0);
    model = write_and_read(&e, test_path(*state, "a.onnx"));
    onnx_check_types(model->graph, 7, types);
    assert_string_equal(onnx_node(model->graph, "Add")->input[0], "Mul");
    assert_string_equal(onnx_node(model->graph, "Add")->input[1], "x");
    onnx__model_proto__free_unpacked(model, NULL);
    onnx_release(&e);
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
    struct onnx_example e = {.values = NULL};
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
    onnx_finish(&e, cvy_softmax(&e.graph, cvy_global_avg_pool(&e.graph, x)));
    model = write_and_read(&e, test_path(*state, "a.onnx"));
    onnx_check_types(model->graph, 8, types);
    onnx_check_initializers(&e, model->graph);
    node = onnx_node(model->graph, "a/Conv");
    assert_int_equal(node->n_input, 3);
    assert_string_equal(node->input[2], "a.bias");
    node = onnx_node(model->graph, "Conv");
    assert_int_equal(node->n_input, 2);
    onnx_check_ints(node, "kernel_shape", 2, (const int64_t[]){2, 3});
    onnx_check_ints(node, "strides", 2, (const int64_t[]){1, 2});
    onnx_check_ints(node, "dilations", 2, (const int64_t[]){3, 1});
    onnx_check_ints(node, "pads", 4, (const int64_t[]){2, 0, 1, 3}); /* top, left, bottom, right */
    onnx_check_int(node, "group", 2);
    assert_string_equal(onnx_node(model->graph, "Add")->input[0], "Conv");
    assert_string_equal(onnx_node(model->graph, "Add")->input[1], "r");
    node = onnx_node(model->graph, "MaxPool");
    assert_string_equal(node->input[0], "Relu");
    onnx_check_ints(node, "kernel_shape", 2, (const int64_t[]){4, 4});
    onnx_check_ints(node, "strides", 2, (const int64_t[]){3, 3});
    onnx_check_ints(node, "pads", 4, (const int64_t[]){3, 1, 2, 0});
    onnx_check_int(onnx_node(model->graph, "Softmax"), "axis", 1);
    onnx__model_proto__free_unpacked(model, NULL);
    onnx_release(&e);
}

/* ---- what is refused ---- */

static void check_refused(const struct onnx_example *e, const char *path, cvy_status expected, const char *part)
{
    assert_int_equal(write_file(e, path), expected);
    assert_error(part);
    assert_false(cvy_path_exists(path));
}

static void refuses_what_it_cannot_say(void **state)
{
    const char *path = test_path(*state, "a.onnx");
    struct onnx_example e;

    make_model(&e, "resnet18", true);
    check_refused(&e, path, CVY_FAILED, "fold_batch_norm of bn1 has no form in ONNX");
    onnx_release(&e);
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
    onnx_release(&e);
    e = (struct onnx_example){.values = NULL};
    {
        cvy_val x = start_graph(&e.graph, false, 4, 6, 5);
        onnx_finish(&e, cvy_cast(&e.graph, cvy_global_avg_pool(&e.graph, x), CVY_F64));
    }
    check_refused(&e, path, CVY_FAILED, "cast has no form in ONNX");
    onnx_release(&e);
}

/* The tensor of 2 GiB is address space without memory: it must be refused before anything is read or written. */
static void refuses_more_than_a_message_holds(void **state)
{
    const struct cvy_shape shape = cvy_shape2(1 << 19, 1 << 10);
    const size_t bytes = (size_t)1 << 31;
    struct onnx_example e = {.values = NULL};
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

static void make_small(struct onnx_example *e)
{
    cvy_val x;

    *e = (struct onnx_example){.values = NULL};
    x = start_graph(&e->graph, false, 4, 6, 5);
    onnx_finish(e, cvy_linear(&e->graph, cvy_global_avg_pool(&e->graph, x), 30));
}

static void the_same_bytes_every_time(void **state)
{
    const char *paths[2] = {test_path(*state, "a.onnx"), test_path(*state, "b.onnx")};
    void *data[2] = {NULL, NULL};
    size_t size[2] = {0, 0};

    for (int i = 0; i < 2; i++) {
        struct onnx_example e;
        make_small(&e);
        assert_int_equal(write_file(&e, paths[i]), CVY_OK);
        assert_int_equal(cvy_file_read(paths[i], SIZE_MAX, &data[i], &size[i]), CVY_OK);
        onnx_release(&e);
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
    struct onnx_example e;

    make_small(&e);
    assert_true(test_full_disk_keeps_old(*state, "a.onnx", write_example, &e) > 50);
    onnx__model_proto__free_unpacked(onnx_read(test_path(*state, "a.onnx")), NULL);
    onnx_release(&e);
}

static void every_allocation_may_fail(void **state)
{
    struct onnx_example e;

    make_small(&e);
    assert_true(test_writing_without_memory(*state, "a.onnx", write_example, &e) > 5);
    assert_int_equal(write_file(&e, test_path(*state, "no/such.onnx")), CVY_CANNOT_CREATE);
    onnx_release(&e);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(resnet18_is_written_as_it_is), IN_FOLDER(every_network_can_be_written),
          IN_FOLDER(squeeze_and_excitation_networks_are_whole), IN_FOLDER(elementwise_ops_compute_the_same),
          IN_FOLDER(a_product_with_residual), IN_FOLDER(the_same_bytes_every_time), IN_FOLDER(squeeze_and_excitation),
          IN_FOLDER(attributes_of_windows), IN_FOLDER(refuses_what_it_cannot_say),
          IN_FOLDER(refuses_more_than_a_message_holds), IN_FOLDER(full_disk), IN_FOLDER(every_allocation_may_fail))
