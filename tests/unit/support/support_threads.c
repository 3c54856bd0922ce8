#include "support_threads.h"
#include "support_test.h"

static int started; /* and not joined */

void start_thread(pthread_t *thread, void *(*work)(void *), void *argument)
{
    if (started++ == 0) /* not while others may read the environment */
        assert_int_equal(setenv("CMOCKA_TEST_ABORT", "1", 1), 0);
    assert_int_equal(pthread_create(thread, NULL, work, argument), 0);
}

void join_thread(pthread_t thread)
{
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (--started == 0)
        unsetenv("CMOCKA_TEST_ABORT");
}
