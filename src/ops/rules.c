/* Checks and small steps that the shape and gradient rules share. */
#include "ops/rules.h"

bool cvy_rule_float(struct cvy_graph *graph, const char *op, const char *what, cvy_val x, int32_t rank)
{
    char text[96];

    if (graph->status != CVY_OK)
        return false;
    if (x < 0 || x >= graph->value_count) {
        cvy_graph_fail(graph, CVY_FAILED, "%s has no %s", op, what);
        return false;
    }
    if (!cvy_dtype_is_float(graph->values[x].dtype)) {
        cvy_graph_fail(graph, CVY_USAGE, "%s needs %s of a float type, not %s", op, what,
                       cvy_dtype_name(graph->values[x].dtype));
        return false;
    }
    if (graph->values[x].shape.rank != rank) {
        cvy_graph_fail(graph, CVY_USAGE, "%s needs %s of %d dimensions, not %s", op, what, (int)rank,
                       cvy_shape_text(&graph->values[x].shape, text));
        return false;
    }
    return true;
}

bool cvy_rule_same(struct cvy_graph *graph, const char *op, const char *what, cvy_val value, struct cvy_shape shape,
                   cvy_val like)
{
    char is[96], wanted[96];

    if (graph->status != CVY_OK)
        return false;
    if (value < 0 || value >= graph->value_count) {
        cvy_graph_fail(graph, CVY_FAILED, "%s has no %s", op, what);
        return false;
    }
    if (!cvy_shape_equal(&graph->values[value].shape, &shape)) {
        cvy_graph_fail(graph, CVY_USAGE, "%s needs %s of %s, not %s", op, what, cvy_shape_text(&shape, wanted),
                       cvy_shape_text(&graph->values[value].shape, is));
        return false;
    }
    if (graph->values[value].dtype != graph->values[like].dtype) {
        cvy_graph_fail(graph, CVY_USAGE, "%s needs %s in %s, not %s", op, what,
                       cvy_dtype_name(graph->values[like].dtype), cvy_dtype_name(graph->values[value].dtype));
        return false;
    }
    return true;
}

/* A vector of the batch. */
static bool is_vector(struct cvy_graph *graph, const char *op, const char *what, cvy_val value, int64_t batch,
                      enum cvy_dtype dtype)
{
    char text[96];

    if (value < 0 || value >= graph->value_count) {
        cvy_graph_fail(graph, CVY_FAILED, "%s has no %s", op, what);
        return false;
    }
    if (graph->values[value].dtype == dtype && graph->values[value].shape.rank == 1 &&
        graph->values[value].shape.dim[0] == batch)
        return true;
    cvy_graph_fail(graph, CVY_USAGE, "%s needs %s of %s, one for each sample, not %s %s", op, what,
                   cvy_dtype_name(dtype), cvy_dtype_name(graph->values[value].dtype),
                   cvy_shape_text(&graph->values[value].shape, text));
    return false;
}

bool cvy_rule_mix(struct cvy_graph *graph, const char *op, struct cvy_mix_values mix, int64_t batch,
                  enum cvy_dtype dtype)
{
    if (graph->status != CVY_OK)
        return false;
    if (mix.partner == CVY_NONE && mix.coefficient == CVY_NONE)
        return true;
    return is_vector(graph, op, "partners", mix.partner, batch, CVY_I32) &&
           is_vector(graph, op, "coefficients", mix.coefficient, batch, dtype);
}

int64_t cvy_rule_window(struct cvy_graph *graph, const char *op, int64_t input, int32_t kernel, int32_t stride,
                        int32_t dilation, int32_t pad_before, int32_t pad_after)
{
    int64_t padded = input + pad_before + pad_after, reach = (int64_t)dilation * ((int64_t)kernel - 1) + 1;

    if (graph->status != CVY_OK)
        return 0;
    if (kernel < 1)
        cvy_graph_fail(graph, CVY_USAGE, "%s needs a kernel of 1 or more, not %d", op, (int)kernel);
    else if (stride < 1)
        cvy_graph_fail(graph, CVY_USAGE, "%s needs a stride of 1 or more, not %d", op, (int)stride);
    else if (dilation < 1)
        cvy_graph_fail(graph, CVY_USAGE, "%s needs a dilation of 1 or more, not %d", op, (int)dilation);
    else if (pad_before < 0 || pad_after < 0)
        cvy_graph_fail(graph, CVY_USAGE, "%s cannot have a negative padding", op);
    else if (input > INT32_MAX || padded > INT32_MAX)
        cvy_graph_fail(graph, CVY_USAGE, "%s has an input that is too large", op);
    else if (reach > padded)
        cvy_graph_fail(graph, CVY_USAGE, "%s has an empty output: its window of %lld does not fit an input of %lld", op,
                       (long long)reach, (long long)padded);
    else
        return (padded - reach) / stride + 1;
    return 0;
}

cvy_val cvy_rule_node(struct cvy_graph *graph, enum cvy_op op, const union cvy_attr *attr, int32_t inputs,
                      const cvy_val *in, struct cvy_shape shape, enum cvy_dtype dtype)
{
    int32_t node = cvy_graph_node(graph, op, attr, inputs, in, 1, &shape, &dtype);

    return node < 0 ? CVY_NONE : graph->nodes[node].out[0];
}

cvy_val cvy_rule_gradient_node(struct cvy_graph *graph, enum cvy_op op, const union cvy_attr *attr, int32_t inputs,
                               const cvy_val *in, cvy_val like)
{
    return cvy_rule_node(graph, op, attr, inputs, in, graph->values[like].shape, graph->values[like].dtype);
}

cvy_val cvy_activation_mask(struct cvy_graph *graph, enum cvy_activation activation, cvy_val y, cvy_val dout)
{
    if (activation == CVY_ACTIVATION_NONE)
        return dout;
    return cvy_rule_gradient_node(graph, activation == CVY_ACTIVATION_RELU6 ? CVY_OP_RELU6_BWD : CVY_OP_RELU_BWD, NULL,
                                  2, (cvy_val[]){y, dout}, y);
}

double cvy_rule_elements(const struct cvy_graph *graph, cvy_val value)
{
    struct cvy_shape one;

    if (value == CVY_NONE)
        return 0;
    one = cvy_shape_bind(&graph->values[value].shape, 1);
    return (double)cvy_shape_elements(&one);
}
