/* What rewrites of batch norms with their neighbours leave as it is. */
#include "support_bottleneck.h"
#include "support_graph.h"
#include "support_test.h"

/* Two blocks, the first with a projection. */
static const struct bottleneck_network network = {9, 9, 1, 0, NULL};

/* Nothing else may read what is no longer there, and all that is rewritten must look as expected. */
static void products_leave_other_norms(void **state)
{
    struct cvy_graph graph;
    struct cvy_product_norm found, other;
    struct cvy_node conv, norm, back, data, weights, after;
    int32_t n = 0;

    bottleneck_build(&graph, &network, true, CVY_F32);
    while (!cvy_product_norm_find(&graph, n, &found))
        n++;
    conv = graph.nodes[found.conv];
    norm = graph.nodes[found.norm];
    back = graph.nodes[found.norm_bwd];
    data = graph.nodes[found.data];
    weights = graph.nodes[found.weights];
    after = graph.nodes[found.after];
    for (int i = 0; i < 14; i++) {
        if (i == 0)
            graph.nodes[found.norm].attr.batch_norm.activation = CVY_ACTIVATION_RELU6;
        else if (i == 1)
            graph.nodes[found.norm].in[5] = CVY_NONE;
        else if (i == 2)
            graph.nodes[found.conv].attr.conv2d.stride[1] = 2;
        else if (i == 3)
            graph.nodes[found.conv].attr.conv2d.kernel[0] = 3;
        else if (i == 4)
            graph.nodes[found.conv].attr.conv2d.groups = 2;
        else if (i == 5)
            graph.nodes[found.conv].in[graph.nodes[found.conv].inputs++] = norm.in[1]; /* a bias */
        else if (i == 6)
            graph.nodes[found.norm_bwd].in[7] = CVY_NONE;
        else if (i == 7)
            graph.nodes[found.data].in[1] = back.in[5]; /* of another gradient */
        else if (i == 8)
            graph.nodes[found.weights].in[1] = back.in[5];
        else if (i == 9)
            graph.nodes[found.after].in[1] = norm.in[0]; /* the convolution's output is read once more */
        else if (i == 10)
            graph.nodes[found.after].attr.conv2d.stride[0] = 2;
        else if (i == 11)
            graph.nodes[found.after].op = CVY_OP_CONV2D;
        else if (i == 12)
            graph.nodes[found.norm_bwd].in[6] = back.in[5]; /* masked by something else */
        else
            graph.nodes[found.norm].out[4] = CVY_NONE;
        assert_false(cvy_product_norm_find(&graph, n, &other));
        graph.nodes[found.conv] = conv;
        graph.nodes[found.norm] = norm;
        graph.nodes[found.norm_bwd] = back;
        graph.nodes[found.data] = data;
        graph.nodes[found.weights] = weights;
        graph.nodes[found.after] = after;
    }
    assert_true(cvy_product_norm_find(&graph, n, &other));
    cvy_graph_release(&graph);
}

/* Only where nothing else reads it, and all that makes it is there. */
static void weights_leave_other_norms(void **state)
{
    struct cvy_graph graph;
    struct cvy_node kept[2], *norm;
    int32_t weights = 0;

    bottleneck_build(&graph, &network, true, CVY_F32);
    do { /* one that is made again for it alone */
        weights = find_node(&graph, CVY_OP_CONV2D_BWD_WEIGHTS, weights + 1);
        assert_true(weights >= 0 && graph.values[graph.nodes[weights].in[0]].producer >= 0);
        norm = &graph.nodes[graph.values[graph.nodes[weights].in[0]].producer];
    } while (norm->op != CVY_OP_BATCH_NORM_APPLY || norm->inputs != 5 || cvy_graph_uses(&graph, norm->out[0]) != 1);
    kept[0] = *norm;
    kept[1] = graph.nodes[weights];
    for (int i = 0; i < 7; i++) {
        if (i == 0 || i == 1)
            norm->attr.batch_norm.activation = i == 0 ? CVY_ACTIVATION_NONE : CVY_ACTIVATION_RELU6;
        else if (i == 2 || i == 3)
            norm->in[i] = CVY_NONE; /* beta, mean */
        else if (i == 4)
            norm->in[norm->inputs++] = norm->in[0]; /* a residual */
        else if (i == 5)
            graph.nodes[weights].in[1] = norm->out[0]; /* read twice */
        else
            graph.nodes[weights].in[graph.nodes[weights].inputs++] = norm->in[1]; /* one is taken already */
        assert_false(cvy_weights_take_norm(&graph, weights));
        *norm = kept[0];
        graph.nodes[weights] = kept[1];
    }
    assert_true(cvy_weights_take_norm(&graph, weights));
    assert_int_equal(norm->inputs, 0);
    assert_int_equal(graph.values[kept[0].out[0]].producer, -1);
    cvy_graph_release(&graph);
}

RUN_TESTS(NULL, NULL, TEST(products_leave_other_norms), TEST(weights_leave_other_norms))
