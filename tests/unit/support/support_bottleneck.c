/* Bottleneck blocks for tests of whole plans. */
#include "support_bottleneck.h"

#include "base/rng.h"
#include "base/system.h"
#include "ops/ops.h"
#include "support_executor.h"
#include "support_graph.h"
#include "support_store.h"
#include "support_test.h"

static cvy_val conv_norm(struct cvy_graph *g, const char *name, cvy_val x, int32_t out, int32_t kernel, int32_t stride)
{
    const double terms = (double)g->values[x].shape.dim[1] * kernel * kernel;

    cvy_scope_push(g, name);
    x = cvy_conv2d(g, x,
                   &(struct cvy_conv2d){.out = out,
                                        .kernel = kernel,
                                        .stride = stride,
                                        .pad = kernel / 2,
                                        .init = {CVY_INIT_NORMAL, (float)sqrt(2 / terms)}});
    cvy_scope_push(g, "bn");
    x = cvy_batch_norm(g, x, &(struct cvy_batch_norm){0});
    cvy_scope_pop(g);
    cvy_scope_pop(g);
    return x;
}

/* stride 0: the input itself is added. */
static cvy_val bottleneck(struct cvy_graph *g, const char *name, cvy_val x, int32_t inner, int32_t out, int32_t stride)
{
    cvy_val y, shortcut = x;

    cvy_scope_push(g, name);
    y = cvy_relu(g, conv_norm(g, "conv1", x, inner, 1, 1));
    y = cvy_relu(g, conv_norm(g, "conv2", y, inner, 3, stride ? stride : 1));
    y = conv_norm(g, "conv3", y, out, 1, 1);
    if (stride)
        shortcut = conv_norm(g, "projection", x, out, 1, stride);
    cvy_scope_pop(g);
    return cvy_relu(g, cvy_add(g, y, shortcut));
}

static cvy_val blocks(struct cvy_graph *g, const struct bottleneck_network *network, cvy_val x)
{
    x = cvy_relu(g, conv_norm(g, "stem", x, 64, 3, 1));
    x = bottleneck(g, "first", x, 32, 128, network->stride);
    x = bottleneck(g, "second", x, 32, 128, 0);
    return network->last_stride ? bottleneck(g, "third", x, 64, 96, network->last_stride) : x;
}

void bottleneck_build(struct cvy_graph *g, const struct bottleneck_network *network, bool training,
                      enum cvy_dtype dtype)
{
    const float mean[] = {120, 115, 105}, std[] = {58, 57, 56};
    const bool fuse = dtype != CVY_F64;
    cvy_val x, target, scale, loss;

    cvy_graph_init(g, training);
    g->freeze = network->freeze;
    x = cvy_graph_input(g, "image", CVY_U8, cvy_shape4(CVY_BATCH, 3, network->height, network->width), true);
    x = cvy_global_avg_pool(g, blocks(g, network, cvy_normalize(g, x, mean, std)));
    cvy_scope_push(g, "fc");
    x = cvy_linear(g, x, BOTTLENECK_CLASSES);
    cvy_scope_pop(g);
    cvy_graph_result(g, CVY_RESULT_NAMED, "logits", -1, x);
    if (training) {
        target = cvy_graph_input(g, "target", CVY_I32, cvy_shape1(CVY_BATCH), false);
        scale = cvy_graph_input(g, "loss_scale", CVY_F32, cvy_shape0(), false);
        loss = cvy_softmax_cross_entropy(g, x, target, 0.1F);
        cvy_graph_result(g, CVY_RESULT_NAMED, "loss", -1, loss);
        if (fuse)
            cvy_rewrite_fuse_training(g);
        cvy_graph_backward(g, cvy_ops, loss, scale);
        if (fuse) {
            cvy_rewrite_recompute(g);
            cvy_rewrite_fuse_backward(g);
        }
    } else {
        cvy_rewrite_fuse_inference(g);
    }
    if (dtype != CVY_F32)
        cvy_rewrite_precision(g, cvy_ops, dtype);
    check_graph(g);
}

/* ---- one run ---- */

static double read_loss(struct cvy_plan *plan, bool wide)
{
    double loss;
    float narrow;

    if (wide) {
        assert_int_equal(cvy_plan_read(plan, "loss", &loss, sizeof loss), CVY_OK);
        return loss;
    }
    assert_int_equal(cvy_plan_read(plan, "loss", &narrow, sizeof narrow), CVY_OK);
    return (double)narrow;
}

struct feed {
    uint8_t *image;
    int32_t *labels;
};

static struct feed bind(struct cvy_plan *plan, const struct bottleneck_network *network, bool wide)
{
    static const float scale = 8;
    static const double wide_scale = 8;
    const size_t bytes = (size_t)plan->batch * 3 * (size_t)network->height * (size_t)network->width;
    const struct feed feed = {malloc(bytes), malloc((size_t)plan->batch * sizeof *feed.labels)};
    struct cvy_rng rng = cvy_rng_new(2, CVY_RNG_TEST, 0, 0);

    assert_non_null(feed.image);
    assert_non_null(feed.labels);
    for (size_t i = 0; i < bytes; i++)
        feed.image[i] = (uint8_t)cvy_rng_below(&rng, 256);
    for (int64_t i = 0; i < plan->batch; i++)
        feed.labels[i] = (int32_t)((4 + 3 * i) % BOTTLENECK_CLASSES);
    assert_int_equal(cvy_plan_bind(plan, "image", feed.image), CVY_OK);
    assert_int_equal(cvy_plan_bind(plan, "target", feed.labels), CVY_OK);
    wide = wide && plan->graph.values[plan->graph.input_list[2].value].dtype == CVY_F64;
    assert_int_equal(cvy_plan_bind(plan, "loss_scale", wide ? (const void *)&wide_scale : (const void *)&scale),
                     CVY_OK);
    return feed;
}

struct bottleneck_outcome bottleneck_run(const char *device_name, int threads, const struct bottleneck_network *network,
                                         int64_t batch, void (*inspect)(const struct cvy_plan *plan, void *context),
                                         void *context)
{
    const bool wide = strcmp(device_name, "ref") == 0;
    cvy_device *device = executor_device(device_name, threads);
    struct bottleneck_outcome outcome;
    struct cvy_store store;
    struct cvy_graph graph;
    struct cvy_plan plan;
    struct feed feed;

    bottleneck_build(&graph, network, true, wide ? CVY_F64 : CVY_BF16);
    assert_int_equal(cvy_store_open(&store, device, graph.trainable_elements, graph.state_elements, true), CVY_OK);
    if (cvy_plan_open(&plan, device, &store, &graph, batch) != CVY_OK)
        fail_msg("%s", cvy_error());
    feed = bind(&plan, network, wide);
    for (int round = 0; round < (wide ? 1 : 2); round++) {
        store_fill(&plan.graph, &store); /* host memory; the running statistics start again */
        if (cvy_plan_run(&plan, NULL) != CVY_OK)
            fail_msg("%s: %s", device_name, cvy_error());
    }
    if (inspect)
        inspect(&plan, context);
    outcome = (struct bottleneck_outcome){.loss = read_loss(&plan, wide),
                                          .gradients = store_copy(store.gradients, store.trainable_elements),
                                          .state = store_copy(store.state, store.state_elements),
                                          .gradient_count = store.trainable_elements,
                                          .state_count = store.state_elements};
    cvy_plan_close(&plan);
    cvy_store_close(&store);
    cvy_device_close(device);
    free(feed.image);
    free(feed.labels);
    return outcome;
}

void bottleneck_release(struct bottleneck_outcome *outcome)
{
    free(outcome->gradients);
    free(outcome->state);
}

void bottleneck_same_bits(const struct bottleneck_outcome *one, const struct bottleneck_outcome *other)
{
    assert_memory_equal(&one->loss, &other->loss, sizeof one->loss);
    assert_memory_equal(one->gradients, other->gradients, (size_t)one->gradient_count * sizeof *one->gradients);
    assert_memory_equal(one->state, other->state, (size_t)one->state_count * sizeof *one->state);
}
