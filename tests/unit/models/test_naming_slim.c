/* TensorFlow's names of SSD320's variables: all 463 by the rule that its program follows, written down here a second
 * time, to Convoy's and back with every value at its place; what else its checkpoints hold; slim's resnet_v1_50. */
#include "models/models.h"
#include "models/naming.h"
#include "support_test.h"
#include "support_variables.h"

enum { VARIABLES = 463 };

static void add_kernel(struct variables *v, const char *scope, int64_t side, int64_t in, int64_t out)
{
    variables_add(v, cvy_shape4(side, side, in, out), scope, "weights");
}

/* A convolution and its own batch norm. */
static void add_layer(struct variables *v, const char *scope, int64_t side, int64_t in, int64_t out)
{
    char norm[256];

    add_kernel(v, scope, side, in, out);
    snprintf(norm, sizeof norm, "%s/BatchNorm", scope);
    variables_add_norm(v, norm, out);
}

static void add_backbone(struct variables *v, const char *root)
{
    static const int units[] = {3, 4, 6, 3};
    int64_t in = 64;
    char scope[160], layer[200];

    snprintf(scope, sizeof scope, "%s/conv1", root);
    add_layer(v, scope, 7, 3, 64);
    for (int block = 0; block < 4; block++)
        for (int unit = 0; unit < units[block]; unit++) {
            const int64_t mid = 64 << block, out = 4 * mid;

            snprintf(scope, sizeof scope, "%s/block%d/unit_%d/bottleneck_v1", root, block + 1, unit + 1);
            for (int i = unit > 0; i < 4; i++) {
                static const char *const layers[] = {"shortcut", "conv1", "conv2", "conv3"};
                snprintf(layer, sizeof layer, "%s/%s", scope, layers[i]);
                add_layer(v, layer, i == 2 ? 3 : 1, i < 2 ? in : mid, i == 0 || i == 3 ? out : mid);
            }
            in = out;
        }
}

static void add_detector(struct variables *v, int64_t classes)
{
    static const char *const kinds[] = {"Box", "Class"};
    char scope[160], norm[200];

    add_backbone(v, "FeatureExtractor/resnet_v1_50");
    for (int i = 1; i <= 3; i++) {
        snprintf(scope, sizeof scope, "FeatureExtractor/resnet_v1_50/fpn/projection_%d", i);
        add_kernel(v, scope, 1, 256 << i, 256);
        variables_add(v, cvy_shape1(256), scope, "biases");
    }
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"smoothing_1", "smoothing_2", "bottom_up_block5", "bottom_up_block6"};
        snprintf(scope, sizeof scope, "FeatureExtractor/resnet_v1_50/fpn/%s", names[i]);
        add_layer(v, scope, 3, 256, 256);
    }
    for (int kind = 0; kind < 2; kind++) {
        for (int layer = 0; layer < 4; layer++) {
            snprintf(scope, sizeof scope, "WeightSharedConvolutionalBoxPredictor/%sPredictionTower/conv2d_%d",
                     kinds[kind], layer);
            add_kernel(v, scope, 3, 256, 256);
            for (int level = 0; level < 5; level++) {
                snprintf(norm, sizeof norm, "%s/BatchNorm/feature_%d", scope, level);
                variables_add_norm(v, norm, 256);
            }
        }
        snprintf(scope, sizeof scope, "WeightSharedConvolutionalBoxPredictor/%sPredictor", kinds[kind]);
        add_kernel(v, scope, 3, 256, kind == 0 ? 6 * 4 : 6 * (classes + 1));
        variables_add(v, cvy_shape1(kind == 0 ? 6 * 4 : 6 * (classes + 1)), scope, "biases");
    }
}

static void make_table(struct cvy_graph *graph, int32_t classes)
{
    const struct cvy_model_options options = {
        .num_classes = classes, .image_size = 64, .std = {1, 1, 1}, .float_images = true};

    if (cvy_model_graph(cvy_architecture_find("ssd320"), &options, CVY_MODEL_INFER, false, graph) != CVY_OK)
        fail_msg("%s", cvy_error());
}

/* Every parameter of the table but counters has its tensor, and no tensor is left. */
static void check_table(const struct cvy_graph *graph, const struct cvy_tensor_file *file)
{
    size_t found = 0;

    for (int32_t i = 0; i < graph->param_count; i++) {
        const struct cvy_param *param = &graph->params[i];
        const struct cvy_named_tensor *tensor = cvy_tensor_find(file, param->name);

        if (param->kind == CVY_PARAM_COUNTER)
            continue;
        if (!tensor || !cvy_shape_equal(&tensor->shape, &param->shape))
            fail_msg("%s", param->name);
        found++;
    }
    assert_int_equal(found, VARIABLES);
}

static void all_variables_there_and_back(void **state)
{
    struct variables *v = calloc(1, sizeof *v), *old = calloc(1, sizeof *old);
    struct cvy_graph graph;
    enum cvy_naming found;

    assert_non_null(v);
    assert_non_null(old);
    add_detector(v, 90);
    assert_int_equal(v->file.tensor_count, VARIABLES);
    variables_fill(v);
    *old = *v;
    assert_int_equal(cvy_naming_read(&v->file, "x", &found), CVY_OK);
    assert_int_equal(found, CVY_NAMING_SLIM);
    assert_int_equal(v->file.tensor_count, VARIABLES);
    make_table(&graph, 90);
    check_table(&graph, &v->file);
    for (size_t i = 0; i < VARIABLES; i++) {
        struct cvy_named_tensor *tensor = &v->tensors[i];

        variables_check_values(tensor, i);
        assert_true(cvy_naming_has(CVY_NAMING_SLIM, tensor));
        assert_int_equal(cvy_naming_write(CVY_NAMING_SLIM, "ssd320", &v->file.arena, tensor), CVY_OK);
        assert_string_equal(tensor->name, old->tensors[i].name);
        assert_true(cvy_shape_equal(&tensor->shape, &old->tensors[i].shape));
        assert_int_equal(tensor->bytes, old->tensors[i].bytes);
        assert_memory_equal(tensor->data, old->tensors[i].data, tensor->bytes);
    }
    cvy_graph_release(&graph);
    cvy_tensor_file_close(&v->file);
    free(old);
    free(v);
}

/* Which of them is which: a permutation of equal shapes would have passed the test above. */
static void names_by_hand(void **state)
{
    static const char *const pairs[][2] = {
        {"FeatureExtractor/resnet_v1_50/conv1/BatchNorm/moving_variance", "backbone.bn1.running_var"},
        {"FeatureExtractor/resnet_v1_50/block3/unit_6/bottleneck_v1/conv2/weights", "backbone.layer3.5.conv2.weight"},
        {"FeatureExtractor/resnet_v1_50/block4/unit_1/bottleneck_v1/conv3/BatchNorm/gamma",
         "backbone.layer4.0.bn3.weight"},
        {"FeatureExtractor/resnet_v1_50/block2/unit_1/bottleneck_v1/shortcut/weights",
         "backbone.layer2.0.downsample.0.weight"},
        {"FeatureExtractor/resnet_v1_50/block2/unit_1/bottleneck_v1/shortcut/BatchNorm/beta",
         "backbone.layer2.0.downsample.1.bias"},
        {"FeatureExtractor/resnet_v1_50/fpn/projection_3/biases", "fpn.lateral5.bias"},
        {"FeatureExtractor/resnet_v1_50/fpn/projection_1/weights", "fpn.lateral3.weight"},
        {"FeatureExtractor/resnet_v1_50/fpn/smoothing_2/weights", "fpn.smooth4.conv.weight"},
        {"FeatureExtractor/resnet_v1_50/fpn/smoothing_1/BatchNorm/moving_mean", "fpn.smooth3.bn.running_mean"},
        {"FeatureExtractor/resnet_v1_50/fpn/bottom_up_block5/weights", "fpn.down6.conv.weight"},
        {"FeatureExtractor/resnet_v1_50/fpn/bottom_up_block6/BatchNorm/gamma", "fpn.down7.bn.weight"},
        {"WeightSharedConvolutionalBoxPredictor/BoxPredictionTower/conv2d_3/weights", "head.box_tower.3.conv.weight"},
        {"WeightSharedConvolutionalBoxPredictor/ClassPredictionTower/conv2d_1/BatchNorm/feature_4/beta",
         "head.class_tower.1.bn.4.bias"},
        {"WeightSharedConvolutionalBoxPredictor/BoxPredictor/biases", "head.box_predictor.bias"},
        {"WeightSharedConvolutionalBoxPredictor/ClassPredictor/weights", "head.class_predictor.weight"},
        {"FeatureExtractor/resnet_v1_50/conv1/weights", "backbone.conv1.weight"}, /* by which the scheme is known */
        {"WeightSharedConvolutionalBoxPredictor/ClassPredictor/weights/Momentum",
         CVY_MOMENTUM_PREFIX "head.class_predictor.weight"},
        {"FeatureExtractor/resnet_v1_50/conv1/weights/ExponentialMovingAverage",
         CVY_EMA_PREFIX "backbone.conv1.weight"},
    };
    enum { PAIRS = sizeof pairs / sizeof *pairs };
    struct cvy_named_tensor tensors[PAIRS] = {{0}};
    struct cvy_tensor_file file = {.tensors = tensors, .tensor_count = PAIRS};
    enum cvy_naming found;

    for (int i = 0; i < PAIRS; i++)
        tensors[i].name = pairs[i][0];
    assert_int_equal(cvy_naming_read(&file, "x", &found), CVY_OK);
    assert_int_equal(file.tensor_count, PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        assert_string_equal(tensors[i].name, pairs[i][1]);
        assert_int_equal(cvy_naming_write(CVY_NAMING_SLIM, "ssd320", &file.arena, &tensors[i]), CVY_OK);
        assert_string_equal(tensors[i].name, pairs[i][0]);
    }
    assert_string_equal(cvy_tensor_metadata(&file, "convoy.model"),
                        "{\"padding\": \"torch\", \"backbone_strides\": \"slim\"}");
    cvy_arena_release(&file.arena);
}

/* What is not the network's goes away; what its scopes have more stays, so that loading can name it. */
static void what_else_there_is(void **state)
{
    static const char *const names[] = {
        "resnet_v1_50/conv1/weights",
        "global_step",
        "current_loss_scale",
        "resnet_v1_50/logits/weights",
        "resnet_v1_50/logits/biases",
        "resnet_v1_50/mean_rgb",
        "resnet_v1_50/conv1/biases/Momentum",
        "resnet_v1_50/block1/unit_0/bottleneck_v1/conv1/weights",
        "resnet_v1_50/block1/unit_11/x",
        "resnet_v1_50/fpn/projection_1/BatchNorm/gamma",
    };
    static const char *const kept[] = {
        "backbone.conv1.weight",
        CVY_MOMENTUM_PREFIX "backbone.conv1.bias",
        "resnet_v1_50/block1/unit_0/bottleneck_v1/conv1/weights",
        "resnet_v1_50/block1/unit_11/x",
        "resnet_v1_50/fpn/projection_1/BatchNorm/gamma",
    };
    struct cvy_named_tensor tensors[sizeof names / sizeof *names] = {{0}};
    struct cvy_tensor_file file = {.tensors = tensors, .tensor_count = sizeof names / sizeof *names};
    enum cvy_naming found;

    for (size_t i = 0; i < file.tensor_count; i++)
        tensors[i].name = names[i];
    assert_int_equal(cvy_naming_read(&file, "x", &found), CVY_OK);
    assert_int_equal(file.tensor_count, sizeof kept / sizeof *kept);
    for (size_t i = 0; i < file.tensor_count; i++)
        assert_string_equal(tensors[i].name, kept[i]);
    cvy_arena_release(&file.arena);
}

static void names_without_a_table(void **state)
{
    static const char *const names[] = {"layer1.0.conv1.weight",
                                        "fc.weight",
                                        "backbone.layer1.1000.conv1.weight",
                                        "backbone.layer1.01.conv1.weight",
                                        "fpn.lateral1.weight",
                                        "head.box_tower.x",
                                        "backbone.conv1.weight.more",
                                        "head.box_predictor.gamma",
                                        "backbone.",
                                        ""};
    struct cvy_named_tensor counter = {.name = "backbone.bn1.num_batches_tracked"};
    struct cvy_arena arena = {0};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct cvy_named_tensor tensor = {.name = names[i]};
        if (cvy_naming_write(CVY_NAMING_SLIM, "ssd320", &arena, &tensor) != CVY_USAGE)
            fail_msg("%s became %s", names[i], tensor.name);
    }
    assert_false(cvy_naming_has(CVY_NAMING_SLIM, &counter));
    assert_true(cvy_naming_has(CVY_NAMING_NVIDIA, &counter));
    cvy_arena_release(&arena);
}

RUN_TESTS(NULL, NULL, TEST(all_variables_there_and_back), TEST(names_by_hand), TEST(what_else_there_is),
          TEST(names_without_a_table))
