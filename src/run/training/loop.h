/* The steps of a training one after the other (loop.c), and what ends each epoch (epoch.c). Only for this folder. */
#ifndef CVY_RUN_TRAINING_LOOP_H
#define CVY_RUN_TRAINING_LOOP_H

#include "run/training/training.h"

/* A batch whose loss is still on the device: where the run is after its step. */
struct cvy_queued_batch {
    int64_t position, step;
    double learning_rate;
};

/* Times and the batches whose losses are still on the device. */
struct cvy_loop {
    struct cvy_run *run;
    double start, epoch_start, window_start, window_wait;
    double wait_before;                /* the epoch's waiting for images before they were started again */
    struct cvy_sum_times epoch_sums;   /* before the epoch */
    double train_seconds, val_seconds; /* of all epochs and validations of this run */
    double val_start;                  /* of the validation that is going on */
    int64_t train_steps, train_images, validations, epoch_steps;
    struct cvy_queued_batch queue[2]; /* the oldest first */
    int queued;
    bool stopping;    /* some rank of several was asked to stop */
    double step_loss; /* sum over the batches of the step whose losses are known */
    double step_parts[CVY_LOSS_PARTS];
    int64_t step_batches; /* of them */
    double learning_rate; /* of the last step */
    double scale_sum;     /* of the loss over scale_steps steps of the epoch */
    int64_t scale_steps;
    int64_t steps, first_epoch; /* of the epoch, at its end; of this run */
    bool in_epoch;              /* between the begin of an epoch and its end */
    bool cut;                   /* --run-steps has ended the run within an epoch */
};

/* Before the first step of an open run. */
void cvy_loop_begin(struct cvy_loop *loop, struct cvy_run *run);
/* Every epoch or step of this run is done, or --early-stopping ends it. */
bool cvy_loop_is_over(const struct cvy_loop *loop);
/* One optimizer step at most (none where the training goes back), and after the last one of an epoch what ends it. An
 * asked-for stop is CVY_STOPPED, with the checkpoint saved. Nothing when the loop is over. */
CVY_CHECKED cvy_status cvy_loop_step(struct cvy_loop *loop);
/* A validation between two steps: records of its batches, and nothing else is written. */
CVY_CHECKED cvy_status cvy_loop_validate(struct cvy_loop *loop, struct cvy_measures *measures);
/* A checkpoint of the present state. */
CVY_CHECKED cvy_status cvy_loop_save(struct cvy_loop *loop);
/* After the last step: what the result says about the whole run. */
void cvy_loop_finish(struct cvy_loop *loop);

/* ---- for epoch.c ---- */

/* The training images once more, in the middle of an epoch, from the place on where the state stands; the epoch has
 * waited for `before` seconds so far. */
CVY_CHECKED cvy_status cvy_loop_restart_data(struct cvy_loop *loop, double before);
/* How long the epoch has waited for images. */
double cvy_loop_wait_seconds(const struct cvy_loop *loop);
/* The epoch's last step is done and its losses are read: means, validation, records, the checkpoint; the state is that
 * of the next one's begin. With loop->cut it stays where the run ends. */
CVY_CHECKED cvy_status cvy_loop_end_epoch(struct cvy_loop *loop);
/* Reads the losses of all queued batches but the last `left`. */
CVY_CHECKED cvy_status cvy_loop_read_losses(struct cvy_loop *loop, int left);
/* Saves, and returns CVY_STOPPED. */
CVY_CHECKED cvy_status cvy_loop_stop_here(struct cvy_loop *loop);
/* The loss scale: as it was after a batch, or (scaler NULL) as it is now; 1 where the loss is not scaled. */
CVY_CHECKED cvy_status cvy_loop_loss_scale(struct cvy_loop *loop, const struct cvy_scaler *scaler, double *scale);
/* The steps since the last record, up to the one of `last`, after which the scaler is known or (NULL) can be asked for.
 * The state still counts them: it may be saved before they are on record. */
CVY_CHECKED cvy_status cvy_loop_close_window(struct cvy_loop *loop, const struct cvy_queued_batch *last,
                                             const struct cvy_scaler *scaler, struct cvy_run_window *window);
struct cvy_sum_times cvy_loop_sum_times(const struct cvy_loop *loop);
double cvy_loop_data_share(const struct cvy_loop *loop); /* of the epoch's time so far */
double cvy_loop_eta(const struct cvy_loop *loop);        /* seconds */

#endif
