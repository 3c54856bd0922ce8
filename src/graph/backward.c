/* Reverse-mode differentiation: walks the nodes from the loss back to the parameters. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "graph/graph.h"

struct backward {
    struct cvy_graph *graph;
    const struct cvy_op_info *ops;
    int32_t value_count, node_count; /* of the forward part */
    cvy_val *gradient;               /* per value: what has been summed so far, CVY_NONE: zero */
    bool *need;                      /* per value: depends on a trainable parameter */
    bool *reaches;                   /* per value: the loss depends on it */
    int32_t *first_reader;           /* per parameter: after this node its gradient is complete */
};

static bool any_input(const struct cvy_node *node, const bool *flags)
{
    for (int32_t i = 0; i < node->inputs; i++) {
        if (node->in[i] != CVY_NONE && flags[node->in[i]])
            return true;
    }
    return false;
}

static bool any_output(const struct cvy_node *node, const bool *flags)
{
    for (int32_t i = 0; i < node->outputs; i++) {
        if (node->out[i] != CVY_NONE && flags[node->out[i]])
            return true;
    }
    return false;
}

static void find_paths(struct backward *b, cvy_val loss)
{
    const struct cvy_graph *graph = b->graph;

    for (cvy_val v = 0; v < b->value_count; v++) {
        int32_t param = graph->values[v].param;
        b->gradient[v] = CVY_NONE;
        b->need[v] = param >= 0 && graph->params[param].kind == CVY_PARAM_TRAINABLE;
    }
    for (int32_t n = 0; n < b->node_count; n++) {
        const struct cvy_node *node = &graph->nodes[n];
        for (int32_t i = 0; i < node->outputs && any_input(node, b->need); i++) {
            if (node->out[i] != CVY_NONE)
                b->need[node->out[i]] = cvy_dtype_is_float(graph->values[node->out[i]].dtype);
        }
    }
    b->reaches[loss] = true;
    for (int32_t n = b->node_count - 1; n >= 0; n--) {
        const struct cvy_node *node = &graph->nodes[n];
        if (!any_output(node, b->reaches))
            continue;
        for (int32_t i = 0; i < node->inputs; i++) {
            if (node->in[i] == CVY_NONE)
                continue;
            b->reaches[node->in[i]] = true;
            if (graph->values[node->in[i]].param >= 0)
                b->first_reader[graph->values[node->in[i]].param] = n;
        }
    }
}

/* A value with several readers gets the sum of what they send back. */
static void accumulate(struct backward *b, cvy_val value, cvy_val gradient)
{
    struct cvy_graph *graph = b->graph;
    const struct cvy_shape shape = graph->values[value].shape;
    const enum cvy_dtype dtype = graph->values[value].dtype;
    int32_t node;

    if (b->gradient[value] == CVY_NONE) {
        b->gradient[value] = gradient;
        return;
    }
    node = cvy_graph_node(graph, CVY_OP_ADD, &(union cvy_attr){.add = {false}}, 2,
                          (cvy_val[]){b->gradient[value], gradient}, 1, &shape, &dtype);
    if (node >= 0)
        b->gradient[value] = graph->nodes[node].out[0];
}

static void differentiate(struct backward *b, int32_t index)
{
    struct cvy_graph *graph = b->graph;
    const struct cvy_node node = graph->nodes[index]; /* a copy: the list grows */
    cvy_val dout[CVY_MAX_OUTPUTS], din[CVY_MAX_INPUTS];
    bool need[CVY_MAX_INPUTS] = {false}, arrived = false;

    for (int32_t i = 0; i < CVY_MAX_OUTPUTS; i++) {
        dout[i] = i < node.outputs && node.out[i] != CVY_NONE ? b->gradient[node.out[i]] : CVY_NONE;
        arrived |= dout[i] != CVY_NONE;
    }
    if (!arrived || !any_input(&node, b->need))
        return;
    snprintf(graph->scope, sizeof graph->scope, "%s", node.scope);
    if (!b->ops[node.op].gradient) {
        cvy_graph_fail(graph, CVY_USAGE, "%s cannot be differentiated", b->ops[node.op].name);
        return;
    }
    for (int32_t i = 0; i < CVY_MAX_INPUTS; i++) {
        din[i] = CVY_NONE;
        need[i] = i < node.inputs && node.in[i] != CVY_NONE && b->need[node.in[i]];
    }
    b->ops[node.op].gradient(graph, &node, dout, need, din);
    for (int32_t i = 0; i < node.inputs && graph->status == CVY_OK; i++) {
        if (need[i] && din[i] != CVY_NONE)
            accumulate(b, node.in[i], din[i]);
    }
}

/* Registers the gradients that are complete once node `index` has been differentiated. */
static void register_complete(struct backward *b, int32_t index)
{
    struct cvy_graph *graph = b->graph;

    for (int32_t i = 0; i < graph->nodes[index].inputs; i++) {
        cvy_val value = graph->nodes[index].in[i];
        int32_t param = value == CVY_NONE ? -1 : graph->values[value].param;

        if (param < 0 || b->first_reader[param] != index || b->gradient[value] == CVY_NONE)
            continue;
        cvy_graph_result(graph, CVY_RESULT_GRADIENT, NULL, param, b->gradient[value]);
        b->gradient[value] = CVY_NONE; /* once, when a node reads it twice */
    }
}

static bool valid_ends(struct cvy_graph *graph, cvy_val loss, cvy_val seed)
{
    if (graph->status != CVY_OK)
        return false;
    if (loss < 0 || loss >= graph->value_count || seed < 0 || seed >= graph->value_count)
        cvy_graph_fail(graph, CVY_FAILED, "backward construction needs a loss and its gradient");
    else if (graph->values[loss].shape.rank != 0 || graph->values[seed].shape.rank != 0)
        cvy_graph_fail(graph, CVY_USAGE, "only a scalar loss can be differentiated");
    else if (graph->values[loss].dtype != graph->values[seed].dtype)
        cvy_graph_fail(graph, CVY_USAGE, "the loss is %s, but its gradient is %s",
                       cvy_dtype_name(graph->values[loss].dtype), cvy_dtype_name(graph->values[seed].dtype));
    return graph->status == CVY_OK;
}

void cvy_graph_backward(struct cvy_graph *graph, const struct cvy_op_info *ops, cvy_val loss, cvy_val seed)
{
    struct backward b = {
        .graph = graph, .ops = ops, .value_count = graph->value_count, .node_count = graph->node_count};
    char scope[sizeof graph->scope];

    if (!valid_ends(graph, loss, seed))
        return;
    memcpy(scope, graph->scope, sizeof scope);
    b.gradient = cvy_calloc((size_t)b.value_count, sizeof *b.gradient);
    b.need = cvy_calloc((size_t)b.value_count, sizeof *b.need);
    b.reaches = cvy_calloc((size_t)b.value_count, sizeof *b.reaches);
    b.first_reader = cvy_calloc((size_t)graph->param_count + 1, sizeof *b.first_reader);
    if (!b.gradient || !b.need || !b.reaches || !b.first_reader) {
        cvy_graph_fail(graph, CVY_NO_MEMORY, "out of memory while building the backward pass");
        goto fail;
    }
    for (int32_t p = 0; p < graph->param_count; p++)
        b.first_reader[p] = -1;
    find_paths(&b, loss);
    b.gradient[loss] = seed;
    for (int32_t n = b.node_count - 1; n >= 0 && graph->status == CVY_OK; n--) {
        differentiate(&b, n);
        register_complete(&b, n);
    }
    for (int32_t n = b.node_count; n < graph->node_count; n++)
        graph->nodes[n].backward = true;
    memcpy(graph->scope, scope, sizeof scope);
fail:
    cvy_free(b.gradient);
    cvy_free(b.need);
    cvy_free(b.reaches);
    cvy_free(b.first_reader);
}
