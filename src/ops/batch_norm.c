/* Batch normalisation over (N, H, W) for each channel (Ioffe and Szegedy 2015): training, inference, folding. */
#include <math.h>
#include <stdio.h>

#include "ops/rules.h"

/* The running statistics of one batch norm: the value to start from and the result that receives the new one. */
struct running {
    cvy_val value;
    int32_t param, result; /* result: -1 when this is the first batch norm over the parameter */
};

/* A batch norm whose parameters are shared updates the statistics again, starting from what the one before it left. */
static struct running running_statistics(struct cvy_graph *graph, const char *name, int64_t channels,
                                         enum cvy_init_kind init)
{
    struct running running = {.param = -1, .result = -1};

    running.value = cvy_graph_param(graph, name, CVY_PARAM_STATE, cvy_shape1(channels), (struct cvy_init){init, 0});
    if (running.value == CVY_NONE)
        return running;
    running.param = graph->values[running.value].param;
    for (int32_t r = 0; r < graph->result_count; r++) {
        if (graph->results[r].kind == CVY_RESULT_STATE && graph->results[r].param == running.param)
            running.result = r;
    }
    if (running.result >= 0 && graph->training)
        running.value = graph->results[running.result].value;
    return running;
}

static void update(struct cvy_graph *graph, const struct running *running, cvy_val value)
{
    if (running->result >= 0)
        graph->results[running->result].value = value;
    else
        cvy_graph_result(graph, CVY_RESULT_STATE, NULL, running->param, value);
}

static cvy_val training_form(struct cvy_graph *graph, const union cvy_attr *attr, const cvy_val in[5],
                             const struct running *mean, const struct running *variance)
{
    struct cvy_shape x = graph->values[in[0]].shape, channels = cvy_shape1(x.dim[1]);
    enum cvy_dtype dtype = graph->values[in[0]].dtype;
    struct cvy_shape one = cvy_shape_bind(&x, 1);
    int32_t node;

    if (x.dim[0] != CVY_BATCH && cvy_shape_elements(&one) == one.dim[1])
        return cvy_graph_fail(graph, CVY_USAGE, "batch norm needs more than one value per channel in training");
    node = cvy_graph_node(graph, CVY_OP_BATCH_NORM, attr, 5, in, 5,
                          (struct cvy_shape[]){x, channels, channels, channels, channels},
                          (enum cvy_dtype[]){dtype, dtype, dtype, dtype, dtype});
    if (node < 0)
        return CVY_NONE;
    update(graph, mean, graph->nodes[node].out[3]);
    update(graph, variance, graph->nodes[node].out[4]);
    return graph->status == CVY_OK ? graph->nodes[node].out[0] : CVY_NONE;
}

/* Both parameters of the batch norm are frozen: nothing of it is learnt. */
static bool is_frozen(const struct cvy_graph *graph, cvy_val gamma, cvy_val beta)
{
    return graph->params[graph->values[gamma].param].kind == CVY_PARAM_FROZEN &&
           graph->params[graph->values[beta].param].kind == CVY_PARAM_FROZEN;
}

/* num_batches_tracked of the current scope, which a frozen batch norm does not raise. */
static void counter(struct cvy_graph *graph, bool frozen)
{
    static const char local[] = "num_batches_tracked";
    char name[sizeof graph->scope + sizeof local];

    (void)cvy_graph_param(graph, local, CVY_PARAM_COUNTER, cvy_shape0(), (struct cvy_init){CVY_INIT_ZERO, 0});
    if (!frozen || graph->status != CVY_OK)
        return;
    snprintf(name, sizeof name, "%s%s%s", graph->scope, graph->scope[0] ? "." : "", local);
    graph->params[cvy_graph_find_param(graph, name)].uses = 0;
}

cvy_val cvy_batch_norm(struct cvy_graph *graph, cvy_val x, const struct cvy_batch_norm *options)
{
    union cvy_attr attr = {.batch_norm = {.eps = options->eps != 0 ? options->eps : 1e-5F,
                                          .momentum = options->momentum != 0 ? options->momentum : 0.1F}};
    struct running mean, variance;
    struct cvy_shape channels;
    cvy_val in[5];
    bool frozen;

    if (graph->status != CVY_OK)
        return CVY_NONE;
    if (graph->batch_norm_momentum != 0)
        attr.batch_norm.momentum = graph->batch_norm_momentum;
    if (x < 0 || x >= graph->value_count)
        return cvy_graph_fail(graph, CVY_FAILED, "batch norm has no input");
    if (!cvy_rule_float(graph, "batch norm", "an input", x, graph->values[x].shape.rank == 2 ? 2 : 4))
        return CVY_NONE;
    if (!isfinite(attr.batch_norm.eps) || attr.batch_norm.eps < 0)
        return cvy_graph_fail(graph, CVY_USAGE, "batch norm needs a positive eps, not %g", (double)attr.batch_norm.eps);
    if (!(attr.batch_norm.momentum > 0 && attr.batch_norm.momentum <= 1))
        return cvy_graph_fail(graph, CVY_USAGE, "batch norm needs a momentum in (0, 1], not %g",
                              (double)attr.batch_norm.momentum);
    channels = cvy_shape1(graph->values[x].shape.dim[1]);
    in[0] = x;
    in[1] = cvy_graph_param(graph, "weight", CVY_PARAM_TRAINABLE, channels,
                            (struct cvy_init){options->gamma_zero ? CVY_INIT_ZERO : CVY_INIT_ONE, 0});
    in[2] = cvy_graph_param(graph, "bias", CVY_PARAM_TRAINABLE, channels, (struct cvy_init){CVY_INIT_ZERO, 0});
    mean = running_statistics(graph, "running_mean", channels.dim[0], CVY_INIT_ZERO);
    variance = running_statistics(graph, "running_var", channels.dim[0], CVY_INIT_ONE);
    if (graph->status != CVY_OK)
        return CVY_NONE;
    frozen = is_frozen(graph, in[1], in[2]);
    counter(graph, frozen);
    in[3] = mean.value;
    in[4] = variance.value;
    for (int i = 1; i < 5; i++) {
        if (!cvy_rule_same(graph, "batch norm", "parameters", in[i], channels, x))
            return CVY_NONE;
    }
    if (graph->training && !frozen)
        return training_form(graph, &attr, in, &mean, &variance);
    return cvy_rule_gradient_node(graph, CVY_OP_BATCH_NORM_INFERENCE, &attr, 5, in, x);
}

/* The residual's gradient is dy itself, or dy masked by the ReLU. */
void cvy_batch_norm_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                             const bool *need, cvy_val *din)
{
    const bool relu = node->attr.batch_norm.activation != CVY_ACTIVATION_NONE, residual = node->in[5] != CVY_NONE;
    const cvy_val x = node->in[0], gamma = node->in[1], y = node->out[0], dy = dout[0];
    const cvy_val in[] = {x, gamma, node->in[2], node->out[1], node->out[2], dy, y};
    const struct cvy_shape shapes[] = {*cvy_shape_of(graph, x), *cvy_shape_of(graph, gamma),
                                       *cvy_shape_of(graph, gamma), *cvy_shape_of(graph, x)};
    const enum cvy_dtype dtype = graph->values[x].dtype, dtypes[] = {dtype, dtype, dtype, dtype};
    bool masked_residual = relu && residual && need[5];
    int32_t made;

    for (int i = 1; i < 5; i++) {
        if (dout[i] != CVY_NONE) {
            cvy_graph_fail(graph, CVY_USAGE, "the statistics of a batch norm cannot be differentiated");
            return;
        }
    }
    if (dy == CVY_NONE)
        return;
    if (residual && !relu && need[5])
        din[5] = dy;
    if (!need[0] && !need[1] && !need[2] && !masked_residual)
        return;
    made = cvy_graph_node(graph, CVY_OP_BATCH_NORM_BWD, &node->attr, relu && residual ? 7 : 6, in,
                          masked_residual ? 4 : 3, shapes, dtypes);
    if (made < 0)
        return;
    for (int i = 0; i < 3; i++) {
        if (need[i])
            din[i] = graph->nodes[made].out[i];
    }
    if (masked_residual)
        din[5] = graph->nodes[made].out[3];
}

/* Its statistics and parameters are given, not computed: the gradient of x is dy, scaled. */
void cvy_batch_norm_inference_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                                       const bool *need, cvy_val *din)
{
    const cvy_val x = node->in[0];
    cvy_val dy = dout[0];

    for (int i = 1; i < 5; i++) {
        if (need[i]) {
            cvy_graph_fail(graph, CVY_USAGE, "batch_norm_inference cannot be differentiated by its parameters");
            return;
        }
    }
    dy = cvy_activation_mask(graph, node->attr.batch_norm.activation, node->out[0], dy);
    if (need[0])
        din[0] = cvy_rule_gradient_node(graph, CVY_OP_BATCH_NORM_INFERENCE_BWD, &node->attr, 3,
                                        (cvy_val[]){dy, node->in[1], node->in[4]}, x);
    if (need[5])
        din[5] = dy;
}

static bool activates(const struct cvy_node *node)
{
    return node->attr.batch_norm.activation != CVY_ACTIVATION_NONE;
}

/* Mean 1, variance 3 where they are not given, scale and shift 2 for each element, where others make y they do;
 * residual and ReLU one each, the residual's scale and shift 2. */
double cvy_batch_norm_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    const bool given = cvy_node_has(node, 6);
    const bool paired = cvy_node_has(node, 8);
    const int apply = 2 + (node->in[5] != CVY_NONE) + activates(node) + (paired ? 2 : 0);

    return ((given ? 0 : 4) + (node->out[0] == CVY_NONE ? 0 : apply)) * cvy_rule_elements(graph, node->in[0]);
}

/* sum(dy) 1, sum(dy * (x - mean)) 3, dx = a * dy + b * (x - mean) + c 5 for each element; the mask one, the sum of two
 * dy one. Where the sums are given, dx alone. The residual's batch norm as much again as one without a mask. */
double cvy_batch_norm_bwd_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    bool two = cvy_node_has(node, 7), given = cvy_node_has(node, 8);

    const bool paired = cvy_node_has(node, 10);

    return (given ? 5 : 9 + activates(node) + two + (paired ? 9 : 0)) * cvy_rule_elements(graph, node->in[0]);
}

/* Scale and shift; residual and ReLU one each. */
double cvy_batch_norm_apply_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    bool residual = cvy_node_has(node, 5);

    return (2 + residual + activates(node)) * cvy_rule_elements(graph, node->out[0]);
}

/* One multiplication for each weight, about six operations for each channel. */
double cvy_fold_batch_norm_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return cvy_rule_elements(graph, node->out[0]) + 6 * cvy_rule_elements(graph, node->out[1]);
}
