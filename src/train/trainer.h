/* The step: bind a batch, forward and backward, sums over ranks, the optimizer. Training and `bench train` both run
 * this. With accumulated gradients a step takes several batches, one call each. */
#ifndef CVY_TRAIN_TRAINER_H
#define CVY_TRAIN_TRAINER_H

#include "data/loader.h"
#include "train/optimizer.h"

/* A batch where the device can read it: the loader's memory itself, or two buffers used in turn. */
struct cvy_feed {
    cvy_device *device; /* borrowed */
    size_t image_bytes, label_bytes;
    void *images[2], *labels[2]; /* NULL where the device reads the host's memory */
    int turn;
    bool fed; /* the next batch is in its place already */
};
CVY_CHECKED cvy_status cvy_feed_open(struct cvy_feed *feed, cvy_device *device, int64_t batch, int64_t image_size);
void cvy_feed_close(struct cvy_feed *feed); /* accepts a zeroed one */
/* Bring a batch to the device beside what it still computes; the next cvy_feed_bind finds it there. */
CVY_CHECKED cvy_status cvy_feed_ahead(struct cvy_feed *feed, const uint8_t *images, const int32_t *labels);
/* Bind "image" and, unless labels is NULL, "target". The batch stays in use until the second next call. */
CVY_CHECKED cvy_status cvy_feed_bind(struct cvy_feed *feed, struct cvy_plan *plan, const uint8_t *images,
                                     const int32_t *labels);

struct cvy_trainer {
    struct cvy_network *network; /* borrowed */
    struct cvy_comm *comm;       /* borrowed */
    struct cvy_plan plan;
    struct cvy_feed feed;
    struct cvy_optimizer optimizer;
    struct cvy_reducer reducer;
    struct cvy_scaler *scaler; /* device memory; its scale is the input "loss_scale" */
    bool scaling;              /* else the scale is 1 and stays that */
    int64_t accumulate;        /* batches of a step: 1 or more */
    int64_t done;              /* of them, since the last step */
    int64_t batches;           /* since the start of the training: the average weighs them by their number */
};
CVY_CHECKED cvy_status cvy_trainer_open(struct cvy_trainer *trainer, struct cvy_network *network, struct cvy_comm *comm,
                                        const struct cvy_optimizer_options *options, int64_t batch);
void cvy_trainer_close(struct cvy_trainer *trainer); /* accepts a zeroed one */
/* The state of the loss scale, after all queued steps; all zero where the loss is not scaled. */
CVY_CHECKED cvy_status cvy_trainer_get_scaler(struct cvy_trainer *trainer, struct cvy_scaler *scaler);
/* Put back what an earlier run had; nothing where the loss is not scaled or *scaler is all zero. */
CVY_CHECKED cvy_status cvy_trainer_set_scaler(struct cvy_trainer *trainer, const struct cvy_scaler *scaler);
/* Begin to bring the batch of the next step to the device while the last step still runs there. May be left out. */
CVY_CHECKED cvy_status cvy_trainer_feed(struct cvy_trainer *trainer, const struct cvy_batch *batch);
/* Queue the pass over one batch, and behind the last batch of a step (trainer->accumulate of them) the optimizer's step
 * with the mean of their gradients. The loss of it can be read until the next call. The moving average moves behind
 * every batch, as the reference program has it. */
CVY_CHECKED cvy_status cvy_trainer_step(struct cvy_trainer *trainer, const struct cvy_batch *batch,
                                        double learning_rate);
/* The loss of the last batch, before the update. Waits for it: read it as late as possible. */
CVY_CHECKED cvy_status cvy_trainer_loss(struct cvy_trainer *trainer, float *loss);

#endif
