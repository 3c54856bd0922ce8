/* Options of the library where 0 leaves the choice: numbers below it are refused, not taken for 0. */
#include "convoy/convoy.h"
#include "support_classifier.h"
#include "support_folder.h"
#include "support_test.h"

static void refuse_open(const struct cvy_classifier_options *options, const char *sentence)
{
    cvy_classifier *classifier;
    cvy_detector *detector;

    assert_fails(cvy_classifier_open(options, &classifier), CVY_USAGE, sentence);
    assert_null(classifier);
    assert_fails(cvy_detector_open(options, &detector), CVY_USAGE, sentence);
    assert_null(detector);
}

static void inference(void **state)
{
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    static const struct {
        const char *name;
        size_t offset;
    } fields[] = {
        {"num-classes", offsetof(struct cvy_classifier_options, num_classes)},
        {"image-size", offsetof(struct cvy_classifier_options, image_size)},
        {"eval-resize", offsetof(struct cvy_classifier_options, resize)},
        {"batch-size", offsetof(struct cvy_classifier_options, batch_size)},
    };
    cvy_classifier *classifier, *context;
    char sentence[64];

    (void)state;
    options.weights = make_weights("resnet18");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        int *field = (int *)(void *)((char *)&options + fields[i].offset);

        snprintf(sentence, sizeof sentence, "option --%s: -7 is below 1", fields[i].name);
        *field = -7;
        refuse_open(&options, sentence);
        *field = 0;
    }
    assert_int_equal(cvy_classifier_open(&options, &classifier), CVY_OK);
    assert_fails(cvy_classifier_open_context(classifier, -1, &context), CVY_USAGE, "cannot have -1 threads");
    assert_null(context);
    cvy_classifier_close(classifier);
}

static void other_functions(void **state)
{
    struct cvy_info_options info = CVY_INFO_DEFAULTS;
    struct cvy_convert_options convert = CVY_CONVERT_DEFAULTS;
    struct cvy_tfrecord_options records = CVY_TFRECORD_DEFAULTS;
    struct cvy_tfrecord_result written;
    char *text = NULL;

    (void)state;
    info.subject = "resnet18";
    info.image_size = -32;
    assert_fails(cvy_info(&info, &text), CVY_USAGE, "option --image-size: -32");
    convert.input = make_weights("resnet18");
    convert.output = below("out.onnx");
    convert.image_size = -32;
    assert_fails(cvy_convert(&convert, NULL), CVY_USAGE, "option --image-size: -32");
    records.train_shards = -2;
    assert_fails(cvy_write_tfrecords(support_folder, below("out"), &records, &written), CVY_USAGE,
                 "-2 and 0 files are not possible");
    assert_int_equal(test_folder_entries(support_folder), 1); /* the weights */
}

RUN_TESTS(classifier_setup, classifier_teardown, TEST(inference), TEST(other_functions))
