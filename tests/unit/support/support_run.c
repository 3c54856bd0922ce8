#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "convoy/program/shapes.h"
#include "support_folder.h"
#include "support_run.h"
#include "support_test.h"

static char folder[256];

const char *run_path(const char *name)
{
    return test_path(folder, name);
}

void run_set(struct cvy_train_options *options, const char *name, const char *value)
{
    if (cvy_train_options_set(options, name, value, CVY_FROM_FLAG) != CVY_OK)
        fail_msg("%s=%s: %s", name, value, cvy_error());
}

void run_options(struct cvy_train_options *options, const char *run, const char *threads)
{
    cvy_train_options_init(options);
    snprintf(options->data, sizeof options->data, "%s", run_path("data"));
    run_set(options, "arch", "resnet18");
    run_set(options, "image-size", "32");
    run_set(options, "eval-resize", "32");
    run_set(options, "batch-size", "4");
    run_set(options, "epochs", "2");
    run_set(options, "lr", "0.01");
    run_set(options, "print-freq", "3");
    run_set(options, "workers", "2");
    run_set(options, "threads", threads);
    run_set(options, "workspace", run_path(run));
    if (strcmp(run, "plain") != 0) /* one run without it: the option must not matter */
        run_set(options, "checkpoint-every", "3");
    char steps[64];
    snprintf(steps, sizeof steps, "%s/steps.csv", run);
    run_set(options, "log-every-step", run_path(steps));
}

/* Stops the run at its n-th progress report, or at the first one of a validation. */
struct stopper {
    int64_t at, seen;
    cvy_training *training;
};

static void count_progress(void *context, const struct cvy_train_progress *progress)
{
    struct stopper *stopper = context;

    stopper->seen++;
    if (stopper->at == RUN_IN_VALIDATION ? progress->validating : stopper->seen == stopper->at)
        cvy_training_stop(stopper->training);
}

cvy_status run_until(const struct cvy_train_options *options, int64_t stop_at, struct cvy_train_result *result)
{
    struct stopper stopper = {.at = stop_at};
    const struct cvy_train_events events = {
        .size = sizeof(struct cvy_train_events), .context = &stopper, .progress = count_progress};

    if (stop_at == RUN_NEVER)
        return cvy_train(options, &events, result);
    if (cvy_training_new(options, &events, &stopper.training) != CVY_OK)
        fail_msg("%s", cvy_error());
    const cvy_status status = cvy_training_run(stopper.training, result);
    cvy_training_free(stopper.training);
    return status;
}

void run_whole(const struct cvy_train_options *options, struct cvy_train_result *result)
{
    if (run_until(options, RUN_NEVER, result) != CVY_OK)
        fail_msg("%s", cvy_error());
}

void run_resume_options(struct cvy_train_options *options, const char *name)
{
    cvy_train_options_init(options);
    run_set(options, "resume", run_path(name));
}

void run_expect_same_file(const char *a, const char *b, const char *file)
{
    char left[512], right[512];

    snprintf(left, sizeof left, "%s/%s%s", folder, a, file);
    snprintf(right, sizeof right, "%s/%s%s", folder, b, file);
    expect_same_bytes(left, right);
}

void run_expect_same(const char *a, const char *b)
{
    run_expect_same_file(a, b, "/checkpoint.safetensors");
    run_expect_same_file(a, b, "/model_best.safetensors");
    run_expect_same_file(a, b, "/metrics.csv");
    run_expect_same_file(a, b, "/steps.csv");
}

int run_set_up(void **state)
{
    struct cvy_shapes_options shapes = CVY_SHAPES_DEFAULTS;

    (void)state;
    shapes.train_per_class = 3;
    shapes.val_per_class = 1;
    shapes.image_size = 32;
    test_folder_make(folder);
    if (cvy_write_shapes(run_path("data"), &shapes) != CVY_OK || cvy_write_shapes(run_path("other"), &shapes) != CVY_OK)
        return -1;
    /* A class that the weights do not know. */
    return rename(run_path("other/train/circle"), run_path("other/train/zebra")) == 0 &&
                   rename(run_path("other/val/circle"), run_path("other/val/zebra")) == 0
               ? 0
               : -1;
}

int run_tear_down(void **state)
{
    (void)state;
    test_folder_remove(folder);
    return 0;
}
