/* Every function of the public headers with NULL where it wants a pointer: a sentence that names function and argument,
 * or the answer that its header gives for nothing; never a crash. */
#include "convoy/convoy.h"
#include "convoy/program/bench.h"
#include "convoy/program/check.h"
#include "convoy/program/program.h"
#include "convoy/program/serve.h"
#include "convoy/program/shapes.h"

#include <math.h>

#include "support_test.h"

#define REFUSED(call)                                                                                                  \
    do {                                                                                                               \
        assert_int_equal(call, CVY_USAGE);                                                                             \
        if (!strstr(cvy_error(), " needs an argument that is not given: "))                                            \
            fail_msg("%s: %s", #call, cvy_error());                                                                    \
    } while (0)

static void data_sets(void **state)
{
    const struct cvy_shapes_options shapes = CVY_SHAPES_DEFAULTS;
    const struct cvy_shape_boxes_options boxes = CVY_SHAPE_BOXES_DEFAULTS;
    const struct cvy_tfrecord_options records = CVY_TFRECORD_DEFAULTS;
    const struct cvy_pack_options pack = CVY_PACK_DEFAULTS;
    struct cvy_tfrecord_result written;
    struct cvy_pack_result packed;
    struct cvy_check_report report;
    int64_t files = 0;

    (void)state;
    REFUSED(cvy_check_dataset(NULL, NULL, &report));
    REFUSED(cvy_check_dataset("x", NULL, NULL));
    cvy_check_report_release(NULL);
    REFUSED(cvy_write_shapes(NULL, &shapes));
    REFUSED(cvy_write_shapes("x", NULL));
    REFUSED(cvy_write_shape_boxes(NULL, &boxes));
    REFUSED(cvy_write_shape_boxes("x", NULL));
    REFUSED(cvy_write_tfrecords(NULL, "x", &records, &written));
    REFUSED(cvy_write_tfrecords("x", NULL, &records, &written));
    REFUSED(cvy_write_tfrecords("x", "x", NULL, &written));
    REFUSED(cvy_write_tfrecords("x", "x", &records, NULL));
    REFUSED(cvy_write_tfrecord_index(NULL, "x", 1, &files, &files));
    REFUSED(cvy_write_tfrecord_index("x", NULL, 1, &files, &files));
    REFUSED(cvy_write_tfrecord_index("x", "x", 1, NULL, &files));
    REFUSED(cvy_write_tfrecord_index("x", "x", 1, &files, NULL));
    REFUSED(cvy_write_pack(NULL, "x", &pack, &packed));
    REFUSED(cvy_write_pack("x", NULL, &pack, &packed));
    REFUSED(cvy_write_pack("x", "x", NULL, &packed));
    REFUSED(cvy_write_pack("x", "x", &pack, NULL));
}

/* Stands for one that is open: nothing looks into it before the arguments are looked at. */
static max_align_t opened[64];

static void classifiers(void **state)
{
    const struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    const struct cvy_evaluate_options files = {.size = sizeof(struct cvy_evaluate_options)};
    cvy_classifier *none = NULL, *classifier = (cvy_classifier *)opened;
    struct cvy_evaluation result;
    float value;

    (void)state;
    REFUSED(cvy_classifier_open(NULL, &none));
    REFUSED(cvy_classifier_open(&options, NULL));
    cvy_classifier_close(NULL);
    assert_int_equal(cvy_classifier_classes(NULL), 0);
    assert_null(cvy_classifier_class_name(NULL, 0));
    assert_null(cvy_classifier_arch(NULL));
    REFUSED(cvy_classify_memory(NULL, "x", "x", 1, &value, &value));
    REFUSED(cvy_classify_memory(classifier, NULL, "x", 1, &value, &value));
    REFUSED(cvy_classify_memory(classifier, "x", NULL, 1, &value, &value));
    REFUSED(cvy_classify_pixels(NULL, "x", &(struct cvy_pixels){0}, &value, &value));
    REFUSED(cvy_classify_pixels(classifier, NULL, &(struct cvy_pixels){0}, &value, &value));
    REFUSED(cvy_classify_pixels(classifier, "x", NULL, &value, &value));
    REFUSED(cvy_classify_paths(NULL, NULL, 0, NULL, NULL));
    REFUSED(cvy_classify_paths(classifier, NULL, 1, NULL, NULL));
    REFUSED(cvy_classify_paths(classifier, NULL, 0, NULL, NULL));
    REFUSED(cvy_evaluate(NULL, "x", &result));
    REFUSED(cvy_evaluate(classifier, NULL, &result));
    REFUSED(cvy_evaluate(classifier, "x", NULL));
    REFUSED(cvy_evaluate_with(classifier, "x", NULL, &result));
    REFUSED(cvy_evaluate_with(classifier, "x", &files, NULL));
    assert_null(cvy_evaluation_line(0, 0, NULL));
    REFUSED(cvy_classifier_open_context(NULL, 1, &none));
    REFUSED(cvy_classifier_open_context(classifier, 1, NULL));
    cvy_classifier_stop(NULL);
    int shape[3] = {1, 1, 1};
    assert_int_equal(cvy_classifier_features(NULL), 0);
    cvy_classifier_feature_shape(NULL, shape);
    assert_true(shape[0] == 0 && shape[1] == 0 && shape[2] == 0);
    cvy_classifier_feature_shape(NULL, NULL);
    float mean[3] = {0};
    cvy_classifier_normalization(NULL, mean, NULL);
    assert_true(isnan(mean[0]) && isnan(mean[2]));
    assert_int_equal(cvy_classifier_image_size(NULL), 0);
    REFUSED(cvy_classify_images(NULL, &(struct cvy_image){0}, 1, &(struct cvy_outputs){0}));
    REFUSED(cvy_classify_images(classifier, NULL, 1, &(struct cvy_outputs){0}));
    REFUSED(cvy_classify_images(classifier, &(struct cvy_image){0}, 1, NULL));
    REFUSED(cvy_classify_tensor(NULL, &(struct cvy_input_tensor){0}, &(struct cvy_outputs){0}));
    REFUSED(cvy_classify_tensor(classifier, NULL, &(struct cvy_outputs){0}));
    REFUSED(cvy_classify_tensor(classifier, &(struct cvy_input_tensor){0}, NULL));
    assert_int_equal(cvy_top_k(NULL, 1, 1, &(int){0}), 0);
    assert_int_equal(cvy_top_k(&value, 1, 1, NULL), 0);
}

static void detectors(void **state)
{
    static struct cvy_detected_object objects[CVY_DETECTED_OBJECTS_MAX];
    const struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    const struct cvy_detect_options detecting = {.size = sizeof(struct cvy_detect_options)};
    cvy_detector *none = NULL, *detector = (cvy_detector *)opened;
    int number;

    (void)state;
    REFUSED(cvy_detector_open(NULL, &none));
    REFUSED(cvy_detector_open(&options, NULL));
    cvy_detector_close(NULL);
    assert_int_equal(cvy_detector_classes(NULL), 0);
    assert_null(cvy_detector_class_name(NULL, 0));
    assert_int_equal(cvy_detector_class_id(NULL, 0), 1);
    assert_null(cvy_detector_arch(NULL));
    REFUSED(cvy_detector_open_context(NULL, 1, &none));
    REFUSED(cvy_detector_open_context(detector, 1, NULL));
    cvy_detector_stop(NULL);
    REFUSED(cvy_detect_memory(NULL, "x", "x", 1, 0.5, objects, &number, &number, &number));
    REFUSED(cvy_detect_memory(detector, NULL, "x", 1, 0.5, objects, &number, &number, &number));
    REFUSED(cvy_detect_memory(detector, "x", NULL, 1, 0.5, objects, &number, &number, &number));
    REFUSED(cvy_detect_memory(detector, "x", "x", 1, 0.5, NULL, &number, &number, &number));
    REFUSED(cvy_detect_memory(detector, "x", "x", 1, 0.5, objects, NULL, &number, &number));
    REFUSED(cvy_detect_pixels(NULL, "x", &(struct cvy_pixels){0}, 0.5, objects, &number));
    REFUSED(cvy_detect_pixels(detector, NULL, &(struct cvy_pixels){0}, 0.5, objects, &number));
    REFUSED(cvy_detect_pixels(detector, "x", NULL, 0.5, objects, &number));
    REFUSED(cvy_detect_pixels(detector, "x", &(struct cvy_pixels){0}, 0.5, NULL, &number));
    REFUSED(cvy_detect_pixels(detector, "x", &(struct cvy_pixels){0}, 0.5, objects, NULL));
    REFUSED(cvy_detect_images(NULL, &(struct cvy_image){0}, 1, 0.5, &(struct cvy_detect_outputs){0}));
    REFUSED(cvy_detect_images(detector, NULL, 1, 0.5, &(struct cvy_detect_outputs){0}));
    REFUSED(cvy_detect_images(detector, &(struct cvy_image){0}, 1, 0.5, NULL));
    REFUSED(cvy_detect_paths(NULL, NULL, 0, &detecting, NULL, NULL));
    REFUSED(cvy_detect_paths(detector, NULL, 1, &detecting, NULL, NULL));
    REFUSED(cvy_detect_paths(detector, NULL, 0, NULL, NULL, NULL));
    REFUSED(cvy_detect_paths(detector, NULL, 0, &detecting, NULL, NULL));
}

static void training(void **state)
{
    struct cvy_train_options *options = cvy_train_options_new();
    struct cvy_train_plan *plan;
    struct cvy_measures measures;
    cvy_training *run;
    char text[64];

    (void)state;
    assert_non_null(options);
    cvy_train_options_free(NULL);
    cvy_train_plan_free(NULL);
    assert_null(cvy_train_options_copy(NULL));
    assert_string_equal(cvy_train_options_data(NULL), "");
    assert_string_equal(cvy_train_options_data(options), "");
    assert_int_equal(cvy_train_options_source(NULL, "lr"), CVY_FROM_DEFAULT);
    assert_int_equal(cvy_train_options_source(options, NULL), CVY_FROM_DEFAULT);
    assert_int_equal(cvy_train_options_source(options, "no such option"), CVY_FROM_DEFAULT);
    REFUSED(cvy_train_options_get(NULL, "lr", text, sizeof text));
    REFUSED(cvy_train_options_get(options, NULL, text, sizeof text));
    REFUSED(cvy_train_options_get(options, "lr", NULL, sizeof text));
    REFUSED(cvy_train_options_reset(NULL, "lr", CVY_FROM_FLAG));
    REFUSED(cvy_train_options_reset(options, NULL, CVY_FROM_FLAG));
    REFUSED(cvy_train_options_set_data(NULL, "data"));
    REFUSED(cvy_train_options_set_data(options, NULL));
    REFUSED(cvy_train_options_set(NULL, "lr", "1", CVY_FROM_FLAG));
    REFUSED(cvy_train_options_set(options, NULL, "1", CVY_FROM_FLAG));
    assert_int_equal(cvy_train_options_set(options, "lr", NULL, CVY_FROM_FLAG), CVY_USAGE);
    assert_int_equal(cvy_train_option_find(NULL), -1);
    assert_ptr_equal(cvy_train_option_text(NULL, 0, text, sizeof text), text);
    assert_null(cvy_train_option_text(options, 0, NULL, 8));
    assert_true(isnan(cvy_measures_get(NULL, "loss")));
    assert_true(isnan(cvy_measures_get(&(struct cvy_measures){0}, NULL)));
    REFUSED(cvy_train(NULL, NULL, NULL));
    REFUSED(cvy_training_new(NULL, NULL, &run));
    REFUSED(cvy_training_new(options, NULL, NULL));
    REFUSED(cvy_training_open(NULL));
    REFUSED(cvy_training_step(NULL, NULL));
    REFUSED(cvy_training_validate(NULL, &measures));
    REFUSED(cvy_training_save(NULL));
    REFUSED(cvy_training_finish(NULL, NULL));
    REFUSED(cvy_training_run(NULL, NULL));
    assert_int_equal(cvy_training_new(options, NULL, &run), CVY_OK);
    REFUSED(cvy_training_validate(run, NULL));
    cvy_training_free(run);
    cvy_training_stop(NULL);
    cvy_training_free(NULL);
    assert_null(cvy_training_options(NULL));
    REFUSED(cvy_train_dry_run(NULL, 1, &plan));
    REFUSED(cvy_train_dry_run(options, 1, NULL));
    assert_string_equal(cvy_train_plan_origin(NULL, 0), "default");
    assert_int_equal(cvy_train_rank(NULL), 0);
    assert_null(cvy_recipe_text(NULL));
    assert_null(cvy_train_plan_options(NULL));
    assert_int_equal(cvy_train_plan_ranks(NULL), 0);
    assert_int_equal(cvy_train_plan_accumulate(NULL), 0);
    assert_int_equal(cvy_train_plan_step_images(NULL), 0);
    cvy_train_options_free(options);
}

static void the_rest(void **state)
{
    const struct cvy_bench_options bench = {0};
    const struct cvy_bench_data_options reading = CVY_BENCH_DATA_DEFAULTS;
    const struct cvy_info_options info = {.size = sizeof(struct cvy_info_options)};
    struct cvy_bench_result result;
    struct cvy_bench_data_result read;
    const struct cvy_quantize_options quantizing = CVY_QUANTIZE_DEFAULTS;
    struct cvy_quantize_result quantized;
    struct cvy_pull_options pulling = CVY_PULL_DEFAULTS;
    struct cvy_pull_result pulled;
    struct cvy_checkpoint_found found;
    const struct cvy_server_options serving = CVY_SERVER_DEFAULTS;
    cvy_server *server;
    struct cvy_gpu gpu;
    char *text, path[64];
    int count;

    (void)state;
    REFUSED(cvy_bench_train(NULL, &result));
    REFUSED(cvy_bench_train(&bench, NULL));
    REFUSED(cvy_bench_infer(NULL, &result));
    REFUSED(cvy_bench_infer(&bench, NULL));
    REFUSED(cvy_bench_weights(NULL, &result));
    REFUSED(cvy_bench_weights(&bench, &result));
    REFUSED(cvy_bench_weights(&(struct cvy_bench_options){.weights = "x"}, NULL));
    REFUSED(cvy_bench_data(NULL, &read));
    REFUSED(cvy_bench_data(&reading, NULL));
    REFUSED(cvy_convert(NULL, NULL));
    REFUSED(cvy_quantize_network(NULL, &quantized));
    REFUSED(cvy_quantize_network(&quantizing, NULL));
    cvy_quantize_result_release(NULL);
    REFUSED(cvy_info(NULL, &text));
    REFUSED(cvy_info(&info, NULL));
    cvy_info_free(NULL);
    REFUSED(cvy_gpu_query(0, NULL, &count));
    REFUSED(cvy_server_open(NULL, &server));
    REFUSED(cvy_server_open(&serving, NULL));
    REFUSED(cvy_server_run(NULL));
    assert_null(cvy_server_address(NULL));
    assert_null(cvy_server_network(NULL, 0, NULL));
    cvy_server_stop(NULL);
    cvy_server_close(NULL);
    REFUSED(cvy_gpu_query(0, &gpu, NULL));
    REFUSED(cvy_report(NULL, NULL));
    REFUSED(cvy_checkpoint_latest(NULL, &found));
    REFUSED(cvy_checkpoint_latest("x", NULL));
    assert_null(cvy_published_find(NULL));
    REFUSED(cvy_published_path(NULL, path, sizeof path, NULL));
    REFUSED(cvy_published_path(cvy_published_at(0), NULL, sizeof path, NULL));
    REFUSED(cvy_pull(NULL, &pulled));
    assert_fails(cvy_pull(&pulling, &pulled), CVY_USAGE, "needs the name of published weights");
    pulling.name = "resnet18";
    REFUSED(cvy_pull(&pulling, NULL));
    assert_null(cvy_nearest_name(NULL, &(const char *const){"x"}, 1));
    assert_null(cvy_nearest_name("x", NULL, 1));
    assert_string_equal(cvy_counted(2, NULL), "");
    cvy_set_log_handler(NULL, NULL);
}

RUN_TESTS(NULL, NULL, TEST(data_sets), TEST(classifiers), TEST(detectors), TEST(training), TEST(the_rest))
