/* What a run writes for itself: its checkpoint and the best weights. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "run/output/output.h"

static cvy_status write_file(struct cvy_run *run, enum cvy_weights_part part, const char *path)
{
    /* Where the run stands at its last good state, as at the begin of each epoch, there is nothing to add. */
    const struct cvy_train_state *state = &run->state.progress;
    const bool may_rewind = state->rewinds < run->config->options.rewinds || state->diverged_step > 0;
    const bool behind =
        run->state.snapshot.taken && may_rewind && state->position > 0 && run->state.last_good.step != state->step;
    const struct cvy_checkpoint checkpoint = {
        .snapshot = behind ? &run->state.snapshot : NULL,
        .last_good = behind ? &run->state.last_good : NULL,
        .network = &run->state.network,
        .classes = run->data.train.classes,
        .class_count = run->data.train.class_count,
        .category_ids = run->data.train.category_ids,
        .preprocessing = &run->config->preprocessing,
        .state = state,
        .options = &run->config->options,
        .class_weights = run->config->class_weights,
        .rank_threads = run->ranks.threads,
        .ranks = run->ranks.comm.world,
        .part = part,
    };

    return cvy_checkpoint_write(&checkpoint, path);
}

static bool is_silent(const struct cvy_run *run)
{
    return run->config->options.no_checkpoints || run->ranks.comm.rank != 0;
}

static cvy_status beside(const struct cvy_run_config *config, const char *name, char path[CVY_PATH_MAX])
{
    if (snprintf(path, CVY_PATH_MAX, "%s/%s", config->paths.folder, name) >= CVY_PATH_MAX)
        return cvy_fail(CVY_USAGE, "the path of %s in the run directory is too long", cvy_quote(name));
    return CVY_OK;
}

/* --checkpoint-filename: another name of the file, which stays what it is when the next one takes its place. */
static cvy_status name_again(struct cvy_run *run)
{
    const char *name = run->config->options.checkpoint_filename;
    char path[CVY_PATH_MAX], part[CVY_PATH_MAX + 8];

    if (!name[0])
        return CVY_OK;
    CVY_TRY(beside(run->config, name, path));
    snprintf(part, sizeof part, "%s.tmp", path);
    unlink(part);
    if (link(run->config->paths.checkpoint, part) == 0 && rename(part, path) == 0)
        return CVY_OK;
    unlink(part);
    return write_file(run, CVY_PART_TRAINING, path); /* a file system without such names */
}

cvy_status cvy_run_save(struct cvy_run *run)
{
    if (is_silent(run))
        return CVY_OK;
    CVY_TRY(cvy_trainer_get_scaler(&run->state.trainer, &run->state.progress.scaler));
    CVY_TRY(cvy_run_log_sync(&run->state.log)); /* a checkpoint on the disk has its logs there too */
    CVY_TRY(write_file(run, CVY_PART_TRAINING, run->config->paths.checkpoint));
    return name_again(run);
}

cvy_status cvy_run_save_best(struct cvy_run *run)
{
    if (is_silent(run))
        return CVY_OK;
    return write_file(run, run->config->best_is_average ? CVY_PART_AVERAGE : CVY_PART_WEIGHTS, run->config->paths.best);
}

cvy_status cvy_run_save_options(const struct cvy_run *run, bool end_reached)
{
    const struct cvy_run_config *config = run->config;
    const struct cvy_run_end end = {
        .epoch = config->end.epoch < config->options.epochs ? config->end.epoch : 0,
        .step = config->end.step,
        .reached = end_reached,
    };

    return run->ranks.comm.rank == 0 ? cvy_run_options_write(config->paths.options, &config->options, &end) : CVY_OK;
}

/* ---- --gather-checkpoints ---- */

/* Remove those of epochs up to `last`. What cannot be removed stays: that is no reason to end a training. */
static void prune(const struct cvy_run_config *config, int64_t last)
{
    DIR *listing = opendir(config->paths.folder);
    const struct dirent *entry;
    char path[CVY_PATH_MAX];

    while (listing && (entry = readdir(listing)) != NULL) {
        const int64_t epoch = cvy_checkpoint_epoch(entry->d_name);

        if (epoch >= 0 && epoch <= last && beside(config, entry->d_name, path) == CVY_OK)
            unlink(path);
    }
    if (listing)
        closedir(listing);
}

/* Whether model_best.safetensors was written after the point where the run continues. */
static bool best_is_later(const struct cvy_run *run)
{
    struct cvy_tensor_file file = {0};
    struct cvy_checkpoint_info info = {0};
    const bool later = cvy_path_exists(run->config->paths.best) &&
                       cvy_tensor_file_open(&file, run->config->paths.best) == CVY_OK &&
                       cvy_checkpoint_read(&file, run->config->paths.best, &info) == CVY_OK && info.has_state &&
                       info.state.best_epoch > run->state.progress.best_epoch;

    cvy_checkpoint_info_release(&info);
    cvy_tensor_file_close(&file);
    return later;
}

void cvy_run_clean_up(const struct cvy_run *run)
{
    const char *slash = strrchr(run->resume.file, '/');
    const bool goes_back = run->resume.found && cvy_checkpoint_epoch(slash ? slash + 1 : run->resume.file) >= 0;
    DIR *listing = opendir(run->config->paths.folder);
    const struct dirent *entry;
    char path[CVY_PATH_MAX];

    while (listing && (entry = readdir(listing)) != NULL) {
        char *part;
        if (beside(run->config, entry->d_name, path) != CVY_OK)
            continue;
        part = strstr(path, ".safetensors.tmp");
        if (part && strncmp(entry->d_name, "checkpoint_", 11) == 0) {
            part[strlen(".safetensors")] = '\0';
            cvy_output_clean(path);
        } else if (goes_back && cvy_checkpoint_epoch(entry->d_name) >= run->state.progress.epoch) {
            unlink(path);
        }
    }
    if (listing)
        closedir(listing);
    if (goes_back && best_is_later(run)) {
        unlink(run->config->paths.best);
        unlink(run->config->paths.best_validation);
    }
}

/* The epoch's own file comes first: a run that is killed before the checkpoint is written does the epoch's end again.
 */
cvy_status cvy_run_save_epoch(struct cvy_run *run)
{
    const int64_t epoch = run->state.progress.epoch - 1, keep = run->config->options.gather_checkpoints;
    char name[64], path[CVY_PATH_MAX];

    if (is_silent(run))
        return CVY_OK;
    CVY_TRY(cvy_trainer_get_scaler(&run->state.trainer, &run->state.progress.scaler));
    if (keep != 0) {
        snprintf(name, sizeof name, "checkpoint_%04lld.safetensors", (long long)epoch);
        CVY_TRY(beside(run->config, name, path));
        CVY_TRY(write_file(run, CVY_PART_TRAINING, path));
    }
    CVY_TRY(cvy_run_save(run));
    if (keep > 0)
        prune(run->config, epoch - keep);
    return CVY_OK;
}
