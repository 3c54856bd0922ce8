/* Which rank is the slowest, by how much and why. */
#include "run/records/rank_times.h"
#include "support_test.h"

static void slowest(void **state)
{
    const struct cvy_rank_times odd[] = {{4, 0, 6}, {4.5, 0.5, 5}, {5, 0, 5}, {9, 1, 0}, {5, 0.5, 4.5}};
    const struct cvy_rank_times waits[] = {{4, 5, 0}, {5, 1, 3}, {4, 0, 5}, {4, 2, 3}};
    const struct cvy_rank_times two[] = {{2, 1, 0}, {1, 1, 1}}, same[] = {{1, 1, 1}, {1, 1, 1}}, none[2] = {{0, 0, 0}};
    struct cvy_slowest found;

    found = cvy_rank_times_slowest(odd, 5); /* themselves 4, 5, 5, 10, 5.5: the median is 5 */
    assert_int_equal(found.rank, 3);
    assert_true(fabs(found.excess - 1) < 1e-12 && !found.data);
    found = cvy_rank_times_slowest(waits, 4); /* 9, 6, 4, 6; of the data alone 5 against 1.5 */
    assert_int_equal(found.rank, 0);
    assert_true(fabs(found.excess - 0.5) < 1e-12 && found.data);
    found = cvy_rank_times_slowest(two, 2);
    assert_int_equal(found.rank, 0);
    assert_true(fabs(found.excess - 0.2) < 1e-12 && !found.data);
    found = cvy_rank_times_slowest(same, 2);
    assert_true(found.rank == 0 && found.excess == 0);
    found = cvy_rank_times_slowest(none, 2); /* no step was done */
    assert_true(found.rank == 0 && found.excess == 0);
}

static void sentence(void **state)
{
    static const char *const names[] = {"rank 0 on host \"a\"", "rank 1 on host \"b\"", "rank 2 on host \"c\""};
    const struct cvy_rank_times times[] = {{5.1, 0, 1.3}, {6.3, 0.2, 0.1}, {5.6, 0.1, 0.8}};
    char text[320], small[20];

    cvy_rank_times_text(times, 3, names, text, sizeof text);
    assert_string_equal(text, "ranks: computing 5.1 to 6.3 s, waiting for data 0.0 to 0.2 s, for others 0.1 to 1.3 s; "
                              "slowest: rank 1 on host \"b\": 14 % above the median, computing");
    cvy_rank_times_text(times, 3, names, small, sizeof small);
    assert_int_equal(strlen(small), sizeof small - 1);
}

static void waiting_of_one(void **state)
{
    struct cvy_comm comm;
    struct cvy_rank_times mine = {1, 2, 3}, times;

    cvy_comm_single(&comm);
    const struct cvy_sum_times none = cvy_sum_times(&comm, NULL);
    assert_true(none.waited == 0 && none.moved == 0 && none.exposed == 0);
    comm.seconds = 5;
    comm.late = 2;
    const struct cvy_sum_times some = cvy_sum_times(&comm, NULL);
    assert_true(some.waited == 5 && some.moved == 3 && some.exposed == 3);
    assert_int_equal(cvy_rank_times_all_gather(&comm, &mine, &times), CVY_OK);
    assert_memory_equal(&times, &mine, sizeof mine);
}

RUN_TESTS(NULL, NULL, TEST(slowest), TEST(sentence), TEST(waiting_of_one))
