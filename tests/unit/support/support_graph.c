#include "support_graph.h"
#include "ops/ops.h"
#include "support_test.h"

static void check_node(const struct cvy_graph *graph, int32_t n)
{
    const struct cvy_node *node = &graph->nodes[n];
    const struct cvy_op_info *info = &cvy_ops[node->op];

    assert_in_range(node->inputs, info->inputs.min, info->inputs.max);
    assert_in_range(node->outputs, info->outputs.min, info->outputs.max);
    assert_non_null(node->scope);
    for (int32_t i = 0; i < CVY_MAX_INPUTS; i++) {
        const struct cvy_value *value;
        const bool optional = i >= info->inputs.min || (node->op == CVY_OP_L2_LOSS && i == 0) || /* no term before it */
                              (node->op == CVY_OP_BATCH_NORM_APPLY && (i == 2 || i == 3)); /* neither shift nor mean */
        if (i >= node->inputs || optional) {
            if (i >= node->inputs)
                assert_int_equal(node->in[i], CVY_NONE);
            if (i >= node->inputs || node->in[i] == CVY_NONE)
                continue;
        }
        assert_in_range(node->in[i], 0, graph->value_count - 1);
        value = &graph->values[node->in[i]];
        if (value->producer >= 0)
            assert_true(value->producer < n);
        else
            assert_true(value->param >= 0 || value->input >= 0);
    }
    for (int32_t i = 0; i < CVY_MAX_OUTPUTS; i++) {
        if (i >= node->outputs)
            assert_int_equal(node->out[i], CVY_NONE);
        if (node->out[i] == CVY_NONE)
            continue;
        assert_in_range(node->out[i], 0, graph->value_count - 1);
        assert_int_equal(graph->values[node->out[i]].producer, n);
    }
}

void check_graph(const struct cvy_graph *graph)
{
    if (cvy_graph_status(graph) != CVY_OK)
        fail_msg("%s", cvy_error());
    for (int32_t n = 0; n < graph->node_count; n++)
        check_node(graph, n);
    for (int32_t p = 0; p < graph->param_count; p++) {
        const struct cvy_param *param = &graph->params[p];
        if (param->kind == CVY_PARAM_COUNTER) {
            assert_int_equal(param->value, CVY_NONE);
            continue;
        }
        assert_int_equal(graph->values[param->value].param, p);
        assert_true(cvy_shape_equal(&graph->values[param->value].shape, &param->shape));
    }
    for (int32_t i = 0; i < graph->input_count; i++)
        assert_int_equal(graph->values[graph->input_list[i].value].input, i);
    for (int32_t r = 0; r < graph->result_count; r++) {
        const struct cvy_graph_result *result = &graph->results[r];
        assert_in_range(result->value, 0, graph->value_count - 1);
        if (result->kind == CVY_RESULT_NAMED)
            continue;
        assert_int_equal(graph->params[result->param].kind,
                         result->kind == CVY_RESULT_GRADIENT ? CVY_PARAM_TRAINABLE : CVY_PARAM_STATE);
        assert_true(cvy_shape_equal(&graph->values[result->value].shape, &graph->params[result->param].shape));
        assert_int_equal(graph->values[result->value].dtype, CVY_F32);
        for (int32_t other = 0; other < r; other++)
            assert_false(graph->results[other].kind == result->kind && graph->results[other].param == result->param);
    }
}

void check_graph_error(const struct cvy_graph *graph, cvy_status status, const char *part)
{
    assert_int_equal(cvy_graph_status(graph), status);
    assert_error(part);
    assert_true(cvy_error()[strlen(cvy_error()) - 1] != '.');
}

int32_t count_nodes(const struct cvy_graph *graph, enum cvy_op op)
{
    int32_t count = 0;

    for (int32_t n = 0; n < graph->node_count; n++)
        count += graph->nodes[n].op == op;
    return count;
}

int32_t find_node(const struct cvy_graph *graph, enum cvy_op op, int32_t from)
{
    for (int32_t n = from; n < graph->node_count; n++) {
        if (graph->nodes[n].op == op)
            return n;
    }
    return -1;
}

cvy_val start_graph(struct cvy_graph *graph, bool training, int64_t channels, int64_t height, int64_t width)
{
    cvy_graph_init(graph, training);
    return cvy_graph_input(graph, "x", CVY_F32, cvy_shape4(CVY_BATCH, channels, height, width), false);
}

cvy_val gradient_of(const struct cvy_graph *graph, const char *param)
{
    int32_t index = cvy_graph_find_param(graph, param);

    for (int32_t r = 0; r < graph->result_count; r++) {
        if (graph->results[r].kind == CVY_RESULT_GRADIENT && graph->results[r].param == index)
            return graph->results[r].value;
    }
    return CVY_NONE;
}

cvy_val add_conv(struct cvy_graph *g, cvy_val x, const char *name, int32_t out)
{
    cvy_scope_push(g, name);
    x = cvy_conv2d(g, x, &(struct cvy_conv2d){.out = out, .kernel = 3, .pad = 1});
    cvy_scope_pop(g);
    return x;
}

cvy_val add_norm(struct cvy_graph *g, cvy_val x, const char *name)
{
    cvy_scope_push(g, name);
    x = cvy_batch_norm(g, x, &(struct cvy_batch_norm){0});
    cvy_scope_pop(g);
    return x;
}

void add_loss(struct cvy_graph *g, cvy_val x)
{
    cvy_val target = cvy_graph_input(g, "target", CVY_I32, cvy_shape1(CVY_BATCH), false);
    cvy_val seed = cvy_graph_input(g, "seed", CVY_F32, cvy_shape0(), false), loss;

    cvy_scope_push(g, "fc");
    x = cvy_linear(g, cvy_global_avg_pool(g, x), 5);
    cvy_scope_pop(g);
    loss = cvy_softmax_cross_entropy(g, x, target, 0);
    cvy_graph_result(g, CVY_RESULT_NAMED, "loss", -1, loss);
    cvy_graph_backward(g, cvy_ops, loss, seed);
}

struct cvy_model_options network_options(int32_t num_classes, int32_t image_size)
{
    return (struct cvy_model_options){.num_classes = num_classes,
                                      .image_size = image_size,
                                      .mean = {123.675F, 116.28F, 103.53F},
                                      .std = {58.395F, 57.12F, 57.375F}};
}

void build_network(struct cvy_graph *graph, const char *name, const struct cvy_model_options *options,
                   enum cvy_model_mode mode, bool fuse)
{
    const struct cvy_architecture *architecture = cvy_architecture_find(name);

    assert_non_null(architecture);
    if (cvy_model_graph(architecture, options, mode, fuse, graph) != CVY_OK)
        fail_msg("%s: %s", name, cvy_error());
    check_graph(graph);
}

const struct cvy_param *named_param(const struct cvy_graph *graph, const char *name)
{
    int32_t index = cvy_graph_find_param(graph, name);

    assert_true(index >= 0);
    return &graph->params[index];
}

cvy_val every_unary_op(struct cvy_graph *graph, cvy_val x)
{
#define CVY_OP(...)
#define CVY_OP_UNARY(ID, name, ...) x = cvy_##name(graph, x);
#include "graph/ops.def"
    return x;
}

void set_quantizer_ranges(const struct cvy_graph *graph, float *state)
{
    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *node = &graph->nodes[n];

        if (node->op == CVY_OP_FAKE_QUANTIZE) {
            float *observed = state + graph->params[graph->values[node->in[1]].param].offset;
            observed[0] = node->attr.fake_quantize.positive || node->attr.fake_quantize.channels ? 0 : -6;
            observed[1] = 6;
            observed[2] = 1;
        }
    }
}
