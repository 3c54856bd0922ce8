/* What the rooms of a run ask about it. */
#include "run/run.h"

#include <string.h>

#include "options/options.h"

bool cvy_run_is_synthetic(const struct cvy_run_config *config)
{
    return strcmp(config->options.data_backend, "synthetic") == 0;
}

bool cvy_run_is_detection(const struct cvy_train_options *options)
{
    return cvy_architecture_find(options->arch)->task == CVY_TASK_DETECT;
}

int32_t cvy_run_train_size(const struct cvy_train_options *options)
{
    return (int32_t)(options->train_crop_size ? options->train_crop_size : options->image_size);
}

int32_t cvy_run_evaluation_batch(const struct cvy_train_options *options)
{
    const int32_t usual = cvy_evaluation_batch(cvy_architecture_find(options->arch));
    const int64_t given = options->batch_size;

    if (options->evaluate)
        return given > 0 && cvy_option_source_of(options, "batch-size") == CVY_FROM_FLAG ? (int32_t)given : usual;
    return !cvy_run_is_detection(options) && given > usual ? (int32_t)given : usual;
}

bool cvy_run_has_dali_rules(const struct cvy_train_options *options)
{
    return strncmp(options->data_backend, "dali-", 5) == 0 || strcmp(options->data_backend, "tensorflow-dali") == 0;
}

enum cvy_filter cvy_run_filter(const struct cvy_train_options *options)
{
    return strcmp(options->interpolation, "bicubic") == 0 ? CVY_FILTER_BICUBIC : CVY_FILTER_BILINEAR;
}

double cvy_run_val_smoothing(const struct cvy_train_options *o)
{
    return strcmp(o->val_loss, "reference") == 0 && o->mixup == 0 ? o->label_smoothing : 0;
}

/* Where a share of the epochs ends that is another whole number of parts than before this one. */
bool cvy_run_validates(const struct cvy_train_options *options, int64_t epoch)
{
    const int64_t count = options->eval_count, epochs = options->epochs;

    if (options->training_only)
        return false;
    if (count == 0 || count >= epochs || epoch + 1 >= epochs)
        return true;
    return (epoch + 1) * count / epochs > epoch * count / epochs;
}

int64_t cvy_run_prof_steps(const struct cvy_run_config *config)
{
    const int64_t steps = config->options.prof / (config->accumulate > 1 ? config->accumulate : 1);

    return config->options.prof > 0 && steps < 1 ? 1 : steps;
}

int64_t cvy_run_full_epoch_steps(const struct cvy_run *run)
{
    const int64_t prof = cvy_run_prof_steps(run->config);
    int64_t steps = run->config->steps_per_epoch;

    if (run->state.progress.skipped != 0) {
        steps = (run->data.train.sample_count - run->state.progress.skipped) / run->state.progress.step_images;
        steps = prof > 0 && prof < steps ? prof : steps;
    }
    return steps;
}

int64_t cvy_run_short_epoch(const struct cvy_run *run, const struct cvy_train_options *options)
{
    const bool partial = strcmp(options->last_batch, "partial") == 0;

    return partial ? run->data.train.sample_count / run->ranks.comm.world : 0;
}

int64_t cvy_run_step_images(const struct cvy_run *run, int64_t position, int64_t steps)
{
    const struct cvy_run_config *config = run->config;
    const int64_t world = run->ranks.comm.world, whole = config->options.batch_size * world * config->accumulate;
    const bool last =
        config->last_batch > 0 && steps > 0 && run->state.progress.skipped == 0 && position == config->steps_per_epoch;

    return steps * whole - (last ? whole - config->last_batch * world : 0);
}

int64_t cvy_run_end_step(const struct cvy_run_config *config)
{
    const int64_t all = config->options.steps, end = config->end.step;

    return end > 0 && (all == 0 || end < all) ? end : all;
}

int64_t cvy_run_epoch_steps(const struct cvy_run *run)
{
    /* At the begin of the epoch: an earlier one may have been a shorter last one, of a run that was made longer. */
    const int64_t begin = run->state.progress.step - run->state.progress.position;
    const int64_t end = cvy_run_end_step(run->config), whole = cvy_run_full_epoch_steps(run);

    return end > 0 && end - begin < whole ? end - begin : whole;
}

bool cvy_run_stopping(const struct cvy_run *run)
{
    return run->stop && atomic_load(run->stop);
}
