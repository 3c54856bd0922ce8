/* --evaluate: one validation of the model that the run starts from, and nothing else. */
#include "base/error.h"
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
    return cvy_run_log_evaluation(&run->state.log, &epoch);
}
