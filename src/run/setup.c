/* Setting up a run: options, data, network, plans, run directory, logs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/autotune.h"
#include "base/error.h"
#include "base/log.h"
#include "base/resources.h"
#include "data/detection/coco_set.h"
#include "data/set/tfrecord_set.h"
#include "data/transform/tensorflow.h"
#include "options/options.h"
#include "options/recipe_auto.h"
#include "run/ranks.h"
#include "weights/model_variant.h"

enum { SYNTHETIC_BATCHES = 64, SYNTHETIC_CLASSES = 1000, RANK_SEEDS = 1000003 /* so that each has other images */ };

bool cvy_run_is_synthetic(const struct cvy_run_config *config)
{
    return strcmp(config->options.data_backend, "synthetic") == 0;
}

/* ---- data ---- */

/* --train-list is another way to say DIR. */
static cvy_status name_data(struct cvy_train_options *o)
{
    if (!o->train_list[0])
        return CVY_OK;
    if (o->data[0] && strcmp(o->data, o->train_list) != 0)
        return cvy_fail(CVY_USAGE, "the data folder %s and option --train-list exclude each other", cvy_quote(o->data));
    snprintf(o->data, sizeof o->data, "%s", o->train_list);
    return CVY_OK;
}

/* Classes that a list by number leaves out, and sizes so different that somebody may want to do something about it. */
static cvy_status check_class_count(const struct cvy_run *run)
{
    const struct cvy_dataset *train = &run->data.train;
    uint32_t *images = cvy_calloc((size_t)train->class_count, sizeof *images);
    int32_t empty = 0, first = -1, max = 0, min = 0;

    if (!images)
        return cvy_fail_memory((size_t)train->class_count * sizeof *images, "the classes");
    for (uint32_t i = 0; i < train->sample_count; i++)
        images[train->samples[i].label]++;
    for (int32_t c = 0; c < train->class_count; c++) {
        empty += images[c] == 0;
        first = images[c] == 0 && first < 0 ? c : first;
        max = images[c] > images[max] ? c : max;
        min = images[c] < images[min] ? c : min;
    }
    const uint32_t largest = images[max], smallest = images[min];
    cvy_free(images);
    if (empty > 0)
        cvy_log(CVY_LOG_WARNING, "%d of %d classes have no training images: class %d is the first of them", (int)empty,
                (int)train->class_count, (int)first);
    else if (largest / 4 >= smallest && cvy_option_source_of(&run->config->options, "sampler") == CVY_FROM_DEFAULT &&
             cvy_option_source_of(&run->config->options, "class-weights") == CVY_FROM_DEFAULT)
        cvy_log(CVY_LOG_INFO,
                "class %s has %u training images, class %s %u: --sampler balanced shows each class equally often, "
                "--class-weights balanced weighs the loss",
                cvy_quote(train->classes[max]), largest, cvy_quote(train->classes[min]), smallest);
    return CVY_OK;
}

/* TFRecords whose places are known from index files. */
static cvy_status open_indexed(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;

    if (!cvy_holds_tfrecords(o->data, CVY_TFRECORD_TRAIN))
        return cvy_fail(CVY_USAGE, "option --data-idx-dir: %s holds no TFRecords (files train-*)", cvy_quote(o->data));
    if (o->val_split > 0 || o->val_list[0])
        return cvy_fail(CVY_USAGE, "options --data-idx-dir and %s exclude each other",
                        o->val_split > 0 ? "--val-split" : "--val-list");
    if (o->training_only)
        return cvy_dataset_open_tfrecords(&run->data.train, o->data, CVY_TFRECORD_TRAIN, o->data_idx_dir, NULL, 0);
    return cvy_dataset_open_tfrecord_pair(o->data, o->data_idx_dir, &run->data.train, &run->data.val);
}

static cvy_status open_data(struct cvy_run *run)
{
    struct cvy_train_options *options = &run->resolving->options;

    if (cvy_run_is_synthetic(run->config))
        return CVY_OK;
    if (!options->data[0])
        return cvy_fail(CVY_USAGE, "no data folder is given");
    if (cvy_run_is_detection(options))
        return cvy_run_open_detection(run);
    if (options->data_idx_dir[0])
        CVY_TRY(open_indexed(run));
    else if (options->training_only)
        CVY_TRY(cvy_dataset_open_training(&run->data.train, options->data));
    else
        CVY_TRY(cvy_dataset_open_pair(options->data, options->val_list, options->val_split, options->seed,
                                      &run->data.train, &run->data.val));
    return check_class_count(run);
}

/* Before anything is opened: a recipe may say where the data are, and how they are divided. A resumed run has its
 * values. */
static cvy_status apply_recipe(struct cvy_run *run)
{
    if (!run->resume.found) {
        CVY_TRY(cvy_recipe_apply_named(&run->resolving->options));
        return name_data(&run->resolving->options);
    }
    if (cvy_option_source_of(&run->config->options, "recipe") == CVY_FROM_FLAG)
        cvy_log(CVY_LOG_WARNING, "option --recipe is not applied again: a resumed run goes on with its own values");
    return CVY_OK;
}

/* The automatic recipe. A resumed run has its values; what the images look like is asked for all the same: decoders
 * take memory. */
static cvy_status choose_recipe(struct cvy_run *run)
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

/* --amp is a way to say fp16 on a GPU and bf16 on a CPU. Where both are said and differ, the one with the higher word
 * counts: a flag over a recipe or the options of the run that is resumed. */
static cvy_status resolve_precision(const cvy_device *device, struct cvy_train_options *o)
{
    const char *mixed = cvy_precision_mixed(device);
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
        o->eval_resize = (int64_t)lround((double)o->image_size * 256.0 / 224.0);
    if (o->num_classes == 0)
        o->num_classes = counted;
    if (!o->squeeze_width[0]) /* said in the checkpoint, whatever later versions choose */
        cvy_squeeze_width_text(cvy_architecture_find(o->arch)->squeeze_width, o->squeeze_width);
    if (!cvy_run_is_synthetic(run->config) && o->num_classes < counted)
        return cvy_fail(CVY_USAGE, "option --num-classes %lld: %s has %lld classes", (long long)o->num_classes,
                        cvy_quote(o->data), (long long)counted);
    if (o->workers < 0)
        o->workers = cvy_shared_threads(run->ranks.on_cores);
    if (strcmp(o->data_backend, "tensorflow") == 0 && cvy_option_source_of(o, "min-crop-area") == CVY_FROM_DEFAULT)
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
    if (strcmp(o->interpolation, "bicubic") == 0 && (dali || tensorflow))
        return cvy_fail(CVY_USAGE, "option --interpolation bicubic is for torchvision's transforms: --data-backend "
                                   "pytorch");
    if (strcmp(o->interpolation, "triangular") == 0 && !dali)
        return cvy_fail(CVY_USAGE, "option --interpolation triangular is for --data-backend dali-cpu and dali-gpu");
    return CVY_OK;
}

/* The values, and combinations that are impossible. */
static cvy_status resolve_options(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;

    CVY_TRY(cvy_run_resolve_values(run, o));
    CVY_TRY(cvy_run_resolve_detection(o));
    CVY_TRY(check_transforms(o));
    if (o->eval_resize < o->image_size)
        return cvy_fail(CVY_USAGE, "option --eval-resize %lld is below the image size %lld", (long long)o->eval_resize,
                        (long long)o->image_size);
    CVY_TRY(cvy_run_resolve_rules(run));
    if (!cvy_run_is_synthetic(run->config) && !o->evaluate && o->batch_size > run->data.train.sample_count)
        return cvy_fail(CVY_USAGE, "option --batch-size %lld: the training set has only %lld images",
                        (long long)o->batch_size, (long long)run->data.train.sample_count);
    if (o->warmup >= o->epochs && o->warmup > 0)
        return cvy_fail(CVY_USAGE, "option --warmup %lld leaves nothing of %lld epochs", (long long)o->warmup,
                        (long long)o->epochs);
    return CVY_OK;
}

static cvy_status open_synthetic(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    struct cvy_synthetic synthetic = {
        .batch_size = (int32_t)o->batch_size,
        .image_size = cvy_run_train_size(o),
        .num_classes = (int32_t)o->num_classes,
        .seed = o->seed + (uint64_t)run->ranks.comm.rank * RANK_SEEDS,
        .batches = SYNTHETIC_BATCHES,
        .float_images = cvy_run_is_detection(o),
        .boxes = cvy_run_is_detection(o),
    };

    if (!o->evaluate)
        CVY_TRY(cvy_source_open_synthetic(&run->data.train_source, &synthetic));
    if (o->training_only)
        return CVY_OK;
    synthetic.batch_size = cvy_run_evaluation_batch(o);
    synthetic.image_size = (int32_t)o->image_size;
    synthetic.seed++;
    synthetic.batches = SYNTHETIC_BATCHES / 8;
    return cvy_source_open_synthetic(&run->data.val_source, &synthetic);
}

static cvy_status open_sources(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    struct cvy_loader_options loader = cvy_run_loader_options(run, o);

    if (cvy_run_is_synthetic(run->config))
        return open_synthetic(run);
    if (!o->evaluate)
        CVY_TRY(cvy_source_open(&run->data.train_source, &loader));
    if (o->training_only)
        return CVY_OK;
    loader = cvy_run_val_loader_options(run, o);
    return cvy_source_open(&run->data.val_source, &loader);
}

/* ---- network ---- */

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
    return cvy_device_open(run->ranks.device_name, choose_threads(run), &run->state.device);
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

static cvy_status open_network(struct cvy_run *run)
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
        run->resolving->options.static_loss_scale = (double)optimizer.loss_scale;
    CVY_TRY(cvy_network_open(&run->state.network, run->state.device, cvy_architecture_find(o->arch), &model, dtype,
                             !o->evaluate));
    CVY_TRY(
        cvy_network_extend(&run->state.network, o->evaluate ? 0 : cvy_optimizer_extras(&optimizer), o->use_ema > 0));
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
        CVY_TRY(cvy_reducer_wire_dtype(&run->state.trainer.reducer, cvy_ranks_gradients(o)));
        CVY_TRY(cvy_trainer_set_scaler(&run->state.trainer, &run->state.progress.scaler));
        CVY_TRY(cvy_run_set_loss(run));
        run->state.trainer.batches = run->state.progress.step * run->config->accumulate;
    }
    if (!o->training_only)
        CVY_TRY(cvy_evaluator_open(&run->state.evaluator, &run->state.network, cvy_run_evaluation_batch(o)));
    return CVY_OK;
}

static void describe(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;

    run->resolving->preprocessing = (struct cvy_preprocessing){
        .image_size = (int32_t)o->image_size,
        .resize = (int32_t)o->eval_resize,
        .exif_orientation = o->exif_orientation,
        .tensorflow = run->state.network.model.float_images,
        .dali = cvy_run_has_dali_rules(o),
        .filter = cvy_run_filter(o),
    };
    memcpy(run->resolving->preprocessing.mean, run->state.network.model.mean,
           sizeof run->resolving->preprocessing.mean);
    memcpy(run->resolving->preprocessing.std, run->state.network.model.std, sizeof run->resolving->preprocessing.std);
    run->resolving->schedule = cvy_run_schedule(run->config);
    run->resolving->best_is_average = strcmp(o->best_of, "ema") == 0;
}

static int64_t choose_end(const struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    int64_t end = o->epochs;

    if (o->run_epochs > 0)
        end = run->state.progress.epoch + o->run_epochs;
    else if (run->resume.end_epoch > run->state.progress.epoch) /* the run was interrupted: it goes on to its own end */
        end = run->resume.end_epoch;
    return end < o->epochs ? end : o->epochs;
}

/* The folder appears only when nothing else can be wrong any more. */
static cvy_status open_directory(struct cvy_run *run)
{
    struct cvy_resume *resume = &run->resume;

    if (run->config->options.evaluate) { /* a record where one is asked for, and nothing else */
        if (run->config->options.workspace[0]) {
            CVY_TRY(cvy_make_directories(run->config->options.workspace));
            CVY_TRY(cvy_run_lock_take(&run->state.lock, run->config->options.workspace));
            CVY_TRY(cvy_run_log_open_report(&run->state.log, &run->resolving->paths, &run->resolving->options));
        }
        CVY_TRY(cvy_run_report_open(run));
        return cvy_run_report_parameters(run);
    }
    CVY_TRY(cvy_run_directory_make(&run->resolving->paths, &run->resolving->options,
                                   resume->requested ? resume->folder : NULL));
    CVY_TRY(cvy_run_lock_take(&run->state.lock, run->config->paths.folder));
    cvy_run_clean_up(run);
    cvy_output_clean(run->config->paths.checkpoint);
    cvy_output_clean(run->config->paths.best);
    cvy_output_clean(run->config->paths.options);
    cvy_output_clean(run->config->paths.validation);
    cvy_output_clean(run->config->paths.plot);
    CVY_TRY(cvy_run_options_write(run->config->paths.options, &run->config->options,
                                  run->config->end_epoch < run->config->options.epochs ? run->config->end_epoch : 0));
    CVY_TRY(cvy_run_log_open(&run->state.log, &run->config->paths, &run->config->options,
                             resume->found ? &run->state.progress : NULL));
    if (run->ranks.comm.world > 1)
        CVY_TRY(cvy_run_log_open_ranks(&run->state.log, resume->found ? &run->state.progress : NULL));
    CVY_TRY(cvy_run_report_open(run));
    return cvy_run_report_parameters(run);
}

/* Steps of an epoch. Batches that do not fill a whole step are left out, as are images that do not fill a whole batch.
 */
static cvy_status count_steps(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    const int64_t batches = cvy_source_batches(&run->data.train_source);

    if (o->evaluate)
        return CVY_OK;
    run->resolving->steps_per_epoch = batches / run->resolving->accumulate;
    if (o->prof > 0 && o->prof < run->config->steps_per_epoch)
        run->resolving->steps_per_epoch = o->prof;
    if (run->config->steps_per_epoch > 0)
        return CVY_OK;
    if (run->config->accumulate > 1)
        return cvy_fail(CVY_USAGE, "option --optimizer-batch-size %lld takes more batches than an epoch has",
                        (long long)o->optimizer_batch_size);
    return cvy_fail(CVY_USAGE, "option --batch-size %lld is larger than the training set", (long long)o->batch_size);
}

/* A length in steps as epochs, the last of which may be a shorter one. Epochs that --prof cuts count as whole ones. */
static cvy_status choose_epochs(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;
    const struct cvy_train_state *state = &run->state.progress;
    const int64_t each = o->evaluate ? 0 : cvy_source_batches(&run->data.train_source) / run->config->accumulate;
    const int64_t left = o->steps - (state->step - state->position); /* from the begin of this epoch on */

    if (o->steps == 0 || each == 0)
        return CVY_OK;
    const int64_t first = state->skipped == 0 ? each : cvy_run_full_epoch_steps(run);
    o->epochs = state->epoch + (left > 0) + (left > first ? (left - first + each - 1) / each : 0);
    if (o->epochs > CVY_MAX_EPOCHS)
        return cvy_fail(CVY_USAGE, "option --steps %lld makes %lld epochs of %lld steps, and at most %d are possible",
                        (long long)o->steps, (long long)o->epochs, (long long)each, CVY_MAX_EPOCHS);
    return CVY_OK;
}

/* All ranks do this together. What they say to one another on the way, in this order, is in cvy_ranks_...; and in
 * choose_recipe, where --batch-size auto agrees on the least batch. Nothing else may wait for another rank, and nothing
 * that not all ranks do may come between. */
static cvy_status open_all(struct cvy_run *run)
{
    CVY_TRY(cvy_ranks_open(run));
    CVY_TRY(name_data(&run->resolving->options));
    CVY_TRY(cvy_resume_open(run));
    CVY_TRY(apply_recipe(run));
    CVY_TRY(cvy_ranks_compare(run, CVY_RANKS_OPTIONS));
    CVY_TRY(cvy_run_choose_task(run));
    CVY_TRY(cvy_pretrained_open(run));
    CVY_TRY(open_data(run));
    CVY_TRY(cvy_run_open_caches(run));
    CVY_TRY(cvy_ranks_compare(run, CVY_RANKS_DATA));
    CVY_TRY(choose_recipe(run));
    CVY_TRY(cvy_run_open_device(run));
    CVY_TRY(resolve_options(run));
    CVY_TRY(cvy_resume_prepare(run));
    CVY_TRY(cvy_run_class_weights(run));
    CVY_TRY(cvy_ranks_compare(run, CVY_RANKS_READY));
    CVY_TRY(cvy_ranks_list_threads(run));
    CVY_TRY(cvy_ranks_join_batches(run));
    CVY_TRY(cvy_ranks_join_devices(run));
    CVY_TRY(cvy_ranks_wait_for_kernels(run));
    CVY_TRY(cvy_run_check_memory(run));
    CVY_TRY(cvy_ranks_broadcast_kernels(run));
    cvy_autotuner_freeze(run->state.device->choices);
    CVY_TRY(open_sources(run));
    CVY_TRY(count_steps(run));
    run->state.progress = (struct cvy_train_state){.best_epoch = -1, .train_images = run->data.train.sample_count};
    CVY_TRY(open_network(run));
    run->state.progress.train_images = run->data.train.sample_count;
    CVY_TRY(cvy_ranks_broadcast_weights(run));
    run->state.progress.step_images = run->config->options.batch_size * run->config->accumulate * run->ranks.comm.world;
    CVY_TRY(choose_epochs(run));
    describe(run);
    run->resolving->end_epoch = choose_end(run);
    CVY_TRY(run->ranks.comm.rank == 0 ? open_directory(run) : cvy_run_report_open(run));
    return cvy_ranks_broadcast_directory(run);
}

cvy_status cvy_run_open(struct cvy_run *run, const struct cvy_train_options *options,
                        const struct cvy_train_events *events, struct cvy_train_result *result)
{
    cvy_status status;

    memset(run, 0, sizeof *run);
    run->config = run->resolving = &run->owned_config;
    run->resolving->options = *options;
    run->events = events;
    run->result = result;
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
    cvy_evaluator_close(&run->state.evaluator);
    cvy_collector_close(&run->state.collector);
    cvy_coco_close(&run->state.coco);
    cvy_pictures_close(&run->state.pictures);
    cvy_coco_result_release(&run->state.coco_result);
    cvy_free(run->state.latency);
    cvy_trainer_close(&run->state.trainer);
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
