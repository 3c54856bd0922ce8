/* A network that answers: its own thread loads it, takes what waits in its queue together as batches, and computes. */
#ifndef CVY_SERVE_SERVED_H
#define CVY_SERVE_SERVED_H

#include <pthread.h>
#include <stdbool.h>

#include "convoy/detect.h"
#include "convoy/infer.h"
#include "serve/metrics.h"
#include "serve/turn.h"

/* What one request wants of a network, and gets. The images and the tensor are the request's. */
struct cvy_job {
    const struct cvy_image *images; /* (count), encoded; NULL: the tensor */
    const float *tensor;            /* (count, 3, image size, image size), normalised */
    int count;
    double threshold; /* of detectors */

    float *logits, *probabilities;       /* (count, classes) of classifiers */
    struct cvy_detected_object *objects; /* (count, CVY_DETECTED_OBJECTS_MAX) of detectors */
    int *object_count;                   /* (count) */
    int *width, *height;                 /* (count): pixels */
    cvy_status *status;                  /* (count) */
    char *errors;                        /* (count, CVY_ERROR_SIZE): sentences about those without an answer */

    double arrived;            /* on the clock, when it was put into the queue */
    void (*done)(void *owner); /* called by the network's thread when it is answered */
    void *owner;
    struct cvy_job *next;
};

struct cvy_served {
    char *name;
    bool detects;
    const char *arch;
    int classes, image_size; /* of detectors no image size: any goes in */
    cvy_classifier *classifier;
    cvy_detector *detector;
    pthread_mutex_t counting; /* guards `counts`, of which in_queue is not kept */
    struct cvy_network_counts counts;

    int max_batch, max_queue;
    double max_delay;      /* seconds */
    struct cvy_turn *turn; /* held while computing */
    pthread_t thread;
    pthread_mutex_t mutex;  /* guards what follows */
    pthread_cond_t changed; /* of the queue, or of `state` */
    struct cvy_job *first, **last;
    int waiting; /* images in the queue */
    enum { CVY_SERVED_LOADING, CVY_SERVED_READY, CVY_SERVED_FAILED, CVY_SERVED_ENDING } state;
    bool started;
    cvy_status failed;
    char failure[CVY_ERROR_SIZE];
    struct cvy_classifier_options options; /* while loading */
};

/* `options` and what they point to stay until cvy_served_wait. Released by the caller in any case. */
CVY_CHECKED cvy_status cvy_served_init(struct cvy_served *served, const char *name,
                                       const struct cvy_classifier_options *options);
/* Starts the thread, which loads the network. */
CVY_CHECKED cvy_status cvy_served_start(struct cvy_served *served);
/* Waits until it is loaded, with what failed. */
CVY_CHECKED cvy_status cvy_served_wait(struct cvy_served *served);
/* Ends the thread after all jobs in the queue are done; further ones are refused. For a zeroed one both do nothing. */
void cvy_served_end(struct cvy_served *served);
void cvy_served_release(struct cvy_served *served);

/* Memory for the answers of job->count images. */
CVY_CHECKED cvy_status cvy_job_prepare(struct cvy_job *job, const struct cvy_served *served);
void cvy_job_release(struct cvy_job *job);
/* The sentence about an image. */
char *cvy_job_error(const struct cvy_job *job, int image);
/* CVY_UNAVAILABLE: too many images wait, or the server ends; `done` is not called then. */
CVY_CHECKED cvy_status cvy_served_put(struct cvy_served *served, struct cvy_job *job);
/* What has been counted so far. */
void cvy_served_counts(struct cvy_served *served, struct cvy_network_counts *counts);

#endif
