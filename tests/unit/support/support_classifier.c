/* Classifiers of random weights, and painted images for them. */
#include "support_classifier.h"

#include "base/file.h"
#include "options/train_options.h"
#include "support_folder.h"
#include "support_network.h"
#include "support_test.h"
#include "weights/checkpoint.h"

uint8_t painted[IMAGES][SIDE * SIDE * 3];
float nhwc[IMAGES][SIDE * SIDE][3], nchw[IMAGES][3][SIDE * SIDE];

const char *make_weights(const char *arch)
{
    const struct cvy_architecture *architecture = cvy_architecture_find(arch);
    const int32_t side = architecture->task == CVY_TASK_DETECT ? 2 * SIDE : SIDE;
    const struct cvy_model_options model = cvy_model_options_usual(architecture, CLASSES, side);
    struct cvy_preprocessing preprocessing = {.image_size = side, .resize = side, .tensorflow = model.float_images};
    const struct cvy_train_state state = {0};
    struct cvy_train_options options;
    struct cvy_network network;
    cvy_device *device;
    const char *path = below(arch);

    if (cvy_path_is_file(path))
        return path;
    memcpy(preprocessing.mean, model.mean, sizeof model.mean);
    memcpy(preprocessing.std, model.std, sizeof model.std);
    cvy_train_options_init(&options);
    snprintf(options.arch, sizeof options.arch, "%s", arch);
    assert_int_equal(cvy_device_open("cpu", 1, &device), CVY_OK);
    assert_int_equal(cvy_network_open(&network, device, architecture, &model, CVY_F32, false), CVY_OK);
    assert_int_equal(cvy_network_initialize(&network, 3), CVY_OK);
    assert_int_equal(calm_network(&network), CVY_OK);
    const struct cvy_checkpoint checkpoint = {.network = &network,
                                              .preprocessing = &preprocessing,
                                              .state = &state,
                                              .options = &options,
                                              .part = CVY_PART_WEIGHTS};
    if (cvy_checkpoint_write(&checkpoint, path) != CVY_OK)
        fail_msg("%s", cvy_error());
    cvy_network_close(&network);
    cvy_device_close(device);
    return path;
}

cvy_classifier *open_threads(const char *weights, const char *precision, int threads, int batch)
{
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    cvy_classifier *classifier;

    options.weights = weights;
    options.precision = precision;
    options.features = true;
    options.threads = threads;
    options.batch_size = batch;
    if (cvy_classifier_open(&options, &classifier) != CVY_OK)
        fail_msg("%s", cvy_error());
    return classifier;
}

cvy_classifier *open_classifier(const char *weights, const char *precision)
{
    return open_threads(weights, precision, 1, 4);
}

struct cvy_pixels painted_pixels(int index)
{
    return (struct cvy_pixels){sizeof(struct cvy_pixels), painted[index], CVY_PIXELS_RGB, SIDE, SIDE, 0};
}

void classify_painted(cvy_classifier *classifier, int index, float logits[CLASSES])
{
    const struct cvy_pixels pixels = painted_pixels(index);

    if (cvy_classify_pixels(classifier, "painted", &pixels, logits, NULL) != CVY_OK)
        fail_msg("%s", cvy_error());
}

int classifier_setup(void **state)
{
    static const float mean[3] = {123.675f, 116.28f, 103.53f}, deviation[3] = {58.395f, 57.12f, 57.375f};

    paint_images(&painted[0][0], SIDE);
    for (int i = 0; i < IMAGES; i++)
        for (int p = 0; p < SIDE * SIDE; p++)
            for (int c = 0; c < 3; c++)
                nhwc[i][p][c] = nchw[i][c][p] = ((float)painted[i][3 * p + c] - mean[c]) / deviation[c];
    return test_folder_setup(state);
}

int classifier_teardown(void **state)
{
    return test_folder_teardown(state);
}

struct cvy_outputs outputs_of(struct answers *answers)
{
    return (struct cvy_outputs){sizeof(struct cvy_outputs), &answers->logits[0][0], &answers->probabilities[0][0],
                                &answers->features[0][0],   answers->status,        NULL};
}
