/* What a detector's ONNX file has that a classifier's has not: limits of ReLU6, doubled maps, levels laid out in rows,
 * boxes and scores. Whether other programs compute the same with them is tested under parity/. */
#include "ops/ops.h"
#include "support_folder.h"
#include "support_graph.h"
#include "support_onnx.h"
#include "support_test.h"

static Onnx__ModelProto *write_and_read(const struct onnx_example *e, void **state)
{
    const char *path = test_path(*state, "a.onnx");

    if (cvy_onnx_write(path, &e->graph, e->tensors, e->count, &(struct cvy_onnx_options){.name = "net"}) != CVY_OK)
        fail_msg("%s", cvy_error());
    return onnx_read(path);
}

static void finish(struct onnx_example *e, Onnx__ModelProto *model)
{
    onnx__model_proto__free_unpacked(model, NULL);
    onnx_release(e);
}

/* A constant of the file: its type, its extents, its bytes; there once. */
static void check_constant(const Onnx__GraphProto *graph, const char *name, int32_t type, size_t rank,
                           const int64_t *dims, const void *bytes, size_t size)
{
    const Onnx__TensorProto *found = NULL;

    for (size_t i = 0; i < graph->n_initializer; i++) {
        if (strcmp(graph->initializer[i]->name, name) != 0)
            continue;
        assert_null(found);
        found = graph->initializer[i];
    }
    if (!found)
        fail_msg("there is no constant %s", name);
    assert_int_equal(found->data_type, type);
    assert_int_equal(found->n_dims, rank);
    for (size_t d = 0; d < rank; d++)
        assert_int_equal(found->dims[d], dims[d]);
    assert_int_equal(found->raw_data.len, size);
    assert_memory_equal(found->raw_data.data, bytes, size);
}

static void check_float(const Onnx__GraphProto *graph, const char *name, float value)
{
    check_constant(graph, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 0, NULL, &value, sizeof value);
}

static void check_index(const Onnx__GraphProto *graph, const char *name, int64_t value)
{
    check_constant(graph, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, 1, (const int64_t[]){1}, &value, sizeof value);
}

static void check_string(const Onnx__NodeProto *node, const char *name, const char *value)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);

    assert_int_equal(a->type, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    assert_int_equal(a->s.len, strlen(value));
    assert_memory_equal(a->s.data, value, strlen(value));
}

static void check_inputs(const Onnx__NodeProto *node, size_t count, const char *const *names)
{
    assert_int_equal(node->n_input, count);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(node->input[i], names[i]);
}

/* Alone, and what training leaves inside a convolution: two nodes, one pair of limits. */
static void relu6_has_two_limits(void **state)
{
    static const char *const types[] = {"Clip", "Conv", "Clip"};
    const struct cvy_conv2d_attr attr = {
        .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1, .activation = CVY_ACTIVATION_RELU6};
    struct onnx_example e = {.values = NULL};
    cvy_val x = start_graph(&e.graph, false, 3, 6, 5), w;
    Onnx__ModelProto *model;

    x = cvy_relu6(&e.graph, x);
    w = cvy_graph_param(&e.graph, "w", CVY_PARAM_TRAINABLE, cvy_shape4(2, 3, 1, 1), (struct cvy_init){0});
    onnx_finish(&e, cvy_conv2d_values(&e.graph, x, w, CVY_NONE, CVY_NONE, &attr));
    model = write_and_read(&e, state);
    onnx_check_types(model->graph, 3, types);
    check_inputs(onnx_node(model->graph, "Clip"), 3, (const char *const[]){"x", "relu6_low", "relu6_high"});
    check_inputs(onnx_node(model->graph, "Clip_1"), 3, (const char *const[]){"Conv", "relu6_low", "relu6_high"});
    assert_int_equal(onnx_node(model->graph, "Clip")->n_attribute, 0); /* limits are inputs since version 11 */
    check_float(model->graph, "relu6_low", 0);
    check_float(model->graph, "relu6_high", 6);
    onnx_check_value(model->graph->output[0], "logits", 4, (const int64_t[]){0, 2, 6, 5});
    finish(&e, model);
}

/* Each pixel becomes four. Other rules of the same operation shift the map by half a pixel. */
static void maps_are_doubled(void **state)
{
    static const char *const types[] = {"Resize", "Relu", "Resize"};
    static const float scales[] = {1, 1, 2, 2};
    struct onnx_example e = {.values = NULL};
    cvy_val x = start_graph(&e.graph, false, 3, 6, 5);
    Onnx__ModelProto *model;

    onnx_finish(&e, cvy_upsample(&e.graph, cvy_relu(&e.graph, cvy_upsample(&e.graph, x))));
    model = write_and_read(&e, state);
    onnx_check_types(model->graph, 3, types);
    for (int i = 0; i < 2; i++) {
        const Onnx__NodeProto *node = model->graph->node[2 * i];
        check_inputs(node, 3, (const char *const[]){i ? "Relu" : "x", "", "upsample_scales"});
        assert_int_equal(node->n_attribute, 3);
        check_string(node, "mode", "nearest");
        check_string(node, "coordinate_transformation_mode", "asymmetric");
        check_string(node, "nearest_mode", "floor");
    }
    check_constant(model->graph, "upsample_scales", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 1, (const int64_t[]){4},
                   scales, sizeof scales);
    onnx_check_value(model->graph->output[0], "logits", 4, (const int64_t[]){0, 3, 24, 20});
    finish(&e, model);
}

/* Two maps of three and of one location with two rows of four columns each. */
static void levels_become_rows(void **state)
{
    static const char *const types[] = {"MaxPool", "Transpose", "Reshape", "Transpose", "Reshape", "Concat"};
    static const int64_t rows[] = {0, -1, 4}, channels_last[] = {0, 2, 3, 1};
    struct onnx_example e = {.values = NULL};
    cvy_val maps[2];
    const char *shape;
    Onnx__ModelProto *model;

    maps[0] = start_graph(&e.graph, false, 8, 3, 1);
    maps[1] = cvy_max_pool(&e.graph, maps[0], &(struct cvy_max_pool){.kernel = 3, .stride = 3, .pad = 1});
    onnx_finish(&e, cvy_flatten_levels(&e.graph, 2, maps, 4));
    model = write_and_read(&e, state);
    onnx_check_types(model->graph, 6, types);
    for (int i = 0; i < 2; i++) {
        const Onnx__NodeProto *turned = model->graph->node[1 + 2 * i], *reshaped = model->graph->node[2 + 2 * i];
        check_inputs(turned, 1, (const char *const[]){i ? "MaxPool" : "x"});
        onnx_check_ints(turned, "perm", 4, channels_last);
        assert_int_equal(reshaped->n_input, 2);
        assert_string_equal(reshaped->input[0], turned->output[0]);
        assert_string_equal(reshaped->input[1], model->graph->node[2]->input[1]);
        assert_int_equal(reshaped->n_attribute, 0); /* a 0 keeps an extent: allowzero is not set */
    }
    shape = model->graph->node[2]->input[1];
    check_constant(model->graph, shape, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, 1, (const int64_t[]){3}, rows,
                   sizeof rows);
    onnx_check_int(onnx_node(model->graph, "Concat"), "axis", 1); /* renamed: it is the result */
    check_inputs(onnx_node(model->graph, "Concat"), 2,
                 (const char *const[]){model->graph->node[2]->output[0], model->graph->node[4]->output[0]});
    onnx_check_value(model->graph->output[0], "logits", 3, (const int64_t[]){0, 8, 4});
    finish(&e, model);
}

/* The node that makes a value. */
static const Onnx__NodeProto *maker(const Onnx__GraphProto *graph, const char *value)
{
    for (size_t i = 0; i < graph->n_node; i++) {
        if (strcmp(graph->node[i]->output[0], value) == 0)
            return graph->node[i];
    }
    fail_msg("no node makes %s", value);
    return NULL;
}

/* `value` is made by an operation of two inputs, of which the second is a constant or another value of this name. */
static const char *first_of(const Onnx__GraphProto *graph, const char *value, const char *op_type, const char *second)
{
    const Onnx__NodeProto *node = maker(graph, value);

    assert_string_equal(node->op_type, op_type);
    assert_int_equal(node->n_input, 2);
    assert_string_equal(node->input[1], second);
    return node->input[0];
}

/* Columns of the last dimension. */
static const char *check_slice(const Onnx__GraphProto *graph, const char *value, const char *first, const char *end)
{
    const Onnx__NodeProto *node = maker(graph, value);

    assert_string_equal(node->op_type, "Slice");
    check_inputs(node, 4, (const char *const[]){node->input[0], first, end, "detect.2"});
    return node->input[0];
}

/* boxes = centre -/+ half of a side, with centre = code / 10 * side + middle and half = exp(code / 5) * side / 2. */
static void check_boxes(const Onnx__GraphProto *graph)
{
    const Onnx__NodeProto *joined = maker(graph, "boxes"), *low, *high;
    const char *centre, *half, *value;

    assert_string_equal(joined->op_type, "Concat");
    assert_int_equal(joined->n_input, 2);
    onnx_check_int(joined, "axis", 2);
    low = maker(graph, joined->input[0]);
    high = maker(graph, joined->input[1]);
    assert_string_equal(low->op_type, "Sub");
    assert_string_equal(high->op_type, "Add");
    check_inputs(high, 2, (const char *const[]){low->input[0], low->input[1]});
    centre = low->input[0];
    half = low->input[1];
    value = first_of(graph, centre, "Add", "anchors.middle");
    value = first_of(graph, value, "Mul", "anchors.side");
    value = first_of(graph, value, "Mul", "detect.tenth");
    assert_string_equal(maker(graph, check_slice(graph, value, "detect.0", "detect.2"))->op_type, "Concat");
    value = first_of(graph, half, "Mul", "detect.half");
    value = first_of(graph, value, "Mul", "anchors.side");
    assert_string_equal(maker(graph, value)->op_type, "Exp");
    value = first_of(graph, maker(graph, value)->input[0], "Mul", "detect.fifth");
    assert_string_equal(maker(graph, check_slice(graph, value, "detect.2", "detect.4"))->op_type, "Concat");
}

/* Codes and two classes for one anchor at each of the 1 x 2 locations of an image of 8 x 16 pixels. */
static void boxes_and_scores(void **state)
{
    static const struct cvy_anchors anchors = {
        .image = {8, 16}, .first_level = 3, .levels = 1, .scales = 1, .aspect_count = 1, .aspects = {1}, .size = 2};
    /* Squares of 16 pixels around (4, 4) and (4, 12), as shares of the image. */
    static const float middles[] = {0.5F, 0.25F, 0.5F, 0.75F}, sides[] = {2, 1, 2, 1};
    static const int64_t of_anchors[] = {1, 2, 2};
    struct onnx_example e = {.values = NULL};
    cvy_val x = start_graph(&e.graph, false, 4, 1, 2), codes, logits;
    const Onnx__NodeProto *sigmoid;
    Onnx__ModelProto *model;

    codes = cvy_flatten_levels(&e.graph, 1, &x, 4);
    cvy_scope_push(&e.graph, "fc"); /* something that no output depends on */
    x = cvy_linear_1x1(&e.graph, cvy_global_avg_pool(&e.graph, x), 1);
    cvy_scope_pop(&e.graph);
    cvy_graph_result(&e.graph, CVY_RESULT_NAMED, "unused", -1, x);
    x = cvy_conv2d(&e.graph, e.graph.input_list[0].value, &(struct cvy_conv2d){.out = 3, .kernel = 1});
    logits = cvy_flatten_levels(&e.graph, 1, &x, 3);
    cvy_graph_result(&e.graph, CVY_RESULT_NAMED, "boxes", -1,
                     cvy_detect(&e.graph, codes, logits, &anchors, NULL).boxes);
    onnx_make_tensors(&e);
    model = write_and_read(&e, state);

    assert_int_equal(model->graph->n_output, 2);
    onnx_check_value(model->graph->output[0], "boxes", 3, (const int64_t[]){0, 2, 4});
    onnx_check_value(model->graph->output[1], "scores", 3, (const int64_t[]){0, 2, 2});
    assert_int_equal(onnx_count(model->graph, "Gemm") + onnx_count(model->graph, "GlobalAveragePool"), 0);
    check_constant(model->graph, "anchors.middle", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 3, of_anchors, middles,
                   sizeof middles);
    check_constant(model->graph, "anchors.side", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 3, of_anchors, sides,
                   sizeof sides);
    check_float(model->graph, "detect.tenth", 0.1F);
    check_float(model->graph, "detect.fifth", 0.2F);
    check_float(model->graph, "detect.half", 0.5F);
    check_index(model->graph, "detect.0", 0);
    check_index(model->graph, "detect.1", 1);
    check_index(model->graph, "detect.2", 2);
    check_index(model->graph, "detect.4", 4);
    check_index(model->graph, "detect.columns", 3);
    check_boxes(model->graph);

    /* Scores: of all columns but the background's. */
    sigmoid = maker(model->graph, "scores");
    assert_string_equal(sigmoid->op_type, "Sigmoid");
    assert_string_equal(
        maker(model->graph, check_slice(model->graph, sigmoid->input[0], "detect.1", "detect.columns"))->op_type,
        "Concat");
    finish(&e, model);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(relu6_has_two_limits), IN_FOLDER(maps_are_doubled), IN_FOLDER(levels_become_rows),
          IN_FOLDER(boxes_and_scores))
