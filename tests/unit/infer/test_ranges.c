/* Histograms of values against counting them, and the ranges chosen from them against trying all ranges on the values.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "graph/quantizer.h"
#include "infer/quantize/range.h"
#include "support_test.h"

enum { VALUES = 20000 };
static float values[VALUES];

/* Like the output of a ReLU, or signed; with a few values far outside. */
static void make_values(bool signs, double outlier, uint64_t seed)
{
    struct cvy_rng rng = cvy_rng_new(seed, CVY_RNG_INIT, 0, 0);

    for (int i = 0; i < VALUES; i++) {
        const double value = cvy_rng_normal(&rng);
        values[i] = (float)(signs || value > 0 ? value : 0);
    }
    for (int i = 0; i < 3; i++)
        values[i * 5000] = (float)(outlier * (i + 1) / 3);
}

static struct cvy_histogram *histogram_of(const float *from, size_t count)
{
    struct cvy_histogram *histogram = cvy_calloc(1, sizeof *histogram);

    assert_non_null(histogram);
    cvy_histogram_add(histogram, from, count);
    return histogram;
}

/* Every bin against the definition, and with parts in another order. */
static void counting(void **state)
{
    struct cvy_histogram *whole, *parts;
    uint64_t counts[CVY_HISTOGRAM_BINS] = {0}, zeros = 0;

    make_values(true, 1000, 1);
    values[7] = 0;
    values[8] = -0.0F;
    values[9] = 1e-30F;
    whole = histogram_of(values, VALUES);
    assert_int_equal(whole->exponent, 10); /* 1000 < 2^10 */
    for (int i = 0; i < VALUES; i++) {
        if (values[i] == 0)
            zeros++;
        else
            counts[(int)floor((double)fabsf(values[i]) / (1024.0 / CVY_HISTOGRAM_BINS))]++;
    }
    assert_memory_equal(counts, whole->bins, sizeof counts);
    assert_int_equal(zeros, whole->zeros);
    assert_int_equal(VALUES, whole->finite);

    /* The last values first, one by one: the range grows many times. */
    parts = histogram_of(values, 0);
    for (int i = VALUES - 1; i >= 0; i--)
        cvy_histogram_add(parts, values + i, 1);
    assert_memory_equal(parts, whole, offsetof(struct cvy_histogram, peaks));
    cvy_free(whole);
    cvy_free(parts);
}

static void odd_values(void **state)
{
    const float odd[] = {INFINITY, -INFINITY, NAN, 0, 3.0e38F, -1e-45F};
    struct cvy_histogram *histogram = histogram_of(odd, 6), *none = histogram_of(NULL, 0), *zeros;
    const float zero[3] = {0};
    float range = -1;

    assert_int_equal(histogram->infinite, 3);
    assert_int_equal(histogram->finite, 3);
    assert_int_equal(histogram->exponent, 128);
    assert_int_equal(histogram->bins[0], 1);
    zeros = histogram_of(zero, 3);
    for (int c = 0; c < CVY_CALIBRATION_COUNT; c++) {
        assert_int_equal(cvy_range_choose(none, (enum cvy_calibration)c, 255, &range), CVY_OK);
        assert_true(range == 0);
        assert_int_equal(cvy_range_choose(zeros, (enum cvy_calibration)c, 255, &range), CVY_OK);
        assert_true(range == 0);
        assert_int_equal(cvy_range_choose(histogram, (enum cvy_calibration)c, 127, &range), CVY_OK);
        assert_true(range > 0 && range <= 3.0e38F);
    }
    cvy_histogram_add(zeros, odd, 6);
    assert_int_equal(zeros->exponent, 128);
    assert_int_equal(zeros->bins[0], 1);
    cvy_free(histogram);
    cvy_free(none);
    cvy_free(zeros);
}

/* The sum of squared errors of the values themselves, rounded as quantizers do it. */
static double true_error(int levels, double range)
{
    const struct cvy_levels quantizer = {
        .scale = (float)(range / levels), .low = (float)-levels, .high = (float)levels};
    double sum = 0;

    for (int i = 0; i < VALUES; i++) {
        const double error = (double)(cvy_quantizer_value(&quantizer, values[i]) - values[i]);
        sum += error * error;
    }
    return sum;
}

static int by_magnitude(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void check_ranges(bool signs, double outlier)
{
    enum { TRIES = 2000 };
    const int levels = signs ? 127 : 255;
    struct cvy_histogram *histogram;
    static float sorted[VALUES];
    double best = INFINITY;
    float range, peak;

    make_values(signs, outlier, 2);
    histogram = histogram_of(values, VALUES);
    peak = cvy_histogram_peak(histogram);
    for (int i = 1; i <= TRIES; i++)
        best = fmin(best, true_error(levels, (double)peak * i / TRIES));

    assert_int_equal(cvy_range_choose(histogram, CVY_CALIBRATION_MSE, levels, &range), CVY_OK);
    /* Ripples of single outliers, and the grid, cost some percent. */
    assert_true(true_error(levels, (double)range) < 1.03 * best);
    assert_true(fabs(cvy_range_error(histogram, levels, (double)range) / true_error(levels, (double)range) - 1) < 0.03);
    assert_true(fabs(cvy_range_error(histogram, levels, 1) / true_error(levels, 1) - 1) < 0.03);

    for (int i = 0; i < VALUES; i++)
        sorted[i] = fabsf(values[i]);
    qsort(sorted, VALUES, sizeof *sorted, by_magnitude);
    assert_int_equal(cvy_range_choose(histogram, CVY_CALIBRATION_PERCENTILE, levels, &range), CVY_OK);
    /* Two of 20,000 are beyond it. */
    assert_true((double)range >= (double)sorted[VALUES - 3] - cvy_histogram_bin_width(histogram));
    assert_true((double)range <= (double)sorted[VALUES - 2] + cvy_histogram_bin_width(histogram));

    assert_int_equal(cvy_range_choose(histogram, CVY_CALIBRATION_MINMAX, levels, &range), CVY_OK);
    assert_true(range == peak);
    assert_int_equal(cvy_range_choose(histogram, CVY_CALIBRATION_ENTROPY, levels, &range), CVY_OK);
    assert_true(range > 0 && range <= peak);
    if (outlier > 50) /* far values that are almost none must not decide */
        assert_true((double)range < 0.5 * outlier);
    cvy_free(histogram);
}

static void ranges(void **state)
{
    check_ranges(false, 4);
    check_ranges(true, 4);
    check_ranges(true, 20);
    check_ranges(false, 100);
}

/* Values that 8 bits can say exactly keep their range. */
static void exact_levels(void **state)
{
    struct cvy_histogram *histogram;
    float range;

    for (int i = 0; i < VALUES; i++)
        values[i] = (float)(i % 256) * 0.5F;
    histogram = histogram_of(values, VALUES);
    assert_int_equal(cvy_range_choose(histogram, CVY_CALIBRATION_MSE, 255, &range), CVY_OK);
    assert_true(fabsf(range - 127.5F) < 0.5F);
    assert_int_equal(cvy_range_choose(histogram, CVY_CALIBRATION_ENTROPY, 255, &range), CVY_OK);
    assert_true(fabsf(range - 127.5F) < 0.5F);
    cvy_free(histogram);
}

/* One image among many whose values lie far outside decides nothing. */
static void mean_of_images(void **state)
{
    struct cvy_histogram *histogram = histogram_of(NULL, 0);
    float range;

    histogram->calls = 0; /* the call above was no image */
    for (int image = 0; image < 10; image++) {
        const float peak = image == 3 ? -100.0F : 1.0F + (float)image / 8, pair[2] = {0.5F, peak};
        cvy_histogram_add(histogram, pair, 2);
    }
    assert_int_equal(cvy_range_choose(histogram, CVY_CALIBRATION_MEAN, 255, &range), CVY_OK);
    assert_true(fabsf(range - (100.0F + 9 + 42.0F / 8) / 10) < 1e-5F);
    cvy_histogram_add(histogram, (const float[]){0.25F, 3.0F}, 2);
    assert_int_equal(cvy_range_choose(histogram, CVY_CALIBRATION_MEAN, 255, &range), CVY_OK);
    assert_true(fabsf(range - (100.0F + 9 + 42.0F / 8 + 3) / 11) < 1e-5F);
    cvy_free(histogram);
}

static void parsing(void **state)
{
    enum cvy_calibration calibration;

    for (int c = 0; cvy_calibration_name(c); c++) {
        assert_true(cvy_calibration_parse(cvy_calibration_name(c), &calibration));
        assert_int_equal(calibration, c);
    }
    assert_null(cvy_calibration_name(CVY_CALIBRATION_COUNT));
    assert_false(cvy_calibration_parse("max", &calibration));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counting), cmocka_unit_test(odd_values),     cmocka_unit_test(ranges),
        cmocka_unit_test(parsing),  cmocka_unit_test(mean_of_images), cmocka_unit_test(exact_levels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
