/* --resume, once the data and the network are there: what must not have changed, weights and state. */
#include <stdio.h>
#include <string.h>

#include "backend/autotune.h"
#include "base/error.h"
#include "base/json_out.h"
#include "base/log.h"
#include "options/options.h"
#include "run/setup/stages.h"

/* ---- the device ---- */

static void warn_of(const struct cvy_run *run, const char *what, const char *then, const char *now)
{
    if (strcmp(then, now) != 0)
        cvy_log(CVY_LOG_WARNING,
                "%s was computed with %s %s, and now it is %s: the run continues, but not bit for bit as it would have",
                cvy_quote(run->resume.file), what, cvy_quote(then), cvy_quote(now));
}

/* What else decides how sums are rounded. */
static void compare_device(const struct cvy_run *run)
{
    const struct cvy_json_value *plan = run->resume.info.plan;
    const cvy_device *device = run->state.device;
    char then[32], now[32];

    if (!plan)
        return;
    snprintf(then, sizeof then, "%d", cvy_resume_threads(run) ? cvy_resume_threads(run) : device->threads);
    snprintf(now, sizeof now, "%d", device->threads);
    warn_of(run, "device", cvy_json_get_string(plan, "device", device->backend->name), device->backend->name);
    warn_of(run, "precision",
            cvy_json_get_string(plan, "precision", cvy_precision_name(run->state.network.dtype, run->state.device)),
            cvy_precision_name(run->state.network.dtype, run->state.device));
    warn_of(run, "--threads", then, now);
    warn_of(run, "processor and libraries", cvy_json_get_string(plan, "description", device->description),
            device->description);
}

/* ---- weights and state ---- */

static cvy_status check_classes(const struct cvy_run *run)
{
    const struct cvy_checkpoint_info *info = &run->resume.info;
    const struct cvy_dataset *data = &run->data.train;

    if (info->class_count != data->class_count)
        return cvy_fail(CVY_BAD_DATA, "%s was trained on %s, but %s has %d", cvy_quote(run->resume.file),
                        cvy_counted(info->class_count, "class"), cvy_quote(run->config->options.data),
                        (int)data->class_count);
    for (int32_t i = 0; i < info->class_count; i++) {
        if (strcmp(info->classes[i], data->classes[i]) != 0)
            return cvy_fail(CVY_BAD_DATA, "class %d of %s is %s, but %s in %s", (int)i, cvy_quote(run->resume.file),
                            cvy_quote(info->classes[i]), cvy_quote(data->classes[i]),
                            cvy_quote(run->config->options.data));
    }
    return CVY_OK;
}

/* Other algorithms give other roundings: on the device of before, the choice must be that of before. */
static cvy_status check_settings(const struct cvy_run *run)
{
    const struct cvy_json_value *plan = run->resume.info.plan;
    const char *then = plan ? cvy_json_get_string(plan, "settings", NULL) : NULL;

    if (!then || strcmp(cvy_json_get_string(plan, "device", ""), run->state.device->backend->name) != 0 ||
        cvy_settings_agree(then, run->state.device->settings))
        return CVY_OK;
    return cvy_fail(CVY_USAGE,
                    "the checkpoint %s was made with %s, this run has %s, and a resumed run cannot change it: set the "
                    "environment variable, or the option, as it was",
                    cvy_quote(run->resume.file), cvy_quote(then), run->state.device->settings);
}

/* Kernels that were chosen by timing are chosen again. */
static cvy_status pin_kernels(const struct cvy_run *run)
{
    const struct cvy_json_value *plan = run->resume.info.plan;
    const struct cvy_json_value *kernels = plan ? cvy_json_get(plan, "kernels") : NULL;

    if (!kernels || kernels->type != CVY_JSON_OBJECT || !run->state.device->autotuner)
        return CVY_OK;
    for (const struct cvy_json_value *entry = kernels->first; entry; entry = entry->next) {
        if (entry->type == CVY_JSON_STRING)
            CVY_TRY(cvy_autotuner_pin(run->state.device->autotuner, entry->key, entry->text, "in the checkpoint"));
    }
    return CVY_OK;
}

cvy_status cvy_resume_prepare(struct cvy_run *run)
{
    if (!run->resume.found)
        return CVY_OK;
    CVY_TRY(check_classes(run));
    CVY_TRY(check_settings(run));
    return pin_kernels(run);
}

/* What becomes of the run's learning rate and length where its steps have another size. */
static void log_step_change(const struct cvy_run *run, int64_t then, int64_t done)
{
    const struct cvy_train_options *o = &run->config->options;
    const double old = cvy_json_get_number(run->resume.info.options, "lr", o->lr);
    char rate[32], old_rate[32], length[96] = "";

    if (o->steps > 0)
        snprintf(length, sizeof length, ", and %lld of %s are left", (long long)(o->steps - run->state.progress.step),
                 cvy_counted(o->steps, "step"));
    cvy_log(CVY_LOG_WARNING,
            "%s was trained with %s in a step, and now it is %lld: the epoch continues after its image %lld; "
            "the learning rate %s %s%s%s%s",
            cvy_quote(run->resume.file), cvy_counted(then, "image"), (long long)run->state.progress.step_images,
            (long long)done, o->lr == old ? "stays" : "changes from", cvy_double_text(old, old_rate),
            o->lr == old ? "" : " to ", o->lr == old ? "" : cvy_double_text(o->lr, rate), length);
}

/* Steps that hold as many images as before, but divided among more ranks or fewer: sums are rounded otherwise, and
 * batch norms see other batches. */
static void compare_ranks(const struct cvy_run *run)
{
    const int then = cvy_resume_ranks(run), now = run->ranks.comm.world;

    if (run->resume.info.plan && then != now)
        cvy_log(CVY_LOG_WARNING,
                "%s was trained by %d %s, and now there %s %d: the run continues, but not bit for bit as it would have",
                cvy_quote(run->resume.file), then, then == 1 ? "process" : "processes", now == 1 ? "is" : "are", now);
}

/* Steps of another size than the checkpoint's, because there are more ranks or fewer: the epoch continues after the
 * last image that was seen. Steps that were taken stay counted: the logs know them by their numbers. */
static void change_step(struct cvy_run *run)
{
    struct cvy_train_state *state = &run->state.progress;
    const int64_t now = run->config->options.batch_size * run->config->accumulate * run->ranks.comm.world,
                  then = state->step_images;
    int64_t done;

    state->step_images = now;
    if (then == now)
        compare_ranks(run);
    if (then == 0 || then == now ||
        cvy_run_is_synthetic(run->config)) /* where images are made up, an epoch is this many steps */
        return;
    done = state->skipped + state->position * then;
    if (done > run->data.train.sample_count) /* after a smaller last step */
        done = run->data.train.sample_count;
    state->skipped = done - state->position * now;
    log_step_change(run, then, done);
}

/* Where there is none, or its steps have another size, the run begins with the state that it continues from. */
static cvy_status load_last_good(struct cvy_run *run)
{
    const struct cvy_resume *resume = &run->resume;
    const int64_t step_images = run->config->options.batch_size * run->config->accumulate * run->ranks.comm.world;

    if (!run->state.snapshot.open || !resume->info.has_last_good || resume->info.last_good.step_images != step_images)
        goto none;
    run->state.last_good = resume->info.last_good;
    CVY_TRY(cvy_weights_load_snapshot(&run->state.network, &resume->tensors, resume->file, &run->state.snapshot));
    if (run->state.snapshot.taken)
        return CVY_OK;
none: /* where there is nothing to go back to, a divergence that was seen counts no longer */
    if (run->state.progress.diverged_step > 0)
        run->state.progress.diverged_step = run->state.progress.recent_count = 0;
    return CVY_OK;
}

cvy_status cvy_resume_load(struct cvy_run *run)
{
    const struct cvy_weights_load_options options = {.any_numbers = !run->config->options.evaluate};
    struct cvy_resume *resume = &run->resume;

    CVY_TRY(cvy_weights_load(&run->state.network, &resume->tensors, resume->file, &options));
    CVY_TRY(
        cvy_weights_load_training(&run->state.network, &resume->tensors, resume->file, &options, &resume->averaged));
    compare_device(run);
    run->state.progress = resume->info.state;
    if (run->config->options.evaluate)
        goto done;
    CVY_TRY(load_last_good(run));
    if (run->state.progress.epoch > run->config->options.epochs &&
        cvy_option_source_of(&run->config->options, "epochs") == CVY_FROM_FLAG)
        return cvy_fail(CVY_USAGE, "option --epochs %lld: %s has %s done already",
                        (long long)run->config->options.epochs, cvy_quote(resume->file),
                        cvy_counted(run->state.progress.epoch, "epoch"));
    change_step(run);
    if (run->state.progress.position > cvy_run_full_epoch_steps(run) ||
        (run->config->options.steps == 0 && run->state.progress.epoch > run->config->options.epochs))
        return cvy_fail(CVY_BAD_DATA, "%s stands at epoch %lld, step %lld, but this run has %s of %s",
                        cvy_quote(resume->file), (long long)run->state.progress.epoch,
                        (long long)run->state.progress.position, cvy_counted(run->config->options.epochs, "epoch"),
                        cvy_counted(cvy_run_full_epoch_steps(run), "step"));
    if (run->state.progress.train_images != run->data.train.sample_count)
        cvy_log(CVY_LOG_WARNING,
                "the training set had %s when %s was saved and has %lld now: the run continues, "
                "but not as it would have",
                cvy_counted(run->state.progress.train_images, "image"), cvy_quote(resume->file),
                (long long)run->data.train.sample_count);
done:
    cvy_resume_close(resume); /* the mapping must not outlive the next save */
    return CVY_OK;
}
