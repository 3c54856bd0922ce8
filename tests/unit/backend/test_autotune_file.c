/* The file that keeps what was chosen: damaged, where it cannot be, shared; never an error. */
#include <sys/stat.h>
#include <sys/wait.h>

#include "support_autotune.h"
#include "support_folder.h"
#include "support_test.h"

/* Time an operation with the file as `text`, which must be skipped with a warning, and mended. */
static void expect_damage(const char *text)
{
    const char *path = fake_cache_file("damaged");
    char *mended;

    test_file_write(path, text, strlen(text));
    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast");
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 1);
    if (!strstr(fake_log, "is damaged") || !strstr(fake_log, path))
        fail_msg("\"%s\" is not called damaged: %s", text, fake_log);
    fake_close();
    mended = fake_read(path);
    assert_non_null(strstr(mended, "\tfake.fast\tfake.slow="));
    cvy_free(mended);
    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast");
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 0);
    assert_string_equal(fake_log, "");
    fake_close();
}

static void a_damaged_file_is_passed_over(void **state)
{
    char *good, *text, *place;

    fake_cache("damaged");
    fake_times(900, 300, -1);
    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast");
    fake_close();
    good = fake_read(fake_cache_file("damaged"));
    assert_non_null(strstr(good, "# convoy kernels 1\n# Fake CPU 7, none; convoy "));
    assert_non_null(strstr(good, "; FAKE=1\nconv2d k3x3"));
    expect_damage("");
    expect_damage("something else\n");
    text = strdup(good); /* another fake_device's, under our name */
    memcpy(strstr(text, "Fake"), "Fate", 4);
    expect_damage(text);
    strcpy(text, good);
    strstr(text, "kernels 1")[8] = '2'; /* of a later version */
    expect_damage(text);
    strcpy(text, good);
    text[strlen(text) - 1] = '\0'; /* cut */
    expect_damage(text);
    strcpy(text, good);
    *strrchr(text, '\t') = '\0';
    strcat(text, "\n"); /* a row less: readable, but no candidate of today's table is missing in a good file */
    test_file_write(fake_cache_file("damaged"), text, strlen(text));
    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast");
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 1);
    fake_close();
    strcpy(text, good);
    place = strstr(text, "fake.fast=");
    place[10] = '-'; /* the chosen one, of which the file says that it took -123 */
    expect_damage(text);
    strcpy(text, good);
    memcpy(strstr(text, "\tfake.fast\t"), "\tfake.none\t", 11); /* chosen, but not measured */
    expect_damage(text);
    free(text);
    cvy_free(good);
}

static void a_place_that_cannot_be_written_is_no_error(void **state)
{
    const char *path;
    char file[300];

    fake_times(900, 300, -1);
    path = fake_cache("blocked");
    test_file_write(path, "a file",
                    strlen("a file")); /* where the folder should be: works for root too, unlike permissions */
    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast");
    assert_non_null(strstr(fake_log, "are not kept"));
    assert_string_equal(fake_choose(4), "fake.fast");
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 1);
    fake_close();
    path = fake_cache("readonly");
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(chmod(path, 0555), 0);
    if (access(path, W_OK) != 0) { /* root may write anywhere */
        fake_open();
        assert_string_equal(fake_choose(4), "fake.fast");
        assert_non_null(strstr(fake_log, "are not kept"));
        fake_close();
    }
    assert_int_equal(chmod(path, 0777), 0);
    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast");
    fake_close();
    snprintf(file, sizeof file, "%s", fake_cache_file("readonly"));
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkdir(file, 0777), 0); /* a folder of the file's name can be neither read nor replaced */
    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast");
    assert_non_null(strstr(fake_log, "cannot be read"));
    assert_non_null(strstr(fake_log, "are not kept"));
    fake_close();
    /* No place at all. */
    assert_int_equal(unsetenv("CONVOY_CACHE_DIR"), 0);
    assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0);
    snprintf(file, sizeof file, "%s", getenv("HOME") ? getenv("HOME") : "");
    assert_int_equal(unsetenv("HOME"), 0);
    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast");
    assert_string_equal(fake_log, "");
    fake_close();
    assert_int_equal(setenv("HOME", fake_folder, 1), 0);
    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast");
    fake_close();
    fake_cache_file(".cache/convoy");
    snprintf(fake_log, sizeof fake_log, "%s/xdg", fake_folder);
    assert_int_equal(setenv("XDG_CACHE_HOME", fake_log, 1), 0);
    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast");
    fake_close();
    fake_cache_file("xdg/convoy");
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(setenv("HOME", file, 1), 0);
}

/* Processes that measure different operations at the same time: the file ends with all of them. */
static void processes_share_the_file(void **state)
{
    enum { PROCESSES = 4, EACH = 5 };
    pid_t children[PROCESSES];

    fake_cache("shared");
    fake_times(900, 300, -1);
    for (int p = 0; p < PROCESSES; p++) {
        children[p] = fork();
        assert_true(children[p] >= 0);
        if (children[p] > 0)
            continue;
        fake_open();
        for (int i = 0; i < EACH; i++) /* one plan each: one write each */
            (void)fake_choose(4 + p * EACH + i);
        _exit(fake_log[0] ? 1 : 0);
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        assert_int_equal(waitpid(children[p], &status, 0), children[p]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    fake_open();
    for (int i = 0; i < PROCESSES * EACH; i++)
        (void)fake_choose(4 + i);
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 0);
    fake_close();
}

/* Another process, in which this operation is timed or not: what the file says of it afterwards. */
static void choose_again(int32_t timed, const char *mark)
{
    char *kept;

    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast");
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), timed);
    assert_string_equal(fake_choose(4), "fake.fast"); /* once a process */
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), timed);
    fake_close();
    kept = fake_read(fake_cache_file("busy"));
    if (mark ? !strstr(kept, mark) : strstr(kept, "busy=") != NULL)
        fail_msg("not %s: %s", mark ? mark : "unmarked", kept);
    cvy_free(kept);
}

static void what_was_timed_under_load_is_timed_again(void **state)
{
    int first, second;
    char reason[160];
    char *kept;

    fake_cache("busy");
    fake_times(900, 300, -1);
    fake_busy = false;
    fake_open();
    (void)fake_choose(5); /* undisturbed: as many runs as it takes */
    first = fake.runs[FAST];
    fake_busy = true;
    assert_string_equal(fake_choose(4), "fake.fast");
    second = fake.runs[FAST] - first;
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 2);
    fake_close();
    assert_true(second > 2 * first && second <= 4 * first); /* more of them, and not without end */
    kept = fake_read(fake_cache_file("busy"));
    assert_non_null(strstr(kept, "busy=1\n"));
    cvy_free(kept);
    choose_again(1, "busy=2\n");
    fake_open(); /* a dry run takes what there is */
    assert_string_equal(fake_reason(fake_describe(4), false, reason), "fake.fast");
    assert_non_null(strstr(reason, "; under load"));
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 0);
    fake_close();
    /* The shorter of two times under load is nearer to the truth: the fast row is not 1,200 now. */
    fake_times(900, 1200, -1);
    choose_again(1, "busy=3\n");
    fake_times(900, 300, -1);
    choose_again(0, "busy=3\n"); /* often enough */
    /* A quiet moment settles it, as does somebody who says so. */
    fake_cache("busy");
    assert_int_equal(remove(fake_cache_file("busy")), 0);
    fake_open();
    (void)fake_choose(4);
    fake_close();
    fake_busy = false;
    choose_again(1, NULL);
    choose_again(0, NULL);
    assert_int_equal(remove(fake_cache_file("busy")), 0);
    fake_busy = true;
    assert_int_equal(setenv("CONVOY_KERNELS", "once", 1), 0);
    choose_again(1, NULL);
    choose_again(0, NULL);
    assert_int_equal(unsetenv("CONVOY_KERNELS"), 0);
    fake_busy = false;
}

RUN_TESTS(fake_set_up, fake_tear_down, TEST(a_damaged_file_is_passed_over),
          TEST(a_place_that_cannot_be_written_is_no_error), TEST(processes_share_the_file),
          TEST(what_was_timed_under_load_is_timed_again))
