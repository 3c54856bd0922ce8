/* Rewrites other than fusing: element types, and dead nodes. */
#include <string.h>

#include "base/error.h"
#include "graph/order.h"

static void fail_memory(struct cvy_graph *graph)
{
    cvy_graph_fail(graph, CVY_NO_MEMORY, "out of memory while rewriting the graph");
}

/* ---- precision ---- */

/* Appends "cast `value` to `dtype`"; returns its output. */
static cvy_val append_cast(struct cvy_graph *graph, cvy_val value, enum cvy_dtype dtype, const char *scope,
                           bool backward)
{
    const union cvy_attr attr = {.cast = {dtype}};
    const struct cvy_shape shape = graph->values[value].shape;
    int32_t node = cvy_graph_node(graph, CVY_OP_CAST, &attr, 1, &value, 1, &shape, &dtype);

    if (node < 0)
        return CVY_NONE;
    graph->nodes[node].scope = scope;
    graph->nodes[node].backward = backward;
    return graph->nodes[node].out[0];
}

/* The types that a node asks of its f32 slots, in a network of `dtype`. */
static enum cvy_dtype wanted(uint32_t f32_slots, int32_t slot, enum cvy_dtype dtype)
{
    return dtype != CVY_F64 && (f32_slots & 1U << slot) ? CVY_F32 : dtype;
}

/* Whether a node that follows its inputs has one of the network's type. */
static bool follows_into(const struct cvy_graph *graph, const struct cvy_node *node, enum cvy_dtype dtype)
{
    for (int32_t i = 0; i < node->inputs; i++) {
        if (node->in[i] != CVY_NONE && graph->values[node->in[i]].dtype == dtype)
            return true;
    }
    return false;
}

/* Gives a node's outputs their types, and its inputs where those differ through a cast, which the first reader makes.
 * The producers of its inputs have been here before. `was_f32`: values that the rewrite is about. */
static void retype_node(struct cvy_graph *graph, const struct cvy_op_info *info, int32_t n, enum cvy_dtype dtype,
                        const bool *was_f32, cvy_val *casts)
{
    const bool narrow = dtype == CVY_F64 || !info->follows || follows_into(graph, &graph->nodes[n], dtype);

    for (int32_t i = 0; i < graph->nodes[n].inputs && graph->status == CVY_OK; i++) {
        const cvy_val value = graph->nodes[n].in[i];
        const enum cvy_dtype type = narrow ? wanted(info->f32_inputs, i, dtype) : CVY_F32;

        if (value == CVY_NONE || !was_f32[value] || graph->values[value].dtype == type)
            continue;
        if (casts[value] == CVY_NONE)
            casts[value] = append_cast(graph, value, type, graph->nodes[n].scope, graph->nodes[n].backward);
        graph->nodes[n].in[i] = casts[value];
    }
    for (int32_t i = 0; i < graph->nodes[n].outputs; i++) {
        const cvy_val value = graph->nodes[n].out[i];
        if (value != CVY_NONE && was_f32[value])
            graph->values[value].dtype = narrow ? wanted(info->f32_outputs, i, dtype) : CVY_F32;
    }
    if (graph->nodes[n].op == CVY_OP_CAST)
        graph->nodes[n].attr.cast.dtype = graph->values[graph->nodes[n].out[0]].dtype;
}

/* The arenas are f32: what lands there is cast back. */
static void cast_results(struct cvy_graph *graph)
{
    for (int32_t r = 0; r < graph->result_count && graph->status == CVY_OK; r++) {
        struct cvy_graph_result *result = &graph->results[r];
        int32_t producer = graph->values[result->value].producer;
        const struct cvy_node *node = producer < 0 ? NULL : &graph->nodes[producer];

        if (result->kind != CVY_RESULT_NAMED && graph->values[result->value].dtype != CVY_F32)
            result->value = append_cast(graph, result->value, CVY_F32, node ? node->scope : "",
                                        node ? node->backward : result->kind == CVY_RESULT_GRADIENT);
    }
}

/* The old nodes, each followed by the new casts of its outputs. Casts of inputs and parameters are pulled before
 * their first reader by the sort. */
static void place_casts(struct cvy_graph *graph, int32_t node_count)
{
    int32_t *order = cvy_calloc((size_t)graph->node_count + 1, sizeof *order);
    int32_t *next = cvy_calloc((size_t)graph->node_count + 1, sizeof *next);   /* cast after this one, same producer */
    int32_t *first = cvy_calloc((size_t)graph->node_count + 1, sizeof *first); /* cast of an output of this node */
    int32_t count = 0;

    if (!order || !next || !first) {
        fail_memory(graph);
        goto fail;
    }
    for (int32_t n = 0; n < graph->node_count; n++)
        next[n] = first[n] = -1;
    for (int32_t n = graph->node_count - 1; n >= node_count; n--) {
        int32_t producer = graph->values[graph->nodes[n].in[0]].producer;
        if (producer < 0)
            continue;
        next[n] = first[producer];
        first[producer] = n;
    }
    for (int32_t n = 0; n < node_count; n++) {
        order[count++] = n;
        for (int32_t cast = first[n]; cast >= 0; cast = next[cast])
            order[count++] = cast;
    }
    cvy_graph_sort(graph, order, count);
fail:
    cvy_free(order);
    cvy_free(next);
    cvy_free(first);
}

void cvy_rewrite_precision(struct cvy_graph *graph, const struct cvy_op_info *ops, enum cvy_dtype dtype)
{
    const int32_t value_count = graph->value_count, node_count = graph->node_count;
    cvy_val *casts = NULL; /* of each value: to the other of the two types */
    bool *was_f32 = NULL;

    if (graph->status != CVY_OK || dtype == CVY_F32)
        return;
    if (!cvy_dtype_is_float(dtype)) {
        cvy_graph_fail(graph, CVY_USAGE, "a network cannot compute in %s", cvy_dtype_name(dtype));
        return;
    }
    casts = cvy_calloc((size_t)value_count + 1, sizeof *casts);
    was_f32 = cvy_calloc((size_t)value_count + 1, sizeof *was_f32);
    if (!casts || !was_f32) {
        fail_memory(graph);
        goto fail;
    }
    for (cvy_val v = 0; v < value_count; v++) {
        casts[v] = CVY_NONE;
        was_f32[v] = graph->values[v].dtype == CVY_F32;
    }
    for (int32_t n = 0; n < node_count && graph->status == CVY_OK; n++)
        retype_node(graph, &ops[graph->nodes[n].op], n, dtype, was_f32, casts);
    cast_results(graph);
    if (graph->status == CVY_OK)
        place_casts(graph, node_count);
fail:
    cvy_free(casts);
    cvy_free(was_f32);
}

/* ---- dead nodes ---- */

/* Outputs that a node need not write: where the largest numbers of a pool stood, which only its gradient reads. */
static bool can_be_absent(const struct cvy_node *node, int32_t output)
{
    return node->op == CVY_OP_MAX_POOL && output == 1;
}

static void mark_live(const struct cvy_graph *graph, bool *value_live, bool *node_live)
{
    for (int32_t r = 0; r < graph->result_count; r++)
        value_live[graph->results[r].value] = true;
    for (int32_t n = graph->node_count - 1; n >= 0; n--) {
        const struct cvy_node *node = &graph->nodes[n];
        for (int32_t i = 0; i < node->outputs; i++)
            node_live[n] |= node->out[i] != CVY_NONE && value_live[node->out[i]];
        if (!node_live[n])
            continue;
        for (int32_t i = 0; i < node->inputs; i++) {
            if (node->in[i] != CVY_NONE)
                value_live[node->in[i]] = true;
        }
        for (int32_t i = 0; i < node->outputs; i++) {
            if (node->out[i] != CVY_NONE && !can_be_absent(node, i))
                value_live[node->out[i]] = true;
        }
    }
    for (cvy_val v = 0; v < graph->value_count; v++)
        value_live[v] |= graph->values[v].param >= 0 || graph->values[v].input >= 0;
}

static void renumber(cvy_val *list, int32_t count, const cvy_val *number)
{
    for (int32_t i = 0; i < count; i++) {
        if (list[i] != CVY_NONE)
            list[i] = number[list[i]];
    }
}

void cvy_rewrite_remove_dead(struct cvy_graph *graph)
{
    bool *value_live = NULL, *node_live = NULL;
    cvy_val *number = NULL; /* new index of a value */
    int32_t values = 0, nodes = 0;

    if (graph->status != CVY_OK)
        return;
    value_live = cvy_calloc((size_t)graph->value_count + 1, sizeof *value_live);
    node_live = cvy_calloc((size_t)graph->node_count + 1, sizeof *node_live);
    number = cvy_calloc((size_t)graph->value_count + 1, sizeof *number);
    if (!value_live || !node_live || !number) {
        fail_memory(graph);
        goto fail;
    }
    mark_live(graph, value_live, node_live);
    for (cvy_val v = 0; v < graph->value_count; v++) {
        number[v] = value_live[v] ? values : CVY_NONE;
        if (value_live[v])
            graph->values[values++] = graph->values[v];
    }
    graph->value_count = values;
    for (int32_t n = 0; n < graph->node_count; n++) {
        struct cvy_node *node = &graph->nodes[nodes];
        if (!node_live[n])
            continue;
        *node = graph->nodes[n];
        renumber(node->in, node->inputs, number);
        renumber(node->out, node->outputs, number);
        for (int32_t i = 0; i < node->outputs; i++) {
            if (node->out[i] != CVY_NONE)
                graph->values[node->out[i]].producer = nodes;
        }
        nodes++;
    }
    graph->node_count = nodes;
    for (int32_t p = 0; p < graph->param_count; p++)
        renumber(&graph->params[p].value, 1, number);
    for (int32_t i = 0; i < graph->input_count; i++)
        renumber(&graph->input_list[i].value, 1, number);
    for (int32_t r = 0; r < graph->result_count; r++)
        renumber(&graph->results[r].value, 1, number);
fail:
    cvy_free(value_live);
    cvy_free(node_live);
    cvy_free(number);
}
