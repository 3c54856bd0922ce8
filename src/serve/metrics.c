#include "serve/metrics.h"

#include "base/json_out.h"

const double cvy_metric_seconds[CVY_METRIC_BOUNDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                      0.25,  0.5,    1,     2.5,  5,     10,   30};
const double cvy_metric_images[CVY_METRIC_BOUNDS] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};

void cvy_metric_add(struct cvy_metric_histogram *histogram, double value)
{
    int i = 0;

    while (i < CVY_METRIC_BOUNDS && value > histogram->bounds[i])
        i++;
    histogram->counts[i]++;
    histogram->sum += value;
}

void cvy_metric_put(struct cvy_text *text, const char *name, const char *labels,
                    const struct cvy_metric_histogram *histogram)
{
    char number[32];
    int64_t count = 0;

    for (int i = 0; i < CVY_METRIC_BOUNDS; i++) {
        count += histogram->counts[i];
        cvy_text_printf(text, "%s_bucket{%s,le=\"%s\"} %lld\n", name, labels,
                        cvy_double_text(histogram->bounds[i], number), (long long)count);
    }
    count += histogram->counts[CVY_METRIC_BOUNDS];
    cvy_text_printf(text, "%s_bucket{%s,le=\"+Inf\"} %lld\n", name, labels, (long long)count);
    cvy_text_printf(text, "%s_sum{%s} %s\n", name, labels, cvy_double_text(histogram->sum, number));
    cvy_text_printf(text, "%s_count{%s} %lld\n", name, labels, (long long)count);
}

void cvy_request_metrics_init(struct cvy_request_metrics *metrics)
{
    *metrics = (struct cvy_request_metrics){0};
    pthread_mutex_init(&metrics->mutex, NULL);
    for (int i = 0; i < CVY_ENDPOINTS; i++)
        metrics->seconds[i].bounds = cvy_metric_seconds;
}

void cvy_request_metrics_add(struct cvy_request_metrics *metrics, enum cvy_endpoint endpoint, unsigned status,
                             double seconds)
{
    pthread_mutex_lock(&metrics->mutex);
    for (int i = 0; i < CVY_METRIC_STATUSES; i++) {
        if (metrics->answers[endpoint][i].status != 0 && metrics->answers[endpoint][i].status != status)
            continue;
        metrics->answers[endpoint][i].status = status;
        metrics->answers[endpoint][i].count++;
        break;
    }
    cvy_metric_add(&metrics->seconds[endpoint], seconds);
    pthread_mutex_unlock(&metrics->mutex);
}

void cvy_request_metrics_put(struct cvy_text *text, struct cvy_request_metrics *metrics)
{
    static const char *const labels[CVY_ENDPOINTS] = {"endpoint=\"classify\"", "endpoint=\"detect\"",
                                                      "endpoint=\"infer\"", "endpoint=\"other\""};

    pthread_mutex_lock(&metrics->mutex);
    cvy_text_puts(text, "# HELP convoy_requests_total Requests by what was asked for and the status of the answer.\n"
                        "# TYPE convoy_requests_total counter\n");
    for (int e = 0; e < CVY_ENDPOINTS; e++) {
        for (int i = 0; i < CVY_METRIC_STATUSES && metrics->answers[e][i].status; i++)
            cvy_text_printf(text, "convoy_requests_total{%s,code=\"%u\"} %lld\n", labels[e],
                            metrics->answers[e][i].status, (long long)metrics->answers[e][i].count);
    }
    cvy_text_puts(text, "# HELP convoy_request_seconds Time from the first line of a request to its answer.\n"
                        "# TYPE convoy_request_seconds histogram\n");
    for (int e = 0; e < CVY_ENDPOINTS; e++)
        cvy_metric_put(text, "convoy_request_seconds", labels[e], &metrics->seconds[e]);
    pthread_mutex_unlock(&metrics->mutex);
}
