/* Top-k accuracy and cross-entropy. */
#include "eval/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

double cvy_smoothed_cross_entropy(const float *logits, int32_t classes, int32_t label, double smoothing)
{
    const double total = log_sum_exp(logits, classes);
    double mean = 0;

    if (smoothing == 0)
        return total - (double)logits[label];
    for (int32_t k = 0; k < classes; k++)
        mean += (total - (double)logits[k]) / (double)classes;
    return (1 - smoothing) * (total - (double)logits[label]) + smoothing * mean;
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

/* The class that ranks first. */
static int32_t first_class(const float *logits, int32_t classes)
{
    int32_t first = -1;

    for (int32_t k = 0; k < classes; k++) {
        if (!isnan(logits[k]) && (first < 0 || logits[k] > logits[first]))
            first = k;
    }
    return first < 0 ? 0 : first;
}

struct cvy_answer_score cvy_metrics_add(struct cvy_metrics *metrics, const float *logits, int32_t classes,
                                        int32_t label)
{
    const double total = log_sum_exp(logits, classes);
    struct cvy_answer_score score = {
        .rank = cvy_label_rank(logits, classes, label),
        .predicted = first_class(logits, classes),
        .loss = total - (double)logits[label],
    };

    score.probability = exp((double)logits[score.predicted] - total);
    score.label_probability = exp(-score.loss);
    metrics->images++;
    metrics->top1_hits += score.rank == 0;
    metrics->topk_hits += score.rank < metrics->top_k;
    metrics->loss_sum +=
        metrics->smoothing > 0 ? cvy_smoothed_cross_entropy(logits, classes, label, metrics->smoothing) : score.loss;
    return score;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void cvy_sort_values(double *values, int64_t count)
{
    if (count > 1)
        qsort(values, (size_t)count, sizeof *values, by_value);
}

double cvy_quantile(const double *sorted, int64_t count, double q)
{
    return count > 0 ? sorted[(int64_t)nearbyint(q * (double)(count - 1))] : 0;
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

void cvy_metrics_measures(const struct cvy_metrics *metrics, struct cvy_measures *measures)
{
    *measures = (struct cvy_measures){
        .list = {{"loss", cvy_metrics_loss(metrics)}, {"top1", cvy_metrics_top1(metrics)}},
        .count = 3,
    };
    snprintf(measures->list[2].name, sizeof measures->list[2].name, "top%d", (int)metrics->top_k);
    measures->list[2].value = cvy_metrics_topk(metrics);
}

double cvy_measures_get(const struct cvy_measures *measures, const char *name)
{
    for (int i = 0; measures && name && i < measures->count; i++) {
        if (strcmp(measures->list[i].name, name) == 0)
            return measures->list[i].value;
    }
    return NAN;
}

double cvy_metrics_loss(const struct cvy_metrics *metrics)
{
    return metrics->images > 0 ? metrics->loss_sum / (double)metrics->images : 0.0;
}
