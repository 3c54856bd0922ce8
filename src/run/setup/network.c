/* The device of a run, and its network there, with the weights that it begins with. */
#include "base/error.h"
#include "base/log.h"
#include "base/resources.h"
#include "options/options.h"
#include "run/ranks/ranks.h"
#include "run/setup/stages.h"
#include "weights/model_variant.h"

/* Those of --threads, else those of the checkpoint, else this rank's part of the cores. */
static int choose_threads(const struct cvy_run *run)
{
    const int given = (int)run->config->options.threads, saved = cvy_resume_threads(run);

    if (saved > 0 && cvy_option_source_of(&run->config->options, "threads") != CVY_FROM_FLAG)
        return saved;
    return given > 0 || run->ranks.on_cores <= 1 ? given : cvy_shared_threads(run->ranks.on_cores);
}

cvy_status cvy_run_open_device(struct cvy_run *run)
{
    if (run->state.device)
        return CVY_OK;
    CVY_TRY(cvy_ranks_name_device(run, run->ranks.device_name, sizeof run->ranks.device_name));
    CVY_TRY(cvy_device_open(run->ranks.device_name, choose_threads(run), &run->state.device));
    return cvy_device_set_deterministic(run->state.device, run->config->options.deterministic);
}

/* An average that came with no file begins at the weights; where nothing is trained, there is none then. */
static cvy_status start_average(struct cvy_run *run)
{
    if (!run->state.network.average.weights || run->resume.averaged)
        return CVY_OK;
    if (run->resume.found || run->config->options.evaluate)
        cvy_log(CVY_LOG_WARNING, "no moving average of the weights is in the file that the run starts from%s",
                run->config->options.evaluate ? "" : ": it begins with them");
    if (!run->config->options.evaluate)
        return cvy_network_start_average(&run->state.network);
    cvy_store_close(&run->state.network.average);
    return CVY_OK;
}

cvy_status cvy_setup_open_network(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    struct cvy_model_options model;
    struct cvy_optimizer_options optimizer;
    enum cvy_dtype dtype;

    CVY_TRY(cvy_model_from_options(o, &model));
    cvy_pretrained_normalization(run, &model);
    CVY_TRY(cvy_precision_choose(o->precision, run->state.device, &dtype));
    CVY_TRY(cvy_run_optimizer(run, dtype, &optimizer));
    if (optimizer.loss_scale > 0) /* what is saved is what was used: a run may be killed before its first checkpoint */
        CVY_TRY(cvy_run_resolve_loss_scale(&run->resolving->options, dtype));
    CVY_TRY(cvy_network_open(&run->state.network, run->state.device, cvy_architecture_find(o->arch), &model, dtype,
                             !o->evaluate));
    CVY_TRY(
        cvy_network_extend(&run->state.network, o->evaluate ? 0 : cvy_optimizer_extras(&optimizer), o->use_ema > 0));
    if (o->rewinds > 0 && !o->evaluate)
        CVY_TRY(cvy_snapshot_open(&run->state.snapshot, &run->state.network));
    CVY_TRY(cvy_pretrained_check(run));
    if (run->resume.found)
        CVY_TRY(cvy_resume_load(run));
    else
        CVY_TRY(cvy_network_initialize(&run->state.network, o->seed));
    CVY_TRY(cvy_pretrained_load(run));
    CVY_TRY(cvy_network_reserve(&run->state.network, run->config->memory.workspace));
    CVY_TRY(start_average(run));
    if (!o->evaluate) {
        CVY_TRY(
            cvy_trainer_open(&run->state.trainer, &run->state.network, &run->ranks.comm, &optimizer, o->batch_size));
        if (run->config->last_batch > 0)
            CVY_TRY(cvy_trainer_open_short(&run->state.trainer, run->config->last_batch));
        CVY_TRY(cvy_reducer_wire_dtype(&run->state.trainer.reducer, cvy_ranks_gradients(o)));
        CVY_TRY(cvy_trainer_set_scaler(&run->state.trainer, &run->state.progress.scaler));
        CVY_TRY(cvy_run_set_loss(run));
        run->state.trainer.batches = run->state.progress.step * run->config->accumulate;
    }
    if (o->precise_bn > 0 && !o->training_only && !o->evaluate)
        CVY_TRY(cvy_statistics_open(&run->state.statistics, &run->state.network, o->batch_size));
    if (!o->training_only)
        CVY_TRY(cvy_evaluator_open(&run->state.evaluator, &run->state.network, cvy_run_evaluation_batch(o)));
    if (!o->training_only && cvy_run_is_detection(o) && run->data.val.sample_count > 0)
        CVY_TRY(cvy_detection_loss_open(&run->state.detection_loss, &run->state.network,
                                        cvy_evaluator_plan(&run->state.evaluator)));
    return CVY_OK;
}
