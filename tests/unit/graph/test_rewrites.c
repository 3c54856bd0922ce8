/* Rewrites change the nodes, not the numbers: fused and plain graphs of one network, run by the reference in double. */
#include "backend/plan.h"
#include "base/rng.h"
#include "models/resnet.h"
#include "ops/ops.h"
#include "support_graph.h"
#include "support_test.h"

enum { CLASSES = 7, SIZE = 33, BATCH = 2 };

/* Both kinds of block, with and without projection, narrow enough for the reference. */
static const struct cvy_resnet basic = {
    .bottleneck = false, .blocks = {2, 1, 2, 1}, .width = {64, 16, 16, 24}, .expansion = 1, .groups = 1};
static const struct cvy_resnet bottleneck = {
    .bottleneck = true, .blocks = {2, 1, 2, 1}, .width = {8, 16, 16, 24}, .expansion = 2, .groups = 4};
/* The first stage has two blocks after each other without projection. */
static const struct cvy_resnet excited = {
    .bottleneck = true, .blocks = {3, 1, 2, 1}, .width = {8, 16, 16, 24}, .expansion = 2, .groups = 4};
static const struct cvy_architecture architectures[] = {
    {.name = "basic", .build = cvy_resnet_build, .config = &basic, .default_image_size = SIZE},
    {.name = "bottleneck", .build = cvy_resnet_build, .config = &bottleneck, .default_image_size = SIZE},
    {.name = "se-bottleneck",
     .build = cvy_resnet_build,
     .config = &excited,
     .default_image_size = SIZE,
     .squeeze_width = 4},
    {.name = "se-c/4", /* hidden units by width, and windows that lie off centre */
     .build = cvy_resnet_build,
     .config = &excited,
     .default_image_size = SIZE,
     .squeeze_width = 4}};
enum {
    ARCHITECTURES = sizeof architectures / sizeof *architectures,
    FIRST_EXCITED = 2,
    OFF_CENTRE = 3,
    EXCITED_BLOCKS = 3 + 1 + 2 + 1,
    EXCITED_PROJECTIONS = 4
};

/* What one run leaves. */
struct outcome {
    double logits[BATCH * CLASSES], second[BATCH * CLASSES]; /* second: the loss, or the probabilities */
    float *gradients, *state;
    int64_t gradient_count, state_count;
};

static void fill_store(const struct cvy_graph *graph, struct cvy_store *store)
{
    for (int32_t p = 0; p < graph->param_count; p++) {
        const struct cvy_param *param = &graph->params[p];
        float *to = param->kind == CVY_PARAM_TRAINABLE ? store->weights : store->state;
        struct cvy_rng rng = cvy_rng_new(1, CVY_RNG_TEST, 0, (uint32_t)p);

        if (param->kind == CVY_PARAM_COUNTER)
            continue;
        if (strstr(param->name, "_quantizer.observed")) { /* training looks for itself */
            static const float seen[3] = {-3, 3, 1};
            for (int i = 0; i < 3 && !store->gradients; i++)
                to[param->offset + i] = seen[i];
            continue;
        }
        for (int64_t i = 0; i < cvy_shape_elements(&param->shape); i++) {
            double base = param->init == CVY_INIT_ONE ? 1 : 0;
            double spread = param->init == CVY_INIT_ONE || param->init == CVY_INIT_ZERO ? 0.2 : param->init_scale;
            double value = base + spread * cvy_rng_normal(&rng);
            /* A variance is positive. */
            to[param->offset + i] = (float)(param->init == CVY_INIT_ONE ? fabs(value) + 0.1 : value);
        }
    }
    store->version++;
}

/* Nodes of a kind in the forward or the backward pass that have an optional input. */
static int32_t with_input(const struct cvy_graph *graph, enum cvy_op op, bool backward, int32_t input)
{
    int32_t count = 0;

    for (int32_t n = 0; n < graph->node_count; n++)
        count += graph->nodes[n].op == op && graph->nodes[n].backward == backward && graph->nodes[n].inputs > input &&
                 graph->nodes[n].in[input] != CVY_NONE;
    return count;
}

/* Lets convolutions make the statistics: here each batch norm stands after one, which has two outputs more. */
static void move_statistics(struct cvy_graph *graph)
{
    const int32_t norms = count_nodes(graph, CVY_OP_BATCH_NORM), values = graph->value_count;

    cvy_rewrite_statistics(graph);
    check_graph(graph);
    assert_true(norms > 0);
    assert_int_equal(with_input(graph, CVY_OP_BATCH_NORM, false, 6), norms);
    assert_int_equal(with_input(graph, CVY_OP_BATCH_NORM, false, 7), norms);
    assert_int_equal(graph->value_count, values + 2 * norms);
    cvy_rewrite_statistics(graph); /* once */
    assert_int_equal(graph->value_count, values + 2 * norms);
}

/* Lets convolutions do the work of the batch norms before them, wherever that can be. */
static void take_patterns(struct cvy_graph *graph)
{
    int32_t prologues = 0, sums = 0;

    for (int32_t n = 0; n < graph->node_count; n++) {
        struct cvy_conv_pattern pattern;
        int32_t norm;

        if (graph->nodes[n].op == CVY_OP_CONV2D && cvy_prologue_find(graph, n, &pattern)) {
            cvy_prologue_fuse(graph, &pattern);
            assert_false(cvy_prologue_find(graph, n, &pattern)); /* once */
            prologues++;
        }
        norm = graph->nodes[n].op == CVY_OP_CONV2D_BWD_DATA ? cvy_gradient_sums_find(graph, n) : -1;
        if (norm >= 0) {
            cvy_gradient_sums_fuse(graph, n, norm);
            assert_int_equal(cvy_gradient_sums_find(graph, n), -1);
            sums++;
        }
    }
    check_graph(graph);
    /* Every batch norm within a block, of which each has one or more. */
    assert_true(prologues >= 6);
    assert_int_equal(sums, prologues);
    assert_int_equal(with_input(graph, CVY_OP_CONV2D, false, 4), prologues);
    assert_int_equal(with_input(graph, CVY_OP_CONV2D_BWD_WEIGHTS, true, 2), prologues);
    assert_int_equal(with_input(graph, CVY_OP_BATCH_NORM_BWD, true, 8), sums);
}

static bool fuse_neighbours(struct cvy_graph *graph, int32_t n, int32_t fused[6])
{
    bool (*const fuse[6])(struct cvy_graph *,
                          int32_t) = {cvy_norm_keep_sign, cvy_norm_take_residual,      cvy_norm_take_residual_gradient,
                                      cvy_pool_take_norm, cvy_pool_take_norm_gradient, cvy_pool_take_sum};
    bool any = false;

    for (int i = 0; i < 6; i++) {
        const bool done = fuse[i](graph, n);
        fused[i] += done;
        any |= done;
    }
    return any;
}

/* Lets gradients of data make the sums where blocks end, wherever that can be: `blocks` ends that are no sum of two
 * batch norms. */
static void take_block_ends(struct cvy_graph *graph, int32_t blocks)
{
    int32_t sums = 0;

    for (int32_t n = 0; n < graph->node_count; n++) {
        const int32_t norm = cvy_residual_sums_find(graph, n);

        if (norm < 0)
            continue;
        cvy_residual_sums_fuse(graph, n, norm);
        assert_int_equal(cvy_residual_sums_find(graph, n), -1); /* once */
        sums++;
    }
    cvy_rewrite_order(graph);
    check_graph(graph);
    assert_int_equal(sums, blocks);
    assert_int_equal(with_input(graph, CVY_OP_CONV2D_BWD_DATA, true, 8), sums);
}

/* Lets gradients of weights make again what they alone read, wherever that can be. */
static void take_weights(struct cvy_graph *graph)
{
    const int32_t made_again = count_nodes(graph, CVY_OP_BATCH_NORM_APPLY);
    int32_t taken = 0;

    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *node = &graph->nodes[n];
        const int32_t producer =
            node->op == CVY_OP_CONV2D_BWD_WEIGHTS && node->inputs == 2 ? graph->values[node->in[0]].producer : -1;
        const struct cvy_node norm = producer < 0 ? (struct cvy_node){.op = CVY_OP_ADD} : graph->nodes[producer];
        const bool expected = norm.op == CVY_OP_BATCH_NORM_APPLY && norm.inputs == 5 &&
                              norm.attr.batch_norm.activation == CVY_ACTIVATION_RELU &&
                              cvy_graph_uses(graph, norm.out[0]) == 1;
        assert_int_equal(cvy_weights_take_norm(graph, n), expected);
        assert_false(cvy_weights_take_norm(graph, n)); /* once */
        if (expected) {
            assert_int_equal(node->inputs, 6);
            assert_int_equal(node->in[0], norm.in[0]);
            assert_memory_equal(&node->in[2], &norm.in[1], 4 * sizeof norm.in[0]);
        }
        taken += expected;
    }
    cvy_rewrite_remove_dead(graph);
    check_graph(graph);
    assert_int_equal(with_input(graph, CVY_OP_CONV2D_BWD_WEIGHTS, true, 2), taken);
    assert_int_equal(count_nodes(graph, CVY_OP_BATCH_NORM_APPLY), made_again - taken);
    assert_true(taken >= 6); /* each block has one or more */
}

/* Computes the batch norms at blocks' ends in closed form, wherever that can be, and lets gradients of data add what
 * comes of it. */
static void take_products(struct cvy_graph *graph)
{
    const int32_t norms = count_nodes(graph, CVY_OP_BATCH_NORM), ends = with_input(graph, CVY_OP_BATCH_NORM, false, 5);
    const int32_t made_again = with_input(graph, CVY_OP_BATCH_NORM_APPLY, true, 5);
    int32_t taken = 0, sums = 0;

    for (int32_t n = graph->node_count - 1; n >= 0; n--) {
        struct cvy_product_norm found;

        if (!cvy_product_norm_find(graph, n, &found))
            continue;
        cvy_product_norm_fuse(graph, &found);
        assert_false(cvy_product_norm_find(graph, n, &found)); /* once */
        taken++;
    }
    cvy_rewrite_order(graph);
    for (int32_t n = 0; n < graph->node_count; n++) {
        const int32_t norm = graph->nodes[n].op == CVY_OP_CONV2D_BWD_DATA ? cvy_gradient_sums_find_two(graph, n) : -1;
        if (norm < 0)
            continue;
        cvy_gradient_sums_fuse(graph, n, norm);
        assert_int_equal(cvy_gradient_sums_find_two(graph, n), -1);
        sums += graph->nodes[n].inputs == 9;
    }
    cvy_rewrite_order(graph);
    cvy_rewrite_remove_dead(graph);
    check_graph(graph);
    /* The last block of all has one gradient of its output alone. */
    assert_int_equal(taken, ends - 1);
    assert_int_equal(sums, taken);
    assert_int_equal(count_nodes(graph, CVY_OP_PRODUCT_NORM), taken);
    assert_int_equal(count_nodes(graph, CVY_OP_PRODUCT_NORM_BWD), taken);
    assert_int_equal(count_nodes(graph, CVY_OP_BATCH_NORM), norms - taken);
    assert_int_equal(with_input(graph, CVY_OP_CONV2D, false, 8), taken);
    assert_int_equal(with_input(graph, CVY_OP_CONV2D_BWD_DATA, true, 7), taken);
    assert_int_equal(with_input(graph, CVY_OP_BATCH_NORM_APPLY, true, 5), made_again ? made_again - taken : 0);
}

/* Lets batch norms and pools do their neighbours' work, wherever that can be. */
static void take_neighbours(struct cvy_graph *graph)
{
    const int32_t norms = count_nodes(graph, CVY_OP_BATCH_NORM), adds = count_nodes(graph, CVY_OP_ADD);
    const int32_t masked = with_input(graph, CVY_OP_BATCH_NORM_BWD, true, 6);
    int32_t fused[6] = {0};

    for (int32_t n = 0; n < graph->node_count; n++) {
        fuse_neighbours(graph, n, fused);
        assert_false(fuse_neighbours(graph, n, fused)); /* once */
    }
    cvy_rewrite_remove_dead(graph);
    check_graph(graph);
    /* Where blocks end, some of them with a projection; what is added in a block that excites is no batch norm's
     * output. The stem's pool. */
    assert_true(masked > 0);
    assert_int_equal(fused[0], masked);
    assert_int_equal(fused[1], fused[2]);
    assert_int_equal(fused[1] > 0, count_nodes(graph, CVY_OP_SCALE_CHANNELS) == 0);
    for (int i = 3; i < 6; i++)
        assert_int_equal(fused[i], 1);
    assert_int_equal(count_nodes(graph, CVY_OP_BATCH_NORM), norms);
    assert_int_equal(count_nodes(graph, CVY_OP_BATCH_NORM_BWD), norms - fused[2] - 1);
    assert_int_equal(count_nodes(graph, CVY_OP_ADD), adds - 1);
    assert_int_equal(with_input(graph, CVY_OP_BATCH_NORM, false, 8), fused[1]);
    assert_int_equal(with_input(graph, CVY_OP_BATCH_NORM_BWD, true, 10), fused[2]);
    assert_int_equal(with_input(graph, CVY_OP_MAX_POOL, false, 1), 1);
    assert_int_equal(with_input(graph, CVY_OP_MAX_POOL_BWD, true, 3), 1);
    /* The last block of all is a sum of two batch norms where nothing excites; else its gradient is one alone. */
    take_block_ends(graph, fused[1] > 0 ? masked - fused[2] : masked - 1);
}

enum statistics { OWN, MOVED, MOVED_AND_PATTERNS, PATTERNS, PRODUCTS };

/* Runs `graph` (which it takes over) once. */
static void run(struct cvy_graph *graph, bool training, enum statistics statistics, struct outcome *outcome)
{
    static uint8_t image[BATCH * SIZE * SIZE * 3];
    static const int32_t labels[BATCH] = {4, 0};
    static const float scale = 8;
    struct cvy_rng rng = cvy_rng_new(2, CVY_RNG_TEST, 0, 0);
    struct cvy_store store;
    struct cvy_plan plan;
    cvy_device *device;

    memset(outcome, 0, sizeof *outcome);
    cvy_rewrite_precision(graph, cvy_ops, CVY_F64);
    if (statistics == MOVED || statistics == MOVED_AND_PATTERNS)
        move_statistics(graph);
    if (statistics == MOVED_AND_PATTERNS)
        take_patterns(graph);
    if (statistics == PATTERNS)
        take_weights(graph);
    if (statistics == PRODUCTS)
        take_products(graph);
    if (statistics == MOVED_AND_PATTERNS || statistics == PATTERNS)
        take_neighbours(graph);
    check_graph(graph);
    outcome->gradient_count = graph->trainable_elements;
    outcome->state_count = graph->state_elements;
    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (uint8_t)cvy_rng_below(&rng, 256);
    assert_int_equal(cvy_device_open("ref", 1, &device), CVY_OK);
    assert_int_equal(cvy_store_open(&store, device, graph->trainable_elements, graph->state_elements, training),
                     CVY_OK);
    fill_store(graph, &store);
    if (cvy_plan_open(&plan, device, &store, graph, BATCH) != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_int_equal(cvy_plan_bind(&plan, "image", image), CVY_OK);
    if (training) {
        assert_int_equal(cvy_plan_bind(&plan, "target", labels), CVY_OK);
        assert_int_equal(cvy_plan_bind(&plan, "loss_scale", &scale), CVY_OK);
    }
    assert_int_equal(cvy_plan_run(&plan, NULL), CVY_OK);
    assert_int_equal(cvy_plan_read(&plan, "logits", outcome->logits, sizeof outcome->logits), CVY_OK);
    if (training)
        assert_int_equal(cvy_plan_read(&plan, "loss", outcome->second, sizeof *outcome->second), CVY_OK);
    else
        assert_int_equal(cvy_plan_read(&plan, "probabilities", outcome->second, sizeof outcome->second), CVY_OK);
    if (training) {
        outcome->gradients = malloc((size_t)outcome->gradient_count * sizeof *outcome->gradients);
        assert_non_null(outcome->gradients);
        memcpy(outcome->gradients, store.gradients, (size_t)outcome->gradient_count * sizeof *outcome->gradients);
    }
    outcome->state = malloc((size_t)outcome->state_count * sizeof *outcome->state);
    assert_non_null(outcome->state);
    memcpy(outcome->state, store.state, (size_t)outcome->state_count * sizeof *outcome->state);
    cvy_plan_close(&plan);
    cvy_store_close(&store);
    cvy_device_close(device);
}

static void build_with(struct cvy_graph *graph, const struct cvy_architecture *architecture, enum cvy_model_mode mode,
                       bool fuse, const char *freeze, enum cvy_quantize quantize)
{
    struct cvy_model_options options = {
        .num_classes = CLASSES, .image_size = SIZE, .mean = {120, 115, 105}, .std = {58, 57, 56}};

    options.label_smoothing = 0.1F;
    options.freeze = freeze;
    options.quantize = quantize;
    options.resnet.same_padding = architecture == &architectures[OFF_CENTRE];
    if (options.resnet.same_padding)
        options.resnet.squeeze_width = -4;
    if (cvy_model_graph(architecture, &options, mode, fuse, graph) != CVY_OK)
        fail_msg("%s", cvy_error());
}

static void build_frozen(struct cvy_graph *graph, const struct cvy_architecture *architecture, enum cvy_model_mode mode,
                         bool fuse, const char *freeze)
{
    build_with(graph, architecture, mode, fuse, freeze, CVY_QUANTIZE_NONE);
}

static void build(struct cvy_graph *graph, const struct cvy_architecture *architecture, enum cvy_model_mode mode,
                  bool fuse)
{
    build_frozen(graph, architecture, mode, fuse, NULL);
}

static void compare_doubles(const double *a, const double *b, size_t count, double tolerance)
{
    double largest = 0;

    for (size_t i = 0; i < count; i++) {
        assert_true(isfinite(a[i]));
        largest = fmax(largest, fabs(a[i]));
    }
    assert_true(largest > 0);
    for (size_t i = 0; i < count; i++)
        assert_true(fabs(a[i] - b[i]) <= tolerance * largest);
}

static void compare_floats(const float *a, const float *b, int64_t count)
{
    double largest = 0;

    for (int64_t i = 0; i < count; i++) {
        assert_true(isfinite(a[i]));
        largest = fmax(largest, fabs((double)a[i]));
    }
    assert_true(largest > 0);
    /* Both were computed in double and rounded to float once: they differ by one rounding (2^-23) at most; what cancels
     * in double is far below 1e-9 of the largest. */
    for (int64_t i = 0; i < count; i++)
        assert_true(fabs((double)a[i] - (double)b[i]) <= 1.2e-7 * fabs((double)a[i]) + 1e-9 * largest);
}

static void release(struct outcome *outcome)
{
    free(outcome->gradients);
    free(outcome->state);
}

static void check_fused(const struct cvy_graph *graph, size_t architecture)
{
    const int32_t identities = EXCITED_BLOCKS - EXCITED_PROJECTIONS;

    assert_true(count_nodes(graph, CVY_OP_BATCH_NORM_APPLY) > 0);
    assert_int_equal(count_nodes(graph, CVY_OP_NORMALIZE), 2);
    if (architecture < FIRST_EXCITED) {
        assert_int_equal(count_nodes(graph, CVY_OP_RELU), 0);
        /* Every block's output; in the basic network the first two are a chain, others have a projection's batch norm
         * made again for them alone. */
        assert_int_equal(with_input(graph, CVY_OP_BATCH_NORM_APPLY, true, 5), 6);
        assert_int_equal(with_input(graph, CVY_OP_BATCH_NORM_BWD, true, 7), 5);
        return;
    }
    assert_int_equal(count_nodes(graph, CVY_OP_RELU), EXCITED_BLOCKS); /* within the gates */
    /* The end of a block without projection is one node, and is made again in the backward pass. */
    assert_int_equal(with_input(graph, CVY_OP_SCALE_CHANNELS, false, 1), EXCITED_BLOCKS);
    assert_int_equal(with_input(graph, CVY_OP_SCALE_CHANNELS, false, 3), identities);
    assert_int_equal(with_input(graph, CVY_OP_SCALE_CHANNELS, true, 1), EXCITED_BLOCKS + identities);
    assert_int_equal(with_input(graph, CVY_OP_SCALE_CHANNELS, true, 3), identities);
    /* What the gates' means send back is part of the product; only the mean before the classifier is spread out. */
    assert_int_equal(with_input(graph, CVY_OP_SCALE_CHANNELS, true, 2), EXCITED_BLOCKS);
    assert_int_equal(count_nodes(graph, CVY_OP_GLOBAL_AVG_POOL_BWD), 1);
}

static void training_computes_the_same(void **state)
{
    for (size_t i = 0; i < ARCHITECTURES; i++) {
        struct cvy_graph graph;
        struct outcome plain, other;

        build(&graph, &architectures[i], CVY_MODEL_TRAIN, false);
        assert_true(count_nodes(&graph, CVY_OP_RELU) > 0);
        run(&graph, true, OWN, &plain);
        build(&graph, &architectures[i], CVY_MODEL_TRAIN, true);
        check_fused(&graph, i);
        run(&graph, true, i % 2 ? MOVED : PATTERNS, &other);
        /* Double's 1e-16, through some twenty normalised layers. */
        compare_doubles(plain.logits, other.logits, BATCH * CLASSES, 1e-11);
        compare_doubles(plain.second, other.second, 1, 1e-12);
        compare_floats(plain.gradients, other.gradients, plain.gradient_count);
        compare_floats(plain.state, other.state, plain.state_count);
        release(&other);
        release(&plain);
    }
}

static void compare_with_plain(const struct cvy_architecture *architecture, bool kept, enum statistics statistics)
{
    struct cvy_model_options options = {.num_classes = CLASSES,
                                        .image_size = SIZE,
                                        .mean = {120, 115, 105},
                                        .std = {58, 57, 56},
                                        .label_smoothing = 0.1F,
                                        .keep_activations = kept};
    struct cvy_graph graph;
    struct outcome plain, other;

    build(&graph, architecture, CVY_MODEL_TRAIN, false);
    run(&graph, true, OWN, &plain);
    assert_int_equal(cvy_model_graph(architecture, &options, CVY_MODEL_TRAIN, true, &graph), CVY_OK);
    run(&graph, true, statistics, &other);
    compare_doubles(plain.logits, other.logits, BATCH * CLASSES, 1e-11); /* as above */
    compare_doubles(plain.second, other.second, 1, 1e-12);
    compare_floats(plain.gradients, other.gradients, plain.gradient_count);
    compare_floats(plain.state, other.state, plain.state_count);
    release(&other);
    release(&plain);
}

/* What a device with kernels for several nodes makes of a graph (its activations are kept). */
static void patterns_compute_the_same(void **state)
{
    for (size_t i = 0; i < FIRST_EXCITED; i++)
        compare_with_plain(&architectures[i], true, MOVED_AND_PATTERNS);
}

/* In closed form a network's batch norms and their gradients are the same, whether blocks' outputs are kept or made
 * again. */
static void products_compute_the_same(void **state)
{
    for (int kept = 0; kept < 2; kept++)
        compare_with_plain(&architectures[1], kept, PRODUCTS);
}

/* A batch norm after something else computes its statistics itself; two after one convolution share its. */
static void statistics_come_from_convolutions_only(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 4, 6, 6), y;
    int32_t first, second, third;

    x = cvy_relu(&g, x);
    cvy_scope_push(&g, "first");
    y = cvy_batch_norm(&g, x, &(struct cvy_batch_norm){0});
    cvy_graph_result(&g, CVY_RESULT_NAMED, "a", -1, y);
    cvy_scope_pop(&g);
    x = cvy_conv2d(&g, x, &(struct cvy_conv2d){.out = 4, .kernel = 1});
    for (int i = 0; i < 2; i++) {
        cvy_scope_push_index(&g, i);
        cvy_graph_result(&g, CVY_RESULT_NAMED, i ? "c" : "b", -1, cvy_batch_norm(&g, x, &(struct cvy_batch_norm){0}));
        cvy_scope_pop(&g);
    }
    cvy_rewrite_statistics(&g);
    check_graph(&g);
    assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM), 3);
    assert_int_equal(with_input(&g, CVY_OP_BATCH_NORM, false, 6), 2);
    first = find_node(&g, CVY_OP_BATCH_NORM, 0);
    second = find_node(&g, CVY_OP_BATCH_NORM, first + 1);
    third = find_node(&g, CVY_OP_BATCH_NORM, second + 1);
    assert_int_equal(g.nodes[first].inputs, 5);
    assert_int_equal(g.nodes[find_node(&g, CVY_OP_CONV2D, 0)].outputs, 3);
    assert_int_equal(g.nodes[second].in[6], g.nodes[third].in[6]);
    assert_int_equal(g.nodes[second].in[7], g.nodes[third].in[7]);
    cvy_graph_release(&g);
}

/* Frozen at the bottom, in the middle, at the top; a batch norm without its convolution and the other way round; half a
 * batch norm, which is no frozen one. */
static void frozen_layers_compute_the_same(void **state)
{
    static const char *const freeze[] = {"conv1,bn1,layer1,layer2",
                                         "layer2",
                                         "layer3,layer4",
                                         "layer1.0.bn1,layer1.1.bn2,layer3.0.downsample.1",
                                         "conv1,layer3.0.conv2,layer3.1.conv1",
                                         "bn1.weight,layer2.0.bn2.bias,fc.weight",
                                         "fc"};

    for (size_t i = 0; i < ARCHITECTURES * (sizeof freeze / sizeof *freeze); i++) {
        const struct cvy_architecture *architecture = &architectures[i % ARCHITECTURES];
        struct cvy_graph graph;
        struct outcome plain, fused;

        build_frozen(&graph, architecture, CVY_MODEL_TRAIN, false, freeze[i / ARCHITECTURES]);
        run(&graph, true, OWN, &plain);
        build_frozen(&graph, architecture, CVY_MODEL_TRAIN, true, freeze[i / ARCHITECTURES]);
        assert_int_equal(count_nodes(&graph, CVY_OP_RELU), i % ARCHITECTURES < FIRST_EXCITED ? 0 : EXCITED_BLOCKS);
        run(&graph, true, OWN, &fused);
        /* As above; folding adds a rounding of the weights. */
        compare_doubles(plain.logits, fused.logits, BATCH * CLASSES, 1e-11);
        compare_doubles(plain.second, fused.second, 1, 1e-12);
        compare_floats(plain.gradients, fused.gradients, plain.gradient_count);
        compare_floats(plain.state, fused.state, plain.state_count);
        release(&fused);
        release(&plain);
    }
}

static void inference_computes_the_same(void **state)
{
    for (size_t i = 0; i < ARCHITECTURES; i++) {
        struct cvy_graph graph;
        struct outcome plain, fused;

        build(&graph, &architectures[i], CVY_MODEL_INFER, false);
        assert_true(count_nodes(&graph, CVY_OP_BATCH_NORM_INFERENCE) > 0);
        run(&graph, false, OWN, &plain);
        build(&graph, &architectures[i], CVY_MODEL_INFER, true);
        assert_int_equal(count_nodes(&graph, CVY_OP_BATCH_NORM_INFERENCE), 0);
        run(&graph, false, OWN, &fused);
        /* Folding scales the weights before the sum instead of after it: roundings of double, layer by layer. */
        compare_doubles(plain.logits, fused.logits, BATCH * CLASSES, 1e-11);
        compare_doubles(plain.second, fused.second, BATCH * CLASSES, 1e-11);
        assert_memory_equal(plain.state, fused.state, (size_t)plain.state_count * sizeof(float));
        release(&plain);
        release(&fused);
    }
}

/* Quantizers stand between the nodes that are fused otherwise; the values before and after them are made again in the
 * backward pass by the ranges of the forward pass. */
static void quantized_networks_compute_the_same(void **state)
{
    for (size_t i = 0; i < 4 * ARCHITECTURES; i++) {
        const struct cvy_architecture *architecture = &architectures[i % ARCHITECTURES];
        const enum cvy_quantize quantize = i / ARCHITECTURES % 2 ? CVY_QUANTIZE_ASYMMETRIC : CVY_QUANTIZE_SYMMETRIC;
        const bool training = i >= 2 * ARCHITECTURES;
        const enum cvy_model_mode mode = training ? CVY_MODEL_TRAIN : CVY_MODEL_INFER;
        struct cvy_graph graph;
        struct outcome plain, fused;

        build_with(&graph, architecture, mode, false, NULL, quantize);
        run(&graph, training, OWN, &plain);
        build_with(&graph, architecture, mode, true, NULL, quantize);
        if (training) /* values in 8 bits, once more */
            assert_true(count_nodes(&graph, CVY_OP_FAKE_QUANTIZE) > graph.result_count / 3);
        else
            assert_int_equal(count_nodes(&graph, CVY_OP_BATCH_NORM_INFERENCE), 0);
        run(&graph, training, OWN, &fused);
        /* As above; no value lies so near the middle between two levels that this decides about one. */
        compare_doubles(plain.logits, fused.logits, BATCH * CLASSES, 1e-11);
        compare_doubles(plain.second, fused.second, training ? 1 : BATCH * CLASSES, 1e-11);
        if (training)
            compare_floats(plain.gradients, fused.gradients, plain.gradient_count);
        compare_floats(plain.state, fused.state, plain.state_count);
        release(&plain);
        release(&fused);
    }
}

RUN_TESTS(NULL, NULL, TEST(training_computes_the_same), TEST(patterns_compute_the_same),
          TEST(products_compute_the_same), TEST(frozen_layers_compute_the_same), TEST(inference_computes_the_same),
          TEST(quantized_networks_compute_the_same), TEST(statistics_come_from_convolutions_only))
