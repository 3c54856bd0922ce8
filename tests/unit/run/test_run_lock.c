/* The lock of a run directory: one run at a time, and none after its end, whatever the process has started meanwhile.
 */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/records/directory.h"
#include "support_folder.h"
#include "support_test.h"

static void one_at_a_time(void **state)
{
    struct cvy_run_lock first = {0}, second = {0};

    assert_int_equal(cvy_run_lock_take(&first, support_folder), CVY_OK);
    assert_true(first.held);
    assert_fails(cvy_run_lock_take(&second, support_folder), CVY_CANNOT_CREATE, "another process trains in \"");
    assert_false(second.held);
    cvy_run_lock_release(&second); /* of the one that was refused: the first still holds */
    assert_int_equal(cvy_run_lock_take(&second, support_folder), CVY_CANNOT_CREATE);
    cvy_run_lock_release(&first);
    assert_false(first.held);
    cvy_run_lock_release(&first); /* again: nothing, though its descriptor may be another file's by now */
    assert_int_equal(cvy_run_lock_take(&second, support_folder), CVY_OK);
    cvy_run_lock_release(&second);
    assert_int_equal(test_folder_entries(support_folder), 1); /* the file stays */
}

/* A child that the program has forked has the lock's file open, too. */
static void a_child_keeps_nothing(void **state)
{
    struct cvy_run_lock lock = {0};

    assert_int_equal(cvy_run_lock_take(&lock, support_folder), CVY_OK);
    const pid_t child = fork();
    if (child == 0) {
        for (;;)
            pause();
    }
    assert_true(child > 0);
    cvy_run_lock_release(&lock);
    const cvy_status status = cvy_run_lock_take(&lock, support_folder);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(status, CVY_OK);
    cvy_run_lock_release(&lock);
}

/* A run that ended without a word has none. */
static void a_killed_process_keeps_nothing(void **state)
{
    struct cvy_run_lock lock = {0};
    int ready[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        byte = cvy_run_lock_take(&lock, support_folder) == CVY_OK;
        if (write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(child > 0);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    const cvy_status while_it_ran = cvy_run_lock_take(&lock, support_folder);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(while_it_ran, CVY_CANNOT_CREATE);
    assert_int_equal(cvy_run_lock_take(&lock, support_folder), CVY_OK);
    cvy_run_lock_release(&lock);
    close(ready[0]);
    close(ready[1]);
}

static void what_cannot_be_locked(void **state)
{
    struct cvy_run_lock lock = {0};
    const char *missing = below("missing"), *link = below(".lock"), *target = below("elsewhere");

    assert_fails(cvy_run_lock_take(&lock, missing), CVY_CANNOT_CREATE, "missing/.lock");
    assert_int_equal(symlink(target, link), 0); /* of somebody else's: not followed */
    assert_fails(cvy_run_lock_take(&lock, support_folder), CVY_CANNOT_CREATE, ".lock");
    assert_false(lock.held);
    assert_int_equal(access(target, F_OK), -1);
    cvy_run_lock_release(&lock);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(one_at_a_time), IN_FOLDER(a_child_keeps_nothing),
          IN_FOLDER(a_killed_process_keeps_nothing), IN_FOLDER(what_cannot_be_locked))
