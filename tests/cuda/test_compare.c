/* Plans that are fast and wrong, and plans that end all work on a GPU, over a real cuDNN and an emulated CUDA runtime;
 * see test_cudnn.c. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../emulated_cuda/capture.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"
#include "support_engine.h"

/* ---- two ways of writing results ---- */

static struct gpu_conv_problem small(enum gpu_conv_pass pass, enum cvy_dtype dtype)
{
    struct gpu_conv_problem problem = usual;

    problem.pass = pass;
    problem.dtype = dtype;
    problem.n = 3;
    problem.h = problem.w = problem.p = problem.q = 5;
    return problem;
}

static void put(enum cvy_dtype dtype, void *to, int64_t i, float value)
{
    gpu_put_any(dtype, to, i, value);
}

/* Of what is written: element `at` of the result `which` is multiplied by `factor`, or not written; all others by 1 +
 * `noise` in turn with 1 - `noise`. */
struct way {
    const struct gpu_conv_problem *problem;
    int which;
    int64_t at, every; /* every: also each one that many elements later */
    float factor, noise;
    bool unwritten, tail; /* tail: also all that follow */
};

static void write_result(const struct way *way, int which, enum cvy_dtype dtype, void *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float value = (float)(i % 17 - 8 + (i % 17 == 8)), sign = i % 2 ? 1.0F : -1.0F;
        const bool after = i > way->at && (way->tail || (way->every && i % way->every == 0));
        const bool here = way->which == which && (i == way->at || after);
        if (!here)
            put(dtype, to, i, value * (1 + sign * way->noise));
        else if (!way->unwritten)
            put(dtype, to, i, value * way->factor);
    }
}

static cvy_status write_results(struct gpu_device *which, const void *context, const struct gpu_conv_memory *memory)
{
    const struct way *way = context;
    const struct gpu_conv_problem *p = way->problem;

    (void)which;
    switch (p->pass) {
    case GPU_CONV_FORWARD:
        write_result(way, 0, p->dtype, memory->y, p->n * p->k * p->p * p->q);
        if (p->statistics != GPU_STATISTICS_NONE) {
            write_result(way, 1, CVY_F32, memory->mean, p->k);
            write_result(way, 2, CVY_F32, memory->variance, p->k);
        }
        break;
    case GPU_CONV_DATA:
        write_result(way, 0, p->dtype, memory->x, p->n * p->c * p->h * p->w);
        write_result(way, 1, CVY_F32, memory->dgamma, p->c);
        write_result(way, 2, CVY_F32, memory->dbeta, p->c);
        break;
    case GPU_CONV_WEIGHTS:
        write_result(way, 0, p->dtype, memory->w, p->k * p->c * p->r * p->s);
        break;
    }
    return CVY_OK;
}

static cvy_status compare(const struct gpu_conv_problem *problem, struct way candidate)
{
    const struct way expected = {.problem = problem, .which = -1};
    struct cudnn_timing timing;
    cvy_status status;

    candidate.problem = problem;
    must(cudnn_timing_open(&device, problem, 256, &timing));
    status = cudnn_compare(&device, problem, &timing, (struct cudnn_way){write_results, &expected},
                           (struct cudnn_way){write_results, &candidate});
    cudnn_timing_close(&timing);
    return status;
}

static void wrong_results_are_found(void **state)
{
    static const enum cvy_dtype types[] = {CVY_F16, CVY_BF16, CVY_F32};
    static const float rounding[] = {0x1p-11F, 0x1p-8F, 0x1p-11F};

    (void)state;
    assert_true(open_device(false));
    for (int pass = 0; pass < 3; pass++) {
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            struct gpu_conv_problem problem = small((enum gpu_conv_pass)pass, types[t]);
            const int results = pass == GPU_CONV_WEIGHTS ? 1 : 3;
            if (pass == GPU_CONV_FORWARD)
                problem.statistics = GPU_STATISTICS_FUSED;
            if (pass == GPU_CONV_DATA)
                problem.gradient_sums = GPU_PART_FUSED;
            must(compare(&problem, (struct way){.which = -1}));
            must(compare(&problem, (struct way){.which = -1, .noise = rounding[t]}));
            for (int r = 0; r < results; r++) {
                const bool one_may = pass == GPU_CONV_DATA; /* whose mask stands on an edge */
                const int64_t every = one_may ? 37 : 0;
                assert_int_equal(compare(&problem, (struct way){.which = r, .at = 3, .every = every, .factor = 2}),
                                 CVY_UNAVAILABLE);
                must_say("differs from that of separate kernels");
                if (!one_may) {
                    must_say("1 of ");
                    must_say("element 3 ");
                    must_say(": -10 instead of -5;");
                }
                assert_int_equal(
                    compare(&problem, (struct way){.which = r, .at = 5, .every = every, .unwritten = true}),
                    CVY_UNAVAILABLE);
            }
        }
    }
    close_device();
}

/* Sums of single signs of rounding: all elements a little off, in the whole more than roundings are. */
static void a_small_difference_everywhere_is_found(void **state)
{
    const struct gpu_conv_problem problem = small(GPU_CONV_WEIGHTS, CVY_F16);

    (void)state;
    assert_true(open_device(false));
    assert_int_equal(compare(&problem, (struct way){.which = -1, .noise = 0.008F}), CVY_UNAVAILABLE);
    close_device();
}

/* Where masks forgive single elements they forgive neither what was not written nor a difference everywhere. */
static void masks_forgive_no_more_than_edges(void **state)
{
    struct gpu_conv_problem problem = small(GPU_CONV_DATA, CVY_F16);

    (void)state;
    problem.c = 2048;
    problem.gradient_sums = GPU_PART_FUSED;
    assert_true(open_device(false));
    must(compare(&problem, (struct way){.which = -1, .noise = 0x1p-11F}));
    for (int r = 1; r < 3; r++) { /* dgamma, dbeta: the last block of channels, and one */
        assert_int_equal(compare(&problem, (struct way){.which = r, .at = 2016, .tail = true, .unwritten = true}),
                         CVY_UNAVAILABLE);
        must_say("32 of 2048 elements");
        assert_int_equal(compare(&problem, (struct way){.which = r, .at = 7, .unwritten = true}), CVY_UNAVAILABLE);
        must_say("1 of 2048 elements");
    }
    assert_int_equal(compare(&problem, (struct way){.which = 0, .at = 3, .unwritten = true}), CVY_UNAVAILABLE);
    /* A mask makes zero of an element or leaves it, and changes a sum by a few elements; nothing else is explained. */
    assert_int_equal(compare(&problem, (struct way){.which = 0, .at = 3, .factor = 2}), CVY_UNAVAILABLE);
    must_say("1 of ");
    for (int r = 1; r < 3; r++) {
        must(compare(&problem, (struct way){.which = r, .at = 7, .factor = 4}));
        assert_int_equal(compare(&problem, (struct way){.which = r, .at = 7, .factor = 1000}), CVY_UNAVAILABLE);
        must_say("1 of 2048 elements");
    }
    assert_int_equal(compare(&problem, (struct way){.which = -1, .noise = 0.015F}), CVY_UNAVAILABLE);
    must_say("the gradient of x differs");
    close_device();
}

static void a_mask_on_its_edge_is_no_error(void **state)
{
    struct gpu_conv_problem problem = small(GPU_CONV_DATA, CVY_F16);

    (void)state;
    problem.gradient_sums = GPU_PART_FUSED;
    assert_true(open_device(false));
    must(compare(&problem, (struct way){.which = 0, .at = 3, .factor = 0}));
    close_device();
}

/* ---- plans ---- */

enum { PIXELS = 25, CHANNELS = 16 };
static int wrong_until; /* fused plans before this one sum wrongly */

/* y counts its elements; its sums are right, or half. */
static cudnnStatus_t convolve(int plan)
{
    uint16_t *y = pointer_of(CUDNN_Y);
    float *sums = pointer_of(CUDNN_SUMS), *squares = pointer_of(CUDNN_SQUARES);
    const float factor = plan < wrong_until ? 0.5F : 1.0F;

    for (int i = 0; i < PIXELS * CHANNELS; i++)
        y[i] = gpu_to_f16((float)(i % 29));
    for (int k = 0; sums && k < CHANNELS; k++) {
        sums[k] = squares[k] = 0;
        for (int i = 0; i < PIXELS; i++) {
            const float value = (float)((i * CHANNELS + k) % 29);
            sums[k] += factor * value;
            squares[k] += value * value;
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

static struct gpu_conv_problem summing(void)
{
    struct gpu_conv_problem problem = usual;

    problem.n = 1;
    problem.h = problem.w = problem.p = problem.q = 5;
    problem.k = problem.c = CHANNELS;
    problem.statistics = GPU_STATISTICS_FUSED;
    return problem;
}

/* Where the separate kernels are known, plans are numbered from 0 by the fused ones. */
static void time_separate(void)
{
    struct gpu_conv_problem problem = summing();
    struct gpu_conv *conv;

    problem.statistics = GPU_STATISTICS_SEPARATE;
    must(gpu_conv_open(&device, &problem, &conv));
    gpu_conv_close(conv);
    memset(&ran, 0, sizeof ran);
    ran.work = convolve;
}

static void a_fast_plan_that_is_wrong_is_left_out(void **state)
{
    const struct gpu_conv_problem problem = summing();
    struct gpu_conv *conv;
    int plans;

    (void)state;
    wrong_until = 0;
    open_comparing(convolve);
    must(gpu_conv_open(&device, &problem, &conv));
    expect_text(conv, ", statistics fused", "fastest of ");
    gpu_conv_close(conv);
    assert_string_equal(warnings, "");
    close_comparing();
    assert_int_equal(remove_folder(NULL), 0);
    assert_int_equal(make_folder(NULL), 0);

    open_comparing(convolve);
    time_separate();
    wrong_until = 2;
    must(gpu_conv_open(&device, &problem, &conv));
    plans = ran.plan_count;
    assert_true(plans > 3); /* the separate one is among them again */
    expect_text(conv, ", statistics fused", "fastest of ");
    assert_non_null(
        strstr(warnings, " is left out: the mean differs from that of separate kernels: 16 of 16 elements"));
    gpu_conv_close(conv);
    close_comparing();

    /* It is remembered, and so is what was found instead. */
    warnings[0] = '\0';
    open_comparing(convolve);
    must(gpu_conv_open(&device, &problem, &conv));
    expect_text(conv, ", statistics fused", "in an earlier run");
    assert_int_equal(ran.calls, 0);
    gpu_conv_close(conv);
    close_comparing();
    assert_string_equal(warnings, "");
}

static void a_problem_without_a_right_plan_is_refused(void **state)
{
    const struct gpu_conv_problem problem = summing();
    struct gpu_conv *conv;

    (void)state;
    open_comparing(convolve);
    time_separate();
    wrong_until = MAX_PLANS;
    assert_int_equal(gpu_conv_open(&device, &problem, &conv), CVY_UNAVAILABLE);
    must_say("runs as it must");
    close_comparing();

    warnings[0] = '\0';
    open_comparing(convolve);
    assert_int_equal(gpu_conv_open(&device, &problem, &conv), CVY_UNAVAILABLE);
    must_say("in an earlier run");
    assert_int_equal(ran.calls, 0);
    close_comparing();
    assert_string_equal(warnings, "");
}

/* What was taken for its speed alone is not believed by a run that compares. */
static void a_plan_that_was_not_compared_is_compared_later(void **state)
{
    const struct gpu_conv_problem problem = summing();
    struct gpu_conv *conv;

    (void)state;
    open_comparing(convolve);
    device.compares = false;
    wrong_until = MAX_PLANS;
    must(gpu_conv_open(&device, &problem, &conv));
    gpu_conv_close(conv);
    close_comparing();
    assert_string_equal(warnings, "");

    open_comparing(convolve);
    device.compares = false;
    must(gpu_conv_open(&device, &problem, &conv));
    expect_text(conv, ", statistics fused", "in an earlier run");
    gpu_conv_close(conv);
    close_comparing();

    open_comparing(convolve);
    time_separate();
    wrong_until = 2;
    must(gpu_conv_open(&device, &problem, &conv));
    expect_text(conv, ", statistics fused", "fastest of ");
    assert_non_null(strstr(warnings, " is left out: the mean differs from that of separate kernels"));
    gpu_conv_close(conv);
    close_comparing();

    warnings[0] = '\0';
    open_comparing(convolve); /* now it is known to be right */
    must(gpu_conv_open(&device, &problem, &conv));
    expect_text(conv, ", statistics fused", "in an earlier run");
    assert_int_equal(ran.calls, 0);
    gpu_conv_close(conv);
    close_comparing();
    assert_string_equal(warnings, "");
}

/* ---- faults ---- */

static cudnnStatus_t break_context(int plan)
{
    if (plan < 1)
        return CUDNN_STATUS_SUCCESS;
    emulated_broken = true;
    return CUDNN_STATUS_EXECUTION_FAILED;
}

static void a_plan_that_breaks_the_context_is_left_out(void **state)
{
    struct gpu_conv *conv;
    (void)state;
    assert_true(open_device(true));
    ran.work = break_context;
    assert_int_equal(gpu_conv_open(&device, &usual, &conv), CVY_FAILED);
    must_say("ended all work on the GPU; start again: it will be left out");
    emulated_broken = false;
    close_device();

    warnings[0] = '\0';
    assert_true(open_device(true));
    assert_int_equal(device.libraries->convolutions->faults.refused, 1);
    ran.work = NULL;
    must(gpu_conv_open(&device, &usual, &conv));
    expect_text(conv, "cudnn engine", "fastest of 16");
    gpu_conv_close(conv);
    close_device();
    assert_string_equal(warnings, ""); /* told once, by what failed */
}

/* A process that ends with the first plan that it tries. */
static cudnnStatus_t end_process(int plan)
{
    (void)plan;
    _exit(9);
}

static void run_and_end(void)
{
    const pid_t child = fork();
    struct gpu_conv *conv;
    int status;

    if (child == 0) {
        if (open_device(true)) {
            ran.work = end_process;
            _exit((int)gpu_conv_open(&device, &usual, &conv));
        }
        _exit(1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

/* What was learnt of one plan outlives the process that ends with the next. One end may have come from outside. */
static void plans_that_end_processes_are_left_out_one_by_one(void **state)
{
    enum { PLANS = 3 };

    (void)state;
    for (int plan = 0; plan < PLANS; plan++) {
        run_and_end();
        warnings[0] = '\0';
        assert_true(open_device(true));
        assert_non_null(strstr(warnings, "a process ended while it tried a plan of cuDNN, which is left out if "));
        assert_int_equal(device.libraries->convolutions->faults.refused, plan);
        close_device();
        run_and_end();
    }
    for (int i = 0; i < 2 * PLANS; i++) /* with no orderly end in between */
        run_and_end();
    warnings[0] = '\0';
    assert_true(open_device(true));
    assert_non_null(strstr(warnings, "again a process ended while it tried a plan of cuDNN, which is left out from "));
    assert_int_equal(device.libraries->convolutions->faults.refused, 2 * PLANS);
    close_device();
    warnings[0] = '\0';
    assert_true(open_device(true)); /* told once */
    assert_string_equal(warnings, "");
    close_device();
}

/* What was found wrong is known to the next process, even where this one does not end in an orderly way. */
static void a_refusal_is_written_at_once(void **state)
{
    pid_t child;
    int status;

    (void)state;
    child = fork();
    if (child == 0) {
        if (open_device(true))
            (void)cudnn_faults_refuse(&device.libraries->convolutions->faults, "refused x engine 1 form 0 0");
        _exit(9);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    assert_true(open_device(true));
    assert_true(cudnn_faults_refuses(&device.libraries->convolutions->faults, "refused x engine 1 form 0 0"));
    close_device();
}

/* Renames the file of what is being tried as if process 1 of another system of the same name had written it, or one
 * that ended. */
static void name_file_of(long process)
{
    DIR *entries = opendir(folder);
    int renamed = 0;

    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries));) {
        char from[600], to[700];
        if (!strstr(entry->d_name, "-trying-"))
            continue;
        snprintf(from, sizeof from, "%s/%s", folder, entry->d_name);
        snprintf(to, sizeof to, "%.*s-%ld.1", (int)(strrchr(from, '-') - from), from, process);
        assert_int_equal(rename(from, to), 0);
        renamed++;
    }
    closedir(entries);
    assert_int_equal(renamed, 1);
}

/* What a process that still runs is trying is its own affair, whatever its number means here; after it ended, it is
 * not. */
static void what_others_try_is_theirs(void **state)
{
    int ready[2];
    char byte;
    pid_t child, gone;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    gone = fork();
    if (gone == 0)
        _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    child = fork();
    if (child == 0) {
        if (open_device(true))
            cudnn_faults_try(&device.libraries->convolutions->faults, "refused x engine 1 form 0 0");
        if (write(ready[1], "", 1) == 1)
            pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_true(open_device(true));
    close_device();
    name_file_of((long)gone);
    assert_true(open_device(true));
    assert_string_equal(warnings, "");
    close_device();
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    name_file_of((long)getpid()); /* numbers come again */
    assert_true(open_device(true));
    assert_non_null(strstr(warnings, "a process ended while it tried"));
    close_device();
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_results_are_found),
        cmocka_unit_test(a_small_difference_everywhere_is_found),
        cmocka_unit_test(masks_forgive_no_more_than_edges),
        cmocka_unit_test(a_mask_on_its_edge_is_no_error),
        cmocka_unit_test_setup_teardown(a_fast_plan_that_is_wrong_is_left_out, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_problem_without_a_right_plan_is_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_plan_that_was_not_compared_is_compared_later, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_plan_that_breaks_the_context_is_left_out, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(plans_that_end_processes_are_left_out_one_by_one, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_refusal_is_written_at_once, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_others_try_is_theirs, make_folder, remove_folder),
    };

    if (!cudnn_is_there())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
