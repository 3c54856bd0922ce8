/* The architectures against published figures, torchvision's names, and the graphs of both modes. */
#include "models/models.h"
#include "ops/ops.h"
#include "support_graph.h"
#include "support_test.h"

/* Multiply-adds of the convolutions and the classifier, without biases: what papers count. */
static double multiply_adds(const struct cvy_graph *graph)
{
    double sum = 0;

    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *node = &graph->nodes[n];
        const struct cvy_shape *w;
        double each, places = 1;

        if (node->op != CVY_OP_CONV2D && node->op != CVY_OP_LINEAR)
            continue;
        w = cvy_shape_of(graph, node->in[1]);
        if (node->op == CVY_OP_CONV2D)
            places = (double)(cvy_shape_of(graph, node->out[0])->dim[2] * cvy_shape_of(graph, node->out[0])->dim[3]);
        each = places * (double)cvy_shape_elements(w);
        /* The op's own FLOPs agree, up to one operation for each output and each part that is fused into it. */
        assert_true(cvy_node_flops(graph, node) >= 2 * each);
        assert_true(cvy_node_flops(graph, node) <= 2 * each + 3 * places * (double)w->dim[0]);
        sum += each;
    }
    return sum;
}

/* Parameters, layers and GMAC at 224 pixels and 1000 classes as published (torchvision's table; He et al. table 1; Xie
 * et al.). */
static const struct {
    const char *name;
    int64_t parameters;
    int32_t convs, norms, entries, residuals;
    double gmac;
    int32_t squeezes;    /* blocks with squeeze-and-excitation */
    int32_t projections; /* shortcuts that are a convolution */
} catalogue[] = {
    {"resnet18", 11689512, 20, 20, 122, 8, 1.814, 0, 3},
    {"resnet34", 21797672, 36, 36, 218, 16, 3.664, 0, 3},
    {"resnet50", 25557032, 53, 53, 320, 16, 4.089, 0, 4},
    {"resnet101", 44549160, 104, 104, 626, 33, 7.801, 0, 4},
    {"resnet152", 60192808, 155, 155, 932, 50, 11.514, 0, 4},
    {"resnext50-32x4d", 25028904, 53, 53, 320, 16, 4.230, 0, 4},
    {"resnext101-32x4d", 44177704, 104, 104, 626, 33, 7.970, 0, 4},
    {"resnext101-32x8d", 88791336, 104, 104, 626, 33, 16.414, 0, 4},
    {"resnext101-32x8d-basic", 25521448, 71, 71, 428, 33, 4.165, 0, 4},
    {"se-resnet50", 26055720, 53, 53, 384, 16, 4.090, 16, 4},
    {"se-resnext101-32x4d", 45251128, 104, 104, 758, 33, 7.971, 33, 4},
};
enum { CATALOGUE = sizeof catalogue / sizeof *catalogue };

static void sizes_are_the_published_ones(void **state)
{
    const struct cvy_model_options options = network_options(1000, 224);

    for (size_t i = 0; i < CATALOGUE; i++) {
        struct cvy_graph g;

        build_network(&g, catalogue[i].name, &options, CVY_MODEL_INFER, false);
        assert_int_equal(g.trainable_elements, catalogue[i].parameters);
        assert_int_equal(count_nodes(&g, CVY_OP_CONV2D), catalogue[i].convs);
        assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM_INFERENCE), catalogue[i].norms);
        assert_int_equal(g.param_count, catalogue[i].entries);
        assert_int_equal(g.counters, catalogue[i].norms);
        assert_int_equal(count_nodes(&g, CVY_OP_SCALE_CHANNELS), catalogue[i].squeezes);
        assert_int_equal(count_nodes(&g, CVY_OP_SIGMOID), catalogue[i].squeezes);
        /* The table rounds to three digits after the point. */
        assert_true(fabs(multiply_adds(&g) / 1e9 - catalogue[i].gmac) <= 0.0005);
        cvy_graph_release(&g);
    }
}

/* Published by NVIDIA (1001 classes: TensorFlow's models) and timm. */
static void options_change_the_size(void **state)
{
    static const struct {
        const char *name;
        int32_t classes, squeeze_width;
        int64_t parameters;
        double gmac; /* 0: not published */
    } cases[] = {
        {"resnet50", 1001, 0, 25559081, 0},
        {"resnet50", 10, 0, 23508032 + 2049 * 10, 0},
        {"resnext101-32x4d", 1001, 0, 44179753, 0},
        {"se-resnet50", 1000, 16, 26055720, 4.090},
        {"se-resnet50", 1000, -16, 28088024, 0},
        {"se-resnext101-32x4d", 1000, 16, 45251128, 7.971},
        {"se-resnext101-32x4d", 1000, -16, 48955416, 7.975},
        {"se-resnext101-32x4d", 1001, -16, 48957465, 7.975},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cvy_model_options options = network_options(cases[i].classes, 224);
        struct cvy_graph g;

        options.resnet.squeeze_width = cases[i].squeeze_width;
        build_network(&g, cases[i].name, &options, CVY_MODEL_INFER, false);
        assert_int_equal(g.trainable_elements, cases[i].parameters);
        assert_true(cases[i].gmac == 0 || fabs(multiply_adds(&g) / 1e9 - cases[i].gmac) <= 0.0005);
        cvy_graph_release(&g);
    }
}

static void the_registry_knows_each_once(void **state)
{
    static const char *const spellings[][2] = {{"resnext50_32x4d", "resnext50-32x4d"},
                                               {"resnext101_32x4d", "resnext101-32x4d"},
                                               {"resnext101_32x8d", "resnext101-32x8d"},
                                               {"seresnet50", "se-resnet50"},
                                               {"se_resnet50", "se-resnet50"},
                                               {"seresnext101_32x4d", "se-resnext101-32x4d"},
                                               {"se_resnext101_32x4d", "se-resnext101-32x4d"},
                                               {"se-resnext101_32x4d", "se-resnext101-32x4d"}};

    for (size_t i = 0; i < CATALOGUE; i++) {
        assert_string_equal(cvy_architecture_at(i)->name, catalogue[i].name);
        assert_ptr_equal(cvy_architecture_find(catalogue[i].name), cvy_architecture_at(i));
        assert_int_equal(cvy_architecture_at(i)->default_image_size, 224);
        assert_int_equal(cvy_architecture_at(i)->squeeze_width, catalogue[i].squeezes ? 16 : 0);
    }
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        assert_ptr_equal(cvy_architecture_find(spellings[i][0]), cvy_architecture_find(spellings[i][1]));
    for (size_t i = CATALOGUE; cvy_architecture_at(i); i++) /* detectors have tests of their own */
        assert_int_equal(cvy_architecture_at(i)->task, CVY_TASK_DETECT);
    assert_null(cvy_architecture_find("resnet"));
    assert_null(cvy_architecture_find("resnet500"));
    assert_null(cvy_architecture_find("resnext101"));
    assert_null(cvy_architecture_find("seresnet"));
    assert_null(cvy_architecture_find(""));
    assert_null(cvy_architecture_find(NULL));
}

/* The gate multiplies what the last batch norm gives; the sum with the shortcut comes after. */
static void the_gate_is_before_the_sum(void **state)
{
    const struct cvy_model_options options = network_options(10, 64);
    struct cvy_graph g;
    int32_t found = 0;

    build_network(&g, "se-resnet50", &options, CVY_MODEL_INFER, false);
    for (int32_t n = 0; n < g.node_count; n++) {
        const struct cvy_node *gate = &g.nodes[n], *before;
        const char *scope;
        bool summed = false;

        if (gate->op != CVY_OP_SCALE_CHANNELS)
            continue;
        before = &g.nodes[g.values[gate->in[0]].producer];
        assert_int_equal(before->op, CVY_OP_BATCH_NORM_INFERENCE);
        scope = strrchr(before->scope, '.');
        assert_non_null(scope);
        assert_string_equal(scope, ".bn3");
        assert_int_equal(g.nodes[g.values[gate->in[1]].producer].op, CVY_OP_SIGMOID);
        assert_int_equal(cvy_graph_uses(&g, gate->out[0]), 1);
        for (int32_t r = n + 1; r < g.node_count; r++)
            summed |=
                g.nodes[r].op == CVY_OP_ADD && (g.nodes[r].in[0] == gate->out[0] || g.nodes[r].in[1] == gate->out[0]);
        assert_true(summed);
        found++;
    }
    assert_int_equal(found, 16);
    cvy_graph_release(&g);
}

/* TensorFlow's SAME: output ceil(extent / stride), the odd pixel below and right. At 224 the stem pads 2 and 3, and
 * windows of 3 at stride 2 over even extents 0 and 1; over odd ones 1 and 1. */
static void same_padding_is_tensorflows(void **state)
{
    static const struct {
        int32_t size, stem[2], pool[2], strided[3][2]; /* before, after; of layer2 to layer4 */
    } cases[] = {
        {224, {2, 3}, {0, 1}, {{0, 1}, {0, 1}, {0, 1}}},
        {97, {3, 3}, {1, 1}, {{1, 1}, {1, 1}, {1, 1}}},
        {38, {2, 3}, {1, 1}, {{0, 1}, {1, 1}, {1, 1}}},
    };
    static const char *const scopes[] = {"layer2.0.conv2", "layer3.0.conv2", "layer4.0.conv2"};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cvy_model_options options = network_options(10, cases[i].size);
        int64_t extent = cases[i].size;
        struct cvy_graph g;
        int found = 0;

        options.resnet.same_padding = true;
        build_network(&g, "resnext50-32x4d", &options, CVY_MODEL_INFER, false);
        for (int32_t n = 0; n < g.node_count; n++) {
            const struct cvy_node *node = &g.nodes[n];
            const int32_t *pad = node->op == CVY_OP_MAX_POOL ? node->attr.pool.pad : node->attr.conv2d.pad;
            const int32_t *expected = NULL;

            if (node->op == CVY_OP_MAX_POOL)
                expected = cases[i].pool;
            else if (node->op == CVY_OP_CONV2D && strcmp(node->scope, "conv1") == 0)
                expected = cases[i].stem;
            for (int s = 0; s < 3 && node->op == CVY_OP_CONV2D; s++)
                expected = strcmp(node->scope, scopes[s]) == 0 ? cases[i].strided[s] : expected;
            if (!expected && node->op == CVY_OP_CONV2D) {
                for (int side = 0; side < 4; side++)
                    assert_int_equal(pad[side], node->attr.conv2d.kernel[0] == 3);
            }
            if (!expected)
                continue;
            extent = (extent + 1) / 2;
            for (int side = 0; side < 4; side++)
                assert_int_equal(pad[side], expected[side % 2]);
            assert_int_equal(cvy_shape_of(&g, node->out[0])->dim[2], extent);
            assert_int_equal(cvy_shape_of(&g, node->out[0])->dim[3], extent);
            found++;
        }
        assert_int_equal(found, 5);
        cvy_graph_release(&g);
    }
}

/* v1.5: a bottleneck's stride is on its 3x3 convolution. */
static void the_stride_is_on_the_3x3(void **state)
{
    const struct cvy_model_options options = network_options(10, 224);
    struct cvy_graph g;
    int32_t found = 0;

    build_network(&g, "resnet50", &options, CVY_MODEL_INFER, false);
    for (int32_t n = 0; n < g.node_count; n++) {
        const struct cvy_conv2d_attr *attr = &g.nodes[n].attr.conv2d;
        const char *scope = g.nodes[n].scope;
        bool strided = strcmp(scope, "conv1") == 0 || (strncmp(scope, "layer1", 6) != 0 &&
                                                       (strstr(scope, ".0.conv2") || strstr(scope, "downsample.0")));

        if (g.nodes[n].op != CVY_OP_CONV2D)
            continue;
        assert_int_equal(attr->stride[0], strided ? 2 : 1);
        assert_int_equal(attr->stride[1], attr->stride[0]);
        for (int i = 0; i < 4; i++)
            assert_int_equal(attr->pad[i], (attr->kernel[0] - 1) / 2);
        found += strided;
    }
    assert_int_equal(found, 7);
    cvy_graph_release(&g);
}

/* Two modes of one network share their arenas. */
static void both_modes_have_one_parameter_table(void **state)
{
    const struct cvy_model_options options = network_options(7, 65);

    for (size_t i = 0; i < CATALOGUE; i++) {
        struct cvy_graph train, infer;

        build_network(&train, catalogue[i].name, &options, CVY_MODEL_TRAIN, true);
        build_network(&infer, catalogue[i].name, &options, CVY_MODEL_INFER, true);
        assert_int_equal(train.param_count, infer.param_count);
        for (int32_t p = 0; p < train.param_count; p++) {
            assert_string_equal(train.params[p].name, infer.params[p].name);
            assert_int_equal(train.params[p].kind, infer.params[p].kind);
            assert_int_equal(train.params[p].offset, infer.params[p].offset);
            assert_true(cvy_shape_equal(&train.params[p].shape, &infer.params[p].shape));
        }
        assert_int_equal(train.trainable_elements, infer.trainable_elements);
        assert_int_equal(train.state_elements, infer.state_elements);
        cvy_graph_release(&train);
        cvy_graph_release(&infer);
    }
}

static void training_graphs_are_fused_and_whole(void **state)
{
    const struct cvy_model_options options = network_options(1000, 224);

    for (size_t i = 0; i < CATALOGUE; i++) {
        const int32_t squeezes = catalogue[i].squeezes, projections = catalogue[i].projections;
        struct cvy_graph g;
        int32_t relus = 0, residuals = 0, plain = 0, gradients = 0, states = 0, sums = 0;

        if (catalogue[i].residuals == 0) /* other networks have tests of their own */
            continue;
        build_network(&g, catalogue[i].name, &options, CVY_MODEL_TRAIN, true);
        for (int32_t n = 0; n < g.node_count; n++) {
            const struct cvy_node *node = &g.nodes[n];
            if (node->op != CVY_OP_BATCH_NORM)
                continue;
            relus += node->attr.batch_norm.activation;
            residuals += node->in[5] != CVY_NONE;
            plain += !node->attr.batch_norm.activation;
        }
        /* Only the projections' batch norms stand alone: no ReLU and no add is left. With squeeze-and-excitation
         * each block's last batch norm does, for the gate lies between it and the sum, and the projections' take the
         * sum and the ReLU. */
        if (squeezes == 0) {
            assert_int_equal(count_nodes(&g, CVY_OP_RELU), 0);
            assert_int_equal(count_nodes(&g, CVY_OP_RELU_BWD), 0);
            /* The stem's output has two readers, whose gradients max pooling sends back; every other sum of two is
             * part of a batch norm. */
            assert_int_equal(count_nodes(&g, CVY_OP_ADD), 1);
        }
        assert_int_equal(residuals, squeezes ? projections : catalogue[i].residuals);
        assert_int_equal(plain, squeezes ? squeezes : projections);
        assert_int_equal(relus + plain, catalogue[i].norms);
        assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM_BWD), catalogue[i].norms);
        /* Every activation that a weights' gradient reads again is recomputed, and for the outputs of blocks with a
         * projection its batch norm too; not where a gate stands before the sum. The stem's is read by the max pool
         * alone, which kept its indexes. What a gate multiplies is made for the gate's gradient and, without
         * projection, for the block's output. */
        assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM_APPLY),
                         squeezes ? relus - projections - 1 + 2 * squeezes - projections : relus - 1 + projections);
        assert_int_equal(count_nodes(&g, CVY_OP_CONV2D_BWD_WEIGHTS), catalogue[i].convs);
        assert_int_equal(count_nodes(&g, CVY_OP_CONV2D_BWD_DATA), catalogue[i].convs - 1);
        /* Each block's input is read by its first convolution and its shortcut: the sums of the gradients. */
        for (int32_t n = 0; n < g.node_count; n++)
            sums += g.nodes[n].backward &&
                    (g.nodes[n].op == CVY_OP_ADD ||
                     (g.nodes[n].op == CVY_OP_BATCH_NORM_BWD && g.nodes[n].inputs > 7 && g.nodes[n].in[7] != CVY_NONE));
        assert_true(sums >= catalogue[i].residuals);
        for (int32_t r = 0; r < g.result_count; r++) {
            gradients += g.results[r].kind == CVY_RESULT_GRADIENT;
            states += g.results[r].kind == CVY_RESULT_STATE;
        }
        assert_int_equal(gradients, catalogue[i].convs + 2 * catalogue[i].norms + 2 + 4 * squeezes);
        assert_int_equal(states, 2 * catalogue[i].norms);
        assert_true(cvy_graph_find_result(&g, "loss") != CVY_NONE);
        assert_true(cvy_graph_find_result(&g, "logits") != CVY_NONE);
        assert_int_equal(g.input_count, 3);
        assert_string_equal(g.input_list[0].name, "image");
        assert_true(g.input_list[0].nhwc);
        assert_string_equal(g.input_list[1].name, "target");
        assert_int_equal(g.values[g.input_list[1].value].dtype, CVY_I32);
        assert_string_equal(g.input_list[2].name, "loss_scale");
        cvy_graph_release(&g);
    }
}

static void inference_graphs_are_convolutions(void **state)
{
    const struct cvy_model_options options = network_options(1000, 224);

    for (size_t i = 0; i < CATALOGUE; i++) {
        struct cvy_graph g;
        int32_t residuals = 0, plain = 0;

        if (catalogue[i].residuals == 0)
            continue;
        build_network(&g, catalogue[i].name, &options, CVY_MODEL_INFER, true);
        /* Normalise, a fold and a convolution for each layer, max pool, average pool, linear, softmax: nothing else but
         * what squeezes and excites. */
        if (catalogue[i].squeezes == 0) {
            assert_int_equal(g.node_count, 2 * catalogue[i].convs + 5);
        }
        assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM_INFERENCE), 0);
        assert_int_equal(count_nodes(&g, CVY_OP_CONV2D), catalogue[i].convs);
        assert_int_equal(count_nodes(&g, CVY_OP_FOLD_BATCH_NORM), catalogue[i].convs);
        for (int32_t n = 0; n < g.node_count; n++) {
            if (g.nodes[n].op != CVY_OP_CONV2D)
                continue;
            residuals += g.nodes[n].in[3] != CVY_NONE;
            plain += !g.nodes[n].attr.conv2d.activation;
        }
        if (catalogue[i].squeezes == 0) {
            assert_int_equal(residuals, catalogue[i].residuals);
            assert_int_equal(plain, catalogue[i].projections);
        }
        assert_true(cvy_graph_find_result(&g, "logits") != CVY_NONE);
        assert_true(cvy_graph_find_result(&g, "probabilities") != CVY_NONE);
        assert_int_equal(g.input_count, 1);
        cvy_graph_release(&g);
    }
}

static void soft_targets_and_smoothing_reach_the_loss(void **state)
{
    struct cvy_model_options options = network_options(12, 32);
    struct cvy_graph g;
    const struct cvy_value *target;

    options.soft_targets = true;
    options.label_smoothing = 0.25F;
    build_network(&g, "resnet18", &options, CVY_MODEL_TRAIN, true);
    target = &g.values[g.input_list[1].value];
    assert_int_equal(target->dtype, CVY_F32);
    assert_true(cvy_shape_equal(&target->shape, &(struct cvy_shape){2, {CVY_BATCH, 12}}));
    assert_true(g.nodes[find_node(&g, CVY_OP_SOFTMAX_CROSS_ENTROPY, 0)].attr.loss.smoothing == 0.25F);
    assert_true(g.nodes[find_node(&g, CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD, 0)].attr.loss.smoothing == 0.25F);
    cvy_graph_release(&g);
}

static void any_size_and_class_count_builds(void **state)
{
    static const int32_t sizes[] = {32, 33, 47, 64, 97, 224, 225, 512};
    static const int32_t classes[] = {1, 2, 1001, 21843};
    struct cvy_graph g;

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const struct cvy_model_options options = network_options(classes[s % 4], sizes[s]);
        const struct cvy_shape logits = cvy_shape2(CVY_BATCH, classes[s % 4]);

        build_network(&g, s % 2 ? "resnet18" : "resnet50", &options, CVY_MODEL_TRAIN, true);
        assert_true(cvy_shape_equal(cvy_shape_of(&g, cvy_graph_find_result(&g, "logits")), &logits));
        assert_int_equal(cvy_graph_check_batch(&g, 2), CVY_OK);
        /* From 32 pixels one is left in the last stage: a single image has no batch statistics there. */
        assert_int_equal(cvy_graph_check_batch(&g, 1), sizes[s] == 32 ? CVY_USAGE : CVY_OK);
        cvy_graph_release(&g);
    }
}

static void impossible_options_get_a_sentence(void **state)
{
    static const struct {
        int32_t classes, size;
        float std;
        const char *part;
    } cases[] = {
        {0, 64, 1, "resnet18 needs 1 or more classes, not 0"},
        {-5, 64, 1, "resnet18 needs 1 or more classes, not -5"},
        {10, 31, 1, "resnet18 needs images of 32 pixels or more, not 31"},
        {10, -1, 1, "resnet18 needs images of 32 pixels or more, not -1"},
        {10, INT32_MAX, 1, "cannot have the shape Nx3x2147483647x2147483647"},
        {10, 64, 0, "positive standard deviation"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cvy_model_options options = network_options(cases[i].classes, cases[i].size);
        struct cvy_graph g;

        options.std[1] = cases[i].std;
        assert_int_equal(cvy_model_graph(cvy_architecture_find("resnet18"), &options, CVY_MODEL_TRAIN, true, &g),
                         CVY_USAGE);
        if (!strstr(cvy_error(), cases[i].part))
            fail_msg("\"%s\" does not say \"%s\"", cvy_error(), cases[i].part);
        assert_null(g.nodes); /* released */
    }
}

RUN_TESTS(NULL, NULL, TEST(sizes_are_the_published_ones), TEST(options_change_the_size),
          TEST(the_registry_knows_each_once), TEST(the_gate_is_before_the_sum), TEST(same_padding_is_tensorflows),
          TEST(the_stride_is_on_the_3x3), TEST(both_modes_have_one_parameter_table),
          TEST(training_graphs_are_fused_and_whole), TEST(inference_graphs_are_convolutions),
          TEST(soft_targets_and_smoothing_reach_the_loss), TEST(any_size_and_class_count_builds),
          TEST(impossible_options_get_a_sentence))
