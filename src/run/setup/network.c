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

/* The network with room for what its training needs beside the weights, which are still zero. */
static cvy_status open_memory(struct cvy_run *run, struct cvy_optimizer_options *optimizer)
{
    const struct cvy_train_options *o = &run->config->options;
    struct cvy_network *network = &run->state.network;
    struct cvy_model_options model;
    enum cvy_dtype dtype;

    CVY_TRY(cvy_model_from_options(o, &model));
    cvy_pretrained_normalization(run, &model);
    CVY_TRY(cvy_precision_choose(o->precision, run->state.device, &dtype));
    CVY_TRY(cvy_run_optimizer(run, dtype, optimizer));
    if (optimizer->loss_scale > 0) /* what is saved is what was used: a run may be killed before its first checkpoint */
        CVY_TRY(cvy_run_resolve_loss_scale(&run->resolving->options, dtype));
    CVY_TRY(cvy_network_open(network, run->state.device, cvy_architecture_find(o->arch), &model, dtype, !o->evaluate));
    CVY_TRY(cvy_network_extend(network, o->evaluate ? 0 : cvy_optimizer_extras(optimizer), o->use_ema > 0));
    return o->rewinds > 0 && !o->evaluate ? cvy_snapshot_open(&run->state.snapshot, network) : CVY_OK;
}

/* Those of the checkpoint; else random ones, with those of --pretrained-weights over them. Benchmarks evaluate such
 * ones on purpose: a part of the images, or made-up ones. */
static cvy_status load_weights(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;

    if (o->evaluate && !run->resume.found && !run->pretrained.used && o->prof <= 0 &&
        !cvy_run_is_synthetic(run->config))
        cvy_log(CVY_LOG_WARNING,
                "neither --resume nor --pretrained-weights names weights to evaluate: random ones are");
    CVY_TRY(cvy_pretrained_check(run));
    CVY_TRY(run->resume.found ? cvy_resume_load(run)
                              : cvy_network_initialize(&run->state.network, run->config->options.seed));
    return cvy_pretrained_load(run);
}

static cvy_status open_trainer(struct cvy_run *run, const struct cvy_optimizer_options *optimizer)
{
    const struct cvy_train_options *o = &run->config->options;
    struct cvy_trainer *trainer = &run->state.trainer;

    CVY_TRY(cvy_trainer_open(trainer, &run->state.network, &run->ranks.comm, optimizer, o->batch_size));
    if (run->config->last_batch > 0)
        CVY_TRY(cvy_trainer_open_short(trainer, run->config->last_batch));
    CVY_TRY(cvy_reducer_wire_dtype(&trainer->reducer, cvy_ranks_gradients(o)));
    CVY_TRY(cvy_trainer_set_scaler(trainer, &run->state.progress.scaler));
    CVY_TRY(cvy_run_set_loss(run));
    trainer->batches = run->state.progress.step * run->config->accumulate;
    return CVY_OK;
}

/* What validates, and what computes running statistics anew before it. */
static cvy_status open_evaluator(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    struct cvy_network *network = &run->state.network;

    if (o->precise_bn > 0 && !o->evaluate)
        CVY_TRY(cvy_statistics_open(&run->state.statistics, network, o->batch_size));
    CVY_TRY(cvy_evaluator_open(&run->state.evaluator, network, cvy_run_evaluation_batch(o)));
    if (!cvy_run_is_detection(o) || run->data.val.sample_count == 0)
        return CVY_OK;
    return cvy_detection_loss_open(&run->state.detection_loss, network, cvy_evaluator_plan(&run->state.evaluator));
}

cvy_status cvy_setup_open_network(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    struct cvy_optimizer_options optimizer;

    CVY_TRY(open_memory(run, &optimizer));
    CVY_TRY(load_weights(run));
    CVY_TRY(cvy_network_reserve(&run->state.network, run->config->memory.workspace));
    CVY_TRY(start_average(run));
    if (!o->evaluate)
        CVY_TRY(open_trainer(run, &optimizer));
    return o->training_only ? CVY_OK : open_evaluator(run);
}
