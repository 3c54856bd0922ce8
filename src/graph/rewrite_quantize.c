/* Inserts quantizers where a network of 8-bit integers rounds. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "graph/order.h"

cvy_val cvy_graph_quantizer(struct cvy_graph *graph, cvy_val x, const char *name,
                            const struct cvy_fake_quantize_attr *attr)
{
    const struct cvy_shape three = cvy_shape1(3);
    char full[sizeof graph->scope + 64];
    int32_t node, param;
    cvy_val observed;

    if (graph->status != CVY_OK)
        return CVY_NONE;
    snprintf(full, sizeof full, "/%s.observed", name);
    if (cvy_graph_find_param(graph, full + 1) >= 0)
        return cvy_graph_fail(graph, CVY_FAILED, "there are two quantizers %s", cvy_quote(name));
    observed = cvy_graph_param(graph, full, CVY_PARAM_STATE, three, (struct cvy_init){CVY_INIT_ZERO, 0});
    if (observed == CVY_NONE)
        return CVY_NONE;
    param = graph->values[observed].param;
    node = cvy_graph_node(graph, CVY_OP_FAKE_QUANTIZE, &(union cvy_attr){.fake_quantize = *attr}, 2,
                          (cvy_val[]){x, observed}, graph->training ? 2 : 1,
                          (struct cvy_shape[]){*cvy_shape_of(graph, x), three},
                          (enum cvy_dtype[]){graph->values[x].dtype, graph->values[observed].dtype});
    if (node < 0)
        return CVY_NONE;
    if (graph->training)
        cvy_graph_result(graph, CVY_RESULT_STATE, NULL, param, graph->nodes[node].out[1]);
    return graph->nodes[node].out[0];
}

/* Which of its first two inputs a node of this kind takes in 8 bits, as bits; `weighted`: the second one is weights. */
static uint32_t quantized_inputs(enum cvy_op op, bool *weighted)
{
    *weighted = op == CVY_OP_CONV2D || op == CVY_OP_LINEAR;
    switch (op) {
    case CVY_OP_CONV2D:
    case CVY_OP_LINEAR:
    case CVY_OP_ADD:
    case CVY_OP_SCALE_CHANNELS:
        return 3;
    case CVY_OP_GLOBAL_AVG_POOL:
        return 1;
    default:
        return 0;
    }
}

/* The first convolution or linear layer that reads the value as its input; -1 when there is none. */
static int32_t first_layer(const struct cvy_graph *graph, cvy_val value, int32_t node_count)
{
    bool weighted;

    for (int32_t n = 0; n < node_count; n++) {
        if (quantized_inputs(graph->nodes[n].op, &weighted) && weighted && graph->nodes[n].in[0] == value)
            return n;
    }
    return -1;
}

/* Whether there is a quantizer of this name. */
static bool taken(const struct cvy_graph *graph, const char *name)
{
    char full[sizeof graph->scope + 64];

    snprintf(full, sizeof full, "%s.observed", name);
    return cvy_graph_find_param(graph, full) >= 0;
}

/* The scope of what makes a value: of a convolution with a batch norm folded into it, that batch norm's. */
static const char *scope_of_maker(const struct cvy_graph *graph, int32_t maker)
{
    const struct cvy_node *node = &graph->nodes[maker];
    const int32_t fold =
        node->op == CVY_OP_CONV2D && node->in[2] != CVY_NONE ? graph->values[node->in[2]].producer : -1;

    return fold >= 0 && graph->nodes[fold].op == CVY_OP_FOLD_BATCH_NORM ? graph->nodes[fold].scope : node->scope;
}

/* The name of the quantizer of `value`, of which node `reader` is the first reader that wants one. */
static void name_quantizer(const struct cvy_graph *graph, cvy_val value, int32_t reader, bool weights,
                           int32_t node_count, char *name, size_t size)
{
    const int32_t layer = weights ? reader : first_layer(graph, value, node_count);
    const int32_t maker = graph->values[value].producer;
    const char *scope, *what = weights ? "weight" : layer >= 0 ? "input" : "output", *part = "";

    if (layer >= 0) {
        scope = graph->nodes[layer].scope;
    } else {
        scope = maker >= 0 ? scope_of_maker(graph, maker) : graph->nodes[reader].scope;
        if (maker >= 0 && graph->nodes[maker].op == CVY_OP_SCALE_CHANNELS)
            part = "se"; /* its product stands in the scope of the block, as the block's result does */
    }
    snprintf(name, size, "%s%s%s%s%s_quantizer", scope, scope[0] ? "." : "", part, part[0] ? "." : "", what);
    /* A layer that several values pass, such as those of a detector's levels: the later ones get numbers. */
    for (int copy = 1; taken(graph, name); copy++)
        snprintf(name, size, "%s%s%s%s%d.%s_quantizer", scope, scope[0] ? "." : "", part, part[0] ? "." : "", copy,
                 what);
}

/* The value that node `n` reads through slot `slot`, quantised; made the first time. */
static cvy_val quantized(struct cvy_graph *graph, int32_t n, int32_t slot, struct cvy_fake_quantize_attr attr,
                         cvy_val *made, int32_t node_count)
{
    const cvy_val value = graph->nodes[n].in[slot];
    char name[sizeof graph->scope + 32];

    if (made[value] != CVY_NONE)
        return made[value];
    name_quantizer(graph, value, n, attr.weights, node_count, name, sizeof name);
    snprintf(graph->scope, sizeof graph->scope, "%s", graph->nodes[n].scope);
    made[value] = cvy_graph_quantizer(graph, value, name, &attr);
    return made[value];
}

cvy_val cvy_quantized_weights(struct cvy_graph *graph, int32_t node, cvy_val weights,
                              const struct cvy_fake_quantize_attr *form)
{
    struct cvy_fake_quantize_attr attr = *form;
    char name[sizeof graph->scope + 32];

    attr.weights = true;
    attr.channels = form->channels;
    attr.positive = false;
    name_quantizer(graph, weights, node, true, graph->node_count, name, sizeof name);
    snprintf(graph->scope, sizeof graph->scope, "%s", graph->nodes[node].scope);
    return cvy_graph_quantizer(graph, weights, name, &attr);
}

/* Whether the node is there for its statistics alone, or has rounded weights already (cvy_rewrite_fold). */
static bool weights_are_done(const struct cvy_graph *graph, int32_t n)
{
    const int32_t maker = graph->values[graph->nodes[n].in[1]].producer;

    if (maker >= 0 && graph->nodes[maker].op == CVY_OP_FAKE_QUANTIZE)
        return true;
    for (int32_t i = 0; graph->nodes[n].op == CVY_OP_CONV2D && i < graph->node_count; i++) {
        if (graph->nodes[i].op == CVY_OP_FOLD_CORRECTION && graph->nodes[i].in[0] == graph->nodes[n].out[0])
            return true;
    }
    return false;
}

/* Whether what the value was made by lets nothing negative pass. */
static bool never_negative(const struct cvy_graph *graph, cvy_val value)
{
    for (int32_t n; (n = graph->values[value].producer) >= 0; value = graph->nodes[n].in[0]) {
        switch (graph->nodes[n].op) {
        case CVY_OP_RELU:
        case CVY_OP_RELU6:
        case CVY_OP_SIGMOID:
            return true;
        case CVY_OP_FAKE_QUANTIZE:
        case CVY_OP_MAX_POOL:
        case CVY_OP_GLOBAL_AVG_POOL:
        case CVY_OP_UPSAMPLE:
            break;
        default:
            return false;
        }
    }
    return false;
}

void cvy_rewrite_quantize(struct cvy_graph *graph, const struct cvy_fake_quantize_attr *form)
{
    const int32_t node_count = graph->node_count, value_count = graph->value_count;
    char scope[sizeof graph->scope];
    cvy_val *made; /* by value: the quantised one */

    if (graph->status != CVY_OK)
        return;
    made = cvy_calloc((size_t)value_count + 1, sizeof *made);
    if (!made) {
        cvy_graph_fail(graph, CVY_NO_MEMORY, "out of memory while rewriting the graph");
        return;
    }
    memcpy(scope, graph->scope, sizeof scope);
    for (cvy_val v = 0; v < value_count; v++)
        made[v] = CVY_NONE;
    for (int32_t n = 0; n < node_count; n++) {
        bool weighted;
        const uint32_t slots = quantized_inputs(graph->nodes[n].op, &weighted);

        for (int32_t i = 0; i < 2 && graph->status == CVY_OK; i++) {
            struct cvy_fake_quantize_attr attr = *form;
            cvy_val value;

            if (!(slots & 1U << i) || (weighted && i == 1 && weights_are_done(graph, n)))
                continue;
            attr.weights = weighted && i == 1;
            attr.channels = form->channels && attr.weights;
            attr.positive = form->positive && !attr.weights && never_negative(graph, graph->nodes[n].in[i]);
            value = quantized(graph, n, i, attr, made, node_count);
            graph->nodes[n].in[i] = value;
        }
    }
    memcpy(graph->scope, scope, sizeof scope);
    cvy_free(made);
    /* Moves each quantizer before its first reader. */
    cvy_graph_sort(graph, NULL, 0);
}
