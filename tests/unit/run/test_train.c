/* Whole runs on a tiny set of drawn shapes: training and evaluation agree, and what must not be trained or resumed is
 * refused. test_resume.c has the runs that are stopped. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/file.h"
#include "convoy/convoy.h"
#include "convoy/program/shapes.h"
#include "options/train_options.h"
#include "run/records/log.h"
#include "support_run.h"

/* Only the validation sees the larger images: the losses of the steps are those of a run on small ones. */
static void small_training_crops(void **state)
{
    struct cvy_train_options options;
    struct cvy_train_result result;

    (void)state;
    run_options(&options, "crops-alike", "2");
    run_set(&options, "epochs", "1");
    run_whole(&options, &result);
    run_options(&options, "crops", "2");
    run_set(&options, "epochs", "1");
    run_set(&options, "image-size", "48");
    run_set(&options, "eval-resize", "48");
    run_set(&options, "train-crop-size", "32");
    run_whole(&options, &result);
    run_expect_same_file("crops", "crops-alike", "/steps.csv");
}

/* ---- one run, and its answers ---- */

static int answered, right;
static void check_answer(void *context, const struct cvy_answer *answer)
{
    cvy_classifier *classifier = context;
    int best = 0;

    if (answer->status != CVY_OK)
        fail_msg("%s: %s", answer->file, answer->error);
    for (int i = 1; i < cvy_classifier_classes(classifier); i++)
        best = answer->logits[i] > answer->logits[best] ? i : best;
    answered++;
    right += strstr(answer->file, cvy_classifier_class_name(classifier, best)) != NULL;
}

static void train_evaluate_classify(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;
    struct cvy_classifier_options open = CVY_CLASSIFIER_DEFAULTS;
    struct cvy_evaluation evaluation;
    cvy_classifier *classifier;
    char folder_of_val[256];
    const char *const val = folder_of_val;
    double *rows;
    size_t count;
    static const char *const columns[] = {"val.loss", "val.top1"};

    (void)state;
    snprintf(folder_of_val, sizeof folder_of_val, "%s", run_path("data/val"));
    run_options(&options, "plain", "2");
    run_whole(&options, &result);
    assert_int_equal(result.epochs_done, RUN_EPOCHS);
    assert_int_equal(result.steps_done, RUN_EPOCHS * RUN_STEPS);
    assert_string_equal(result.run_directory, run_path("plain"));
    assert_true(cvy_path_exists(result.weights) && cvy_path_exists(result.sample_image));
    assert_true(cvy_path_exists(run_path("plain/experiment_raport.json")));
    assert_true(cvy_path_exists(run_path("plain/plot.svg")));
    assert_true(result.peak_memory > 0 && result.planned_memory > 0);
    /* The checkpoint of the end gives the numbers of the last row of metrics.csv. */
    assert_int_equal(cvy_csv_read(run_path("plain/metrics.csv"), columns, 2, &rows, &count), CVY_OK);
    assert_int_equal(count, RUN_EPOCHS);
    open.weights = run_path("plain/checkpoint.safetensors");
    if (cvy_classifier_open(&open, &classifier) != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_string_equal(cvy_classifier_arch(classifier), "resnet18");
    assert_int_equal(cvy_classifier_classes(classifier), 10);
    assert_int_equal(cvy_evaluate(classifier, run_path("data"), &evaluation), CVY_OK);
    assert_int_equal(evaluation.images, 10);
    /* The table is written with nine digits. */
    assert_true(fabs(evaluation.loss / rows[2] - 1) < 1e-8);
    assert_true(fabs(evaluation.top1 - rows[3]) < 1e-6);
    /* classify over the same images reproduces the accuracy. */
    assert_int_equal(cvy_classify_paths(classifier, &val, 1, check_answer, classifier), CVY_OK);
    assert_int_equal(answered, 10);
    assert_true(100.0 * right / answered == evaluation.top1);
    cvy_classifier_close(classifier);
    cvy_free(rows);
}

static int warnings;
static void count_warnings(void *context, enum cvy_log_level level, const char *text)
{
    warnings += level == CVY_LOG_WARNING && strstr(text, context) != NULL;
}

/* Changed threads are told; a plot that cannot be drawn is told and does no harm. */
static void warned_not_stopped(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    run_options(&options, "warned", "2");
    assert_int_equal(cvy_make_directories(run_path("warned/plot.svg")), CVY_OK);
    warnings = 0;
    cvy_set_log_handler(count_warnings, (void *)(uintptr_t) "plot.svg");
    run_set(&options, "run-epochs", "1");
    run_whole(&options, &result);
    assert_int_equal(warnings, 1);
    warnings = 0;
    cvy_set_log_handler(count_warnings, (void *)(uintptr_t) "--threads \"2\"");
    run_resume_options(&options, "warned");
    run_set(&options, "threads", "1");
    run_whole(&options, &result);
    assert_int_equal(warnings, 1);
    cvy_set_log_handler(NULL, NULL);
}

/* ---- refusals ---- */

static void expect_status(const struct cvy_train_options *options, cvy_status status, const char *text)
{
    static struct cvy_train_result result;
    const cvy_status got = run_until(options, 1, &result);

    if (got != status || !strstr(cvy_error(), text))
        fail_msg("%d \"%s\" instead of %d with %s", (int)got, cvy_error(), (int)status, text);
}

static void refusals(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;
    void *data;
    size_t size;
    int lock;

    (void)state;
    run_options(&options, "plain", "2");
    expect_status(&options, CVY_CANNOT_CREATE, "--resume");
    run_resume_options(&options, "plain");
    run_set(&options, "arch", "resnet34");
    expect_status(&options, CVY_USAGE, "--arch");
    run_resume_options(&options, "plain");
    run_set(&options, "seed", "1");
    expect_status(&options, CVY_USAGE, "--seed");
    run_resume_options(&options, "plain");
    run_set(&options, "batch-size", "5");
    expect_status(&options, CVY_USAGE, "--batch-size");
    /* Another algorithm on the same device. */
    run_resume_options(&options, "plain");
    assert_int_equal(setenv("CONVOY_CPU_WINOGRAD", "0", 1), 0);
    expect_status(&options, CVY_USAGE, "was made with \"CONVOY_CPU_WINOGRAD=auto\"");
    assert_int_equal(setenv("CONVOY_CPU_WINOGRAD", "2", 1), 0);
    expect_status(&options, CVY_USAGE, "CONVOY_CPU_WINOGRAD is 0, weights, auto or 1");
    assert_int_equal(unsetenv("CONVOY_CPU_WINOGRAD"), 0);
    assert_int_equal(setenv("CONVOY_CPU_CHUNK", "short", 1), 0);
    expect_status(&options, CVY_USAGE, "this run has CONVOY_CPU_WINOGRAD=auto CONVOY_CPU_CHUNK=short");
    assert_int_equal(setenv("CONVOY_CPU_CHUNK", "200", 1), 0);
    expect_status(&options, CVY_USAGE, "CONVOY_CPU_CHUNK is auto, short or long");
    assert_int_equal(unsetenv("CONVOY_CPU_CHUNK"), 0);
    assert_int_equal(setenv("CONVOY_CPU_STREAM", "16", 1), 0);
    expect_status(&options, CVY_USAGE, "CONVOY_CPU_STREAM is auto, always or never");
    assert_int_equal(unsetenv("CONVOY_CPU_STREAM"), 0);
    run_resume_options(&options, "nowhere");
    expect_status(&options, CVY_NO_INPUT, "nowhere");
    run_resume_options(&options, "plain/model_best.safetensors");
    expect_status(&options, CVY_BAD_DATA, "model_best.safetensors\" holds weights only");
    run_resume_options(&options, "plain");
    run_set(&options, "epochs", "1");
    expect_status(&options, CVY_USAGE, "--epochs 1");
    /* Another process trains there. */
    lock = open(run_path("plain/.lock"), O_RDWR | O_CLOEXEC);
    assert_true(lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0);
    run_resume_options(&options, "plain");
    run_set(&options, "epochs", "3");
    expect_status(&options, CVY_CANNOT_CREATE, "another process trains");
    assert_int_equal(close(lock), 0);
    run_options(&options, "same", "2");
    run_whole(&options, &result);
    run_expect_same("plain", "same");
    /* Another set of classes. */
    run_resume_options(&options, "plain");
    snprintf(options.data, sizeof options.data, "%s", run_path("other"));
    expect_status(&options, CVY_BAD_DATA, "class");
    /* A truncated checkpoint. */
    assert_int_equal(cvy_make_directories(run_path("cut")), CVY_OK);
    assert_int_equal(cvy_file_read(run_path("plain/checkpoint.safetensors"), 1 << 28, &data, &size), CVY_OK);
    assert_int_equal(cvy_file_replace(run_path("cut/checkpoint.safetensors"), data, size - 1), CVY_OK);
    cvy_free(data);
    run_resume_options(&options, "cut");
    expect_status(&options, CVY_BAD_DATA, "cut/checkpoint.safetensors");
    /* Combinations. */
    run_options(&options, "none", "2");
    run_set(&options, "batch-size", "31");
    expect_status(&options, CVY_USAGE, "--batch-size");
    run_options(&options, "none", "2");
    run_set(&options, "eval-resize", "40");
    run_set(&options, "image-size", "64");
    expect_status(&options, CVY_USAGE, "--eval-resize");
    run_options(&options, "none", "2");
    run_set(&options, "num-classes", "9");
    expect_status(&options, CVY_USAGE, "--num-classes");
    run_options(&options, "none", "2");
    run_set(&options, "precision", "fp64");
    expect_status(&options, CVY_USAGE, "--precision");
    run_options(&options, "none", "2");
    options.data[0] = '\0';
    expect_status(&options, CVY_USAGE, "data");
    assert_false(cvy_path_exists(run_path("none"))); /* what fails early leaves no folder after */
}

static void divergence(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    run_options(&options, "diverged", "2");
    run_set(&options, "lr", "1e6");
    run_set(&options, "epochs", "9");
    assert_int_equal(run_until(&options, -1, &result), CVY_FAILED);
    assert_non_null(strstr(cvy_error(), "diverged"));
}

/* Wrong classes, wrong files: each a sentence. */
static void classifier_refusals(void **state)
{
    struct cvy_classifier_options open = CVY_CLASSIFIER_DEFAULTS;
    struct cvy_evaluation evaluation;
    cvy_classifier *classifier;
    float logits[10];

    (void)state;
    open.weights = run_path("plain/model_best.safetensors");
    open.arch = "resnet34";
    assert_int_equal(cvy_classifier_open(&open, &classifier), CVY_BAD_DATA);
    assert_null(classifier);
    open.arch = NULL;
    open.num_classes = 7;
    assert_int_equal(cvy_classifier_open(&open, &classifier), CVY_BAD_DATA);
    assert_non_null(strstr(cvy_error(), "10 classes, not 7"));
    open.num_classes = 0;
    open.weights = run_path("missing.safetensors");
    assert_int_equal(cvy_classifier_open(&open, &classifier), CVY_NO_INPUT);
    open.weights = run_path("plain/model_best.safetensors");
    assert_int_equal(cvy_classifier_open(&open, &classifier), CVY_OK);
    assert_int_equal(cvy_evaluate(classifier, run_path("other"), &evaluation), CVY_BAD_DATA);
    assert_int_equal(cvy_classify_memory(classifier, "text", "hello", 5, logits, NULL), CVY_BAD_DATA);
    assert_int_equal(cvy_evaluate(classifier, run_path("nowhere"), &evaluation), CVY_NO_INPUT);
    cvy_classifier_close(classifier);
    cvy_classifier_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_evaluate_classify),
        cmocka_unit_test(small_training_crops),
        cmocka_unit_test(warned_not_stopped),
        cmocka_unit_test(refusals),
        cmocka_unit_test(divergence),
        cmocka_unit_test(classifier_refusals),
    };
    return cmocka_run_group_tests(tests, run_set_up, run_tear_down);
}
