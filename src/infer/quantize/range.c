#include "infer/quantize/range.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

static const char *const names[CVY_CALIBRATION_COUNT] = {"minmax", "mean", "percentile", "mse", "entropy"};

const char *cvy_calibration_name(int calibration)
{
    return calibration >= 0 && calibration < CVY_CALIBRATION_COUNT ? names[calibration] : NULL;
}

bool cvy_calibration_parse(const char *text, enum cvy_calibration *calibration)
{
    for (int i = 0; i < CVY_CALIBRATION_COUNT; i++) {
        *calibration = (enum cvy_calibration)i;
        if (strcmp(text, names[i]) == 0)
            return true;
    }
    return false;
}

/* The bins that are in use: up to the one of the peak. */
static int used_bins(const struct cvy_histogram *histogram)
{
    const int last = (int)((double)cvy_histogram_peak(histogram) / cvy_histogram_bin_width(histogram));

    return last < CVY_HISTOGRAM_BINS ? last + 1 : CVY_HISTOGRAM_BINS;
}

/* ---- percentile ---- */

static float percentile(const struct cvy_histogram *histogram, double share)
{
    const double width = cvy_histogram_bin_width(histogram), wanted = share * (double)histogram->finite;
    double seen = (double)histogram->zeros;

    for (int i = 0; i < CVY_HISTOGRAM_BINS; i++) {
        const double count = (double)histogram->bins[i];

        if (count > 0 && seen + count >= wanted)
            return (float)((i + fmax(0, (wanted - seen) / count)) * width);
        seen += count;
    }
    return cvy_histogram_peak(histogram);
}

/* ---- mean squared error ---- */

/* The integral from 0 to x of the squared error of values that are rounded to steps of `step` up to `levels` of them.
 */
static double error_up_to(double x, double step, int levels)
{
    const double level = fmin(rint(x / step), levels), rest = x - level * step;

    return level * step * step * step / 12 + rest * rest * rest / 3;
}

double cvy_range_error(const struct cvy_histogram *histogram, int levels, double range)
{
    const double width = cvy_histogram_bin_width(histogram), step = range / levels;
    const int used = used_bins(histogram);
    double before = 0, sum = 0;

    for (int i = 0; i < used; i++) {
        const double upto = error_up_to((i + 1) * width, step, levels);

        sum += (double)histogram->bins[i] * (upto - before) / width;
        before = upto;
    }
    return sum;
}

/* The range from `from` to `to` with the smallest error of `count` + 1 that lie evenly between them. */
static double best_of(const struct cvy_histogram *histogram, int levels, double from, double to, int count)
{
    double best = to, smallest = cvy_range_error(histogram, levels, to);

    for (int i = count - 1; i >= 0; i--) {
        const double range = from + (to - from) * i / count, error = cvy_range_error(histogram, levels, range);

        if (error < smallest) {
            smallest = error;
            best = range;
        }
    }
    return best;
}

/* From a coarse grid, then a fine one around the best of it. The error has one minimum but for ripples. */
static float smallest_error(const struct cvy_histogram *histogram, int levels)
{
    enum { COARSE = 100, FINE = 20 };
    const double peak = (double)cvy_histogram_peak(histogram), step = 0.99 * peak / COARSE;
    const double coarse = best_of(histogram, levels, 0.01 * peak, peak, COARSE);
    const double low = fmax(coarse - step, 0.01 * peak), high = fmin(coarse + step, peak);

    return (float)best_of(histogram, levels, low, high, FINE);
}

/* ---- entropy ---- */

/* The divergence of the rounded distribution from the first `count` bins, the last of which has all that is cut off.
 * reference: memory for `count` numbers. */
static double divergence(const struct cvy_histogram *histogram, int count, int levels, double *reference)
{
    double total = 0, beyond = 0, sum = 0;

    for (int i = 0; i < CVY_HISTOGRAM_BINS; i++) {
        total += (double)histogram->bins[i];
        if (i < count)
            reference[i] = (double)histogram->bins[i];
        else
            beyond += (double)histogram->bins[i];
    }
    reference[count - 1] += beyond;
    for (int level = 0; level < levels; level++) {
        const int from = (int)((int64_t)level * count / levels), to = (int)((int64_t)(level + 1) * count / levels);
        double kept = 0;
        int filled = 0;

        for (int i = from; i < to; i++) {
            kept += (double)histogram->bins[i];
            filled += reference[i] > 0;
        }
        /* What is cut off is in the reference alone: that is what makes cutting cost something. */
        for (int i = from; i < to; i++) {
            const double rounded = fmax(filled ? kept / filled : 0, 1e-4);
            if (reference[i] > 0)
                sum += reference[i] / total * log(reference[i] / rounded);
        }
    }
    /* The rounded distribution has lost what is cut off: it is scaled to a sum of 1. */
    return sum - log(total / fmax(total - beyond, 1e-4));
}

static float least_divergence(const struct cvy_histogram *histogram, int levels, double *reference)
{
    enum { CANDIDATES = 128 };
    const int used = used_bins(histogram), first = used > levels ? levels : used;
    double smallest = INFINITY;
    int best = used;

    for (int i = CANDIDATES; i >= 0; i--) {
        const int count = first + (int)((int64_t)(used - first) * i / CANDIDATES);
        const double value = divergence(histogram, count, levels, reference);

        if (value < smallest) {
            smallest = value;
            best = count;
        }
    }
    return (float)(best * cvy_histogram_bin_width(histogram));
}

cvy_status cvy_range_choose(const struct cvy_histogram *histogram, enum cvy_calibration calibration, int levels,
                            float *range)
{
    const float peak = cvy_histogram_peak(histogram);
    double *memory;

    *range = peak;
    if (!(peak > 0))
        return CVY_OK;
    switch (calibration) {
    case CVY_CALIBRATION_MEAN:
        *range = (float)(histogram->peaks / (double)histogram->calls);
        break;
    case CVY_CALIBRATION_PERCENTILE:
        *range = percentile(histogram, 0.9999);
        break;
    case CVY_CALIBRATION_MSE:
        *range = smallest_error(histogram, levels);
        break;
    case CVY_CALIBRATION_ENTROPY:
        memory = cvy_calloc(CVY_HISTOGRAM_BINS, sizeof *memory);
        if (!memory)
            return cvy_fail_memory(CVY_HISTOGRAM_BINS * sizeof *memory, "a histogram");
        *range = least_divergence(histogram, levels, memory);
        cvy_free(memory);
        break;
    case CVY_CALIBRATION_MINMAX:
    case CVY_CALIBRATION_COUNT:
        break;
    }
    *range = *range > 0 && *range < peak ? *range : peak;
    return CVY_OK;
}
