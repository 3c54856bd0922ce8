/* The step: bind a batch, forward and backward, sums over ranks, the optimizer. Training and `bench train` both run
 * this. With accumulated gradients a step takes several batches, one call each. */
#ifndef CVY_TRAINER_TRAINER_H
#define CVY_TRAINER_TRAINER_H

#include "data/loader/loader.h"
#include "data/transform/mixup.h"
#include "network/batch_upload.h"
#include "trainer/optimizer.h"
#include "trainer/reducer.h"

struct cvy_trainer {
    struct cvy_network *network; /* borrowed */
    struct cvy_comm *comm;       /* borrowed */
    struct cvy_plan plan;
    struct cvy_plan short_plan; /* of the smaller batch that ends an epoch: cvy_trainer_open_short; else zeroed */
    struct cvy_batch_upload upload;
    struct cvy_optimizer optimizer;
    struct cvy_reducer reducer;
    struct cvy_scaler *scaler; /* device memory; its scale is the input "loss_scale" */
    struct cvy_rates *rates;   /* device memory: of the step that runs */
    bool scaling;              /* else the scale is 1 and stays that */
    int64_t accumulate;        /* batches of a step: 1 or more */
    int64_t done;              /* of them, since the last step */
    int64_t batches;           /* since the start of the training: the average weighs them by their number */
    /* What each of the last two batches leaves for the host: numbers of the plan, and the scaler after them. */
    struct cvy_plan_numbers numbers, short_numbers;
    bool shorter[2]; /* which of the plans those of the last two batches are of */
    char results[2][CVY_PLAN_NUMBER_BYTES + sizeof(struct cvy_scaler)];
    int64_t sent;           /* batches so far */
    int lag;                /* batches that the device may still work on while the host continues: 1, or 0 */
    struct cvy_mixup mixup; /* of networks with mixup; alpha 0 from the start: nothing is mixed */
    int32_t *partner;       /* (N), of the last batch; NULL without mixup */
    float *coefficient;
    float *class_weights; /* device memory, the input "class_weights"; NULL without */
    bool parts;           /* the loss has parts, and the plan reads boxes instead of one label an image */
};
CVY_CHECKED cvy_status cvy_trainer_open(struct cvy_trainer *trainer, struct cvy_network *network, struct cvy_comm *comm,
                                        const struct cvy_optimizer_options *options, int64_t batch);
/* Batches of `batch` images too, fewer than the others: a plan of their own over the same weights. */
CVY_CHECKED cvy_status cvy_trainer_open_short(struct cvy_trainer *trainer, int64_t batch);
void cvy_trainer_close(struct cvy_trainer *trainer); /* accepts a zeroed one */
/* The state of the loss scale, after all queued steps; all zero where the loss is not scaled. */
CVY_CHECKED cvy_status cvy_trainer_get_scaler(struct cvy_trainer *trainer, struct cvy_scaler *scaler);
/* Restores the state of an earlier run; does nothing where the loss is not scaled or *scaler is all zero. */
CVY_CHECKED cvy_status cvy_trainer_set_scaler(struct cvy_trainer *trainer, const struct cvy_scaler *scaler);
/* How the samples of the steps to come are mixed, for a network with mixup. */
void cvy_trainer_set_mixup(struct cvy_trainer *trainer, const struct cvy_mixup *mixup);
/* How much each class counts in the loss, (classes), for a network with class weights; 1 from the start. */
CVY_CHECKED cvy_status cvy_trainer_set_class_weights(struct cvy_trainer *trainer, const float *weights);
/* Queue the pass over one batch, and after the last batch of a step (trainer->accumulate of them) the optimizer's step
 * with the mean of their gradients: where the device captures passes, all of that is one capture. The moving average is
 * updated after every batch, as in the reference program. A batch that holds as many samples as the plan of the short
 * batches is one of those, and its mean is over them alone. */
CVY_CHECKED cvy_status cvy_trainer_step(struct cvy_trainer *trainer, const struct cvy_batch *batch,
                                        double learning_rate);
/* The parts of the loss, where it has some: a detector's. */
enum { CVY_LOSS_LOCALIZATION, CVY_LOSS_CLASSIFICATION, CVY_LOSS_REGULARIZATION, CVY_LOSS_PARTS };
extern const char *const cvy_loss_part_names[CVY_LOSS_PARTS]; /* "localization_loss", ... */
/* The results of a batch. */
struct cvy_trainer_result {
    float loss; /* before the update */
    float parts[CVY_LOSS_PARTS];
    struct cvy_scaler scaler; /* after the update; all zero where the loss is not scaled */
};
/* The result of the last batch (back 0) or the one before it (1). Waits for that batch: read it as late as possible. */
CVY_CHECKED cvy_status cvy_trainer_result(struct cvy_trainer *trainer, int back, struct cvy_trainer_result *result);
/* The loss of the last batch alone. */
CVY_CHECKED cvy_status cvy_trainer_loss(struct cvy_trainer *trainer, float *loss);

#endif
