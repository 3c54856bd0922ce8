/* A training run from outside: start, announce, stop, result. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/system.h"
#include "run/output/output.h"
#include "run/ranks/ranks.h"
#include "run/setup/setup.h"
#include "run/training/training.h"

static void fill_result(struct cvy_run *run)
{
    struct cvy_train_result *result = run->result;
    /* A resumed checkpoint may have come without the best weights beside it. */
    const char *weights = run->state.progress.best_epoch >= 0 && cvy_path_exists(run->config->paths.best)
                              ? run->config->paths.best
                              : run->config->paths.checkpoint;

    snprintf(result->run_directory, sizeof result->run_directory, "%s", run->config->paths.folder);
    if (cvy_path_exists(weights))
        snprintf(result->weights, sizeof result->weights, "%s", weights);
    if (run->data.val.sample_count > 0 && !run->data.val.samples[0].shard)
        snprintf(result->sample_image, sizeof result->sample_image, "%s", run->data.val.samples[0].path);
    result->detector = cvy_run_is_detection(&run->config->options);
    result->classes = run->state.network.model.num_classes;
    result->best_score = run->state.progress.best_score;
    result->best_epoch = run->state.progress.best_epoch;
    result->epochs_done = run->state.progress.epoch;
    result->steps_done = run->state.progress.step;
    result->bad_images = run->state.bad_images;
    result->planned_memory = run->config->memory.total;
    result->peak_memory = cvy_peak_memory();
}

static void announce(struct cvy_run *run)
{
    struct cvy_text text = {0};

    if (run->events && run->events->begin)
        run->events->begin(run->events->context, run->config->paths.folder, run->ranks.comm.rank,
                           run->ranks.comm.world);
    if (!run->events || !run->events->plan)
        return;
    cvy_run_text(run, &text);
    if (!text.failed)
        run->events->plan(run->events->context, text.text);
    cvy_text_release(&text);
}

cvy_status cvy_train(const struct cvy_train_options *options, const struct cvy_train_events *events,
                     struct cvy_train_result *result)
{
    CVY_REQUIRE(options);
    struct cvy_run *run = cvy_calloc(1, sizeof *run);
    struct cvy_train_result unused;
    cvy_status status;
    bool failed;

    if (!run)
        return cvy_fail_memory(sizeof *run, "a training run");
    result = result ? result : &unused;
    memset(result, 0, sizeof *result);
    result->best_epoch = -1;
    status = cvy_run_open(run, options, events, result);
    if (status == CVY_OK) {
        announce(run);
        status = run->config->options.evaluate ? cvy_run_evaluate(run) : cvy_run_loop(run);
        if (status == CVY_OK)
            status = cvy_run_log_summary(&run->state.log);
        failed = status != CVY_OK && status != CVY_STOPPED;
        if (failed) /* ranks stop together, and fail one by one */
            cvy_ranks_fail(run, status);
        fill_result(run);
        if (!run->config->options.evaluate)
            cvy_run_report_page(run);
        /* A launcher may end all when the first one ends: none does before rank 0 has saved and drawn. */
        if (!failed)
            status = cvy_ranks_end_all(run, status);
        cvy_run_close(run);
    }
    cvy_free(run);
    cvy_run_clear_stop();
    return status;
}
