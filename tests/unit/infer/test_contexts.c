/* One set of weights used by several threads, and weights that are in memory. */
#include <pthread.h>

#include "base/file.h"
#include "base/system.h"
#include "convoy/detect.h"
#include "infer/predictor.h"
#include "support_classifier.h"
#include "support_folder.h"
#include "support_test.h"

enum { THREADS = 3, ROUNDS = 4 };

/* ---- contexts ---- */

struct thread {
    cvy_classifier *context;
    float logits[IMAGES][CLASSES];
    bool failed;
};

static void *classify_often(void *argument)
{
    struct thread *thread = argument;

    for (int i = 0; i < ROUNDS * IMAGES; i++) {
        const struct cvy_pixels pixels = painted_pixels(i % IMAGES);

        thread->failed |=
            cvy_classify_pixels(thread->context, "painted", &pixels, thread->logits[i % IMAGES], NULL) != CVY_OK;
    }
    return NULL;
}

/* Threads with a context each get the bits of the classifier itself, from the weights that it has prepared. */
static void expect_shared(const char *arch, const char *precision)
{
    const char *weights = make_weights(arch);
    cvy_classifier *classifier = open_classifier(weights, precision);
    const struct cvy_plan *first = cvy_evaluator_plan(&cvy_classifier_predictor(classifier)->one);
    struct thread threads[THREADS];
    pthread_t ids[THREADS];
    float expected[IMAGES][CLASSES];

    for (int i = 0; i < IMAGES; i++)
        classify_painted(classifier, i, expected[i]);
    for (int t = 0; t < THREADS; t++) {
        const struct cvy_plan *plan;

        threads[t] = (struct thread){.failed = false};
        /* One of a context is one of the classifier. */
        if (cvy_classifier_open_context(t > 1 ? threads[0].context : classifier, 0, &threads[t].context) != CVY_OK)
            fail_msg("%s", cvy_error());
        plan = cvy_evaluator_plan(&cvy_classifier_predictor(threads[t].context)->one);
        assert_true(first->constant_bytes > 0 && plan->constant_bytes == 0 && plan->beside == first);
        assert_ptr_equal(plan->store->weights, first->store->weights);
    }
    cvy_classifier_close(classifier); /* the weights stay as long as a context has them */
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&ids[t], NULL, classify_often, &threads[t]), 0);
    for (int t = 0; t < THREADS; t++) {
        assert_int_equal(pthread_join(ids[t], NULL), 0);
        assert_false(threads[t].failed);
        assert_memory_equal(threads[t].logits, expected, sizeof expected);
    }
    assert_int_equal(cvy_classifier_classes(threads[1].context), CLASSES);
    for (int t = 0; t < THREADS; t++)
        cvy_classifier_close(threads[t].context);
}

static void contexts(void **state)
{
    expect_shared("resnet18", "fp32");
    if (cvy_cpu_isa() >= CVY_ISA_AVX512)
        expect_shared("resnet18", "bf16");
    expect_shared("resnext50-32x4d", "fp32");
}

/* Another number of threads may want the weights otherwise: the answers are the same up to rounding. */
static void other_threads(void **state)
{
    cvy_classifier *classifier = open_classifier(make_weights("resnet18"), "fp32"), *context;
    float one[CLASSES], two[CLASSES];

    assert_int_equal(cvy_classifier_open_context(classifier, 2, &context), CVY_OK);
    classify_painted(classifier, 0, one);
    classify_painted(context, 0, two);
    for (int i = 0; i < CLASSES; i++)
        assert_float_equal(one[i], two[i], 1e-4);
    cvy_classifier_close(context);
    cvy_classifier_close(classifier);
}

static void no_context_of_a_check(void **state)
{
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    cvy_classifier *classifier, *context;

    options.weights = make_weights("resnet18");
    options.device = "check:cpu";
    assert_int_equal(cvy_classifier_open(&options, &classifier), CVY_OK);
    assert_fails(cvy_classifier_open_context(classifier, 0, &context), CVY_UNAVAILABLE, "on the CPU only");
    assert_null(context);
    cvy_classifier_close(classifier);
}

/* A detector's contexts find what it finds, on pixels and on a file with them. */
static void detectors(void **state)
{
    static struct cvy_detected_object expected[CVY_DETECTED_OBJECTS_MAX], found[CVY_DETECTED_OBJECTS_MAX];
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    const struct cvy_pixels pixels = painted_pixels(2);
    cvy_detector *detector = NULL, *context = NULL;
    char file[64 + sizeof painted[0]];
    const int header = snprintf(file, 64, "P6\n%d %d\n255\n", SIDE, SIDE);
    int count = 0, again, width, height;

    memcpy(file + header, painted[2], sizeof painted[2]);
    options.weights = make_weights("ssd320");
    options.threads = 1;
    if (cvy_detector_open(&options, &detector) != CVY_OK ||
        cvy_detect_pixels(detector, "painted", &pixels, 0, expected, &count) != CVY_OK ||
        cvy_detector_open_context(detector, 0, &context) != CVY_OK)
        fail_msg("%s", cvy_error());
    cvy_detector_close(detector);
    assert_true(count > 0);
    assert_int_equal(cvy_detect_pixels(context, "painted", &pixels, 0, found, &again), CVY_OK);
    assert_int_equal(again, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(found[i].class_id, expected[i].class_id);
        assert_memory_equal(found[i].box, expected[i].box, sizeof found[i].box);
    }
    assert_int_equal(
        cvy_detect_memory(context, "file", file, (size_t)header + sizeof painted[2], 0, found, &again, &width, &height),
        CVY_OK);
    assert_int_equal(again, count);
    assert_memory_equal(found[0].box, expected[0].box, sizeof found[0].box);
    assert_true(width == SIDE && height == SIDE);
    cvy_detector_close(context);
}

/* ---- contexts whose batches are computed by streams ---- */

struct batches {
    cvy_classifier *context;
    struct answers bytes, floats; /* for the images, and for the same as tensors */
    bool failed;
};

static void *classify_batches(void *argument)
{
    struct batches *batches = argument;
    const struct cvy_outputs bytes = outputs_of(&batches->bytes), floats = outputs_of(&batches->floats);
    const struct cvy_input_tensor tensor = {sizeof tensor, nhwc[0][0], CVY_ORDER_NHWC, IMAGES, SIDE, SIDE};
    struct cvy_pixels pixels[IMAGES];
    struct cvy_image list[IMAGES];

    for (int i = 0; i < IMAGES; i++) {
        pixels[i] = painted_pixels(i);
        list[i] = (struct cvy_image){.size = sizeof list[i], .pixels = &pixels[i]};
    }
    for (int round = 0; round < ROUNDS; round++)
        batches->failed |= cvy_classify_images(batches->context, list, IMAGES, &bytes) != CVY_OK ||
                           cvy_classify_tensor(batches->context, &tensor, &floats) != CVY_OK;
    return NULL;
}

/* Contexts of two threads in bf16, each used by a thread of its own, whose streams have two images each: the bits of a
 * single thread that has two at a time. */
static void streams_of_contexts(void **state)
{
    static struct batches alone, batches[THREADS];
    pthread_t ids[THREADS];

    (void)state;
    if (cvy_cpu_isa() < CVY_ISA_AVX512)
        skip();
    alone.context = open_threads(make_weights("resnet18"), "bf16", 1, IMAGES / 2);
    classify_batches(&alone);
    assert_false(alone.failed);
    assert_memory_not_equal(alone.bytes.logits[0], alone.bytes.logits[IMAGES / 2], sizeof alone.bytes.logits[0]);
    cvy_classifier_close(alone.context);
    for (int t = 0; t < THREADS; t++) {
        if (t == 0)
            batches[t].context = open_threads(make_weights("resnet18"), "bf16", 2, IMAGES);
        else
            assert_int_equal(cvy_classifier_open_context(batches[0].context, 0, &batches[t].context), CVY_OK);
        cvy_classifier_predictor(batches[t].context)->device->cache_bytes = (size_t)1 << 30; /* room for all of them */
    }
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&ids[t], NULL, classify_batches, &batches[t]), 0);
    for (int t = 0; t < THREADS; t++) {
        const struct cvy_predictor *predictor = cvy_classifier_predictor(batches[t].context);

        assert_int_equal(pthread_join(ids[t], NULL), 0);
        assert_false(batches[t].failed);
        assert_true(predictor->images.of[2].streams.count == 2 && predictor->tensors.of[2].streams.count == 2);
        assert_memory_equal(&batches[t].bytes, &alone.bytes, sizeof alone.bytes);
        assert_memory_equal(&batches[t].floats, &alone.floats, sizeof alone.floats);
    }
    for (int t = 0; t < THREADS; t++)
        cvy_classifier_close(batches[t].context);
}

/* ---- without contexts ---- */

/* Two classifiers, each opened for itself, in a thread of its own. */
static void own_each(void **state)
{
    cvy_classifier *classifiers[2] = {open_classifier(make_weights("resnet18"), "fp32"),
                                      open_classifier(make_weights("resnext50-32x4d"), "fp32")};
    struct thread threads[2] = {{.context = classifiers[0]}, {.context = classifiers[1]}};
    float expected[2][IMAGES][CLASSES];
    pthread_t ids[2];

    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < IMAGES; i++)
            classify_painted(classifiers[t], i, expected[t][i]);
    }
    for (int t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&ids[t], NULL, classify_often, &threads[t]), 0);
    for (int t = 0; t < 2; t++) {
        assert_int_equal(pthread_join(ids[t], NULL), 0);
        assert_false(threads[t].failed);
        assert_memory_equal(threads[t].logits, expected[t], sizeof expected[t]);
        cvy_classifier_close(classifiers[t]);
    }
}

struct pair {
    cvy_classifier *classifier;
    const float *expected; /* (CLASSES) of image 0 */
    int answered, refused, wrong;
};

static void *classify_one(void *argument)
{
    struct pair *pair = argument;
    const struct cvy_pixels pixels = painted_pixels(0);
    float logits[CLASSES];

    for (int i = 0; i < 40 * ROUNDS; i++) {
        const cvy_status status = cvy_classify_pixels(pair->classifier, "painted", &pixels, logits, NULL);

        pair->answered += status == CVY_OK;
        pair->refused += status == CVY_USAGE;
        pair->wrong += (status != CVY_OK && status != CVY_USAGE) ||
                       (status == CVY_OK && memcmp(logits, pair->expected, sizeof logits) != 0);
    }
    return NULL;
}

static void classify_inside(void *context, const struct cvy_answer *answer)
{
    const struct cvy_pixels pixels = painted_pixels(0);
    cvy_classifier *another;
    float logits[CLASSES];

    (void)answer;
    assert_fails(cvy_classify_pixels(context, "painted", &pixels, logits, NULL), CVY_USAGE, "in progress");
    assert_fails(cvy_classifier_open_context(context, 1, &another), CVY_USAGE, "in progress");
}

/* One classifier used by two threads at the same time: each call answers rightly or is refused. */
static void one_for_two(void **state)
{
    cvy_classifier *classifier = open_classifier(make_weights("resnet18"), "fp32");
    struct pair pairs[2] = {{.classifier = classifier}, {.classifier = classifier}};
    const char *path = below("one.ppm");
    char header[32], image[sizeof header + sizeof painted[0]];
    const int length = snprintf(header, sizeof header, "P6\n%d %d\n255\n", SIDE, SIDE);
    float expected[CLASSES];
    pthread_t ids[2];

    classify_painted(classifier, 0, expected);
    for (int t = 0; t < 2; t++) {
        pairs[t].expected = expected;
        assert_int_equal(pthread_create(&ids[t], NULL, classify_one, &pairs[t]), 0);
    }
    for (int t = 0; t < 2; t++) {
        assert_int_equal(pthread_join(ids[t], NULL), 0);
        assert_int_equal(pairs[t].wrong, 0);
        assert_int_equal(pairs[t].answered + pairs[t].refused, 40 * ROUNDS);
    }
    assert_true(pairs[0].answered + pairs[1].answered > 0);
    memcpy(image, header, (size_t)length);
    memcpy(image + length, painted[0], sizeof painted[0]);
    test_file_write(path, image, (size_t)length + sizeof painted[0]);
    assert_int_equal(cvy_classify_paths(classifier, &path, 1, classify_inside, classifier), CVY_OK);
    classify_painted(classifier, 0, expected); /* refusals leave it as it was */
    cvy_classifier_close(classifier);
}

/* ---- the rest ---- */

static void weights_in_memory(void **state)
{
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    const char *weights = make_weights("resnet18");
    cvy_classifier *from_file = open_classifier(weights, "fp32"), *from_memory;
    float expected[CLASSES], logits[CLASSES];
    void *data = NULL;

    assert_int_equal(cvy_file_read(weights, 1 << 28, &data, &options.weights_size), CVY_OK);
    options.weights_data = data;
    options.threads = 1;
    if (cvy_classifier_open(&options, &from_memory) != CVY_OK)
        fail_msg("%s", cvy_error());
    memset(data, 0, options.weights_size); /* they are the caller's again */
    classify_painted(from_file, 1, expected);
    classify_painted(from_memory, 1, logits);
    assert_memory_equal(logits, expected, sizeof logits);
    cvy_classifier_close(from_memory);
    cvy_classifier_close(from_file);
    cvy_free(data);
    options.weights_data = "neither of them";
    options.weights_size = 15;
    options.weights = "upload";
    assert_fails(cvy_classifier_open(&options, &from_memory), CVY_BAD_DATA, "upload");
}

static int answered;

static void stop_at_once(void *context, const struct cvy_answer *answer)
{
    assert_int_equal(answer->status, CVY_OK);
    assert_non_null(answer->features);
    answered++;
    cvy_classifier_stop(context);
}

/* After the batch of four of nine files. */
static void stopped(void **state)
{
    cvy_classifier *classifier = open_classifier(make_weights("resnet18"), "fp32");
    char header[32], image[sizeof header + sizeof painted[0]];
    const int length = snprintf(header, sizeof header, "P6\n%d %d\n255\n", SIDE, SIDE);
    const char *paths[9];
    char names[9][300];

    memcpy(image, header, (size_t)length);
    memcpy(image + length, painted[0], sizeof painted[0]);
    for (int i = 0; i < 9; i++) {
        snprintf(names[i], sizeof names[i], "%s/%d.ppm", support_folder, i);
        test_file_write(names[i], image, (size_t)length + sizeof painted[0]);
        paths[i] = names[i];
    }
    answered = 0;
    assert_int_equal(cvy_classify_paths(classifier, paths, 9, stop_at_once, classifier), CVY_STOPPED);
    assert_int_equal(answered, 4);
    cvy_classifier_close(classifier);
}

RUN_TESTS(classifier_setup, classifier_teardown, TEST(contexts), TEST(other_threads), TEST(no_context_of_a_check),
          TEST(detectors), TEST(streams_of_contexts), TEST(own_each), TEST(one_for_two), TEST(weights_in_memory),
          TEST(stopped))
