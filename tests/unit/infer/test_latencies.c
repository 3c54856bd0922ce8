/* The times of an evaluation's batches: the first one, which warms up, is not among them. */
#include "eval/evaluate.h"
#include "infer/predictor.h"
#include "support_test.h"

static struct cvy_evaluation of(double *seconds, int64_t batches)
{
    const struct cvy_predictor predictor = {.batch_size = 8};
    const struct cvy_pass pass = {.latency = seconds, .batches = batches};
    struct cvy_evaluation result = {0};

    cvy_predictor_set_latencies(&predictor, &pass, &result);
    assert_int_equal(result.batch_size, 8);
    return result;
}

static void the_first_is_left_out(void **state)
{
    double many[] = {9, 4, 1, 3, 2}, two[] = {9, 1}, one[] = {9}, none[] = {9};
    struct cvy_evaluation found;

    found = of(many, 5);
    assert_true(fabs(found.latency_average - 2500) < 1e-9);
    assert_true(found.latency_p50 == 3000 && found.latency_p90 == 4000);
    assert_true(found.latency_p95 == 4000 && found.latency_p99 == 4000);
    found = of(two, 2);
    assert_true(found.latency_average == 1000 && found.latency_p50 == 1000 && found.latency_p99 == 1000);
    found = of(one, 1); /* better than nothing */
    assert_true(found.latency_average == 9000 && found.latency_p50 == 9000 && found.latency_p99 == 9000);
    found = of(none, 0);
    assert_true(found.latency_average == 0 && found.latency_p50 == 0 && found.latency_p99 == 0);
}

RUN_TESTS(NULL, NULL, TEST(the_first_is_left_out))
