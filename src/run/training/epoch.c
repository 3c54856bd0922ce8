/* The end of an epoch: its means, the validation, the best weights, records and the checkpoint. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/system.h"
#include "run/output/output.h"
#include "run/ranks/ranks.h"
#include "run/training/loop.h"

/* Tells how far the validation is; false when the run was asked to stop. */
static bool validation_progress(void *context, int64_t done)
{
    const struct cvy_loop *loop = context;
    struct cvy_run *run = loop->run;
    struct cvy_train_progress progress = cvy_run_validation_progress(run, done, loop->val_start);

    progress.epoch = run->state.progress.epoch;
    if (run->state.progress.loss_count > 0)
        progress.loss = run->state.progress.loss_sum / (double)run->state.progress.loss_count;
    progress.learning_rate = loop->learning_rate;
    progress.eta_seconds = cvy_loop_eta(loop);
    if (run->events && run->events->progress)
        run->events->progress(run->events->context, &progress);
    return !cvy_run_stopping(run);
}

static cvy_status validate_weights(struct cvy_loop *loop, struct cvy_run_epoch *epoch)
{
    CVY_TRY(cvy_run_validate(loop->run, false, validation_progress, loop, &epoch->val));
    epoch->public.validated = true;
    epoch->public.val = epoch->val.measures;
    return CVY_OK;
}

/* The average first: what is kept of a pass is that of the weights. */
static cvy_status validate_both(struct cvy_loop *loop, struct cvy_run_epoch *epoch)
{
    struct cvy_train_epoch *public = &epoch->public;

    if (loop->run->state.network.average.weights) {
        CVY_TRY(cvy_run_validate(loop->run, true, validation_progress, loop, &epoch->val_ema));
        public->averaged = true;
        public->val_ema = epoch->val_ema.measures;
    }
    return validate_weights(loop, epoch);
}

static cvy_status validate(struct cvy_loop *loop, struct cvy_run_epoch *epoch, bool both)
{
    cvy_status status;

    loop->val_start = cvy_clock();
    status = both ? validate_both(loop, epoch) : validate_weights(loop, epoch);
    if (status == CVY_STOPPED && !loop->cut) /* where all is saved */
        return cvy_loop_stop_here(loop);
    CVY_TRY(status);
    loop->val_seconds += cvy_clock() - loop->val_start;
    loop->validations++;
    return CVY_OK;
}

/* Means over the steps of the epoch. */
static void name_parts(const struct cvy_train_state *state, struct cvy_measures *parts)
{
    parts->count = CVY_LOSS_PARTS;
    for (int i = 0; i < CVY_LOSS_PARTS; i++) {
        snprintf(parts->list[i].name, sizeof parts->list[i].name, "%s", cvy_loss_part_names[i]);
        parts->list[i].value = state->loss_count > 0 ? state->part_sums[i] / (double)state->loss_count : 0;
    }
}

/* As TensorFlow's program has the loss: weight decay is a term of it. That of the weights at the end of the epoch. */
static cvy_status add_total_loss(const struct cvy_run *run, struct cvy_train_epoch *epoch)
{
    double l2;

    CVY_TRY(cvy_optimizer_l2_loss(&run->state.trainer.optimizer, &run->state.network.store, &l2));
    epoch->parts = (struct cvy_measures){
        .list = {{"l2_loss", l2}, {"total_loss", epoch->train_loss + l2}},
        .count = 2,
    };
    return CVY_OK;
}

static cvy_status fill_epoch(struct cvy_loop *loop, struct cvy_run_epoch *epoch)
{
    struct cvy_run *run = loop->run;
    const struct cvy_train_state *state = &run->state.progress;
    const double seconds = cvy_clock() - loop->epoch_start;
    const struct cvy_sum_times sums = cvy_loop_sum_times(loop), *before = &loop->epoch_sums;
    const struct cvy_queued_batch end = {state->position, state->step, loop->learning_rate};

    epoch->wait = loop->epoch_steps > 0 ? cvy_loop_wait_seconds(loop) : 0;
    CVY_TRY(cvy_ranks_gather_times(&run->ranks, seconds, epoch->wait, sums.waited - before->waited));
    if (state->window_count > 0)
        CVY_TRY(cvy_loop_close_window(loop, &end, NULL, &epoch->rest));
    epoch->step = state->step;
    epoch->steps = loop->epoch_steps;
    epoch->images = cvy_run_step_images(run, state->position, loop->epoch_steps);
    epoch->ranks = run->ranks.times;
    epoch->world = run->ranks.comm.world;
    epoch->moved = sums.moved - before->moved;
    epoch->exposed = sums.exposed - before->exposed;
    cvy_source_get_stats(&run->data.train_source, &epoch->loading);
    CVY_TRY(cvy_loop_loss_scale(loop, NULL, &epoch->scale));
    if (loop->scale_steps > 0)
        epoch->scale = loop->scale_sum / (double)loop->scale_steps;
    epoch->public = (struct cvy_train_epoch){
        .epoch = state->epoch,
        .epochs = run->config->options.epochs,
        .classes = run->state.network.model.num_classes,
        .train_loss = state->loss_count > 0 ? state->loss_sum / (double)state->loss_count : 0,
        .learning_rate = loop->learning_rate,
        .images_per_second = seconds > 0 ? (double)epoch->images / seconds : 0,
        .data_share = cvy_loop_data_share(loop),
        .seconds = seconds,
    };
    CVY_TRY(cvy_ranks_count_bad(run, &run->state.bad_images));
    epoch->public.bad_images = run->state.bad_images;
    if (epoch->ranks)
        cvy_rank_times_text(epoch->ranks, epoch->world, run->ranks.comm.names, epoch->public.ranks,
                            sizeof epoch->public.ranks);
    if (!run->state.trainer.parts)
        return add_total_loss(run, &epoch->public);
    name_parts(state, &epoch->public.parts);
    return CVY_OK;
}

/* The state moves to the start of the next epoch; best weights, logs and the checkpoint follow in this order, so that a
 * run killed between any two of them does the epoch's end again from the last checkpoint. */
static cvy_status finish_epoch(struct cvy_loop *loop, struct cvy_run_epoch *epoch)
{
    struct cvy_run *run = loop->run;
    struct cvy_train_state *state = &run->state.progress;

    epoch->public.best = cvy_run_update_best(run, &epoch->public);
    state->epoch++;
    state->position = state->loss_count = state->window_count = state->skipped = 0;
    state->loss_sum = state->window_loss_sum = 0;
    memset(state->part_sums, 0, sizeof state->part_sums);
    if (epoch->public.best)
        CVY_TRY(cvy_run_save_best(run));
    CVY_TRY(cvy_run_log_epoch(&run->state.log, epoch));
    CVY_TRY(cvy_run_report_epoch(run, epoch));
    /* An epoch whose checkpoint cannot be written is told of all the same: its records are there. */
    const cvy_status status = cvy_run_save_epoch(run);
    if (run->events && run->events->epoch)
        run->events->epoch(run->events->context, &epoch->public);
    return status;
}

/* The records of what there is of an epoch within which the run ends. The checkpoint is that of a stop, and who
 * continues from it cuts them back: the epoch has its own at its end, and may be the best one only then. */
static cvy_status finish_cut(struct cvy_loop *loop, struct cvy_run_epoch *epoch)
{
    struct cvy_run *run = loop->run;

    CVY_TRY(cvy_run_log_epoch(&run->state.log, epoch));
    CVY_TRY(cvy_run_report_epoch(run, epoch));
    if (run->events && run->events->epoch)
        run->events->epoch(run->events->context, &epoch->public);
    return CVY_OK;
}

cvy_status cvy_loop_end_epoch(struct cvy_loop *loop)
{
    struct cvy_run *run = loop->run;
    struct cvy_run_epoch epoch = {.step = 0};

    if (loop->cut) /* before a validation computes other running statistics */
        CVY_TRY(cvy_run_save(run));
    CVY_TRY(fill_epoch(loop, &epoch));
    if (cvy_run_validates(&run->config->options, run->state.progress.epoch))
        CVY_TRY(validate(loop, &epoch, true));
    if (run->state.progress.epoch == loop->first_epoch)
        cvy_run_describe_caches(&run->data);
    return loop->cut ? finish_cut(loop, &epoch) : finish_epoch(loop, &epoch);
}

cvy_status cvy_loop_validate(struct cvy_loop *loop, struct cvy_measures *measures)
{
    struct cvy_run *run = loop->run;
    struct cvy_run_epoch epoch = {.step = 0};
    const double start = cvy_clock(), waited = cvy_loop_wait_seconds(loop);

    CVY_TRY(cvy_loop_read_losses(loop, 0));
    run->state.network.store.version++; /* the inference plan folds the new weights */
    CVY_TRY(validate(loop, &epoch, false));
    if (loop->in_epoch && run->config->options.precise_bn > 0) /* which has read the epoch's first images */
        CVY_TRY(cvy_loop_restart_data(loop, waited));
    /* The epoch's times are those of its training. */
    loop->epoch_start += cvy_clock() - start;
    loop->window_start += cvy_clock() - start;
    *measures = epoch.public.val;
    return CVY_OK;
}
