/* The training loop: its steps and their losses, until the end or a stop. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "run/output/output.h"
#include "run/ranks/ranks.h"
#include "run/training/loop.h"

enum { NONFINITE_LIMIT = 10 }; /* steps in a row with a loss that is no number: the weights are lost */

/* Where the epoch began with larger or smaller steps, state->skipped makes up for it. The loader knows steps of the
 * present size alone: it leaves out less than one of them, and begins this many of them later. */
static int64_t smaller_steps(const struct cvy_train_state *state)
{
    return state->skipped < 0 ? (state->step_images - 1 - state->skipped) / state->step_images : 0;
}

/* The training images from the place on where the state stands. */
static cvy_status start_data(struct cvy_run *run)
{
    const struct cvy_train_state *state = &run->state.progress;
    const int64_t counted = smaller_steps(state);

    cvy_source_skip(&run->data.train_source, state->epoch, state->skipped + counted * state->step_images);
    return cvy_source_start(&run->data.train_source, state->epoch,
                            (state->position - counted) * run->config->accumulate);
}

double cvy_loop_wait_seconds(const struct cvy_loop *loop)
{
    return loop->wait_before + cvy_source_wait_seconds(&loop->run->data.train_source);
}

cvy_status cvy_loop_restart_data(struct cvy_loop *loop, double before)
{
    CVY_TRY(start_data(loop->run));
    loop->wait_before = before;
    return CVY_OK;
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
    const int64_t later = (run->config->end.epoch - run->state.progress.epoch - 1) * run->config->steps_per_epoch;
    const int64_t whole = later + cvy_run_epoch_steps(run) - run->state.progress.position;
    const int64_t end = cvy_run_end_step(run->config), limit = end - run->state.progress.step;

    return end > 0 && limit < whole ? limit : whole;
}

static double window_reset(struct cvy_loop *loop)
{
    const double now = cvy_clock();
    const double seconds = now - loop->window_start;

    loop->window_start = now;
    loop->window_wait = cvy_loop_wait_seconds(loop);
    return seconds;
}

struct cvy_sum_times cvy_loop_sum_times(const struct cvy_loop *loop)
{
    return cvy_sum_times(&loop->run->ranks.comm, loop->run->state.trainer.reducer.worker);
}

/* ---- the loss ---- */

static cvy_status check_loss(struct cvy_loop *loop, double loss, int64_t step)
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

cvy_status cvy_loop_loss_scale(struct cvy_loop *loop, const struct cvy_scaler *scaler, double *scale)
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

cvy_status cvy_loop_close_window(struct cvy_loop *loop, const struct cvy_queued_batch *last,
                                 const struct cvy_scaler *scaler, struct cvy_run_window *window)
{
    struct cvy_run *run = loop->run;
    const struct cvy_train_state *state = &run->state.progress;
    const double wait = cvy_loop_wait_seconds(loop) - loop->window_wait;
    double scale;

    CVY_TRY(cvy_loop_loss_scale(loop, scaler, &scale));
    *window = (struct cvy_run_window){
        .epoch = state->epoch,
        .position = last->position,
        .step = last->step,
        .steps = state->window_count,
        .images = cvy_run_step_images(run, last->position, state->window_count),
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
static cvy_status read_oldest(struct cvy_loop *loop, struct cvy_queued_batch *batch, struct cvy_trainer_result *result)
{
    const int back = --loop->queued;

    *batch = loop->queue[0];
    loop->queue[0] = loop->queue[1];
    return cvy_trainer_result(&loop->run->state.trainer, back, result);
}

/* A step's loss is the mean over its batches, and is booked where it belongs. */
static cvy_status read_oldest_loss(struct cvy_loop *loop)
{
    struct cvy_run *run = loop->run;
    struct cvy_train_state *state = &run->state.progress;
    struct cvy_run_window window;
    struct cvy_trainer_result result;
    struct cvy_queued_batch batch;
    double loss, values[1 + CVY_LOSS_PARTS];

    CVY_TRY(read_oldest(loop, &batch, &result));
    values[0] = (double)result.loss;
    for (int i = 0; i < CVY_LOSS_PARTS; i++)
        values[1 + i] = (double)result.parts[i];
    CVY_TRY(cvy_ranks_reduce_loss(run, values, 1 + CVY_LOSS_PARTS, &loop->stopping));
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
        CVY_TRY(cvy_loop_close_window(loop, &batch, &result.scaler, &window));
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

cvy_status cvy_loop_read_losses(struct cvy_loop *loop, int left)
{
    while (loop->queued > left)
        CVY_TRY(read_oldest_loss(loop));
    return CVY_OK;
}

/* ---- the end, before the end ---- */

cvy_status cvy_loop_stop_here(struct cvy_loop *loop)
{
    CVY_TRY(cvy_loop_read_losses(loop, 0));
    CVY_TRY(cvy_run_save(loop->run));
    return cvy_fail(
        CVY_STOPPED, "stopped after step %lld of epoch %lld/%lld%s", (long long)loop->run->state.progress.position,
        (long long)loop->run->state.progress.epoch + 1, (long long)loop->run->config->options.epochs,
        loop->run->config->options.no_checkpoints ? "; no checkpoint is kept" : "; the checkpoint is saved");
}

/* ---- progress ---- */

double cvy_loop_data_share(const struct cvy_loop *loop)
{
    const double seconds = cvy_clock() - loop->epoch_start;

    return seconds > 0 ? cvy_loop_wait_seconds(loop) / seconds : 0;
}

double cvy_loop_eta(const struct cvy_loop *loop)
{
    const struct cvy_run *run = loop->run;
    const double spent = loop->train_seconds + cvy_clock() - loop->epoch_start;
    const int64_t steps = loop->train_steps + loop->epoch_steps,
                  epochs = run->config->end.epoch - run->state.progress.epoch;
    const double left = (double)steps_left(run);
    const int64_t max = run->config->options.eval_count > 0 ? run->config->options.eval_count : epochs;
    const double validation = loop->validations ? loop->val_seconds / (double)loop->validations : 0;

    return steps > 0 ? spent / (double)steps * left + validation * (double)(max < epochs ? max : epochs) : 0;
}

static void report_step(const struct cvy_loop *loop)
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
        .images_per_second =
            seconds > 0 ? (double)cvy_run_step_images(run, state->position, loop->epoch_steps) / seconds : 0,
        .data_share = cvy_loop_data_share(loop),
        .eta_seconds = cvy_loop_eta(loop),
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
static cvy_status train_batch(struct cvy_loop *loop, bool first)
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
        return cvy_loop_stop_here(loop);
    if (run->config->options
            .quantize) /* the ranges that values are rounded in: rank 0's, which are those of a run that continues */
        CVY_TRY(cvy_ranks_broadcast_statistics(run, &run->state.network.store));
    if (first)
        loop->learning_rate = rate_at(run, state->step, state->position);
    CVY_TRY(cvy_trainer_step(&run->state.trainer, batch, loop->learning_rate));
    loop->queue[loop->queued++] = (struct cvy_queued_batch){
        .position = state->position + 1, .step = state->step + 1, .learning_rate = loop->learning_rate};
    return cvy_loop_read_losses(loop, run->state.trainer.lag);
}

static cvy_status train_step(struct cvy_loop *loop)
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
static cvy_status keep_state(struct cvy_loop *loop)
{
    if (!cvy_run_snapshot_is_due(loop->run))
        return CVY_OK;
    CVY_TRY(cvy_loop_read_losses(loop, 0));
    return cvy_run_take_snapshot(loop->run);
}

/* After a divergence, with all losses read: the epoch continues from its last good state. */
static cvy_status go_back(struct cvy_loop *loop)
{
    if (!cvy_run_must_rewind(loop->run))
        return CVY_OK;
    CVY_TRY(cvy_run_rewind(loop->run));
    CVY_TRY(cvy_loop_restart_data(loop, cvy_loop_wait_seconds(loop)));
    (void)window_reset(loop);
    return CVY_OK;
}

static cvy_status begin_epoch(struct cvy_loop *loop)
{
    struct cvy_run *run = loop->run;
    const struct cvy_train_state *state = &run->state.progress;

    loop->steps = cvy_run_epoch_steps(run);
    /* The last step's: a run that was stopped after the last step of an epoch has none left, and reports this rate. */
    const int64_t last = state->position > 0 ? 1 : 0;
    loop->learning_rate = rate_at(run, state->step - last, state->position - last);
    loop->epoch_start = cvy_clock();
    loop->epoch_sums = cvy_loop_sum_times(loop);
    loop->epoch_steps = loop->scale_steps = 0;
    loop->scale_sum = loop->wait_before = 0;
    if (state->position < loop->steps)
        CVY_TRY(start_data(run));
    (void)window_reset(loop);
    loop->in_epoch = true;
    return CVY_OK;
}

cvy_status cvy_loop_save(struct cvy_loop *loop)
{
    CVY_TRY(cvy_loop_read_losses(loop, 0));
    return cvy_run_save(loop->run);
}

/* A step with what follows it at once. */
static cvy_status take_step(struct cvy_loop *loop)
{
    struct cvy_run *run = loop->run;
    const int64_t every = run->config->options.checkpoint_every;

    CVY_TRY(train_step(loop));
    report_step(loop);
    if (run->ranks.comm.world == 1 && cvy_run_stopping(run))
        return cvy_loop_stop_here(loop);
    return every > 0 && run->state.progress.step % every == 0 ? cvy_loop_save(loop) : CVY_OK;
}

/* The next step of the epoch, and the losses of all after the last one. */
static cvy_status advance(struct cvy_loop *loop)
{
    struct cvy_run *run = loop->run;
    const struct cvy_train_state *state = &run->state.progress;

    CVY_TRY(go_back(loop)); /* a checkpoint may have been saved just before that */
    if (state->position < loop->steps) {
        CVY_TRY(keep_state(loop));
        if (!cvy_run_must_rewind(run)) /* which the losses that were read for it may have shown */
            CVY_TRY(take_step(loop));
    }
    if (state->position < loop->steps && !cvy_run_must_rewind(run))
        return CVY_OK;
    CVY_TRY(cvy_loop_read_losses(loop, 0));
    return loop->stopping ? cvy_loop_stop_here(loop) : CVY_OK;
}

/* ---- the whole run ---- */

void cvy_loop_begin(struct cvy_loop *loop, struct cvy_run *run)
{
    *loop = (struct cvy_loop){.run = run, .start = cvy_clock(), .first_epoch = run->state.progress.epoch};
    if (run->state.progress.epoch >= run->config->options.epochs)
        cvy_log(CVY_LOG_INFO, "all %lld epochs of %s are done", (long long)run->config->options.epochs,
                cvy_quote(run->config->paths.folder));
}

bool cvy_loop_is_over(const struct cvy_loop *loop)
{
    const struct cvy_run *run = loop->run;

    return !loop->in_epoch &&
           (loop->cut || run->state.progress.epoch >= run->config->end.epoch || cvy_run_early_stop(run));
}

/* The end of the run's steps, not of the epoch's; that of all steps ends the last epoch, as short as it is. */
static bool ends_within_epoch(const struct cvy_run *run)
{
    const struct cvy_train_state *state = &run->state.progress;
    const int64_t all = run->config->options.steps;

    return state->step == run->config->end.step && state->step != all &&
           state->position < cvy_run_full_epoch_steps(run);
}

cvy_status cvy_loop_step(struct cvy_loop *loop)
{
    struct cvy_run *run = loop->run;

    if (cvy_loop_is_over(loop))
        return CVY_OK;
    if (!loop->in_epoch)
        CVY_TRY(begin_epoch(loop));
    CVY_TRY(advance(loop));
    if (run->state.progress.position < loop->steps || cvy_run_must_rewind(run))
        return CVY_OK;
    run->state.network.store.version++; /* the inference plan folds the new weights */
    loop->train_seconds += cvy_clock() - loop->epoch_start;
    loop->train_steps += loop->epoch_steps;
    loop->train_images += cvy_run_step_images(run, run->state.progress.position, loop->epoch_steps);
    loop->cut = ends_within_epoch(run);
    CVY_TRY(cvy_loop_end_epoch(loop));
    loop->in_epoch = false;
    return CVY_OK;
}

void cvy_loop_finish(struct cvy_loop *loop)
{
    struct cvy_run *run = loop->run;

    if (loop->cut)
        cvy_log(CVY_LOG_INFO, "the run ends after step %lld of %lld of epoch %lld/%lld%s",
                (long long)run->state.progress.position, (long long)cvy_run_full_epoch_steps(run),
                (long long)run->state.progress.epoch + 1, (long long)run->config->options.epochs,
                run->config->options.no_checkpoints ? "; no checkpoint is kept" : ", where --resume continues");
    else if (cvy_run_early_stop(run))
        cvy_log(CVY_LOG_INFO, "%s in a row brought nothing better: the training ends early",
                cvy_counted(run->state.progress.stale_epochs, "epoch"));
    run->result->seconds = cvy_clock() - loop->start;
    run->state.images_per_second = loop->train_seconds > 0 ? (double)loop->train_images / loop->train_seconds : 0;
}
