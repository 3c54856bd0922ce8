/* Top-k accuracy and cross-entropy. */
#include "train/metrics.h"

#include <math.h>

/* log(sum(exp(logits))), shifted by the maximum so that nothing overflows. */
static double log_sum_exp(const float *logits, int32_t classes)
{
    double largest = logits[0], sum = 0;

    for (int32_t k = 1; k < classes; k++) {
        if (logits[k] > largest)
            largest = logits[k];
    }
    for (int32_t k = 0; k < classes; k++)
        sum += exp((double)logits[k] - largest);
    return largest + log(sum);
}

double cvy_cross_entropy(const float *logits, int32_t classes, int32_t label)
{
    return log_sum_exp(logits, classes) - (double)logits[label];
}

int32_t cvy_label_rank(const float *logits, int32_t classes, int32_t label)
{
    const float own = logits[label];
    int32_t rank = 0;

    if (isnan(own)) {
        for (int32_t k = 0; k < classes; k++)
            rank += !isnan(logits[k]) || k < label;
        return rank;
    }
    for (int32_t k = 0; k < classes; k++)
        rank += logits[k] > own || (logits[k] == own && k < label);
    return rank;
}

void cvy_softmax_row(const float *logits, int32_t classes, float *probabilities)
{
    const double total = log_sum_exp(logits, classes);

    for (int32_t k = 0; k < classes; k++)
        probabilities[k] = (float)exp((double)logits[k] - total);
}

void cvy_metrics_add(struct cvy_metrics *metrics, const float *logits, int32_t classes, int32_t label)
{
    const int32_t rank = cvy_label_rank(logits, classes, label);

    metrics->images++;
    metrics->top1_hits += rank == 0;
    metrics->topk_hits += rank < metrics->top_k;
    metrics->loss_sum += cvy_cross_entropy(logits, classes, label);
}

static double percent(int64_t hits, int64_t images)
{
    return images > 0 ? 100.0 * (double)hits / (double)images : 0.0;
}

double cvy_metrics_top1(const struct cvy_metrics *metrics)
{
    return percent(metrics->top1_hits, metrics->images);
}

double cvy_metrics_topk(const struct cvy_metrics *metrics)
{
    return percent(metrics->topk_hits, metrics->images);
}

double cvy_metrics_loss(const struct cvy_metrics *metrics)
{
    return metrics->images > 0 ? metrics->loss_sum / (double)metrics->images : 0.0;
}
