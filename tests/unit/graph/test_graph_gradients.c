/* Gradients of whole graphs, as they are written and after each of the rewrites, against finite differences. */
#include "ops/ops.h"
#include "support_gradients.h"
#include "support_test.h"

enum variant { VARIANT_PLAIN, VARIANT_FUSED, VARIANT_RECOMPUTED, VARIANT_BACKWARD }; /* each does more */

static cvy_val shared_conv(struct cvy_graph *g, cvy_val x)
{
    cvy_val y;

    cvy_scope_push(g, "shared");
    y = cvy_conv2d(g, x, &(struct cvy_conv2d){.out = 4, .kernel = 3, .pad = 1, .groups = 2, .bias = true});
    cvy_scope_pop(g);
    return y;
}

static cvy_val norm(struct cvy_graph *g, const char *name, cvy_val x)
{
    cvy_val y;

    cvy_scope_push(g, name);
    y = cvy_batch_norm(g, x, &(struct cvy_batch_norm){.eps = 0.2F, .momentum = 0.3F});
    cvy_scope_pop(g);
    return y;
}

/* A convolution and a linear layer that are used twice, a value that is read three times, a residual block, a value
 * that meets itself in an addition, and a loss whose gradient is not 1. */
static cvy_val build_network(struct cvy_graph *g)
{
    cvy_val x = cvy_graph_input(g, "x", CVY_F32, cvy_shape4(CVY_BATCH, 4, 6, 5), false), y, z, features;
    cvy_val labels = cvy_graph_input(g, "labels", CVY_I32, cvy_shape1(CVY_BATCH), false);

    y = cvy_relu(g, norm(g, "bn1", shared_conv(g, x)));
    z = norm(g, "bn2", cvy_relu(g, shared_conv(g, y)));  /* without the relu the bias would have no effect */
    z = cvy_relu(g, cvy_add(g, z, y));                   /* second reader of y */
    z = cvy_add(g, z, norm(g, "bn3", cvy_add(g, y, y))); /* third and fourth */
    z = cvy_max_pool(g, z, &(struct cvy_max_pool){.kernel = 3, .stride = 2, .use_pads = true, .pads = {1, 0, 1, 1}});
    cvy_scope_push(g, "conv2");
    z = cvy_conv2d(g, z,
                   &(struct cvy_conv2d){.out = 4,
                                        .kernel_hw = {2, 3},
                                        .stride_hw = {1, 2},
                                        .dilation_hw = {2, 1},
                                        .use_pads = true,
                                        .pads = {1, 0, 2, 0}});
    cvy_scope_pop(g);
    features = cvy_global_avg_pool(g, z);
    cvy_scope_push(g, "fc");
    features = cvy_linear(g, features, 4);
    features = cvy_linear(g, features, 4);
    cvy_scope_pop(g);
    return cvy_softmax_cross_entropy(g, features, labels, 0.1F);
}

/* A residual block with squeeze and excitation: the batch norm's output is read by the mean and by the product. */
static cvy_val build_excited(struct cvy_graph *g)
{
    cvy_val x = cvy_graph_input(g, "x", CVY_F32, cvy_shape4(CVY_BATCH, 4, 3, 4), false), y, s;
    cvy_val labels = cvy_graph_input(g, "labels", CVY_I32, cvy_shape1(CVY_BATCH), false);

    x = cvy_relu(g, shared_conv(g, x));
    y = norm(g, "bn1", x);
    cvy_scope_push(g, "fc1");
    s = cvy_relu(g, cvy_linear_1x1(g, cvy_global_avg_pool(g, y), 8));
    cvy_scope_pop(g);
    cvy_scope_push(g, "fc2");
    s = cvy_sigmoid(g, cvy_linear_1x1(g, s, 4));
    cvy_scope_pop(g);
    x = cvy_relu(g, cvy_add(g, cvy_scale_channels(g, y, s), x));
    cvy_scope_push(g, "fc");
    x = cvy_linear(g, cvy_global_avg_pool(g, x), 4);
    cvy_scope_pop(g);
    return cvy_softmax_cross_entropy(g, x, labels, 0.1F);
}

/* `parameters`: how many are trained. */
static void check_network(cvy_device *device, enum variant variant, cvy_val (*build)(struct cvy_graph *),
                          int32_t parameters)
{
    static const double projection[] = {-1.75};
    struct cvy_graph graph;
    struct executor executor;
    struct cvy_rng rng = cvy_rng_new(11, CVY_RNG_TEST, 0, 0);
    cvy_val loss, seed;
    int32_t forward, checked = 0;

    cvy_graph_init(&graph, true);
    loss = build(&graph);
    seed = cvy_graph_input(&graph, "seed", CVY_F32, cvy_shape0(), false);
    cvy_graph_result(&graph, CVY_RESULT_NAMED, "loss", -1, loss);
    if (variant != VARIANT_PLAIN)
        cvy_rewrite_fuse_training(&graph);
    loss = cvy_graph_find_result(&graph, "loss");
    seed = graph.input_list[2].value;
    forward = graph.node_count;
    cvy_graph_backward(&graph, cvy_ops, loss, seed);
    if (variant >= VARIANT_RECOMPUTED)
        cvy_rewrite_recompute(&graph);
    if (variant >= VARIANT_BACKWARD)
        cvy_rewrite_fuse_backward(&graph);
    assert_int_equal(cvy_graph_status(&graph), CVY_OK);
    gradient_to_double(&graph);
    executor_open(&executor, device, &graph, 3);
    for (cvy_val v = 0; v < graph.value_count; v++) {
        if (graph.values[v].producer < 0)
            gradient_write_random(&executor, v, &rng, graph.values[v].dtype == CVY_I32 ? 0 : -1,
                                  graph.values[v].dtype == CVY_I32 ? 4 : 1);
    }
    executor_write(&executor, seed, projection);
    executor_run(&executor, 0, graph.node_count);
    for (int32_t r = 0; r < graph.result_count; r++) {
        const struct cvy_graph_result *result = &graph.results[r];
        const struct gradient_objective f = {&executor, forward, loss, projection};
        double *gradient;
        if (result->kind != CVY_RESULT_GRADIENT)
            continue;
        gradient = malloc((size_t)executor_elements(&executor, result->value) * sizeof *gradient);
        assert_non_null(gradient);
        executor_run(&executor, 0, graph.node_count);
        executor_read(&executor, result->value, gradient);
        gradient_check(&f, graph.params[result->param].name, graph.params[result->param].value, gradient);
        free(gradient);
        checked++;
    }
    assert_int_equal(checked, parameters);
    executor_close(&executor);
    cvy_graph_release(&graph);
}

/* Weights and biases of shared, conv2 (weight only) and fc, gamma and beta of three norms. */
enum { NETWORK_PARAMETERS = 2 + 1 + 2 + 6 };
/* Weights and biases of shared, fc1, fc2 and fc, gamma and beta of the norm. */
enum { EXCITED_PARAMETERS = 2 + 4 + 2 + 2 };

static void a_network_that_shares(void **state)
{
    check_network(*state, VARIANT_PLAIN, build_network, NETWORK_PARAMETERS);
}

static void the_same_fused(void **state)
{
    check_network(*state, VARIANT_FUSED, build_network, NETWORK_PARAMETERS);
}

static void the_same_recomputed(void **state)
{
    check_network(*state, VARIANT_RECOMPUTED, build_network, NETWORK_PARAMETERS);
}

static void the_same_fused_backward(void **state)
{
    check_network(*state, VARIANT_BACKWARD, build_network, NETWORK_PARAMETERS);
}

static void squeeze_and_excitation(void **state)
{
    for (int variant = VARIANT_PLAIN; variant <= VARIANT_BACKWARD; variant++)
        check_network(*state, (enum variant)variant, build_excited, EXCITED_PARAMETERS);
}

RUN_TESTS(gradient_setup, gradient_teardown, TEST(a_network_that_shares), TEST(the_same_fused),
          TEST(the_same_recomputed), TEST(the_same_fused_backward), TEST(squeeze_and_excitation))
