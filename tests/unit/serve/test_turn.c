/* Networks have the cores in the order in which they ask for them. */
#include <pthread.h>
#include <sched.h>

#include "serve/turn.h"
#include "support_test.h"

enum { OTHERS = 3 };

static struct cvy_turn turn;
static int order[OTHERS + 1], taken; /* guarded by the turn */

static void note(int who)
{
    order[taken++] = who;
}

static void *have_a_turn(void *who)
{
    cvy_turn_take(&turn);
    note(*(int *)who);
    cvy_turn_give(&turn);
    return NULL;
}

static void wait_until_asked(uint64_t turns)
{
    uint64_t asked;

    do {
        sched_yield();
        pthread_mutex_lock(&turn.mutex);
        asked = turn.asked;
        pthread_mutex_unlock(&turn.mutex);
    } while (asked < turns);
}

/* Who has it and wants it again at once has it after those who have waited. */
static void in_order(void **state)
{
    pthread_t threads[OTHERS];
    int numbers[OTHERS];

    (void)state;
    for (int round = 0; round < 100; round++) {
        cvy_turn_init(&turn);
        taken = 0;
        cvy_turn_take(&turn);
        for (int i = 0; i < OTHERS; i++) {
            numbers[i] = i;
            assert_int_equal(pthread_create(&threads[i], NULL, have_a_turn, &numbers[i]), 0);
            wait_until_asked((uint64_t)i + 2);
        }
        assert_int_equal(taken, 0);
        cvy_turn_give(&turn);
        cvy_turn_take(&turn);
        note(OTHERS);
        cvy_turn_give(&turn);
        for (int i = 0; i < OTHERS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i <= OTHERS; i++)
            assert_int_equal(order[i], i);
        cvy_turn_release(&turn);
    }
}

RUN_TESTS(NULL, NULL, TEST(in_order))
