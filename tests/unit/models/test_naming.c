/* The naming schemes: every tensor of a network to each scheme and back, the names that the programs really use, and
 * files that mix schemes. */
#include "models/models.h"
#include "models/naming.h"
#include "support_test.h"

static const char *const networks[] = {"resnet18", "resnet50", "se-resnext101-32x4d"};

/* The parameters of a network as tensors without data, momentum and average of the first after them. */
static void make_file(struct cvy_tensor_file *file, const char *name, struct cvy_graph *graph)
{
    const struct cvy_model_options options = {.num_classes = 7, .image_size = 64, .std = {1, 1, 1}};

    if (cvy_model_graph(cvy_architecture_find(name), &options, CVY_MODEL_INFER, false, graph) != CVY_OK)
        fail_msg("%s", cvy_error());
    *file = (struct cvy_tensor_file){0};
    file->tensors = cvy_arena_alloc(&file->arena, (size_t)graph->param_count * 4 * sizeof *file->tensors);
    assert_non_null(file->tensors);
    for (int copy = 0; copy < 4; copy++)
        for (int32_t i = 0; i < graph->param_count; i++) {
            struct cvy_named_tensor *tensor = &file->tensors[file->tensor_count++];
            const char *const prefixes[] = {"", CVY_MOMENTUM_PREFIX, CVY_SQUARE_PREFIX, CVY_EMA_PREFIX};
            tensor->name = cvy_arena_printf(&file->arena, "%s%s", prefixes[copy], graph->params[i].name);
            tensor->shape = graph->params[i].shape;
            assert_non_null(tensor->name);
        }
}

static void test_round_trips(void **state)
{
    for (size_t n = 0; n < sizeof networks / sizeof *networks; n++)
        for (int naming = CVY_NAMING_TORCHVISION; naming <= CVY_NAMING_NVIDIA2019; naming++) {
            const bool se = strncmp(networks[n], "se-", 3) == 0;
            struct cvy_tensor_file file;
            struct cvy_graph graph;
            enum cvy_naming found;

            make_file(&file, networks[n], &graph);
            for (size_t i = 0; i < file.tensor_count; i++)
                assert_int_equal(cvy_naming_write((enum cvy_naming)naming, networks[n], &file.arena, &file.tensors[i]),
                                 CVY_OK);
            if (cvy_naming_read(&file, "x", &found) != CVY_OK)
                fail_msg("%s", cvy_error());
            /* torchvision and timm are one but for squeeze and excitation; NVIDIA 2019 is torchvision without it */
            if (naming == CVY_NAMING_NVIDIA)
                assert_int_equal(found, CVY_NAMING_NVIDIA);
            else
                assert_int_equal(found, !se                               ? CVY_NAMING_TORCHVISION
                                        : naming == CVY_NAMING_NVIDIA2019 ? CVY_NAMING_NVIDIA2019
                                                                          : CVY_NAMING_TIMM);
            for (size_t i = 0; i < file.tensor_count; i++) {
                const struct cvy_param *param = &graph.params[i % (size_t)graph.param_count];
                const char *name = file.tensors[i].name;
                assert_string_equal(name + strlen(name) - strlen(param->name), param->name);
                assert_true(cvy_shape_equal(&file.tensors[i].shape, &param->shape));
            }
            cvy_graph_release(&graph);
            cvy_tensor_file_close(&file);
        }
}

static const struct {
    const char *ours;
    struct cvy_shape shape;
    const char *nvidia, *nvidia2019, *legacy;
} rows[] = {
    {"conv1.weight", {4, {64, 3, 7, 7}}, "conv1.weight", "conv1.weight", "layer0.conv1.weight"},
    {"bn1.running_mean", {1, {64}}, "bn1.running_mean", "bn1.running_mean", "layer0.bn1.running_mean"},
    {"layer1.0.conv2.weight",
     {4, {128, 4, 3, 3}},
     "layers.0.0.conv2.weight",
     "layer1.0.conv2.weight",
     "layer1.0.conv2.weight"},
    {"layer4.2.bn3.num_batches_tracked",
     {0, {0}},
     "layers.3.2.bn3.num_batches_tracked",
     "layer4.2.bn3.num_batches_tracked",
     "layer4.2.bn3.num_batches_tracked"},
    {"layer2.0.downsample.1.bias",
     {1, {512}},
     "layers.1.0.downsample.1.bias",
     "layer2.0.downsample.1.bias",
     "layer2.0.downsample.1.bias"},
    {"layer3.22.se.fc1.weight",
     {4, {16, 1024, 1, 1}},
     "layers.2.22.squeeze.squeeze.weight",
     "layer3.22.squeeze.squeeze.weight",
     "layer3.22.se_module.fc1.weight"},
    {"layer3.22.se.fc2.bias",
     {1, {1024}},
     "layers.2.22.squeeze.expand.bias",
     "layer3.22.squeeze.expand.bias",
     "layer3.22.se_module.fc2.bias"},
    {"fc.weight", {2, {1000, 2048}}, "fc.weight", "fc.weight", "last_linear.weight"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void test_names(void **state)
{
    for (int r = 0; r < ROWS; r++) {
        const char *const theirs[] = {rows[r].nvidia, rows[r].nvidia2019, rows[r].legacy};
        const bool squeeze = strstr(rows[r].ours, ".fc1.weight") != NULL;
        struct cvy_arena arena = {0};

        for (int scheme = 0; scheme < 2; scheme++) {
            struct cvy_named_tensor tensor = {.name = rows[r].ours, .shape = rows[r].shape};
            assert_int_equal(
                cvy_naming_write((enum cvy_naming)(CVY_NAMING_NVIDIA + scheme), "resnet50", &arena, &tensor), CVY_OK);
            assert_string_equal(tensor.name, theirs[scheme]);
            assert_int_equal(tensor.shape.rank, squeeze ? 2 : rows[r].shape.rank); /* a linear layer there */
        }
        cvy_arena_release(&arena);
        for (int scheme = 0; scheme < 3; scheme++) {
            struct cvy_named_tensor tensor = {.name = theirs[scheme], .shape = rows[r].shape};
            struct cvy_tensor_file file = {.tensors = &tensor, .tensor_count = 1};
            enum cvy_naming found;
            if (squeeze && scheme < 2)
                tensor.shape = cvy_shape2(rows[r].shape.dim[0], rows[r].shape.dim[1]);
            assert_int_equal(cvy_naming_read(&file, "x", &found), CVY_OK);
            assert_string_equal(tensor.name, rows[r].ours);
            assert_true(cvy_shape_equal(&tensor.shape, &rows[r].shape));
            if (strcmp(theirs[scheme], rows[r].ours) != 0)
                assert_int_equal(found, scheme == 2 ? (int)CVY_NAMING_LEGACY : (int)CVY_NAMING_NVIDIA + scheme);
            cvy_arena_release(&file.arena);
        }
    }
}

/* What only looks like a scheme stays as it is. */
static void test_near_misses(void **state)
{
    static const char *const names[] = {"layers.9.0.x",   "layers.10.0.x",   "layers.x", "layer0x",
                                        "xlast_linear.w", "a.layers.0.0",    "layers.",  "layer",
                                        "se.fc1.weight",  "squeeze.squeeze."};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct cvy_named_tensor tensor = {.name = names[i]};
        struct cvy_tensor_file file = {.tensors = &tensor, .tensor_count = 1};
        enum cvy_naming found;
        assert_int_equal(cvy_naming_read(&file, "x", &found), CVY_OK);
        assert_string_equal(tensor.name, names[i]);
        assert_int_equal(cvy_naming_write(CVY_NAMING_NVIDIA, "resnet50", &file.arena, &tensor), CVY_OK);
        assert_string_equal(tensor.name, names[i]);
        cvy_arena_release(&file.arena);
    }
}

static void test_mixed(void **state)
{
    struct cvy_named_tensor tensors[] = {{.name = "layers.0.0.conv1.weight"}, {.name = "layer1.0.conv1.weight"}};
    struct cvy_tensor_file file = {.tensors = tensors, .tensor_count = 2};
    enum cvy_naming found;

    assert_int_equal(cvy_naming_read(&file, "mix.pth", &found), CVY_BAD_DATA);
    assert_string_equal(cvy_error(), "\"mix.pth\": two of its tensors are \"layer1.0.conv1.weight\"");
    cvy_arena_release(&file.arena);
}

static void test_option(void **state)
{
    static const char *const names[] = {[CVY_NAMING_TORCHVISION] = "torchvision",
                                        [CVY_NAMING_TIMM] = "timm",
                                        [CVY_NAMING_NVIDIA] = "nvidia",
                                        [CVY_NAMING_NVIDIA2019] = "nvidia2019",
                                        [CVY_NAMING_SLIM] = "slim"};
    enum cvy_naming naming;

    for (int i = CVY_NAMING_TORCHVISION; i <= CVY_NAMING_SLIM; i++) {
        assert_int_equal(cvy_naming_find(names[i], &naming), CVY_OK);
        assert_int_equal(naming, i);
    }
    assert_fails(cvy_naming_find("legacy", &naming), CVY_USAGE, "not \"legacy\"");
}

RUN_TESTS(NULL, NULL, TEST(test_round_trips), TEST(test_names), TEST(test_near_misses), TEST(test_mixed),
          TEST(test_option))
