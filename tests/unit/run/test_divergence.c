/* Divergence is seen within ten steps, in losses as they were measured; healthy beginnings are left alone. */
#include "run/records/divergence.h"
#include "support_test.h"

/* The step with which a sequence is seen to diverge; 0: never. */
static int64_t diverges(const double *losses, size_t count, double guess, bool scaled, enum cvy_beginning beginning)
{
    struct cvy_train_state run = {0};

    for (size_t i = 0; i < count; i++)
        cvy_divergence_add(&run, (int64_t)i + 1, losses[i], guess, scaled, beginning);
    return run.diverged_step;
}
#define SEEN(guess, beginning, ...)                                                                                    \
    diverges((const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double), guess, false,      \
             beginning)
#define DIVERGES(guess, ...) SEEN(guess, CVY_BEGINS_SHORT, __VA_ARGS__)

/* resnet18 from random weights on sets of 40 to 500 images. */
static void measured(void **state)
{
    /* six classes, 96 photographs, --lr 3; 110 drawn images of six classes, --lr 1 */
    assert_int_equal(DIVERGES(1.79, 1.80, 96.78, 78.49, 178.14), 2);
    assert_int_equal(DIVERGES(1.60, 1.75, 107.15, 26.69, 84.54), 2);
    /* the same without its first jumps */
    assert_int_equal(DIVERGES(1.60, 1.75, 1.70, 2.20, 3.66, 6.63, 2.40, 3.11, 8.98, 5.91, 25.18, 3.12), 10);
    /* the automatic recipe on six, two and fifty classes, with the highest losses that it has had: single steps of 5.6
     * times guessing, means of ten of 2.9 */
    assert_int_equal(DIVERGES(1.79, 1.80, 1.78, 1.84, 2.08, 2.02, 2.16, 2.39, 2.11, 1.59, 3.20, 2.96, 2.92, 2.10, 2.07,
                              2.05, 2.43, 4.40, 3.03, 2.90, 3.30, 2.38, 2.42, 2.70, 3.42, 3.12, 2.54, 1.94, 2.40),
                     0);
    assert_int_equal(DIVERGES(0.69, 1.12, 0.61, 0.79, 0.87, 0.68, 0.73, 0.89, 1.27, 0.79, 1.79, 1.09, 2.08, 0.56, 0.59,
                              1.85, 0.75, 1.10, 1.45, 1.98, 2.67, 0.99, 3.46, 3.90, 0.92, 1.96, 1.62, 1.18, 1.47),
                     0);
    assert_int_equal(DIVERGES(3.91, 4.16, 3.99, 4.01, 4.36, 4.40, 4.44, 4.31, 4.80, 4.47, 4.55, 4.73, 4.39, 5.21), 0);
}

/* Deep networks from random weights: 9,469 photographs of ten classes at 64 px, batches of 64, the automatic recipe. */
static void first_steps(void **state)
{
    /* resnet50: back by itself within 40 steps, and ahead of half the rate in its third epoch */
    static const double resnet50[] = {2.51,  5.56,  5.48,  6.61, 11.47, 9.34, 10.24, 11.47, 9.95, 13.47, 13.75, 8.56,
                                      15.48, 10.06, 10.97, 7.71, 7.76,  5.20, 8.04,  4.12,  5.91, 4.07,  4.02,  3.48,
                                      3.18,  3.01,  3.06,  3.39, 3.66,  3.08, 6.27,  5.16,  5.54, 5.07,  3.04,  7.73,
                                      3.79,  2.69,  2.73,  2.71, 2.65,  4.25, 6.75,  4.26,  3.12, 6.16,  3.50,  2.93};
    enum { COUNT = sizeof resnet50 / sizeof *resnet50 };
    double late[COUNT + 20];

    assert_int_equal(diverges(resnet50, COUNT, 2.30, false, CVY_BEGINS_LONG), 0);
    assert_int_equal(diverges(resnet50, COUNT, 2.30, false, CVY_BEGINS_SHORT), 8);
    assert_int_equal(diverges(resnet50, COUNT, 2.30, false, CVY_BEGINS_TRAINED), 8); /* that were worth something */
    /* resnext50-32x4d, and resnet50 at three and ten times the rate, with which it ends as it guesses */
    assert_int_equal(
        SEEN(2.30, CVY_BEGINS_LONG, 2.54, 5.59, 5.66, 8.59, 13.97, 18.91, 30.42, 27.35, 32.64, 28.42, 28.32), 7);
    assert_int_equal(SEEN(2.30, CVY_BEGINS_LONG, 2.51, 16.69, 18.70, 28.90, 23.28, 22.88, 39.21, 72.74, 70.56, 19.33),
                     4);
    assert_int_equal(SEEN(2.30, CVY_BEGINS_LONG, 2.51, 53.29, 40.19, 36.35, 29.01, 66.25, 27.86, 26.25, 13.67, 19.63),
                     2);
    /* The same later, and a loss that stays above: seen as ever. */
    for (int i = 0; i < COUNT + 20; i++)
        late[i] = i < 20 ? 2.5 : resnet50[i - 20];
    assert_int_equal(diverges(late, COUNT + 20, 2.30, false, CVY_BEGINS_LONG), 33);
    for (int i = 0; i < COUNT; i++)
        late[i] = 7;
    assert_int_equal(diverges(late, COUNT, 2.30, false, CVY_BEGINS_LONG), 33);
}

/* A resnet18 that had learnt little, its classifier kept: 132 photographs of four classes at 32 px, batches of 8, 1001
 * outputs, --lr 0.002. Its second epoch is better; at lower rates, down to a 256th, the first ten steps were no better.
 */
static void worse_than_guessing(void **state)
{
    static const double learns[] = {7.24, 3.84, 3.04, 7.62, 3.11, 6.56, 14.68, 16.92, 4.76, 4.77, 11.88, 3.69,
                                    5.05, 8.54, 4.31, 4.39, 4.69, 2.90, 3.52,  9.31,  2.97, 2.93, 4.90,  2.57};
    enum { COUNT = sizeof learns / sizeof *learns };
    double losses[60];

    (void)state;
    assert_int_equal(diverges(learns, COUNT, 2.26, false, CVY_BEGINS_SHORT), 8);
    assert_int_equal(diverges(learns, COUNT, 2.26, false, CVY_BEGINS_TRAINED), 0);
    /* From there it may rise as little as from any loss: soon after the first step, and once more when it has learnt.
     */
    for (int i = 0; i < 60; i++)
        losses[i] = i < 10 ? 9 : 20;
    assert_in_range(diverges(losses, 60, 2.26, false, CVY_BEGINS_TRAINED), 11, 20);
    for (int i = 0; i < 60; i++)
        losses[i] = i < 10 ? 9 : i < 30 ? 2 : 8;
    assert_in_range(diverges(losses, 60, 2.26, false, CVY_BEGINS_TRAINED), 31, 40);
    losses[1] = INFINITY;
    assert_int_equal(diverges(losses, 60, 2.26, false, CVY_BEGINS_TRAINED), 2);
    assert_int_equal(diverges(losses, 60, 0, true, CVY_BEGINS_TRAINED), 0);
}

/* However the loss rises above what is possible by chance, ten steps of it are enough. */
static void within_ten_steps(void **state)
{
    for (int classes = 2; classes <= 1000; classes *= 5) {
        const double guess = log(classes);
        double losses[30];

        for (int i = 0; i < 30; i++)
            losses[i] = i < 15 ? guess : 2.1 * guess + 1.6;
        assert_in_range(diverges(losses, 30, guess, false, CVY_BEGINS_SHORT), 16, 25);
        for (int i = 0; i < 30; i++)
            losses[i] = 1.9 * guess + 1.4;
        assert_int_equal(diverges(losses, 30, guess, false, CVY_BEGINS_SHORT), 0);
    }
}

/* The first sight counts, and stays. */
static void latched(void **state)
{
    struct cvy_train_state run = {0};

    cvy_divergence_add(&run, 7, 100, 1, false, CVY_BEGINS_SHORT);
    cvy_divergence_add(&run, 8, 0.1, 1, false, CVY_BEGINS_SHORT);
    assert_int_equal(run.diverged_step, 7);
    assert_true(run.diverged_loss == 100);
    assert_false(cvy_divergence_is_calm(&run, 1));
}

/* Without a loss scale one is enough; with one, an overflow is its own affair, ten in a row are not. */
static void not_finite(void **state)
{
    double losses[12] = {1, 1};

    assert_int_equal(diverges((const double[]){1, NAN}, 2, 1, false, CVY_BEGINS_SHORT), 2);
    assert_int_equal(diverges((const double[]){1, INFINITY}, 2, 0, false, CVY_BEGINS_SHORT),
                     2); /* a detector: no guess is known */
    assert_int_equal(diverges((const double[]){1, 500}, 2, 0, false, CVY_BEGINS_SHORT), 0);
    assert_int_equal(diverges((const double[]){1, NAN, 1, INFINITY, 1, 1, 1, 1}, 8, 1, true, CVY_BEGINS_SHORT), 0);
    for (int i = 2; i < 12; i++)
        losses[i] = INFINITY;
    assert_int_equal(diverges(losses, 11, 1, true, CVY_BEGINS_SHORT), 0);
    assert_int_equal(diverges(losses, 12, 1, true, CVY_BEGINS_SHORT), 12);
}

static void calm(void **state)
{
    struct cvy_train_state run = {0};

    assert_false(cvy_divergence_is_calm(&run, 2)); /* nothing is known yet */
    for (int i = 0; i < 3; i++)
        cvy_divergence_add(&run, i, 2, 2, false, CVY_BEGINS_SHORT);
    assert_true(cvy_divergence_is_calm(&run, 2));
    cvy_divergence_add(&run, 4, 3.5, 2, false, CVY_BEGINS_SHORT);
    assert_false(cvy_divergence_is_calm(&run, 2));
    for (int i = 0; i < 3; i++)
        cvy_divergence_add(&run, i, 2, 2, false, CVY_BEGINS_SHORT);
    assert_true(cvy_divergence_is_calm(&run, 2));
}

RUN_TESTS(NULL, NULL, TEST(measured), TEST(first_steps), TEST(worse_than_guessing), TEST(within_ten_steps),
          TEST(latched), TEST(not_finite), TEST(calm))
