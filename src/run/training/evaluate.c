/* --evaluate: one validation of the model that the run starts from, and nothing else. */
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "run/training/training.h"

struct evaluation {
    const struct cvy_run *run;
    double start;
};

static bool show_progress(void *context, int64_t done)
{
    const struct evaluation *evaluation = context;
    const struct cvy_run *run = evaluation->run;
    struct cvy_train_progress progress = cvy_run_validation_progress(run, done, evaluation->start);

    progress.epoch = run->state.progress.epoch > 0 ? run->state.progress.epoch - 1 : 0;
    if (run->events && run->events->progress)
        run->events->progress(run->events->context, &progress);
    return !cvy_run_stopping(run);
}

/* After the record, for which the times of the batches were put into order. */
static void say_speed(const struct cvy_run *run, const struct cvy_run_validation *v)
{
    cvy_log(CVY_LOG_INFO,
            "a batch of %d takes %.2f ms; 50 %% at most %.2f, 90 %% %.2f, 95 %% %.2f, 99 %% %.2f; %.1f images/s",
            (int)cvy_run_evaluation_batch(&run->config->options), 1000 * cvy_run_mean_latency(v),
            1000 * cvy_quantile(v->latency, v->batches, 0.50), 1000 * cvy_quantile(v->latency, v->batches, 0.90),
            1000 * cvy_quantile(v->latency, v->batches, 0.95), 1000 * cvy_quantile(v->latency, v->batches, 0.99),
            (double)(v->images + v->skipped) / v->seconds);
}

cvy_status cvy_run_evaluate(struct cvy_run *run)
{
    struct evaluation evaluation = {run, cvy_clock()};
    struct cvy_run_epoch epoch = {
        .public = {.epoch = run->state.progress.epoch > 0 ? run->state.progress.epoch - 1 : 0}};
    struct cvy_train_result *result = run->result;

    if (run->state.network.average.weights) {
        CVY_TRY(cvy_run_validate(run, true, show_progress, &evaluation, &epoch.val_ema));
        epoch.public.averaged = result->averaged = true;
        result->val_ema = epoch.val_ema.measures;
    }
    evaluation.start = cvy_clock();
    CVY_TRY(cvy_run_validate(run, false, show_progress, &evaluation, &epoch.val));
    result->evaluated = true;
    result->seconds = epoch.val.seconds;
    result->val = epoch.val.measures;
    result->val_images = epoch.val.images;
    result->val_skipped = epoch.val.skipped;
    CVY_TRY(cvy_run_log_evaluation(&run->state.log, &epoch));
    say_speed(run, &epoch.val);
    return CVY_OK;
}
