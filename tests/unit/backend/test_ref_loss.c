/* The reference kernels of the network's end, linear layer, softmax and loss, against results worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "support_executor.h"

/* A few roundings of numbers below 10 in double. */
static const double rounding = 1e-14;

/* ---- linear, softmax, loss ---- */

static void linear_passes(void **state)
{
    const double x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, 0, -1, 2, 1, 0}, bias[] = {10, 20}, dy[] = {1, 2, 3, 4};
    struct cvy_op_desc desc = executor_desc(CVY_OP_LINEAR, 3, 1);
    double y[4], dx[6], dw[6], dbias[2];

    desc.in[0] = desc.in[1] = executor_tensor(CVY_F64, cvy_shape2(2, 3));
    desc.in[2] = executor_tensor(CVY_F64, cvy_shape1(2));
    desc.out[0] = executor_tensor(CVY_F64, cvy_shape2(2, 2));
    executor_run_checked(*state, &desc, (const void *[]){x, w, bias}, (void *[]){y});
    executor_same(y, (const double[]){8, 24, 8, 33}, 4, 0);
    desc = executor_desc(CVY_OP_LINEAR_BWD_DATA, 2, 1);
    desc.in[0] = desc.out[0] = executor_tensor(CVY_F64, cvy_shape2(2, 3));
    desc.in[1] = executor_tensor(CVY_F64, cvy_shape2(2, 2));
    executor_run_checked(*state, &desc, (const void *[]){w, dy}, (void *[]){dx});
    /* (1,2) and (3,4) times w */
    executor_same(dx, (const double[]){5, 2, -1, 11, 4, -3}, 6, 0);
    desc = executor_desc(CVY_OP_LINEAR_BWD_WEIGHTS, 2, 2);
    desc.in[0] = executor_tensor(CVY_F64, cvy_shape2(2, 3));
    desc.in[1] = executor_tensor(CVY_F64, cvy_shape2(2, 2));
    desc.out[0] = executor_tensor(CVY_F64, cvy_shape2(2, 3));
    desc.out[1] = executor_tensor(CVY_F64, cvy_shape1(2));
    executor_run_checked(*state, &desc, (const void *[]){x, dy}, (void *[]){dw, dbias});
    executor_same(dw, (const double[]){1 + 12, 2 + 15, 3 + 18, 2 + 16, 4 + 20, 6 + 24}, 6, 0);
    executor_same(dbias, (const double[]){4, 6}, 2, 0);
}

static struct cvy_op_desc loss_desc(int64_t n, int64_t k, enum cvy_dtype dtype, bool labels, float smoothing)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_SOFTMAX_CROSS_ENTROPY, 2, 2);

    desc.attr.loss.smoothing = smoothing;
    desc.in[0] = desc.in[1] = desc.out[1] = executor_tensor(dtype, cvy_shape2(n, k));
    if (labels)
        desc.in[1] = executor_tensor(CVY_I32, cvy_shape1(n));
    desc.out[0] = executor_tensor(dtype, cvy_shape0());
    return desc;
}

static void uniform_logits_cost_the_logarithm_of_the_classes(void **state)
{
    enum { N = 2, K = 1000 };
    static double logits[N * K], probabilities[N * K];
    static float logits32[N * K], probabilities32[N * K];
    const int32_t labels[N] = {0, 999};
    const float smoothing[] = {0, 0.1F};

    for (int i = 0; i < N * K; i++)
        logits32[i] = (float)(logits[i] = i < K ? 0 : 88); /* exp(88) is near the largest float */
    for (int s = 0; s < 2; s++) {
        struct cvy_op_desc desc = loss_desc(N, K, CVY_F64, true, smoothing[s]);
        double loss;
        float loss32;
        executor_run_checked(*state, &desc, (const void *[]){logits, labels}, (void *[]){&loss, probabilities});
        /* ln 1000 to ten digits; a thousand terms of 0.0069 add 1e-13 */
        assert_true(fabs(loss - 6.907755278982137) < 1e-12);
        assert_true(fabs(probabilities[0] - 0.001) < 1e-15);
        desc = loss_desc(N, K, CVY_F32, true, smoothing[s]);
        executor_run_checked(*state, &desc, (const void *[]){logits32, labels}, (void *[]){&loss32, probabilities32});
        assert_true(fabsf(loss32 - 6.907755279F) < 4.8e-7F); /* half a unit in the last place, 2^-22, rounded up */
    }
}

static void loss_of_known_targets(void **state)
{
    const double logits[] = {0, log(3), 0, 0}, soft[] = {0.5, 0.25, 0, 2}; /* p = 1/4 3/4, 1/2 1/2 */
    const int32_t labels[] = {1, 0};
    const double dloss = 3;
    double loss, p[4], dlogits[4];
    struct cvy_op_desc desc = loss_desc(2, 2, CVY_F64, true, 0.5F),
                       back = executor_desc(CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD, 3, 1);

    executor_run_checked(*state, &desc, (const void *[]){logits, labels}, (void *[]){&loss, p});
    executor_same(p, (const double[]){0.25, 0.75, 0.5, 0.5}, 4, rounding);
    /* q = (1/4, 3/4), (3/4, 1/4) */
    executor_same(&loss, (const double[]){-(0.25 * log(0.25) + 0.75 * log(0.75) + log(0.5)) / 2}, 1, rounding);
    back.attr = desc.attr;
    back.in[0] = back.out[0] = desc.out[1];
    back.in[1] = desc.in[1];
    back.in[2] = desc.out[0];
    executor_run_checked(*state, &back, (const void *[]){p, labels, &dloss}, (void *[]){dlogits});
    executor_same(dlogits, (const double[]){0, 0, 3 * -0.25 / 2, 3 * 0.25 / 2}, 4, rounding);

    desc = loss_desc(2, 2, CVY_F64, false, 0);
    executor_run_checked(*state, &desc, (const void *[]){logits, soft}, (void *[]){&loss, p});
    executor_same(&loss, (const double[]){-(0.5 * log(0.25) + 0.25 * log(0.75) + 2 * log(0.5)) / 2}, 1, rounding);
    back.attr = desc.attr;
    back.in[1] = desc.in[1];
    executor_run_checked(*state, &back, (const void *[]){p, soft, &dloss}, (void *[]){dlogits});
    executor_same(
        dlogits,
        (const double[]){1.5 * (0.25 * 0.75 - 0.5), 1.5 * (0.75 * 0.75 - 0.25), 1.5 * (0.5 * 2), 1.5 * (0.5 * 2 - 2)},
        4, rounding);
}

/* Loss and its gradient for logits (N,K) and what stands after them, in double. */
struct mixed_loss {
    const double *logits;
    const void *target;
    bool labels;
    const int32_t *partner;
    const double *coefficient, *weights;
    float smoothing;
};

static double run_mixed(void *device, int64_t n, int64_t k, const struct mixed_loss *m, double *dlogits)
{
    struct cvy_op_desc desc = loss_desc(n, k, CVY_F64, m->labels, m->smoothing),
                       back = executor_desc(CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD, 6, 1);
    double loss, p[16];
    const double dloss = 2;

    assert_true(n * k <= 16);
    desc.inputs = 5;
    if (m->partner) {
        desc.in[2] = executor_tensor(CVY_I32, cvy_shape1(n));
        desc.in[3] = executor_tensor(CVY_F64, cvy_shape1(n));
    }
    if (m->weights)
        desc.in[4] = executor_tensor(CVY_F64, cvy_shape1(k));
    executor_run_checked(device, &desc, (const void *[]){m->logits, m->target, m->partner, m->coefficient, m->weights},
                         (void *[]){&loss, p});
    back.attr = desc.attr;
    back.in[0] = back.out[0] = desc.out[1];
    back.in[1] = desc.in[1];
    back.in[2] = desc.out[0];
    for (int i = 2; i < 5; i++)
        back.in[i + 1] = desc.in[i];
    executor_run_checked(device, &back, (const void *[]){p, m->target, &dloss, m->partner, m->coefficient, m->weights},
                         (void *[]){dlogits});
    return loss;
}

/* p = (1/4, 3/4), (1/2, 1/2); labels 1, 0. */
static const double two_logits[] = {0, 1.0986122886681098, 0, 0};
static const int32_t two_labels[] = {1, 0}, swapped[] = {1, 0}, itself[] = {0, 1};

static void mixed_targets(void **state)
{
    const double shares[] = {0.25, 0.75}, ones[] = {1, 1};
    const struct mixed_loss mixed = {two_logits, two_labels, true, swapped, shares, NULL, 0};
    const struct mixed_loss plain = {two_logits, two_labels, true, NULL, NULL, NULL, 0.1F};
    struct mixed_loss same_as_plain = plain;
    double loss, dlogits[4], wanted[4];

    /* t = (3/4, 1/4), (3/4, 1/4) */
    loss = run_mixed(*state, 2, 2, &mixed, dlogits);
    executor_same(&loss, (const double[]){-(0.75 * log(0.25) + 0.25 * log(0.75) + log(0.5)) / 2}, 1, rounding);
    executor_same(dlogits, (const double[]){0.25 - 0.75, 0.75 - 0.25, 0.5 - 0.75, 0.5 - 0.25}, 4, rounding);

    /* A coefficient of 1 is the smoothed loss, whoever the partner is; so is being one's own partner. */
    loss = run_mixed(*state, 2, 2, &plain, wanted);
    same_as_plain.partner = swapped;
    same_as_plain.coefficient = ones;
    assert_true(run_mixed(*state, 2, 2, &same_as_plain, dlogits) == loss);
    executor_same(dlogits, wanted, 4, 0);
    same_as_plain.partner = itself;
    same_as_plain.coefficient = shares;
    assert_true(fabs(run_mixed(*state, 2, 2, &same_as_plain, dlogits) - loss) < rounding);
    executor_same(dlogits, wanted, 4, rounding);
}

static void weighted_classes(void **state)
{
    const double weights[] = {2, 5}, equal[] = {3, 3}, shares[] = {0.25, 0.5};
    struct mixed_loss m = {two_logits, two_labels, true, NULL, NULL, weights, 0};
    double loss, dlogits[4], plain_gradient[4], plain;

    /* The mean weighted by the labels: (5 * -log 3/4 + 2 * -log 1/2) / 7. */
    loss = run_mixed(*state, 2, 2, &m, dlogits);
    executor_same(&loss, (const double[]){-(5 * log(0.75) + 2 * log(0.5)) / 7}, 1, rounding);
    executor_same(dlogits,
                  (const double[]){2 * 5 * 0.25 / 7, 2 * 5 * (0.75 - 1) / 7, 2 * 2 * (0.5 - 1) / 7, 2 * 2 * 0.5 / 7}, 4,
                  rounding);

    /* Smoothing spreads what is already weighted: 0.5 / 2 * sum_k w_k * -log p_k of both, over the same 7. */
    m.smoothing = 0.5F;
    loss = run_mixed(*state, 2, 2, &m, dlogits);
    executor_same(&loss,
                  (const double[]){-(0.5 * (5 * log(0.75) + 2 * log(0.5)) +
                                     0.25 * (2 * log(0.25) + 5 * log(0.75) + 2 * log(0.5) + 5 * log(0.5))) /
                                   7},
                  1, rounding);

    /* Mixed labels: t = (3/4, 1/4), (1/2, 1/2); the divisor is 2 * 5/4 + 5 * 3/4 = 25/4. */
    m.smoothing = 0;
    m.partner = swapped;
    m.coefficient = shares;
    loss = run_mixed(*state, 2, 2, &m, dlogits);
    executor_same(&loss, (const double[]){-(2 * 0.75 * log(0.25) + 5 * 0.25 * log(0.75) + 3.5 * log(0.5)) / 6.25}, 1,
                  rounding);

    /* Equal weights change nothing. */
    m.weights = NULL;
    plain = run_mixed(*state, 2, 2, &m, plain_gradient);
    m.weights = equal;
    assert_true(fabs(run_mixed(*state, 2, 2, &m, dlogits) - plain) < rounding);
    executor_same(dlogits, plain_gradient, 4, rounding);
}

/* PyTorch's divisor for distributions is the number of images, whatever the weights. */
static void weighted_distributions(void **state)
{
    const double soft[] = {0.5, 0.5, 1, 0}, weights[] = {2, 5};
    const struct mixed_loss m = {two_logits, soft, false, NULL, NULL, weights, 0};
    double dlogits[4], loss = run_mixed(*state, 2, 2, &m, dlogits);

    executor_same(&loss, (const double[]){-(1 * log(0.25) + 2.5 * log(0.75) + 2 * log(0.5)) / 2}, 1, rounding);
    executor_same(dlogits, (const double[]){0.25 * 3.5 - 1, 0.75 * 3.5 - 2.5, 0.5 * 2 - 2, 0.5 * 2}, 4, rounding);
}

/* One of a thousand classes, smoothing 0.1: 0.9001 where the label is and 0.0001 elsewhere, seen in the gradient at
 * p = 1/1000. */
static void smoothed_target_values(void **state)
{
    enum { K = 1000 };
    static double p[K], dlogits[K];
    const int32_t label = 17;
    const double dloss = 1;
    struct cvy_op_desc desc = executor_desc(CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD, 3, 1);

    for (int k = 0; k < K; k++)
        p[k] = 0.001;
    desc.attr.loss.smoothing = 0.1F;
    desc.in[0] = desc.out[0] = executor_tensor(CVY_F64, cvy_shape2(1, K));
    desc.in[1] = executor_tensor(CVY_I32, cvy_shape1(1));
    desc.in[2] = executor_tensor(CVY_F64, cvy_shape0());
    executor_run_checked(*state, &desc, (const void *[]){p, &label, &dloss}, (void *[]){dlogits});
    for (int k = 0; k < K; k++) /* 0.1f is 1.5e-9 more than 0.1 */
        assert_true(fabs(0.001 - dlogits[k] - (k == label ? 0.9001 : 0.0001)) < 2e-9);
}

static void wrong_partners_are_refused(void **state)
{
    const double shares[] = {0.5, 0.5};
    const int32_t outside[] = {0, 2}, labels[] = {0, 1};
    struct cvy_op_desc desc = loss_desc(2, 2, CVY_F64, true, 0);
    double loss, p[4];

    desc.inputs = 4;
    desc.in[2] = executor_tensor(CVY_I32, cvy_shape1(2));
    desc.in[3] = executor_tensor(CVY_F64, cvy_shape1(2));
    assert_int_equal(
        executor_run_op(*state, &desc, (const void *[]){two_logits, labels, outside, shares}, (void *[]){&loss, p}),
        CVY_FAILED);
    assert_non_null(strstr(cvy_error(), "partner 2 of sample 1"));
}

static void a_certain_answer_costs_nothing(void **state)
{
    const double logits[] = {1e300, -INFINITY};
    const int32_t label = 0, wrong = 2;
    double loss, p[2];
    struct cvy_op_desc desc = loss_desc(1, 2, CVY_F64, true, 0);

    executor_run_checked(*state, &desc, (const void *[]){logits, &label}, (void *[]){&loss, p});
    assert_true(loss == 0 && p[0] == 1 && p[1] == 0);
    assert_int_equal(executor_run_op(*state, &desc, (const void *[]){logits, &wrong}, (void *[]){&loss, p}),
                     CVY_FAILED);
    assert_non_null(strstr(cvy_error(), "label 2"));
}

static void softmax_of_large_logits(void **state)
{
    const float logits[] = {1000, 1000, -1000, 5, 5, 5};
    float p[6];
    struct cvy_op_desc desc = executor_desc(CVY_OP_SOFTMAX, 1, 1);

    desc.in[0] = desc.out[0] = executor_tensor(CVY_F32, cvy_shape2(2, 3));
    executor_run_checked(*state, &desc, (const void *[]){logits}, (void *[]){p});
    assert_true(p[0] == 0.5F && p[1] == 0.5F && p[2] == 0);
    assert_true(p[3] == 1.0F / 3 && p[4] == p[3] && p[5] == p[3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_passes),           cmocka_unit_test(uniform_logits_cost_the_logarithm_of_the_classes),
        cmocka_unit_test(loss_of_known_targets),   cmocka_unit_test(a_certain_answer_costs_nothing),
        cmocka_unit_test(softmax_of_large_logits), cmocka_unit_test(mixed_targets),
        cmocka_unit_test(weighted_classes),        cmocka_unit_test(weighted_distributions),
        cmocka_unit_test(smoothed_target_values),  cmocka_unit_test(wrong_partners_are_refused),
    };

    return cmocka_run_group_tests(tests, executor_setup, executor_teardown);
}
