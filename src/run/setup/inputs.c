/* What a run learns from: the sets of images, and the loaders that read them. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "data/detection/detection_set.h"
#include "data/set/tfrecord_set.h"
#include "options/options.h"
#include "run/setup/stages.h"

enum { SYNTHETIC_BATCHES = 64, RANK_SEEDS = 1000003 /* so that each has other images */ };

/* ---- sets ---- */

/* --train-list is another way to say DIR. */
cvy_status cvy_setup_name_data(struct cvy_train_options *o)
{
    if (!o->train_list[0])
        return CVY_OK;
    if (o->data[0] && strcmp(o->data, o->train_list) != 0)
        return cvy_fail(CVY_USAGE, "the data folder %s and option --train-list exclude each other", cvy_quote(o->data));
    snprintf(o->data, sizeof o->data, "%s", o->train_list);
    return CVY_OK;
}

/* Classes that a list by number leaves out, one alone (of folders that lie too deep, perhaps), and sizes so different
 * that somebody may want to do something about it. */
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
        cvy_log(CVY_LOG_WARNING, "%d of %d classes %s no training images: class %d is the first of them", (int)empty,
                (int)train->class_count, empty == 1 ? "has" : "have", (int)first);
    else if (train->class_count == 1)
        cvy_log(CVY_LOG_WARNING,
                "%s has one class, %s, for which every image will be taken: there is nothing to tell apart (each class "
                "is a folder of its own)",
                cvy_quote(run->config->options.data), cvy_quote(train->classes[0]));
    else if (largest / 4 >= smallest && cvy_option_source_of(&run->config->options, "sampler") == CVY_FROM_DEFAULT &&
             cvy_option_source_of(&run->config->options, "class-weights") == CVY_FROM_DEFAULT)
        cvy_log(CVY_LOG_INFO,
                "class %s has %s, class %s %u: --sampler balanced shows each class equally often, "
                "--class-weights balanced weighs the loss",
                cvy_quote(train->classes[max]), cvy_counted(largest, "training image"), cvy_quote(train->classes[min]),
                smallest);
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

static void report_others(const struct cvy_dataset *dataset)
{
    char text[1024];

    if (dataset->others.count > 0)
        cvy_log(CVY_LOG_WARNING, "%s", cvy_other_files_describe(&dataset->others, text, sizeof text));
}

/* A folder without a part for validation is split by itself; as options, so that the checkpoint holds it. */
static cvy_status choose_split(struct cvy_train_options *o)
{
    bool lacks;

    if (o->val_split > 0 || o->val_list[0] || o->evaluate)
        return CVY_OK;
    CVY_TRY(cvy_dataset_lacks_validation(o->data, &lacks));
    if (!lacks)
        return CVY_OK;
    CVY_TRY(cvy_train_options_set(o, "val-split-rule", "path", CVY_FROM_AUTO));
    o->val_split = CVY_AUTOMATIC_SPLIT;
    o->source[cvy_train_option_find("val-split")] = CVY_FROM_AUTO;
    return CVY_OK;
}

static cvy_status open_pair(struct cvy_run *run, struct cvy_train_options *o)
{
    CVY_TRY(choose_split(o));
    if (o->val_split > 0 && !o->val_list[0] && strcmp(o->val_split_rule, "path") == 0)
        return cvy_dataset_open_split(o->data, o->val_split, &run->data.train, &run->data.val);
    return cvy_dataset_open_pair(o->data, o->val_list, o->val_split, o->seed, &run->data.train, &run->data.val);
}

/* --eval-training-data: the sets change places where one was split, else training is opened for both. */
static cvy_status open_training_twice(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;
    const struct cvy_category_rule rule = {.coco = o->coco_slots};

    if (cvy_run_is_detection(o) && o->val_split == 0) {
        CVY_TRY(cvy_dataset_open_detection(&run->data.train, o->data, CVY_DETECTION_TRAIN, &rule));
        return cvy_dataset_open_detection(&run->data.val, o->data, CVY_DETECTION_TRAIN, &rule);
    }
    if (o->val_split == 0) {
        CVY_TRY(cvy_dataset_open_training(&run->data.train, o->data));
        return cvy_dataset_open_training(&run->data.val, o->data);
    }
    CVY_TRY(cvy_run_is_detection(o) ? cvy_run_open_detection(run) : open_pair(run, o));
    const struct cvy_dataset train = run->data.train;
    run->data.train = run->data.val;
    run->data.val = train;
    return CVY_OK;
}

cvy_status cvy_setup_open_data(struct cvy_run *run)
{
    struct cvy_train_options *options = &run->resolving->options;

    if (cvy_run_is_synthetic(run->config))
        return CVY_OK;
    if (!options->data[0])
        return cvy_fail(CVY_USAGE, "no data folder is given");
    if (!cvy_utf8_is_valid(options->data)) /* a resumed run reads it from JSON */
        return cvy_fail(CVY_USAGE, "the path of the data, %s, is not UTF-8", cvy_quote(options->data));
    if (run->resume.data_saved && !cvy_path_exists(options->data))
        return cvy_fail(CVY_NO_INPUT,
                        "the data of the run, %s, are not there: where they have moved, name them beside --resume",
                        cvy_quote(options->data));
    if (options->evaluate && options->eval_training_data)
        return open_training_twice(run);
    if (cvy_run_is_detection(options))
        return cvy_run_open_detection(run);
    if (options->data_idx_dir[0])
        CVY_TRY(open_indexed(run));
    else if (options->training_only)
        CVY_TRY(cvy_dataset_open_training(&run->data.train, options->data));
    else
        CVY_TRY(open_pair(run, options));
    report_others(&run->data.train);
    report_others(&run->data.val);
    return check_class_count(run);
}

/* ---- loaders ---- */

static enum cvy_sampler_kind sampler_of(const struct cvy_train_options *options)
{
    return strcmp(options->sampler, "balanced") == 0  ? CVY_SAMPLE_BALANCED
           : strcmp(options->sampler, "pytorch") == 0 ? CVY_SAMPLE_PYTORCH
                                                      : CVY_SAMPLE_SHUFFLED;
}

struct cvy_loader_options cvy_run_loader_options(const struct cvy_run *run, const struct cvy_train_options *options)
{
    return (struct cvy_loader_options){
        .dataset = &run->data.train,
        .transform = {.training = strcmp(options->augmentation, "off") != 0,
                      .tensorflow = strcmp(options->data_backend, "tensorflow") == 0,
                      .dali = cvy_run_has_dali_rules(options),
                      .triangular = strcmp(options->data_backend, "tensorflow-dali") == 0,
                      .rounded_scale = options->rounded_scale,
                      .filter = cvy_run_filter(options),
                      .size = cvy_run_train_size(options),
                      .resize = (int32_t)options->eval_resize,
                      .fast = strcmp(options->decode, "fast") == 0,
                      .min_crop_area = options->min_crop_area,
                      .exif_orientation = options->exif_orientation,
                      .detection = cvy_run_is_detection(options),
                      .color = {.brightness = options->brightness,
                                .contrast = options->contrast,
                                .saturation = options->saturation,
                                .hue = options->hue}},
        .batch_size = (int32_t)options->batch_size,
        .workers = (int32_t)options->workers,
        .prefetch = (int32_t)options->prefetch,
        .seed = options->seed,
        .sampler = sampler_of(options),
        .autoaugment = strcmp(options->augmentation, "autoaugment") == 0,
        .drop_last = true,
        .even_last = strcmp(options->last_batch, "partial") == 0,
        .replace_bad = !options->strict,
        .cache = run->data.train_cache,
        .device = run->state.device,
        .device_decodes = strcmp(options->decode, "gpu") == 0,
        .rank = run->ranks.comm.rank,
        .world = run->ranks.comm.world,
    };
}

struct cvy_loader_options cvy_run_val_loader_options(const struct cvy_run *run, const struct cvy_train_options *options)
{
    struct cvy_loader_options loader = cvy_run_loader_options(run, options);

    loader.dataset = &run->data.val;
    loader.cache = run->data.val_cache;
    loader.transform.training = false;
    loader.transform.size = (int32_t)options->image_size;
    loader.batch_size = cvy_run_evaluation_batch(options);
    loader.sampler = CVY_SAMPLE_IN_ORDER;
    loader.autoaugment = loader.drop_last = loader.even_last = loader.replace_bad = false;
    loader.name_bad = true;
    return loader;
}

static cvy_status open_synthetic(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    struct cvy_synthetic synthetic = {
        .batch_size = (int32_t)o->batch_size,
        .image_size = cvy_run_train_size(o),
        .num_classes = (int32_t)o->num_classes,
        .seed = o->seed + (uint64_t)run->ranks.comm.rank * RANK_SEEDS,
        .batches = o->prof > 0 ? o->prof : SYNTHETIC_BATCHES, /* there are as many as are asked for */
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
    if (o->prof <= 0 && !o->evaluate)
        synthetic.batches = SYNTHETIC_BATCHES / 8;
    return cvy_source_open_synthetic(&run->data.val_source, &synthetic);
}

static cvy_status open_source(const struct cvy_run *run, struct cvy_source *source,
                              const struct cvy_loader_options *loader)
{
    const cvy_status status = cvy_source_open(source, loader);

    if (loader->device_decodes && (status == CVY_USAGE || status == CVY_UNAVAILABLE))
        return cvy_fail_context(status, "option --decode %s", run->config->options.decode);
    if (status == CVY_OK && loader->device_decodes && source == &run->data.train_source)
        cvy_log(CVY_LOG_INFO, "JPEGs are decoded by %s", cvy_loader_decoder(source->loader));
    return status;
}

cvy_status cvy_setup_open_sources(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    struct cvy_loader_options loader = cvy_run_loader_options(run, o);

    if (cvy_run_is_synthetic(run->config))
        return open_synthetic(run);
    if (!o->evaluate)
        CVY_TRY(open_source(run, &run->data.train_source, &loader));
    if (o->training_only)
        return CVY_OK;
    loader = cvy_run_val_loader_options(run, o);
    return open_source(run, &run->data.val_source, &loader);
}
