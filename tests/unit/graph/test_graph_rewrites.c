/* Rewrites of small graphs: which nodes are fused, folded, cast, dead or constant. That the numbers stay is in
 * test_rewrites. */
#include "ops/ops.h"
#include "support_graph.h"
#include "support_test.h"

static void training_fuses_only_unbroken_chains(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 4, 8, 8), a, b, c;

    a = cvy_relu(&g, add_norm(&g, x, "a")); /* fused */
    b = add_norm(&g, a, "b");               /* read twice: stays */
    b = cvy_add(&g, cvy_relu(&g, b), b);    /* its ReLU and add stay too */
    c = add_norm(&g, b, "c");               /* fused with the shortcut */
    c = cvy_relu(&g, cvy_add(&g, c, add_norm(&g, a, "shortcut")));
    c = cvy_add(&g, add_norm(&g, c, "d"), c); /* no ReLU: stays */
    cvy_graph_result(&g, CVY_RESULT_NAMED, "c", -1, c);
    c = add_norm(&g, c, "e");
    cvy_graph_result(&g, CVY_RESULT_NAMED, "e", -1, c); /* a result reads it: stays */
    cvy_graph_result(&g, CVY_RESULT_NAMED, "y", -1, cvy_relu(&g, c));
    cvy_rewrite_fuse_training(&g);
    cvy_rewrite_remove_dead(&g);
    check_graph(&g);
    assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM), 6);
    assert_int_equal(count_nodes(&g, CVY_OP_RELU), 2);
    assert_int_equal(count_nodes(&g, CVY_OP_ADD), 2);
    for (int32_t n = 0; n < g.node_count; n++) {
        const struct cvy_node *node = &g.nodes[n];
        if (node->op != CVY_OP_BATCH_NORM)
            continue;
        assert_int_equal(node->attr.batch_norm.activation, node->scope[0] == 'a' || node->scope[0] == 'c');
        assert_int_equal(node->in[5] != CVY_NONE, node->scope[0] == 'c');
        if (node->scope[0] == 'c')
            assert_string_equal(g.nodes[g.values[node->in[5]].producer].scope, "shortcut");
    }
    cvy_graph_release(&g);
}

static void inference_folds_and_chains(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, false, 4, 8, 8), y, shortcut;
    const struct cvy_node *node;

    x = cvy_relu(&g, add_norm(&g, add_conv(&g, x, "c1", 4), "bn1"));
    y = add_norm(&g, add_conv(&g, x, "c2", 4), "bn2");
    shortcut = add_norm(&g, add_conv(&g, x, "down", 4), "bn3");
    cvy_graph_result(&g, CVY_RESULT_NAMED, "y", -1, cvy_relu(&g, cvy_add(&g, y, shortcut)));
    cvy_rewrite_fuse_inference(&g);
    cvy_rewrite_remove_dead(&g);
    check_graph(&g);
    assert_int_equal(g.node_count, 6);
    assert_int_equal(count_nodes(&g, CVY_OP_FOLD_BATCH_NORM), 3);
    assert_int_equal(count_nodes(&g, CVY_OP_CONV2D), 3);
    /* The main path's convolution takes the shortcut as residual and comes last. */
    node = &g.nodes[g.node_count - 1];
    assert_string_equal(node->scope, "c2");
    assert_true(node->attr.conv2d.activation);
    assert_string_equal(g.nodes[g.values[node->in[3]].producer].scope, "down");
    assert_int_equal(node->out[0], cvy_graph_find_result(&g, "y"));
    cvy_graph_release(&g);
}

static void inference_keeps_what_others_read(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, false, 4, 8, 8), y, z;

    y = add_conv(&g, x, "c1", 4); /* read by the batch norm and a result */
    cvy_graph_result(&g, CVY_RESULT_NAMED, "conv", -1, y);
    y = add_norm(&g, y, "bn1");
    z = add_conv(&g, y, "c2", 4);
    z = cvy_add(&g, z, cvy_relu(&g, z)); /* read twice: neither ReLU nor add joins */
    cvy_graph_result(&g, CVY_RESULT_NAMED, "z", -1, z);
    cvy_rewrite_fuse_inference(&g);
    cvy_rewrite_remove_dead(&g);
    check_graph(&g);
    assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM_INFERENCE), 1);
    assert_int_equal(count_nodes(&g, CVY_OP_FOLD_BATCH_NORM), 0);
    assert_int_equal(count_nodes(&g, CVY_OP_ADD), 1);
    assert_int_equal(count_nodes(&g, CVY_OP_RELU), 1);
    cvy_graph_release(&g);
    /* A convolution with a bias folds its bias too; a second ReLU changes nothing and stays. */
    x = start_graph(&g, false, 4, 8, 8);
    x = cvy_conv2d(&g, x, &(struct cvy_conv2d){.out = 6, .kernel = 1, .bias = true});
    x = cvy_relu(&g, cvy_relu(&g, add_norm(&g, x, "bn1")));
    cvy_graph_result(&g, CVY_RESULT_NAMED, "y", -1, x);
    cvy_rewrite_fuse_inference(&g);
    cvy_rewrite_remove_dead(&g);
    check_graph(&g);
    assert_int_equal(g.node_count, 3);
    assert_int_equal(g.nodes[0].inputs, 6);
    cvy_graph_release(&g);
}

/* A float in the type that its slot asks for; labels, bytes and indices are no floats. */
static void check_slot(const struct cvy_graph *g, cvy_val value, enum cvy_dtype dtype)
{
    if (value != CVY_NONE && cvy_dtype_is_float(g->values[value].dtype))
        assert_int_equal(g->values[value].dtype, dtype);
}

static void precision_keeps_the_arenas_in_f32(void **state)
{
    static const enum cvy_dtype dtypes[] = {CVY_F64, CVY_F16, CVY_BF16};
    struct cvy_graph g;

    for (size_t d = 0; d < 3; d++) {
        cvy_val x;

        cvy_graph_init(&g, true);
        x = cvy_graph_input(&g, "image", CVY_U8, cvy_shape4(CVY_BATCH, 3, 8, 8), true);
        x = cvy_normalize(&g, x, (float[]){1, 2, 3}, (float[]){1, 1, 1});
        x = cvy_relu(&g, add_norm(&g, add_conv(&g, x, "c1", 4), "bn1"));
        add_loss(&g, cvy_max_pool(&g, x, &(struct cvy_max_pool){.kernel = 2}));
        cvy_rewrite_precision(&g, cvy_ops, dtypes[d]);
        cvy_rewrite_remove_dead(&g);
        check_graph(&g); /* gradients and running statistics are f32 */
        assert_int_equal(g.values[g.nodes[0].out[0]].dtype, dtypes[d]);
        assert_int_equal(g.values[g.input_list[0].value].dtype, CVY_U8);
        assert_int_equal(g.values[g.input_list[1].value].dtype, CVY_I32);
        assert_int_equal(g.values[g.input_list[2].value].dtype, CVY_F32);
        const bool narrow = dtypes[d] != CVY_F64;
        assert_int_equal(g.values[cvy_graph_find_result(&g, "loss")].dtype, narrow ? CVY_F32 : dtypes[d]);
        /* f64: conv weight, gamma, beta, mean, variance, fc weight, fc bias, seed in; five gradients, two statistics
         * out. 16 bits: the conv weight; everything else that is f32 stays so. */
        assert_int_equal(count_nodes(&g, CVY_OP_CAST), narrow ? 1 : 8 + 7);
        for (int32_t n = 0; n < g.node_count; n++) {
            const struct cvy_node *node = &g.nodes[n];
            const struct cvy_op_info *info = &cvy_ops[node->op];
            if (node->op == CVY_OP_CAST) {
                assert_int_equal(g.values[node->out[0]].dtype, node->attr.cast.dtype);
                continue;
            }
            for (int32_t i = 0; i < node->inputs; i++)
                check_slot(&g, node->in[i], narrow && (info->f32_inputs >> i & 1) ? CVY_F32 : dtypes[d]);
            for (int32_t i = 0; i < node->outputs; i++)
                check_slot(&g, node->out[i], narrow && (info->f32_outputs >> i & 1) ? CVY_F32 : dtypes[d]);
        }
        cvy_graph_release(&g);
    }
    (void)start_graph(&g, true, 1, 1, 1);
    cvy_rewrite_precision(&g, cvy_ops, CVY_I32);
    check_graph_error(&g, CVY_USAGE, "cannot compute in i32");
    cvy_graph_release(&g);
}

/* A gradient must not wait for the end of the step to be cast. */
static void casts_of_results_follow_their_producer(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 3, 8, 8), gradient;
    int32_t cast;

    add_loss(&g, add_conv(&g, add_conv(&g, x, "c1", 4), "c2", 4));
    cvy_rewrite_precision(&g, cvy_ops, CVY_F64);
    check_graph(&g);
    gradient = gradient_of(&g, "c2.weight");
    cast = g.values[gradient].producer;
    assert_int_equal(g.nodes[cast].op, CVY_OP_CAST);
    assert_true(g.nodes[cast].backward);
    assert_int_equal(g.values[g.nodes[cast].in[0]].producer, cast - 1);
    cvy_graph_release(&g);
}

static void dead_nodes_go_and_results_stay(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, false, 4, 8, 8), y;

    (void)cvy_graph_input(&g, "unused", CVY_F32, cvy_shape0(), false);
    (void)cvy_relu(&g, add_conv(&g, x, "dead", 4));
    y = cvy_relu(&g, x);
    (void)cvy_relu(&g, y);
    cvy_graph_result(&g, CVY_RESULT_NAMED, "y", -1, y);
    cvy_rewrite_remove_dead(&g);
    check_graph(&g);
    assert_int_equal(g.node_count, 1);
    assert_int_equal(g.value_count, 4); /* x, unused, dead.weight, y */
    assert_int_equal(g.param_count, 1);
    assert_int_equal(g.nodes[0].out[0], cvy_graph_find_result(&g, "y"));
    cvy_graph_release(&g);
}

static void positions_of_a_pool_stay_where_they_are_read(void **state)
{
    const struct cvy_max_pool options = {.kernel = 3, .stride = 2, .pad = 1};

    for (int read = 0; read < 2; read++) {
        struct cvy_graph g;
        cvy_val x = start_graph(&g, false, 4, 8, 8), y = cvy_max_pool(&g, x, &options);
        const cvy_val positions = g.nodes[g.values[y].producer].out[1];

        cvy_graph_result(&g, CVY_RESULT_NAMED, "y", -1, y);
        if (read)
            cvy_graph_result(&g, CVY_RESULT_NAMED, "positions", -1, positions);
        cvy_rewrite_remove_dead(&g);
        check_graph(&g);
        assert_int_equal(g.node_count, 1);
        assert_int_equal(g.value_count, read ? 3 : 2);
        assert_int_equal(g.nodes[0].out[1] != CVY_NONE, read);
        cvy_graph_release(&g);
    }
}

static void constant_nodes_depend_on_parameters_only(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, false, 4, 8, 8);
    bool *constant;

    x = cvy_relu(&g, add_norm(&g, add_conv(&g, x, "c1", 4), "bn1"));
    cvy_graph_result(&g, CVY_RESULT_NAMED, "y", -1, x);
    cvy_rewrite_fuse_inference(&g);
    cvy_rewrite_precision(&g, cvy_ops, CVY_F64);
    check_graph(&g);
    constant = cvy_graph_constant_nodes(&g);
    assert_non_null(constant);
    for (int32_t n = 0; n < g.node_count; n++) {
        bool input_cast = g.nodes[n].op == CVY_OP_CAST && g.nodes[n].in[0] == g.input_list[0].value;
        assert_int_equal(constant[n], g.nodes[n].op != CVY_OP_CONV2D && !input_cast);
    }
    cvy_free(constant);
    cvy_graph_release(&g);
}

RUN_TESTS(NULL, NULL, TEST(training_fuses_only_unbroken_chains), TEST(inference_folds_and_chains),
          TEST(inference_keeps_what_others_read), TEST(precision_keeps_the_arenas_in_f32),
          TEST(casts_of_results_follow_their_producer), TEST(dead_nodes_go_and_results_stay),
          TEST(positions_of_a_pool_stay_where_they_are_read), TEST(constant_nodes_depend_on_parameters_only))
