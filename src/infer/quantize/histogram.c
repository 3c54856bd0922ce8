#include "infer/quantize/histogram.h"

#include <math.h>
#include <stdbool.h>

/* Below 2^MIN_EXPONENT everything is in the lowest bins: so small values have no ranges of their own. */
enum { MIN_EXPONENT = -100 };

float cvy_histogram_peak(const struct cvy_histogram *histogram)
{
    return fmaxf(histogram->highest, -histogram->lowest);
}

double cvy_histogram_bin_width(const struct cvy_histogram *histogram)
{
    return ldexp(1.0 / CVY_HISTOGRAM_BINS, histogram->exponent);
}

/* Widens the range to 2^exponent, which is not below the one there is. */
static void widen(struct cvy_histogram *histogram, int exponent)
{
    const int shift = exponent - histogram->exponent;

    for (int i = 0; shift > 0 && i < CVY_HISTOGRAM_BINS; i++) {
        const uint64_t count = histogram->bins[i];

        histogram->bins[i] = 0;
        histogram->bins[shift < 31 ? i >> shift : 0] += count;
    }
    histogram->exponent = exponent;
}

/* The exponent of the range for values up to `peak`, above 0. */
static int exponent_for(float peak)
{
    int exponent;

    (void)frexpf(peak, &exponent);
    return exponent > MIN_EXPONENT ? exponent : MIN_EXPONENT;
}

/* Makes the histogram reach from `lowest` to `highest`, finite ones. */
static void reach(struct cvy_histogram *histogram, float lowest, float highest)
{
    const float before = cvy_histogram_peak(histogram), peak = fmaxf(before, fmaxf(highest, -lowest));

    if (peak > before) {
        const int exponent = exponent_for(peak);

        if (before > 0)
            widen(histogram, exponent);
        histogram->exponent = exponent;
    }
    histogram->lowest = fminf(histogram->lowest, lowest);
    histogram->highest = fmaxf(histogram->highest, highest);
}

void cvy_histogram_add(struct cvy_histogram *histogram, const float *values, size_t count)
{
    float lowest = 0, highest = 0;
    float scale;

    for (size_t i = 0; i < count; i++) {
        const float value = isfinite(values[i]) ? values[i] : 0;
        lowest = value < lowest ? value : lowest;
        highest = value > highest ? value : highest;
    }
    reach(histogram, lowest, highest);
    histogram->peaks += (double)fmaxf(highest, -lowest);
    histogram->calls++;
    scale = (float)ldexp(CVY_HISTOGRAM_BINS, -histogram->exponent);
    for (size_t i = 0; i < count; i++) {
        const float magnitude = fabsf(values[i]);

        if (magnitude == 0)
            histogram->zeros++;
        else if (isfinite(magnitude))
            histogram->bins[(int)(magnitude * scale)]++;
        else
            histogram->infinite++;
        histogram->finite += isfinite(magnitude) != 0;
    }
}
