/* What a run writes for itself: its checkpoint and the best weights. */
#include "base/error.h"
#include "train/run.h"

static struct cvy_checkpoint checkpoint_of(struct cvy_run *run, bool with_momentum)
{
    return (struct cvy_checkpoint){
        .network = &run->network,
        .classes = run->train.classes,
        .class_count = run->train.class_count,
        .preprocessing = &run->preprocessing,
        .state = &run->state,
        .options = &run->options,
        .with_momentum = with_momentum,
    };
}

cvy_status cvy_run_save(struct cvy_run *run)
{
    const struct cvy_checkpoint checkpoint = checkpoint_of(run, true);

    if (run->options.no_checkpoints || run->comm.rank != 0)
        return CVY_OK;
    CVY_TRY(cvy_trainer_get_scaler(&run->trainer, &run->state.scaler));
    CVY_TRY(cvy_run_log_sync(&run->log)); /* a checkpoint on the disk has its logs there too */
    return cvy_checkpoint_write(&checkpoint, run->paths.checkpoint);
}

cvy_status cvy_run_save_best(struct cvy_run *run)
{
    const struct cvy_checkpoint checkpoint = checkpoint_of(run, false);

    if (run->options.no_checkpoints || run->comm.rank != 0)
        return CVY_OK;
    return cvy_checkpoint_write(&checkpoint, run->paths.best);
}
