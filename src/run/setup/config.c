/* From options, recipes and data to the configuration of a run, in which every value is resolved. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/resources.h"
#include "data/detection/coco_set.h"
#include "data/transform/tensorflow.h"
#include "data/transform/transform.h"
#include "options/options.h"
#include "options/recipe_auto.h"
#include "run/setup/stages.h"

enum {
    SYNTHETIC_CLASSES = 1000,
    REFERENCE_MARGIN = 32 /* around the central crop of PyTorch's program, whose lines give every other value */
};

/* ---- recipes ---- */

/* Before anything is opened: a recipe may say where the data are, and how they are divided. A resumed run has its
 * values. */
cvy_status cvy_setup_apply_recipe(struct cvy_run *run)
{
    if (!run->resume.found) {
        CVY_TRY(cvy_recipe_apply_named(&run->resolving->options));
        return cvy_setup_name_data(&run->resolving->options);
    }
    if (cvy_option_source_of(&run->config->options, "recipe") == CVY_FROM_FLAG)
        cvy_log(CVY_LOG_WARNING, "option --recipe is not applied again: a resumed run continues with its own values");
    return CVY_OK;
}

/* The automatic recipe. A resumed run has its values; what the images look like is asked for all the same: decoders
 * take memory. */
cvy_status cvy_setup_choose_recipe(struct cvy_run *run)
{
    struct cvy_data_summary summary;

    if (run->resume.found && run->config->options.batch_size == CVY_BATCH_AUTO)
        return cvy_fail(CVY_BAD_DATA, "%s: its options say no batch size", cvy_quote(run->resume.file));
    run->resolving->batch_chosen = run->resolving->options.batch_size == CVY_BATCH_AUTO;
    if (cvy_run_is_synthetic(run->config)) {
        run->resolving->options.batch_size =
            run->config->batch_chosen ? CVY_AUTO_TRAINING_MAX : run->config->options.batch_size;
        return run->config->batch_chosen
                   ? cvy_run_fit_batch(run, &run->resolving->options, &run->resolving->options.batch_size)
                   : CVY_OK;
    }
    CVY_TRY(cvy_data_summarize(&run->data.train, &summary));
    run->resolving->largest_pixels = summary.largest_pixels;
    if (run->resume.found)
        return CVY_OK;
    if (!cvy_run_is_detection(&run->config->options) && cvy_options_are_whole(&run->config->options))
        return CVY_OK; /* a published script: nothing that it does not say is chosen for it */
    run->resolving->automatic = true;
    summary.fit = cvy_run_fit_batch;
    summary.fit_context = run;
    summary.ranks = run->ranks.comm.world;
    summary.pretrained = run->pretrained.used;
    if (run->pretrained.info.has_preprocessing)
        summary.pretrained_size = run->pretrained.info.preprocessing.image_size;
    return cvy_run_is_detection(&run->resolving->options)
               ? cvy_auto_recipe_detection(&summary, &run->resolving->options)
               : cvy_auto_recipe(&summary, &run->resolving->options);
}

/* ---- values ---- */

/* --amp is a way to say fp16 on a GPU and bf16 on a CPU. Where both are said and differ, the one with the higher word
 * counts: a flag over a recipe or the options of the run that is resumed. */
static cvy_status resolve_precision(const cvy_device *device, struct cvy_train_options *o)
{
    const char *mixed = device                               ? cvy_precision_mixed(device)
                        : strncmp(o->device, "cuda", 4) == 0 ? "fp16"
                        : strcmp(o->device, "cpu") == 0      ? "bf16"
                                                             : "auto"; /* a dry run without a named device */
    const enum cvy_option_source amp = cvy_option_source_of(o, "amp"), precision = cvy_option_source_of(o, "precision");
    const bool narrow = strcmp(o->precision, "bf16") == 0 || strcmp(o->precision, "fp16") == 0;

    if (o->amp == narrow || (!o->amp && amp <= precision))
        return CVY_OK;
    if (!o->amp) /* taken back: what it had chosen too */
        snprintf(o->precision, sizeof o->precision, "auto");
    else if (precision > amp)
        o->amp = false;
    else if (amp > precision || strcmp(o->precision, "auto") == 0)
        snprintf(o->precision, sizeof o->precision, "%s", mixed);
    else
        return cvy_fail(CVY_USAGE, "options --amp and --precision %s exclude each other", o->precision);
    return CVY_OK;
}

cvy_status cvy_run_resolve_values(const struct cvy_run *run, struct cvy_train_options *o)
{
    const int64_t made_up = cvy_run_is_detection(o) ? CVY_COCO_SLOTS : SYNTHETIC_CLASSES;
    const int64_t counted = cvy_run_is_synthetic(run->config) ? made_up : run->data.train.class_count;

    CVY_TRY(resolve_precision(run->state.device, o));
    if (o->image_size == 0)
        o->image_size = cvy_architecture_find(o->arch)->default_image_size;
    if (o->eval_resize == 0)
        o->eval_resize = cvy_options_are_whole(o) ? o->image_size + REFERENCE_MARGIN : cvy_usual_resize(o->image_size);
    if (o->num_classes == 0)
        o->num_classes = counted;
    if (!o->squeeze_width[0]) /* said in the checkpoint, whatever later versions choose */
        cvy_squeeze_width_text(cvy_architecture_find(o->arch)->squeeze_width, o->squeeze_width);
    if (!cvy_run_is_synthetic(run->config) && o->num_classes < counted) {
        if (cvy_option_source_of(o, "num-classes") == CVY_FROM_RESUME) /* nobody has given the option */
            return cvy_fail(CVY_BAD_DATA, "%s was trained on %s, but %s has %lld", cvy_quote(run->resume.file),
                            cvy_counted(run->resume.info.class_count, "class"), cvy_quote(o->data), (long long)counted);
        return cvy_fail(CVY_USAGE, "option --num-classes %lld: %s has %s", (long long)o->num_classes,
                        cvy_quote(o->data), cvy_counted(counted, "class"));
    }
    if (o->workers < 0)
        o->workers = cvy_shared_threads(run->ranks.on_cores);
    if (strncmp(o->data_backend, "tensorflow", 10) == 0 && cvy_option_source_of(o, "min-crop-area") == CVY_FROM_DEFAULT)
        o->min_crop_area = CVY_TENSORFLOW_MIN_AREA;
    return CVY_OK;
}

/* What each set of rules has. */
static cvy_status check_transforms(const struct cvy_train_options *o)
{
    const bool dali = cvy_run_has_dali_rules(o), tensorflow = strcmp(o->data_backend, "tensorflow") == 0;

    if ((dali || tensorflow) && strcmp(o->augmentation, "autoaugment") == 0)
        return cvy_fail(CVY_USAGE, "options --data-backend %s and --augmentation %s exclude each other",
                        o->data_backend, o->augmentation);
    if (strcmp(o->decode, "fast") == 0 && (dali || tensorflow || strcmp(o->augmentation, "off") == 0))
        return cvy_fail(CVY_USAGE, "option --decode fast is for the crops of torchvision's training transform only");
    if (strcmp(o->interpolation, "bilinear") != 0 && strncmp(o->data_backend, "tensorflow", 10) == 0)
        return cvy_fail(CVY_USAGE, "option --interpolation %s is for --data-backend pytorch, dali-cpu and dali-gpu",
                        o->interpolation);
    if (o->rounded_scale && !dali)
        return cvy_fail(CVY_USAGE, "option --rounded-scale is for --data-backend dali-cpu and dali-gpu");
    if (strcmp(o->interpolation, "triangular") == 0 && !dali)
        return cvy_fail(CVY_USAGE, "option --interpolation triangular is for --data-backend dali-cpu and dali-gpu");
    return CVY_OK;
}

/* The values, and combinations that are impossible. */
cvy_status cvy_setup_resolve_options(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;

    CVY_TRY(cvy_run_resolve_values(run, o));
    CVY_TRY(cvy_run_resolve_detection(o));
    CVY_TRY(check_transforms(o));
    if (o->eval_resize < o->image_size)
        return cvy_fail(CVY_USAGE, "option --eval-resize %lld is below the image size %lld", (long long)o->eval_resize,
                        (long long)o->image_size);
    CVY_TRY(cvy_run_resolve_rules(run));
    if (o->precise_bn > 0 && o->quantize)
        return cvy_fail(CVY_USAGE, "options --precise-bn and --quantize exclude each other: the ranges of quantizers "
                                   "are averages over all steps");
    if (run->data.train.sample_count > 0 && !o->evaluate && o->batch_size > run->data.train.sample_count)
        return cvy_fail(CVY_USAGE, "option --batch-size %lld: the training set has only %s", (long long)o->batch_size,
                        cvy_counted(run->data.train.sample_count, "image"));
    return CVY_OK;
}

/* ---- lengths ---- */

/* Steps of an epoch. Batches that do not fill a whole step are left out, as are images that do not fill a whole batch
 * unless --last-batch partial makes one of them. */
cvy_status cvy_setup_count_steps(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    const int64_t batches = cvy_source_batches(&run->data.train_source);

    if (o->evaluate)
        return CVY_OK;
    run->resolving->steps_per_epoch = batches / run->resolving->accumulate;
    run->resolving->last_batch = cvy_run_short_epoch(run, o) % o->batch_size;
    if (o->prof > 0 && cvy_run_prof_steps(run->config) < run->config->steps_per_epoch) {
        run->resolving->steps_per_epoch = cvy_run_prof_steps(run->config);
        run->resolving->last_batch = 0;
    }
    if (run->config->steps_per_epoch > 0)
        return CVY_OK;
    if (run->config->accumulate > 1)
        return cvy_fail(CVY_USAGE, "option --optimizer-batch-size %lld takes more batches than an epoch has",
                        (long long)o->optimizer_batch_size);
    return cvy_fail(CVY_USAGE, "option --batch-size %lld for each of %d processes: the training set has only %s",
                    (long long)o->batch_size, run->ranks.comm.world,
                    cvy_counted(run->data.train.sample_count, "image"));
}

/* The first epoch that begins after `step` steps of the training or later, where epochs after the present one have
 * `each` steps. */
static int64_t epoch_after(const struct cvy_run *run, int64_t step, int64_t each)
{
    const struct cvy_train_state *state = &run->state.progress;
    const int64_t left = step - (state->step - state->position); /* from the begin of this epoch on */
    const int64_t first = state->skipped == 0 ? each : cvy_run_full_epoch_steps(run);

    return state->epoch + (left > 0) + (left > first ? (left - first + each - 1) / each : 0);
}

/* A length in steps as epochs, the last of which may be a shorter one. Epochs that --prof cuts count as whole ones. */
cvy_status cvy_setup_choose_epochs(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;
    const int64_t each = o->evaluate ? 0 : cvy_source_batches(&run->data.train_source) / run->config->accumulate;

    if (o->steps == 0 || each == 0)
        return CVY_OK;
    o->epochs = epoch_after(run, o->steps, each);
    if (o->epochs > CVY_MAX_EPOCHS)
        return cvy_fail(CVY_USAGE, "option --steps %lld makes %lld epochs of %s, and at most %d are possible",
                        (long long)o->steps, (long long)o->epochs, cvy_counted(each, "step"), CVY_MAX_EPOCHS);
    return CVY_OK;
}

/* Whether the run that is continued was stopped or killed before it came to its own end, which is the last validation
 * after its last step. A position of 0 is that of an epoch's begin, before which all of the one before is done. */
static bool was_interrupted(const struct cvy_run_end *end, const struct cvy_train_state *state)
{
    return end->step == 0 || state->step < end->step ||
           (state->step == end->step && state->position > 0 && !end->reached);
}

/* A run that was interrupted continues to its own end, unless this one is told another. */
static struct cvy_run_end choose_end(const struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    const struct cvy_train_state *state = &run->state.progress;
    const bool told = o->run_epochs > 0 || o->run_steps > 0;
    const struct cvy_run_end *old = &run->resume.end;
    const bool interrupted = was_interrupted(old, state);
    struct cvy_run_end end = {.epoch = o->epochs};

    if (o->run_epochs > 0)
        end.epoch = state->epoch + o->run_epochs;
    else if (!told && interrupted && old->epoch > state->epoch)
        end.epoch = old->epoch;
    if (o->run_steps > 0)
        end.step = state->step + o->run_steps;
    else if (!told && interrupted)
        end.step = old->step;
    if (end.step > 0 && !o->evaluate) {
        const int64_t epoch = epoch_after(run, end.step, run->config->steps_per_epoch);
        end.epoch = epoch < end.epoch ? epoch : end.epoch;
    }
    end.epoch = end.epoch < o->epochs ? end.epoch : o->epochs;
    return end;
}

void cvy_setup_describe(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;

    run->resolving->preprocessing = (struct cvy_preprocessing){
        .image_size = (int32_t)o->image_size,
        .resize = (int32_t)o->eval_resize,
        .exif_orientation = o->exif_orientation,
        .tensorflow = run->state.network.model.float_images,
        .dali = cvy_run_has_dali_rules(o),
        .triangular = strcmp(o->data_backend, "tensorflow-dali") == 0,
        .rounded_scale = o->rounded_scale,
        .filter = cvy_run_filter(o),
    };
    memcpy(run->resolving->preprocessing.mean, run->state.network.model.mean,
           sizeof run->resolving->preprocessing.mean);
    memcpy(run->resolving->preprocessing.std, run->state.network.model.std, sizeof run->resolving->preprocessing.std);
    run->resolving->schedule = cvy_run_schedule(run->config);
    run->resolving->best_is_average = strcmp(o->best_of, "ema") == 0;
    run->resolving->end = choose_end(run);
}
