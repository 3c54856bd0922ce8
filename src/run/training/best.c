/* The end of an epoch: whether it is the best one so far, and whether patience has ended. */
#include <math.h>
#include <string.h>

#include "run/training/training.h"

/* A loss that is not a finite number is that of weights which are none either, whatever they hit by chance. */
static bool is_sound(const struct cvy_measures *measures)
{
    for (int i = 0; i < measures->count; i++) {
        if (strstr(measures->list[i].name, "loss") && !isfinite(measures->list[i].value))
            return false;
    }
    return true;
}

bool cvy_run_update_best(struct cvy_run *run, const struct cvy_train_epoch *epoch)
{
    struct cvy_train_state *state = &run->state.progress;
    const struct cvy_measures *measures = run->config->best_is_average ? &epoch->val_ema : &epoch->val;
    const double score = cvy_measures_get(measures, cvy_run_is_detection(&run->config->options) ? "ap" : "top1");
    const bool sound = is_sound(measures), best = epoch->validated && sound && isfinite(score) &&
                                                  (state->best_epoch < 0 || score > state->best_score);

    if (!epoch->validated || !isfinite(score)) /* where there is nothing to find, nothing is best */
        return false;
    /* By the first epoch and by everything that is better by the margin, patience starts over. */
    if (sound &&
        (state->best_epoch < 0 || score > state->patience_score + run->config->options.early_stopping_min_delta)) {
        state->patience_score = score;
        state->stale_epochs = 0;
    } else {
        state->stale_epochs++;
    }
    if (best) {
        state->best_epoch = state->epoch;
        state->best_score = score;
    }
    return best;
}

bool cvy_run_early_stop(const struct cvy_run *run)
{
    return run->config->options.early_stopping > 0 &&
           run->state.progress.stale_epochs >= run->config->options.early_stopping;
}
