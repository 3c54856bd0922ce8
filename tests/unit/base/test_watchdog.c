/* A process that hangs in a call ends with a sentence, and one that comes back in time does not. */
#include <sys/wait.h>
#include <time.h>

#include "base/log.h"
#include "base/system.h"
#include "base/watchdog.h"
#include "support_test.h"

static int out; /* where the child's sentences go */

static void write_log(void *context, enum cvy_log_level level, const char *text)
{
    dprintf(out, "%s\n", text);
    if (level == CVY_LOG_FATAL)
        _exit(CVY_FAILED);
}

/* Runs `work` in a process of its own: its exit status, and what was logged. */
static int in_child(void (*work)(void), char *said, size_t size)
{
    int ends[2], status;
    size_t used = 0;
    ssize_t got;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        out = ends[1];
        cvy_set_log_handler(write_log, NULL);
        work();
        _exit(42);
    }
    close(ends[1]);
    while (used + 1 < size && (got = read(ends[0], said + used, size - used - 1)) > 0)
        used += (size_t)got;
    said[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void sleep_for(double seconds)
{
    const double end = cvy_clock() + seconds;

    while (cvy_clock() < end)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void hang(void)
{
    struct cvy_watchdog *watchdog = cvy_watchdog_start(0.2, "the library does not come back");

    sleep_for(60);
    cvy_watchdog_stop(watchdog);
}

static void come_back(void)
{
    struct cvy_watchdog *watchdog = cvy_watchdog_start(60, "the library does not come back");

    sleep_for(0.01);
    cvy_watchdog_stop(watchdog);
    watchdog = cvy_watchdog_start(0.2, "never said");
    cvy_watchdog_stop(watchdog);
    sleep_for(0.4);
}

static void a_hang_ends(void **state)
{
    const double begin = cvy_clock();
    char said[256];

    assert_int_equal(in_child(hang, said, sizeof said), CVY_FAILED);
    assert_string_equal(said, "the library does not come back\n");
    assert_true(cvy_clock() - begin >= 0.2 && cvy_clock() - begin < 30);
}

static void in_time(void **state)
{
    char said[256];

    assert_int_equal(in_child(come_back, said, sizeof said), 42);
    assert_string_equal(said, "");
}

static void without_memory(void **state)
{
    cvy_memory_fail_after(1, false);
    assert_null(cvy_watchdog_start(60, "nobody watches"));
    cvy_memory_fail_after(0, false);
    cvy_watchdog_stop(NULL);
}

RUN_TESTS(NULL, NULL, TEST(a_hang_ends), TEST(in_time), TEST(without_memory))
