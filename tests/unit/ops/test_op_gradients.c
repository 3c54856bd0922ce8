/* The gradient rules of the ops: what nodes they append. Their numbers are in test_gradients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "support_graph.h"

/* Predictions that a gradient is asked for: no inputs of the graph. */
static cvy_val predictions(struct cvy_graph *g, const char *name, int64_t columns)
{
    cvy_val x = cvy_graph_input(g, name, CVY_F32, cvy_shape3(CVY_BATCH, 6, columns), false);

    return cvy_cast(g, cvy_cast(g, x, CVY_F64), CVY_F32);
}

static cvy_val detection_losses(struct cvy_graph *g)
{
    const cvy_val classes = cvy_graph_input(g, "classes", CVY_I32, cvy_shape2(CVY_BATCH, 6), false);
    const cvy_val positives = cvy_graph_input(g, "positives", CVY_F32, cvy_shape0(), false);
    const cvy_val targets = cvy_graph_input(g, "targets", CVY_F32, cvy_shape3(CVY_BATCH, 6, 4), false);

    return cvy_add(g, cvy_focal_loss(g, predictions(g, "logits", 3), classes, positives),
                   cvy_smooth_l1_loss(g, predictions(g, "codes", 4), targets, classes, positives));
}

/* Every op that may stand in a forward pass, on the way of one value, each attribute at a value of its own. */
static cvy_val long_way(struct cvy_graph *g)
{
    struct cvy_conv2d_attr attr = {.kernel = {3, 1},
                                   .stride = {1, 1},
                                   .dilation = {1, 1},
                                   .pad = {1, 1, 0, 0},
                                   .groups = 2,
                                   .activation = CVY_ACTIVATION_RELU};
    cvy_val x = cvy_graph_input(g, "image", CVY_U8, cvy_shape4(CVY_BATCH, 3, 20, 20), true), w, b, wide;

    x = cvy_normalize(g, x, (float[3]){1, 2, 3}, (float[3]){4, 5, 6});
    cvy_scope_push(g, "stem");
    x = cvy_conv2d(g, x, &(struct cvy_conv2d){.out = 4, .kernel = 3, .stride = 2, .pad = 1, .bias = true});
    cvy_scope_pop(g);
    cvy_scope_push(g, "bn");
    x = cvy_batch_norm(g, x, &(struct cvy_batch_norm){0});
    cvy_scope_pop(g);
    x = cvy_fake_quantize(g, every_unary_op(g, x), "quantizer", &(struct cvy_fake_quantize_attr){.symmetric = true});
    g->freeze = "frozen";
    cvy_scope_push(g, "frozen");
    x = cvy_batch_norm(g, x, &(struct cvy_batch_norm){0});
    cvy_scope_pop(g);
    x = cvy_max_pool(g, x, &(struct cvy_max_pool){.kernel = 2, .stride = 1});
    w = cvy_graph_param(g, "w", CVY_PARAM_TRAINABLE, cvy_shape4(4, 2, 3, 1), (struct cvy_init){0});
    b = cvy_graph_param(g, "b", CVY_PARAM_TRAINABLE, cvy_shape1(4), (struct cvy_init){0});
    x = cvy_conv2d_values(g, x, w, b, x, &attr);
    x = cvy_add(g, x, x);
    wide = cvy_cast(g, x, CVY_F64);
    x = cvy_cast(g, wide, CVY_F32);
    cvy_scope_push(g, "se");
    x = cvy_scale_channels(g, x, cvy_sigmoid(g, cvy_linear_1x1(g, cvy_global_avg_pool(g, x), 4)));
    cvy_scope_pop(g);
    x = cvy_upsample(g, x);
    cvy_scope_push(g, "fc");
    x = cvy_linear(g, cvy_global_avg_pool(g, x), 7);
    cvy_scope_pop(g);
    (void)cvy_flatten_levels(g, 2, (cvy_val[]){wide, wide}, 2);
    x = cvy_softmax_cross_entropy(g, x, cvy_graph_input(g, "t", CVY_F32, cvy_shape2(CVY_BATCH, 7), false), 0.1F);
    return cvy_add(g, x, detection_losses(g));
}

/* Calls the rule of each node by hand: what comes back has the shape and type of the input. */
static void gradients_look_like_their_inputs(void **state)
{
    bool seen[CVY_OP_COUNT] = {false};
    struct cvy_graph g;
    int32_t forward;

    (void)state;
    cvy_graph_init(&g, true);
    (void)long_way(&g);
    forward = g.node_count;
    for (int32_t n = 0; n < forward; n++) {
        const struct cvy_node node = g.nodes[n];
        cvy_val dout[CVY_MAX_OUTPUTS], din[CVY_MAX_INPUTS];
        bool need[CVY_MAX_INPUTS] = {false};

        seen[node.op] = true;
        if (!cvy_ops[node.op].gradient)
            continue;
        for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
            dout[i] = i == 0 ? node.out[0] : CVY_NONE; /* any value of that shape */
        for (int i = 0; i < CVY_MAX_INPUTS; i++) {
            const struct cvy_value *in = node.in[i] == CVY_NONE ? NULL : &g.values[node.in[i]];
            bool fixed = in && in->param >= 0 && g.params[in->param].kind != CVY_PARAM_TRAINABLE;
            din[i] = CVY_NONE;
            need[i] = in && cvy_dtype_is_float(in->dtype) && in->input < 0 && !fixed;
        }
        cvy_ops[node.op].gradient(&g, &node, dout, need, din);
        check_graph(&g);
        for (int i = 0; i < CVY_MAX_INPUTS; i++) {
            assert_int_equal(din[i] != CVY_NONE, need[i]);
            if (!need[i])
                continue;
            assert_true(cvy_shape_equal(cvy_shape_of(&g, din[i]), cvy_shape_of(&g, node.in[i])));
            assert_int_equal(g.values[din[i]].dtype, g.values[node.in[i]].dtype);
        }
        /* Nothing is computed that nobody asks for. */
        {
            int32_t before = g.node_count;
            memset(need, 0, sizeof need);
            cvy_ops[node.op].gradient(&g, &node, dout, need, din);
            for (int32_t made = before; made < g.node_count; made++)
                assert_true(g.nodes[made].op == CVY_OP_RELU_BWD); /* a mask that dead code removal takes */
        }
    }
    for (int op = 0; op < CVY_OP_COUNT; op++)
        assert_true(seen[op] || !cvy_ops[op].gradient || op == CVY_OP_FOLD_BATCH_NORM || op == CVY_OP_FOLD_CORRECTION ||
                    op == CVY_OP_BATCH_NORM_APPLY); /* these stand together: test_fold */
    cvy_graph_release(&g);
}

static void the_long_way_back(void **state)
{
    struct cvy_graph g;
    cvy_val loss, seed;

    (void)state;
    cvy_graph_init(&g, true);
    loss = long_way(&g);
    seed = cvy_graph_input(&g, "seed", CVY_F32, cvy_shape0(), false);
    cvy_graph_backward(&g, cvy_ops, loss, seed);
    check_graph(&g);
    for (int32_t p = 0; p < g.param_count; p++)
        assert_int_equal(gradient_of(&g, g.params[p].name) != CVY_NONE, g.params[p].kind == CVY_PARAM_TRAINABLE);
    cvy_graph_release(&g);
}

/* Batch norm's four forms: ReLU or not, residual or not. */
static void batch_norm_backward_forms(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        bool relu = form & 1, residual = form & 2;
        struct cvy_graph g;
        cvy_val x = start_graph(&g, true, 4, 6, 6), dy, din[CVY_MAX_INPUTS], dout[CVY_MAX_OUTPUTS];
        bool need[CVY_MAX_INPUTS] = {true, true, true, false, false, residual};
        struct cvy_node *norm, *back;

        dy = cvy_relu(&g, x);
        (void)cvy_batch_norm(&g, x, &(struct cvy_batch_norm){0});
        norm = &g.nodes[1];
        norm->attr.batch_norm.activation = relu;
        if (residual) {
            norm->in[5] = x;
            norm->inputs = 6;
        }
        for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
            dout[i] = i == 0 ? dy : CVY_NONE;
        for (int i = 0; i < CVY_MAX_INPUTS; i++)
            din[i] = CVY_NONE;
        {
            const struct cvy_node copy = *norm;
            cvy_ops[CVY_OP_BATCH_NORM].gradient(&g, &copy, dout, need, din);
        }
        check_graph(&g);
        back = &g.nodes[2];
        norm = &g.nodes[1];
        assert_int_equal(g.node_count, 3);
        assert_int_equal(back->op, CVY_OP_BATCH_NORM_BWD);
        assert_int_equal(back->attr.batch_norm.activation, relu);
        assert_int_equal(back->inputs, relu && residual ? 7 : 6);
        assert_int_equal(back->outputs, relu && residual ? 4 : 3);
        assert_int_equal(back->in[3], norm->out[1]);
        assert_int_equal(back->in[4], norm->out[2]);
        assert_int_equal(back->in[5], dy);
        if (relu && residual)
            assert_int_equal(back->in[6], norm->out[0]);
        assert_int_equal(din[5], !residual ? CVY_NONE : relu ? back->out[3] : dy);
        /* The statistics have no gradient. */
        dout[1] = norm->out[1];
        {
            const struct cvy_node copy = *norm;
            cvy_ops[CVY_OP_BATCH_NORM].gradient(&g, &copy, dout, need, din);
        }
        check_graph_error(&g, CVY_USAGE, "statistics of a batch norm");
        cvy_graph_release(&g);
    }
}

static void masked_forms_go_through_relu_bwd(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 4, 6, 6), din[CVY_MAX_INPUTS];
    const bool need[CVY_MAX_INPUTS] = {true, true};

    (void)state;
    (void)cvy_add(&g, x, x);
    g.nodes[0].attr.add.relu = true;
    {
        const struct cvy_node copy = g.nodes[0];
        cvy_ops[CVY_OP_ADD].gradient(&g, &copy, (cvy_val[CVY_MAX_OUTPUTS]){x}, need, din);
    }
    assert_int_equal(g.nodes[1].op, CVY_OP_RELU_BWD);
    assert_int_equal(g.nodes[1].in[0], g.nodes[0].out[0]);
    assert_int_equal(g.nodes[1].in[1], x);
    assert_int_equal(din[0], g.nodes[1].out[0]);
    assert_int_equal(din[1], g.nodes[1].out[0]);
    cvy_graph_release(&g);
}

/* No rewrite before backward construction makes one. */
static void a_shift_has_no_gradient(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 4, 6, 6), s, din[CVY_MAX_INPUTS];

    (void)state;
    s = cvy_graph_input(&g, "s", CVY_F32, cvy_shape2(CVY_BATCH, 4), false);
    (void)cvy_scale_channels(&g, x, s);
    g.nodes[0].in[2] = s;
    g.nodes[0].inputs = 3;
    {
        const struct cvy_node copy = g.nodes[0];
        const bool others[CVY_MAX_INPUTS] = {true, true}, all[CVY_MAX_INPUTS] = {true, true, true};
        cvy_ops[CVY_OP_SCALE_CHANNELS].gradient(&g, &copy, (cvy_val[CVY_MAX_OUTPUTS]){x}, others, din);
        check_graph(&g);
        cvy_ops[CVY_OP_SCALE_CHANNELS].gradient(&g, &copy, (cvy_val[CVY_MAX_OUTPUTS]){x}, all, din);
    }
    check_graph_error(&g, CVY_USAGE, "scale_channels cannot be differentiated by its shift");
    cvy_graph_release(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_look_like_their_inputs), cmocka_unit_test(the_long_way_back),
        cmocka_unit_test(batch_norm_backward_forms),        cmocka_unit_test(masked_forms_go_through_relu_bwd),
        cmocka_unit_test(a_shift_has_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
