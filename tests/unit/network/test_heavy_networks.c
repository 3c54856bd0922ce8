/* Every network on a device: it trains and answers at the smallest and at an odd size, and starts as its options say.
 */
#include "options/train_options.h"
#include "support_network.h"
#include "support_test.h"
#include "weights/model_variant.h"

enum { BATCH = PAINTED_BATCH, CLASSES = PAINTED_CLASSES, LARGEST = PAINTED_LARGEST };

static cvy_device *device;
static uint8_t *pixels; /* (BATCH, LARGEST, LARGEST, 3) */

static int open_device(void **state)
{
    pixels = cvy_calloc_aligned(BATCH * LARGEST * LARGEST * 3);
    return !pixels || cvy_device_open("cpu", 0, &device) != CVY_OK;
}

static int close_device(void **state)
{
    cvy_device_close(device);
    cvy_free_aligned(pixels);
    return 0;
}

static void must(cvy_status status, const char *what)
{
    if (status != CVY_OK)
        fail_msg("%s: %s", what, cvy_error());
}

/* Two steps on one batch, then the answers. */
static void train_and_infer(const struct cvy_architecture *architecture, const struct cvy_model_options *model)
{
    const struct cvy_batch batch = {.images = pixels, .labels = painted_labels, .count = BATCH};
    const struct cvy_optimizer_options sgd = {.momentum = 0.9f, .weight_decay = 1e-4f};
    const char *name = architecture->name;
    struct cvy_network network;
    struct cvy_trainer trainer = {0};
    struct cvy_evaluator evaluator = {0};
    struct cvy_comm comm;
    float loss[2];

    paint_images(pixels, model->image_size);
    cvy_comm_single(&comm);
    must(cvy_network_open(&network, device, architecture, model, CVY_F32, true), name);
    must(cvy_network_initialize(&network, 1), name);
    must(calm_network(&network), name);
    must(cvy_trainer_open(&trainer, &network, &comm, &sgd, BATCH), name);
    for (int step = 0; step < 2; step++) {
        must(cvy_trainer_step(&trainer, &batch, 1e-5), name);
        must(cvy_trainer_loss(&trainer, &loss[step]), name);
    }
    /* A small step against the gradient of the same batch: the loss falls. */
    if (!(isfinite(loss[0]) && loss[1] < loss[0]))
        fail_msg("%s, %d pixels: loss %g, then %g", name, (int)model->image_size, (double)loss[0], (double)loss[1]);
    must(cvy_evaluator_open(&evaluator, &network, BATCH), name);
    must(cvy_evaluator_run(&evaluator, pixels, evaluator.batch, true), name);
    for (int i = 0; i < BATCH; i++) {
        float sum = 0;
        for (int k = 0; k < model->num_classes; k++) {
            assert_true(isfinite(evaluator.logits[i * model->num_classes + k]));
            sum += evaluator.probabilities[i * model->num_classes + k];
        }
        assert_true(fabsf(sum - 1) <= 1e-5f); /* roundings of a few numbers below 1 */
    }
    cvy_evaluator_close(&evaluator);
    cvy_trainer_close(&trainer);
    cvy_network_close(&network);
}

static void every_network_trains_and_infers(void **state)
{
    static const int32_t sizes[] = {32, 49};
    const struct cvy_architecture *architecture;

    for (size_t i = 0; (architecture = cvy_architecture_at(i)); i++) {
        const struct cvy_model_options model = cvy_model_options_make(CLASSES, sizes[i % 2]);
        if (architecture->task == CVY_TASK_CLASSIFY)
            train_and_infer(architecture, &model);
    }
    /* The other size of each, on the shallow ones: depth only repeats their blocks. */
    for (size_t i = 0; (architecture = cvy_architecture_at(i)); i++) {
        const struct cvy_model_options model = cvy_model_options_make(CLASSES, sizes[(i + 1) % 2]);
        if (architecture->task == CVY_TASK_CLASSIFY && !strstr(architecture->name, "101") &&
            !strstr(architecture->name, "152"))
            train_and_infer(architecture, &model);
    }
}

/* The odd pixel of SAME padding lies elsewhere at each of these extents. */
static void options_train_and_infer(void **state)
{
    static const int32_t sizes[] = {32, 49, 38, LARGEST};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct cvy_model_options model = cvy_model_options_make(CLASSES + (int32_t)i, sizes[i]);
        model.resnet.same_padding = true;
        model.resnet.squeeze_width = i % 2 ? -16 : 5;
        train_and_infer(cvy_architecture_find("se-resnet50"), &model);
    }
}

/* ---- start values ---- */

static const float *values_of(const struct cvy_network *network, const char *name, int64_t *count)
{
    const int32_t index = cvy_graph_find_param(&network->table, name);

    assert_true(index >= 0);
    *count = cvy_shape_elements(&network->table.params[index].shape);
    return network->store.weights + network->table.params[index].offset;
}

/* The measured deviation of n values of a normal distribution lies within 5 of its own, deviation / sqrt(2 n); of a
 * uniform one nearer still. The seed is fixed: no test that fails now and then. */
static void check_deviation(const struct cvy_network *network, const char *name, double deviation)
{
    int64_t count;
    const float *values = values_of(network, name, &count);
    double sum = 0, squares = 0;

    for (int64_t i = 0; i < count; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    if (fabs(sqrt(squares / (double)count) - deviation) > 5 * deviation / sqrt(2.0 * (double)count) ||
        fabs(sum / (double)count) > 5 * deviation / sqrt((double)count))
        fail_msg("%s: mean %g, deviation %g instead of %g", name, sum / (double)count, sqrt(squares / (double)count),
                 deviation);
}

static void check_constant(const struct cvy_network *network, const char *name, float expected)
{
    int64_t count;
    const float *values = values_of(network, name, &count);

    for (int64_t i = 0; i < count; i++)
        assert_true(values[i] == expected);
}

static void open_with(struct cvy_network *network, const char *config, bool last_zero)
{
    struct cvy_train_options options;
    struct cvy_model_options model;

    cvy_train_options_init(&options);
    must(cvy_train_options_set(&options, "model-config", config, CVY_FROM_FLAG), "model-config");
    must(cvy_train_options_set(&options, "last-bn-0-init", last_zero ? "true" : "false", CVY_FROM_FLAG),
         "last-bn-0-init");
    must(cvy_train_options_set(&options, "squeeze-width", "C/16", CVY_FROM_FLAG), "squeeze-width");
    options.num_classes = 10;
    options.image_size = 64;
    must(cvy_model_from_options(&options, &model), "options");
    must(cvy_network_open(network, device, cvy_architecture_find("se-resnext101-32x4d"), &model, CVY_F32, false),
         "network");
    must(cvy_network_initialize(network, 3), "initialize");
}

static void every_configuration_starts_as_it_says(void **state)
{
    static const struct {
        const char *config;
        bool fan_out, last_zero;
    } cases[] = {
        {"fanin", false, false}, {"classic", true, false}, {"grp-fanin", false, true}, {"grp-fanout", true, true}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cvy_network network;
        const bool out = cases[i].fan_out;

        open_with(&network, cases[i].config, cases[i].last_zero);
        check_deviation(&network, "conv1.weight", sqrt(2.0 / ((out ? 64 : 3) * 49)));
        check_deviation(&network, "layer1.0.conv1.weight", sqrt(2.0 / (out ? 128 : 64)));
        /* 32 groups: fan in is that of a group, fan out is not. */
        check_deviation(&network, "layer1.0.conv2.weight", sqrt(2.0 / ((out ? 128 : 128 / 32) * 9)));
        check_deviation(&network, "layer4.2.conv2.weight", sqrt(2.0 / ((out ? 1024 : 1024 / 32) * 9)));
        check_deviation(&network, "layer4.0.downsample.0.weight", sqrt(2.0 / (out ? 2048 : 1024)));
        /* Linear layers: uniform between -1 / sqrt(inputs) and 1 / sqrt(inputs), whose deviation is that over sqrt 3.
         */
        check_deviation(&network, "layer4.0.se.fc1.weight", 1 / sqrt(3 * 2048.0));
        check_deviation(&network, "layer4.0.se.fc1.bias", 1 / sqrt(3 * 2048.0));
        check_deviation(&network, "layer4.0.se.fc2.weight", 1 / sqrt(3 * 128.0));
        check_deviation(&network, "fc.weight", 1 / sqrt(3 * 2048.0));
        check_constant(&network, "layer3.5.bn3.weight", cases[i].last_zero ? 0.0f : 1.0f);
        check_constant(&network, "layer3.5.bn2.weight", 1);
        check_constant(&network, "layer3.0.downsample.1.weight", 1);
        check_constant(&network, "layer3.5.bn3.bias", 0);
        cvy_network_close(&network);
    }
}

/* TensorFlow's variance scaling gives the values that deviation after the tails are gone; the tails go at 2 deviations
 * of before, which are 2 / 0.8796 of after. */
static void check_truncated(const struct cvy_network *network, const char *name, double deviation)
{
    int64_t count;
    const float *values = values_of(network, name, &count);

    check_deviation(network, name, deviation);
    for (int64_t i = 0; i < count; i++)
        assert_true(fabs((double)values[i]) <= 2.2737 * deviation);
}

static void tensorflow_starts_without_tails(void **state)
{
    for (int out = 0; out < 2; out++) {
        struct cvy_network network;

        open_with(&network, out ? "tf-fanout" : "tf-fanin", false);
        check_truncated(&network, "conv1.weight", sqrt(2.0 / ((out ? 64 : 3) * 49)));
        check_truncated(&network, "layer4.0.downsample.0.weight", sqrt(2.0 / (out ? 2048 : 1024)));
        check_truncated(&network, "layer4.0.se.fc1.weight", sqrt(1 / 2048.0));
        check_truncated(&network, "fc.weight", sqrt(2.0 / (out ? 10 : 2048)));
        check_deviation(&network, "layer4.2.conv2.weight", sqrt(6.0 / (9 * 32 + 9 * 1024)) / sqrt(3.0));
        check_constant(&network, "layer4.0.se.fc1.bias", 0);
        check_constant(&network, "fc.bias", 0);
        cvy_network_close(&network);
    }
}

/* ---- what shapes say ---- */

static int32_t width_of(const int64_t hidden[4])
{
    static char names[4][40];
    struct cvy_named_tensor tensors[4];
    struct cvy_tensor_file file = {.tensors = tensors, .tensor_count = 4};

    for (int i = 0; i < 4; i++) {
        snprintf(names[i], sizeof names[i], "layer%d.0.se.fc1.weight", i + 1);
        tensors[i] = (struct cvy_named_tensor){
            .name = names[i], .dtype = CVY_F32, .shape = cvy_shape4(hidden[i], (int64_t)256 << i, 1, 1)};
    }
    return cvy_weights_squeeze_width(&file);
}

static void shapes_tell_the_squeeze_width(void **state)
{
    const struct cvy_tensor_file none = {0};

    assert_int_equal(cvy_weights_squeeze_width(&none), 0);
    assert_int_equal(width_of((int64_t[]){16, 16, 16, 16}), 16);
    assert_int_equal(width_of((int64_t[]){1, 1, 1, 1}), 1);
    /* C / n for every n: the width that is found gives the same units. */
    for (int32_t n = 1; n <= 256; n++) {
        const int64_t hidden[] = {256 / n, 512 / n, 1024 / n, 2048 / n};
        const int32_t found = width_of(hidden);
        assert_true(found < 0);
        for (int i = 0; i < 4; i++)
            assert_int_equal(((int64_t)256 << i) / -found, hidden[i]);
    }
    /* Damaged files do not hurt. */
    width_of((int64_t[]){0, 16, 16, 16});
    width_of((int64_t[]){INT64_MAX, 3, INT64_MAX, 1});
    width_of((int64_t[]){-4, -5, 0, INT64_MIN});
}

RUN_TESTS(open_device, close_device, TEST(every_network_trains_and_infers), TEST(options_train_and_infer),
          TEST(every_configuration_starts_as_it_says), TEST(tensorflow_starts_without_tails),
          TEST(shapes_tell_the_squeeze_width))
