/* ONNX files of quantised networks: every integer, scale and zero point of a small one, by hand. Whether other programs
 * compute the same with them is tested under parity/. */
#include <onnx.pb-c.h>

#include "export/onnx.h"
#include "ops/ops.h"
#include "support_folder.h"
#include "support_graph.h"
#include "support_test.h"
#include "support_writing.h"

/* What the parameters hold; those that are not named are 0. */
static const struct {
    const char *name;
    float values[3];
} contents[] = {
    {"conv.weight", {1, -0.5f}},
    {"bn.weight", {2, -1}},
    {"bn.bias", {1, 0.5f}},
    {"bn.running_var", {1 - 1e-5f, 1 - 1e-5f}}, /* and eps makes 1 */
    {"fc.weight", {0.5f, 0.25f}},
    {"fc.bias", {1}},
    {"conv.input_quantizer.observed", {-2, 127.0f / 64, 1}},
    {"conv.weight_quantizer.observed", {-1, 1, 1}},
    {"output_quantizer.observed", {-4, 127.0f / 32, 1}},
    {"fc.input_quantizer.observed", {-1, 127.0f / 128, 1}},
    {"fc.weight_quantizer.observed", {-1, 1, 1}},
};

struct example {
    struct cvy_graph graph;
    struct cvy_named_tensor tensors[16];
    float values[16][3];
    size_t count;
};

/* conv (1 -> 2), batch norm, ReLU, mean, classifier of one class. */
static void build_form(struct example *e, const struct cvy_fake_quantize_attr *form)
{
    struct cvy_graph *g = &e->graph;
    cvy_val x;

    memset(e, 0, sizeof *e);
    x = start_graph(g, false, 1, 2, 2);
    cvy_scope_push(g, "conv");
    x = cvy_conv2d(g, x, &(struct cvy_conv2d){.out = 2, .kernel = 1});
    cvy_scope_pop(g);
    cvy_scope_push(g, "bn");
    x = cvy_batch_norm(g, x, &(struct cvy_batch_norm){0});
    cvy_scope_pop(g);
    x = cvy_global_avg_pool(g, cvy_relu(g, x));
    cvy_scope_push(g, "fc");
    x = cvy_linear(g, x, 1);
    cvy_scope_pop(g);
    cvy_rewrite_quantize(g, form);
    cvy_graph_result(g, CVY_RESULT_NAMED, "logits", -1, x);
    check_graph(g);
    for (int32_t p = 0; p < g->param_count; p++) {
        const struct cvy_param *param = &g->params[p];
        if (param->kind == CVY_PARAM_COUNTER)
            continue;
        assert_true(e->count < 16);
        for (size_t c = 0; c < sizeof contents / sizeof *contents; c++) {
            if (strcmp(contents[c].name, param->name) == 0)
                memcpy(e->values[e->count], contents[c].values, sizeof contents[c].values);
        }
        e->tensors[e->count] = (struct cvy_named_tensor){param->name, CVY_F32, param->shape, e->values[e->count],
                                                         (size_t)cvy_shape_elements(&param->shape) * sizeof(float)};
        e->count++;
    }
}

static void build(struct example *e, bool symmetric, int64_t delay)
{
    build_form(e, &(struct cvy_fake_quantize_attr){.symmetric = symmetric, .delay = delay});
}

static cvy_status write_example(const char *path, void *context)
{
    const struct example *e = context;

    return cvy_onnx_write(path, &e->graph, e->tensors, e->count, &(struct cvy_onnx_options){.name = "net"});
}

static Onnx__ModelProto *write_and_read(struct example *e, void **state)
{
    const char *path = test_path(*state, "a.onnx");
    Onnx__ModelProto *model;
    void *data = NULL;
    size_t size = 0;

    if (write_example(path, e) != CVY_OK || cvy_file_read(path, SIZE_MAX, &data, &size) != CVY_OK)
        fail_msg("%s", cvy_error());
    model = onnx__model_proto__unpack(NULL, size, data);
    cvy_free(data);
    assert_non_null(model);
    return model;
}

static void check_constant(const Onnx__GraphProto *graph, const char *name, int32_t type, const void *bytes,
                           size_t size)
{
    for (size_t i = 0; i < graph->n_initializer; i++) {
        if (strcmp(graph->initializer[i]->name, name) != 0)
            continue;
        assert_int_equal(graph->initializer[i]->data_type, type);
        assert_int_equal(graph->initializer[i]->raw_data.len, size);
        if (type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) {
            for (size_t k = 0; k < size / sizeof(float); k++) {
                float got, want;
                memcpy(&got, graph->initializer[i]->raw_data.data + k * sizeof got, sizeof got);
                memcpy(&want, (const char *)bytes + k * sizeof want, sizeof want);
                /* Two roundings: of the factor of a batch norm, and of the product. */
                if (!(got - want <= 2.4e-7f * want && want - got <= 2.4e-7f * want))
                    fail_msg("%s is %.9g, not %.9g", name, (double)got, (double)want);
            }
        } else {
            assert_memory_equal(graph->initializer[i]->raw_data.data, bytes, size);
        }
        return;
    }
    fail_msg("there is no constant %s", name);
}
#define FLOATS(name, ...)                                                                                              \
    check_constant(graph, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, (const float[]){__VA_ARGS__},                    \
                   sizeof(const float[]){__VA_ARGS__})
#define SIGNED(name, ...)                                                                                              \
    check_constant(graph, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT8, (const int8_t[]){__VA_ARGS__},                    \
                   sizeof(const int8_t[]){__VA_ARGS__})
#define UNSIGNED(name, ...)                                                                                            \
    check_constant(graph, name, ONNX__TENSOR_PROTO__DATA_TYPE__UINT8, (const uint8_t[]){__VA_ARGS__},                  \
                   sizeof(const uint8_t[]){__VA_ARGS__})
#define WIDE(name, ...)                                                                                                \
    check_constant(graph, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT32, (const int32_t[]){__VA_ARGS__},                  \
                   sizeof(const int32_t[]){__VA_ARGS__})

/* The node types in order, separated by spaces. */
static void check_types(const Onnx__GraphProto *graph, const char *expected)
{
    char types[512] = "";

    for (size_t i = 0; i < graph->n_node; i++)
        snprintf(types + strlen(types), sizeof types - strlen(types), "%s%s", i ? " " : "", graph->node[i]->op_type);
    assert_string_equal(types, expected);
}

/* Weights 1 and -0.5 are levels 127 and -64 (63.5, to even) of 1/127. The factor 2 doubles the first channel's scale,
 * -1 turns the second around. Input scale 1/64: shifts are 1 * 64 * 127 / 2 and 0.5 * 64 * 127. */
static void symmetric_integers(void **state)
{
    struct example e;
    Onnx__ModelProto *model;
    const Onnx__GraphProto *graph;

    build(&e, true, 0);
    model = write_and_read(&e, state);
    graph = model->graph;
    check_types(graph, "QuantizeLinear DequantizeLinear DequantizeLinear DequantizeLinear Conv "
                       "QuantizeLinear DequantizeLinear Relu QuantizeLinear DequantizeLinear GlobalAveragePool "
                       "QuantizeLinear DequantizeLinear Flatten QuantizeLinear DequantizeLinear "
                       "DequantizeLinear DequantizeLinear Gemm");
    SIGNED("conv.weight", 127, 64);
    FLOATS("conv.weight_scale", 2.0f / 127, 1.0f / 127);
    SIGNED("conv.weight_zero_point", 0, 0);
    WIDE("conv.bias", 4064, 4064);
    FLOATS("conv.bias_scale", 2.0f / 127 / 64, 1.0f / 127 / 64);
    FLOATS("conv.input_quantizer.scale", 1.0f / 64);
    UNSIGNED("conv.input_quantizer.zero_point", 128);
    FLOATS("output_quantizer.scale", 1.0f / 32);
    SIGNED("fc.weight", 127, 64); /* 0.25 is 63.5 of 0.5 / 127 */
    FLOATS("fc.weight_scale", 0.5f / 127);
    WIDE("fc.bias", 32512); /* 1 / (1/128 * 0.5/127) */
    assert_int_equal(graph->n_initializer, 16);
    onnx__model_proto__free_unpacked(model, NULL);
    cvy_graph_release(&e.graph);
}

/* Weights from -0.5 to 1: scale 1.5 / 254, zero 1 + 84.67 = 86, so that 1 is 169 above and -0.5 is 85 below. A channel
 * that is turned around wants 128 for all: the first channel's 169 are more than the 127 above that, and its scale
 * grows by 169 / 127. The ReLU is gone: the integers after the convolution begin at 0. */
static void asymmetric_integers(void **state)
{
    const float scale = 1.5f / 254;
    struct example e;
    Onnx__ModelProto *model;
    const Onnx__GraphProto *graph;

    build(&e, false, 0);
    for (size_t i = 0; i < e.count; i++) {
        if (strcmp(e.tensors[i].name, "output_quantizer.observed") == 0)
            e.values[i][0] = 0; /* after a ReLU */
    }
    model = write_and_read(&e, state);
    graph = model->graph;
    check_types(graph, "QuantizeLinear DequantizeLinear DequantizeLinear DequantizeLinear Conv "
                       "QuantizeLinear DequantizeLinear GlobalAveragePool "
                       "QuantizeLinear DequantizeLinear Flatten QuantizeLinear DequantizeLinear "
                       "DequantizeLinear DequantizeLinear Gemm");
    UNSIGNED("conv.weight", 255, 213);
    UNSIGNED("conv.weight_zero_point", 128, 128);
    FLOATS("conv.weight_scale", 2 * scale * 169 / 127, scale);
    UNSIGNED("output_quantizer.zero_point", 0);
    FLOATS("output_quantizer.scale", 127.0f / 32 / 255);
    UNSIGNED("fc.weight", 255, 128); /* from 0 to 0.5: zero is 1; 0.25 is 127 above */
    UNSIGNED("fc.weight_zero_point", 1);
    onnx__model_proto__free_unpacked(model, NULL);
    cvy_graph_release(&e.graph);
}

static bool has_axis(const Onnx__GraphProto *graph, const char *weights)
{
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];

        if (strcmp(node->input[0], weights) == 0 && node->n_attribute == 1)
            return strcmp(node->attribute[0]->name, "axis") == 0 && node->attribute[0]->i == 0;
    }
    return false;
}

/* Each channel reaches from -127 to 127: 1 and -0.5 are level 127 and -127, which its batch norm turns around. Values
 * after the ReLU have 255 levels above zero, and the ReLU is gone. */
static void integers_by_channel(void **state)
{
    struct example e;
    Onnx__ModelProto *model;
    const Onnx__GraphProto *graph;

    build_form(&e, &(struct cvy_fake_quantize_attr){.symmetric = true, .channels = true, .positive = true});
    model = write_and_read(&e, state);
    graph = model->graph;
    check_types(graph, "QuantizeLinear DequantizeLinear DequantizeLinear DequantizeLinear Conv "
                       "QuantizeLinear DequantizeLinear GlobalAveragePool "
                       "QuantizeLinear DequantizeLinear Flatten QuantizeLinear DequantizeLinear "
                       "DequantizeLinear DequantizeLinear Gemm");
    SIGNED("conv.weight", 127, 127);
    FLOATS("conv.weight_scale", 2.0f / 127, 0.5f / 127);
    SIGNED("conv.weight_zero_point", 0, 0);
    WIDE("conv.bias", 4064, 8128);
    UNSIGNED("conv.input_quantizer.zero_point", 128);
    UNSIGNED("output_quantizer.zero_point", 0);
    FLOATS("output_quantizer.scale", 127.0f / 32 / 255);
    UNSIGNED("fc.input_quantizer.zero_point", 0);
    SIGNED("fc.weight", 127, 64);
    FLOATS("fc.weight_scale", 0.5f / 127);
    WIDE("fc.bias", 65280); /* 1 / (127/128/255 * 0.5/127) */
    assert_true(has_axis(graph, "conv.weight"));
    assert_true(has_axis(graph, "fc.weight"));
    onnx__model_proto__free_unpacked(model, NULL);
    cvy_graph_release(&e.graph);
}

static void before_the_delay_it_is_floats(void **state)
{
    struct example e;
    Onnx__ModelProto *model;

    build(&e, true, 1);
    model = write_and_read(&e, state);
    check_types(model->graph, "Conv BatchNormalization Relu GlobalAveragePool Flatten Gemm");
    onnx__model_proto__free_unpacked(model, NULL);
    cvy_graph_release(&e.graph);
}

static void every_allocation_may_fail(void **state)
{
    struct example e;

    build(&e, true, 0);
    assert_true(test_writing_without_memory(*state, "a.onnx", write_example, &e) > 10);
    e.count = 1; /* the first tensor only */
    assert_int_equal(write_example(test_path(*state, "b.onnx"), &e), CVY_FAILED);
    cvy_graph_release(&e.graph);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(symmetric_integers), IN_FOLDER(asymmetric_integers), IN_FOLDER(integers_by_channel),
          IN_FOLDER(before_the_delay_it_is_floats), IN_FOLDER(every_allocation_may_fail))
