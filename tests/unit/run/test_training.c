/* A run in pieces: the same bytes as one in a single call, whatever is done between the steps; a stop of one run does
 * not reach another; calls in a wrong order are refused and end nothing. */
#include <pthread.h>

#include "base/file.h"
#include "convoy/convoy.h"
#include "convoy/program/shapes.h"
#include "support_folder.h"
#include "support_test.h"

/* 30 training images in batches of 5: 6 steps an epoch. */
enum { STEPS = 6, EPOCHS = 2 };

static char runs[256];

static const char *in_runs(const char *name)
{
    return test_path(runs, name);
}

static void set(struct cvy_train_options *options, const char *name, const char *value)
{
    if (cvy_train_options_set(options, name, value, CVY_FROM_FLAG) != CVY_OK)
        fail_msg("%s=%s: %s", name, value, cvy_error());
}

static const char *precise_bn = "0";

static struct cvy_train_options *options_of(const char *run)
{
    static const char *const values[][2] = {{"arch", "resnet18"}, {"image-size", "32"}, {"batch-size", "5"},
                                            {"epochs", "2"},      {"lr", "0.01"},       {"print-freq", "4"},
                                            {"workers", "1"},     {"threads", "1"},     {"warmup", "0"}};
    struct cvy_train_options *options = cvy_train_options_new();
    char steps[512];

    assert_non_null(options);
    assert_int_equal(cvy_train_options_set_data(options, in_runs("data")), CVY_OK);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        set(options, values[i][0], values[i][1]);
    set(options, "precise-bn", precise_bn);
    set(options, "workspace", in_runs(run));
    snprintf(steps, sizeof steps, "%s/steps.csv", in_runs(run));
    set(options, "log-every-step", steps);
    return options;
}

static cvy_training *training_of(const char *run, const struct cvy_train_events *events)
{
    struct cvy_train_options *options = options_of(run);
    cvy_training *training;

    assert_int_equal(cvy_training_new(options, events, &training), CVY_OK);
    cvy_train_options_free(options); /* it has its own */
    return training;
}

static void expect_same_file(const char *a, const char *b, const char *file)
{
    char left[512], right[512];

    snprintf(left, sizeof left, "%s/%s", in_runs(a), file);
    snprintf(right, sizeof right, "%s/%s", in_runs(b), file);
    expect_same_bytes(left, right);
}

static void expect_same_run(const char *a, const char *b)
{
    expect_same_file(a, b, "checkpoint.safetensors");
    expect_same_file(a, b, "model_best.safetensors");
    expect_same_file(a, b, "metrics.csv");
    expect_same_file(a, b, "steps.csv");
}

/* ---- the same run, in pieces ---- */

struct seen {
    const char *run;
    int64_t steps, epochs, begun;
    double last_top1;
};

static void see_begin(void *context, const char *run_directory, int rank, int ranks)
{
    struct seen *seen = context;

    seen->begun++;
    assert_string_equal(run_directory, in_runs(seen->run));
    assert_true(rank == 0 && ranks == 1);
}

static void see_progress(void *context, const struct cvy_train_progress *progress)
{
    ((struct seen *)context)->steps += !progress->validating;
}

static void see_epoch(void *context, const struct cvy_train_epoch *epoch)
{
    struct seen *seen = context;

    seen->epochs++;
    seen->last_top1 = cvy_measures_get(&epoch->val, "top1");
}

static void expect_the_same_bytes(const char *in_one, const char *in_pieces)
{
    struct seen seen = {.run = in_pieces};
    const struct cvy_train_events events = {.size = sizeof(struct cvy_train_events),
                                            .context = &seen,
                                            .begin = see_begin,
                                            .progress = see_progress,
                                            .epoch = see_epoch};
    struct cvy_train_options *options = options_of(in_one);
    cvy_training *training = training_of(in_pieces, &events);
    struct cvy_train_result result, whole;
    struct cvy_measures measures;
    bool more = true;
    int64_t steps = 0;
    char text[32], checkpoint[512];

    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint.safetensors", in_runs(in_pieces));
    if (cvy_train(options, NULL, &whole) != CVY_OK)
        fail_msg("%s", cvy_error());
    cvy_train_options_free(options);
    assert_int_equal(cvy_train_options_get(cvy_training_options(training), "num-classes", text, sizeof text), CVY_OK);
    assert_string_equal(text, "0"); /* which only the data say */
    assert_int_equal(cvy_training_open(training), CVY_OK);
    assert_int_equal(seen.begun, 1);
    assert_int_equal(cvy_train_options_get(cvy_training_options(training), "num-classes", text, sizeof text), CVY_OK);
    assert_string_equal(text, "10");
    while (more) {
        if (cvy_training_step(training, &more) != CVY_OK)
            fail_msg("%s", cvy_error());
        steps++;
        assert_int_equal(seen.steps, steps);
        assert_int_equal(seen.epochs, steps / STEPS);
        if (steps == 2 || steps == STEPS) { /* within an epoch, and between two */
            assert_int_equal(cvy_training_validate(training, &measures), CVY_OK);
            assert_false(isnan(cvy_measures_get(&measures, "loss")));
            /* Nothing was learned since the validation of the epoch's end. */
            assert_true(steps != STEPS || *precise_bn != '0' || cvy_measures_get(&measures, "top1") == seen.last_top1);
        }
        if (steps == 3) {
            assert_false(cvy_path_exists(checkpoint));
            assert_int_equal(cvy_training_save(training), CVY_OK);
            assert_true(cvy_path_exists(checkpoint));
        }
    }
    assert_int_equal(steps, EPOCHS * STEPS);
    assert_int_equal(cvy_training_finish(training, &result), CVY_OK);
    cvy_training_free(training);
    assert_int_equal(result.steps_done, steps);
    assert_true(result.best_score == whole.best_score && result.best_epoch == whole.best_epoch);
    expect_same_run(in_one, in_pieces);
}

static void the_same_bytes(void **state)
{
    expect_the_same_bytes("whole", "pieces");
    assert_true(cvy_path_exists(in_runs("pieces/report.html")));
}

/* Validations that read training images, too. */
static void the_same_bytes_with_statistics(void **state)
{
    precise_bn = "3";
    expect_the_same_bytes("whole-3", "pieces-3");
    precise_bn = "0";
}

/* Given up after some steps: what was saved continues to the same end. */
static void left_and_resumed(void **state)
{
    cvy_training *training = training_of("left", NULL);
    struct cvy_train_options *options = cvy_train_options_new();
    struct cvy_train_result result;
    bool more;

    assert_int_equal(cvy_training_open(training), CVY_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cvy_training_step(training, &more), CVY_OK);
        assert_true(more);
        if (i == 2)
            assert_int_equal(cvy_training_save(training), CVY_OK);
    }
    cvy_training_free(training);
    set(options, "resume", in_runs("left"));
    assert_int_equal(cvy_train(options, NULL, &result), CVY_OK);
    cvy_train_options_free(options);
    expect_same_run("whole", "left");
}

/* ---- a stop ---- */

struct one_of_two {
    cvy_training *training, *other;
    cvy_status status;
    int64_t seen;
};

/* The first one is stopped from the thread of the second one, after some steps of that. */
static void stop_the_other(void *context, const struct cvy_train_progress *progress)
{
    struct one_of_two *one = context;

    if (++one->seen == 3 && one->other)
        cvy_training_stop(one->other);
}

static void *run_one(void *context)
{
    struct one_of_two *one = context;

    one->status = cvy_training_run(one->training, NULL);
    return NULL;
}

static void two_at_once(void **state)
{
    struct one_of_two stopped = {0}, whole = {0};
    const struct cvy_train_events events = {
        .size = sizeof(struct cvy_train_events), .context = &whole, .progress = stop_the_other};
    struct cvy_train_options *options = options_of("stopped");
    pthread_t thread;

    set(options, "epochs", "100000"); /* it ends by the stop, or never */
    assert_int_equal(cvy_training_new(options, NULL, &stopped.training), CVY_OK);
    whole.other = stopped.training;
    whole.training = training_of("beside", &events);
    assert_int_equal(pthread_create(&thread, NULL, run_one, &stopped), 0);
    run_one(&whole);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(whole.status, CVY_OK);
    assert_int_equal(stopped.status, CVY_STOPPED);
    assert_true(cvy_path_exists(in_runs("stopped/checkpoint.safetensors")));
    cvy_training_free(stopped.training);
    cvy_training_free(whole.training);
    cvy_train_options_free(options);
    expect_same_run("whole", "beside");
}

/* What was asked before the run was opened is not lost, and another run knows nothing of it. */
static void stopped_before_it_began(void **state)
{
    cvy_training *training = training_of("early", NULL);
    struct cvy_train_result result;

    cvy_training_stop(training);
    assert_int_equal(cvy_training_run(training, &result), CVY_STOPPED);
    assert_error("the checkpoint is saved");
    assert_int_equal(result.steps_done, 1);
    cvy_training_free(training);
}

/* ---- calls that are not possible ---- */

static cvy_training *reentered;
static cvy_status status_within;

static void step_within(void *context, const struct cvy_train_progress *progress)
{
    status_within = cvy_training_step(reentered, NULL);
    cvy_training_free(reentered); /* neither: it is in use */
}

static void wrong_order(void **state)
{
    const struct cvy_train_events events = {.size = sizeof(struct cvy_train_events), .progress = step_within};
    struct cvy_train_result result;
    struct cvy_measures measures;
    bool more = true;

    reentered = training_of("order", &events);
    assert_fails(cvy_training_step(reentered, &more), CVY_USAGE, "it is not open");
    assert_false(more);
    assert_fails(cvy_training_save(reentered), CVY_USAGE, "cvy_training_save is not possible");
    assert_fails(cvy_training_validate(reentered, &measures), CVY_USAGE, "it is not open");
    assert_fails(cvy_training_finish(reentered, &result), CVY_USAGE, "it is not open");
    assert_int_equal(cvy_training_open(reentered), CVY_OK);
    assert_fails(cvy_training_open(reentered), CVY_USAGE, "it runs");
    assert_int_equal(cvy_training_step(reentered, &more), CVY_OK);
    assert_int_equal(status_within, CVY_USAGE);
    cvy_training_stop(reentered);
    assert_int_equal(cvy_training_step(reentered, &more), CVY_STOPPED);
    assert_false(more);
    assert_fails(cvy_training_step(reentered, &more), CVY_USAGE, "it is over");
    assert_int_equal(cvy_training_finish(reentered, &result), CVY_STOPPED);
    assert_error("stopped after step 2");
    assert_int_equal(result.steps_done, 2);
    assert_fails(cvy_training_finish(reentered, &result), CVY_USAGE, "it is finished");
    cvy_training_free(reentered);
}

static void no_validation_between(void **state)
{
    struct cvy_train_options *options = options_of("no-validation");
    struct cvy_measures measures;
    cvy_training *training;
    bool more;

    set(options, "training-only", "true");
    assert_int_equal(cvy_training_new(options, NULL, &training), CVY_OK);
    assert_int_equal(cvy_training_open(training), CVY_OK);
    assert_fails(cvy_training_validate(training, &measures), CVY_USAGE, "--training-only");
    assert_int_equal(cvy_training_step(training, &more), CVY_OK); /* which has ended nothing */
    cvy_training_free(training);
    cvy_train_options_free(options);
}

static void cannot_be_opened(void **state)
{
    struct cvy_train_options *options = options_of("none");
    struct cvy_train_result result;
    cvy_training *training;

    assert_int_equal(cvy_train_options_set_data(options, in_runs("nowhere")), CVY_OK);
    assert_int_equal(cvy_training_new(options, NULL, &training), CVY_OK);
    assert_fails(cvy_training_open(training), CVY_NO_INPUT, "nowhere");
    assert_fails(cvy_training_step(training, NULL), CVY_USAGE, "it is over");
    assert_fails(cvy_training_finish(training, &result), CVY_NO_INPUT, "nowhere"); /* why it is over, once more */
    assert_int_equal(result.best_epoch, -1);
    assert_fails(cvy_training_finish(training, &result), CVY_USAGE, "it is finished");
    cvy_training_free(training);
    assert_int_equal(cvy_training_new(options, NULL, &training), CVY_OK);
    assert_fails(cvy_training_run(training, &result), CVY_NO_INPUT, "nowhere");
    assert_int_equal(result.best_epoch, -1);
    cvy_training_free(training);
    cvy_train_options_free(options);
}

static int set_up(void **state)
{
    struct cvy_shapes_options shapes = CVY_SHAPES_DEFAULTS;

    shapes.train_per_class = 3;
    shapes.val_per_class = 1;
    shapes.image_size = 32;
    test_folder_make(runs);
    return cvy_write_shapes(in_runs("data"), &shapes) == CVY_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    test_folder_remove(runs);
    return 0;
}

RUN_TESTS(set_up, tear_down, TEST(the_same_bytes), TEST(the_same_bytes_with_statistics), TEST(left_and_resumed),
          TEST(two_at_once), TEST(stopped_before_it_began), TEST(wrong_order), TEST(no_validation_between),
          TEST(cannot_be_opened))
