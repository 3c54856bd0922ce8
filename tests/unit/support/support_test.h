/* What every unit test includes: cmocka with what it needs, what most tests take from the C library and from base, and
 * the program around the tests of a file. */
#ifndef SUPPORT_TEST_H
#define SUPPORT_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/memory.h"

/* Every test and fixture has the state as its parameter, and few of them need it. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* A call has this status, and the sentence that it left has these words in it. */
#define assert_fails(call, status, words)                                                                              \
    do {                                                                                                               \
        assert_int_equal(call, status);                                                                                \
        assert_error(words);                                                                                           \
    } while (0)
#define assert_error(words)                                                                                            \
    do {                                                                                                               \
        if (!strstr(cvy_error(), words))                                                                               \
            fail_msg("\"%s\" does not speak of \"%s\"", cvy_error(), words);                                           \
    } while (0)

/* The status of a call in which the n-th allocation fails, and with `all` every one after it. */
#define WITH_FAILURE(n, all, call) (cvy_memory_fail_after(n, all), end_of_failures(call))
static inline cvy_status end_of_failures(cvy_status status)
{
    cvy_memory_fail_after(0, false);
    return status;
}

/* The program of a file: its tests in this order, between set-up and tear-down of them all (or NULL). */
#define RUN_TESTS(group_set_up, group_tear_down, ...)                                                                  \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                                                               \
                                                                                                                       \
        return cmocka_run_group_tests(tests, group_set_up, group_tear_down);                                           \
    }
#define TEST(test) cmocka_unit_test(test)
/* Between the file's own set_up and tear_down. */
#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
