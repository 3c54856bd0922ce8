/* Answers for batches of images and for tensors. */
#include <math.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/utf8.h"
#include "infer/predictor.h"
#include "support_classifier.h"
#include "support_test.h"

/* The last layer makes the logits of the features. */
static void expect_linear(const cvy_classifier *classifier, const float *features, const float *logits)
{
    const struct cvy_network *network = &cvy_classifier_predictor((cvy_classifier *)(uintptr_t)classifier)->network;
    const struct cvy_graph *table = &network->table;
    const float *weight = network->store.weights + table->params[cvy_graph_find_param(table, "fc.weight")].offset;
    const float *bias = network->store.weights + table->params[cvy_graph_find_param(table, "fc.bias")].offset;

    for (int i = 0; i < CLASSES; i++) {
        double sum = (double)bias[i];

        for (int k = 0; k < 512; k++)
            sum += (double)weight[i * 512 + k] * (double)features[k];
        assert_true(fabs(sum - (double)logits[i]) <= 1e-4 * (1 + fabs(sum)));
    }
}

/* As a newer header might have them. */
struct newer_image {
    struct cvy_image image;
    long more;
};

/* A program with longer structs: they are found by the size that they say, and what only it knows must be 0. */
static void longer_images(void **state)
{
    static struct answers answers;
    cvy_classifier *classifier = open_classifier(make_weights("resnet18"), "fp32");
    struct {
        struct cvy_pixels pixels;
        long more;
    } pixels[2];
    struct newer_image list[2];
    struct {
        struct cvy_outputs outputs;
        long more;
    } outputs = {outputs_of(&answers), 0};
    float logits[CLASSES];

    (void)state;
    outputs.outputs.size = sizeof outputs;
    for (int i = 0; i < 2; i++) {
        pixels[i].pixels = painted_pixels(i);
        pixels[i].pixels.size = sizeof pixels[i];
        pixels[i].more = 0;
        list[i] = (struct newer_image){.image = {.size = sizeof list[i], .pixels = &pixels[i].pixels}};
    }
    assert_int_equal(cvy_classify_images(classifier, &list[0].image, 2, &outputs.outputs), CVY_OK);
    for (int i = 0; i < 2; i++) {
        classify_painted(classifier, i, logits);
        for (int k = 0; k < CLASSES; k++)
            assert_float_equal(answers.logits[i][k], logits[k], 1e-4);
    }
    list[1].more = 1;
    assert_fails(cvy_classify_images(classifier, &list[0].image, 2, &outputs.outputs), CVY_USAGE, "newer library");
    list[1].more = 0;
    list[1].image.size = sizeof(struct cvy_image);
    assert_fails(cvy_classify_images(classifier, &list[0].image, 2, &outputs.outputs), CVY_USAGE, "image 1");
    pixels[0].more = 1;
    assert_int_equal(cvy_classify_images(classifier, &list[0].image, 1, &outputs.outputs), CVY_USAGE);
    cvy_classifier_close(classifier);
}

/* Each bad image has its sentence, which ends with a whole character; a program of an older header has no place for
 * them. */
static void sentences(void **state)
{
    enum { COUNT = IMAGES + 1, LETTERS = 300 };
    static struct answers answers;
    static char errors[COUNT][CVY_ERROR_SIZE];
    cvy_classifier *classifier = open_classifier(make_weights("resnet18"), "fp32");
    struct cvy_outputs outputs = outputs_of(&answers);
    struct cvy_image list[COUNT];
    struct cvy_pixels pixels[COUNT];
    char name[2 * LETTERS + 2] = "x";

    for (int i = 0; i < LETTERS; i++)
        memcpy(name + 2 * i + 1, "\xC3\xBC", 3);
    for (int i = 0; i < COUNT; i++) {
        pixels[i] = painted_pixels(i % IMAGES);
        list[i] = (struct cvy_image){.size = sizeof list[i], .pixels = &pixels[i]};
    }
    list[1] = (struct cvy_image){sizeof list[1], "the second", "no image", 8, NULL};
    list[3] = (struct cvy_image){sizeof list[3], name, "no image", 8, NULL};
    list[4] = (struct cvy_image){.size = sizeof list[4]};
    memset(errors, 'x', sizeof errors);
    outputs.errors = errors[0];
    assert_fails(cvy_classify_images(classifier, list, COUNT, &outputs), CVY_BAD_DATA, "the second");
    assert_string_equal(errors[0], "");
    assert_string_equal(errors[1], cvy_error());
    assert_string_equal(errors[2], "");
    assert_true(strlen(errors[3]) == CVY_ERROR_SIZE - 2 && cvy_utf8_is_valid(errors[3]));
    assert_string_equal(errors[4], "\"image 4\" has neither bytes nor pixels");
    outputs.status = NULL;
    assert_fails(cvy_classify_images(classifier, list, COUNT, &outputs), CVY_USAGE, "errors without status");
    outputs.size = offsetof(struct cvy_outputs, errors);
    outputs.status = answers.status;
    memset(errors, 'x', sizeof errors);
    assert_int_equal(cvy_classify_images(classifier, list, COUNT, &outputs), CVY_BAD_DATA);
    assert_int_equal(answers.status[4], CVY_USAGE);
    assert_true(errors[0][0] == 'x' && errors[1][0] == 'x');
    cvy_classifier_close(classifier);
}

static void images(void **state)
{
    static struct answers answers;
    cvy_classifier *classifier = open_classifier(make_weights("resnet18"), "fp32");
    struct cvy_outputs outputs = outputs_of(&answers);
    struct cvy_image list[2 * IMAGES + 1];
    struct cvy_pixels pixels[2 * IMAGES + 1];
    float logits[CLASSES];

    assert_int_equal(cvy_classifier_features(classifier), 512);
    assert_int_equal(cvy_classifier_image_size(classifier), SIDE);
    for (int i = 0; i < 2 * IMAGES + 1; i++) {
        pixels[i] = painted_pixels(i % IMAGES);
        list[i] = (struct cvy_image){.size = sizeof list[i], .pixels = &pixels[i]};
    }
    /* Nine of them are two batches and a bit; the sixth is none. */
    list[5] = (struct cvy_image){sizeof list[5], "the sixth", "no image", 8, NULL};
    assert_fails(cvy_classify_images(classifier, list, 2 * IMAGES + 1, &outputs), CVY_BAD_DATA, "the sixth");
    for (int i = 0; i < 2 * IMAGES + 1; i++) {
        assert_int_equal(answers.status[i], i == 5 ? CVY_BAD_DATA : CVY_OK);
        if (i == 5) {
            assert_true(isnan(answers.logits[i][0]) && isnan(answers.features[i][511]));
            continue;
        }
        classify_painted(classifier, i % IMAGES, logits);
        for (int k = 0; k < CLASSES; k++)
            assert_float_equal(answers.logits[i][k], logits[k], 1e-4);
        expect_linear(classifier, answers.features[i], answers.logits[i]);
    }
    outputs.status = NULL; /* the first bad one ends the call */
    assert_fails(cvy_classify_images(classifier, list, 2 * IMAGES + 1, &outputs), CVY_BAD_DATA, "the sixth");
    /* Memory for images is that of the smallest batch which holds them, here of two: sanitizers see more. */
    assert_int_equal(cvy_classify_images(classifier, list, 2, &outputs), CVY_OK);
    list[1] = (struct cvy_image){.size = sizeof list[1]};
    assert_fails(cvy_classify_images(classifier, list, 2, &outputs), CVY_USAGE, "image 1");
    list[1].size = 0;
    assert_fails(cvy_classify_images(classifier, list, 2, &outputs), CVY_USAGE, "size");
    assert_int_equal(cvy_classify_images(classifier, list, 1, &outputs), CVY_OK);
    assert_int_equal(cvy_classify_images(classifier, NULL, 0, &outputs), CVY_OK);
    assert_int_equal(cvy_classify_images(classifier, list, -1, &outputs), CVY_USAGE);
    outputs.size = 0;
    assert_fails(cvy_classify_images(classifier, list, 1, &outputs), CVY_USAGE, "cvy_outputs");
    cvy_classifier_close(classifier);
}

static void tensors(void **state)
{
    static struct answers answers;
    cvy_classifier *classifier = open_classifier(make_weights("resnet18"), "fp32");
    const struct cvy_outputs outputs = outputs_of(&answers);
    struct cvy_input_tensor tensor = {sizeof tensor, &nhwc[0][0][0], CVY_ORDER_NHWC, IMAGES, SIDE, SIDE};
    float logits[CLASSES], mean[3], deviation[3];

    cvy_classifier_normalization(classifier, mean, deviation);
    for (int c = 0; c < 3; c++)
        assert_float_equal(((float)painted[1][3 * 5 + c] - mean[c]) / deviation[c], nhwc[1][5][c], 1e-6);
    for (int order = 0; order < 2; order++) {
        tensor.data = order ? &nchw[0][0][0] : &nhwc[0][0][0];
        tensor.order = order ? CVY_ORDER_NCHW : CVY_ORDER_NHWC;
        memset(&answers, 0, sizeof answers);
        if (cvy_classify_tensor(classifier, &tensor, &outputs) != CVY_OK)
            fail_msg("%s", cvy_error());
        for (int i = 0; i < IMAGES; i++) {
            classify_painted(classifier, i, logits);
            for (int k = 0; k < CLASSES; k++)
                assert_float_equal(answers.logits[i][k], logits[k], 1e-4);
            expect_linear(classifier, answers.features[i], answers.logits[i]);
        }
    }
    /* An image with NaN has no answer, and changes no other one's. */
    static struct answers others;
    static char errors[IMAGES][CVY_ERROR_SIZE];
    struct cvy_outputs beside = outputs_of(&others);
    beside.errors = errors[0];
    nchw[1][2][7] = NAN;
    nchw[2][0][0] = -INFINITY;
    assert_fails(cvy_classify_tensor(classifier, &tensor, &beside), CVY_BAD_DATA, "image 1 of the tensor: 1 of");
    for (int i = 0; i < IMAGES; i++) {
        assert_int_equal(others.status[i], i == 1 || i == 2 ? CVY_BAD_DATA : CVY_OK);
        assert_int_equal(isnan(others.logits[i][0]) && isnan(others.features[i][511]), i == 1 || i == 2);
    }
    assert_memory_equal(others.logits[3], answers.logits[3], sizeof others.logits[3]);
    assert_string_equal(errors[1], cvy_error());
    assert_non_null(strstr(errors[2], "image 2 of the tensor: 1 of"));
    assert_true(!errors[0][0] && !errors[3][0]);
    beside.status = NULL;
    assert_fails(cvy_classify_tensor(classifier, &tensor, &beside), CVY_USAGE, "errors without status");
    beside.errors = NULL;
    assert_fails(cvy_classify_tensor(classifier, &tensor, &beside), CVY_BAD_DATA, "image 1 of the tensor: 1 of");
    tensor.data = &nhwc[0][0][0];
    tensor.order = CVY_ORDER_NHWC;
    tensor.height = SIDE + 1;
    assert_fails(cvy_classify_tensor(classifier, &tensor, &outputs), CVY_USAGE, "32 x 33");
    tensor.height = SIDE;
    tensor.images = 0;
    assert_fails(cvy_classify_tensor(classifier, &tensor, &outputs), CVY_USAGE, "no images");
    tensor.order = (enum cvy_tensor_order)2;
    tensor.images = 1;
    assert_fails(cvy_classify_tensor(classifier, &tensor, &outputs), CVY_USAGE, "order");
    cvy_classifier_close(classifier);
}

static cvy_classifier *open_layer(const char *weights, const char *layer)
{
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    cvy_classifier *classifier;

    options.weights = weights;
    options.threads = 1;
    options.batch_size = 2;
    options.image_size = 2 * SIDE;
    options.resize = 2 * SIDE;
    options.features = true;
    options.feature_layer = layer;
    if (cvy_classifier_open(&options, &classifier) != CVY_OK)
        fail_msg("%s", cvy_error());
    return classifier;
}

/* The map of the last stage, whose means the last layer reads: a channel after the other, of batches and of contexts.
 */
static void layers(void **state)
{
    enum { CHANNELS = 512, PIXELS = 4, COUNT = 3 };
    static float maps[COUNT][CHANNELS][PIXELS], means[COUNT][CHANNELS], again[CHANNELS][PIXELS];
    const char *weights = make_weights("resnet18");
    cvy_classifier *mapped = open_layer(weights, "layer4"), *plain = open_layer(weights, NULL), *context, *other;
    const struct cvy_outputs as_maps = {.size = sizeof as_maps, .features = &maps[0][0][0]};
    const struct cvy_outputs as_means = {.size = sizeof as_means, .features = &means[0][0]};
    const struct cvy_outputs one = {.size = sizeof one, .features = &again[0][0]};
    struct cvy_pixels pixels[COUNT];
    struct cvy_image list[COUNT];
    int shape[3];

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        pixels[i] = painted_pixels(i);
        list[i] = (struct cvy_image){.size = sizeof list[i], .pixels = &pixels[i]};
    }
    cvy_classifier_feature_shape(plain, shape);
    assert_true(shape[0] == CHANNELS && shape[1] == 1 && shape[2] == 1);
    cvy_classifier_feature_shape(mapped, shape);
    assert_true(shape[0] == CHANNELS && shape[1] == 2 && shape[2] == 2);
    assert_int_equal(cvy_classifier_features(mapped), CHANNELS * PIXELS);
    assert_int_equal(cvy_classify_images(mapped, list, COUNT, &as_maps), CVY_OK);
    assert_int_equal(cvy_classify_images(plain, list, COUNT, &as_means), CVY_OK);
    for (int i = 0; i < COUNT; i++)
        for (int c = 0; c < CHANNELS; c++) {
            const float *m = maps[i][c];
            assert_float_equal((m[0] + m[1] + m[2] + m[3]) / 4, means[i][c], 1e-5F * (1 + means[i][c]));
        }
    assert_int_equal(cvy_classifier_open_context(mapped, 0, &context), CVY_OK);
    cvy_classifier_feature_shape(context, shape);
    assert_true(shape[0] == CHANNELS && shape[1] == 2 && shape[2] == 2);
    cvy_classifier_close(mapped);
    assert_int_equal(cvy_classify_images(context, list + 2, 1, &one), CVY_OK);
    for (int i = 0; i < CHANNELS * PIXELS; i++)
        assert_float_equal((&again[0][0])[i], (&maps[2][0][0])[i], 1e-5F * (1 + (&maps[2][0][0])[i]));
    /* A stage gives what its last block does. */
    static float stage[256][16], block[256][16];
    const struct cvy_outputs of_stage = {.size = sizeof of_stage, .features = &stage[0][0]};
    const struct cvy_outputs of_block = {.size = sizeof of_block, .features = &block[0][0]};
    other = open_layer(weights, "layer3");
    assert_int_equal(cvy_classifier_features(other), 256 * 16);
    assert_int_equal(cvy_classify_images(other, list, 1, &of_stage), CVY_OK);
    cvy_classifier_close(other);
    other = open_layer(weights, "layer3.1");
    assert_int_equal(cvy_classify_images(other, list, 1, &of_block), CVY_OK);
    assert_memory_equal(stage, block, sizeof stage);
    cvy_classifier_close(other);
    cvy_classifier_feature_shape(NULL, shape);
    assert_true(shape[0] == 0 && shape[1] == 0 && shape[2] == 0);
    cvy_classifier_close(context);
    cvy_classifier_close(plain);
}

static void no_layer(void **state)
{
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    cvy_classifier *classifier;

    (void)state;
    options.weights = make_weights("resnet18");
    options.feature_layer = "layer4";
    assert_fails(cvy_classifier_open(&options, &classifier), CVY_USAGE, "with the option features");
    options.features = true;
    options.feature_layer = "layer"; /* the beginning of a name is none */
    assert_fails(cvy_classifier_open(&options, &classifier), CVY_USAGE, "has no layer \"layer\"");
    options.feature_layer = "";
    assert_fails(cvy_classifier_open(&options, &classifier), CVY_USAGE, "has no layer \"\"");
    options.feature_layer = "layer4.0.a_name_that_is_far_too_long";
    assert_fails(cvy_classifier_open(&options, &classifier), CVY_USAGE, "has no layer");
    options.feature_layer = NULL;
    options.interpolation = "cubic";
    assert_fails(cvy_classifier_open(&options, &classifier), CVY_USAGE, "bilinear or bicubic, not \"cubic\"");
}

/* A batch that would not fit is refused before memory is taken for it, and the classifier lives on. */
static void no_memory(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they map memory of their own */
#else
    enum { MANY = 2100, CAP = 1 << 28 /* more than their pixels, and less than what the 4,096 above take */ };
    cvy_classifier *classifier = open_threads(make_weights("resnet18"), "fp32", 1, 4096);
    float *pixels = cvy_calloc((size_t)MANY * 3 * SIDE * SIDE, sizeof *pixels),
          *logits = cvy_calloc(MANY, sizeof(float[CLASSES]));
    const struct cvy_outputs outputs = {.size = sizeof outputs, .logits = logits};
    struct cvy_input_tensor tensor = {sizeof tensor, pixels, CVY_ORDER_NHWC, MANY, SIDE, SIDE};
    struct rlimit old, low;
    unsigned long pages;

    assert_non_null(pixels);
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    low = (struct rlimit){pages * (size_t)sysconf(_SC_PAGESIZE) + CAP, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
    const cvy_status status = cvy_classify_tensor(classifier, &tensor, &outputs);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    assert_fails(status, CVY_NO_MEMORY, "in batches of 4096 needs");
    tensor.images = 1;
    assert_int_equal(cvy_classify_tensor(classifier, &tensor, &outputs), CVY_OK);
    cvy_free(logits);
    cvy_free(pixels);
    cvy_classifier_close(classifier);
#endif
}

RUN_TESTS(classifier_setup, classifier_teardown, TEST(longer_images), TEST(sentences), TEST(images), TEST(tensors),
          TEST(layers), TEST(no_layer), TEST(no_memory))
