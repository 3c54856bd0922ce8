/* Whole runs on a tiny set of drawn shapes: training and evaluation agree; a run that is stopped anywhere and resumed
 * writes the same bytes as one that was not; what must not be resumed is refused. */
#include <fcntl.h>
#include <ftw.h>
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
#include "support_folder.h"

static char folder[] = "/tmp/convoy-train-XXXXXX";
/* 30 training images in batches of 4: 7 steps an epoch, two images left over. */
enum { STEPS = 7, EPOCHS = 2 };

static const char *path_of(const char *name)
{
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void set(struct cvy_train_options *options, const char *name, const char *value)
{
    if (cvy_train_options_set(options, name, value, CVY_FROM_FLAG) != CVY_OK)
        fail_msg("%s=%s: %s", name, value, cvy_error());
}

static void base_options(struct cvy_train_options *options, const char *run, const char *threads)
{
    cvy_train_options_init(options);
    snprintf(options->data, sizeof options->data, "%s", path_of("data"));
    set(options, "arch", "resnet18");
    set(options, "image-size", "32");
    set(options, "eval-resize", "32");
    set(options, "batch-size", "4");
    set(options, "epochs", "2");
    set(options, "lr", "0.01");
    set(options, "print-freq", "3");
    set(options, "workers", "2");
    set(options, "threads", threads);
    set(options, "workspace", path_of(run));
    if (strcmp(run, "plain") != 0) /* one run without it: the option must not matter */
        set(options, "checkpoint-every", "3");
    char steps[64];
    snprintf(steps, sizeof steps, "%s/steps.csv", run);
    set(options, "log-every-step", path_of(steps));
}

enum { NEVER = -1, IN_VALIDATION = -2 };

/* Stops the run at its n-th progress report, or at the first one of a validation. */
struct stopper {
    int64_t at, seen;
    cvy_training *training;
};

static void count_progress(void *context, const struct cvy_train_progress *progress)
{
    struct stopper *stopper = context;

    stopper->seen++;
    if (stopper->at == IN_VALIDATION ? progress->validating : stopper->seen == stopper->at)
        cvy_training_stop(stopper->training);
}

static cvy_status run(const struct cvy_train_options *options, int64_t stop_at, struct cvy_train_result *result)
{
    struct stopper stopper = {.at = stop_at};
    const struct cvy_train_events events = {
        .size = sizeof(struct cvy_train_events), .context = &stopper, .progress = count_progress};

    if (stop_at == NEVER)
        return cvy_train(options, &events, result);
    if (cvy_training_new(options, &events, &stopper.training) != CVY_OK)
        fail_msg("%s", cvy_error());
    const cvy_status status = cvy_training_run(stopper.training, result);
    cvy_training_free(stopper.training);
    return status;
}

static void run_ok(const struct cvy_train_options *options, struct cvy_train_result *result)
{
    if (run(options, NEVER, result) != CVY_OK)
        fail_msg("%s", cvy_error());
}

static void resume_options(struct cvy_train_options *options, const char *name)
{
    cvy_train_options_init(options);
    set(options, "resume", path_of(name));
}

static void expect_same(const char *a, const char *b, const char *file)
{
    char left[256], right[256];

    snprintf(left, sizeof left, "%s/%s%s", folder, a, file);
    snprintf(right, sizeof right, "%s/%s%s", folder, b, file);
    expect_same_bytes(left, right);
}

static void expect_same_run(const char *a, const char *b)
{
    expect_same(a, b, "/checkpoint.safetensors");
    expect_same(a, b, "/model_best.safetensors");
    expect_same(a, b, "/metrics.csv");
    expect_same(a, b, "/steps.csv");
}

/* Only the validation sees the larger images: the losses of the steps are those of a run on small ones. */
static void small_training_crops(void **state)
{
    struct cvy_train_options options;
    struct cvy_train_result result;

    (void)state;
    base_options(&options, "crops-alike", "2");
    set(&options, "epochs", "1");
    run_ok(&options, &result);
    base_options(&options, "crops", "2");
    set(&options, "epochs", "1");
    set(&options, "image-size", "48");
    set(&options, "eval-resize", "48");
    set(&options, "train-crop-size", "32");
    run_ok(&options, &result);
    expect_same("crops", "crops-alike", "/steps.csv");
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
    snprintf(folder_of_val, sizeof folder_of_val, "%s", path_of("data/val"));
    base_options(&options, "plain", "2");
    run_ok(&options, &result);
    assert_int_equal(result.epochs_done, EPOCHS);
    assert_int_equal(result.steps_done, EPOCHS * STEPS);
    assert_string_equal(result.run_directory, path_of("plain"));
    assert_true(cvy_path_exists(result.weights) && cvy_path_exists(result.sample_image));
    assert_true(cvy_path_exists(path_of("plain/experiment_raport.json")));
    assert_true(cvy_path_exists(path_of("plain/plot.svg")));
    assert_true(result.peak_memory > 0 && result.planned_memory > 0);
    /* The checkpoint of the end gives the numbers of the last row of metrics.csv. */
    assert_int_equal(cvy_csv_read(path_of("plain/metrics.csv"), columns, 2, &rows, &count), CVY_OK);
    assert_int_equal(count, EPOCHS);
    open.weights = path_of("plain/checkpoint.safetensors");
    if (cvy_classifier_open(&open, &classifier) != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_string_equal(cvy_classifier_arch(classifier), "resnet18");
    assert_int_equal(cvy_classifier_classes(classifier), 10);
    assert_int_equal(cvy_evaluate(classifier, path_of("data"), &evaluation), CVY_OK);
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

/* ---- stopping and resuming ---- */

/* Stop after 1 step, then 4 more, then at the end of the epoch, during validation, ... until the end. */
static void stop_and_resume(const char *plain, const char *stopped, const char *threads)
{
    static const int64_t stops[] = {1, 4, 2, 1, 3, 4, 1};
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    base_options(&options, stopped, threads);
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        const cvy_status status = run(&options, stops[i], &result);
        if (status != CVY_STOPPED)
            fail_msg("stop %zu: %d %s", i, (int)status, cvy_error());
        resume_options(&options, stopped);
    }
    run_ok(&options, &result);
    assert_int_equal(result.steps_done, EPOCHS * STEPS);
    expect_same_run(plain, stopped);
}

static void resume_two_threads(void **state)
{
    (void)state;
    stop_and_resume("plain", "stopped2", "2");
}

static void resume_one_thread(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    base_options(&options, "single", "1");
    run_ok(&options, &result);
    stop_and_resume("single", "stopped1", "1");
}

static void append(const char *path, const char *text)
{
    FILE *file = fopen(path, "a");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A killed run leaves rows that its checkpoint does not know, and half a line. */
static void logs_are_cut_back(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    base_options(&options, "killed", "2");
    assert_int_equal(run(&options, 4, &result), CVY_STOPPED);
    append(path_of("killed/steps.csv"), "0,5,99,99\n0,6,1.");
    append(path_of("killed/metrics.csv"), "0,99,99,99,99,99\n1,");
    append(path_of("killed/experiment_raport.json"),
           "DLLL {\"type\": \"LOG\", \"step\": [0, 6], \"data\": {\"killed\": 1}}\n"
           "DLLL {\"type\": \"LOG\", \"step\": [0], \"data\": {\"kil");
    append(path_of("killed/checkpoint.safetensors.tmp.123"), "half a file");
    resume_options(&options, "killed");
    run_ok(&options, &result);
    expect_same_run("plain", "killed");
    assert_false(cvy_path_exists(path_of("killed/checkpoint.safetensors.tmp.123")));
    {
        void *text;
        size_t size;
        assert_int_equal(cvy_file_read(path_of("killed/experiment_raport.json"), 1 << 20, &text, &size), CVY_OK);
        assert_null(strstr(text, "{\"kil"));
        cvy_free(text);
    }
    /* A finished run has nothing left to do. */
    resume_options(&options, "killed");
    run_ok(&options, &result);
    assert_int_equal(result.steps_done, EPOCHS * STEPS);
    expect_same_run("plain", "killed");
}

/* Killed before the first checkpoint: the options beside it are enough to begin again. */
static void resume_before_first_checkpoint(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    base_options(&options, "early", "2");
    assert_int_equal(run(&options, 1, &result), CVY_STOPPED);
    assert_int_equal(unlink(path_of("early/checkpoint.safetensors")), 0);
    resume_options(&options, "early");
    run_ok(&options, &result);
    expect_same_run("plain", "early");
}

/* --run-epochs in parts is the whole run. */
static void in_parts(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    base_options(&options, "parts", "2");
    set(&options, "run-epochs", "1");
    run_ok(&options, &result);
    assert_int_equal(result.epochs_done, 1);
    resume_options(&options, "parts");
    run_ok(&options, &result);
    assert_int_equal(result.epochs_done, 2);
    expect_same_run("plain", "parts");
}

/* A run of one epoch that is stopped ends where it was to end, and only then the rest of the schedule follows. */
static void parts_that_are_stopped(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    base_options(&options, "stopped_parts", "2");
    set(&options, "run-epochs", "1");
    assert_int_equal(run(&options, 3, &result), CVY_STOPPED);
    resume_options(&options, "stopped_parts");
    assert_int_equal(run(&options, 2, &result), CVY_STOPPED);
    resume_options(&options, "stopped_parts");
    run_ok(&options, &result);
    assert_int_equal(result.epochs_done, 1);
    resume_options(&options, "stopped_parts");
    run_ok(&options, &result);
    expect_same_run("plain", "stopped_parts");
}

static int64_t count_rows(const char *table)
{
    static const char *const columns[] = {"epoch"};
    double *rows;
    size_t count;

    if (cvy_csv_read(path_of(table), columns, 1, &rows, &count) != CVY_OK)
        fail_msg("%s", cvy_error());
    cvy_free(rows);
    return (int64_t)count;
}

static void expect_position(const struct cvy_train_result *result, int64_t epochs, int64_t steps)
{
    assert_int_equal(result->epochs_done, epochs);
    assert_int_equal(result->steps_done, steps);
}

/* A run of some steps that is stopped in the validation after the last of them still has that to do, and no step. */
static void stopped_in_the_last_validation(const char *name, int64_t steps)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;
    char text[24], metrics[64];
    const int64_t epochs = steps / STEPS;

    snprintf(text, sizeof text, "%lld", (long long)steps);
    snprintf(metrics, sizeof metrics, "%s/metrics.csv", name);
    base_options(&options, name, "2");
    set(&options, "run-steps", text);
    assert_int_equal(run(&options, IN_VALIDATION, &result), CVY_STOPPED);
    expect_position(&result, 0, steps);
    assert_int_equal(count_rows(metrics), 0);
    resume_options(&options, name);
    assert_int_equal(run(&options, IN_VALIDATION, &result), CVY_STOPPED); /* as often as one likes */
    expect_position(&result, 0, steps);
    resume_options(&options, name);
    run_ok(&options, &result);
    expect_position(&result, epochs, steps);
    assert_int_equal(count_rows(metrics), 1);
    resume_options(&options, name);
    run_ok(&options, &result);
    expect_same_run("plain", name);
}

static void stopped_at_the_end_within_an_epoch(void **state)
{
    (void)state;
    stopped_in_the_last_validation("within", STEPS - 2);
}

static void stopped_at_the_end_of_an_epoch(void **state)
{
    (void)state;
    stopped_in_the_last_validation("between", STEPS);
}

/* Without --threads a resumed run computes with the threads of its checkpoint, whatever the machine offers now. */
static void resume_keeps_threads(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    assert_int_equal(setenv("OMP_NUM_THREADS", "1", 1), 0);
    base_options(&options, "chosen", "0");
    assert_int_equal(run(&options, 2, &result), CVY_STOPPED);
    assert_int_equal(setenv("OMP_NUM_THREADS", "2", 1), 0);
    resume_options(&options, "chosen");
    run_ok(&options, &result);
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
    expect_same("single", "chosen", "/steps.csv");
    expect_same("single", "chosen", "/metrics.csv");
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
    base_options(&options, "warned", "2");
    assert_int_equal(cvy_make_directories(path_of("warned/plot.svg")), CVY_OK);
    warnings = 0;
    cvy_set_log_handler(count_warnings, (void *)(uintptr_t) "plot.svg");
    set(&options, "run-epochs", "1");
    run_ok(&options, &result);
    assert_int_equal(warnings, 1);
    warnings = 0;
    cvy_set_log_handler(count_warnings, (void *)(uintptr_t) "--threads \"2\"");
    resume_options(&options, "warned");
    set(&options, "threads", "1");
    run_ok(&options, &result);
    assert_int_equal(warnings, 1);
    cvy_set_log_handler(NULL, NULL);
}

/* ---- refusals ---- */

static void expect_status(const struct cvy_train_options *options, cvy_status status, const char *text)
{
    static struct cvy_train_result result;
    const cvy_status got = run(options, 1, &result);

    if (got != status || !strstr(cvy_error(), text))
        fail_msg("%d \"%s\" instead of %d with %s", (int)got, cvy_error(), (int)status, text);
}

static void refusals(void **state)
{
    static struct cvy_train_options options;
    void *data;
    size_t size;
    int lock;

    (void)state;
    base_options(&options, "plain", "2");
    expect_status(&options, CVY_CANNOT_CREATE, "--resume");
    resume_options(&options, "plain");
    set(&options, "arch", "resnet34");
    expect_status(&options, CVY_USAGE, "--arch");
    resume_options(&options, "plain");
    set(&options, "seed", "1");
    expect_status(&options, CVY_USAGE, "--seed");
    resume_options(&options, "plain");
    set(&options, "batch-size", "5");
    expect_status(&options, CVY_USAGE, "--batch-size");
    /* Another algorithm on the same device. */
    resume_options(&options, "plain");
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
    resume_options(&options, "nowhere");
    expect_status(&options, CVY_NO_INPUT, "nowhere");
    resume_options(&options, "plain/model_best.safetensors");
    expect_status(&options, CVY_BAD_DATA, "model_best.safetensors\" holds weights only");
    resume_options(&options, "plain");
    set(&options, "epochs", "1");
    expect_status(&options, CVY_USAGE, "--epochs 1");
    /* Another process trains there. */
    lock = open(path_of("plain/.lock"), O_RDWR | O_CLOEXEC);
    assert_true(lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0);
    resume_options(&options, "plain");
    set(&options, "epochs", "3");
    expect_status(&options, CVY_CANNOT_CREATE, "another process trains");
    assert_int_equal(close(lock), 0);
    expect_same_run("plain", "parts");
    /* Another set of classes. */
    resume_options(&options, "plain");
    snprintf(options.data, sizeof options.data, "%s", path_of("other"));
    expect_status(&options, CVY_BAD_DATA, "class");
    /* A truncated checkpoint. */
    assert_int_equal(cvy_make_directories(path_of("cut")), CVY_OK);
    assert_int_equal(cvy_file_read(path_of("plain/checkpoint.safetensors"), 1 << 28, &data, &size), CVY_OK);
    assert_int_equal(cvy_file_replace(path_of("cut/checkpoint.safetensors"), data, size - 1), CVY_OK);
    cvy_free(data);
    resume_options(&options, "cut");
    expect_status(&options, CVY_BAD_DATA, "cut/checkpoint.safetensors");
    /* Combinations. */
    base_options(&options, "none", "2");
    set(&options, "batch-size", "31");
    expect_status(&options, CVY_USAGE, "--batch-size");
    base_options(&options, "none", "2");
    set(&options, "eval-resize", "40");
    set(&options, "image-size", "64");
    expect_status(&options, CVY_USAGE, "--eval-resize");
    base_options(&options, "none", "2");
    set(&options, "num-classes", "9");
    expect_status(&options, CVY_USAGE, "--num-classes");
    base_options(&options, "none", "2");
    set(&options, "precision", "fp64");
    expect_status(&options, CVY_USAGE, "--precision");
    base_options(&options, "none", "2");
    options.data[0] = '\0';
    expect_status(&options, CVY_USAGE, "data");
    assert_false(cvy_path_exists(path_of("none"))); /* what fails early leaves no folder after */
}

static void divergence(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    base_options(&options, "diverged", "2");
    set(&options, "lr", "1e6");
    set(&options, "epochs", "9");
    assert_int_equal(run(&options, -1, &result), CVY_FAILED);
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
    open.weights = path_of("plain/model_best.safetensors");
    open.arch = "resnet34";
    assert_int_equal(cvy_classifier_open(&open, &classifier), CVY_BAD_DATA);
    assert_null(classifier);
    open.arch = NULL;
    open.num_classes = 7;
    assert_int_equal(cvy_classifier_open(&open, &classifier), CVY_BAD_DATA);
    assert_non_null(strstr(cvy_error(), "10 classes, not 7"));
    open.num_classes = 0;
    open.weights = path_of("missing.safetensors");
    assert_int_equal(cvy_classifier_open(&open, &classifier), CVY_NO_INPUT);
    open.weights = path_of("plain/model_best.safetensors");
    assert_int_equal(cvy_classifier_open(&open, &classifier), CVY_OK);
    assert_int_equal(cvy_evaluate(classifier, path_of("other"), &evaluation), CVY_BAD_DATA);
    assert_int_equal(cvy_classify_memory(classifier, "text", "hello", 5, logits, NULL), CVY_BAD_DATA);
    assert_int_equal(cvy_evaluate(classifier, path_of("nowhere"), &evaluation), CVY_NO_INPUT);
    cvy_classifier_close(classifier);
    cvy_classifier_close(NULL);
}

/* ---- the data ---- */

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status, (void)type, (void)where;
    return remove(path);
}

static int set_up(void **state)
{
    struct cvy_shapes_options shapes = CVY_SHAPES_DEFAULTS;

    (void)state;
    shapes.train_per_class = 3;
    shapes.val_per_class = 1;
    shapes.image_size = 32;
    if (!mkdtemp(folder) || cvy_write_shapes(path_of("data"), &shapes) != CVY_OK ||
        cvy_write_shapes(path_of("other"), &shapes) != CVY_OK)
        return -1;
    /* A class that the weights do not know. */
    return rename(path_of("other/train/circle"), path_of("other/train/zebra")) == 0 &&
                   rename(path_of("other/val/circle"), path_of("other/val/zebra")) == 0
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_evaluate_classify),
        cmocka_unit_test(small_training_crops),
        cmocka_unit_test(resume_two_threads),
        cmocka_unit_test(resume_one_thread),
        cmocka_unit_test(logs_are_cut_back),
        cmocka_unit_test(resume_before_first_checkpoint),
        cmocka_unit_test(in_parts),
        cmocka_unit_test(parts_that_are_stopped),
        cmocka_unit_test(stopped_at_the_end_within_an_epoch),
        cmocka_unit_test(stopped_at_the_end_of_an_epoch),
        cmocka_unit_test(resume_keeps_threads),
        cmocka_unit_test(warned_not_stopped),
        cmocka_unit_test(refusals),
        cmocka_unit_test(divergence),
        cmocka_unit_test(classifier_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
