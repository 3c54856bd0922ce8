/* The mapping of our operations to those of ONNX: one row for each in the table below. */
#include "export/onnx.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "export/onnx_model.h"
#include "ops/ops.h"

/* A value of rank 2 may exist as (N,C), as (N,C,1,1), or as both: global average pooling gives (N,C,1,1) in ONNX, and a
 * squeeze-and-excitation block written with 1x1 convolutions needs nothing else from there to its product. The form
 * that is missing is made where it is first asked for. */
struct names {
    const char *plain; /* in the value's own shape; NULL: not there yet */
    const char *map;   /* of rank 2: as (N,C,1,1) */
};

struct translator {
    const struct cvy_graph *graph;
    struct cvy_onnx_model *model;
    const struct cvy_named_tensor *tensors;
    size_t tensor_count;
    struct names *names; /* by value */
    bool *needed;        /* by node: the logits depend on it */
    bool has_axes;
};

static const char input_name[] = "input", output_name[] = "logits", axes_name[] = "map_axes";

/* ---- nodes and the forms of their values ---- */

static struct cvy_onnx_node *add(struct translator *t, const struct cvy_node *node, const char *op_type, int inputs,
                                 const char *const *in)
{
    return cvy_onnx_add_node(t->model, node->scope, op_type, inputs, in);
}

static const char *add_simple(struct translator *t, const struct cvy_node *node, const char *op_type, int inputs,
                              const char *const *in)
{
    return cvy_onnx_node_output(add(t, node, op_type, inputs, in));
}

static bool is_matrix(const struct translator *t, cvy_val value)
{
    return cvy_shape_of(t->graph, value)->rank == 2;
}

/* The value in its own shape; `reader` is the node that asks. */
static const char *plain(struct translator *t, const struct cvy_node *reader, cvy_val value)
{
    struct names *names = &t->names[value];

    if (!names->plain) {
        struct cvy_onnx_node *flatten = add(t, reader, "Flatten", 1, &names->map);
        cvy_onnx_set_int(flatten, "axis", 1);
        names->plain = cvy_onnx_node_output(flatten);
    }
    return names->plain;
}

/* The value with four dimensions. */
static const char *map(struct translator *t, const struct cvy_node *reader, cvy_val value)
{
    static const int64_t axes[2] = {2, 3};
    struct names *names = &t->names[value];

    if (!is_matrix(t, value))
        return plain(t, reader, value);
    if (!names->map) {
        if (!t->has_axes)
            cvy_onnx_add_initializer(t->model,
                                     &(struct cvy_named_tensor){axes_name, CVY_I64, cvy_shape1(2), axes, sizeof axes});
        t->has_axes = true;
        names->map = add_simple(t, reader, "Unsqueeze", 2, (const char *[]){names->plain, axes_name});
    }
    return names->map;
}

/* ---- the operations ---- */

/* What a node may do besides: add a residual, then cut at zero. */
static const char *finish(struct translator *t, const struct cvy_node *node, const char *y, cvy_val residual, bool relu)
{
    if (residual != CVY_NONE)
        y = add_simple(t, node, "Add", 2, (const char *[]){y, plain(t, node, residual)});
    return relu ? add_simple(t, node, "Relu", 1, &y) : y;
}

/* The image comes normalised: the file begins behind this node. */
static void normalize(struct translator *t, const struct cvy_node *node)
{
    cvy_onnx_add_input(t->model, input_name, cvy_shape_of(t->graph, node->out[0]));
    t->names[node->out[0]].plain = input_name;
}

/* Ours are top, bottom, left, right; ONNX wants all beginnings before all ends. */
static void set_window(struct cvy_onnx_node *made, const int32_t kernel[2], const int32_t stride[2],
                       const int32_t pad[4])
{
    cvy_onnx_set_ints(made, "kernel_shape", 2, kernel);
    cvy_onnx_set_ints(made, "pads", 4, (const int32_t[]){pad[0], pad[2], pad[1], pad[3]});
    cvy_onnx_set_ints(made, "strides", 2, stride);
}

static void conv2d(struct translator *t, const struct cvy_node *node)
{
    const struct cvy_conv2d_attr *attr = &node->attr.conv2d;
    const bool bias = node->in[2] != CVY_NONE;
    const char *in[3] = {plain(t, node, node->in[0]), plain(t, node, node->in[1]),
                         bias ? plain(t, node, node->in[2]) : NULL};
    struct cvy_onnx_node *made = add(t, node, "Conv", bias ? 3 : 2, in);

    cvy_onnx_set_ints(made, "dilations", 2, attr->dilation);
    cvy_onnx_set_int(made, "group", attr->groups);
    set_window(made, attr->kernel, attr->stride, attr->pad);
    t->names[node->out[0]].plain = finish(t, node, cvy_onnx_node_output(made), node->in[3], attr->relu);
}

static void batch_norm(struct translator *t, const struct cvy_node *node)
{
    const char *in[5]; /* ours are in ONNX's order */
    struct cvy_onnx_node *made;

    for (int i = 0; i < 5; i++)
        in[i] = plain(t, node, node->in[i]);
    made = add(t, node, "BatchNormalization", 5, in);
    cvy_onnx_set_float(made, "epsilon", node->attr.batch_norm.eps);
    t->names[node->out[0]].plain = finish(t, node, cvy_onnx_node_output(made), node->in[5], node->attr.batch_norm.relu);
}

/* Element by element: the result has the form of the input. */
static void unary(struct translator *t, const struct cvy_node *node, const char *op_type)
{
    const struct names *x = &t->names[node->in[0]];
    struct names *y = &t->names[node->out[0]];

    if (x->map)
        y->map = add_simple(t, node, op_type, 1, &x->map);
    else
        y->plain = add_simple(t, node, op_type, 1, &x->plain);
}

static void relu(struct translator *t, const struct cvy_node *node)
{
    unary(t, node, "Relu");
}

static void sigmoid(struct translator *t, const struct cvy_node *node)
{
    unary(t, node, "Sigmoid");
}

static void add_values(struct translator *t, const struct cvy_node *node)
{
    t->names[node->out[0]].plain = finish(t, node, plain(t, node, node->in[0]), node->in[1], node->attr.add.relu);
}

static void max_pool(struct translator *t, const struct cvy_node *node)
{
    const char *x = plain(t, node, node->in[0]);
    struct cvy_onnx_node *made = add(t, node, "MaxPool", 1, &x);

    set_window(made, node->attr.pool.kernel, node->attr.pool.stride, node->attr.pool.pad);
    t->names[node->out[0]].plain = cvy_onnx_node_output(made);
}

static void global_avg_pool(struct translator *t, const struct cvy_node *node)
{
    const char *x = plain(t, node, node->in[0]);

    t->names[node->out[0]].map = add_simple(t, node, "GlobalAveragePool", 1, &x);
}

/* Without shift: that is in backward passes only. */
static void scale_channels(struct translator *t, const struct cvy_node *node)
{
    const char *y =
        add_simple(t, node, "Mul", 2, (const char *[]){plain(t, node, node->in[0]), map(t, node, node->in[1])});

    t->names[node->out[0]].plain = finish(t, node, y, node->in[3], node->attr.scale_channels.relu);
}

/* Weights (K,C) make a matrix product, weights (K,C,1,1) a convolution of a map with one element. */
static void linear(struct translator *t, const struct cvy_node *node)
{
    const bool bias = node->in[2] != CVY_NONE, matrix = is_matrix(t, node->in[1]);
    const char *in[3] = {matrix ? plain(t, node, node->in[0]) : map(t, node, node->in[0]), plain(t, node, node->in[1]),
                         bias ? plain(t, node, node->in[2]) : NULL};
    struct cvy_onnx_node *made = add(t, node, matrix ? "Gemm" : "Conv", bias ? 3 : 2, in);

    if (matrix) {
        cvy_onnx_set_int(made, "transB", 1);
        t->names[node->out[0]].plain = cvy_onnx_node_output(made);
    } else {
        cvy_onnx_set_ints(made, "kernel_shape", 2, (const int32_t[]){1, 1});
        t->names[node->out[0]].map = cvy_onnx_node_output(made);
    }
}

static void softmax(struct translator *t, const struct cvy_node *node)
{
    const char *x = plain(t, node, node->in[0]);
    struct cvy_onnx_node *made = add(t, node, "Softmax", 1, &x);

    cvy_onnx_set_int(made, "axis", 1);
    t->names[node->out[0]].plain = cvy_onnx_node_output(made);
}

/* NULL: no form in ONNX, or none that an inference graph as the model wrote it would need. */
static void (*const translate[CVY_OP_COUNT])(struct translator *t, const struct cvy_node *node) = {
    [CVY_OP_NORMALIZE] = normalize,
    [CVY_OP_CONV2D] = conv2d,
    [CVY_OP_BATCH_NORM_INFERENCE] = batch_norm,
    [CVY_OP_RELU] = relu,
    [CVY_OP_SIGMOID] = sigmoid,
    [CVY_OP_ADD] = add_values,
    [CVY_OP_MAX_POOL] = max_pool,
    [CVY_OP_GLOBAL_AVG_POOL] = global_avg_pool,
    [CVY_OP_SCALE_CHANNELS] = scale_channels,
    [CVY_OP_LINEAR] = linear,
    [CVY_OP_SOFTMAX] = softmax,
};

/* ---- the graph ---- */

/* Which nodes the value depends on: nodes stand behind those they read. */
static void mark_needed(struct translator *t, cvy_val value)
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

static bool is_read(const struct translator *t, cvy_val value)
{
    for (int32_t n = 0; n < t->graph->node_count; n++) {
        const struct cvy_node *node = &t->graph->nodes[n];
        for (int32_t i = 0; t->needed[n] && i < node->inputs; i++) {
            if (node->in[i] == value && node->op != CVY_OP_NORMALIZE)
                return true;
        }
    }
    return false;
}

/* Graph inputs that do not pass through a normalize node keep their names. */
static void add_inputs(struct translator *t)
{
    for (int32_t i = 0; i < t->graph->input_count; i++) {
        const struct cvy_graph_input *input = &t->graph->input_list[i];
        if (!is_read(t, input->value))
            continue;
        cvy_onnx_add_input(t->model, input->name, cvy_shape_of(t->graph, input->value));
        t->names[input->value].plain = input->name;
    }
}

/* Parameters and tensors are mostly in the same order: look at place `guess` first. */
static const struct cvy_named_tensor *find_tensor(const struct translator *t, const char *name, size_t guess)
{
    if (guess < t->tensor_count && strcmp(t->tensors[guess].name, name) == 0)
        return &t->tensors[guess];
    for (size_t i = 0; i < t->tensor_count; i++) {
        if (strcmp(t->tensors[i].name, name) == 0)
            return &t->tensors[i];
    }
    return NULL;
}

static cvy_status add_parameters(struct translator *t)
{
    for (int32_t i = 0; i < t->graph->param_count; i++) {
        const struct cvy_param *param = &t->graph->params[i];
        const struct cvy_named_tensor *tensor;

        if (param->value == CVY_NONE || !is_read(t, param->value))
            continue;
        tensor = find_tensor(t, param->name, (size_t)i);
        if (!tensor || tensor->dtype != CVY_F32 || !cvy_shape_equal(&tensor->shape, &param->shape))
            return cvy_fail(CVY_FAILED, "the tensors for an ONNX file have no %s of its shape and type",
                            cvy_quote(param->name));
        cvy_onnx_add_initializer(t->model, tensor);
        t->names[param->value].plain = tensor->name;
    }
    return CVY_OK;
}

static cvy_status add_nodes(struct translator *t)
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
        translate[node->op](t, node);
    }
    return CVY_OK;
}

static cvy_status add_graph(struct translator *t, const struct cvy_onnx_options *options)
{
    const cvy_val logits = cvy_graph_find_result(t->graph, output_name);

    if (logits == CVY_NONE || t->graph->values[logits].producer < 0)
        return cvy_fail(CVY_FAILED, "a graph without logits cannot become an ONNX file");
    mark_needed(t, logits);
    add_inputs(t);
    CVY_TRY(add_parameters(t));
    CVY_TRY(add_nodes(t));
    cvy_onnx_rename(t->model, plain(t, &t->graph->nodes[t->graph->values[logits].producer], logits), output_name);
    cvy_onnx_add_output(t->model, output_name, cvy_shape_of(t->graph, logits));
    for (size_t i = 0; i < options->metadata_count; i++)
        cvy_onnx_add_metadata(t->model, options->metadata[i].key, options->metadata[i].value);
    return CVY_OK;
}

cvy_status cvy_onnx_write(const char *path, const struct cvy_graph *graph, const struct cvy_named_tensor *tensors,
                          size_t tensor_count, const struct cvy_onnx_options *options)
{
    struct translator t = {.graph = graph, .tensors = tensors, .tensor_count = tensor_count};
    char description[256];
    cvy_status status;

    snprintf(description, sizeof description,
             "%s: normalised RGB images to logits; the metadata names classes and preprocessing", options->name);
    t.names = cvy_calloc((size_t)graph->value_count + 1, sizeof *t.names);
    t.needed = cvy_calloc((size_t)graph->node_count + 1, sizeof *t.needed);
    t.model = cvy_onnx_model_new(options->name, description);
    if (!t.names || !t.needed || !t.model) {
        status = cvy_fail_memory((size_t)graph->value_count * sizeof *t.names, "an ONNX model");
        goto fail;
    }
    CVY_GOTO(add_graph(&t, options));
    status = cvy_onnx_model_write(t.model, path);
fail:
    cvy_onnx_model_free(t.model);
    cvy_free(t.needed);
    cvy_free(t.names);
    return status;
}
