/* The parameters of the architectures: torchvision's and timm's names, shapes and order, and start values. */
#include "models/models.h"
#include "support_graph.h"
#include "support_test.h"

static void check_scale(const struct cvy_param *p, enum cvy_init_kind init, double scale)
{
    assert_int_equal(p->init, init);
    assert_true(fabs(p->init_scale - scale) <= 1e-7 * scale); /* the rounding of float */
}

/* The start of the list, one projection block, and the end, in the order of torchvision's state dict. */
static void names_are_torchvisions(void **state)
{
    static const char *const start[] = {
        "conv1.weight",
        "bn1.weight",
        "bn1.bias",
        "bn1.running_mean",
        "bn1.running_var",
        "bn1.num_batches_tracked",
        "layer1.0.conv1.weight",
        "layer1.0.bn1.weight",
        "layer1.0.bn1.bias",
        "layer1.0.bn1.running_mean",
        "layer1.0.bn1.running_var",
        "layer1.0.bn1.num_batches_tracked",
        "layer1.0.conv2.weight",
        "layer1.0.bn2.weight",
        "layer1.0.bn2.bias",
        "layer1.0.bn2.running_mean",
        "layer1.0.bn2.running_var",
        "layer1.0.bn2.num_batches_tracked",
        "layer1.0.conv3.weight",
        "layer1.0.bn3.weight",
        "layer1.0.bn3.bias",
        "layer1.0.bn3.running_mean",
        "layer1.0.bn3.running_var",
        "layer1.0.bn3.num_batches_tracked",
        "layer1.0.downsample.0.weight",
        "layer1.0.downsample.1.weight",
        "layer1.0.downsample.1.bias",
        "layer1.0.downsample.1.running_mean",
        "layer1.0.downsample.1.running_var",
        "layer1.0.downsample.1.num_batches_tracked",
        "layer1.1.conv1.weight",
    };
    static const enum cvy_param_kind kinds[] = {CVY_PARAM_TRAINABLE, CVY_PARAM_TRAINABLE, CVY_PARAM_TRAINABLE,
                                                CVY_PARAM_STATE,     CVY_PARAM_STATE,     CVY_PARAM_COUNTER};
    const struct cvy_model_options options = network_options(10, 64);
    struct cvy_graph g;

    build_network(&g, "resnet50", &options, CVY_MODEL_TRAIN, true);
    for (size_t i = 0; i < sizeof start / sizeof *start; i++) {
        assert_string_equal(g.params[i].name, start[i]);
        assert_int_equal(g.params[i].kind, kinds[i % 6]);
    }
    assert_string_equal(g.params[g.param_count - 3].name, "layer4.2.bn3.num_batches_tracked");
    assert_string_equal(g.params[g.param_count - 2].name, "fc.weight");
    assert_string_equal(g.params[g.param_count - 1].name, "fc.bias");
    assert_true(cvy_shape_equal(&g.params[0].shape, &(struct cvy_shape){4, {64, 3, 7, 7}}));
    assert_true(cvy_shape_equal(&g.params[24].shape, &(struct cvy_shape){4, {256, 64, 1, 1}}));
    assert_true(cvy_shape_equal(&g.params[g.param_count - 2].shape, &(struct cvy_shape){2, {10, 2048}}));
    cvy_graph_release(&g);
    /* Without expansion the first stage needs no projection. */
    build_network(&g, "resnet18", &options, CVY_MODEL_TRAIN, true);
    assert_int_equal(cvy_graph_find_param(&g, "layer1.0.downsample.0.weight"), -1);
    assert_true(cvy_graph_find_param(&g, "layer2.0.downsample.0.weight") >= 0);
    assert_int_equal(cvy_graph_find_param(&g, "layer2.1.downsample.0.weight"), -1);
    cvy_graph_release(&g);
}

/* timm's names, shapes and place: after the last batch norm, before the projection. */
static void squeeze_parameters_are_timms(void **state)
{
    static const struct {
        const char *name;
        struct cvy_shape shape;
    } expected[] = {
        {"layer2.0.se.fc1.weight", {4, {32, 512, 1, 1}}},
        {"layer2.0.se.fc1.bias", {1, {32}}},
        {"layer2.0.se.fc2.weight", {4, {512, 32, 1, 1}}},
        {"layer2.0.se.fc2.bias", {1, {512}}},
    };
    struct cvy_model_options options = network_options(10, 64);
    struct cvy_graph g;
    int32_t first;

    options.resnet.squeeze_width = -16;
    build_network(&g, "se-resnet50", &options, CVY_MODEL_TRAIN, true);
    first = cvy_graph_find_param(&g, expected[0].name);
    assert_true(first > 0);
    assert_string_equal(g.params[first - 1].name, "layer2.0.bn3.num_batches_tracked");
    for (int32_t i = 0; i < 4; i++) {
        assert_string_equal(g.params[first + i].name, expected[i].name);
        assert_true(cvy_shape_equal(&g.params[first + i].shape, &expected[i].shape));
        assert_int_equal(g.params[first + i].kind, CVY_PARAM_TRAINABLE);
        check_scale(&g.params[first + i], CVY_INIT_UNIFORM, 1 / sqrt(i < 2 ? 512.0 : 32.0));
    }
    assert_string_equal(g.params[first + 4].name, "layer2.0.downsample.0.weight");
    cvy_graph_release(&g);
    options.resnet.squeeze_width = 24;
    build_network(&g, "se-resnet50", &options, CVY_MODEL_INFER, true);
    assert_true(
        cvy_shape_equal(&named_param(&g, "layer4.2.se.fc1.weight")->shape, &(struct cvy_shape){4, {24, 2048, 1, 1}}));
    cvy_graph_release(&g);
}

/* The deviations are TensorFlow's variance scaling written out, the
 * grouped filter's limit is Glorot and Bengio's. */
static void weights_start_as_the_tensorflow_program_does(void **state)
{
    const double kept = 0.87962566103423978; /* of a normal distribution's deviation within 2 of them */
    struct cvy_model_options options = network_options(11, 64);
    struct cvy_graph g;

    options.resnet.tensorflow_init = true;
    options.resnet.squeeze_width = -16;
    build_network(&g, "se-resnext101-32x4d", &options, CVY_MODEL_TRAIN, true);
    check_scale(named_param(&g, "conv1.weight"), CVY_INIT_TRUNCATED_NORMAL, sqrt(2.0 / (3 * 49)) / kept);
    check_scale(named_param(&g, "layer1.0.conv1.weight"), CVY_INIT_TRUNCATED_NORMAL, sqrt(2.0 / 64) / kept);
    check_scale(named_param(&g, "layer1.0.conv2.weight"), CVY_INIT_UNIFORM, sqrt(6.0 / (4 * 9 + 128 * 9)));
    check_scale(named_param(&g, "layer1.0.se.fc1.weight"), CVY_INIT_TRUNCATED_NORMAL, sqrt(1.0 / 256) / kept);
    check_scale(named_param(&g, "layer1.0.se.fc2.weight"), CVY_INIT_TRUNCATED_NORMAL, sqrt(1.0 / 16) / kept);
    check_scale(named_param(&g, "fc.weight"), CVY_INIT_TRUNCATED_NORMAL, sqrt(2.0 / 2048) / kept);
    assert_int_equal(named_param(&g, "fc.bias")->init, CVY_INIT_ZERO);
    assert_int_equal(named_param(&g, "layer1.0.se.fc1.bias")->init, CVY_INIT_ZERO);
    cvy_graph_release(&g);
    options.resnet.fan_out_init = true;
    build_network(&g, "se-resnext101-32x4d", &options, CVY_MODEL_TRAIN, true);
    check_scale(named_param(&g, "conv1.weight"), CVY_INIT_TRUNCATED_NORMAL, sqrt(2.0 / (64 * 49)) / kept);
    check_scale(named_param(&g, "fc.weight"), CVY_INIT_TRUNCATED_NORMAL, sqrt(2.0 / 11) / kept);
    cvy_graph_release(&g);
}

static void weights_start_as_the_reference_does(void **state)
{
    struct cvy_model_options options = network_options(10, 64);
    struct cvy_graph g;

    build_network(&g, "resnet50", &options, CVY_MODEL_TRAIN, true);
    check_scale(named_param(&g, "conv1.weight"), CVY_INIT_NORMAL, sqrt(2.0 / (3 * 49)));
    check_scale(named_param(&g, "layer1.0.conv2.weight"), CVY_INIT_NORMAL, sqrt(2.0 / (64 * 9)));
    check_scale(named_param(&g, "layer2.0.downsample.0.weight"), CVY_INIT_NORMAL, sqrt(2.0 / 256));
    check_scale(named_param(&g, "fc.weight"), CVY_INIT_UNIFORM, 1 / sqrt(2048.0));
    check_scale(named_param(&g, "fc.bias"), CVY_INIT_UNIFORM, 1 / sqrt(2048.0));
    assert_int_equal(named_param(&g, "bn1.weight")->init, CVY_INIT_ONE);
    assert_int_equal(named_param(&g, "bn1.bias")->init, CVY_INIT_ZERO);
    assert_int_equal(named_param(&g, "bn1.running_mean")->init, CVY_INIT_ZERO);
    assert_int_equal(named_param(&g, "bn1.running_var")->init, CVY_INIT_ONE);
    assert_int_equal(named_param(&g, "bn1.num_batches_tracked")->init, CVY_INIT_ZERO);
    assert_int_equal(named_param(&g, "layer1.0.bn3.weight")->init, CVY_INIT_ONE);
    cvy_graph_release(&g);
    options.resnet.fan_out_init = options.resnet.last_bn_gamma_zero = true;
    build_network(&g, "resnet50", &options, CVY_MODEL_TRAIN, true);
    check_scale(named_param(&g, "conv1.weight"), CVY_INIT_NORMAL, sqrt(2.0 / (64 * 49)));
    check_scale(named_param(&g, "layer2.0.downsample.0.weight"), CVY_INIT_NORMAL, sqrt(2.0 / 512));
    check_scale(named_param(&g, "fc.weight"), CVY_INIT_UNIFORM, 1 / sqrt(2048.0));
    assert_int_equal(named_param(&g, "layer1.0.bn3.weight")->init, CVY_INIT_ZERO);
    assert_int_equal(named_param(&g, "layer1.0.bn2.weight")->init, CVY_INIT_ONE);
    assert_int_equal(named_param(&g, "layer1.0.downsample.1.weight")->init, CVY_INIT_ONE);
    cvy_graph_release(&g);
    /* fan_in counts the channels of a group, fan_out all. */
    build_network(&g, "se-resnext101-32x4d", &options, CVY_MODEL_TRAIN, true);
    check_scale(named_param(&g, "layer2.0.conv2.weight"), CVY_INIT_NORMAL, sqrt(2.0 / (256 * 9)));
    assert_int_equal(named_param(&g, "layer1.0.bn3.weight")->init, CVY_INIT_ZERO);
    assert_int_equal(named_param(&g, "layer1.0.bn2.weight")->init, CVY_INIT_ONE);
    cvy_graph_release(&g);
    options.resnet.fan_out_init = false;
    build_network(&g, "resnext101-32x8d", &options, CVY_MODEL_TRAIN, true);
    check_scale(named_param(&g, "layer2.0.conv2.weight"), CVY_INIT_NORMAL, sqrt(2.0 / (512 / 32 * 9)));
    cvy_graph_release(&g);
    build_network(&g, "resnet18", &options, CVY_MODEL_TRAIN, true);
    assert_int_equal(named_param(&g, "layer1.0.bn2.weight")->init, CVY_INIT_ZERO);
    assert_int_equal(named_param(&g, "layer1.0.bn1.weight")->init, CVY_INIT_ONE);
    cvy_graph_release(&g);
}

RUN_TESTS(NULL, NULL, TEST(names_are_torchvisions), TEST(squeeze_parameters_are_timms),
          TEST(weights_start_as_the_tensorflow_program_does), TEST(weights_start_as_the_reference_does))
