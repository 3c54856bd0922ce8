/* The mapping of our operations to those of ONNX: one row for each in the table below. */
#include "export/onnx.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "export/onnx_translate.h"
#include "ops/ops.h"

static const char input_name[] = "input", output_name[] = "logits", axes_name[] = "map_axes";

/* ---- nodes and the forms of their values ---- */

static bool is_matrix(const struct cvy_onnx_translator *t, cvy_val value)
{
    return cvy_shape_of(t->graph, value)->rank == 2;
}

/* The value in its own shape; `reader` is the node that asks. */
static const char *plain(struct cvy_onnx_translator *t, const struct cvy_node *reader, cvy_val value)
{
    struct cvy_onnx_names *names = &t->names[value];

    if (!names->plain) {
        struct cvy_onnx_node *flatten = cvy_onnx_add(t, reader, "Flatten", 1, &names->map);
        cvy_onnx_set_int(flatten, "axis", 1);
        names->plain = cvy_onnx_node_output(flatten);
    }
    return names->plain;
}

/* The value with four dimensions. */
static const char *map(struct cvy_onnx_translator *t, const struct cvy_node *reader, cvy_val value)
{
    static const int64_t axes[2] = {2, 3};
    struct cvy_onnx_names *names = &t->names[value];

    if (!is_matrix(t, value))
        return plain(t, reader, value);
    if (!names->map) {
        if (!t->has_axes)
            cvy_onnx_add_initializer(t->model,
                                     &(struct cvy_named_tensor){axes_name, CVY_I64, cvy_shape1(2), axes, sizeof axes});
        t->has_axes = true;
        names->map = cvy_onnx_add_simple(t, reader, "Unsqueeze", 2, (const char *[]){names->plain, axes_name});
    }
    return names->map;
}

/* ---- the operations ---- */

/* 0 and 6, the limits of ReLU6: scalars of the file. */
static const char *clip(struct cvy_onnx_translator *t, const struct cvy_node *node, const char *y)
{
    static const char low[] = "relu6_low", high[] = "relu6_high";
    static const float limits[2] = {0, 6};

    if (!t->has_clip) {
        cvy_onnx_add_initializer(t->model, &(struct cvy_named_tensor){low, CVY_F32, cvy_shape0(), limits, 4});
        cvy_onnx_add_initializer(t->model, &(struct cvy_named_tensor){high, CVY_F32, cvy_shape0(), limits + 1, 4});
    }
    t->has_clip = true;
    return cvy_onnx_add_simple(t, node, "Clip", 3, (const char *[]){y, low, high});
}

/* What a node may do besides: add a residual, then cut at zero, and at six. */
static const char *finish(struct cvy_onnx_translator *t, const struct cvy_node *node, const char *y, cvy_val residual,
                          enum cvy_activation activation)
{
    if (residual != CVY_NONE)
        y = cvy_onnx_add_simple(t, node, "Add", 2, (const char *[]){y, plain(t, node, residual)});
    if (activation == CVY_ACTIVATION_RELU6)
        return clip(t, node, y);
    return activation == CVY_ACTIVATION_RELU ? cvy_onnx_add_simple(t, node, "Relu", 1, &y) : y;
}

/* The image comes normalised: the file begins after this node. */
static cvy_status normalize(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    cvy_onnx_add_input(t->model, input_name, cvy_shape_of(t->graph, node->out[0]));
    t->names[node->out[0]].plain = input_name;
    return CVY_OK;
}

/* Ours are top, bottom, left, right; ONNX wants all beginnings before all ends. */
static void set_window(struct cvy_onnx_node *made, const int32_t kernel[2], const int32_t stride[2],
                       const int32_t pad[4])
{
    cvy_onnx_set_ints(made, "kernel_shape", 2, kernel);
    cvy_onnx_set_ints(made, "pads", 4, (const int32_t[]){pad[0], pad[2], pad[1], pad[3]});
    cvy_onnx_set_ints(made, "strides", 2, stride);
}

/* Integers where the network learnt to have them, else the parameters. */
static cvy_status weights(struct cvy_onnx_translator *t, const struct cvy_node *node, const char *in[3], int *inputs)
{
    const bool bias = cvy_node_has(node, 2);
    bool quantized;

    CVY_TRY(cvy_onnx_quantized_weights(t, (int32_t)(node - t->graph->nodes), in, &quantized));
    *inputs = quantized || bias ? 3 : 2;
    if (quantized)
        return CVY_OK;
    in[1] = plain(t, node, node->in[1]);
    in[2] = bias ? plain(t, node, node->in[2]) : NULL;
    return CVY_OK;
}

static cvy_status conv2d(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    const struct cvy_conv2d_attr *attr = &node->attr.conv2d;
    const char *in[3] = {plain(t, node, node->in[0])};
    struct cvy_onnx_node *made;
    int inputs;

    CVY_TRY(weights(t, node, in, &inputs));
    made = cvy_onnx_add(t, node, "Conv", inputs, in);

    cvy_onnx_set_ints(made, "dilations", 2, attr->dilation);
    cvy_onnx_set_int(made, "group", attr->groups);
    set_window(made, attr->kernel, attr->stride, attr->pad);
    t->names[node->out[0]].plain = finish(t, node, cvy_onnx_node_output(made), node->in[3], attr->activation);
    return CVY_OK;
}

static cvy_status batch_norm(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    const char *in[5]; /* ours are in ONNX's order */
    struct cvy_onnx_node *made;

    for (int i = 0; i < 5; i++)
        in[i] = plain(t, node, node->in[i]);
    made = cvy_onnx_add(t, node, "BatchNormalization", 5, in);
    cvy_onnx_set_float(made, "epsilon", node->attr.batch_norm.eps);
    t->names[node->out[0]].plain =
        finish(t, node, cvy_onnx_node_output(made), node->in[5], node->attr.batch_norm.activation);
    return CVY_OK;
}

/* Element by element: the result has the form of the input. */
static void unary(struct cvy_onnx_translator *t, const struct cvy_node *node, const char *op_type)
{
    const struct cvy_onnx_names *x = &t->names[node->in[0]];
    struct cvy_onnx_names *y = &t->names[node->out[0]];

    if (x->map)
        y->map = cvy_onnx_add_simple(t, node, op_type, 1, &x->map);
    else
        y->plain = cvy_onnx_add_simple(t, node, op_type, 1, &x->plain);
}

static cvy_status relu(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    unary(t, node, "Relu");
    return CVY_OK;
}

static cvy_status relu6(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    t->names[node->out[0]].plain = clip(t, node, plain(t, node, node->in[0]));
    return CVY_OK;
}

static cvy_status sigmoid(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    unary(t, node, "Sigmoid");
    return CVY_OK;
}

/* x * sigmoid(x) */
static cvy_status silu(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    const struct cvy_onnx_names *x = &t->names[node->in[0]];
    struct cvy_onnx_names *y = &t->names[node->out[0]];

    unary(t, node, "Sigmoid");
    if (x->map)
        y->map = cvy_onnx_add_simple(t, node, "Mul", 2, (const char *[]){x->map, y->map});
    else
        y->plain = cvy_onnx_add_simple(t, node, "Mul", 2, (const char *[]){x->plain, y->plain});
    return CVY_OK;
}

static cvy_status add_values(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    t->names[node->out[0]].plain = finish(t, node, plain(t, node, node->in[0]), node->in[1],
                                          node->attr.add.relu ? CVY_ACTIVATION_RELU : CVY_ACTIVATION_NONE);
    return CVY_OK;
}

static cvy_status max_pool(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    const char *x = plain(t, node, node->in[0]);
    struct cvy_onnx_node *made = cvy_onnx_add(t, node, "MaxPool", 1, &x);

    set_window(made, node->attr.pool.kernel, node->attr.pool.stride, node->attr.pool.pad);
    t->names[node->out[0]].plain = cvy_onnx_node_output(made);
    return CVY_OK;
}

/* The nearest neighbour: out[y] = in[floor(y / 2)]. */
static cvy_status upsample(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    static const char scales[] = "upsample_scales";
    static const float values[4] = {1, 1, 2, 2};
    const char *in[3] = {plain(t, node, node->in[0]), "", scales};
    struct cvy_onnx_node *made;

    if (!t->has_scales)
        cvy_onnx_add_initializer(t->model,
                                 &(struct cvy_named_tensor){scales, CVY_F32, cvy_shape1(4), values, sizeof values});
    t->has_scales = true;
    made = cvy_onnx_add(t, node, "Resize", 3, in);
    cvy_onnx_set_string(made, "mode", "nearest");
    cvy_onnx_set_string(made, "coordinate_transformation_mode", "asymmetric");
    cvy_onnx_set_string(made, "nearest_mode", "floor");
    t->names[node->out[0]].plain = cvy_onnx_node_output(made);
    return CVY_OK;
}

/* Each map channels-last, then as rows; the levels one after the other. */
static cvy_status flatten_levels(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    const int64_t shape[3] = {0, -1, node->attr.levels.columns}; /* 0: as it is */
    const char *rows[CVY_MAX_MAPS],
        *shape_name = cvy_arena_printf(&t->arena, "rows_shape_%d", (int)(node - t->graph->nodes));
    int64_t *kept = cvy_arena_alloc(&t->arena, sizeof shape);
    struct cvy_onnx_node *made;

    if (!kept || !shape_name) {
        t->failed = true;
        return cvy_fail_memory(sizeof shape, "an ONNX model");
    }
    memcpy(kept, shape, sizeof shape);
    cvy_onnx_add_initializer(t->model,
                             &(struct cvy_named_tensor){shape_name, CVY_I64, cvy_shape1(3), kept, sizeof shape});
    for (int32_t i = 0; i < node->inputs; i++) {
        const char *map = plain(t, node, node->in[i]);
        made = cvy_onnx_add(t, node, "Transpose", 1, &map);
        cvy_onnx_set_ints(made, "perm", 4, (const int32_t[]){0, 2, 3, 1});
        rows[i] = cvy_onnx_add_simple(t, node, "Reshape", 2, (const char *[]){cvy_onnx_node_output(made), shape_name});
    }
    made = cvy_onnx_add(t, node, "Concat", node->inputs, rows);
    cvy_onnx_set_int(made, "axis", 1);
    t->names[node->out[0]].plain = cvy_onnx_node_output(made);
    return CVY_OK;
}

static cvy_status global_avg_pool(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    const char *x = plain(t, node, node->in[0]);

    t->names[node->out[0]].map = cvy_onnx_add_simple(t, node, "GlobalAveragePool", 1, &x);
    return CVY_OK;
}

/* Without shift: that is in backward passes only. */
static cvy_status scale_channels(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    const char *y = cvy_onnx_add_simple(t, node, "Mul", 2,
                                        (const char *[]){plain(t, node, node->in[0]), map(t, node, node->in[1])});

    t->names[node->out[0]].plain =
        finish(t, node, y, node->in[3], node->attr.scale_channels.relu ? CVY_ACTIVATION_RELU : CVY_ACTIVATION_NONE);
    return CVY_OK;
}

/* Weights (K,C) make a matrix product, weights (K,C,1,1) a convolution of a map with one element. */
static cvy_status linear(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    const bool matrix = is_matrix(t, node->in[1]);
    const char *in[3] = {matrix ? plain(t, node, node->in[0]) : map(t, node, node->in[0])};
    struct cvy_onnx_node *made;
    int inputs;

    CVY_TRY(weights(t, node, in, &inputs));
    made = cvy_onnx_add(t, node, matrix ? "Gemm" : "Conv", inputs, in);

    if (matrix) {
        cvy_onnx_set_int(made, "transB", 1);
        t->names[node->out[0]].plain = cvy_onnx_node_output(made);
    } else {
        cvy_onnx_set_ints(made, "kernel_shape", 2, (const int32_t[]){1, 1});
        t->names[node->out[0]].map = cvy_onnx_node_output(made);
    }
    return CVY_OK;
}

static cvy_status softmax(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    const char *x = plain(t, node, node->in[0]);
    struct cvy_onnx_node *made = cvy_onnx_add(t, node, "Softmax", 1, &x);

    cvy_onnx_set_int(made, "axis", 1);
    t->names[node->out[0]].plain = cvy_onnx_node_output(made);
    return CVY_OK;
}

/* In the forms that its readers ask for: a matrix product asks for (N,C), and then the pair stands after the node that
 * makes it. */
static cvy_status fake_quantize(struct cvy_onnx_translator *t, const struct cvy_node *node)
{
    const int32_t n = (int32_t)(node - t->graph->nodes);
    const struct cvy_onnx_names x = t->names[node->in[0]];
    struct cvy_onnx_names *y = &t->names[node->out[0]];

    if (!cvy_onnx_reads_constant(t, n, 0))
        return CVY_OK; /* integers of the layer that reads them */
    if (x.map)
        y->map = cvy_onnx_quantize(t, n, x.map);
    if (x.plain || cvy_onnx_feeds_matrix(t, n))
        y->plain = cvy_onnx_quantize(t, n, plain(t, node, x.plain ? node->in[0] : node->out[0]));
    return CVY_OK;
}

/* NULL: no form in ONNX, or none that an inference graph as the model wrote it would need. */
static cvy_status (*const translate[CVY_OP_COUNT])(struct cvy_onnx_translator *t, const struct cvy_node *node) = {
    [CVY_OP_NORMALIZE] = normalize,
    [CVY_OP_CONV2D] = conv2d,
    [CVY_OP_BATCH_NORM_INFERENCE] = batch_norm,
    [CVY_OP_RELU] = relu,
    [CVY_OP_RELU6] = relu6,
    [CVY_OP_UPSAMPLE] = upsample,
    [CVY_OP_FLATTEN_LEVELS] = flatten_levels,
    [CVY_OP_SIGMOID] = sigmoid,
    [CVY_OP_SILU] = silu,
    [CVY_OP_ADD] = add_values,
    [CVY_OP_FAKE_QUANTIZE] = fake_quantize,
    [CVY_OP_MAX_POOL] = max_pool,
    [CVY_OP_GLOBAL_AVG_POOL] = global_avg_pool,
    [CVY_OP_SCALE_CHANNELS] = scale_channels,
    [CVY_OP_LINEAR] = linear,
    [CVY_OP_SOFTMAX] = softmax,
};

/* ---- the graph ---- */

/* Which nodes the value depends on: nodes stand after those they read. */
static void mark_needed(struct cvy_onnx_translator *t, cvy_val value)
{
    const struct cvy_graph *graph = t->graph;

    if (graph->values[value].producer >= 0)
        t->needed[graph->values[value].producer] = true;
    for (int32_t n = graph->node_count - 1; n >= 0; n--) {
        const struct cvy_node *node = &graph->nodes[n];
        for (int32_t i = 0; t->needed[n] && i < node->inputs; i++) {
            if (node->in[i] != CVY_NONE && graph->values[node->in[i]].producer >= 0)
                t->needed[graph->values[node->in[i]].producer] = true;
        }
    }
}

static bool is_read(const struct cvy_onnx_translator *t, cvy_val value)
{
    for (int32_t n = 0; n < t->graph->node_count; n++) {
        const struct cvy_node *node = &t->graph->nodes[n];
        for (int32_t i = 0; t->needed[n] && i < node->inputs; i++) {
            if (node->in[i] == value && cvy_onnx_reads_constant(t, n, i))
                return true;
        }
    }
    return false;
}

/* Graph inputs that do not pass through a normalize node keep their names. */
static void add_inputs(struct cvy_onnx_translator *t)
{
    for (int32_t i = 0; i < t->graph->input_count; i++) {
        const struct cvy_graph_input *input = &t->graph->input_list[i];
        if (!is_read(t, input->value))
            continue;
        cvy_onnx_add_input(t->model, input->name, cvy_shape_of(t->graph, input->value));
        t->names[input->value].plain = input->name;
    }
}

static cvy_status add_parameters(struct cvy_onnx_translator *t)
{
    for (int32_t i = 0; i < t->graph->param_count; i++) {
        const struct cvy_param *param = &t->graph->params[i];
        const struct cvy_named_tensor *tensor;

        if (param->value == CVY_NONE || !is_read(t, param->value))
            continue;
        tensor = cvy_onnx_find_tensor(t, i);
        if (!tensor)
            return cvy_fail(CVY_FAILED, "the tensors for an ONNX file have no %s of its shape and type",
                            cvy_quote(param->name));
        cvy_onnx_add_initializer(t->model, tensor);
        t->names[param->value].plain = tensor->name;
    }
    return CVY_OK;
}

static cvy_status add_nodes(struct cvy_onnx_translator *t)
{
    for (int32_t n = 0; n < t->graph->node_count; n++) {
        const struct cvy_node *node = &t->graph->nodes[n];

        if (!t->needed[n])
            continue;
        if (!translate[node->op])
            return cvy_fail(CVY_FAILED, "operation %s%s%s has no form in ONNX", cvy_ops[node->op].name,
                            node->scope[0] ? " of " : "", node->scope);
        if (t->graph->values[node->out[0]].dtype != CVY_F32)
            return cvy_fail(CVY_FAILED, "ONNX files are written in fp32, but operation %s gives %s",
                            cvy_ops[node->op].name, cvy_dtype_name(t->graph->values[node->out[0]].dtype));
        if (cvy_onnx_absorbed(t, n))
            t->names[node->out[0]] = t->names[node->in[0]];
        else
            CVY_TRY(translate[node->op](t, node));
        if (t->names[node->out[0]].plain)
            t->names[node->out[0]].plain = cvy_onnx_round_ahead(t, n, t->names[node->out[0]].plain);
    }
    return CVY_OK;
}

/* The node that finds a detector's best boxes; NULL: the network classifies. */
static const struct cvy_node *find_detect(const struct cvy_graph *graph)
{
    for (int32_t n = 0; n < graph->node_count; n++)
        if (graph->nodes[n].op == CVY_OP_DETECT)
            return &graph->nodes[n];
    return NULL;
}

static cvy_status add_outputs(struct cvy_onnx_translator *t, const struct cvy_node *detect, cvy_val logits)
{
    if (detect)
        return cvy_onnx_detections(t, detect, plain(t, detect, detect->in[0]), plain(t, detect, detect->in[1]));
    cvy_onnx_rename(t->model, plain(t, &t->graph->nodes[t->graph->values[logits].producer], logits), output_name);
    cvy_onnx_add_output(t->model, output_name, cvy_shape_of(t->graph, logits));
    return CVY_OK;
}

static cvy_status add_graph(struct cvy_onnx_translator *t, const struct cvy_onnx_options *options)
{
    const struct cvy_node *detect = find_detect(t->graph);
    const cvy_val logits = detect ? detect->in[1] : cvy_graph_find_result(t->graph, output_name);

    if (logits == CVY_NONE || t->graph->values[logits].producer < 0)
        return cvy_fail(CVY_FAILED, "a graph without logits cannot become an ONNX file");
    mark_needed(t, logits);
    if (detect)
        mark_needed(t, detect->in[0]);
    CVY_TRY(cvy_onnx_quantize_open(t));
    add_inputs(t);
    CVY_TRY(add_parameters(t));
    CVY_TRY(add_nodes(t));
    CVY_TRY(add_outputs(t, detect, logits));
    if (t->failed)
        return cvy_fail_memory(sizeof *t, "an ONNX model");
    for (size_t i = 0; i < options->metadata_count; i++)
        cvy_onnx_add_metadata(t->model, options->metadata[i].key, options->metadata[i].value);
    return CVY_OK;
}

cvy_status cvy_onnx_write(const char *path, const struct cvy_graph *graph, const struct cvy_named_tensor *tensors,
                          size_t tensor_count, const struct cvy_onnx_options *options)
{
    struct cvy_onnx_translator t = {.graph = graph, .tensors = tensors, .tensor_count = tensor_count};
    char description[256];
    cvy_status status;

    snprintf(description, sizeof description,
             "%s: normalised RGB images to %s; the metadata names classes and preprocessing", options->name,
             find_detect(graph) ? "boxes and scores" : "logits");
    t.names = cvy_calloc((size_t)graph->value_count + 1, sizeof *t.names);
    t.needed = cvy_calloc((size_t)graph->node_count + 1, sizeof *t.needed);
    t.model = cvy_onnx_model_new(options->name, description);
    if (!t.names || !t.needed || !t.model) {
        status = cvy_fail_memory((size_t)graph->value_count * sizeof *t.names, "an ONNX model");
        goto fail;
    }
    CVY_GOTO(add_graph(&t, options));
    status = cvy_onnx_model_write(t.model, options->source, options->source_name, path);
fail:
    cvy_onnx_model_free(t.model);
    cvy_onnx_quantize_close(&t);
    cvy_arena_release(&t.arena);
    cvy_free(t.needed);
    cvy_free(t.names);
    return status;
}
