/* Quantised networks for inference in 8-bit integers: what passes a quantizer becomes bytes, and what multiplies bytes
 * by rounded weights sums integers. */
#include "base/error.h"
#include "graph/order.h"
#include "graph/quantizer.h"

/* Products of two bytes whose sum 32 bits can hold: 255 * 127 each. */
enum { MAX_PRODUCTS = 66000 };

struct rewrite {
    struct cvy_graph *graph;
    const float *state; /* the state arena */
    cvy_val *levels;    /* by value that a weight quantizer gives: its levels, once they are there; scales after it */
    int32_t node_count; /* of the graph in floats */
};

static const struct cvy_node *producer(const struct cvy_graph *graph, cvy_val value)
{
    const int32_t n = value == CVY_NONE ? -1 : graph->values[value].producer;

    return n < 0 ? NULL : &graph->nodes[n];
}

/* The levels of a quantizer; scale 0: it is off. Those of weights say only that. */
static struct cvy_levels levels_of(const struct rewrite *r, const struct cvy_node *quantizer)
{
    const struct cvy_param *param = &r->graph->params[r->graph->values[quantizer->in[1]].param];
    const float *observed = r->state + param->offset;
    struct cvy_levels levels = cvy_quantizer_levels(&quantizer->attr.fake_quantize, observed);

    if (quantizer->attr.fake_quantize.weights)
        levels.scale = (double)observed[2] > (double)quantizer->attr.fake_quantize.delay ? 1 : 0;
    return levels;
}

static struct cvy_int8_levels bytes_of(const struct cvy_levels *levels)
{
    return (struct cvy_int8_levels){levels->scale, (int32_t)-levels->low};
}

/* ---- values ---- */

/* A quantizer becomes two nodes: from floats to bytes, and back. */
static void split_quantizer(struct rewrite *r, int32_t n)
{
    struct cvy_graph *graph = r->graph;
    const struct cvy_levels levels = levels_of(r, &graph->nodes[n]);
    const struct cvy_shape shape = *cvy_shape_of(graph, graph->nodes[n].out[0]);
    const union cvy_attr attr = {.int8 = {.x = bytes_of(&levels), .y = bytes_of(&levels)}};
    const enum cvy_dtype bytes = CVY_U8;
    int32_t made;

    if (!(levels.scale > 0) || graph->nodes[n].attr.fake_quantize.weights)
        return;
    made = cvy_graph_node(graph, CVY_OP_QUANTIZE, &attr, 1, &graph->nodes[n].in[0], 1, &shape, &bytes);
    if (made < 0)
        return;
    graph->nodes[made].scope = graph->nodes[n].scope;
    graph->nodes[n].op = CVY_OP_DEQUANTIZE;
    graph->nodes[n].attr = attr;
    graph->nodes[n].inputs = graph->nodes[n].outputs = 1;
    graph->nodes[n].in[0] = graph->nodes[made].out[0];
}

/* The bytes that a value was made from; NULL: it was not. */
static const struct cvy_node *from_bytes(const struct cvy_graph *graph, cvy_val value)
{
    const struct cvy_node *node = producer(graph, value);

    return node && node->op == CVY_OP_DEQUANTIZE ? node : NULL;
}

/* The node of kind QUANTIZE that alone reads the value; -1: none. */
static int32_t sole_quantize(const struct cvy_graph *graph, cvy_val value)
{
    const int32_t reader = cvy_graph_sole_reader(graph, value);

    return reader >= 0 && graph->nodes[reader].op == CVY_OP_QUANTIZE ? reader : -1;
}

/* `node` gives the bytes itself that QUANTIZE node `quantize` made of what it gave. */
static void take_output(struct cvy_graph *graph, int32_t node, int32_t quantize)
{
    graph->nodes[node].attr.int8.y = graph->nodes[quantize].attr.int8.y;
    cvy_graph_move_output(graph, node, graph->nodes[quantize].out[0]);
    cvy_graph_detach(graph, quantize);
}

/* ---- layers ---- */

/* The quantizer of a layer's weights and the node that folds a batch norm into them, or NULL. */
static const struct cvy_node *weight_quantizer(const struct rewrite *r, cvy_val w, const struct cvy_node **fold)
{
    const struct cvy_node *node = producer(r->graph, w);

    *fold = node && node->op == CVY_OP_FOLD_BATCH_NORM ? node : NULL;
    if (*fold)
        node = producer(r->graph, node->in[0]);
    return node && node->op == CVY_OP_FAKE_QUANTIZE && node->attr.fake_quantize.weights &&
                   node->attr.fake_quantize.symmetric && levels_of(r, node).scale > 0
               ? node
               : NULL;
}

/* One number for each output channel, in a shape that folds like weights. */
static struct cvy_shape scale_shape(const struct cvy_shape *w)
{
    struct cvy_shape shape = *w;

    for (int32_t i = 1; i < shape.rank; i++)
        shape.dim[i] = 1;
    return shape;
}

/* The levels and scales of rounded weights, made the first time. */
static bool weight_levels(struct rewrite *r, const struct cvy_node *quantizer, cvy_val found[2])
{
    struct cvy_graph *graph = r->graph;
    const cvy_val rounded = quantizer->out[0], w = quantizer->in[0];
    const union cvy_attr attr = quantizer->attr;
    const char *scope = quantizer->scope;
    const struct cvy_shape shape = *cvy_shape_of(graph, w);
    int32_t node;

    if (r->levels[rounded] == CVY_NONE) {
        node = cvy_graph_node(graph, CVY_OP_QUANTIZE_WEIGHTS, &attr, 1, &w, 2,
                              (struct cvy_shape[]){shape, scale_shape(&shape)}, (enum cvy_dtype[]){CVY_I8, CVY_F32});
        if (node < 0)
            return false;
        graph->nodes[node].scope = scope;
        r->levels[rounded] = graph->nodes[node].out[0];
    }
    node = graph->values[r->levels[rounded]].producer;
    found[0] = graph->nodes[node].out[0];
    found[1] = graph->nodes[node].out[1];
    return true;
}

/* What the batch norm makes of the scales, and the bias. */
static bool fold_scales(struct rewrite *r, struct cvy_node fold, cvy_val scales, cvy_val found[2])
{
    struct cvy_graph *graph = r->graph;
    int32_t node;

    fold.in[0] = scales;
    node = cvy_graph_node(graph, CVY_OP_FOLD_BATCH_NORM, &fold.attr, fold.inputs, fold.in, 2,
                          (struct cvy_shape[]){*cvy_shape_of(graph, scales), *cvy_shape_of(graph, fold.out[1])},
                          (enum cvy_dtype[]){CVY_F32, CVY_F32});
    if (node < 0)
        return false;
    graph->nodes[node].scope = fold.scope;
    found[0] = graph->nodes[node].out[0];
    found[1] = graph->nodes[node].out[1];
    return true;
}

static struct cvy_conv2d_attr window_of(const struct cvy_node *layer)
{
    if (layer->op == CVY_OP_CONV2D)
        return layer->attr.conv2d;
    return (struct cvy_conv2d_attr){.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
}

/* A convolution or linear layer of bytes and rounded weights. */
static void convert_layer(struct rewrite *r, int32_t n)
{
    struct cvy_graph *graph = r->graph;
    const struct cvy_node layer = graph->nodes[n], *fold, *quantizer, *input = from_bytes(graph, layer.in[0]);
    const bool residual = layer.op == CVY_OP_CONV2D && cvy_node_has(&layer, 3);
    cvy_val weights[2], folded[2] = {CVY_NONE, layer.inputs > 2 ? layer.in[2] : CVY_NONE};
    union cvy_attr attr = {.int8 = {.conv2d = window_of(&layer)}};
    const struct cvy_shape *w = cvy_shape_of(graph, layer.in[1]);

    if (!input || residual || layer.outputs > 1 || cvy_shape_elements(w) / w->dim[0] > MAX_PRODUCTS)
        return;
    quantizer = weight_quantizer(r, layer.in[1], &fold);
    if (!quantizer)
        return;
    attr.int8.x = input->attr.int8.x;
    {
        const cvy_val bytes = input->in[0];
        const struct cvy_node kept = fold ? *fold : layer;

        if (!weight_levels(r, quantizer, weights))
            return;
        folded[0] = weights[1];
        if (fold && !fold_scales(r, kept, weights[1], folded))
            return;
        graph->nodes[n].in[0] = bytes;
    }
    graph->nodes[n].op = CVY_OP_CONV2D_INT8;
    graph->nodes[n].attr = attr;
    graph->nodes[n].inputs = 5;
    graph->nodes[n].in[1] = weights[0];
    graph->nodes[n].in[2] = folded[0];
    graph->nodes[n].in[3] = folded[1];
    graph->nodes[n].in[4] = CVY_NONE;
}

/* ---- what gives bytes ---- */

/* Rounding and a maximum may change places. */
static void convert_max_pool(struct cvy_graph *graph, int32_t n)
{
    const struct cvy_node pool = graph->nodes[n];
    const int32_t quantize = sole_quantize(graph, pool.out[0]), conv = graph->values[pool.in[0]].producer;
    struct cvy_int8_levels levels;
    struct cvy_conv2d_attr window = {.dilation = {1, 1}, .groups = 1};

    if (quantize < 0 || conv < 0 || graph->nodes[conv].op != CVY_OP_CONV2D_INT8 ||
        cvy_graph_sole_reader(graph, pool.in[0]) != n)
        return;
    for (int i = 0; i < 2; i++) {
        window.kernel[i] = pool.attr.pool.kernel[i];
        window.stride[i] = pool.attr.pool.stride[i];
    }
    for (int i = 0; i < 4; i++)
        window.pad[i] = pool.attr.pool.pad[i];
    levels = graph->nodes[quantize].attr.int8.y;
    graph->nodes[conv].attr.int8.y = levels;
    graph->values[pool.in[0]].dtype = CVY_U8;
    graph->nodes[n].op = CVY_OP_MAX_POOL_INT8;
    graph->nodes[n].attr = (union cvy_attr){.int8 = {.conv2d = window, .x = levels, .y = levels}};
    if (pool.outputs > 1 && pool.out[1] != CVY_NONE)
        graph->values[pool.out[1]].producer = -1;
    graph->nodes[n].outputs = 1;
    take_output(graph, n, quantize);
}

static void convert_normalize(struct cvy_graph *graph, int32_t n)
{
    const struct cvy_node image = graph->nodes[n];
    const int32_t quantize = sole_quantize(graph, image.out[0]);

    if (quantize < 0 || graph->values[image.in[0]].dtype != CVY_U8 || cvy_node_has(&image, 1))
        return;
    graph->nodes[n].op = CVY_OP_NORMALIZE_INT8;
    graph->nodes[n].attr = (union cvy_attr){.int8 = {.normalize = image.attr.normalize}};
    graph->nodes[n].inputs = 1;
    take_output(graph, n, quantize);
}

/* A product with factors for each channel, of bytes and floats. */
static void convert_scale_channels(struct cvy_graph *graph, int32_t n)
{
    const struct cvy_node scale = graph->nodes[n], *input = from_bytes(graph, scale.in[0]);
    const int32_t quantize = sole_quantize(graph, scale.out[0]);

    if (!input || quantize < 0 || scale.inputs > 2 || scale.attr.scale_channels.relu)
        return;
    graph->nodes[n].op = CVY_OP_SCALE_CHANNELS_INT8;
    graph->nodes[n].attr = (union cvy_attr){.int8 = {.x = input->attr.int8.x}};
    graph->nodes[n].in[0] = input->in[0];
    take_output(graph, n, quantize);
}

static void convert_mean(struct cvy_graph *graph, int32_t n)
{
    const struct cvy_node *input = from_bytes(graph, graph->nodes[n].in[0]);

    if (!input)
        return;
    graph->nodes[n].op = CVY_OP_GLOBAL_AVG_POOL_INT8;
    graph->nodes[n].attr = (union cvy_attr){.int8 = {.x = input->attr.int8.x}};
    graph->nodes[n].in[0] = input->in[0];
}

/* ---- additions ---- */

/* The convolution whose bytes the addition alone reads, and that adds nothing yet; -1: none. */
static int32_t convolution_before(const struct cvy_graph *graph, int32_t add, cvy_val operand)
{
    const struct cvy_node *back = from_bytes(graph, operand);
    const int32_t conv = back ? graph->values[back->in[0]].producer : -1;
    const struct cvy_int8_attr *attr = conv < 0 ? NULL : &graph->nodes[conv].attr.int8;

    if (!attr || graph->nodes[conv].op != CVY_OP_CONV2D_INT8 || !(attr->y.scale > 0) || attr->middle.scale > 0 ||
        attr->conv2d.activation != CVY_ACTIVATION_NONE || cvy_graph_sole_reader(graph, operand) != add ||
        cvy_graph_sole_reader(graph, back->in[0]) != graph->values[operand].producer)
        return -1;
    return conv;
}

/* The addition becomes part of a convolution: then the other operand cannot depend on it, for nothing else does. Else
 * it is one of bytes. */
static void convert_add(struct cvy_graph *graph, int32_t n)
{
    const struct cvy_node add = graph->nodes[n];
    const struct cvy_node *a = from_bytes(graph, add.in[0]), *b = from_bytes(graph, add.in[1]);
    const int32_t quantize = sole_quantize(graph, add.out[0]);
    const enum cvy_activation activation = add.attr.add.relu ? CVY_ACTIVATION_RELU : CVY_ACTIVATION_NONE;

    if (!a || !b || quantize < 0)
        return;
    for (int i = 0; i < 2 && add.in[0] != add.in[1]; i++) {
        const int32_t conv = convolution_before(graph, n, add.in[i]);
        const struct cvy_node *other = i ? a : b;
        struct cvy_node *node = conv < 0 ? NULL : &graph->nodes[conv];

        if (!node)
            continue;
        node->attr.int8.middle = node->attr.int8.y;
        node->attr.int8.residual = other->attr.int8.x;
        node->attr.int8.conv2d.activation = activation;
        node->in[4] = other->in[0];
        cvy_graph_detach(graph, n);
        take_output(graph, conv, quantize);
        return;
    }
    graph->nodes[n].op = CVY_OP_ADD_INT8;
    graph->nodes[n].attr = (union cvy_attr){
        .int8 = {.conv2d = {.activation = activation}, .x = a->attr.int8.x, .residual = b->attr.int8.x}};
    graph->nodes[n].in[0] = a->in[0];
    graph->nodes[n].in[1] = b->in[0];
    take_output(graph, n, quantize);
}

static void convert(struct rewrite *r)
{
    struct cvy_graph *graph = r->graph;
    const int32_t node_count = r->node_count;

    for (int32_t n = 0; n < node_count && graph->status == CVY_OK; n++) {
        if (graph->nodes[n].op == CVY_OP_FAKE_QUANTIZE)
            split_quantizer(r, n);
    }
    for (int32_t n = 0; n < node_count && graph->status == CVY_OK; n++) {
        if (graph->nodes[n].op == CVY_OP_CONV2D || graph->nodes[n].op == CVY_OP_LINEAR)
            convert_layer(r, n);
    }
    for (int32_t n = 0; n < node_count; n++) {
        switch (graph->nodes[n].op) {
        case CVY_OP_CONV2D_INT8:
            if (sole_quantize(graph, graph->nodes[n].out[0]) >= 0)
                take_output(graph, n, sole_quantize(graph, graph->nodes[n].out[0]));
            break;
        case CVY_OP_MAX_POOL:
            convert_max_pool(graph, n);
            break;
        case CVY_OP_NORMALIZE:
            convert_normalize(graph, n);
            break;
        case CVY_OP_SCALE_CHANNELS:
            convert_scale_channels(graph, n);
            break;
        case CVY_OP_GLOBAL_AVG_POOL:
            convert_mean(graph, n);
            break;
        default:
            break;
        }
    }
    for (int32_t n = 0; n < node_count; n++) {
        if (graph->nodes[n].op == CVY_OP_ADD && graph->nodes[n].outputs > 0)
            convert_add(graph, n);
    }
}

void cvy_rewrite_int8(struct cvy_graph *graph, const float *state)
{
    struct rewrite r = {.graph = graph, .state = state, .node_count = graph->node_count};
    const int32_t value_count = graph->value_count;

    if (graph->status != CVY_OK)
        return;
    r.levels = cvy_calloc((size_t)value_count + 1, sizeof *r.levels);
    if (!r.levels) {
        cvy_graph_fail(graph, CVY_NO_MEMORY, "out of memory while rewriting the graph");
        return;
    }
    for (cvy_val v = 0; v < value_count; v++)
        r.levels[v] = CVY_NONE;
    convert(&r);
    cvy_free(r.levels);
    if (graph->status != CVY_OK)
        return;
    cvy_graph_sort(graph, NULL, 0);
    cvy_rewrite_remove_dead(graph);
}

bool cvy_graph_has_integers(const struct cvy_graph *graph)
{
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].op == CVY_OP_CONV2D_INT8)
            return true;
    }
    return false;
}
