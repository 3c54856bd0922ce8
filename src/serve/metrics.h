/* What a server counts, as Prometheus reads it (text format 0.0.4). */
#ifndef CVY_SERVE_METRICS_H
#define CVY_SERVE_METRICS_H

#include <pthread.h>
#include <stdint.h>

#include "base/memory.h"

enum { CVY_METRIC_BOUNDS = 14 };
struct cvy_metric_histogram {
    const double *bounds;                  /* (CVY_METRIC_BOUNDS) upper ones, ascending */
    int64_t counts[CVY_METRIC_BOUNDS + 1]; /* of each interval, the last one without a bound */
    double sum;
};
extern const double cvy_metric_seconds[CVY_METRIC_BOUNDS]; /* of a request, from a millisecond to 30 s */
extern const double cvy_metric_images[CVY_METRIC_BOUNDS];  /* of a batch, powers of two */
void cvy_metric_add(struct cvy_metric_histogram *histogram, double value);
/* The lines of `name` with these labels (model="a"), without the line of its type. */
void cvy_metric_put(struct cvy_text *text, const char *name, const char *labels,
                    const struct cvy_metric_histogram *histogram);

/* What is counted of one network. */
struct cvy_network_counts {
    struct cvy_metric_histogram waiting, computing; /* seconds of a request before its batch, and in it */
    struct cvy_metric_histogram batches;            /* images */
    int64_t images, refused_images;                 /* answered; that could not be read */
    int64_t in_queue;                               /* images, at the moment */
};

/* Answers of the whole server, by what was asked for and the HTTP status. */
enum cvy_endpoint { CVY_ENDPOINT_CLASSIFY, CVY_ENDPOINT_DETECT, CVY_ENDPOINT_INFER, CVY_ENDPOINT_OTHER, CVY_ENDPOINTS };
enum { CVY_METRIC_STATUSES = 16 };
struct cvy_request_metrics {
    pthread_mutex_t mutex;
    struct {
        unsigned status; /* 0: a free place */
        int64_t count;
    } answers[CVY_ENDPOINTS][CVY_METRIC_STATUSES];
    struct cvy_metric_histogram seconds[CVY_ENDPOINTS]; /* from the first line of a request to its answer */
};
void cvy_request_metrics_init(struct cvy_request_metrics *metrics);
void cvy_request_metrics_add(struct cvy_request_metrics *metrics, enum cvy_endpoint endpoint, unsigned status,
                             double seconds);
void cvy_request_metrics_put(struct cvy_text *text, struct cvy_request_metrics *metrics);

#endif
