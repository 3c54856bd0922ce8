/* One pass of an inference plan over a source, counted. Validation during training and cvy_evaluate both run this. */
#ifndef CVY_TRAIN_EVALUATE_H
#define CVY_TRAIN_EVALUATE_H

#include "train/metrics.h"
#include "train/source.h"
#include "train/trainer.h"

/* Images computed together in every evaluation: the same in training, `evaluate` and `classify`, so that their numbers
 * are the same bits. */
enum { CVY_EVALUATION_BATCH = 32 };

struct cvy_evaluator {
    struct cvy_network *network; /* borrowed */
    struct cvy_plan plan;
    struct cvy_feed feed;
    float *logits, *probabilities; /* (batch, classes), of the last batch */
    int64_t batch;
};
CVY_CHECKED cvy_status cvy_evaluator_open(struct cvy_evaluator *evaluator, struct cvy_network *network, int64_t batch);
void cvy_evaluator_close(struct cvy_evaluator *evaluator); /* accepts a zeroed one */
/* Compute one batch of images: `logits` and, when wanted, `probabilities` are read back. */
CVY_CHECKED cvy_status cvy_evaluator_run(struct cvy_evaluator *evaluator, const uint8_t *images,
                                         bool want_probabilities);

/* Called after each batch with the number of batches done; false ends the pass with CVY_STOPPED. */
typedef bool (*cvy_evaluate_progress)(void *context, int64_t done);
/* Count all batches of the source, at most `limit` when it is positive. Unreadable images are skipped and counted. */
CVY_CHECKED cvy_status cvy_evaluator_pass(struct cvy_evaluator *evaluator, struct cvy_source *source, int64_t limit,
                                          cvy_evaluate_progress progress, void *context, struct cvy_metrics *metrics);

#endif
