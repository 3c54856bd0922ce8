/* Fake quantisation as pairs of QuantizeLinear and DequantizeLinear with 8-bit integers, which runtimes turn into
 * integer arithmetic. Nothing is rounded that training did not round: a batch norm after a convolution scales the
 * integers of each output channel, so that it goes into the scales of that channel; only its shift is rounded, to 32
 * bits. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "export/onnx_translate.h"
#include "graph/quantizer.h"

/* By node. */
struct cvy_quantizing {
    struct cvy_levels levels; /* of a quantizer; scale 0: it does not round */
    const char *scale, *zero; /* names of its constants, once they are there */
    int32_t norm;             /* of a layer with integer weights: the batch norm that it takes in, or -1 */
    bool integers;            /* a layer with integer weights */
    bool absorbed;
    const char *given; /* by a quantizer, last: what has passed it is not rounded once more */
    int32_t ahead;     /* the quantizer that rounds what the node gives, with a ReLU or a maximum between them; or -1 */
};

static void tensor_floats(const struct cvy_named_tensor *tensor, float *to)
{
    memcpy(to, tensor->data, tensor->bytes);
}

static int32_t producer(const struct cvy_onnx_translator *t, cvy_val value)
{
    return value == CVY_NONE ? -1 : t->graph->values[value].producer;
}

/* The only node that reads the value and is needed; -1 when there is no such node. */
static int32_t sole_reader(const struct cvy_onnx_translator *t, cvy_val value)
{
    int32_t found = -1;

    for (int32_t n = 0; n < t->graph->node_count; n++) {
        for (int32_t i = 0; t->needed[n] && i < t->graph->nodes[n].inputs; i++) {
            if (t->graph->nodes[n].in[i] != value)
                continue;
            if (found >= 0)
                return -1;
            found = n;
        }
    }
    return found;
}

/* ---- what the quantizers decide ---- */

/* The lowest and the highest weight; everything else comes from training. */
static cvy_status weight_range(const struct cvy_onnx_translator *t, const struct cvy_node *node, float range[2])
{
    const struct cvy_named_tensor *w = cvy_onnx_find_tensor(t, t->graph->values[node->in[0]].param);
    float value;

    range[0] = range[1] = 0;
    if (!w)
        return cvy_fail(CVY_FAILED, "the tensors for an ONNX file have no weights of %s", cvy_quote(node->scope));
    for (size_t i = 0; i < w->bytes / sizeof value; i++) {
        memcpy(&value, (const char *)w->data + i * sizeof value, sizeof value);
        range[0] = value < range[0] ? value : range[0];
        range[1] = value > range[1] ? value : range[1];
    }
    return CVY_OK;
}

static cvy_status read_levels(const struct cvy_onnx_translator *t, int32_t n)
{
    const struct cvy_node *node = &t->graph->nodes[n];
    const struct cvy_fake_quantize_attr *attr = &node->attr.fake_quantize;
    const struct cvy_named_tensor *state = cvy_onnx_find_tensor(t, t->graph->values[node->in[1]].param);
    float observed[3], now[3], range[2];

    if (!state)
        return cvy_fail(CVY_FAILED, "the tensors for an ONNX file have no state of a quantizer of %s",
                        cvy_quote(node->scope));
    tensor_floats(state, observed);
    memcpy(now, observed, sizeof now);
    if (attr->weights) {
        CVY_TRY(weight_range(t, node, range));
        cvy_quantizer_observe(attr, range[0], range[1], 0, observed, now);
    }
    t->quantizing[n].levels = cvy_quantizer_levels(attr, now);
    return CVY_OK;
}

static bool rounds(const struct cvy_onnx_translator *t, int32_t node)
{
    return node >= 0 && t->graph->nodes[node].op == CVY_OP_FAKE_QUANTIZE && t->quantizing[node].levels.scale > 0;
}

/* A layer whose input and weights are rounded, with the batch norm that alone reads it. */
static void plan_layer(struct cvy_onnx_translator *t, int32_t n)
{
    const struct cvy_node *node = &t->graph->nodes[n], *norm;
    struct cvy_quantizing *plan = &t->quantizing[n];
    int32_t reader;

    plan->integers = rounds(t, producer(t, node->in[0])) && rounds(t, producer(t, node->in[1]));
    reader = plan->integers && node->op == CVY_OP_CONV2D ? sole_reader(t, node->out[0]) : -1;
    norm = reader < 0 ? NULL : &t->graph->nodes[reader];
    if (!norm || norm->op != CVY_OP_BATCH_NORM_INFERENCE || norm->in[5] != CVY_NONE || norm->attr.batch_norm.activation)
        return;
    plan->norm = reader;
    t->quantizing[reader].absorbed = true;
}

/* The quantizer after a chain of ReLUs and maxima that each alone read what is before them. */
static int32_t quantizer_after(const struct cvy_onnx_translator *t, cvy_val value)
{
    int32_t reader = sole_reader(t, value);

    while (reader >= 0 && (t->graph->nodes[reader].op == CVY_OP_RELU || t->graph->nodes[reader].op == CVY_OP_MAX_POOL))
        reader = sole_reader(t, t->graph->nodes[reader].out[0]);
    return rounds(t, reader) ? reader : -1;
}

static void plan_rounding(struct cvy_onnx_translator *t, int32_t n)
{
    const struct cvy_node *node = &t->graph->nodes[n];
    const int32_t next = sole_reader(t, node->out[0]), before = producer(t, node->in[0]);
    struct cvy_quantizing *plan = &t->quantizing[n];

    if (next >= 0 && (t->graph->nodes[next].op == CVY_OP_RELU || t->graph->nodes[next].op == CVY_OP_MAX_POOL))
        plan->ahead = quantizer_after(t, node->out[0]);
    /* Integers from 0 up have no negative values to cut. */
    if (node->op == CVY_OP_RELU && before >= 0 && t->quantizing[before].ahead >= 0)
        plan->absorbed = t->quantizing[t->quantizing[before].ahead].levels.low == 0;
}

cvy_status cvy_onnx_quantize_open(struct cvy_onnx_translator *t)
{
    const struct cvy_graph *graph = t->graph;

    t->quantizing = cvy_calloc((size_t)graph->node_count + 1, sizeof *t->quantizing);
    if (!t->quantizing)
        return cvy_fail_memory((size_t)graph->node_count * sizeof *t->quantizing, "an ONNX model");
    for (int32_t n = 0; n < graph->node_count; n++) {
        t->quantizing[n].norm = t->quantizing[n].ahead = -1;
        if (t->needed[n] && graph->nodes[n].op == CVY_OP_FAKE_QUANTIZE)
            CVY_TRY(read_levels(t, n));
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (t->needed[n] && (graph->nodes[n].op == CVY_OP_CONV2D || graph->nodes[n].op == CVY_OP_LINEAR))
            plan_layer(t, n);
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (t->needed[n] && graph->nodes[n].op != CVY_OP_FAKE_QUANTIZE)
            plan_rounding(t, n);
    }
    return CVY_OK;
}

void cvy_onnx_quantize_close(struct cvy_onnx_translator *t)
{
    cvy_free(t->quantizing);
    t->quantizing = NULL;
}

bool cvy_onnx_absorbed(const struct cvy_onnx_translator *t, int32_t node)
{
    return t->quantizing[node].absorbed;
}

bool cvy_onnx_reads_constant(const struct cvy_onnx_translator *t, int32_t n, int32_t i)
{
    const struct cvy_node *node = &t->graph->nodes[n];

    switch (node->op) {
    case CVY_OP_FAKE_QUANTIZE:
        return i == 0 && !(node->attr.fake_quantize.weights && rounds(t, n));
    case CVY_OP_BATCH_NORM_INFERENCE:
        return i == 0 || !t->quantizing[n].absorbed;
    case CVY_OP_CONV2D:
    case CVY_OP_LINEAR:
        return i == 0 || !t->quantizing[n].integers;
    default:
        return node->op != CVY_OP_NORMALIZE;
    }
}

/* ---- pairs of nodes ---- */

static const char *add_constant(struct cvy_onnx_translator *t, const char *base, const char *what, enum cvy_dtype dtype,
                                struct cvy_shape shape, const void *data)
{
    const char *name = cvy_arena_printf(&t->arena, "%s.%s", base, what);
    const struct cvy_named_tensor tensor = {name, dtype, shape, data,
                                            (size_t)cvy_shape_elements(&shape) * cvy_dtype_size(dtype)};

    if (!name)
        return NULL;
    cvy_onnx_add_initializer(t->model, &tensor);
    return name;
}

/* A scale and a zero point for a whole tensor, under the quantizer's name; false without memory. */
static bool add_scale(struct cvy_onnx_translator *t, int32_t n)
{
    const struct cvy_node *node = &t->graph->nodes[n];
    const char *state = t->graph->params[t->graph->values[node->in[1]].param].name;
    struct cvy_quantizing *plan = &t->quantizing[n];
    float *scale = cvy_arena_alloc(&t->arena, sizeof *scale);
    uint8_t *zero = cvy_arena_alloc(&t->arena, sizeof *zero);
    char *base = cvy_arena_printf(&t->arena, "%.*s", (int)(strlen(state) - strlen(".observed")), state);

    if (!scale || !zero || !base)
        return false;
    *scale = plan->levels.scale;
    /* Symmetric levels too are written as unsigned integers: ONNX Runtime multiplies those by signed weights, and
     * leaves layers whose input has several readers in floats where they are signed. */
    *zero = (uint8_t)-plan->levels.low;
    plan->scale = add_constant(t, base, "scale", CVY_F32, cvy_shape0(), scale);
    plan->zero = add_constant(t, base, "zero_point", CVY_U8, cvy_shape0(), zero);
    return plan->scale && plan->zero;
}

static const char *add_pair(struct cvy_onnx_translator *t, int32_t quantizer, const struct cvy_node *node,
                            const char *x)
{
    struct cvy_quantizing *plan = &t->quantizing[quantizer];

    if (plan->given == x)
        return x;
    if (!plan->scale && !add_scale(t, quantizer)) {
        t->failed = true;
        return x;
    }
    x = cvy_onnx_add_simple(t, node, "QuantizeLinear", 3, (const char *[]){x, plan->scale, plan->zero});
    x = cvy_onnx_add_simple(t, node, "DequantizeLinear", 3, (const char *[]){x, plan->scale, plan->zero});
    plan->given = x;
    return x;
}

bool cvy_onnx_feeds_matrix(const struct cvy_onnx_translator *t, int32_t node)
{
    const cvy_val value = t->graph->nodes[node].out[0];

    for (int32_t n = 0; n < t->graph->node_count; n++) {
        const struct cvy_node *reader = &t->graph->nodes[n];
        if (t->needed[n] && reader->op == CVY_OP_LINEAR && reader->in[0] == value &&
            cvy_shape_of(t->graph, reader->in[1])->rank == 2)
            return true;
    }
    return false;
}

const char *cvy_onnx_quantize(struct cvy_onnx_translator *t, int32_t node, const char *x)
{
    return rounds(t, node) ? add_pair(t, node, &t->graph->nodes[node], x) : x;
}

const char *cvy_onnx_round_ahead(struct cvy_onnx_translator *t, int32_t node, const char *y)
{
    const int32_t ahead = t->quantizing[node].ahead;

    return ahead >= 0 ? add_pair(t, ahead, &t->graph->nodes[node], y) : y;
}

/* ---- weights ---- */

/* One layer on its way to integers. `rows`: output channels of `columns` weights. */
struct layer {
    const struct cvy_node *node;
    struct cvy_levels levels; /* of the weights */
    float input_scale;
    bool symmetric, channels; /* channels: a scale for each row */
    float *row_scale;         /* of the weights: that of all, or each row's own */
    int64_t rows, columns;
    const float *w;
    float *factor, *shift; /* what the batch norm makes of the sums of each row: factor * sum + shift */
    uint8_t *levels_out;   /* int8 or uint8 */
    uint8_t *zero;
    float *scale, *bias_scale;
    int32_t *bias;
};

static const float *parameter(struct cvy_onnx_translator *t, cvy_val value)
{
    const int32_t param = t->graph->values[value].param;
    const struct cvy_named_tensor *tensor = param < 0 ? NULL : cvy_onnx_find_tensor(t, param);
    float *copy = tensor ? cvy_arena_alloc(&t->arena, tensor->bytes) : NULL;

    if (copy)
        tensor_floats(tensor, copy);
    return copy;
}

static cvy_status missing(const struct layer *layer)
{
    return cvy_fail(CVY_FAILED, "the weights of %s cannot be turned into integers: a tensor of it or memory is missing",
                    cvy_quote(layer->node->scope));
}

static float scale_of_row(const struct layer *layer, int64_t k)
{
    float low = 0, high = 0;

    for (int64_t i = k * layer->columns; i < (k + 1) * layer->columns; i++) {
        low = layer->w[i] < low ? layer->w[i] : low;
        high = layer->w[i] > high ? layer->w[i] : high;
    }
    return cvy_quantizer_row_levels(&layer->levels, low, high).scale;
}

static cvy_status open_layer(struct cvy_onnx_translator *t, int32_t n, struct layer *layer)
{
    const struct cvy_node *node = &t->graph->nodes[n];
    const struct cvy_node *weights = &t->graph->nodes[producer(t, node->in[1])];
    const struct cvy_shape *shape = cvy_shape_of(t->graph, node->in[1]);
    const size_t rows = (size_t)shape->dim[0], count = (size_t)cvy_shape_elements(shape);

    *layer = (struct layer){.node = node,
                            .levels = t->quantizing[producer(t, node->in[1])].levels,
                            .input_scale = t->quantizing[producer(t, node->in[0])].levels.scale,
                            .symmetric = weights->attr.fake_quantize.symmetric,
                            .channels = t->quantizing[n].norm >= 0 || weights->attr.fake_quantize.channels,
                            .rows = shape->dim[0],
                            .columns = (int64_t)(count / rows)};
    layer->w = parameter(t, weights->in[0]);
    layer->row_scale = cvy_arena_alloc(&t->arena, rows * sizeof *layer->row_scale);
    layer->factor = cvy_arena_alloc(&t->arena, rows * sizeof *layer->factor);
    layer->shift = cvy_arena_alloc(&t->arena, rows * sizeof *layer->shift);
    layer->levels_out = cvy_arena_alloc(&t->arena, count);
    layer->zero = cvy_arena_alloc(&t->arena, rows);
    layer->scale = cvy_arena_alloc(&t->arena, rows * sizeof *layer->scale);
    layer->bias_scale = cvy_arena_alloc(&t->arena, rows * sizeof *layer->bias_scale);
    layer->bias = cvy_arena_alloc(&t->arena, rows * sizeof *layer->bias);
    if (!layer->w || !layer->row_scale)
        return missing(layer);
    for (int64_t k = 0; k < layer->rows; k++)
        layer->row_scale[k] = weights->attr.fake_quantize.channels ? scale_of_row(layer, k) : layer->levels.scale;
    return layer->factor && layer->shift && layer->levels_out && layer->zero && layer->scale && layer->bias_scale &&
                   layer->bias
               ? CVY_OK
               : missing(layer);
}

/* gamma (sum + bias - mean) / sqrt(var + eps) + beta; without a batch norm sum + bias. */
static cvy_status read_norm(struct cvy_onnx_translator *t, int32_t n, struct layer *layer)
{
    const struct cvy_node *norm = t->quantizing[n].norm >= 0 ? &t->graph->nodes[t->quantizing[n].norm] : NULL;
    const float *bias = NULL, *of[5] = {NULL};

    if (cvy_node_has(layer->node, 2)) {
        bias = parameter(t, layer->node->in[2]);
        if (!bias)
            return missing(layer);
    }
    for (int i = 1; norm && i < 5; i++) {
        of[i] = parameter(t, norm->in[i]);
        if (!of[i])
            return missing(layer);
    }
    for (int64_t k = 0; k < layer->rows; k++) {
        const double own = bias ? (double)bias[k] : 0;
        double factor = 1, shift = own;
        if (norm) {
            factor = (double)of[1][k] / sqrt((double)of[4][k] + (double)norm->attr.batch_norm.eps);
            shift = (double)of[2][k] + (own - (double)of[3][k]) * factor;
        }
        layer->factor[k] = (float)factor;
        layer->shift[k] = (float)shift;
    }
    return CVY_OK;
}

/* Unsigned weights have one zero point for all channels, for ONNX Runtime takes no other: that of training, unless a
 * factor turns a channel around. Then it is the middle. */
static int common_zero(const struct layer *layer)
{
    for (int64_t k = 0; k < layer->rows && !layer->symmetric; k++) {
        if (layer->factor[k] < 0)
            return 128;
    }
    return (int)layer->levels.zero; /* 0 where they are symmetric */
}

static int level_of(const struct layer *layer, int64_t k, int64_t i)
{
    const struct cvy_levels levels = {
        .scale = layer->row_scale[k], .low = layer->levels.low, .high = layer->levels.high};
    const float value = cvy_quantizer_value(&levels, layer->w[k * layer->columns + i]);
    const int level = levels.scale > 0 ? (int)rintf(value / levels.scale) : 0;

    return layer->factor[k] < 0 ? -level : level;
}

/* By how much the scale of a row must grow until its levels fit: 1, but around the middle for a row of which a level
 * was further away, and for a factor so near zero that the shift would not fit into 32 bits. What is rounded there is a
 * level of that row at most, or less than a rounding of the shift. */
static double widening(const struct layer *layer, int64_t k, double scale)
{
    const double unrounded_min = fabs((double)layer->shift[k]) / ((double)layer->input_scale * 0x1p30);
    const double below = layer->symmetric ? 127 : layer->zero[k], above = layer->symmetric ? 127 : 255 - layer->zero[k];
    double ratio = scale < unrounded_min ? unrounded_min / scale : 1;

    for (int64_t i = 0; i < layer->columns; i++) {
        const int level = level_of(layer, k, i);
        if (level > above * ratio)
            ratio = level / above;
        if (-level > below * ratio)
            ratio = -level / below;
    }
    return ratio;
}

/* The integers of a row. Without a factor there is nothing to multiply: any scale will do. */
static void quantize_row(struct layer *layer, int64_t k, int zero)
{
    const double product = (double)layer->row_scale[k] * fabs((double)layer->factor[k]);
    const bool nothing = !(product > 0x1p-126);
    double scale = nothing ? (double)layer->levels.scale : product, ratio;

    layer->zero[k] = (uint8_t)zero;
    ratio = widening(layer, k, scale);
    scale *= ratio;
    layer->scale[k] = (float)scale;
    layer->bias_scale[k] = layer->input_scale * layer->scale[k];
    layer->bias[k] = (int32_t)rint((double)layer->shift[k] / (double)layer->bias_scale[k]);
    for (int64_t i = 0; i < layer->columns; i++) {
        const int level = nothing ? 0 : (int)rint(level_of(layer, k, i) / ratio);
        layer->levels_out[k * layer->columns + i] = (uint8_t)(level + zero);
    }
}

static const char *dequantized(struct cvy_onnx_translator *t, const struct layer *layer, const char *const in[3],
                               int inputs)
{
    struct cvy_onnx_node *made = cvy_onnx_add(t, layer->node, "DequantizeLinear", inputs, in);

    if (layer->channels)
        cvy_onnx_set_int(made, "axis", 0);
    return cvy_onnx_node_output(made);
}

cvy_status cvy_onnx_quantized_weights(struct cvy_onnx_translator *t, int32_t n, const char *in[3], bool *quantized)
{
    struct layer layer;
    struct cvy_shape each;
    const char *base, *w[3], *bias[2];
    enum cvy_dtype dtype;
    int zero;

    *quantized = t->quantizing[n].integers;
    if (!*quantized)
        return CVY_OK;
    CVY_TRY(open_layer(t, n, &layer));
    CVY_TRY(read_norm(t, n, &layer));
    zero = common_zero(&layer);
    for (int64_t k = 0; k < layer.rows; k++)
        quantize_row(&layer, k, zero);
    base = layer.node->scope;
    dtype = layer.symmetric ? CVY_I8 : CVY_U8;
    each = layer.channels ? cvy_shape1(layer.rows) : cvy_shape0();
    w[0] = add_constant(t, base, "weight", dtype, *cvy_shape_of(t->graph, layer.node->in[1]), layer.levels_out);
    w[1] = add_constant(t, base, "weight_scale", CVY_F32, each, layer.scale);
    w[2] = add_constant(t, base, "weight_zero_point", dtype, each, layer.zero);
    bias[0] = add_constant(t, base, "bias", CVY_I32, cvy_shape1(layer.rows), layer.bias);
    bias[1] = add_constant(t, base, "bias_scale", CVY_F32, each, layer.bias_scale);
    if (!w[0] || !w[1] || !w[2] || !bias[0] || !bias[1])
        return missing(&layer);
    in[1] = dequantized(t, &layer, w, 3);
    in[2] = dequantized(t, &layer, (const char *[]){bias[0], bias[1], NULL}, 2);
    return CVY_OK;
}
