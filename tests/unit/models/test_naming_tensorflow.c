/* The names of NVIDIA's TensorFlow program for classification: all variables of its three networks by the rule that its
 * model/resnet.py follows, written down here a second time, to Convoy's and back with every value at its place; what
 * else its checkpoints hold. */
#include "data/transform/transform.h"
#include "models/models.h"
#include "models/naming.h"
#include "models/naming_tensorflow.h"
#include "support_test.h"
#include "support_variables.h"
#include "weights/checkpoint.h"

static const struct network {
    const char *name;
    int blocks[4], width, expansion, groups;
    bool squeeze;
    int variables; /* counted by hand: 6 of a block norm + kernel and so on */
} networks[] = {
    {"resnet50", {3, 4, 6, 3}, 64, 4, 1, false, 53 * 5 + 2},
    {"resnext101-32x4d", {3, 4, 23, 3}, 128, 2, 32, false, 104 * 5 + 2},
    {"se-resnext101-32x4d", {3, 4, 23, 3}, 128, 2, 32, true, 104 * 5 + 2 + 33 * 4},
};
enum { NETWORKS = sizeof networks / sizeof *networks, OUTPUTS = 1001 };

/* A convolution without bias, and its batch norm. */
static void add_layer(struct variables *v, const char *block, const char *scope, struct cvy_shape kernel)
{
    char text[160];

    snprintf(text, sizeof text, "%s/%s/conv2d", block, scope);
    variables_add(v, kernel, text, "kernel");
    snprintf(text, sizeof text, "%s/%s/BatchNorm", block, scope);
    variables_add_norm(v, text, kernel.dim[3]);
}

static void add_grouped(struct variables *v, const char *block, int64_t width, int groups)
{
    char text[160];

    snprintf(text, sizeof text, "%s/bottleneck_2", block);
    variables_add(v, cvy_shape4(3, 3, width / groups, width), text, "bottleneck_2group_filter");
    snprintf(text, sizeof text, "%s/bottleneck_2/BatchNorm", block);
    variables_add_norm(v, text, width);
}

static void add_dense(struct variables *v, const char *scope, int64_t in, int64_t out)
{
    variables_add(v, cvy_shape2(in, out), scope, "kernel");
    variables_add(v, cvy_shape1(out), scope, "bias");
}

static void add_network(struct variables *v, const struct network *network, const char *root)
{
    int64_t in = 64;
    char block[128], scope[160];

    add_layer(v, root, "conv2d", cvy_shape4(7, 7, 3, 64));
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < network->blocks[stage]; i++) {
            const int64_t width = (int64_t)network->width << stage, out = width * network->expansion;

            snprintf(block, sizeof block, "%s/btlnck_block_%d_%d", root, stage, i);
            if (i == 0)
                add_layer(v, block, "shortcut/conv2d", cvy_shape4(1, 1, in, out));
            add_layer(v, block, "bottleneck_1", cvy_shape4(1, 1, in, width));
            if (network->groups > 1)
                add_grouped(v, block, width, network->groups);
            else
                add_layer(v, block, "bottleneck_2", cvy_shape4(3, 3, width, width));
            add_layer(v, block, "bottleneck_3", cvy_shape4(1, 1, width, out));
            for (int k = 0; network->squeeze && k < 2; k++) {
                snprintf(scope, sizeof scope, "%s/bottleneck_se_layer/dense%s", block, k ? "_1" : "");
                add_dense(v, scope, k ? out / 16 : out, k ? out : out / 16);
            }
            in = out;
        }
    snprintf(scope, sizeof scope, "%s/output/dense", root);
    add_dense(v, scope, 2048, OUTPUTS);
}

/* Every parameter of the network but counters has its tensor; their numbers are equal, so none is left. */
static void check_table(const struct network *network, const struct cvy_tensor_file *file)
{
    struct cvy_model_options options = {.num_classes = OUTPUTS, .image_size = 64, .std = {1, 1, 1}};
    struct cvy_graph graph;
    int found = 0;

    options.resnet.squeeze_width = network->squeeze ? CVY_TENSORFLOW_SQUEEZE : 0;
    assert_int_equal(cvy_model_graph(cvy_architecture_find(network->name), &options, CVY_MODEL_INFER, false, &graph),
                     CVY_OK);
    for (int32_t i = 0; i < graph.param_count; i++) {
        const struct cvy_param *param = &graph.params[i];
        const struct cvy_named_tensor *tensor = cvy_tensor_find(file, param->name);

        if (param->kind == CVY_PARAM_COUNTER)
            continue;
        if (!tensor || !cvy_shape_equal(&tensor->shape, &param->shape))
            fail_msg("%s: %s", network->name, param->name);
        found++;
    }
    assert_int_equal(found, network->variables);
    cvy_graph_release(&graph);
}

static void there_and_back(const struct network *network)
{
    struct variables *v = calloc(1, sizeof *v), *old = calloc(1, sizeof *old);
    enum cvy_naming found;

    assert_non_null(v);
    assert_non_null(old);
    add_network(v, network, network->name);
    assert_int_equal(v->file.tensor_count, network->variables);
    variables_fill(v);
    *old = *v;
    assert_int_equal(cvy_naming_read(&v->file, "x", &found), CVY_OK);
    assert_int_equal(found, CVY_NAMING_TENSORFLOW);
    assert_int_equal(v->file.tensor_count, network->variables);
    check_table(network, &v->file);
    for (int i = 0; i < network->variables; i++) {
        struct cvy_named_tensor *tensor = &v->tensors[i];
        const struct cvy_named_tensor *was = &old->tensors[i];

        if (was->shape.rank > 1)
            variables_check_values(tensor, (size_t)i);
        assert_true(cvy_naming_has(CVY_NAMING_TENSORFLOW, tensor));
        assert_int_equal(cvy_naming_write(CVY_NAMING_TENSORFLOW, network->name, &v->file.arena, tensor), CVY_OK);
        assert_string_equal(tensor->name, was->name);
        assert_true(cvy_shape_equal(&tensor->shape, &was->shape));
        assert_int_equal(tensor->bytes, was->bytes);
        assert_memory_equal(tensor->data, was->data, was->bytes);
    }
    cvy_tensor_file_close(&v->file);
    free(old);
    free(v);
}

static void all_variables_there_and_back(void **state)
{
    for (int i = 0; i < NETWORKS; i++)
        there_and_back(&networks[i]);
}

/* Which of them is which: a permutation of equal shapes would have passed the test above. */
static void names_by_hand(void **state)
{
    static const char *const pairs[][2] = {
        {"resnet50/conv2d/conv2d/kernel", "conv1.weight"},
        {"resnet50/conv2d/BatchNorm/moving_variance", "bn1.running_var"},
        {"resnet50/btlnck_block_0_0/bottleneck_1/conv2d/kernel", "layer1.0.conv1.weight"}, /* by which it is known */
        {"resnet50/btlnck_block_2_5/bottleneck_2/conv2d/kernel", "layer3.5.conv2.weight"},
        {"resnet50/btlnck_block_3_0/bottleneck_3/BatchNorm/gamma", "layer4.0.bn3.weight"},
        {"resnet50/btlnck_block_2_22/bottleneck_1/BatchNorm/beta", "layer3.22.bn1.bias"},
        {"resnet50/btlnck_block_1_0/shortcut/conv2d/conv2d/kernel", "layer2.0.downsample.0.weight"},
        {"resnet50/btlnck_block_1_0/shortcut/conv2d/BatchNorm/moving_mean", "layer2.0.downsample.1.running_mean"},
        {"resnet50/btlnck_block_1_3/bottleneck_se_layer/dense/kernel", "layer2.3.se.fc1.weight"},
        {"resnet50/btlnck_block_1_3/bottleneck_se_layer/dense_1/bias", "layer2.3.se.fc2.bias"},
        {"resnet50/output/dense/kernel", "fc.weight"},
        {"resnet50/output/dense/bias", "fc.bias"},
        {"resnet50/output/dense/kernel/Momentum", CVY_MOMENTUM_PREFIX "fc.weight"},
        {"resnet50/conv2d/BatchNorm/beta/ExponentialMovingAverage", CVY_EMA_PREFIX "bn1.bias"},
    };
    enum { PAIRS = sizeof pairs / sizeof *pairs };
    struct cvy_named_tensor tensors[PAIRS] = {{0}};
    struct cvy_tensor_file file = {.tensors = tensors, .tensor_count = PAIRS};
    enum cvy_naming found;

    for (int i = 0; i < PAIRS; i++)
        tensors[i].name = pairs[i][0];
    assert_int_equal(cvy_naming_read(&file, "x", &found), CVY_OK);
    assert_int_equal(found, CVY_NAMING_TENSORFLOW);
    assert_int_equal(file.tensor_count, PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        assert_string_equal(tensors[i].name, pairs[i][1]);
        assert_int_equal(cvy_naming_write(CVY_NAMING_TENSORFLOW, "resnet50", &file.arena, &tensors[i]), CVY_OK);
        assert_string_equal(tensors[i].name, pairs[i][0]);
    }
    cvy_arena_release(&file.arena);
}

/* What is not the network's goes away; what its scope has more stays, so that loading can name it. */
static void what_else_there_is(void **state)
{
    static const char *const names[] = {
        "tower/net/btlnck_block_0_0/bottleneck_1/conv2d/kernel",
        "global_step",
        "current_loss_scale",
        "tower/net/conv2d/conv2d/weights_quant/min",
        "tower/net/btlnck_block_0_0/act_quant/tower/net/btlnck_block_0_0/act_quant/max/biased",
        "tower/net/btlnck_block_00_0/bottleneck_1/conv2d/kernel",
        "tower/net/btlnck_block_0_1000/bottleneck_1/conv2d/kernel",
        "tower/net/output/dense/kernel",
        "tower/net/output/dense/gamma",
    };
    static const char *const kept[] = {
        "layer1.0.conv1.weight",
        "tower/net/btlnck_block_00_0/bottleneck_1/conv2d/kernel",
        "tower/net/btlnck_block_0_1000/bottleneck_1/conv2d/kernel",
        "fc.weight",
        "tower/net/output/dense/gamma",
    };
    enum { NAMES = sizeof names / sizeof *names, KEPT = sizeof kept / sizeof *kept };
    struct cvy_named_tensor tensors[NAMES] = {{0}};
    struct cvy_tensor_file file = {.tensors = tensors, .tensor_count = NAMES};
    enum cvy_naming found;

    for (size_t i = 0; i < NAMES; i++)
        tensors[i].name = names[i];
    tensors[7].shape = cvy_shape4(1, 1, 2048, OUTPUTS); /* of --use_final_conv */
    assert_int_equal(cvy_naming_read(&file, "x", &found), CVY_OK);
    assert_int_equal(file.tensor_count, KEPT);
    for (size_t i = 0; i < KEPT; i++)
        assert_string_equal(tensors[i].name, kept[i]);
    assert_true(cvy_shape_equal(&tensors[3].shape, &(struct cvy_shape){2, {OUTPUTS, 2048}}));
    cvy_arena_release(&file.arena);
}

/* The program's padding and transform are told as a checkpoint of Convoy tells them; what the file says itself stays.
 */
static void what_is_implied(void **state)
{
    struct cvy_named_tensor tensor = {.name = "n/btlnck_block_0_0/bottleneck_1/conv2d/kernel"};
    struct cvy_tensor_meta own = {"convoy.model", "{\"padding\": \"torch\"}"};
    struct cvy_checkpoint_info info;
    enum cvy_naming found;

    for (int said = 0; said < 2; said++) {
        struct cvy_named_tensor tensors[] = {tensor};
        struct cvy_tensor_file file = {
            .tensors = tensors, .tensor_count = 1, .metadata = &own, .metadata_count = (size_t)said};

        assert_int_equal(cvy_naming_read(&file, "x", &found), CVY_OK);
        assert_int_equal(cvy_checkpoint_read(&file, "x", &info), CVY_OK);
        assert_int_equal(info.same_padding, !said);
        assert_true(info.has_preprocessing && info.preprocessing.tensorflow);
        assert_memory_equal(info.preprocessing.mean, cvy_tensorflow_mean, sizeof cvy_tensorflow_mean);
        assert_memory_equal(info.preprocessing.std, cvy_tensorflow_std, sizeof cvy_tensorflow_std);
        assert_int_equal(info.preprocessing.image_size, 224);
        assert_int_equal(info.preprocessing.resize, 256);
        cvy_checkpoint_info_release(&info);
        cvy_arena_release(&file.arena);
    }
}

static void what_has_no_name(void **state)
{
    static const char *const names[] = {"layer1.0.conv2.gamma", "backbone.conv1.weight",  "layer0.0.conv1.weight",
                                        "conv1.weight.more",    "layer1.0.se.fc3.weight", ""};
    static const char *const left_out[] = {"bn1.num_batches_tracked", "fc.weight_quantizer.observed"};
    struct cvy_arena arena = {0};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct cvy_named_tensor tensor = {.name = names[i]};
        assert_fails(cvy_naming_write(CVY_NAMING_TENSORFLOW, "resnet50", &arena, &tensor), CVY_USAGE, "has no name");
    }
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        assert_false(cvy_naming_has(CVY_NAMING_TENSORFLOW, &(struct cvy_named_tensor){.name = left_out[i]}));
    assert_int_equal(cvy_tensorflow_naming_check("resnext101-32x4d"), CVY_OK);
    assert_fails(cvy_tensorflow_naming_check("resnet18"), CVY_USAGE, "has no resnet18");
    cvy_arena_release(&arena);
}

RUN_TESTS(NULL, NULL, TEST(all_variables_there_and_back), TEST(names_by_hand), TEST(what_else_there_is),
          TEST(what_is_implied), TEST(what_has_no_name))
