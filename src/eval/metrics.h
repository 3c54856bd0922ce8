/* Validation metrics: top-k hits and cross-entropy, in double, from the logits. */
#ifndef CVY_EVAL_METRICS_H
#define CVY_EVAL_METRICS_H

#include <stdint.h>

#include "convoy/train.h"

/* Sums over the images seen so far. Zero-initialise with top_k set. */
struct cvy_metrics {
    int32_t top_k;
    double smoothing; /* of the labels in the loss; 0: plain cross-entropy */
    int64_t images, top1_hits, topk_hits, skipped;
    double loss_sum;
};
/* The prediction for one image. */
struct cvy_answer_score {
    int32_t rank, predicted;               /* rank of the label; the class that ranks first */
    double loss;                           /* plain cross-entropy */
    double probability, label_probability; /* of `predicted`, and of the label */
};
/* One image: `logits` (classes). */
struct cvy_answer_score cvy_metrics_add(struct cvy_metrics *metrics, const float *logits, int32_t classes,
                                        int32_t label);
/* Percent of the images, 0 without images. */
double cvy_metrics_top1(const struct cvy_metrics *metrics);
double cvy_metrics_topk(const struct cvy_metrics *metrics);
double cvy_metrics_loss(const struct cvy_metrics *metrics); /* mean */
/* "loss", "top1" and "top<k>". */
void cvy_metrics_measures(const struct cvy_metrics *metrics, struct cvy_measures *measures);

/* -log softmax(logits)[label], computed in double. */
double cvy_cross_entropy(const float *logits, int32_t classes, int32_t label);
/* 1 - smoothing of that, and smoothing of the mean over all classes. */
double cvy_smoothed_cross_entropy(const float *logits, int32_t classes, int32_t label, double smoothing);
/* How many classes rank before `label`: those with a larger logit, and among equals those with a smaller index. NaN
 * ranks last. */
int32_t cvy_label_rank(const float *logits, int32_t classes, int32_t label);
/* softmax in double, rounded to float. */
void cvy_softmax_row(const float *logits, int32_t classes, float *probabilities);

/* The element round(q * (count - 1)), halves to even, of ascending values: numpy's "nearest" quantile. 0 without
 * values.
 */
double cvy_quantile(const double *sorted, int64_t count, double q);
/* Into ascending order. */
void cvy_sort_values(double *values, int64_t count);

#endif
