#include "infer/quantize/parts.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "weights/checkpoint.h"

/* ---- what there is ---- */

static const struct cvy_node *producer(const struct cvy_graph *graph, cvy_val value)
{
    const int32_t n = value == CVY_NONE ? -1 : graph->values[value].producer;

    return n < 0 ? NULL : &graph->nodes[n];
}

/* The quantizer that `value` comes out of; NULL when it comes from elsewhere. */
static const struct cvy_node *quantizer_of(const struct cvy_graph *graph, cvy_val value)
{
    const struct cvy_node *node = producer(graph, value);

    return node && node->op == CVY_OP_FAKE_QUANTIZE ? node : NULL;
}

static int32_t state_of(const struct cvy_graph *graph, const struct cvy_node *quantizer)
{
    return graph->values[quantizer->in[1]].param;
}

static bool is_layer(const struct cvy_node *node)
{
    return node->op == CVY_OP_CONV2D || node->op == CVY_OP_LINEAR;
}

static int32_t index_of(const struct cvy_ptq_parts *parts, int32_t param)
{
    for (int32_t i = 0; i < parts->quantizer_count; i++) {
        if (parts->quantizers[i].param == param)
            return i;
    }
    return -1;
}

/* The name of a quantizer's state without what its kind is: "conv1" of "conv1.weight_quantizer.observed", and
 * "layer1.0.output" of "layer1.0.output_quantizer.observed". */
static const char *part_name(struct cvy_ptq_parts *parts, const char *state, bool layer)
{
    const size_t end = strlen(layer ? ".weight" CVY_QUANTIZER_SUFFIX : CVY_QUANTIZER_SUFFIX), length = strlen(state);

    return cvy_arena_printf(&parts->arena, "%.*s", (int)(length > end ? length - end : length), state);
}

static struct cvy_ptq_part *add_part(struct cvy_ptq_parts *parts, const struct cvy_graph *graph, int32_t quantizer,
                                     bool layer)
{
    struct cvy_ptq_part *part = &parts->parts[parts->part_count++];

    *part = (struct cvy_ptq_part){
        .name = part_name(parts, graph->params[parts->quantizers[quantizer].param].name, layer),
        .weights = layer ? quantizer : -1,
        .param = -1,
        .quantized = true,
        .cost = -1,
    };
    return part;
}

/* The part that a quantizer belongs to, by its weights or as a value that no layer reads; NULL: a layer's input. */
static struct cvy_ptq_part *part_of(struct cvy_ptq_parts *parts, int32_t quantizer)
{
    for (int32_t i = 0; i < parts->part_count; i++) {
        struct cvy_ptq_part *part = &parts->parts[i];
        if (part->weights == quantizer || (part->weights < 0 && part->inputs[0] == quantizer))
            return part;
    }
    return NULL;
}

/* The parameter by which a layer's mean can be corrected; -1: none. */
static int32_t correction_of(const struct cvy_graph *graph, const struct cvy_node *layer, bool *mean)
{
    enum { BIAS = 2, RUNNING_MEAN = 3 };

    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *norm = &graph->nodes[n];
        *mean = true;
        if (norm->op == CVY_OP_BATCH_NORM_INFERENCE && norm->in[0] == layer->out[0])
            return graph->values[norm->in[RUNNING_MEAN]].param;
    }
    *mean = false;
    return layer->inputs > BIAS && layer->in[BIAS] != CVY_NONE ? graph->values[layer->in[BIAS]].param : -1;
}

static cvy_status add_layer(struct cvy_ptq_parts *parts, const struct cvy_graph *graph, const struct cvy_node *node)
{
    const struct cvy_node *of_weights = quantizer_of(graph, node->in[1]), *of_input = quantizer_of(graph, node->in[0]);
    struct cvy_ptq_node *entry = &parts->nodes[parts->node_count];
    struct cvy_ptq_part *part;
    int32_t weights, input;

    if (!of_weights || !of_input)
        return CVY_OK;
    weights = index_of(parts, state_of(graph, of_weights));
    input = index_of(parts, state_of(graph, of_input));
    part = part_of(parts, weights);
    if (!part)
        part = add_part(parts, graph, weights, true);
    if (part->input_count == CVY_PTQ_INPUTS)
        return cvy_fail(CVY_FAILED, "layer %s has more than %d inputs", part->name, CVY_PTQ_INPUTS);
    part->inputs[part->input_count++] = input;
    part->param = graph->values[of_weights->in[0]].param;
    part->elements = cvy_shape_elements(cvy_shape_of(graph, node->in[1]));
    parts->quantizers[input].layers = true;
    *entry = (struct cvy_ptq_node){.part = (int32_t)(part - parts->parts),
                                   .channels = cvy_shape_of(graph, node->out[0])->dim[1]};
    entry->param = correction_of(graph, node, &entry->mean);
    parts->node_count++;
    return CVY_OK;
}

/* What is between a mean of channels and the factors that it becomes: a few products for an image, whose inputs differ
 * so much from image to image that 8 bits are too few for them (doc/quantize.md). */
static void find_gates(struct cvy_ptq_parts *parts, const struct cvy_graph *graph)
{
    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *node =
            graph->nodes[n].op == CVY_OP_SCALE_CHANNELS ? producer(graph, graph->nodes[n].in[1]) : NULL;

        for (; node && node->op != CVY_OP_GLOBAL_AVG_POOL; node = producer(graph, node->in[0])) {
            const struct cvy_node *quantizer = node->op == CVY_OP_FAKE_QUANTIZE ? node
                                               : is_layer(node)                 ? quantizer_of(graph, node->in[1])
                                                                                : NULL;
            struct cvy_ptq_part *part = quantizer ? part_of(parts, index_of(parts, state_of(graph, quantizer))) : NULL;

            if (part)
                part->gate = true;
        }
    }
    for (int32_t i = 0; i < parts->part_count; i++)
        parts->parts[i].quantized = !parts->parts[i].gate;
}

cvy_status cvy_ptq_parts_find(const struct cvy_graph *table, struct cvy_ptq_parts *parts)
{
    const size_t count = (size_t)table->node_count + 1;

    parts->quantizers = cvy_arena_alloc(&parts->arena, count * sizeof *parts->quantizers);
    parts->parts = cvy_arena_alloc(&parts->arena, count * sizeof *parts->parts);
    parts->nodes = cvy_arena_alloc(&parts->arena, count * sizeof *parts->nodes);
    if (!parts->quantizers || !parts->parts || !parts->nodes)
        return cvy_fail_memory(count * sizeof *parts->parts, "the list of layers");
    for (int32_t n = 0; n < table->node_count; n++) {
        const struct cvy_node *node = &table->nodes[n];
        if (node->op == CVY_OP_FAKE_QUANTIZE)
            parts->quantizers[parts->quantizer_count++] =
                (struct cvy_ptq_quantizer){.param = state_of(table, node), .attr = node->attr.fake_quantize};
    }
    for (int32_t n = 0; n < table->node_count; n++) {
        if (is_layer(&table->nodes[n]))
            CVY_TRY(add_layer(parts, table, &table->nodes[n]));
    }
    for (int32_t i = 0; i < parts->quantizer_count; i++) {
        struct cvy_ptq_part *part;

        if (parts->quantizers[i].attr.weights || parts->quantizers[i].layers)
            continue;
        part = add_part(parts, table, i, false);
        part->inputs[part->input_count++] = i;
    }
    find_gates(parts, table);
    for (int32_t i = 0; i < parts->part_count; i++) {
        if (!parts->parts[i].name)
            return cvy_fail_memory(64, "the name of a layer");
    }
    return parts->node_count > 0 ? CVY_OK : cvy_fail(CVY_FAILED, "the network has no layer to quantise");
}

void cvy_ptq_parts_release(struct cvy_ptq_parts *parts)
{
    cvy_arena_release(&parts->arena);
    *parts = (struct cvy_ptq_parts){0};
}

/* ---- graphs ---- */

const char *cvy_ptq_value_name(int32_t param, char buffer[32])
{
    snprintf(buffer, 32, "value %d", (int)param);
    return buffer;
}

const char *cvy_ptq_node_name(int32_t node, bool rounded, char buffer[32])
{
    snprintf(buffer, 32, "%s %d", rounded ? "rounded" : "float", (int)node);
    return buffer;
}

/* Makes what each activation's quantizer reads a result. */
static void add_values(struct cvy_graph *graph)
{
    char name[32];

    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *node = &graph->nodes[n];
        if (node->op == CVY_OP_FAKE_QUANTIZE && !node->attr.fake_quantize.weights)
            cvy_graph_result(graph, CVY_RESULT_NAMED, cvy_ptq_value_name(state_of(graph, node), name), -1, node->in[0]);
    }
}

/* Each layer a second time, as it is and read by nobody. It and the first one are results. */
static void add_layers(struct cvy_graph *graph)
{
    const int32_t node_count = graph->node_count;
    int32_t count = 0;
    char name[32];

    for (int32_t n = 0; n < node_count && graph->status == CVY_OK; n++) {
        const struct cvy_node node = graph->nodes[n];
        const struct cvy_shape shape = *cvy_shape_of(graph, node.out[0]);
        const enum cvy_dtype dtype = graph->values[node.out[0]].dtype;
        int32_t copy;

        if (!is_layer(&node) || !quantizer_of(graph, node.in[0]) || !quantizer_of(graph, node.in[1]))
            continue;
        copy = cvy_graph_node(graph, node.op, &node.attr, node.inputs, node.in, 1, &shape, &dtype);
        if (copy < 0)
            return;
        cvy_graph_result(graph, CVY_RESULT_NAMED, cvy_ptq_node_name(count, true, name), -1, graph->nodes[copy].out[0]);
        cvy_graph_result(graph, CVY_RESULT_NAMED, cvy_ptq_node_name(count, false, name), -1, node.out[0]);
        count++;
    }
}

/* The first `node_count` nodes, and the results, read what quantizers read instead of what they give. */
static void bypass_quantizers(struct cvy_graph *graph, int32_t node_count)
{
    const struct cvy_node *quantizer;

    for (int32_t n = 0; n < node_count; n++) {
        for (int32_t i = 0; i < graph->nodes[n].inputs; i++) {
            quantizer = quantizer_of(graph, graph->nodes[n].in[i]);
            if (quantizer)
                graph->nodes[n].in[i] = quantizer->in[0];
        }
    }
    for (int32_t i = 0; i < graph->result_count; i++) {
        quantizer = quantizer_of(graph, graph->results[i].value);
        if (quantizer)
            graph->results[i].value = quantizer->in[0];
    }
}

cvy_status cvy_ptq_graph(const struct cvy_network *network, enum cvy_ptq_graph kind, struct cvy_graph *graph)
{
    int32_t node_count;
    cvy_status status;

    CVY_TRY(cvy_model_graph(network->architecture, &network->model, CVY_MODEL_INFER, kind == CVY_PTQ_ROUNDED, graph));
    if (kind == CVY_PTQ_ROUNDED)
        return CVY_OK;
    node_count = graph->node_count;
    if (kind == CVY_PTQ_FLOATS)
        add_values(graph);
    else
        add_layers(graph);
    bypass_quantizers(graph, node_count);
    if (kind == CVY_PTQ_FLOATS)
        cvy_rewrite_fuse_inference(graph);
    cvy_rewrite_remove_dead(graph);
    status = cvy_graph_status(graph);
    if (status != CVY_OK)
        cvy_graph_release(graph);
    return status;
}
