/* LARS against its formulas, written down here in double. */
#include "ops/ops.h"
#include "support_test.h"
#include "trainer/optimizer.h"

/* One layer with a bias: the second step too, where momentum counts. */
static void steps(void **state)
{
    static const float rate = 0.1f;
    enum { WEIGHTS = 6, ALL = 8 };
    const struct cvy_optimizer_options options = {
        .momentum = 0.5f, .weight_decay = 0.25f, .decay_rule = CVY_DECAY_WEIGHTS, .lars_eta = 0.02};
    struct cvy_optimizer optimizer;
    struct cvy_store store;
    struct cvy_graph graph;
    cvy_device *device;
    double w[ALL], v[ALL] = {0};

    assert_int_equal(cvy_device_open("ref", 2, &device), CVY_OK);
    cvy_graph_init(&graph, false);
    const cvy_val x = cvy_graph_input(&graph, "x", CVY_F32, cvy_shape2(CVY_BATCH, 3), 0);
    (void)cvy_linear(&graph, x, 2);
    assert_int_equal(cvy_graph_status(&graph), CVY_OK);
    assert_int_equal(graph.trainable_elements, ALL);
    assert_int_equal(cvy_store_open(&store, device, ALL, 0, true), CVY_OK);
    assert_int_equal(cvy_optimizer_open(&optimizer, &graph, &options), CVY_OK);
    for (int i = 0; i < ALL; i++)
        store.weights[i] = (float)(w[i] = 0.5 * i - 1);
    for (int step = 0; step < 2; step++) {
        double size = 0, slope = 0;

        for (int i = 0; i < ALL; i++)
            store.gradients[i] = (float)(i - 3 + step); /* twice what counts: gradient_scale is 0.5 */
        for (int i = 0; i < WEIGHTS; i++) {
            size += w[i] * w[i];
            slope += 0.25 * (i - 3 + step) * (i - 3 + step);
        }
        const double ratio = 0.02 * sqrt(size) / (sqrt(slope) + 0.25 * sqrt(size));
        for (int i = 0; i < ALL; i++) {
            const double g = 0.5 * (i - 3 + step);
            v[i] = 0.5 * v[i] + (i < WEIGHTS ? ratio * (g + 0.25 * w[i]) : g); /* the bias: plain, without decay */
            w[i] -= 0.1 * v[i];
        }
        assert_int_equal(cvy_optimizer_step(&optimizer, &store, &rate, 0.5f, NULL), CVY_OK);
        for (int i = 0; i < ALL; i++) /* floats of at most 3, a few roundings */
            assert_true(fabs((double)store.weights[i] - w[i]) < 1e-6);
    }
    cvy_optimizer_close(&optimizer);
    cvy_store_close(&store);
    cvy_graph_release(&graph);
    cvy_device_close(device);
}

/* A scaled loss has gradients of another size. */
static void scaled_losses(void **state)
{
    const struct cvy_optimizer_options options = {.lars_eta = 0.02, .loss_scale = 2};
    struct cvy_optimizer optimizer;
    struct cvy_graph graph;

    cvy_graph_init(&graph, false);
    assert_fails(cvy_optimizer_open(&optimizer, &graph, &options), CVY_USAGE, "lars");
    cvy_optimizer_close(&optimizer);
    cvy_graph_release(&graph);
}

RUN_TESTS(NULL, NULL, TEST(steps), TEST(scaled_losses))
