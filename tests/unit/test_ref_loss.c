/* The reference kernels of the network's end, linear layer, softmax and loss, against results worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "support_executor.h"

static int setup(void **state)
{
    *state = executor_device("ref", 2);
    return 0;
}

static int teardown(void **state)
{
    cvy_device_close(*state);
    return 0;
}

/* ---- small helpers ---- */

static void same(const double *is, const double *wanted, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++) {
        if (isnan(wanted[i]) ? !isnan(is[i]) : !(fabs(is[i] - wanted[i]) <= tolerance || is[i] == wanted[i]))
            fail_msg("element %zu is %.17g, not %.17g", i, is[i], wanted[i]);
    }
}

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
    same(y, (const double[]){8, 24, 8, 33}, 4, 0);
    desc = executor_desc(CVY_OP_LINEAR_BWD_DATA, 2, 1);
    desc.in[0] = desc.out[0] = executor_tensor(CVY_F64, cvy_shape2(2, 3));
    desc.in[1] = executor_tensor(CVY_F64, cvy_shape2(2, 2));
    executor_run_checked(*state, &desc, (const void *[]){w, dy}, (void *[]){dx});
    /* (1,2) and (3,4) times w */
    same(dx, (const double[]){5, 2, -1, 11, 4, -3}, 6, 0);
    desc = executor_desc(CVY_OP_LINEAR_BWD_WEIGHTS, 2, 2);
    desc.in[0] = executor_tensor(CVY_F64, cvy_shape2(2, 3));
    desc.in[1] = executor_tensor(CVY_F64, cvy_shape2(2, 2));
    desc.out[0] = executor_tensor(CVY_F64, cvy_shape2(2, 3));
    desc.out[1] = executor_tensor(CVY_F64, cvy_shape1(2));
    executor_run_checked(*state, &desc, (const void *[]){x, dy}, (void *[]){dw, dbias});
    same(dw, (const double[]){1 + 12, 2 + 15, 3 + 18, 2 + 16, 4 + 20, 6 + 24}, 6, 0);
    same(dbias, (const double[]){4, 6}, 2, 0);
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
    same(p, (const double[]){0.25, 0.75, 0.5, 0.5}, 4, rounding);
    /* q = (1/4, 3/4), (3/4, 1/4) */
    same(&loss, (const double[]){-(0.25 * log(0.25) + 0.75 * log(0.75) + log(0.5)) / 2}, 1, rounding);
    back.attr = desc.attr;
    back.in[0] = back.out[0] = desc.out[1];
    back.in[1] = desc.in[1];
    back.in[2] = desc.out[0];
    executor_run_checked(*state, &back, (const void *[]){p, labels, &dloss}, (void *[]){dlogits});
    same(dlogits, (const double[]){0, 0, 3 * -0.25 / 2, 3 * 0.25 / 2}, 4, rounding);

    desc = loss_desc(2, 2, CVY_F64, false, 0);
    executor_run_checked(*state, &desc, (const void *[]){logits, soft}, (void *[]){&loss, p});
    same(&loss, (const double[]){-(0.5 * log(0.25) + 0.25 * log(0.75) + 2 * log(0.5)) / 2}, 1, rounding);
    back.attr = desc.attr;
    back.in[1] = desc.in[1];
    executor_run_checked(*state, &back, (const void *[]){p, soft, &dloss}, (void *[]){dlogits});
    same(dlogits,
         (const double[]){1.5 * (0.25 * 0.75 - 0.5), 1.5 * (0.75 * 0.75 - 0.25), 1.5 * (0.5 * 2), 1.5 * (0.5 * 2 - 2)},
         4, rounding);
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
        cmocka_unit_test(softmax_of_large_logits),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
