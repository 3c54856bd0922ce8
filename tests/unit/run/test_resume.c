/* A run that is stopped anywhere and resumed writes the same bytes as one that was not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "run/records/log.h"
#include "support_run.h"
#include "support_test.h"

/* Stop after 1 step, then 4 more, then at the end of the epoch, during validation, ... until the end. */
static void stop_and_resume(const char *plain, const char *stopped, const char *threads)
{
    static const int64_t stops[] = {1, 4, 2, 1, 3, 4, 1};
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    run_options(&options, stopped, threads);
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        const cvy_status status = run_until(&options, stops[i], &result);
        if (status != CVY_STOPPED)
            fail_msg("stop %zu: %d %s", i, (int)status, cvy_error());
        run_resume_options(&options, stopped);
    }
    run_whole(&options, &result);
    assert_int_equal(result.steps_done, RUN_EPOCHS * RUN_STEPS);
    run_expect_same(plain, stopped);
}

static void resume_two_threads(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    run_options(&options, "plain", "2");
    run_whole(&options, &result);
    stop_and_resume("plain", "stopped2", "2");
}

static void resume_one_thread(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    run_options(&options, "single", "1");
    run_whole(&options, &result);
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
    run_options(&options, "killed", "2");
    assert_int_equal(run_until(&options, 4, &result), CVY_STOPPED);
    append(run_path("killed/steps.csv"), "0,5,99,99\n0,6,1.");
    append(run_path("killed/metrics.csv"), "0,99,99,99,99,99\n1,");
    append(run_path("killed/experiment_raport.json"),
           "DLLL {\"type\": \"LOG\", \"step\": [0, 6], \"data\": {\"killed\": 1}}\n"
           "DLLL {\"type\": \"LOG\", \"step\": [0], \"data\": {\"kil");
    append(run_path("killed/checkpoint.safetensors.tmp.123"), "half a file");
    run_resume_options(&options, "killed");
    run_whole(&options, &result);
    run_expect_same("plain", "killed");
    assert_false(cvy_path_exists(run_path("killed/checkpoint.safetensors.tmp.123")));
    {
        void *text;
        size_t size;
        assert_int_equal(cvy_file_read(run_path("killed/experiment_raport.json"), 1 << 20, &text, &size), CVY_OK);
        assert_null(strstr(text, "{\"kil"));
        cvy_free(text);
    }
    /* A finished run has nothing left to do. */
    run_resume_options(&options, "killed");
    run_whole(&options, &result);
    assert_int_equal(result.steps_done, RUN_EPOCHS * RUN_STEPS);
    run_expect_same("plain", "killed");
}

/* Killed before the first checkpoint: the options beside it are enough to begin again. */
static void resume_before_first_checkpoint(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    run_options(&options, "early", "2");
    assert_int_equal(run_until(&options, 1, &result), CVY_STOPPED);
    assert_int_equal(unlink(run_path("early/checkpoint.safetensors")), 0);
    run_resume_options(&options, "early");
    run_whole(&options, &result);
    run_expect_same("plain", "early");
}

/* --run-epochs in parts is the whole run. */
static void in_parts(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    run_options(&options, "parts", "2");
    run_set(&options, "run-epochs", "1");
    run_whole(&options, &result);
    assert_int_equal(result.epochs_done, 1);
    run_resume_options(&options, "parts");
    run_whole(&options, &result);
    assert_int_equal(result.epochs_done, 2);
    run_expect_same("plain", "parts");
}

/* A run of one epoch that is stopped ends where it was to end, and only then the rest of the schedule follows. */
static void parts_that_are_stopped(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    run_options(&options, "stopped_parts", "2");
    run_set(&options, "run-epochs", "1");
    assert_int_equal(run_until(&options, 3, &result), CVY_STOPPED);
    run_resume_options(&options, "stopped_parts");
    assert_int_equal(run_until(&options, 2, &result), CVY_STOPPED);
    run_resume_options(&options, "stopped_parts");
    run_whole(&options, &result);
    assert_int_equal(result.epochs_done, 1);
    run_resume_options(&options, "stopped_parts");
    run_whole(&options, &result);
    run_expect_same("plain", "stopped_parts");
}

static int64_t count_rows(const char *table)
{
    static const char *const columns[] = {"epoch"};
    double *rows;
    size_t count;

    if (cvy_csv_read(run_path(table), columns, 1, &rows, &count) != CVY_OK)
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
    const int64_t epochs = steps / RUN_STEPS;

    snprintf(text, sizeof text, "%lld", (long long)steps);
    snprintf(metrics, sizeof metrics, "%s/metrics.csv", name);
    run_options(&options, name, "2");
    run_set(&options, "run-steps", text);
    assert_int_equal(run_until(&options, RUN_IN_VALIDATION, &result), CVY_STOPPED);
    expect_position(&result, 0, steps);
    assert_int_equal(count_rows(metrics), 0);
    run_resume_options(&options, name);
    assert_int_equal(run_until(&options, RUN_IN_VALIDATION, &result), CVY_STOPPED); /* as often as one likes */
    expect_position(&result, 0, steps);
    run_resume_options(&options, name);
    run_whole(&options, &result);
    expect_position(&result, epochs, steps);
    assert_int_equal(count_rows(metrics), 1);
    run_resume_options(&options, name);
    run_whole(&options, &result);
    run_expect_same("plain", name);
}

static void stopped_at_the_end_within_an_epoch(void **state)
{
    (void)state;
    stopped_in_the_last_validation("within", RUN_STEPS - 2);
}

static void stopped_at_the_end_of_an_epoch(void **state)
{
    (void)state;
    stopped_in_the_last_validation("between", RUN_STEPS);
}

/* Without --threads a resumed run computes with the threads of its checkpoint, whatever the machine offers now. */
static void resume_keeps_threads(void **state)
{
    static struct cvy_train_options options;
    static struct cvy_train_result result;

    (void)state;
    assert_int_equal(setenv("OMP_NUM_THREADS", "1", 1), 0);
    run_options(&options, "chosen", "0");
    assert_int_equal(run_until(&options, 2, &result), CVY_STOPPED);
    assert_int_equal(setenv("OMP_NUM_THREADS", "2", 1), 0);
    run_resume_options(&options, "chosen");
    run_whole(&options, &result);
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
    run_expect_same_file("single", "chosen", "/steps.csv");
    run_expect_same_file("single", "chosen", "/metrics.csv");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume_two_threads),
        cmocka_unit_test(resume_one_thread),
        cmocka_unit_test(logs_are_cut_back),
        cmocka_unit_test(resume_before_first_checkpoint),
        cmocka_unit_test(in_parts),
        cmocka_unit_test(parts_that_are_stopped),
        cmocka_unit_test(stopped_at_the_end_within_an_epoch),
        cmocka_unit_test(stopped_at_the_end_of_an_epoch),
        cmocka_unit_test(resume_keeps_threads),
    };
    return cmocka_run_group_tests(tests, run_set_up, run_tear_down);
}
