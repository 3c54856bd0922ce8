/* The builder: names, sharing, sticky errors, limits; backward construction; failing memory. */
#include "models/models.h"
#include "ops/ops.h"
#include "support_graph.h"
#include "support_test.h"

static const struct cvy_init zero = {CVY_INIT_ZERO, 0};

/* ---- builder ---- */

static void parameters_are_named_placed_and_shared(void **state)
{
    struct cvy_graph g;
    cvy_val w, shared, stats;

    cvy_graph_init(&g, true);
    cvy_scope_push(&g, "layer1");
    cvy_scope_push_index(&g, 0);
    w = cvy_graph_param(&g, "weight", CVY_PARAM_TRAINABLE, cvy_shape4(2, 3, 1, 1), zero);
    shared = cvy_graph_param(&g, "/shared.weight", CVY_PARAM_TRAINABLE, cvy_shape1(5), zero);
    stats = cvy_graph_param(&g, "running_mean", CVY_PARAM_STATE, cvy_shape1(4), zero);
    assert_int_equal(cvy_graph_param(&g, "steps", CVY_PARAM_COUNTER, cvy_shape0(), zero), CVY_NONE);
    assert_int_equal(cvy_graph_param(&g, "more_steps", CVY_PARAM_COUNTER, cvy_shape0(), zero), CVY_NONE);
    cvy_scope_pop(&g);
    cvy_scope_pop(&g);
    assert_string_equal(g.params[0].name, "layer1.0.weight");
    assert_string_equal(g.params[1].name, "shared.weight");
    assert_string_equal(g.params[2].name, "layer1.0.running_mean");
    assert_int_equal(g.params[0].offset, 0);
    assert_int_equal(g.params[1].offset, 6);
    assert_int_equal(g.params[2].offset, 0);
    assert_int_equal(g.params[4].offset, 1);
    assert_int_equal(g.trainable_elements, 11);
    assert_int_equal(g.state_elements, 4);
    assert_int_equal(g.counters, 2);
    /* The same name again is the same parameter, from any scope. */
    assert_int_equal(cvy_graph_param(&g, "/layer1.0.weight", CVY_PARAM_TRAINABLE, cvy_shape4(2, 3, 1, 1), zero), w);
    assert_int_equal(cvy_graph_param(&g, "shared.weight", CVY_PARAM_TRAINABLE, cvy_shape1(5), zero), shared);
    assert_int_equal(cvy_graph_param(&g, "layer1.0.running_mean", CVY_PARAM_STATE, cvy_shape1(4), zero), stats);
    assert_int_equal(g.param_count, 5);
    assert_int_equal(g.trainable_elements, 11);
    check_graph(&g);
    cvy_graph_release(&g);
}

static void sharing_under_other_terms_is_an_error(void **state)
{
    struct cvy_graph g;

    for (int i = 0; i < 2; i++) {
        cvy_graph_init(&g, true);
        (void)cvy_graph_param(&g, "w", CVY_PARAM_TRAINABLE, cvy_shape1(5), zero);
        if (i == 0)
            (void)cvy_graph_param(&g, "w", CVY_PARAM_TRAINABLE, cvy_shape2(5, 6), zero);
        else
            (void)cvy_graph_param(&g, "w", CVY_PARAM_STATE, cvy_shape1(5), zero);
        check_graph_error(&g, CVY_USAGE,
                          i == 0 ? "parameter \"w\" is shared with two shapes, 5 and 5x6"
                                 : "parameter \"w\" is shared as trainable and as state");
        cvy_graph_release(&g);
    }
}

static void the_first_error_sticks(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 3, 8, 8), y;
    int32_t values, params;
    char sentence[512];

    cvy_scope_push(&g, "layer2");
    cvy_scope_push(&g, "conv1");
    values = g.value_count;
    y = cvy_conv2d(&g, x, &(struct cvy_conv2d){.out = 4, .kernel = 3, .groups = 2});
    assert_int_equal(y, CVY_NONE);
    assert_int_equal(cvy_graph_status(&g), CVY_USAGE);
    strcpy(sentence, cvy_error());
    assert_non_null(strstr(sentence, "layer2.conv1: conv2d cannot split 3 input"));
    params = g.param_count;
    assert_int_equal(cvy_relu(&g, x), CVY_NONE);
    assert_int_equal(cvy_add(&g, y, x), CVY_NONE);
    assert_int_equal(cvy_batch_norm(&g, x, &(struct cvy_batch_norm){0}), CVY_NONE);
    assert_int_equal(cvy_max_pool(&g, x, &(struct cvy_max_pool){.kernel = 0}), CVY_NONE);
    assert_int_equal(cvy_global_avg_pool(&g, y), CVY_NONE);
    assert_int_equal(cvy_linear(&g, y, 0), CVY_NONE);
    assert_int_equal(cvy_softmax(&g, y), CVY_NONE);
    assert_int_equal(cvy_softmax_cross_entropy(&g, y, y, 2), CVY_NONE);
    assert_int_equal(cvy_cast(&g, y, CVY_F64), CVY_NONE);
    assert_int_equal(cvy_graph_input(&g, "x", CVY_F32, cvy_shape0(), false), CVY_NONE);
    cvy_scope_pop(&g);
    cvy_scope_pop(&g);
    cvy_scope_pop(&g);
    cvy_graph_result(&g, CVY_RESULT_NAMED, "y", -1, x);
    cvy_graph_backward(&g, cvy_ops, y, y);
    cvy_rewrite_fuse_training(&g);
    cvy_rewrite_fuse_inference(&g);
    cvy_rewrite_precision(&g, cvy_ops, CVY_F64);
    cvy_rewrite_remove_dead(&g);
    assert_int_equal(g.value_count, values);
    assert_int_equal(g.param_count, params);
    assert_int_equal(g.node_count, 0);
    assert_int_equal(g.result_count, 0);
    assert_int_equal(cvy_graph_status(&g), CVY_USAGE);
    assert_string_equal(cvy_error(), sentence);
    cvy_graph_release(&g);
    cvy_graph_release(&g); /* twice, and without a graph: nothing happens */
    cvy_graph_release(NULL);
}

static void scopes_refuse_what_would_break_names(void **state)
{
    static const char *const names[] = {"", "a.b", "/a"};
    struct cvy_graph g;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cvy_graph_init(&g, true);
        cvy_scope_push(&g, names[i]);
        check_graph_error(&g, CVY_FAILED, "cannot name a scope");
        cvy_graph_release(&g);
    }
    cvy_graph_init(&g, true);
    cvy_scope_pop(&g);
    check_graph_error(&g, CVY_FAILED, "no scope to leave");
    cvy_graph_release(&g);
    cvy_graph_init(&g, true);
    for (int i = 0; i < 200; i++)
        cvy_scope_push(&g, "nest");
    check_graph_error(&g, CVY_FAILED, "nested too deeply");
    cvy_graph_release(&g);
}

static void inputs_and_results_are_checked(void **state)
{
    static const struct {
        struct cvy_shape shape;
        bool nhwc;
    } bad[] = {{{2, {0, 4}}, false},
               {{2, {CVY_BATCH, -1}}, false},
               {{2, {CVY_BATCH, 4}}, true},
               {{9, {1}}, false},
               {{3, {CVY_BATCH, INT64_MAX / 2, 4}}, false}};
    struct cvy_graph g;
    cvy_val x;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cvy_graph_init(&g, true);
        assert_int_equal(cvy_graph_input(&g, "x", CVY_F32, bad[i].shape, bad[i].nhwc), CVY_NONE);
        check_graph_error(&g, CVY_USAGE, "input \"x\" cannot have the shape");
        cvy_graph_release(&g);
    }
    (void)start_graph(&g, true, 1, 1, 1);
    (void)cvy_graph_input(&g, "x", CVY_F32, cvy_shape0(), false);
    check_graph_error(&g, CVY_FAILED, "already has an input \"x\"");
    cvy_graph_release(&g);
    x = start_graph(&g, true, 1, 1, 1);
    cvy_graph_result(&g, CVY_RESULT_NAMED, "y", -1, x);
    assert_int_equal(cvy_graph_find_result(&g, "y"), x);
    assert_int_equal(cvy_graph_find_result(&g, "z"), CVY_NONE);
    cvy_graph_result(&g, CVY_RESULT_NAMED, "y", -1, x);
    check_graph_error(&g, CVY_FAILED, "already has a result \"y\"");
    cvy_graph_release(&g);
    (void)start_graph(&g, true, 1, 1, 1);
    cvy_graph_result(&g, CVY_RESULT_GRADIENT, NULL, 0, 0);
    check_graph_error(&g, CVY_FAILED, "result without a value");
    cvy_graph_release(&g);
}

static void sizes_never_overflow(void **state)
{
    struct cvy_graph g;
    cvy_val x;

    cvy_graph_init(&g, true);
    (void)cvy_graph_param(&g, "w", CVY_PARAM_TRAINABLE, cvy_shape2(INT64_MAX / 2, 4), zero);
    check_graph_error(&g, CVY_USAGE, "parameter \"w\" is empty or too large");
    cvy_graph_release(&g);
    /* Each fits, their sum does not. */
    cvy_graph_init(&g, true);
    (void)cvy_graph_param(&g, "v", CVY_PARAM_TRAINABLE, cvy_shape1(INT64_MAX / 16), zero);
    (void)cvy_graph_param(&g, "w", CVY_PARAM_TRAINABLE, cvy_shape1(INT64_MAX / 8), zero);
    check_graph_error(&g, CVY_USAGE, "parameter \"w\" is empty or too large");
    cvy_graph_release(&g);
    cvy_graph_init(&g, true);
    (void)cvy_graph_param(&g, "w", CVY_PARAM_TRAINABLE, cvy_shape2(CVY_BATCH, 4), zero);
    check_graph_error(&g, CVY_USAGE, "parameter \"w\" is empty or too large");
    cvy_graph_release(&g);
    x = start_graph(&g, true, 1, INT32_MAX, INT32_MAX / 16);
    (void)cvy_conv2d(&g, x, &(struct cvy_conv2d){.out = INT32_MAX, .kernel = 1});
    check_graph_error(&g, CVY_USAGE, "too large");
    cvy_graph_release(&g);
}

static void many_entries_fit(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 1, 2, 2);

    for (int i = 0; i < 3000; i++)
        x = cvy_relu(&g, x);
    cvy_graph_result(&g, CVY_RESULT_NAMED, "y", -1, x);
    assert_int_equal(g.node_count, 3000);
    check_graph(&g);
    cvy_graph_release(&g);
}

static void the_batch_is_checked(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 4, 1, 1);

    cvy_scope_push(&g, "bn1");
    x = cvy_batch_norm(&g, x, &(struct cvy_batch_norm){0});
    cvy_scope_pop(&g);
    check_graph(&g);
    assert_int_equal(cvy_graph_check_batch(&g, 2), CVY_OK);
    assert_int_equal(cvy_graph_check_batch(&g, 1), CVY_USAGE);
    assert_string_equal(cvy_error(),
                        "batch norm \"bn1\" needs more than one value per channel in training, its input is 1x4x1x1");
    assert_int_equal(cvy_graph_check_batch(&g, 0), CVY_USAGE);
    assert_fails(cvy_graph_check_batch(&g, INT64_MAX / 8), CVY_USAGE, "too large");
    cvy_graph_release(&g);
    x = start_graph(&g, true, 4, 1, 2);
    (void)cvy_batch_norm(&g, x, &(struct cvy_batch_norm){0});
    assert_int_equal(cvy_graph_check_batch(&g, 1), CVY_OK);
    cvy_graph_release(&g);
    x = start_graph(&g, false, 4, 1, 1);
    (void)cvy_batch_norm(&g, x, &(struct cvy_batch_norm){0});
    assert_int_equal(cvy_graph_check_batch(&g, 1), CVY_OK);
    cvy_graph_release(&g);
}

/* ---- backward ---- */

static void gradients_come_in_order_of_readiness(void **state)
{
    static const char *const order[] = {"fc.weight", "fc.bias", "c2.weight", "c1.weight"};
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 3, 8, 8);
    int32_t found = 0, first_backward;

    add_loss(&g, cvy_relu(&g, add_conv(&g, add_conv(&g, x, "c1", 4), "c2", 4)));
    check_graph(&g);
    for (int32_t r = 0; r < g.result_count; r++) {
        if (g.results[r].kind == CVY_RESULT_GRADIENT)
            assert_string_equal(g.params[g.results[r].param].name, order[found++]);
    }
    assert_int_equal(found, 4);
    /* The image has no gradient, the weights' comes before the data's, backward nodes say so and keep the scope. */
    assert_int_equal(count_nodes(&g, CVY_OP_CONV2D_BWD_DATA), 1);
    assert_int_equal(count_nodes(&g, CVY_OP_CONV2D_BWD_WEIGHTS), 2);
    assert_true(find_node(&g, CVY_OP_CONV2D_BWD_WEIGHTS, 0) < find_node(&g, CVY_OP_CONV2D_BWD_DATA, 0));
    assert_string_equal(g.nodes[find_node(&g, CVY_OP_CONV2D_BWD_DATA, 0)].scope, "c2");
    first_backward = find_node(&g, CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD, 0);
    for (int32_t n = 0; n < g.node_count; n++)
        assert_int_equal(g.nodes[n].backward, n >= first_backward);
    assert_string_equal(g.scope, "");
    cvy_graph_release(&g);
}

static void a_shared_parameter_adds_its_gradients(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 4, 8, 8);

    x = add_conv(&g, x, "head", 4);
    x = add_conv(&g, x, "head", 4);
    x = add_conv(&g, x, "head", 4);
    add_loss(&g, x);
    check_graph(&g);
    assert_int_equal(g.param_count, 3);
    assert_int_equal(count_nodes(&g, CVY_OP_CONV2D_BWD_WEIGHTS), 3);
    assert_int_equal(count_nodes(&g, CVY_OP_CONV2D_BWD_DATA), 2);
    assert_int_equal(count_nodes(&g, CVY_OP_ADD), 2);
    /* What is registered is the last sum. */
    assert_int_equal(g.values[gradient_of(&g, "head.weight")].producer, g.node_count - 1);
    assert_int_equal(g.nodes[g.node_count - 1].op, CVY_OP_ADD);
    cvy_graph_release(&g);
}

static void several_readers_add_their_gradients(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 4, 8, 8), y;
    const struct cvy_node *sum;

    y = add_conv(&g, x, "c1", 4);
    add_loss(&g, cvy_add(&g, cvy_relu(&g, y), y));
    check_graph(&g);
    assert_int_equal(count_nodes(&g, CVY_OP_ADD), 2);
    sum = &g.nodes[find_node(&g, CVY_OP_ADD, find_node(&g, CVY_OP_ADD, 0) + 1)];
    assert_true(sum->backward);
    assert_int_equal(g.nodes[find_node(&g, CVY_OP_CONV2D_BWD_WEIGHTS, 0)].in[1], sum->out[0]);
    cvy_graph_release(&g);
    /* One reader that reads twice. */
    x = start_graph(&g, true, 4, 8, 8);
    y = add_conv(&g, x, "c1", 4);
    add_loss(&g, cvy_add(&g, y, y));
    check_graph(&g);
    sum = &g.nodes[find_node(&g, CVY_OP_ADD, find_node(&g, CVY_OP_ADD, 0) + 1)];
    assert_int_equal(sum->in[0], sum->in[1]);
    cvy_graph_release(&g);
}

static void what_the_loss_does_not_see_has_no_gradient(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 4, 8, 8), aside;

    aside = add_conv(&g, x, "aside", 4);
    cvy_graph_result(&g, CVY_RESULT_NAMED, "aside", -1, cvy_global_avg_pool(&g, aside));
    add_loss(&g, add_conv(&g, x, "c1", 4));
    check_graph(&g);
    assert_int_equal(gradient_of(&g, "aside.weight"), CVY_NONE);
    assert_true(gradient_of(&g, "c1.weight") != CVY_NONE);
    /* Used before and after the last reader that matters. */
    cvy_graph_release(&g);
    x = start_graph(&g, true, 4, 8, 8);
    aside = add_conv(&g, x, "head", 4);
    cvy_graph_result(&g, CVY_RESULT_NAMED, "aside", -1, cvy_global_avg_pool(&g, aside));
    add_loss(&g, add_conv(&g, x, "head", 4));
    check_graph(&g);
    assert_int_equal(count_nodes(&g, CVY_OP_CONV2D_BWD_WEIGHTS), 1);
    assert_true(gradient_of(&g, "head.weight") != CVY_NONE);
    cvy_graph_release(&g);
}

static void shared_batch_norm_chains_its_statistics(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 4, 8, 8);
    const struct cvy_node *first, *second;

    x = add_norm(&g, add_norm(&g, x, "bn"), "bn");
    add_loss(&g, x);
    check_graph(&g);
    first = &g.nodes[0];
    second = &g.nodes[1];
    assert_int_equal(second->in[3], first->out[3]);
    assert_int_equal(second->in[4], first->out[4]);
    assert_int_equal(g.counters, 1);
    assert_int_equal(g.params[cvy_graph_find_param(&g, "bn.num_batches_tracked")].uses, 2);
    for (int32_t r = 0; r < g.result_count; r++) {
        if (g.results[r].kind == CVY_RESULT_STATE)
            assert_int_equal(g.values[g.results[r].value].producer, 1);
    }
    cvy_graph_release(&g);
}

static void backward_refuses_what_it_cannot_do(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 4, 8, 8), seed, y;

    seed = cvy_graph_input(&g, "seed", CVY_F32, cvy_shape0(), false);
    y = add_conv(&g, x, "c1", 4);
    cvy_graph_backward(&g, cvy_ops, y, seed);
    check_graph_error(&g, CVY_USAGE, "only a scalar loss");
    cvy_graph_release(&g);
    x = start_graph(&g, true, 4, 8, 8);
    cvy_graph_backward(&g, cvy_ops, CVY_NONE, x);
    check_graph_error(&g, CVY_FAILED, "needs a loss");
    cvy_graph_release(&g);
    /* Frozen statistics have no gradient rule. */
    x = start_graph(&g, false, 4, 8, 8);
    add_loss(&g, add_norm(&g, add_conv(&g, x, "c1", 4), "bn1"));
    check_graph_error(&g, CVY_USAGE, "bn1: batch_norm_inference cannot be differentiated");
    cvy_graph_release(&g);
}

/* ---- memory ---- */

static void failing_memory_is_an_error(void **state)
{
    static const struct cvy_model_options options = {.num_classes = 3, .image_size = 32, .std = {1, 1, 1}};
    const struct cvy_architecture *resnet18 = cvy_architecture_find("resnet18");
    int failures = 0;

    for (int mode = CVY_MODEL_TRAIN; mode <= CVY_MODEL_INFER; mode++) {
        for (int64_t n = 1;; n++) {
            struct cvy_graph g;
            cvy_status status;

            cvy_memory_fail_after(n, n % 2 == 0);
            status = cvy_model_graph(resnet18, &options, (enum cvy_model_mode)mode, true, &g);
            if (status == CVY_OK)
                cvy_rewrite_precision(&g, cvy_ops, CVY_F64);
            cvy_memory_fail_after(0, false);
            if (status == CVY_OK) {
                status = cvy_graph_status(&g);
                cvy_graph_release(&g);
            } else {
                assert_null(g.values); /* released */
            }
            if (status == CVY_OK)
                break;
            assert_int_equal(status, CVY_NO_MEMORY);
            failures++;
        }
    }
    assert_true(failures > 50);
}

RUN_TESTS(NULL, NULL, TEST(parameters_are_named_placed_and_shared), TEST(sharing_under_other_terms_is_an_error),
          TEST(the_first_error_sticks), TEST(scopes_refuse_what_would_break_names),
          TEST(inputs_and_results_are_checked), TEST(sizes_never_overflow), TEST(many_entries_fit),
          TEST(the_batch_is_checked), TEST(gradients_come_in_order_of_readiness),
          TEST(a_shared_parameter_adds_its_gradients), TEST(several_readers_add_their_gradients),
          TEST(what_the_loss_does_not_see_has_no_gradient), TEST(shared_batch_norm_chains_its_statistics),
          TEST(backward_refuses_what_it_cannot_do), TEST(failing_memory_is_an_error))
