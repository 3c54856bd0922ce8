/* Quantised networks whose batch norms are folded into the weights before these are rounded (ops/fold.c). */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "graph/order.h"

/* The batch norm, of this kind, that alone reads convolution `conv`; -1: there is none. */
static int32_t norm_after(const struct cvy_graph *graph, int32_t conv, enum cvy_op op)
{
    const struct cvy_node *node = &graph->nodes[conv];
    const int32_t norm = node->op == CVY_OP_CONV2D && node->in[2] == CVY_NONE && node->in[3] == CVY_NONE
                             ? cvy_graph_sole_reader(graph, node->out[0])
                             : -1;

    return norm >= 0 && graph->nodes[norm].op == op && graph->nodes[norm].in[0] == node->out[0] &&
                   graph->nodes[norm].in[5] == CVY_NONE
               ? norm
               : -1;
}

/* The weights of `conv` with the batch norm's factors, rounded; *bias: the other output of the folding. */
static cvy_val folded_weights(struct cvy_graph *graph, int32_t conv, int32_t norm,
                              const struct cvy_fake_quantize_attr *form, cvy_val *bias)
{
    const struct cvy_node *b = &graph->nodes[norm];
    const cvy_val w = graph->nodes[conv].in[1];
    const enum cvy_dtype dtype = graph->values[w].dtype;
    union cvy_attr attr = {.batch_norm = {.eps = b->attr.batch_norm.eps, .momentum = b->attr.batch_norm.momentum}};
    int32_t fold;

    snprintf(graph->scope, sizeof graph->scope, "%s", b->scope);
    fold =
        cvy_graph_node(graph, CVY_OP_FOLD_BATCH_NORM, &attr, 5, (cvy_val[]){w, b->in[1], b->in[2], b->in[3], b->in[4]},
                       2, (struct cvy_shape[]){*cvy_shape_of(graph, w), *cvy_shape_of(graph, b->in[1])},
                       (enum cvy_dtype[]){dtype, dtype});
    if (fold < 0)
        return CVY_NONE;
    *bias = graph->nodes[fold].out[1];
    return cvy_quantized_weights(graph, conv, graph->nodes[fold].out[0], form);
}

/* Inference: conv(x, round(w')) + bias'. */
static void fold_inference(struct cvy_graph *graph, int32_t conv, int32_t norm,
                           const struct cvy_fake_quantize_attr *form)
{
    cvy_val bias = CVY_NONE;
    const cvy_val weights = folded_weights(graph, conv, norm, form, &bias);
    struct cvy_node *node;

    if (weights == CVY_NONE)
        return;
    node = &graph->nodes[conv];
    node->in[1] = weights;
    node->in[2] = bias;
    node->inputs = node->inputs > 3 ? node->inputs : 3;
    cvy_graph_move_output(graph, conv, graph->nodes[norm].out[0]);
    cvy_graph_detach(graph, norm);
}

/* What the new running statistics were read from becomes what `correction` decides. */
static void take_statistics(struct cvy_graph *graph, int32_t norm, int32_t correction)
{
    for (int32_t r = 0; r < graph->result_count; r++) {
        for (int i = 0; i < 2; i++) {
            if (graph->results[r].value == graph->nodes[norm].out[3 + i])
                graph->results[r].value = graph->nodes[correction].out[4 + i];
        }
    }
}

/* Training: the convolution stays for its statistics; the one with folded weights gives what its readers get. */
static void fold_training(struct cvy_graph *graph, int32_t conv, int32_t norm,
                          const struct cvy_fake_quantize_attr *form, int64_t freeze)
{
    cvy_val bias = CVY_NONE, in[10];
    const cvy_val weights = folded_weights(graph, conv, norm, form, &bias);
    const struct cvy_node layer = graph->nodes[conv], b = graph->nodes[norm];
    union cvy_attr attr = {
        .batch_norm = {.eps = b.attr.batch_norm.eps, .momentum = b.attr.batch_norm.momentum, .freeze = freeze}};
    struct cvy_shape shapes[6], y_shape, z_shape;
    enum cvy_dtype dtypes[6];
    int32_t product, correction, apply;

    if (weights == CVY_NONE)
        return;
    y_shape = *cvy_shape_of(graph, layer.out[0]); /* copies: values move when nodes are made */
    z_shape = *cvy_shape_of(graph, b.out[0]);
    for (int i = 0; i < 6; i++) {
        shapes[i] = *cvy_shape_of(graph, b.in[1]);
        dtypes[i] = graph->values[b.in[1]].dtype;
    }
    memcpy(in,
           (cvy_val[]){layer.out[0], b.in[1], b.in[2], b.out[1], b.out[2], b.in[3], b.in[4], b.out[3], b.out[4],
                       graph->nodes[graph->values[weights].producer].in[1]},
           sizeof in);
    snprintf(graph->scope, sizeof graph->scope, "%s", layer.scope);
    product = cvy_graph_node(graph, CVY_OP_CONV2D, &layer.attr, 2, (cvy_val[]){layer.in[0], weights}, 1, &y_shape,
                             &(enum cvy_dtype){graph->values[layer.out[0]].dtype});
    snprintf(graph->scope, sizeof graph->scope, "%s", b.scope);
    correction = cvy_graph_node(graph, CVY_OP_FOLD_CORRECTION, &attr, freeze > 0 ? 10 : 9, in, 6, shapes, dtypes);
    if (product < 0 || correction < 0)
        return;
    memcpy(in,
           (cvy_val[]){graph->nodes[product].out[0], graph->nodes[correction].out[0], graph->nodes[correction].out[1],
                       graph->nodes[correction].out[2], graph->nodes[correction].out[3]},
           5 * sizeof in[0]);
    attr.batch_norm.freeze = 0;
    apply = cvy_graph_node(graph, CVY_OP_BATCH_NORM_APPLY, &attr, 5, in, 1, &z_shape,
                           &(enum cvy_dtype){graph->values[b.out[0]].dtype});
    if (apply < 0)
        return;
    {
        /* The batch norm's own result is for nobody; its readers get the new one. */
        const cvy_val unread = graph->nodes[apply].out[0], result = b.out[0];

        graph->nodes[norm].out[0] = unread;
        graph->values[unread].producer = norm;
        graph->nodes[apply].out[0] = result;
        graph->values[result].producer = apply;
    }
    take_statistics(graph, norm, correction);
}

void cvy_rewrite_fold(struct cvy_graph *graph, const struct cvy_fake_quantize_attr *form, int64_t freeze)
{
    const int32_t node_count = graph->node_count;
    char scope[sizeof graph->scope];

    if (graph->status != CVY_OK)
        return;
    memcpy(scope, graph->scope, sizeof scope);
    for (int32_t n = 0; n < node_count && graph->status == CVY_OK; n++) {
        const int32_t training = norm_after(graph, n, CVY_OP_BATCH_NORM);
        const int32_t inference = norm_after(graph, n, CVY_OP_BATCH_NORM_INFERENCE);

        if (training >= 0)
            fold_training(graph, n, training, form, freeze);
        else if (inference >= 0)
            fold_inference(graph, n, inference, form);
    }
    memcpy(graph->scope, scope, sizeof scope);
    /* Moves what was made before its first reader. */
    cvy_graph_sort(graph, NULL, 0);
}
