/* Which range of values 8 bits shall cover: narrower than that of the data, it rounds most of them less and cuts a few.
 */
#ifndef CVY_INFER_QUANTIZE_RANGE_H
#define CVY_INFER_QUANTIZE_RANGE_H

#include "convoy/status.h"
#include "infer/quantize/histogram.h"

#include <stdbool.h>

enum cvy_calibration {
    CVY_CALIBRATION_MINMAX,     /* all of them */
    CVY_CALIBRATION_MEAN,       /* the mean of the largest magnitudes of each image */
    CVY_CALIBRATION_PERCENTILE, /* all but the largest one in 10,000 magnitudes */
    CVY_CALIBRATION_MSE,        /* the smallest mean of squared errors */
    CVY_CALIBRATION_ENTROPY,    /* the least information lost: the smallest Kullback-Leibler divergence of the rounded
                                   distribution from the one there is, as TensorRT chooses */
    CVY_CALIBRATION_COUNT,
    CVY_CALIBRATION_DEFAULT = CVY_CALIBRATION_MEAN
};
/* "minmax", ... NULL past the end. */
const char *cvy_calibration_name(int calibration);
/* False when the text is no name of one. */
bool cvy_calibration_parse(const char *text, enum cvy_calibration *calibration);

/* The magnitude that the highest of `levels` levels above zero stands for (255 where no value is negative, else 127);
 * at most the histogram's peak, and 0 if that is. CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_range_choose(const struct cvy_histogram *histogram, enum cvy_calibration calibration,
                                        int levels, float *range);
/* The expected sum of squared errors of the values when `levels` steps reach up to `range`, above 0: values are taken
 * to be spread evenly over their bin, and level 0 stands for values around zero. */
double cvy_range_error(const struct cvy_histogram *histogram, int levels, double range);

#endif
