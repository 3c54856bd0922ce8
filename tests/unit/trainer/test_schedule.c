/* Learning rates against numbers worked out from the reference program's formulas. */
#include "support_test.h"
#include "trainer/schedule.h"

/* The published values have ten digits: half a unit of the last. */
static void expect_rate(const struct cvy_schedule *schedule, int64_t epoch, double rate)
{
    const double got = cvy_schedule_rate(schedule, epoch, 0);

    if (fabs(got - rate) > 6e-10)
        fail_msg("epoch %lld: %.12g instead of %.12g", (long long)epoch, got, rate);
}

static struct cvy_schedule by_epoch(enum cvy_schedule_kind kind, double rate, double end, int64_t warmup,
                                    int64_t epochs)
{
    return (struct cvy_schedule){
        .kind = kind, .learning_rate = rate, .end_learning_rate = end, .warmup = warmup, .epochs = epochs};
}

static void cosine(void **state)
{
    const struct cvy_schedule a = by_epoch(CVY_SCHEDULE_COSINE, 2.048, 0, 8, 50);
    const struct cvy_schedule b = by_epoch(CVY_SCHEDULE_COSINE, 2.048, 0, 8, 90);
    const struct cvy_schedule c = by_epoch(CVY_SCHEDULE_COSINE, 2.048, 0, 8, 250);
    const struct cvy_schedule d = by_epoch(CVY_SCHEDULE_COSINE, 4.096, 0, 16, 90);
    const struct cvy_schedule e = by_epoch(CVY_SCHEDULE_COSINE, 1.024, 0, 8, 90);
    const struct cvy_schedule f = by_epoch(CVY_SCHEDULE_COSINE, 0.896, 0, 8, 90);

    expect_rate(&a, 0, 0.256);
    expect_rate(&a, 1, 0.512);
    expect_rate(&a, 7, 2.048);
    expect_rate(&a, 8, 2.048);
    expect_rate(&a, 9, 2.045136688);
    expect_rate(&a, 25, 1.325829299);
    expect_rate(&a, 49, 0.002863312);
    expect_rate(&b, 9, 2.047248569);
    expect_rate(&b, 45, 1.180312867);
    expect_rate(&b, 89, 0.000751431);
    expect_rate(&c, 9, 2.047913715);
    expect_rate(&c, 125, 1.077149510);
    expect_rate(&c, 249, 8.6285e-05);
    expect_rate(&d, 0, 0.256);
    expect_rate(&d, 17, 4.094154683);
    expect_rate(&d, 45, 2.730270300);
    expect_rate(&d, 89, 0.001845317);
    expect_rate(&e, 0, 0.128);
    expect_rate(&e, 45, 0.590156434);
    expect_rate(&e, 89, 0.000375715);
    expect_rate(&f, 0, 0.112);
    expect_rate(&f, 1, 0.224);
    expect_rate(&f, 89, 0.000328751);
}

static void cosine_ends_above_zero(void **state)
{
    const struct cvy_schedule s = by_epoch(CVY_SCHEDULE_COSINE, 1.0, 0.2, 0, 2);

    expect_rate(&s, 0, 1.0);
    expect_rate(&s, 1, 0.6); /* half way between 1 and 0.2 */
}

static void linear(void **state)
{
    const struct cvy_schedule s = by_epoch(CVY_SCHEDULE_LINEAR, 1.0, 0.5, 2, 12);

    expect_rate(&s, 0, 0.5);
    expect_rate(&s, 1, 1.0);
    expect_rate(&s, 2, 1.0);
    expect_rate(&s, 7, 0.5); /* end-lr plays no part */
    expect_rate(&s, 11, 0.1);
}

static void steps(void **state)
{
    const struct cvy_schedule s = by_epoch(CVY_SCHEDULE_STEP, 0.1, 0, 5, 90);

    expect_rate(&s, 0, 0.02);
    expect_rate(&s, 4, 0.1);
    expect_rate(&s, 29, 0.1);
    expect_rate(&s, 30, 0.01); /* the warm-up does not shift the steps */
    expect_rate(&s, 59, 0.01);
    expect_rate(&s, 60, 0.001);
    expect_rate(&s, 79, 0.001);
    expect_rate(&s, 80, 0.0001);
}

/* By epoch: 2 epochs at a time, a thousandth after all of them; and with a factor of its own. */
static void exponential(void **state)
{
    const struct cvy_schedule a = {.kind = CVY_SCHEDULE_EXPONENTIAL,
                                   .learning_rate = 1,
                                   .warmup = 2,
                                   .epochs = 13, /* 5 whole periods: 10^(-3/5) in each */
                                   .decay_epochs = 2};
    const struct cvy_schedule b = {
        .kind = CVY_SCHEDULE_EXPONENTIAL, .learning_rate = 0.5, .epochs = 4, .decay_factor = 0.9};

    expect_rate(&a, 0, 0.5);
    expect_rate(&a, 3, 1);
    expect_rate(&a, 4, 0.251188643151);
    expect_rate(&a, 5, 0.251188643151);
    expect_rate(&a, 12, 0.001);
    expect_rate(&b, 0, 0.5);
    expect_rate(&b, 3, 0.3645);
}

static void expect_step(const struct cvy_schedule *schedule, int64_t step, double rate)
{
    const double got = cvy_schedule_rate(schedule, step / schedule->steps_per_epoch, step);

    if (fabs(got - rate) > 6e-10)
        fail_msg("step %lld: %.12g instead of %.12g", (long long)step, got, rate);
}

/* The TensorFlow program's: 625 steps in an epoch. */
static void by_step(void **state)
{
    struct cvy_schedule s = by_epoch(CVY_SCHEDULE_COSINE, 2.048, 0, 8, 90);

    s.by_step = true;
    s.steps_per_epoch = 625;
    expect_step(&s, 0, 0);
    expect_step(&s, 1, 0.0004096);
    expect_step(&s, 4999, 2.0475904);
    expect_step(&s, 5000, 2.008331977); /* the cosine has run since step 0 */
    expect_step(&s, 28125, 1.024);
    s.epochs = 250;
    expect_step(&s, 5000, 2.042829841);
    s = by_epoch(CVY_SCHEDULE_STEP, 1, 0, 0, 100);
    s.by_step = true;
    s.steps_per_epoch = 10;
    expect_step(&s, 0, 1);
    expect_step(&s, 300, 1); /* the value changes after the boundary */
    expect_step(&s, 301, 0.1);
    expect_step(&s, 601, 0.01);
    expect_step(&s, 801, 0.001);
    expect_step(&s, 900, 0.001);
    expect_step(&s, 901, 0.0001);
    s.kind = CVY_SCHEDULE_LINEAR;
    expect_step(&s, 250, 0.75);
    s.kind = CVY_SCHEDULE_EXPONENTIAL;
    s.warmup = 10;
    s.decay_epochs = 30;
    expect_step(&s, 50, 0.5);
    expect_step(&s, 399, 1);
    expect_step(&s, 400, 0.1);
}

/* The program's training benchmark: 3 epochs of a schedule whose warm-up has 8. */
static void warmup_beyond_the_end(void **state)
{
    struct cvy_schedule s = by_epoch(CVY_SCHEDULE_COSINE, 0.8, 0, 8, 3);

    for (int64_t epoch = 0; epoch < 3; epoch++)
        assert_true(fabs(cvy_schedule_rate(&s, epoch, 0) - 0.1 * (double)(epoch + 1)) < 1e-12);
    s.epochs = s.warmup = 2; /* nothing is left to fall over */
    assert_true(fabs(cvy_schedule_rate(&s, 1, 0) - 0.8) < 1e-12);
}

static void names(void **state)
{
    assert_int_equal(cvy_schedule_kind_of("step"), CVY_SCHEDULE_STEP);
    assert_int_equal(cvy_schedule_kind_of("linear"), CVY_SCHEDULE_LINEAR);
    assert_int_equal(cvy_schedule_kind_of("cosine"), CVY_SCHEDULE_COSINE);
    assert_int_equal(cvy_schedule_kind_of("exponential"), CVY_SCHEDULE_EXPONENTIAL);
    assert_int_equal(cvy_schedule_kind_of("cos"), -1);
}

/* The detector's: its published samples on 8 and 1 GPUs, and nothing is left beyond the end. */
static void all_in_steps(void **state)
{
    const struct cvy_schedule eight = {.kind = CVY_SCHEDULE_COSINE,
                                       .learning_rate = 0.16,
                                       .steps_per_epoch = 100,
                                       .steps = 12500,
                                       .warmup_steps = 1000,
                                       .warmup_rate = 0.0693312};
    const struct cvy_schedule one = {.kind = CVY_SCHEDULE_COSINE,
                                     .learning_rate = 0.02,
                                     .steps_per_epoch = 100,
                                     .steps = 100000,
                                     .warmup_steps = 8000,
                                     .warmup_rate = 0.0086664};
    const struct cvy_schedule line = {
        .kind = CVY_SCHEDULE_LINEAR, .learning_rate = 1, .steps_per_epoch = 4, .steps = 10, .warmup_steps = 2};

    expect_step(&eight, 0, 0.0693312);
    expect_step(&eight, 500, 0.1146656);
    expect_step(&eight, 999, 0.1599093312);
    expect_step(&eight, 1000, 0.16);
    expect_step(&eight, 6750, 0.08);
    expect_step(&eight, 12500, 0);
    expect_step(&eight, 20000, 0);
    expect_step(&one, 4000, 0.0143332);
    expect_step(&one, 54000, 0.01);
    expect_step(&line, 0, 0);
    expect_step(&line, 1, 0.5);
    expect_step(&line, 2, 1);
    expect_step(&line, 6, 0.5);
}

RUN_TESTS(NULL, NULL, TEST(cosine), TEST(cosine_ends_above_zero), TEST(linear), TEST(steps), TEST(exponential),
          TEST(by_step), TEST(all_in_steps), TEST(names), TEST(warmup_beyond_the_end))
