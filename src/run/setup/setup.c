/* Opening a run: from options to the moment before the first step. */
#include "run/setup/setup.h"

#include <string.h>

#include "backend/autotune.h"
#include "base/error.h"
#include "run/output/output.h"
#include "run/ranks/ranks.h"
#include "run/setup/stages.h"

/* What this rank is to do, as far as the command line, a checkpoint and a recipe say it; equal on all ranks. */
static cvy_status agree_on_options(struct cvy_run *run)
{
    CVY_TRY(cvy_ranks_open(run));
    CVY_TRY(cvy_setup_name_data(&run->resolving->options));
    CVY_TRY(cvy_resume_open(run));
    CVY_TRY(cvy_setup_apply_recipe(run));
    CVY_TRY(cvy_setup_check_directory(run));
    return cvy_ranks_compare(run, CVY_RANKS_OPTIONS);
}

/* The images, and the file that the weights start from. */
static cvy_status open_inputs(struct cvy_run *run)
{
    CVY_TRY(cvy_run_choose_task(run));
    CVY_TRY(cvy_pretrained_open(run));
    CVY_TRY(cvy_setup_open_data(run));
    CVY_TRY(cvy_run_open_caches(run));
    return cvy_ranks_compare(run, CVY_RANKS_DATA);
}

/* What follows from the images and the device: no option is automatic any more. */
static cvy_status resolve(struct cvy_run *run)
{
    CVY_TRY(cvy_setup_choose_recipe(run)); /* --batch-size auto: the ranks agree on the smallest batch */
    CVY_TRY(cvy_run_open_device(run));
    CVY_TRY(cvy_setup_choose_precision(run));
    CVY_TRY(cvy_setup_resolve_options(run));
    CVY_TRY(cvy_resume_prepare(run));
    CVY_TRY(cvy_run_class_weights(run));
    return cvy_ranks_compare(run, CVY_RANKS_READY);
}

/* The devices work as one where they can, with the kernels that rank 0 has chosen. */
static cvy_status join_devices(struct cvy_run *run)
{
    CVY_TRY(cvy_ranks_list_threads(run));
    CVY_TRY(cvy_ranks_join_batches(run));
    CVY_TRY(cvy_ranks_join_devices(run));
    CVY_TRY(cvy_ranks_wait_for_kernels(run));
    CVY_TRY(cvy_run_check_memory(run));
    CVY_TRY(cvy_ranks_broadcast_kernels(run));
    cvy_autotuner_freeze(run->state.device->autotuner);
    return CVY_OK;
}

/* The network with the weights and the state that the training continues from; equal on all ranks. */
static cvy_status build_network(struct cvy_run *run)
{
    struct cvy_train_state *progress = &run->state.progress;

    CVY_TRY(cvy_setup_open_sources(run));
    CVY_TRY(cvy_setup_count_steps(run));
    *progress = (struct cvy_train_state){.best_epoch = -1, .train_images = run->data.train.sample_count};
    CVY_TRY(cvy_setup_open_network(run));
    progress->train_images = run->data.train.sample_count;
    CVY_TRY(cvy_ranks_broadcast_weights(run));
    progress->step_images = run->config->options.batch_size * run->config->accumulate * run->ranks.comm.world;
    CVY_TRY(cvy_setup_choose_epochs(run));
    cvy_setup_describe(run);
    if (run->ranks.comm.rank == 0 && strcmp(run->config->options.precision, "fp32") != 0)
        cvy_precision_advise(run->state.device, run->state.network.dtype, "--amp");
    return CVY_OK;
}

/* Only rank 0 writes. The directory appears when nothing else can be wrong any more. */
static cvy_status begin_records(struct cvy_run *run)
{
    CVY_TRY(run->ranks.comm.rank == 0 ? cvy_setup_open_directory(run) : cvy_run_report_open(run));
    return cvy_ranks_broadcast_directory(run);
}

/* All ranks do this together: each cvy_ranks_... is a point at which they meet, so nothing may come between that waits
 * for another rank, or that not all ranks do. */
static cvy_status open_all(struct cvy_run *run)
{
    CVY_TRY(agree_on_options(run));
    CVY_TRY(open_inputs(run));
    CVY_TRY(resolve(run));
    CVY_TRY(join_devices(run));
    CVY_TRY(build_network(run));
    return begin_records(run);
}

cvy_status cvy_run_open(struct cvy_run *run, const struct cvy_train_options *options,
                        const struct cvy_train_events *events, struct cvy_train_result *result, const atomic_int *stop)
{
    cvy_status status;

    memset(run, 0, sizeof *run);
    run->config = run->resolving = &run->owned_config;
    run->resolving->options = *options;
    run->events = events;
    run->result = result;
    run->stop = stop;
    status = open_all(run);
    run->resolving = NULL;
    if (status != CVY_OK) {
        cvy_ranks_fail(run, status);
        cvy_run_close(run);
    }
    return status;
}

void cvy_run_close(struct cvy_run *run)
{
    cvy_run_log_close(&run->state.log);
    cvy_ranks_leave_devices(&run->state, false);
    cvy_source_close(&run->data.train_source);
    cvy_source_close(&run->data.val_source);
    cvy_detection_loss_close(&run->state.detection_loss);
    cvy_evaluator_close(&run->state.evaluator);
    cvy_collector_close(&run->state.collector);
    cvy_coco_close(&run->state.coco);
    cvy_pictures_close(&run->state.pictures);
    cvy_coco_result_release(&run->state.coco_result);
    cvy_free(run->state.latency);
    cvy_trainer_close(&run->state.trainer);
    cvy_statistics_close(&run->state.statistics);
    cvy_snapshot_close(&run->state.snapshot);
    cvy_network_close(&run->state.network);
    cvy_device_close(run->state.device);
    cvy_sample_cache_free(run->data.train_cache);
    cvy_sample_cache_free(run->data.val_cache);
    cvy_dataset_close(&run->data.train);
    cvy_dataset_close(&run->data.val);
    cvy_resume_close(&run->resume);
    cvy_pretrained_close(&run->pretrained);
    cvy_run_lock_release(&run->state.lock);
    cvy_free(run->owned_config.class_weights);
    cvy_free(run->ranks.threads);
    cvy_free(run->ranks.table);
    cvy_free(run->ranks.times);
    if (run->ranks.comm.close)
        run->ranks.comm.close(&run->ranks.comm);
    memset(run, 0, sizeof *run);
}
