/* SSD320: counts that its specification gives, the graphs of both modes, other sizes. */
#include "models/models.h"
#include "network/network.h"
#include "ops/anchors.h"
#include "ops/ops.h"
#include "support_graph.h"
#include "support_test.h"

static struct cvy_model_options options_of(int32_t size)
{
    return (struct cvy_model_options){.num_classes = 90,
                                      .image_size = size,
                                      .mean = {123.68F, 116.779F, 103.939F},
                                      .std = {1, 1, 1},
                                      .float_images = true,
                                      .detector.regularization = 4e-4F};
}

static cvy_status try_build(struct cvy_graph *graph, const struct cvy_model_options *options, enum cvy_model_mode mode,
                            bool fuse)
{
    const struct cvy_architecture *architecture = cvy_architecture_find("ssd320");

    assert_non_null(architecture);
    return cvy_model_graph(architecture, options, mode, fuse, graph);
}

static void build(struct cvy_graph *graph, const struct cvy_model_options *options, enum cvy_model_mode mode, bool fuse)
{
    if (try_build(graph, options, mode, fuse) != CVY_OK)
        fail_msg("%s", cvy_error());
    check_graph(graph);
}

/* Elements of the parameters of a kind under a prefix. */
static int64_t elements(const struct cvy_graph *graph, enum cvy_param_kind kind, const char *prefix)
{
    int64_t sum = 0;

    for (int32_t i = 0; i < graph->param_count; i++) {
        if (graph->params[i].kind == kind && cvy_name_under(graph->params[i].name, prefix, strlen(prefix)))
            sum += cvy_shape_elements(&graph->params[i].shape);
    }
    return sum;
}

/* Multiply-adds of the convolutions under a prefix, without biases. */
static double gmac(const struct cvy_graph *graph, const char *prefix)
{
    double sum = 0;

    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *node = &graph->nodes[n];
        if (node->op != CVY_OP_CONV2D || !cvy_name_under(node->scope, prefix, strlen(prefix)))
            continue;
        const int64_t *w = cvy_shape_of(graph, node->in[1])->dim, *y = cvy_shape_of(graph, node->out[0])->dim;
        sum += (double)(w[0] * w[1] * w[2] * w[3]) * (double)(y[2] * y[3]);
    }
    return sum / 1e9;
}

static void near(double value, double published, double rounding)
{
    if (!(value > published - rounding && value < published + rounding))
        fail_msg("%.6f, published %.6f", value, published);
}

static void counts_are_the_published_ones(void **state)
{
    const struct cvy_model_options options = options_of(320);
    struct cvy_graph g;
    int32_t kernels = 0;

    build(&g, &options, CVY_MODEL_INFER, false);
    assert_int_equal(g.trainable_elements, 32840570);
    assert_int_equal(g.state_elements, 75648);
    assert_int_equal(elements(&g, CVY_PARAM_TRAINABLE, "backbone"), 23508032);
    assert_int_equal(elements(&g, CVY_PARAM_TRAINABLE, "fpn"), 3279616);
    assert_int_equal(elements(&g, CVY_PARAM_TRAINABLE, "head"), 6052922);
    assert_int_equal(elements(&g, CVY_PARAM_TRAINABLE, "head.box_predictor"), 55320);
    assert_int_equal(elements(&g, CVY_PARAM_TRAINABLE, "head.class_predictor"), 1258530);
    assert_int_equal(elements(&g, CVY_PARAM_STATE, "backbone"), 53120);
    assert_int_equal(elements(&g, CVY_PARAM_STATE, "fpn"), 2048);
    assert_int_equal(elements(&g, CVY_PARAM_STATE, "head"), 20480);
    for (int32_t i = 0; i < g.param_count; i++)
        kernels += g.params[i].shape.rank == 4;
    assert_int_equal(kernels, 70);
    near(gmac(&g, "backbone"), 7.8692, 5e-5);
    near(gmac(&g, "fpn"), 1.5667, 5e-5);
    near(gmac(&g, "head"), 12.8720, 5e-5);
    cvy_graph_release(&g);
}

static void start_values_and_constants(void **state)
{
    const struct cvy_model_options options = options_of(320);
    struct cvy_graph g;
    int32_t norms = 0;

    build(&g, &options, CVY_MODEL_INFER, false);
    for (int32_t i = 0; i < g.param_count; i++) {
        const struct cvy_param *p = &g.params[i];
        const bool head = strncmp(p->name, "head.", 5) == 0;
        if (p->shape.rank == 4) {
            assert_int_equal(p->init, head ? CVY_INIT_NORMAL : CVY_INIT_TRUNCATED_NORMAL);
            assert_true(p->init_scale == (head ? 0.01F : 0.03F));
        } else if (strcmp(p->name, "head.class_predictor.bias") == 0) {
            assert_int_equal(p->init, CVY_INIT_CONSTANT);
            assert_true(p->init_scale == -4.6F);
        } else if (strstr(p->name, "bias")) {
            assert_int_equal(p->init, CVY_INIT_ZERO);
        }
    }
    for (int32_t n = 0; n < g.node_count; n++) {
        const struct cvy_node *node = &g.nodes[n];
        if (node->op != CVY_OP_BATCH_NORM_INFERENCE)
            continue;
        norms++;
        assert_true(node->attr.batch_norm.momentum == 0.003F);
        assert_true(node->attr.batch_norm.eps == (strncmp(node->scope, "backbone", 8) == 0 ? 1.001e-5F : 1e-3F));
    }
    assert_int_equal(norms, 53 + 4 + 2 * 4 * 5);
    cvy_graph_release(&g);
}

/* One momentum for all batch norms, in place of the network's; none outside of (0, 1]. */
static void chosen_momentum(void **state)
{
    struct cvy_model_options options = options_of(64);
    struct cvy_graph g;
    int32_t norms = 0;

    options.batch_norm_momentum = 0.25F;
    build(&g, &options, CVY_MODEL_TRAIN, false);
    for (int32_t n = 0; n < g.node_count; n++) {
        const struct cvy_node *node = &g.nodes[n];
        if (node->op == CVY_OP_BATCH_NORM) {
            norms++;
            assert_true(node->attr.batch_norm.momentum == 0.25F);
        }
    }
    assert_int_equal(norms, 53 + 4 + 2 * 4 * 5);
    cvy_graph_release(&g);
    options.batch_norm_momentum = 1.5F;
    assert_int_equal(try_build(&g, &options, CVY_MODEL_TRAIN, false), CVY_USAGE);
}

static void check_result(const struct cvy_graph *g, const char *name, struct cvy_shape shape, enum cvy_dtype dtype)
{
    const cvy_val value = cvy_graph_find_result(g, name);

    assert_true(value != CVY_NONE);
    assert_true(cvy_shape_equal(cvy_shape_of(g, value), &shape));
    assert_int_equal(g->values[value].dtype, dtype);
}

/* The extents of the five levels and of what the backbone gives them, at several sizes and with both backbones. */
static void other_sizes_work(void **state)
{
    static const int32_t sizes[] = {64, 96, 128, 320, 352};

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct cvy_model_options options = options_of(sizes[s]);
        const struct cvy_anchors anchors = cvy_anchors_ssd(sizes[s], sizes[s]);
        const int64_t count = cvy_anchors_count(&anchors);
        struct cvy_graph g;
        for (int torchvision = 0; torchvision < 2; torchvision++) {
            options.detector.torchvision_backbone = torchvision;
            build(&g, &options, CVY_MODEL_INFER, true);
            check_result(&g, "codes", (struct cvy_shape){.rank = 3, .dim = {CVY_BATCH, count, 4}}, CVY_F32);
            check_result(&g, "logits", (struct cvy_shape){.rank = 3, .dim = {CVY_BATCH, count, 91}}, CVY_F32);
            check_result(&g, "boxes", (struct cvy_shape){.rank = 3, .dim = {CVY_BATCH, 100, 4}}, CVY_F32);
            check_result(&g, "classes", cvy_shape2(CVY_BATCH, 100), CVY_I32);
            assert_int_equal(count_nodes(&g, CVY_OP_MAX_POOL), torchvision ? 1 : 4);
            for (int32_t n = 0; n < g.node_count; n++) {
                int64_t extent[2];
                if (g.nodes[n].op != CVY_OP_FLATTEN_LEVELS)
                    continue;
                for (int32_t i = 0; i < 5; i++) {
                    cvy_anchors_extent(&anchors, i, extent);
                    assert_int_equal(cvy_shape_of(&g, g.nodes[n].in[i])->dim[2], extent[0]);
                    assert_int_equal(cvy_shape_of(&g, g.nodes[n].in[i])->dim[3], extent[1]);
                }
            }
            cvy_graph_release(&g);
        }
    }
}

/* All activations are part of other nodes, and every kernel and every batch norm has its gradient. */
static void training_is_fused_and_complete(void **state)
{
    const struct cvy_model_options options = options_of(128);
    struct cvy_graph g;
    int32_t gradients = 0, states = 0;

    build(&g, &options, CVY_MODEL_TRAIN, true);
    assert_int_equal(count_nodes(&g, CVY_OP_RELU), 0);
    assert_int_equal(count_nodes(&g, CVY_OP_RELU6), 0);
    assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM), 53 + 4 + 40);
    for (int32_t i = 0; i < g.result_count; i++) {
        gradients += g.results[i].kind == CVY_RESULT_GRADIENT;
        states += g.results[i].kind == CVY_RESULT_STATE;
    }
    assert_int_equal(gradients, 269);
    assert_int_equal(states, 2 * 97);
    check_result(&g, "loss", cvy_shape0(), CVY_F32);
    check_result(&g, "localization_loss", cvy_shape0(), CVY_F32);
    check_result(&g, "classification_loss", cvy_shape0(), CVY_F32);
    check_result(&g, "regularization_loss", cvy_shape0(), CVY_F32);
    cvy_graph_release(&g);
}

static void inference_folds_all_it_can(void **state)
{
    const struct cvy_model_options options = options_of(128);
    struct cvy_graph g;

    build(&g, &options, CVY_MODEL_INFER, true);
    assert_int_equal(count_nodes(&g, CVY_OP_RELU) + count_nodes(&g, CVY_OP_RELU6), 0);
    assert_int_equal(count_nodes(&g, CVY_OP_BATCH_NORM_INFERENCE), 0);
    assert_int_equal(count_nodes(&g, CVY_OP_ADD), 0); /* shortcuts and the pyramid's sums are residuals */
    cvy_graph_release(&g);
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    static const int32_t sizes[] = {0, 32, 300, 321};

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const struct cvy_model_options options = options_of(sizes[s]);
        struct cvy_graph g;
        assert_fails(try_build(&g, &options, CVY_MODEL_INFER, true), CVY_USAGE, "ssd320");
    }
}

/* What becomes of its predictions, and what its images lose, when nobody says otherwise. */
static void usual_values(void **state)
{
    const struct cvy_architecture *architecture = cvy_architecture_find("ssd320");
    struct cvy_model_options usual = cvy_model_options_usual(architecture, 0, 0);
    static const float mean[] = {123.68F, 116.779F, 103.939F};
    const struct cvy_model_options options = options_of(64);
    struct cvy_graph graph;
    int found = 0;

    cvy_model_options_adapt(&usual, architecture);
    assert_true(usual.float_images);
    for (int i = 0; i < 3; i++)
        assert_true(usual.mean[i] == mean[i] && usual.std[i] == 1);
    build(&graph, &options, CVY_MODEL_INFER, false);
    for (int32_t n = 0; n < graph.node_count; n++) {
        const struct cvy_detect_attr *attr = &graph.nodes[n].attr.detect;
        if (graph.nodes[n].op != CVY_OP_DETECT)
            continue;
        found++;
        assert_true(attr->iou == 0.6F && attr->score == 1e-8F && attr->max_per_class == 100 && attr->max_boxes == 100);
    }
    assert_int_equal(found, 1);
    cvy_graph_release(&graph);
}

RUN_TESTS(NULL, NULL, TEST(counts_are_the_published_ones), TEST(start_values_and_constants), TEST(chosen_momentum),
          TEST(other_sizes_work), TEST(training_is_fused_and_complete), TEST(inference_folds_all_it_can),
          TEST(sizes_that_cannot_be_are_refused), TEST(usual_values))
