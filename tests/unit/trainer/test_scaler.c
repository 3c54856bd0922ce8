/* The rules of the loss scale, stepped through overflows, beside what PyTorch's GradScaler and TensorFlow's dynamic
 * loss scale do: the scale after each step. */
#include "backend/scaler.h"
#include "support_test.h"
#include "trainer/loss_scale.h"

/* GradScaler.update(): growth_tracker counts steps that were taken; on a gradient that is not finite the scale is
 * multiplied by the backoff and the tracker is 0; at the interval it is multiplied by the growth and the tracker is 0.
 */
struct grad_scaler {
    double scale, growth, backoff;
    long interval, tracker;
};

static void grad_scaler_update(struct grad_scaler *scaler, bool overflow)
{
    if (overflow) {
        scaler->scale *= scaler->backoff;
        scaler->tracker = 0;
    } else if (++scaler->tracker == scaler->interval) {
        scaler->scale *= scaler->growth;
        scaler->tracker = 0;
    }
}

/* Two overflows in a row near the start, one just before the scale would grow, then calm. */
static bool overflows(int step)
{
    return step == 3 || step == 4 || step == 103 || step == 2200;
}

static void follow(const char *name, double start, long interval)
{
    struct cvy_scaler_rule rule;
    struct grad_scaler wanted = {start, 2, 0.5, interval, 0};
    float usual;

    assert_true(cvy_scaler_rule_find(name, &rule, &usual));
    assert_true(rule.skips);
    struct cvy_scaler scaler = {.scale = (float)start};
    for (int step = 0; step < 4500; step++) {
        scaler.overflow = overflows(step);
        grad_scaler_update(&wanted, overflows(step));
        cvy_scaler_update(&scaler, &rule);
        if (wanted.scale > rule.largest)
            wanted.scale = rule.largest;
        if (scaler.scale != (float)wanted.scale)
            fail_msg("%s: step %d: %g instead of %g", name, step, (double)scaler.scale, wanted.scale);
    }
    assert_int_equal(scaler.skipped, 4);
}

static void torch_rules(void **state)
{
    follow("torch", 128, 100);
    follow("torch-fixed", 128, 1000000000); /* what the program takes unless --dynamic-loss-scale is given */
}

static void other_rules(void **state)
{
    follow("apex", 65536, 2000);
    follow("tensorflow", 32768, 2000);
    follow("fp16-utils", 0x1p32, 1000);
}

static void where_they_end(void **state)
{
    struct cvy_scaler_rule rule;
    float usual;

    assert_true(cvy_scaler_rule_find("tensorflow", &rule, &usual));
    assert_true(usual == 32768);
    struct cvy_scaler scaler = {.scale = 1, .overflow = 1};
    cvy_scaler_update(&scaler, &rule);
    assert_true(scaler.scale == 1); /* TensorFlow's does not fall below 1 */
    assert_true(cvy_scaler_rule_find("static", &rule, &usual));
    assert_false(rule.skips);
    assert_false(cvy_scaler_rule_find("dynamic", &rule, &usual));
}

RUN_TESTS(NULL, NULL, TEST(torch_rules), TEST(other_rules), TEST(where_they_end))
