/* How often the values of a tensor have which magnitude: what the ranges of quantizers are chosen from. Of a fixed size
 * however many values there were, and the same whatever order they came in. */
#ifndef CVY_INFER_QUANTIZE_HISTOGRAM_H
#define CVY_INFER_QUANTIZE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

/* A power of two: doubling the range joins whole pairs of bins, so that nothing is counted differently than if the
 * range had been the final one from the start. */
enum { CVY_HISTOGRAM_BINS = 4096 };

/* Zero-initialise. Bin i counts magnitudes from i * width up to (i + 1) * width, where CVY_HISTOGRAM_BINS * width is
 * 2^exponent, the smallest power of two above every magnitude: at least half of the bins are in use. */
struct cvy_histogram {
    uint64_t bins[CVY_HISTOGRAM_BINS]; /* of values that are not 0 */
    uint64_t zeros, finite, infinite;  /* finite: zeros and what is in the bins; infinite: those and NaN, ignored */
    int exponent;                      /* meaningless before a value that is not 0 */
    float lowest, highest;             /* of all finite values and 0 */
    double peaks;                      /* sum of the largest finite magnitudes of the calls of cvy_histogram_add */
    uint64_t calls;
};
/* The values of one image. */
void cvy_histogram_add(struct cvy_histogram *histogram, const float *values, size_t count);
/* The largest magnitude; 0: there were only zeros, or nothing. */
float cvy_histogram_peak(const struct cvy_histogram *histogram);
double cvy_histogram_bin_width(const struct cvy_histogram *histogram);

#endif
