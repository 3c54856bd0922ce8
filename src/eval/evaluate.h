/* One pass of an inference plan over a source, counted. Validation during training and cvy_evaluate both run this. */
#ifndef CVY_EVAL_EVALUATE_H
#define CVY_EVAL_EVALUATE_H

#include "data/loader/source.h"
#include "eval/detection.h"
#include "eval/detection_loss.h"
#include "eval/metrics.h"
#include "network/streams.h"
#include "report/validation/validation.h"

/* Images computed together in every evaluation of such a network: the same in training, `evaluate`, `classify` and
 * `detect`, so that their numbers are the same bits. */
int32_t cvy_evaluation_batch(const struct cvy_architecture *architecture);

/* A detector's outputs for the images of the last batch: CVY_MAX_DETECTIONS rows for each image. */
enum { CVY_MAX_DETECTIONS = 100 };
struct cvy_detector_outputs {
    float *boxes, *scores;    /* (batch, CVY_MAX_DETECTIONS, 4), (batch, CVY_MAX_DETECTIONS) */
    int32_t *classes, *count; /* (batch, CVY_MAX_DETECTIONS) from 0, (batch) */
};

struct cvy_evaluator {
    struct cvy_network *network;   /* borrowed */
    struct cvy_streams streams;    /* of the batch */
    float *logits, *probabilities; /* (batch, classes), of the last batch; NULL of a detector */
    float *features;               /* (batch, feature_count), where the model has them as a result; else NULL */
    int64_t feature_count, feature_shape[3]; /* and as channels, height, width */
    struct cvy_detector_outputs found;       /* detectors only */
    int64_t batch;
    uint8_t *shown; /* an image of floats as bytes, for the collector */
};
/* The plan of the first stream: that of the whole batch where there is one and it is not computed in parts. */
static inline struct cvy_plan *cvy_evaluator_plan(const struct cvy_evaluator *evaluator)
{
    return &evaluator->streams.stream->plan;
}
CVY_CHECKED cvy_status cvy_evaluator_open(struct cvy_evaluator *evaluator, struct cvy_network *network, int64_t batch);
/* The same for a network with the parameters of `owner`'s, its own or one that was opened beside it: it reads the
 * prepared weights of `owner`, which outlives it, where its kernels want the same. */
CVY_CHECKED cvy_status cvy_evaluator_open_beside(struct cvy_evaluator *evaluator, struct cvy_network *network,
                                                 int64_t batch, struct cvy_evaluator *owner);
/* The same over a graph that has the network's table of parameters and the results of its graph for inference. Takes
 * over `graph`, as cvy_plan_open does. */
CVY_CHECKED cvy_status cvy_evaluator_open_graph(struct cvy_evaluator *evaluator, struct cvy_network *network,
                                                struct cvy_graph *graph, int64_t batch);
void cvy_evaluator_close(struct cvy_evaluator *evaluator); /* accepts a zeroed one */
/* Computes the first `count` of a batch of images and reads back their `logits` and, if wanted, `probabilities`, or the
 * detections. What stands for the others is computed, too, in part or whole: `images` has memory for all. */
CVY_CHECKED cvy_status cvy_evaluator_run(struct cvy_evaluator *evaluator, const uint8_t *images, int64_t count,
                                         bool want_probabilities);

/* Called after each batch with the number of batches done; false ends the pass with CVY_STOPPED. */
typedef bool (*cvy_evaluate_progress)(void *context, int64_t done);
/* One pass: its options and its results. Zero-initialise. */
struct cvy_pass {
    int64_t limit;                          /* batches at most; 0 or less: all */
    cvy_evaluate_progress progress;         /* NULL: none */
    void *context;                          /* of progress */
    struct cvy_collector *collector;        /* receives every image; NULL: only the sums are wanted */
    struct cvy_coco_evaluation *coco;       /* detectors only: receives detections and ground truth */
    struct cvy_picture_collector *pictures; /* detectors only: takes some of the images in; NULL: none is wanted */
    struct cvy_detection_loss *losses;      /* detectors in floats only (it reads the plan of a whole batch): computes
                                             * them; NULL: they are not wanted */
    double loss_sums[CVY_EVAL_LOSSES];      /* of them, over the images */
    enum cvy_area_rule area_rule;
    const struct cvy_dataset *dataset; /* names the collector's images, has the objects; NULL: there is none */
    double *latency;                   /* takes in the seconds of each batch (cvy_source_batches); NULL: not wanted */
    struct cvy_metrics metrics;        /* top_k is set by the caller */
    int64_t batches;                   /* done */
    double seconds, wait;              /* of the pass; of that, for data */
};
/* Count the batches of the source. Unreadable images are skipped and counted. */
CVY_CHECKED cvy_status cvy_evaluator_pass(struct cvy_evaluator *evaluator, struct cvy_source *source,
                                          struct cvy_pass *pass);

#endif
