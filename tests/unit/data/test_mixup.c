/* Mixup: the numbers that are drawn have the right distributions and depend on what they should; who mixes with whom;
 * and a network whose samples are mixed with themselves trains as one without mixup, bit for bit. */
#include "data/transform/mixup.h"
#include "support_network.h"
#include "support_test.h"
#include "trainer/trainer.h"

enum { DRAWS = 5000 };

/* ---- distributions ---- */

/* Mean and variance of DRAWS numbers within four standard errors of what they should be. */
static void check_moments(const char *what, const double *numbers, double mean, double variance)
{
    double sum = 0, squares = 0, fourth = 0;

    for (int i = 0; i < DRAWS; i++)
        sum += numbers[i];
    sum /= DRAWS;
    for (int i = 0; i < DRAWS; i++) {
        const double d = (numbers[i] - mean) * (numbers[i] - mean);
        squares += d;
        fourth += d * d;
    }
    squares /= DRAWS;
    fourth /= DRAWS;
    if (!(fabs(sum - mean) < 4 * sqrt(variance / DRAWS)))
        fail_msg("%s: mean %g, not %g", what, sum, mean);
    if (!(fabs(squares - variance) < 4 * sqrt((fourth - variance * variance) / DRAWS)))
        fail_msg("%s: variance %g, not %g", what, squares, variance);
}

static void gamma_has_its_moments(void **state)
{
    static const double shapes[] = {0.2, 0.7, 1, 1.5, 4, 30};
    static double numbers[DRAWS];

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_TEST, 0, (uint32_t)s);
        for (int i = 0; i < DRAWS; i++)
            numbers[i] = exp(cvy_rng_log_gamma(&rng, shapes[s]));
        check_moments("gamma", numbers, shapes[s], shapes[s]);
    }
}

/* Integral of (x (1 - x))^(a - 1) from 0 to x, up to 1/2. With x = u^(1/a) the end at 0, infinite for a < 1, is flat.
 */
static double half_beta(double a, double x)
{
    enum { PIECES = 16 };
    const bool steep = a < 1;
    const double end = steep ? pow(x, a) : x, step = end / (2 * PIECES);
    double sum = 0;

    for (int i = 0; i <= 2 * PIECES; i++) { /* Simpson's rule */
        const double u = i * step, weight = i == 0 || i == 2 * PIECES ? 1 : i % 2 ? 4 : 2;
        sum += weight * (steep ? pow(1 - pow(u, 1 / a), a - 1) / a : pow(u * (1 - u), a - 1));
    }
    return sum * step / 3;
}

static double beta_cdf(double a, double b, double x)
{
    if (b == 1)
        return pow(x, a);
    if (a == 1)
        return 1 - pow(1 - x, b);
    assert_true(a == b);
    return x <= 0.5 ? half_beta(a, x) / (2 * half_beta(a, 0.5)) : 1 - half_beta(a, 1 - x) / (2 * half_beta(a, 0.5));
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Kolmogorov and Smirnov: the largest distance of the two distributions is above 1.63 / sqrt(n) by chance once in a
 * hundred times; with a fixed seed the answer is always the same. */
static void beta_has_its_distribution(void **state)
{
    static const double shapes[][2] = {{0.2, 0.2}, {0.4, 0.4}, {1, 1}, {2, 2}, {8, 8}, {0.2, 1}, {1, 0.3}, {5, 1}};
    static double numbers[DRAWS];

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const double a = shapes[s][0], b = shapes[s][1];
        struct cvy_rng rng = cvy_rng_new(3, CVY_RNG_TEST, 0, (uint32_t)s);
        double distance = 0;
        for (int i = 0; i < DRAWS; i++)
            numbers[i] = cvy_rng_beta(&rng, a, b);
        check_moments("beta", numbers, a / (a + b), a * b / ((a + b) * (a + b) * (a + b + 1)));
        qsort(numbers, DRAWS, sizeof *numbers, ascending);
        for (int i = 0; i < DRAWS; i++) {
            const double f = beta_cdf(a, b, numbers[i]);
            assert_true(numbers[i] >= 0 && numbers[i] <= 1);
            distance = fmax(distance, fmax(f - (double)i / DRAWS, (double)(i + 1) / DRAWS - f));
        }
        if (!(distance < 1.63 / sqrt(DRAWS)))
            fail_msg("Beta(%g, %g): distance %g", a, b, distance);
    }
}

/* Where gamma numbers are too small for a double the answer is 0 or 1, each half of the time, and never a NaN. */
static void extreme_shapes(void **state)
{
    struct cvy_rng rng = cvy_rng_new(3, CVY_RNG_TEST, 1, 0);
    int ones = 0;

    for (int i = 0; i < 1000; i++) {
        const double x = cvy_rng_beta(&rng, 1e-6, 1e-6), y = cvy_rng_beta(&rng, 1000, 1000);
        assert_true((x >= 0 && x < 1e-3) || (x > 1 - 1e-3 && x <= 1));
        assert_true(fabs(y - 0.5) < 0.1); /* nine standard deviations */
        ones += x > 0.5;
    }
    assert_true(ones > 430 && ones < 570); /* four of sqrt(1000) / 2 */
}

/* ---- batches ---- */

enum { BATCH = 64 };
struct drawn {
    int32_t partner[BATCH];
    float coefficient[BATCH];
};

static struct drawn draw(struct cvy_mixup mixup, int64_t epoch, int64_t batch)
{
    struct drawn drawn;

    cvy_mixup_draw(&mixup, epoch, batch, BATCH, drawn.partner, drawn.coefficient);
    return drawn;
}

static void torch_rule(void **state)
{
    const struct cvy_mixup mixup = {0.2, CVY_MIXUP_TORCH, 9, 0, 1};
    const struct drawn one = draw(mixup, 3, 4);
    bool taken[BATCH] = {false};
    int itself = 0;

    for (int n = 0; n < BATCH; n++) {
        assert_true(one.coefficient[n] == one.coefficient[0]);
        assert_true(one.partner[n] >= 0 && one.partner[n] < BATCH && !taken[one.partner[n]]);
        taken[one.partner[n]] = true;
        itself += one.partner[n] == n;
    }
    assert_true(itself < 8); /* 1 on average */
}

static void tensorflow_rule(void **state)
{
    const struct cvy_mixup mixup = {0.2, CVY_MIXUP_TENSORFLOW, 9, 0, 1};
    const struct drawn one = draw(mixup, 3, 4);

    for (int n = 0; n < BATCH; n++) {
        assert_int_equal(one.partner[n], BATCH - 1 - n);
        assert_true(one.coefficient[n] >= 0 && one.coefficient[n] <= 1);
        for (int m = 0; m < n; m++)
            assert_true(one.coefficient[n] != one.coefficient[m] || one.coefficient[n] == 1);
    }
}

/* The same for the same seed, epoch, batch and rank; another for any other. The batches of two ranks are those that one
 * rank has in turn. */
static void drawn_by_place(void **state)
{
    for (int rule = 0; rule < 2; rule++) {
        const struct cvy_mixup mixup = {0.7, (enum cvy_mixup_rule)rule, 9, 0, 1};
        struct cvy_mixup seeded = mixup, second = mixup;
        const struct drawn one = draw(mixup, 3, 5), again = draw(mixup, 3, 5);
        seeded.seed = 10;
        second.rank = 1;
        second.world = 2;
        assert_memory_equal(&one, &again, sizeof one);
        for (int other = 0; other < 4; other++) {
            const struct drawn next = other == 0   ? draw(mixup, 4, 5)
                                      : other == 1 ? draw(mixup, 3, 6)
                                      : other == 2 ? draw(seeded, 3, 5)
                                                   : draw(second, 3, 5);
            assert_true(next.coefficient[0] != one.coefficient[0]);
            assert_true(rule == CVY_MIXUP_TENSORFLOW || memcmp(next.partner, one.partner, sizeof one.partner) != 0);
        }
        const struct drawn shared = draw(second, 3, 2);
        assert_memory_equal(&one, &shared, sizeof one);
    }
}

static void without_alpha_nothing_is_mixed(void **state)
{
    for (int rule = 0; rule < 2; rule++) {
        const struct drawn one = draw((struct cvy_mixup){0, (enum cvy_mixup_rule)rule, 9, 0, 1}, 0, 0);
        for (int n = 0; n < BATCH; n++)
            assert_true(one.coefficient[n] == 1 && one.partner[n] >= 0 && one.partner[n] < BATCH);
    }
}

static void rules_have_names(void **state)
{
    enum cvy_mixup_rule rule;

    assert_true(cvy_mixup_rule_parse("torch", &rule) && rule == CVY_MIXUP_TORCH);
    assert_true(cvy_mixup_rule_parse("tensorflow", &rule) && rule == CVY_MIXUP_TENSORFLOW);
    assert_false(cvy_mixup_rule_parse("numpy", &rule));
}

/* ---- networks ---- */

/* The losses of some steps of resnet18 on painted images. */
static void train(const char *device_name, const char *precision, bool mixup, bool weights, double alpha, int steps,
                  float *losses)
{
    const struct cvy_optimizer_options sgd = {.momentum = 0.9f};
    const struct cvy_mixup rule = {alpha, CVY_MIXUP_TORCH, 1, 0, 1};
    struct cvy_model_options model = cvy_model_options_make(PAINTED_CLASSES, 32);
    struct cvy_network network;
    struct cvy_trainer trainer;
    struct cvy_comm comm;
    cvy_device *device;
    enum cvy_dtype dtype;
    uint8_t *pixels = cvy_calloc_aligned(PAINTED_BATCH * 32 * 32 * 3);

    assert_non_null(pixels);
    paint_images(pixels, 32);
    cvy_comm_single(&comm);
    model.label_smoothing = 0.1f;
    model.mixup = mixup;
    model.class_weights = weights;
    assert_int_equal(cvy_device_open(device_name, 1, &device), CVY_OK);
    assert_int_equal(cvy_precision_choose(precision, device, &dtype), CVY_OK);
    assert_int_equal(cvy_network_open(&network, device, cvy_architecture_find("resnet18"), &model, dtype, true),
                     CVY_OK);
    assert_int_equal(cvy_network_initialize(&network, 1), CVY_OK);
    assert_int_equal(calm_network(&network), CVY_OK);
    assert_int_equal(cvy_trainer_open(&trainer, &network, &comm, &sgd, PAINTED_BATCH), CVY_OK);
    cvy_trainer_set_mixup(&trainer, &rule);
    for (int i = 0; i < steps; i++) {
        const struct cvy_batch batch = {
            .images = pixels, .labels = painted_labels, .count = PAINTED_BATCH, .epoch = 0, .index = i};
        if (cvy_trainer_step(&trainer, &batch, 0.01) != CVY_OK || cvy_trainer_loss(&trainer, &losses[i]) != CVY_OK)
            fail_msg("%s: %s", device_name, cvy_error());
        assert_true(isfinite(losses[i]));
    }
    cvy_trainer_close(&trainer);
    cvy_network_close(&network);
    cvy_device_close(device);
    cvy_free_aligned(pixels);
}

static void a_coefficient_of_one_changes_nothing(void **state)
{
    float plain[3], mixed[3];

    train("cpu", "fp32", false, false, 0, 3, plain);
    train("cpu", "fp32", true, false, 0, 3, mixed);
    assert_memory_equal(plain, mixed, sizeof plain);
    train("cpu", "fp32", true, false, 0.5, 3, mixed);
    /* Not the first one: every class is as likely before the first step, whatever the images are. */
    assert_true(fabsf(mixed[2] - plain[2]) > 0.01f);
}

/* From the start every class has a weight of 1: the mean weighted by ones is the mean, to rounding. */
static void weights_of_one_change_nothing(void **state)
{
    float plain[3], weighted[3];

    train("cpu", "fp32", false, false, 0, 3, plain);
    train("cpu", "fp32", false, true, 0, 3, weighted);
    for (int i = 0; i < 3; i++)
        assert_true(fabsf(plain[i] - weighted[i]) <= 1e-6f * plain[0]);
}

/* Every kernel of such a step against the reference, and the reference in double. */
static void every_device_mixes(void **state)
{
    float checked, exact;

    /* Winograd's algorithm rounds more than the check allows where images have few pixels. */
    assert_int_equal(setenv("CONVOY_CPU_WINOGRAD", "0", 1), 0);
    train("check:cpu", "fp32", true, true, 0.5, 1, &checked);
    assert_int_equal(unsetenv("CONVOY_CPU_WINOGRAD"), 0);
    train("ref", "fp64", true, true, 0.5, 1, &exact);
    assert_true(fabsf(checked - exact) <= 1e-5f * exact); /* 20 layers of sums in single precision */
}

RUN_TESTS(NULL, NULL, TEST(gamma_has_its_moments), TEST(beta_has_its_distribution), TEST(extreme_shapes),
          TEST(torch_rule), TEST(tensorflow_rule), TEST(drawn_by_place), TEST(without_alpha_nothing_is_mixed),
          TEST(rules_have_names), TEST(a_coefficient_of_one_changes_nothing), TEST(weights_of_one_change_nothing),
          TEST(every_device_mixes))
