/* A training that diverges goes back to its last good state and continues with half the rate (--rewinds). */
#include "base/error.h"
#include "run/output/output.h"
#include "run/records/divergence.h"
#include "run/training/training.h"

enum { SNAPSHOT_STEPS = 25 }; /* of an epoch, from its first step on: how far there is to go back at most */

bool cvy_run_must_rewind(const struct cvy_run *run)
{
    return run->state.snapshot.taken && run->state.progress.diverged_step > 0;
}

void cvy_run_watch_loss(struct cvy_run *run, int64_t step, double loss)
{
    struct cvy_train_state *state = &run->state.progress;
    const struct cvy_scaler_rule *rule = &run->state.trainer.optimizer.options.scaler;
    /* A run that continues still has the name. Shorter epochs would end, and be kept, before a rise is seen. */
    const enum cvy_beginning beginning = run->config->options.pretrained_weights[0]            ? CVY_BEGINS_TRAINED
                                         : run->config->steps_per_epoch >= 2 * CVY_FIRST_STEPS ? CVY_BEGINS_LONG
                                                                                               : CVY_BEGINS_SHORT;

    if (run->state.snapshot.open && state->rewinds < run->config->options.rewinds)
        cvy_divergence_add(state, step, loss, run->state.diagnosis.guess_loss,
                           run->state.trainer.scaling && rule->skips, beginning);
}

bool cvy_run_snapshot_is_due(const struct cvy_run *run)
{
    const struct cvy_train_state *state = &run->state.progress;

    if (!run->state.snapshot.open || state->rewinds >= run->config->options.rewinds)
        return false;
    return !run->state.snapshot.taken || state->position % SNAPSHOT_STEPS == 0;
}

/* Every epoch begins with one: so a run never goes back behind a validation, and the checkpoint of an epoch's end is
 * a state to go back to by itself. */
cvy_status cvy_run_take_snapshot(struct cvy_run *run)
{
    struct cvy_train_state *state = &run->state.progress;

    if (state->diverged_step > 0 || (run->state.snapshot.taken && state->position > 0 &&
                                     !cvy_divergence_is_calm(state, run->state.diagnosis.guess_loss)))
        return CVY_OK;
    CVY_TRY(cvy_trainer_get_scaler(&run->state.trainer, &state->scaler));
    CVY_TRY(cvy_snapshot_take(&run->state.snapshot, &run->state.network));
    run->state.last_good = *state;
    return CVY_OK;
}

/* Every batch since then has counted as many uses of each batch norm. */
static void restore_counters(struct cvy_run *run, int64_t batches)
{
    struct cvy_network *network = &run->state.network;

    for (int32_t i = 0; i < network->table.param_count; i++) {
        const struct cvy_param *param = &network->table.params[i];

        if (param->kind == CVY_PARAM_COUNTER)
            network->counters[param->offset] -= param->uses * batches;
    }
}

cvy_status cvy_run_rewind(struct cvy_run *run)
{
    struct cvy_train_state *state = &run->state.progress;
    const struct cvy_train_state diverged = *state;

    CVY_TRY(cvy_snapshot_restore(&run->state.snapshot, &run->state.network));
    *state = run->state.last_good;
    state->rewinds = diverged.rewinds + 1;
    state->recent_count = state->diverged_step = state->nonfinite = 0;
    restore_counters(run, (diverged.step - state->step) * run->config->accumulate);
    run->state.trainer.batches = state->step * run->config->accumulate;
    run->state.trainer.done = 0;
    CVY_TRY(cvy_trainer_set_scaler(&run->state.trainer, &state->scaler));
    CVY_TRY(cvy_run_report_rewind(run, diverged.diverged_step, diverged.diverged_loss));
    run->state.last_good = *state;
    return CVY_OK;
}
