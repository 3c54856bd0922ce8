/* What rewrites make of the nodes of squeeze and excitation. */
#include "ops/ops.h"
#include "support_graph.h"
#include "support_test.h"

static cvy_val conv_norm(struct cvy_graph *g, const char *name, cvy_val x)
{
    cvy_scope_push(g, name);
    x = cvy_conv2d(g, x, &(struct cvy_conv2d){.out = 4, .kernel = 1});
    cvy_scope_push(g, "bn");
    x = cvy_batch_norm(g, x, &(struct cvy_batch_norm){0});
    cvy_scope_pop(g);
    cvy_scope_pop(g);
    return x;
}

/* relu(excited + shortcut); the shortcut is the input, or goes through a convolution and a batch norm. */
static void build_excited(struct cvy_graph *g, bool training, bool projection)
{
    cvy_val x = start_graph(g, training, 4, 6, 6), y, s, loss;

    y = conv_norm(g, "main", x);
    cvy_scope_push(g, "se");
    s = cvy_sigmoid(g, cvy_linear_1x1(g, cvy_global_avg_pool(g, y), 4));
    cvy_scope_pop(g);
    y = cvy_scale_channels(g, y, s);
    x = cvy_relu(g, cvy_add(g, y, projection ? conv_norm(g, "shortcut", x) : x));
    x = cvy_global_avg_pool(g, x);
    if (!training) {
        cvy_graph_result(g, CVY_RESULT_NAMED, "logits", -1, x);
        cvy_rewrite_fuse_inference(g);
    } else {
        loss = cvy_softmax_cross_entropy(g, x, cvy_graph_input(g, "t", CVY_I32, cvy_shape1(CVY_BATCH), false), 0);
        cvy_graph_result(g, CVY_RESULT_NAMED, "loss", -1, loss);
        cvy_rewrite_fuse_training(g);
        cvy_graph_backward(g, cvy_ops, loss, cvy_graph_input(g, "seed", CVY_F32, cvy_shape0(), false));
        cvy_rewrite_recompute(g);
        cvy_rewrite_fuse_backward(g);
    }
    cvy_rewrite_remove_dead(g);
    check_graph(g);
    assert_int_equal(count_nodes(g, CVY_OP_RELU), 0);
}

static const struct cvy_node *node_of(const struct cvy_graph *g, enum cvy_op op)
{
    const int32_t n = find_node(g, op, 0);

    assert_true(n >= 0);
    return &g->nodes[n];
}

/* The product of the forward pass; of the backward pass the one with or without input `with`. */
static const struct cvy_node *product_of(const struct cvy_graph *g, bool backward, int32_t with)
{
    for (int32_t n = 0; n < g->node_count; n++) {
        const struct cvy_node *node = &g->nodes[n];
        if (node->op == CVY_OP_SCALE_CHANNELS && node->backward == backward &&
            (!backward || (node->inputs > with && node->in[with] != CVY_NONE)))
            return node;
    }
    fail_msg("no such product");
    return NULL;
}

static void excitation_in_training(void **state)
{
    for (int projection = 0; projection < 2; projection++) {
        struct cvy_graph g;
        const struct cvy_node *norm, *scale, *last, *back, *again;

        build_excited(&g, true, projection);
        norm = node_of(&g, CVY_OP_BATCH_NORM);
        assert_string_equal(norm->scope, "main.bn");
        assert_false(norm->attr.batch_norm.activation); /* two nodes read it */
        scale = product_of(&g, false, 0);
        assert_int_equal(scale->in[0], norm->out[0]);
        assert_int_equal(node_of(&g, CVY_OP_GLOBAL_AVG_POOL)->in[0], norm->out[0]);
        assert_int_equal(count_nodes(&g, CVY_OP_ADD), 0);
        if (projection) { /* the other batch norm takes addition and ReLU */
            last = &g.nodes[find_node(&g, CVY_OP_BATCH_NORM, find_node(&g, CVY_OP_BATCH_NORM, 0) + 1)];
            assert_string_equal(last->scope, "shortcut.bn");
            assert_true(last->attr.batch_norm.activation);
            assert_int_equal(last->in[5], scale->out[0]);
            assert_int_equal(scale->in[3], CVY_NONE);
            assert_int_equal(count_nodes(&g, CVY_OP_RELU_BWD), 0);
        } else { /* the product takes them; the graph's input is the shortcut */
            assert_true(scale->attr.scale_channels.relu);
            assert_int_equal(scale->in[3], g.input_list[0].value);
            /* The backward pass makes the block's output again: from the batch norm's, which is made for this alone. */
            last = product_of(&g, true, 3);
            assert_true(last->attr.scale_channels.relu);
            assert_int_equal(last->in[1], scale->in[1]);
            assert_int_equal(last->in[3], scale->in[3]);
            assert_int_equal(g.nodes[g.values[last->in[0]].producer].op, CVY_OP_BATCH_NORM_APPLY);
            assert_int_equal(cvy_graph_uses(&g, last->in[0]), 1);
            assert_int_equal(node_of(&g, CVY_OP_RELU_BWD)->in[0], last->out[0]);
        }
        assert_int_equal(scale->in[2], CVY_NONE);
        back = product_of(&g, true, 2);
        assert_int_equal(back->in[1], scale->in[1]);
        assert_true(back->attr.scale_channels.shift_factor == 1 / 36.0 && !back->attr.scale_channels.relu);
        assert_int_equal(back->in[3], CVY_NONE);
        /* What is scaled is not kept: the backward pass makes it again from the batch norm's input. */
        assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM_APPLY), projection ? 1 : 2);
        again = &g.nodes[g.values[node_of(&g, CVY_OP_SCALE_CHANNELS_BWD_SCALE)->in[0]].producer];
        assert_int_equal(again->op, CVY_OP_BATCH_NORM_APPLY);
        assert_int_equal(again->in[0], norm->in[0]);
        assert_int_equal(cvy_graph_uses(&g, again->out[0]), 1);
        cvy_graph_release(&g);
    }
}

static void excitation_in_inference(void **state)
{
    for (int projection = 0; projection < 2; projection++) {
        struct cvy_graph g;
        const struct cvy_node *conv, *shortcut, *scale;

        build_excited(&g, false, projection);
        assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM_INFERENCE), 0);
        conv = node_of(&g, CVY_OP_CONV2D);
        scale = product_of(&g, false, 0);
        assert_false(conv->attr.conv2d.activation);
        assert_int_equal(scale->in[0], conv->out[0]);
        assert_int_equal(count_nodes(&g, CVY_OP_ADD), 0);
        assert_int_equal(scale->in[3], projection ? CVY_NONE : g.input_list[0].value);
        assert_int_equal(scale->attr.scale_channels.relu, !projection);
        if (projection) {
            shortcut = &g.nodes[find_node(&g, CVY_OP_CONV2D, find_node(&g, CVY_OP_CONV2D, 0) + 1)];
            assert_int_equal(shortcut->in[3], scale->out[0]);
            assert_true(shortcut->attr.conv2d.activation);
        }
        cvy_graph_release(&g);
    }
}

/* Additions that a product cannot take: one that others read as well, one that meets itself; the mean's share where
 * something else reads it, too. Without ReLU, the addition alone; a shortcut that is computed after the product. */
static void products_fuse_only_unbroken_chains(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, false, 4, 6, 6), s, y, late, share;
    struct cvy_value like;
    static const char *const names[] = {"d", "e", "f", "g"};
    const union cvy_attr pool = {.pool = {.input = {6, 6}}};
    const struct cvy_node *node;
    int32_t mean;

    s = cvy_sigmoid(&g, cvy_global_avg_pool(&g, x));
    y = cvy_scale_channels(&g, x, s);
    cvy_graph_result(&g, CVY_RESULT_NAMED, "read", -1, y);
    cvy_graph_result(&g, CVY_RESULT_NAMED, "a", -1, cvy_add(&g, y, x));
    y = cvy_scale_channels(&g, x, s);
    cvy_graph_result(&g, CVY_RESULT_NAMED, "b", -1, cvy_add(&g, y, y));
    y = cvy_scale_channels(&g, x, s);
    late = cvy_sigmoid(&g, x);
    cvy_graph_result(&g, CVY_RESULT_NAMED, "c", -1, cvy_add(&g, late, y)); /* the only one */
    cvy_rewrite_fuse_inference(&g);
    check_graph(&g);
    assert_int_equal(count_nodes(&g, CVY_OP_ADD), 2);
    node = &g.nodes[g.values[cvy_graph_find_result(&g, "c")].producer];
    assert_int_equal(node->op, CVY_OP_SCALE_CHANNELS);
    assert_int_equal(node->in[3], late);
    assert_false(node->attr.scale_channels.relu);

    like = g.values[x];
    for (int broken = 0; broken < 4; broken++) {
        y = cvy_scale_channels(&g, x, s);
        mean = cvy_graph_node(&g, CVY_OP_GLOBAL_AVG_POOL_BWD, &pool, 1, &s, 1, &like.shape, &like.dtype);
        assert_true(mean >= 0);
        share = g.nodes[mean].out[0];
        if (broken == 1 || broken == 2)
            cvy_graph_result(&g, CVY_RESULT_NAMED, broken == 1 ? "scaled" : "share", -1, broken == 1 ? y : share);
        y = cvy_add(&g, share, y);
        g.nodes[g.values[y].producer].attr.add.relu = broken == 3;
        cvy_graph_result(&g, CVY_RESULT_NAMED, names[broken], -1, y);
        cvy_rewrite_fuse_backward(&g);
        check_graph(&g);
        node = &g.nodes[g.values[y].producer];
        assert_int_equal(node->op, broken ? CVY_OP_ADD : CVY_OP_SCALE_CHANNELS);
        if (!broken)
            assert_int_equal(node->in[2], s);
        assert_int_equal(count_nodes(&g, CVY_OP_GLOBAL_AVG_POOL_BWD), broken);
    }
    cvy_graph_release(&g);
}

RUN_TESTS(NULL, NULL, TEST(excitation_in_training), TEST(excitation_in_inference),
          TEST(products_fuse_only_unbroken_chains))
