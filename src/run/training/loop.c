/* The training loop: steps, validation, checkpoints, until the end or a stop. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "run/output/output.h"
#include "run/ranks/ranks.h"
#include "run/training/training.h"

enum { NONFINITE_LIMIT = 10 }; /* steps in a row with a loss that is no number: the weights are lost */

/* Where the epoch began with larger or smaller steps, state->skipped makes up for it. The loader knows steps of the
 * present size alone: it leaves out less than one of them, and begins this many of them later. */
static int64_t smaller_steps(const struct cvy_train_state *state)
{
    return state->skipped < 0 ? (state->step_images - 1 - state->skipped) / state->step_images : 0;
}

static cvy_status start_epoch(struct cvy_run *run)
{
    const struct cvy_train_state *state = &run->state.progress;
    const int64_t counted = smaller_steps(state);

    cvy_source_skip(&run->data.train_source, state->epoch, state->skipped + counted * state->step_images);
    return cvy_source_start(&run->data.train_source, state->epoch,
                            (state->position - counted) * run->config->accumulate);
}

/* The learning rate of the step after `step` steps and `position` of this epoch. A length in epochs is one in images:
 * steps before it count as if all had been of the present size. */
static double rate_at(const struct cvy_run *run, int64_t step, int64_t position)
{
    const struct cvy_train_state *state = &run->state.progress;

    if (run->config->options.steps == 0)
        step = state->epoch * run->config->steps_per_epoch +
               (state->skipped + position * state->step_images) / state->step_images;
    return ldexp(cvy_schedule_rate(&run->config->schedule, state->epoch, step), -(int)state->rewinds);
}

/* Steps until the end of this run. */
static int64_t steps_left(const struct cvy_run *run)
{
    const int64_t later = (run->config->end_epoch - run->state.progress.epoch - 1) * run->config->steps_per_epoch;
    const int64_t whole = later + cvy_run_epoch_steps(run) - run->state.progress.position;
    const int64_t limit = run->config->options.steps - run->state.progress.step;

    return run->config->options.steps > 0 && limit < whole ? limit : whole;
}

/* A batch whose loss is still on the device: where the run is after its step. */
struct queued_batch {
    int64_t position, step;
    double learning_rate;
};

/* Times and the batches whose losses are still on the device. */
struct loop {
    struct cvy_run *run;
    double start, epoch_start, window_start, window_wait;
    struct cvy_sum_times epoch_sums;   /* before the epoch */
    double train_seconds, val_seconds; /* of all epochs and validations of this run */
    double val_start;                  /* of the validation that is going on */
    int64_t train_steps, validations, epoch_steps;
    struct queued_batch queue[2]; /* the oldest first */
    int queued;
    bool stopping;    /* some rank of several was asked to stop */
    double step_loss; /* sum over the batches of the step whose losses are known */
    double step_parts[CVY_LOSS_PARTS];
    int64_t step_batches; /* of them */
    double learning_rate; /* of the last step */
    double scale_sum;     /* of the loss over scale_steps steps of the epoch */
    int64_t scale_steps;
};

static int64_t images_per_step(const struct cvy_run *run)
{
    return run->config->options.batch_size * run->ranks.comm.world * run->config->accumulate;
}

static double window_reset(struct loop *loop)
{
    const double now = cvy_clock();
    const double seconds = now - loop->window_start;

    loop->window_start = now;
    loop->window_wait = cvy_source_wait_seconds(&loop->run->data.train_source);
    return seconds;
}

static struct cvy_sum_times sum_times(const struct loop *loop)
{
    return cvy_sum_times(&loop->run->ranks.comm, loop->run->state.trainer.reducer.worker);
}

/* ---- the loss ---- */

static cvy_status check_loss(struct loop *loop, double loss, int64_t step)
{
    struct cvy_train_state *state = &loop->run->state.progress;

    if (isfinite(loss)) {
        state->nonfinite = 0;
        return CVY_OK;
    }
    if (++state->nonfinite < NONFINITE_LIMIT)
        return CVY_OK;
    return cvy_fail(CVY_FAILED,
                    "the loss was not a finite number in %d steps in a row, up to step %lld: training has "
                    "diverged; try a lower --lr",
                    NONFINITE_LIMIT, (long long)step);
}

/* The loss scale: as it was after a batch, or (scaler NULL) as it is now; 1 where the loss is not scaled. */
static cvy_status loss_scale(struct loop *loop, const struct cvy_scaler *scaler, double *scale)
{
    struct cvy_scaler now = {.scale = 1};

    if (loop->run->state.trainer.scaling) {
        if (scaler)
            now = *scaler;
        else
            CVY_TRY(cvy_trainer_get_scaler(&loop->run->state.trainer, &now));
        CVY_TRY(cvy_ranks_compare_scalers(&loop->run->ranks, &now));
    }
    *scale = (double)now.scale;
    return CVY_OK;
}

/* The steps since the last record, up to the one of `last`, after which the scaler is known or (NULL) can be asked for.
 * The state still counts them: it may be saved before they are on record. */
static cvy_status close_window(struct loop *loop, const struct queued_batch *last, const struct cvy_scaler *scaler,
                               struct cvy_run_window *window)
{
    struct cvy_run *run = loop->run;
    const struct cvy_train_state *state = &run->state.progress;
    const double wait = cvy_source_wait_seconds(&run->data.train_source) - loop->window_wait;
    double scale;

    CVY_TRY(loss_scale(loop, scaler, &scale));
    *window = (struct cvy_run_window){
        .epoch = state->epoch,
        .position = last->position,
        .step = last->step,
        .steps = state->window_count,
        .images = state->window_count * images_per_step(run),
        .loss = state->window_loss_sum / (double)state->window_count,
        .learning_rate = last->learning_rate,
        .wait = wait,
        .scale = scale,
        .scaling = run->state.trainer.scaling,
    };
    window->seconds = window_reset(loop);
    loop->scale_sum += window->scale * (double)window->steps;
    loop->scale_steps += window->steps;
    return CVY_OK;
}

/* Take the oldest batch out of the queue, and read its loss. */
static cvy_status read_oldest(struct loop *loop, struct queued_batch *batch, struct cvy_trainer_result *result)
{
    const int back = --loop->queued;

    *batch = loop->queue[0];
    loop->queue[0] = loop->queue[1];
    return cvy_trainer_result(&loop->run->state.trainer, back, result);
}

/* A step's loss is the mean over its batches, and is booked where it belongs. */
static cvy_status read_oldest_loss(struct loop *loop)
{
    struct cvy_run *run = loop->run;
    struct cvy_train_state *state = &run->state.progress;
    struct cvy_run_window window;
    struct cvy_trainer_result result;
    struct queued_batch batch;
    double loss, values[1 + CVY_LOSS_PARTS];

    CVY_TRY(read_oldest(loop, &batch, &result));
    values[0] = (double)result.loss;
    for (int i = 0; i < CVY_LOSS_PARTS; i++)
        values[1 + i] = (double)result.parts[i];
    CVY_TRY(cvy_ranks_reduce_loss(&run->ranks, values, 1 + CVY_LOSS_PARTS, &loop->stopping));
    loop->step_loss += values[0];
    for (int i = 0; i < CVY_LOSS_PARTS; i++)
        loop->step_parts[i] += values[1 + i];
    if (++loop->step_batches < run->config->accumulate)
        return CVY_OK;
    loss = loop->step_loss / (double)run->config->accumulate;
    loop->step_loss = 0;
    loop->step_batches = 0;
    for (int i = 0; i < CVY_LOSS_PARTS; i++) {
        state->part_sums[i] += loop->step_parts[i] / (double)run->config->accumulate;
        loop->step_parts[i] = 0;
    }
    state->loss_sum += loss;
    state->loss_count++;
    state->window_loss_sum += loss;
    state->window_count++;
    CVY_TRY(cvy_run_log_step(&run->state.log, state->epoch, batch.step, loss, batch.learning_rate));
    if (batch.position % run->config->options.print_freq == 0) {
        CVY_TRY(close_window(loop, &batch, &result.scaler, &window));
        CVY_TRY(cvy_run_log_window(&run->state.log, &window));
        state->window_loss_sum = 0;
        state->window_count = 0;
    }
    cvy_run_watch_loss(run, batch.step, loss);
    if (cvy_run_must_rewind(run)) /* which is told when it is done */
        return CVY_OK;
    CVY_TRY(cvy_run_report_step(run, batch.position, batch.step, loss, &result.scaler));
    return check_loss(loop, loss, batch.step);
}

/* Reads the losses of all queued batches but the last `left`. */
static cvy_status read_losses(struct loop *loop, int left)
{
    while (loop->queued > left)
        CVY_TRY(read_oldest_loss(loop));
    return CVY_OK;
}

/* ---- the end, before the end ---- */

static cvy_status stop_here(struct loop *loop)
{
    CVY_TRY(read_losses(loop, 0));
    CVY_TRY(cvy_run_save(loop->run));
    return cvy_fail(CVY_STOPPED, "stopped after step %lld of epoch %lld%s",
                    (long long)loop->run->state.progress.position, (long long)loop->run->state.progress.epoch,
                    loop->run->config->options.no_checkpoints ? "; no checkpoint is kept"
                                                              : "; the checkpoint is saved");
}

/* ---- progress ---- */

static double data_share(const struct loop *loop)
{
    const double seconds = cvy_clock() - loop->epoch_start;

    return seconds > 0 ? cvy_source_wait_seconds(&loop->run->data.train_source) / seconds : 0;
}

static double eta(const struct loop *loop)
{
    const struct cvy_run *run = loop->run;
    const double spent = loop->train_seconds + cvy_clock() - loop->epoch_start;
    const int64_t steps = loop->train_steps + loop->epoch_steps,
                  epochs = run->config->end_epoch - run->state.progress.epoch;
    const double left = (double)steps_left(run);
    const int64_t max = run->config->options.eval_count > 0 ? run->config->options.eval_count : epochs;
    const double validation = loop->validations ? loop->val_seconds / (double)loop->validations : 0;

    return steps > 0 ? spent / (double)steps * left + validation * (double)(max < epochs ? max : epochs) : 0;
}

static void report_step(const struct loop *loop)
{
    struct cvy_run *run = loop->run;
    const struct cvy_train_state *state = &run->state.progress;
    const double seconds = cvy_clock() - loop->epoch_start;
    const struct cvy_train_progress progress = {
        .epoch = state->epoch,
        .epochs = run->config->options.epochs,
        .step = state->position,
        .steps = cvy_run_epoch_steps(run),
        .loss = state->loss_count > 0 ? state->loss_sum / (double)state->loss_count : 0,
        .learning_rate = loop->learning_rate,
        .images_per_second = seconds > 0 ? (double)(loop->epoch_steps * images_per_step(run)) / seconds : 0,
        .data_share = data_share(loop),
        .eta_seconds = eta(loop),
    };

    if (run->events && run->events->progress)
        run->events->progress(run->events->context, &progress);
}

/* ---- one epoch ---- */

static cvy_status check_strict(const struct cvy_run_config *config, const struct cvy_batch *batch)
{
    for (int32_t i = 0; config->options.strict && i < batch->count; i++) {
        if (batch->status[i] != CVY_OK)
            return cvy_fail(batch->status[i], "%s (--strict)", batch->errors[i]);
    }
    return CVY_OK;
}

/* One batch of a step. While the device works on it the host reads the loss of the one before, where it can. */
static cvy_status train_batch(struct loop *loop, bool first)
{
    struct cvy_run *run = loop->run;
    const struct cvy_train_state *state = &run->state.progress;
    const struct cvy_batch *batch;

    CVY_TRY(cvy_source_next(&run->data.train_source, &batch));
    if (!batch)
        return cvy_fail(CVY_FAILED, "the data ended after %lld of %lld steps", (long long)state->position,
                        (long long)cvy_run_epoch_steps(run));
    CVY_TRY(check_strict(run->config, batch));
    if (first && loop->stopping)
        return stop_here(loop);
    if (run->config->options
            .quantize) /* the ranges that values are rounded in: rank 0's, which are those of a run that continues */
        CVY_TRY(cvy_ranks_broadcast_statistics(run, &run->state.network.store));
    if (first)
        loop->learning_rate = rate_at(run, state->step, state->position);
    CVY_TRY(cvy_trainer_step(&run->state.trainer, batch, loop->learning_rate));
    loop->queue[loop->queued++] = (struct queued_batch){
        .position = state->position + 1, .step = state->step + 1, .learning_rate = loop->learning_rate};
    return read_losses(loop, run->state.trainer.lag);
}

static cvy_status train_step(struct loop *loop)
{
    struct cvy_run *run = loop->run;

    for (int64_t i = 0; i < run->config->accumulate; i++)
        CVY_TRY(train_batch(loop, i == 0));
    run->state.progress.position++;
    run->state.progress.step++;
    loop->epoch_steps++;
    return CVY_OK;
}

/* The state before a step, where it is time to keep one. */
static cvy_status keep_state(struct loop *loop)
{
    if (!cvy_run_snapshot_is_due(loop->run))
        return CVY_OK;
    CVY_TRY(read_losses(loop, 0));
    return cvy_run_take_snapshot(loop->run);
}

/* After a divergence, with all losses read: the epoch continues from its last good state. */
static cvy_status go_back(struct loop *loop)
{
    if (!cvy_run_must_rewind(loop->run))
        return CVY_OK;
    CVY_TRY(cvy_run_rewind(loop->run));
    CVY_TRY(start_epoch(loop->run));
    (void)window_reset(loop);
    return CVY_OK;
}

static cvy_status train_epoch(struct loop *loop)
{
    struct cvy_run *run = loop->run;
    struct cvy_train_state *state = &run->state.progress;
    const int64_t every = run->config->options.checkpoint_every, steps = cvy_run_epoch_steps(run);

    /* The last step's: a run that was stopped after the last step of an epoch has none left, and reports this rate. */
    const int64_t last = state->position > 0 ? 1 : 0;
    loop->learning_rate = rate_at(run, state->step - last, state->position - last);
    loop->epoch_start = cvy_clock();
    loop->epoch_sums = sum_times(loop);
    loop->epoch_steps = loop->scale_steps = 0;
    loop->scale_sum = 0;
    if (state->position < steps)
        CVY_TRY(start_epoch(run));
    (void)window_reset(loop);
    do {
        CVY_TRY(go_back(loop)); /* a checkpoint may have been saved just before that */
        while (state->position < steps && !cvy_run_must_rewind(run)) {
            CVY_TRY(keep_state(loop));
            if (cvy_run_must_rewind(run)) /* which the losses that were read for it have shown */
                break;
            CVY_TRY(train_step(loop));
            report_step(loop);
            if (run->ranks.comm.world == 1 && cvy_run_stopping())
                return stop_here(loop);
            if (every > 0 && state->step % every == 0) {
                CVY_TRY(read_losses(loop, 0));
                CVY_TRY(cvy_run_save(run));
            }
        }
        CVY_TRY(read_losses(loop, 0));
        if (loop->stopping)
            return stop_here(loop);
    } while (cvy_run_must_rewind(run));
    run->state.network.store.version++; /* the inference plan folds the new weights */
    loop->train_seconds += cvy_clock() - loop->epoch_start;
    loop->train_steps += loop->epoch_steps;
    return CVY_OK;
}

/* Tells how far the validation is; false when the run was asked to stop. */
static bool validation_progress(void *context, int64_t done)
{
    const struct loop *loop = context;
    struct cvy_run *run = loop->run;
    struct cvy_train_progress progress = cvy_run_validation_progress(run, done, loop->val_start);

    progress.epoch = run->state.progress.epoch;
    if (run->state.progress.loss_count > 0)
        progress.loss = run->state.progress.loss_sum / (double)run->state.progress.loss_count;
    progress.learning_rate = loop->learning_rate;
    progress.eta_seconds = eta(loop);
    if (run->events && run->events->progress)
        run->events->progress(run->events->context, &progress);
    return !cvy_run_stopping();
}

/* The average first: what is kept of a pass is that of the weights. */
static cvy_status validate_both(struct loop *loop, struct cvy_run_epoch *epoch)
{
    struct cvy_train_epoch *public = &epoch->public;

    if (loop->run->state.network.average.weights) {
        CVY_TRY(cvy_run_validate(loop->run, true, validation_progress, loop, &epoch->val_ema));
        public->averaged = true;
        public->val_ema = epoch->val_ema.measures;
    }
    CVY_TRY(cvy_run_validate(loop->run, false, validation_progress, loop, &epoch->val));
    public->validated = true;
    public->val = epoch->val.measures;
    return CVY_OK;
}

static cvy_status validate(struct loop *loop, struct cvy_run_epoch *epoch)
{
    cvy_status status;

    loop->val_start = cvy_clock();
    status = validate_both(loop, epoch);
    if (status == CVY_STOPPED)
        return stop_here(loop);
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

static cvy_status fill_epoch(struct loop *loop, struct cvy_run_epoch *epoch)
{
    struct cvy_run *run = loop->run;
    const struct cvy_train_state *state = &run->state.progress;
    const double seconds = cvy_clock() - loop->epoch_start;
    const struct cvy_sum_times sums = sum_times(loop), *before = &loop->epoch_sums;
    const struct queued_batch end = {state->position, state->step, loop->learning_rate};

    epoch->wait = loop->epoch_steps > 0 ? cvy_source_wait_seconds(&run->data.train_source) : 0;
    CVY_TRY(cvy_ranks_gather_times(&run->ranks, seconds, epoch->wait, sums.waited - before->waited));
    if (state->window_count > 0)
        CVY_TRY(close_window(loop, &end, NULL, &epoch->rest));
    epoch->step = state->step;
    epoch->steps = loop->epoch_steps;
    epoch->images = loop->epoch_steps * images_per_step(run);
    epoch->ranks = run->ranks.times;
    epoch->world = run->ranks.comm.world;
    epoch->moved = sums.moved - before->moved;
    epoch->exposed = sums.exposed - before->exposed;
    cvy_source_get_stats(&run->data.train_source, &epoch->loading);
    CVY_TRY(loss_scale(loop, NULL, &epoch->scale));
    if (loop->scale_steps > 0)
        epoch->scale = loop->scale_sum / (double)loop->scale_steps;
    epoch->public = (struct cvy_train_epoch){
        .epoch = state->epoch,
        .epochs = run->config->options.epochs,
        .classes = run->state.network.model.num_classes,
        .train_loss = state->loss_count > 0 ? state->loss_sum / (double)state->loss_count : 0,
        .learning_rate = loop->learning_rate,
        .images_per_second = seconds > 0 ? (double)epoch->images / seconds : 0,
        .data_share = data_share(loop),
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
static cvy_status finish_epoch(struct loop *loop, struct cvy_run_epoch *epoch)
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
    CVY_TRY(cvy_run_save_epoch(run));
    if (run->events && run->events->epoch)
        run->events->epoch(run->events->context, &epoch->public);
    return CVY_OK;
}

cvy_status cvy_run_loop(struct cvy_run *run)
{
    struct loop loop = {.run = run, .start = cvy_clock()};
    const int64_t first = run->state.progress.epoch;

    if (run->state.progress.epoch >= run->config->options.epochs)
        cvy_log(CVY_LOG_INFO, "all %lld epochs of %s are done", (long long)run->config->options.epochs,
                cvy_quote(run->config->paths.folder));
    while (run->state.progress.epoch < run->config->end_epoch && !cvy_run_early_stop(run)) {
        struct cvy_run_epoch epoch = {.step = 0};

        CVY_TRY(train_epoch(&loop));
        CVY_TRY(fill_epoch(&loop, &epoch));
        if (cvy_run_validates(&run->config->options, run->state.progress.epoch))
            CVY_TRY(validate(&loop, &epoch));
        if (run->state.progress.epoch == first)
            cvy_run_describe_caches(&run->data);
        CVY_TRY(finish_epoch(&loop, &epoch));
    }
    if (cvy_run_early_stop(run))
        cvy_log(CVY_LOG_INFO, "%lld epochs in a row brought nothing better: the training ends early",
                (long long)run->state.progress.stale_epochs);
    run->result->seconds = cvy_clock() - loop.start;
    run->state.images_per_second =
        loop.train_seconds > 0 ? (double)(loop.train_steps * images_per_step(run)) / loop.train_seconds : 0;
    return CVY_OK;
}
