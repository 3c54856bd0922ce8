/* Accuracy and cross-entropy. */
#include "eval/metrics.h"
#include "support_test.h"

static void uniform_logits(void **state)
{
    float logits[1000], probabilities[1000];

    for (int i = 0; i < 1000; i++)
        logits[i] = 3.5f;
    /* ln 1000; doubles carry sixteen digits, the literal ten. */
    assert_true(fabs(cvy_cross_entropy(logits, 1000, 17) - 6.907755279) < 1e-9);
    cvy_softmax_row(logits, 1000, probabilities);
    assert_true(probabilities[999] == 0.001f);
}

/* Uniform logits cost the same however the labels are smoothed; others by the formula. */
static void smoothed_labels(void **state)
{
    const float three[] = {0.0f, 1.0f, 3.0f};
    const double total = log(1 + exp(1.0) + exp(3.0));
    float logits[1000];
    struct cvy_metrics metrics = {.top_k = 1, .smoothing = 0.1};

    for (int i = 0; i < 1000; i++)
        logits[i] = -2;
    assert_true(fabs(cvy_smoothed_cross_entropy(logits, 1000, 3, 0.1) - 6.907755279) < 1e-9);
    assert_true(cvy_smoothed_cross_entropy(three, 3, 1, 0) == cvy_cross_entropy(three, 3, 1));
    assert_true(cvy_metrics_add(&metrics, three, 3, 1).loss == cvy_cross_entropy(three, 3, 1));
    assert_true(fabs(cvy_metrics_loss(&metrics) - (0.9 * (total - 1) + 0.1 * (total - 4.0 / 3))) < 1e-15);
}

static void large_logits_do_not_overflow(void **state)
{
    const float logits[] = {1000.0f, 0.0f, -1000.0f};

    assert_true(cvy_cross_entropy(logits, 3, 0) == 0.0);
    assert_true(cvy_cross_entropy(logits, 3, 1) == 1000.0);
    assert_true(cvy_cross_entropy(logits, 3, 2) == 2000.0);
}

static void ranks(void **state)
{
    const float logits[] = {1, 3, 3, 2, NAN};

    assert_int_equal(cvy_label_rank(logits, 5, 1), 0);
    assert_int_equal(cvy_label_rank(logits, 5, 2), 1); /* the first among equals ranks first */
    assert_int_equal(cvy_label_rank(logits, 5, 3), 2);
    assert_int_equal(cvy_label_rank(logits, 5, 0), 3);
    assert_int_equal(cvy_label_rank(logits, 5, 4), 4); /* NaN is never a hit */
}

static void counting(void **state)
{
    struct cvy_metrics metrics = {.top_k = 2};
    const float a[] = {3, 2, 1}, b[] = {1, 2, 3};

    assert_true(cvy_metrics_top1(&metrics) == 0 && cvy_metrics_loss(&metrics) == 0);
    cvy_metrics_add(&metrics, a, 3, 0);
    cvy_metrics_add(&metrics, a, 3, 1);
    cvy_metrics_add(&metrics, b, 3, 0);
    cvy_metrics_add(&metrics, b, 3, 2);
    assert_true(cvy_metrics_top1(&metrics) == 50.0);
    assert_true(cvy_metrics_topk(&metrics) == 75.0);
    assert_int_equal(metrics.images, 4);
}

RUN_TESTS(NULL, NULL, TEST(uniform_logits), TEST(smoothed_labels), TEST(large_logits_do_not_overflow), TEST(ranks),
          TEST(counting))
