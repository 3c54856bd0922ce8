/* Inference: weights in, answers out. */
#include "train/classifier_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/system.h"
#include "data/list.h"
#include "data/tfrecord_set.h"
#include "report/page.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/memory.h"
#include "train/model_choice.h"
#include "train/recipe_auto.h"

/* ---- opening ---- */

static cvy_status count_classes(const struct cvy_classifier_options *options, const struct cvy_tensor_file *file,
                                int32_t *count)
{
    *count = cvy_weights_classes(file);
    if (*count == 0)
        return cvy_fail(CVY_BAD_DATA,
                        "%s has no layer for its classes: neither \"fc.weight\" nor \"head.class_predictor.weight\"",
                        cvy_quote(options->weights));
    if (options->num_classes > 0 && options->num_classes != *count)
        return cvy_fail(CVY_BAD_DATA, "%s has %d classes, not %d", cvy_quote(options->weights), (int)*count,
                        options->num_classes);
    return CVY_OK;
}

/* Inference with this classifier, before its parameters are in memory or after. */
static struct cvy_memory_case memory_case(const struct cvy_classifier *classifier, bool loaded, int64_t batch)
{
    const struct cvy_network *network = &classifier->network;

    return (struct cvy_memory_case){
        .device = classifier->device,
        .architecture = network->architecture,
        .model = &network->model,
        .dtype = network->dtype,
        .loaded = loaded,
        .batch = batch,
    };
}

/* A batch of one must fit at the least: said before anything large is allocated. */
static cvy_status check_memory(struct cvy_classifier *classifier, const struct cvy_architecture *architecture,
                               const struct cvy_model_options *model, enum cvy_dtype dtype)
{
    struct cvy_memory_case one = memory_case(classifier, false, 1);
    struct cvy_memory_estimate estimate;

    one.architecture = architecture;
    one.model = model;
    one.dtype = dtype;
    one.only_look = true; /* such a plan may never run */
    return cvy_memory_check(&one, cvy_device_available_memory(classifier->device), &estimate);
}

static cvy_status open_network(struct cvy_classifier *classifier, const struct cvy_classifier_options *options,
                               const struct cvy_tensor_file *file)
{
    const struct cvy_architecture *architecture = NULL;
    struct cvy_model_options model = cvy_model_options_make(1, 224);
    enum cvy_dtype dtype;
    int32_t classes;

    CVY_TRY(count_classes(options, file, &classes));
    CVY_TRY(cvy_model_identify(file, &classifier->info, options->weights, options->arch, &architecture, &model));
    if (classifier->info.class_count > classes)
        return cvy_fail(CVY_BAD_DATA, "%s has %d class names for %d classes", cvy_quote(options->weights),
                        (int)classifier->info.class_count, (int)classes);
    CVY_TRY(cvy_model_choose_preprocessing(&model, &classifier->info, architecture, options->image_size,
                                           options->resize, &classifier->preprocessing));
    if (architecture->task == CVY_TASK_DETECT && !model.float_images)
        return cvy_fail(CVY_BAD_DATA, "%s does not say how a detector's images are made", cvy_quote(options->weights));
    CVY_TRY(cvy_model_choose_padding(&model, &classifier->info, options->weights, options->padding));
    CVY_TRY(
        cvy_model_choose_strides(&model, &classifier->info, architecture, options->weights, options->backbone_strides));
    CVY_TRY(cvy_weights_check_model(architecture, &model, file, options->weights));
    CVY_TRY(cvy_device_open(options->device ? options->device : "auto", options->threads, &classifier->device));
    CVY_TRY(cvy_precision_choose(options->precision, classifier->device, &dtype));
    CVY_TRY(check_memory(classifier, architecture, &model, dtype));
    CVY_TRY(cvy_network_open(&classifier->network, classifier->device, architecture, &model, dtype, false));
    return cvy_weights_load(&classifier->network, file, options->weights, &CVY_WEIGHTS_LOAD_DEFAULTS);
}

static void remember_split(struct cvy_classifier *classifier)
{
    const struct cvy_json_value *saved = classifier->info.options;

    if (!saved)
        return;
    classifier->val_split = cvy_json_get_number(saved, "val-split", 0);
    /* Seeds beyond JSON's exact integers are written as text. */
    classifier->seed = (uint64_t)cvy_json_get_int(saved, "seed", 0);
    if (cvy_json_get_string(saved, "seed", NULL))
        classifier->seed = strtoull(cvy_json_get_string(saved, "seed", "0"), NULL, 10);
}

cvy_status cvy_classifier_open(const struct cvy_classifier_options *options, cvy_classifier **classifier)
{
    struct cvy_classifier *c = cvy_calloc(1, sizeof *c);
    struct cvy_tensor_file file = {0};
    size_t pixels;
    cvy_status status;

    *classifier = NULL;
    if (!c)
        return cvy_fail_memory(sizeof *c, "a classifier");
    if (!options->weights) {
        status = cvy_fail(CVY_USAGE, "no weights are given");
        goto fail;
    }
    CVY_GOTO(cvy_weights_open(&file, options->weights));
    CVY_GOTO(cvy_checkpoint_read(&file, options->weights, &c->info));
    CVY_GOTO(open_network(c, options, &file));
    remember_split(c);
    if (options->batch_size < 0 && options->batch_size != CVY_BATCH_AUTO) {
        status = cvy_fail(CVY_USAGE, "option --batch-size: %d is below 1", options->batch_size);
        goto fail;
    }
    c->batch_size = options->batch_size ? options->batch_size : cvy_evaluation_batch(c->network.architecture);
    c->workers = options->workers > 0 ? options->workers : cvy_default_threads();
    pixels = cvy_model_image_bytes(&c->network.model, CVY_MODEL_INFER);
    c->pixels = cvy_calloc_aligned(pixels);
    if (!c->pixels) {
        status = cvy_fail_memory(pixels, "an image");
        goto fail;
    }
    CVY_GOTO(cvy_decoder_new(&c->decoder));
    cvy_tensor_file_close(&file);
    *classifier = c;
    return CVY_OK;
fail:
    cvy_tensor_file_close(&file);
    cvy_classifier_close(c);
    return status;
}

void cvy_classifier_close(cvy_classifier *classifier)
{
    if (!classifier)
        return;
    cvy_evaluator_close(&classifier->one);
    cvy_evaluator_close(&classifier->many);
    cvy_network_close(&classifier->network);
    cvy_device_close(classifier->device);
    cvy_checkpoint_info_release(&classifier->info);
    cvy_decoder_free(classifier->decoder);
    cvy_resizer_release(&classifier->resizer);
    cvy_free_aligned(classifier->pixels);
    cvy_free(classifier);
}

int cvy_classifier_classes(const cvy_classifier *classifier)
{
    return classifier->network.model.num_classes;
}

const char *cvy_classifier_class_name(const cvy_classifier *classifier, int index)
{
    return index >= 0 && index < classifier->info.class_count ? classifier->info.classes[index] : NULL;
}

const char *cvy_classifier_arch(const cvy_classifier *classifier)
{
    return classifier->network.architecture->name;
}

/* ---- classifying ---- */

struct cvy_transform cvy_classifier_transform(const struct cvy_classifier *classifier)
{
    return (struct cvy_transform){
        .size = classifier->preprocessing.image_size,
        .resize = classifier->preprocessing.resize,
        .exif_orientation = classifier->preprocessing.exif_orientation,
        .tensorflow = classifier->preprocessing.tensorflow,
        .detection = classifier->network.architecture->task == CVY_TASK_DETECT,
    };
}

cvy_status cvy_classifier_open_single(struct cvy_classifier *classifier)
{
    return classifier->one.network ? CVY_OK : cvy_evaluator_open(&classifier->one, &classifier->network, 1);
}

static cvy_status check_task(const struct cvy_classifier *classifier)
{
    if (classifier->network.architecture->task != CVY_TASK_DETECT)
        return CVY_OK;
    return cvy_fail(CVY_BAD_DATA, "%s detects objects and does not classify: convoy detect",
                    classifier->network.architecture->name);
}

cvy_status cvy_classify_memory(cvy_classifier *classifier, const char *name, const void *data, size_t size,
                               float *logits, float *probabilities)
{
    const struct cvy_transform transform = cvy_classifier_transform(classifier);
    const struct cvy_encoded encoded = {.name = name, .data = data, .size = size};
    const size_t bytes = (size_t)classifier->network.model.num_classes * sizeof(float);

    CVY_TRY(check_task(classifier));
    CVY_TRY(cvy_classifier_open_single(classifier));
    CVY_TRY(
        cvy_transform_image(&transform, classifier->decoder, &classifier->resizer, &encoded, NULL, classifier->pixels));
    CVY_TRY(cvy_evaluator_run(&classifier->one, classifier->pixels, true));
    if (logits)
        memcpy(logits, classifier->one.logits, bytes);
    if (probabilities)
        memcpy(probabilities, classifier->one.probabilities, bytes);
    return CVY_OK;
}

static struct cvy_loader_options loader_options(const struct cvy_classifier *classifier,
                                                const struct cvy_dataset *dataset)
{
    return (struct cvy_loader_options){
        .dataset = dataset,
        .transform = cvy_classifier_transform(classifier),
        .batch_size = classifier->batch_size,
        .workers = classifier->workers,
        .prefetch = CVY_PREFETCH,
        .world = 1,
    };
}

cvy_status cvy_classifier_open_batches(struct cvy_classifier *classifier, const struct cvy_dataset *dataset)
{
    const struct cvy_loader_options loader = loader_options(classifier, dataset);
    struct cvy_memory_case one = memory_case(classifier, true, classifier->batch_size);
    struct cvy_memory_estimate estimate;
    struct cvy_data_summary summary;
    int64_t batch = dataset->sample_count < CVY_AUTO_INFERENCE_MOST ? dataset->sample_count : CVY_AUTO_INFERENCE_MOST;

    if (classifier->many.network)
        return CVY_OK;
    CVY_TRY(cvy_data_summarize(dataset, &summary));
    one.image_data = cvy_loader_image_bytes(&loader);
    one.other_data = cvy_loader_other_bytes(&loader, summary.largest_pixels);
    if (classifier->batch_size == CVY_BATCH_AUTO) {
        CVY_TRY(cvy_memory_choose_batch(&one, batch, &batch));
        cvy_log(CVY_LOG_INFO, "batches of %lld images", (long long)batch);
        classifier->batch_size = (int32_t)batch;
    } else {
        CVY_TRY(cvy_memory_check(&one, cvy_device_available_memory(classifier->device), &estimate));
    }
    return cvy_evaluator_open(&classifier->many, &classifier->network, classifier->batch_size);
}

cvy_status cvy_classifier_open_source(const struct cvy_classifier *classifier, const struct cvy_dataset *dataset,
                                      int32_t batch_size, struct cvy_source *source)
{
    struct cvy_loader_options loader = loader_options(classifier, dataset);

    loader.batch_size = batch_size;
    return cvy_source_open(source, &loader);
}

/* Hand one batch of answers to the caller; *worst keeps the first bad status and its sentence. */
static void answer_batch(const struct cvy_evaluator *evaluator, const struct cvy_dataset *dataset,
                         const struct cvy_batch *batch, cvy_answer_handler handler, void *context, cvy_status *worst,
                         char *sentence, size_t size)
{
    const int64_t classes = evaluator->network->model.num_classes;

    for (int32_t i = 0; i < batch->count; i++) {
        struct cvy_answer answer = {
            .file = dataset->samples[batch->samples[i]].path,
            .status = batch->status[i],
            .error = batch->status[i] != CVY_OK ? batch->errors[i] : NULL,
        };
        if (answer.status == CVY_OK) {
            answer.logits = evaluator->logits + i * classes;
            answer.probabilities = evaluator->probabilities + i * classes;
        } else if (*worst == CVY_OK) {
            *worst = answer.status;
            snprintf(sentence, size, "%s", answer.error);
        }
        handler(context, &answer);
    }
}

static cvy_status classify_dataset(struct cvy_classifier *classifier, const struct cvy_dataset *dataset,
                                   cvy_answer_handler handler, void *context)
{
    const bool single = dataset->sample_count == 1;
    struct cvy_evaluator *evaluator = single ? &classifier->one : &classifier->many;
    struct cvy_source source = {0};
    const struct cvy_batch *batch;
    cvy_status status, worst = CVY_OK;
    char sentence[1024] = "";

    CVY_GOTO(single ? cvy_classifier_open_single(classifier) : cvy_classifier_open_batches(classifier, dataset));
    CVY_GOTO(cvy_classifier_open_source(classifier, dataset, (int32_t)evaluator->batch, &source));
    CVY_GOTO(cvy_source_start(&source, 0, 0));
    for (;;) {
        CVY_GOTO(cvy_source_next(&source, &batch));
        if (!batch)
            break;
        CVY_GOTO(cvy_evaluator_run(evaluator, batch->images, true));
        answer_batch(evaluator, dataset, batch, handler, context, &worst, sentence, sizeof sentence);
    }
    status = worst;
    if (worst != CVY_OK)
        cvy_error_put(sentence);
fail:
    cvy_source_close(&source);
    return status;
}

cvy_status cvy_classifier_list(const struct cvy_classifier *classifier, const char *const *paths, size_t count,
                               struct cvy_dataset *dataset)
{
    const char **files = NULL;
    size_t found = 0;

    *dataset = (struct cvy_dataset){0};
    CVY_TRY(cvy_list_images(paths, count, &dataset->arena, &files, &found));
    if (found == 0 || found > UINT32_MAX)
        return found ? cvy_fail(CVY_BAD_DATA, "there are too many images")
                     : cvy_fail(CVY_BAD_DATA, "there is no image in %s", cvy_quote(count ? paths[0] : ""));
    dataset->detection = classifier->network.architecture->task == CVY_TASK_DETECT;
    dataset->samples = cvy_arena_alloc(&dataset->arena, found * sizeof *dataset->samples);
    if (dataset->detection) /* nothing is known of them, nor of objects */
        dataset->images = cvy_arena_alloc(&dataset->arena, found * sizeof *dataset->images);
    if (!dataset->samples || (dataset->detection && !dataset->images))
        return cvy_fail_memory(found * sizeof *dataset->samples, "the list of images");
    for (size_t i = 0; i < found; i++)
        dataset->samples[i] = (struct cvy_sample){.path = files[i]};
    dataset->sample_count = (uint32_t)found;
    return CVY_OK;
}

cvy_status cvy_classify_paths(cvy_classifier *classifier, const char *const *paths, size_t count,
                              cvy_answer_handler handler, void *context)
{
    struct cvy_dataset dataset = {0};
    cvy_status status;

    CVY_TRY(check_task(classifier));
    CVY_GOTO(cvy_classifier_list(classifier, paths, count, &dataset));
    status = classify_dataset(classifier, &dataset, handler, context);
fail:
    cvy_dataset_close(&dataset);
    return status;
}

/* ---- evaluating ---- */

/* The validation part of a split as the training made it. A list may be another one: it is what the training had only
 * if as many images are left for training. */
static cvy_status open_split(struct cvy_classifier *classifier, const char *folder, bool list, struct cvy_dataset *val)
{
    const struct cvy_checkpoint_info *info = &classifier->info;
    struct cvy_dataset train = {0};
    cvy_status status;

    status = cvy_dataset_open_pair(folder, NULL, classifier->val_split, classifier->seed, &train, val);
    if (list && (status == CVY_BAD_DATA || (status == CVY_OK && info->state.train_images != train.sample_count))) {
        cvy_dataset_close(val);
        status = cvy_dataset_open_list(val, folder, info->classes, info->class_count);
    } else if (list && status == CVY_OK) {
        cvy_log(CVY_LOG_INFO, "%s is the list of the training: the %u images that --val-split had set aside are taken",
                cvy_quote(folder), val->sample_count);
    }
    cvy_dataset_close(&train);
    return status;
}

/* DIR/validation-*, which are TFRecords, or DIR/val; else the validation part of the split that the training made; else
 * DIR/<class> or the list DIR. */
static cvy_status open_validation(struct cvy_classifier *classifier, const char *folder, struct cvy_dataset *val)
{
    const char *const *names = classifier->info.classes;
    char path[4096 + 8];

    if (cvy_holds_tfrecords(folder, CVY_TFRECORD_VALIDATION))
        return cvy_dataset_open_tfrecords(val, folder, CVY_TFRECORD_VALIDATION, NULL, names,
                                          classifier->info.class_count);
    snprintf(path, sizeof path, "%s/val", folder);
    if (!cvy_path_is_directory(path) && classifier->val_split > 0)
        return open_split(classifier, folder, cvy_path_is_file(folder), val);
    return cvy_dataset_open(val, cvy_path_is_directory(path) ? path : folder, names, classifier->info.class_count);
}

/* Labels are indices into the data's classes: they must mean the same in the weights. */
static cvy_status check_classes(const struct cvy_classifier *classifier, const char *folder,
                                const struct cvy_dataset *val)
{
    const int32_t classes = classifier->network.model.num_classes, named = classifier->info.class_count;

    if (named == 0 && val->class_count > classes)
        return cvy_fail(CVY_BAD_DATA, "%s has %d classes, but the weights have %d", cvy_quote(folder),
                        (int)val->class_count, (int)classes);
    if (named == 0 && val->class_count < classes)
        cvy_log(CVY_LOG_WARNING,
                "%s has %d classes and the weights, which do not name theirs, have %d: the folders in "
                "order are taken for the first ones",
                cvy_quote(folder), (int)val->class_count, (int)classes);
    for (int32_t i = 0; named > 0 && i < val->class_count; i++) {
        if (i >= named || strcmp(val->classes[i], classifier->info.classes[i]) != 0)
            return cvy_fail(CVY_BAD_DATA, "class %s of %s is not class %d of the weights", cvy_quote(val->classes[i]),
                            cvy_quote(folder), (int)i);
    }
    return CVY_OK;
}

/* What the pass found in detail, as JSON and as a page. */
static cvy_status write_details(const struct cvy_classifier *classifier, struct cvy_collector *collector,
                                const struct cvy_evaluate_options *options, const struct cvy_evaluation *result)
{
    struct cvy_validation validation;
    cvy_status status;

    CVY_TRY(cvy_collector_finish(collector, classifier->info.classes, classifier->info.class_count, &validation));
    validation.images = result->images;
    validation.skipped = result->skipped;
    validation.loss = result->loss;
    validation.top1 = result->top1;
    validation.topk = result->top5;
    if (options->details)
        CVY_GOTO(cvy_validation_write(&validation, options->details));
    if (options->report)
        CVY_GOTO(cvy_page_of_validation(options->report, cvy_classifier_arch(classifier), &validation));
    status = CVY_OK;
fail:
    cvy_validation_release(&validation);
    return status;
}

cvy_status cvy_evaluate(cvy_classifier *classifier, const char *folder, struct cvy_evaluation *result)
{
    return cvy_evaluate_with(classifier, folder, &(struct cvy_evaluate_options){0}, result);
}

cvy_status cvy_evaluate_with(cvy_classifier *classifier, const char *folder, const struct cvy_evaluate_options *options,
                             struct cvy_evaluation *result)
{
    const int32_t classes = classifier->network.model.num_classes, top_k = classes < 5 ? classes : 5;
    struct cvy_collector collector = {0};
    struct cvy_pass pass = {.metrics = {.top_k = top_k}};
    struct cvy_dataset val = {0};
    struct cvy_source source = {0};
    double start;
    cvy_status status;

    memset(result, 0, sizeof *result);
    if (classifier->network.architecture->task == CVY_TASK_DETECT)
        return cvy_classifier_evaluate_detector(classifier, folder, options, result);
    if (options->area_rule)
        return cvy_fail(CVY_USAGE, "option --area-rule is for detectors, and %s is a classifier",
                        classifier->network.architecture->name);
    CVY_GOTO(open_validation(classifier, folder, &val));
    CVY_GOTO(check_classes(classifier, folder, &val));
    CVY_GOTO(cvy_classifier_open_batches(classifier, &val));
    CVY_GOTO(cvy_classifier_open_source(classifier, &val, classifier->batch_size, &source));
    if (options->report || options->details) {
        CVY_GOTO(cvy_collector_open(&collector, classes, top_k));
        pass.collector = &collector;
        pass.dataset = &val;
    }
    start = cvy_clock();
    CVY_GOTO(cvy_evaluator_pass(&classifier->many, &source, &pass));
    if (pass.metrics.images == 0) {
        status = cvy_fail(CVY_BAD_DATA, "no image of %s can be read", cvy_quote(folder));
        goto fail;
    }
    *result = (struct cvy_evaluation){
        .top1 = cvy_metrics_top1(&pass.metrics),
        .top5 = cvy_metrics_topk(&pass.metrics),
        .loss = cvy_metrics_loss(&pass.metrics),
        .images = pass.metrics.images,
        .skipped = pass.metrics.skipped,
        .images_per_second = (double)(pass.metrics.images + pass.metrics.skipped) / (cvy_clock() - start),
    };
    if (pass.collector)
        CVY_GOTO(write_details(classifier, &collector, options, result));
fail:
    cvy_source_close(&source);
    cvy_dataset_close(&val);
    cvy_collector_close(&collector);
    return status;
}
