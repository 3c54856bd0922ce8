/* Every gradient rule and every backward kernel of the reference backend against finite differences in double, with
 * each attribute at a value that is not its default. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ops/ops.h"
#include "support_gradients.h"

/* ---- one rule at a time ---- */

struct rule_case {
    const char *name;
    enum cvy_op op;
    int32_t (*build)(struct cvy_graph *graph); /* the node under test; everything in f32, changed to f64 afterwards */
    uint32_t constant;                         /* inputs that have no gradient */
};

static cvy_val input(struct cvy_graph *graph, const char *name, struct cvy_shape shape)
{
    return cvy_graph_input(graph, name, CVY_F32, shape, false);
}

static int32_t producer(const struct cvy_graph *graph, cvy_val value)
{
    assert_int_equal(graph->status, CVY_OK);
    return graph->values[value].producer;
}

static int32_t conv_strided(struct cvy_graph *g)
{
    const struct cvy_conv2d_attr attr = {
        .kernel = {3, 2}, .stride = {2, 1}, .dilation = {1, 2}, .pad = {1, 0, 2, 1}, .groups = 2};

    return producer(g, cvy_conv2d_values(g, input(g, "x", cvy_shape4(CVY_BATCH, 4, 6, 5)),
                                         input(g, "w", cvy_shape4(6, 2, 3, 2)), input(g, "bias", cvy_shape1(6)),
                                         CVY_NONE, &attr));
}

static int32_t conv_residual_relu(struct cvy_graph *g)
{
    const struct cvy_conv2d_attr attr = {.kernel = {2, 3},
                                         .stride = {1, 3},
                                         .dilation = {2, 1},
                                         .pad = {0, 3, 1, 2},
                                         .groups = 1,
                                         .activation = CVY_ACTIVATION_RELU};

    return producer(g, cvy_conv2d_values(g, input(g, "x", cvy_shape4(CVY_BATCH, 2, 5, 7)),
                                         input(g, "w", cvy_shape4(3, 2, 2, 3)), input(g, "bias", cvy_shape1(3)),
                                         input(g, "residual", cvy_shape4(CVY_BATCH, 3, 6, 3)), &attr));
}

static int32_t conv_no_bias_residual(struct cvy_graph *g)
{
    const struct cvy_conv2d_attr attr = {
        .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .pad = {0}, .groups = 1};

    return producer(g, cvy_conv2d_values(g, input(g, "x", cvy_shape4(CVY_BATCH, 3, 3, 2)),
                                         input(g, "w", cvy_shape4(4, 3, 1, 1)), CVY_NONE,
                                         input(g, "residual", cvy_shape4(CVY_BATCH, 4, 3, 2)), &attr));
}

static int32_t batch_norm_node(struct cvy_graph *g, struct cvy_shape x, bool residual, enum cvy_activation activation)
{
    const union cvy_attr attr = {.batch_norm = {.eps = 0.25F, .momentum = 0.3F, .activation = activation}};
    const struct cvy_shape c = cvy_shape1(x.dim[1]), shapes[] = {x, c, c, c, c};
    const enum cvy_dtype dtypes[] = {CVY_F32, CVY_F32, CVY_F32, CVY_F32, CVY_F32};
    cvy_val in[6];

    in[0] = input(g, "x", x);
    in[1] = input(g, "gamma", c);
    in[2] = input(g, "beta", c);
    in[3] = input(g, "running_mean", c);
    in[4] = input(g, "running_var", c);
    in[5] = residual ? input(g, "residual", x) : CVY_NONE;
    return cvy_graph_node(g, CVY_OP_BATCH_NORM, &attr, residual ? 6 : 5, in, 5, shapes, dtypes);
}

static int32_t batch_norm_4d(struct cvy_graph *g)
{
    return batch_norm_node(g, cvy_shape4(CVY_BATCH, 3, 2, 3), false, CVY_ACTIVATION_NONE);
}

static int32_t batch_norm_2d(struct cvy_graph *g)
{
    return batch_norm_node(g, cvy_shape2(CVY_BATCH, 5), false, CVY_ACTIVATION_NONE);
}

static int32_t batch_norm_relu(struct cvy_graph *g)
{
    return batch_norm_node(g, cvy_shape4(CVY_BATCH, 3, 3, 2), false, CVY_ACTIVATION_RELU);
}

static int32_t batch_norm_residual(struct cvy_graph *g)
{
    return batch_norm_node(g, cvy_shape4(CVY_BATCH, 2, 3, 2), true, CVY_ACTIVATION_NONE);
}

static int32_t batch_norm_residual_relu(struct cvy_graph *g)
{
    return batch_norm_node(g, cvy_shape4(CVY_BATCH, 2, 3, 3), true, CVY_ACTIVATION_RELU);
}

/* eps is above the 1.5 that the random variances may be below zero. */
static int32_t batch_norm_inference_node(struct cvy_graph *g, struct cvy_shape x, bool residual,
                                         enum cvy_activation activation)
{
    const int32_t training = batch_norm_node(g, x, residual, activation);
    struct cvy_node *node = &g->nodes[training];

    node->op = CVY_OP_BATCH_NORM_INFERENCE;
    node->outputs = 1;
    node->attr.batch_norm.eps = 2;
    return training;
}

static int32_t fold_batch_norm(struct cvy_graph *g)
{
    const union cvy_attr attr = {.batch_norm = {.eps = 2}};
    const struct cvy_shape w = cvy_shape4(3, 2, 2, 1), k = cvy_shape1(3), shapes[] = {w, k};
    const cvy_val in[] = {input(g, "w", w), input(g, "gamma", k), input(g, "beta", k), input(g, "running_mean", k),
                          input(g, "running_var", k)};

    return cvy_graph_node(g, CVY_OP_FOLD_BATCH_NORM, &attr, 5, in, 2, shapes, (enum cvy_dtype[]){CVY_F32, CVY_F32});
}

static int32_t batch_norm_inference_4d(struct cvy_graph *g)
{
    return batch_norm_inference_node(g, cvy_shape4(CVY_BATCH, 3, 2, 3), false, CVY_ACTIVATION_NONE);
}

static int32_t batch_norm_inference_relu(struct cvy_graph *g)
{
    return batch_norm_inference_node(g, cvy_shape2(CVY_BATCH, 5), false, CVY_ACTIVATION_RELU);
}

static int32_t batch_norm_inference_residual(struct cvy_graph *g)
{
    return batch_norm_inference_node(g, cvy_shape4(CVY_BATCH, 2, 3, 2), true, CVY_ACTIVATION_NONE);
}

static int32_t batch_norm_inference_residual_relu(struct cvy_graph *g)
{
    return batch_norm_inference_node(g, cvy_shape4(CVY_BATCH, 2, 3, 2), true, CVY_ACTIVATION_RELU);
}

/* relu_node, relu6_node, sigmoid_node, ... */
#define CVY_OP(...)
#define CVY_OP_UNARY(ID, name, ...)                                                                                    \
    static int32_t name##_node(struct cvy_graph *g)                                                                    \
    {                                                                                                                  \
        return producer(g, cvy_##name(g, input(g, "x", cvy_shape4(CVY_BATCH, 2, 3, 4))));                              \
    }
#include "graph/ops.def"

static int32_t conv_relu6(struct cvy_graph *g)
{
    const int32_t node = conv_residual_relu(g);

    g->nodes[node].attr.conv2d.activation = CVY_ACTIVATION_RELU6;
    return node;
}

static int32_t batch_norm_relu6(struct cvy_graph *g)
{
    return batch_norm_node(g, cvy_shape4(CVY_BATCH, 3, 3, 2), false, CVY_ACTIVATION_RELU6);
}

static int32_t batch_norm_residual_relu6(struct cvy_graph *g)
{
    return batch_norm_node(g, cvy_shape4(CVY_BATCH, 2, 3, 3), true, CVY_ACTIVATION_RELU6);
}

static int32_t batch_norm_inference_relu6(struct cvy_graph *g)
{
    return batch_norm_inference_node(g, cvy_shape2(CVY_BATCH, 5), false, CVY_ACTIVATION_RELU6);
}

static int32_t upsample_node(struct cvy_graph *g)
{
    return producer(g, cvy_upsample(g, input(g, "x", cvy_shape4(CVY_BATCH, 2, 3, 2))));
}

static int32_t flatten_node(struct cvy_graph *g)
{
    const cvy_val maps[] = {input(g, "large", cvy_shape4(CVY_BATCH, 6, 3, 2)),
                            input(g, "middle", cvy_shape4(CVY_BATCH, 6, 2, 1)),
                            input(g, "small", cvy_shape4(CVY_BATCH, 6, 1, 1))};

    return producer(g, cvy_flatten_levels(g, 3, maps, 2));
}

static int32_t add_node(struct cvy_graph *g)
{
    return producer(g, cvy_add(g, input(g, "a", cvy_shape2(CVY_BATCH, 5)), input(g, "b", cvy_shape2(CVY_BATCH, 5))));
}

static int32_t add_relu(struct cvy_graph *g)
{
    int32_t node = add_node(g);

    g->nodes[node].attr.add.relu = true;
    return node;
}

static int32_t max_pool_node(struct cvy_graph *g)
{
    /* (5 + 1 - 3) / 2 + 1 by (4 + 2 - 2) / 1 + 1, windows overlap */
    const union cvy_attr attr = {.pool = {.kernel = {3, 2}, .stride = {2, 1}, .pad = {1, 0, 1, 1}, .input = {5, 4}}};
    const struct cvy_shape y = cvy_shape4(CVY_BATCH, 2, 2, 5), shapes[] = {y, y};
    const enum cvy_dtype dtypes[] = {CVY_F32, CVY_U8};
    cvy_val x = input(g, "x", cvy_shape4(CVY_BATCH, 2, 5, 4));

    return cvy_graph_node(g, CVY_OP_MAX_POOL, &attr, 1, &x, 2, shapes, dtypes);
}

static int32_t global_avg_pool_node(struct cvy_graph *g)
{
    return producer(g, cvy_global_avg_pool(g, input(g, "x", cvy_shape4(CVY_BATCH, 2, 3, 5))));
}

/* Not yet rounding; a rounded value's gradient is no limit of differences (test_quantize has it). */
static int32_t fake_quantize_waiting(struct cvy_graph *g)
{
    return producer(g, cvy_fake_quantize(g, input(g, "x", cvy_shape2(CVY_BATCH, 5)), "q",
                                         &(struct cvy_fake_quantize_attr){.symmetric = true, .delay = 100}));
}

static int32_t scale_channels_node(struct cvy_graph *g)
{
    return producer(g, cvy_scale_channels(g, input(g, "x", cvy_shape4(CVY_BATCH, 2, 3, 4)),
                                          input(g, "s", cvy_shape2(CVY_BATCH, 2))));
}

static int32_t scale_channels_relu(struct cvy_graph *g)
{
    const int32_t node = scale_channels_node(g);

    g->nodes[node].attr.scale_channels.relu = true;
    return node;
}

static int32_t scale_channels_residual(struct cvy_graph *g)
{
    const int32_t node = scale_channels_node(g);

    g->nodes[node].in[3] = input(g, "residual", cvy_shape4(CVY_BATCH, 2, 3, 4));
    g->nodes[node].inputs = 4;
    g->nodes[node].attr.scale_channels.shift_factor = 3; /* of no effect without a shift */
    return node;
}

static int32_t scale_channels_residual_relu(struct cvy_graph *g)
{
    const int32_t node = scale_channels_residual(g);

    g->nodes[node].attr.scale_channels.relu = true;
    return node;
}

static int32_t linear_node(struct cvy_graph *g)
{
    return producer(g, cvy_linear(g, input(g, "x", cvy_shape2(CVY_BATCH, 5)), 4));
}

static int32_t linear_1x1(struct cvy_graph *g)
{
    return producer(g, cvy_linear_1x1(g, input(g, "x", cvy_shape2(CVY_BATCH, 5)), 4));
}

static int32_t linear_no_bias(struct cvy_graph *g)
{
    const cvy_val in[] = {input(g, "x", cvy_shape2(CVY_BATCH, 5)), input(g, "w", cvy_shape2(4, 5))};
    const struct cvy_shape shape = cvy_shape2(CVY_BATCH, 4);

    return cvy_graph_node(g, CVY_OP_LINEAR, NULL, 2, in, 1, &shape, &(enum cvy_dtype){CVY_F32});
}

static int32_t loss_labels(struct cvy_graph *g)
{
    return producer(g, cvy_softmax_cross_entropy(g, input(g, "logits", cvy_shape2(CVY_BATCH, 3)),
                                                 cvy_graph_input(g, "labels", CVY_I32, cvy_shape1(CVY_BATCH), false),
                                                 0.3F));
}

/* Random soft targets do not sum to 1, so that the sum of q in the gradient counts. */
static int32_t loss_soft(struct cvy_graph *g)
{
    return producer(g, cvy_softmax_cross_entropy(g, input(g, "logits", cvy_shape2(CVY_BATCH, 4)),
                                                 input(g, "target", cvy_shape2(CVY_BATCH, 4)), 0.2F));
}

/* The graph inputs after a target. */
static struct cvy_mix_values mix_inputs(struct cvy_graph *g)
{
    return (struct cvy_mix_values){cvy_graph_input(g, "partner", CVY_I32, cvy_shape1(CVY_BATCH), false),
                                   input(g, "coefficient", cvy_shape1(CVY_BATCH))};
}

static int32_t loss_weights(struct cvy_graph *g)
{
    const cvy_val logits = input(g, "logits", cvy_shape2(CVY_BATCH, 3));
    const cvy_val labels = cvy_graph_input(g, "labels", CVY_I32, cvy_shape1(CVY_BATCH), false);

    return producer(g, cvy_softmax_cross_entropy_mixed(g, logits, labels, (struct cvy_mix_values){CVY_NONE, CVY_NONE},
                                                       input(g, "class weights", cvy_shape1(3)), 0.3F));
}

static int32_t loss_labels_mixed(struct cvy_graph *g)
{
    const cvy_val logits = input(g, "logits", cvy_shape2(CVY_BATCH, 3));
    const cvy_val labels = cvy_graph_input(g, "labels", CVY_I32, cvy_shape1(CVY_BATCH), false);

    return producer(g, cvy_softmax_cross_entropy_mixed(g, logits, labels, mix_inputs(g),
                                                       input(g, "class weights", cvy_shape1(3)), 0.3F));
}

static int32_t loss_soft_mixed(struct cvy_graph *g)
{
    const cvy_val logits = input(g, "logits", cvy_shape2(CVY_BATCH, 4));
    const cvy_val target = input(g, "target", cvy_shape2(CVY_BATCH, 4));

    return producer(g, cvy_softmax_cross_entropy_mixed(g, logits, target, mix_inputs(g),
                                                       input(g, "class weights", cvy_shape1(4)), 0.2F));
}

static cvy_val classes_input(struct cvy_graph *g)
{
    return cvy_graph_input(g, "classes", CVY_I32, cvy_shape2(CVY_BATCH, 5), false);
}

static int32_t focal_loss(struct cvy_graph *g)
{
    const cvy_val logits = input(g, "logits", cvy_shape3(CVY_BATCH, 5, 4)), classes = classes_input(g);

    return producer(g, cvy_focal_loss(g, logits, classes, input(g, "positives", cvy_shape0())));
}

static int32_t smooth_l1_loss(struct cvy_graph *g)
{
    const struct cvy_shape shape = cvy_shape3(CVY_BATCH, 5, 4);
    const cvy_val codes = input(g, "codes", shape), targets = input(g, "targets", shape), classes = classes_input(g);

    return producer(g, cvy_smooth_l1_loss(g, codes, targets, classes, input(g, "positives", cvy_shape0())));
}

static int32_t cast_node(struct cvy_graph *g)
{
    return producer(g, cvy_cast(g, input(g, "x", cvy_shape2(CVY_BATCH, 3)), CVY_F64));
}

#define STATISTICS (1u << 3 | 1u << 4)
#define TARGETS    (1u << 1 | 1u << 2 | 1u << 3 | 1u << 4)
#define FROZEN     (1u << 1 | 1u << 2 | STATISTICS)
static const struct rule_case rule_cases[] = {
    {"conv2d, strided, dilated, padded, grouped, bias", CVY_OP_CONV2D, conv_strided, 0},
    {"conv2d with bias, residual and relu", CVY_OP_CONV2D, conv_residual_relu, 0},
    {"conv2d with bias, residual and relu6", CVY_OP_CONV2D, conv_relu6, 0},
    {"conv2d with residual, no bias", CVY_OP_CONV2D, conv_no_bias_residual, 0},
    {"batch norm, 4-d", CVY_OP_BATCH_NORM, batch_norm_4d, STATISTICS},
    {"batch norm, 2-d", CVY_OP_BATCH_NORM, batch_norm_2d, STATISTICS},
    {"batch norm with relu", CVY_OP_BATCH_NORM, batch_norm_relu, STATISTICS},
    {"batch norm with relu6", CVY_OP_BATCH_NORM, batch_norm_relu6, STATISTICS},
    {"batch norm with residual and relu6", CVY_OP_BATCH_NORM, batch_norm_residual_relu6, STATISTICS},
    {"batch norm with residual", CVY_OP_BATCH_NORM, batch_norm_residual, STATISTICS},
    {"batch norm with residual and relu", CVY_OP_BATCH_NORM, batch_norm_residual_relu, STATISTICS},
    {"batch norm in inference form", CVY_OP_BATCH_NORM_INFERENCE, batch_norm_inference_4d, FROZEN},
    {"the same with relu", CVY_OP_BATCH_NORM_INFERENCE, batch_norm_inference_relu, FROZEN},
    {"the same with relu6", CVY_OP_BATCH_NORM_INFERENCE, batch_norm_inference_relu6, FROZEN},
    {"the same with residual", CVY_OP_BATCH_NORM_INFERENCE, batch_norm_inference_residual, FROZEN},
    {"the same with residual and relu", CVY_OP_BATCH_NORM_INFERENCE, batch_norm_inference_residual_relu, FROZEN},
    {"batch norm folded into weights", CVY_OP_FOLD_BATCH_NORM, fold_batch_norm, 1u << 2 | STATISTICS},
#define CVY_OP(...)
#define CVY_OP_UNARY(ID, name, ...) {#name, CVY_OP_##ID, name##_node, 0},
#include "graph/ops.def"
    {"add", CVY_OP_ADD, add_node, 0},
    {"add with relu", CVY_OP_ADD, add_relu, 0},
    {"max pool", CVY_OP_MAX_POOL, max_pool_node, 0},
    {"global average pool", CVY_OP_GLOBAL_AVG_POOL, global_avg_pool_node, 0},
    {"fake quantize before its delay", CVY_OP_FAKE_QUANTIZE, fake_quantize_waiting, 1u << 1},
    {"scale channels", CVY_OP_SCALE_CHANNELS, scale_channels_node, 0},
    {"scale channels with relu", CVY_OP_SCALE_CHANNELS, scale_channels_relu, 0},
    {"scale channels with residual", CVY_OP_SCALE_CHANNELS, scale_channels_residual, 0},
    {"scale channels with residual and relu", CVY_OP_SCALE_CHANNELS, scale_channels_residual_relu, 0},
    {"linear", CVY_OP_LINEAR, linear_node, 0},
    {"linear, weight of a 1x1 convolution", CVY_OP_LINEAR, linear_1x1, 0},
    {"linear without bias", CVY_OP_LINEAR, linear_no_bias, 0},
    {"cross-entropy with labels", CVY_OP_SOFTMAX_CROSS_ENTROPY, loss_labels, 1u << 1},
    {"cross-entropy with soft targets", CVY_OP_SOFTMAX_CROSS_ENTROPY, loss_soft, 1u << 1},
    {"cross-entropy with class weights", CVY_OP_SOFTMAX_CROSS_ENTROPY, loss_weights, TARGETS},
    {"cross-entropy with mixed labels and class weights", CVY_OP_SOFTMAX_CROSS_ENTROPY, loss_labels_mixed, TARGETS},
    {"cross-entropy with mixed soft targets and class weights", CVY_OP_SOFTMAX_CROSS_ENTROPY, loss_soft_mixed, TARGETS},
    {"focal loss", CVY_OP_FOCAL_LOSS, focal_loss, TARGETS},
    {"smooth L1 loss", CVY_OP_SMOOTH_L1_LOSS, smooth_l1_loss, TARGETS},
    {"upsample", CVY_OP_UPSAMPLE, upsample_node, 0},
    {"levels as rows", CVY_OP_FLATTEN_LEVELS, flatten_node, 0},
    {"cast", CVY_OP_CAST, cast_node, 0},
};

/* The gradient nodes of the case for the inputs in `need`; din receives their values. */
static int32_t build_rule(const struct rule_case *item, uint32_t need, struct cvy_graph *graph, cvy_val *din)
{
    cvy_val dout[CVY_MAX_OUTPUTS];
    bool wanted[CVY_MAX_INPUTS];
    struct cvy_node node;
    int32_t index, forward;

    cvy_graph_init(graph, true);
    index = item->build(graph);
    assert_int_equal(cvy_graph_status(graph), CVY_OK);
    node = graph->nodes[index];
    assert_int_equal(node.op, item->op);
    forward = graph->node_count;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        dout[i] = CVY_NONE;
    dout[0] = cvy_graph_input(graph, "dy", graph->values[node.out[0]].dtype, graph->values[node.out[0]].shape, false);
    for (int i = 0; i < CVY_MAX_INPUTS; i++) {
        wanted[i] = need >> i & 1 && i < node.inputs && node.in[i] != CVY_NONE;
        din[i] = CVY_NONE;
    }
    cvy_ops[node.op].gradient(graph, &node, dout, wanted, din);
    assert_int_equal(cvy_graph_status(graph), CVY_OK);
    for (int i = 0; i < node.inputs; i++) {
        if (!wanted[i])
            continue;
        if (din[i] == CVY_NONE)
            fail_msg("%s: no gradient of input %d", item->name, i);
        assert_true(cvy_shape_equal(&graph->values[din[i]].shape, &graph->values[node.in[i]].shape));
        assert_int_equal(graph->values[din[i]].dtype, graph->values[node.in[i]].dtype);
    }
    gradient_to_double(graph);
    return forward;
}

static bool has_ceiling(const struct rule_case *item)
{
    return strstr(item->name, "relu6") != NULL;
}

/* Where an op bends or has kinks beyond the usual range, so that its inputs lie on all sides of them. */
static const struct {
    enum cvy_op op;
    double low, high;
} wide[] = {{CVY_OP_SILU, -8, 8}, {CVY_OP_SIGMOID, -8, 8}};

static double low_of(const struct rule_case *item)
{
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        if (wide[i].op == item->op)
            return wide[i].low;
    }
    return -1.5;
}

/* Inputs are below it: what has a ceiling is to lie on both sides of that. A convolution adds up products of two. */
static double high_of(const struct rule_case *item)
{
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        if (wide[i].op == item->op)
            return wide[i].high;
    }
    return !has_ceiling(item) ? 1.5 : item->op == CVY_OP_CONV2D ? 2.5 : 7.5;
}

static void fill_inputs(struct executor *executor, const struct rule_case *item, cvy_val dy, double *projection)
{
    struct cvy_rng rng = cvy_rng_new(7, CVY_RNG_TEST, 0, (uint32_t)item->op);

    for (cvy_val v = 0; v < executor->value_count; v++) {
        const struct cvy_value *value = &executor->graph->values[v];
        if (value->producer >= 0)
            continue;
        if (value->dtype == CVY_I32)
            gradient_write_random(executor, v, &rng, 0, 3); /* labels of the smallest case */
        else if (v == dy)
            gradient_write_random(executor, v, &rng, 0.5, 2); /* the seed of a loss is not 1 */
        else
            gradient_write_random(executor, v, &rng, low_of(item), high_of(item));
    }
    if (executor_elements(executor, dy) > 1)
        gradient_write_random(executor, dy, &rng, -1, 1);
    executor_read(executor, dy, projection);
}

/* Values at a ceiling of 6 and below it. */
static void check_sides(const struct executor *executor, cvy_val y)
{
    const int64_t count = executor_elements(executor, y);
    double *numbers = malloc((size_t)count * sizeof *numbers);
    int64_t inside = 0, above = 0;

    assert_non_null(numbers);
    executor_read(executor, y, numbers);
    for (int64_t i = 0; i < count; i++) {
        inside += numbers[i] > 0 && numbers[i] < 6;
        above += numbers[i] == 6;
    }
    assert_true(inside > 0 && above > 0);
    free(numbers);
}

static void check_rule(cvy_device *device, const struct rule_case *item)
{
    struct cvy_graph graph;
    struct executor executor;
    cvy_val din[CVY_MAX_INPUTS], alone[CVY_MAX_INPUTS], dy;
    double *gradients[CVY_MAX_INPUTS] = {NULL};
    double *projection;
    int32_t forward = build_rule(item, ~item->constant, &graph, din), inputs;
    const cvy_val y = graph.nodes[forward - 1].out[0];

    inputs = graph.nodes[forward - 1].inputs;
    dy = graph.input_list[graph.input_count - 1].value;
    executor_open(&executor, device, &graph, 3);
    projection = malloc((size_t)executor_elements(&executor, dy) * sizeof *projection);
    assert_non_null(projection);
    fill_inputs(&executor, item, dy, projection);
    executor_run(&executor, 0, graph.node_count);
    if (has_ceiling(item))
        check_sides(&executor, y);
    for (int i = 0; i < inputs; i++) {
        const struct gradient_objective f = {&executor, forward, y, projection};
        if (din[i] == CVY_NONE)
            continue;
        gradients[i] = malloc((size_t)executor_elements(&executor, din[i]) * sizeof **gradients);
        assert_non_null(gradients[i]);
        executor_read(&executor, din[i], gradients[i]);
        gradient_check(&f, item->name, graph.nodes[forward - 1].in[i], gradients[i]);
    }
    executor_close(&executor);
    cvy_graph_release(&graph);

    /* The same when each gradient is asked for alone. */
    for (int i = 0; i < inputs; i++) {
        double *numbers;
        if (!gradients[i])
            continue;
        build_rule(item, 1u << i, &graph, alone);
        executor_open(&executor, device, &graph, 3);
        fill_inputs(&executor, item, dy, projection);
        executor_run(&executor, 0, graph.node_count);
        numbers = malloc((size_t)executor_elements(&executor, alone[i]) * sizeof *numbers);
        assert_non_null(numbers);
        executor_read(&executor, alone[i], numbers);
        assert_memory_equal(numbers, gradients[i], (size_t)executor_elements(&executor, alone[i]) * sizeof *numbers);
        executor_close(&executor);
        cvy_graph_release(&graph);
        free(numbers);
        free(gradients[i]);
    }
    free(projection);
}

static void every_rule(void **state)
{
    for (size_t i = 0; i < sizeof rule_cases / sizeof *rule_cases; i++)
        check_rule(*state, &rule_cases[i]);
}

static void every_differentiable_op_is_covered(void **state)
{
    (void)state;
    for (int op = 0; op < CVY_OP_COUNT; op++) {
        bool covered = false;
        for (size_t i = 0; i < sizeof rule_cases / sizeof *rule_cases; i++)
            covered |= rule_cases[i].op == (enum cvy_op)op;
        covered |= op == CVY_OP_FOLD_CORRECTION || op == CVY_OP_BATCH_NORM_APPLY; /* together: test_fold */
        if (cvy_ops[op].gradient && !covered)
            fail_msg("%s has a gradient rule but no case here", cvy_ops[op].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_differentiable_op_is_covered),
        cmocka_unit_test(every_rule),
    };

    return cmocka_run_group_tests(tests, gradient_setup, gradient_teardown);
}
