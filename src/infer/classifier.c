/* Classification: images in, answers out. And evaluation, of detectors too. */
#include "infer/predictor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sized.h"
#include "base/system.h"
#include "data/set/list.h"
#include "data/set/record_set.h"
#include "report/page/page.h"

/* ---- opening ---- */

struct cvy_classifier {
    struct cvy_predictor predictor; /* first: it begins the block */
};

cvy_status cvy_classifier_open(const struct cvy_classifier_options *options, cvy_classifier **classifier)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(classifier);
    struct cvy_classifier_options known = CVY_CLASSIFIER_DEFAULTS;
    struct cvy_classifier *c;
    cvy_status status;

    *classifier = NULL;
    CVY_TRY(cvy_sized_take(&known, sizeof known, options, "cvy_classifier_options"));
    c = cvy_calloc(1, sizeof *c);
    if (!c)
        return cvy_fail_memory(sizeof *c, "a classifier");
    status = cvy_predictor_open(&c->predictor, &known);
    if (status == CVY_OK)
        *classifier = c;
    else
        cvy_free(c);
    return status;
}

cvy_status cvy_classifier_open_context(cvy_classifier *classifier, int threads, cvy_classifier **context)
{
    CVY_REQUIRE(classifier);
    CVY_REQUIRE(context);
    struct cvy_classifier *c = cvy_calloc(1, sizeof *c);
    cvy_status status;

    *context = NULL;
    if (!c)
        return cvy_fail_memory(sizeof *c, "a classifier");
    status = cvy_predictor_begin(&classifier->predictor);
    if (status == CVY_OK)
        status = cvy_predictor_end(&classifier->predictor,
                                   cvy_predictor_open_context(&c->predictor, &classifier->predictor, threads));
    if (status == CVY_OK)
        *context = c;
    else
        cvy_free(c);
    return status;
}

struct cvy_predictor *cvy_classifier_predictor(cvy_classifier *classifier)
{
    return &classifier->predictor;
}

void cvy_classifier_close(cvy_classifier *classifier)
{
    cvy_predictor_release(classifier ? &classifier->predictor : NULL);
}

void cvy_classifier_stop(cvy_classifier *classifier)
{
    if (classifier)
        atomic_store(&classifier->predictor.stop, true);
}

int cvy_classifier_image_size(const cvy_classifier *classifier)
{
    return classifier ? classifier->predictor.preprocessing.image_size : 0;
}

void cvy_classifier_normalization(const cvy_classifier *classifier, float mean[3], float deviation[3])
{
    for (int i = 0; i < 3; i++) {
        if (mean)
            mean[i] = classifier ? classifier->predictor.preprocessing.mean[i] : NAN;
        if (deviation)
            deviation[i] = classifier ? classifier->predictor.preprocessing.std[i] : NAN;
    }
}

int cvy_classifier_features(const cvy_classifier *classifier)
{
    return classifier ? (int)classifier->predictor.one.feature_count : 0;
}

void cvy_classifier_feature_shape(const cvy_classifier *classifier, int shape[3])
{
    if (shape)
        for (int i = 0; i < 3; i++)
            shape[i] = classifier ? (int)classifier->predictor.one.feature_shape[i] : 0;
}

int cvy_classifier_classes(const cvy_classifier *classifier)
{
    return classifier ? classifier->predictor.network.model.num_classes : 0;
}

const char *cvy_classifier_class_name(const cvy_classifier *classifier, int index)
{
    return classifier ? cvy_predictor_class_name(&classifier->predictor, index) : NULL;
}

const char *cvy_classifier_arch(const cvy_classifier *classifier)
{
    return classifier ? classifier->predictor.network.architecture->name : NULL;
}

/* ---- classifying ---- */

static cvy_status classify_encoded(struct cvy_predictor *predictor, const struct cvy_encoded *encoded, float *logits,
                                   float *probabilities)
{
    const struct cvy_transform transform = cvy_predictor_transform(predictor);
    const size_t bytes = (size_t)predictor->network.model.num_classes * sizeof(float);

    CVY_TRY(cvy_predictor_expect_classifier(predictor));
    CVY_TRY(cvy_predictor_open_single(predictor));
    CVY_TRY(cvy_transform_image(&transform, predictor->decoder, &predictor->resizer, encoded, NULL, predictor->pixels));
    CVY_TRY(cvy_evaluator_run(&predictor->one, predictor->pixels, 1, true));
    if (logits)
        memcpy(logits, predictor->one.logits, bytes);
    if (probabilities)
        memcpy(probabilities, predictor->one.probabilities, bytes);
    return CVY_OK;
}

cvy_status cvy_classify_memory(cvy_classifier *classifier, const char *name, const void *data, size_t size,
                               float *logits, float *probabilities)
{
    CVY_REQUIRE(classifier);
    CVY_REQUIRE(name);
    CVY_REQUIRE(data);
    const struct cvy_encoded encoded = {.name = name, .data = data, .size = size};

    CVY_TRY(cvy_predictor_begin(&classifier->predictor));
    return cvy_predictor_end(&classifier->predictor,
                             classify_encoded(&classifier->predictor, &encoded, logits, probabilities));
}

cvy_status cvy_classify_pixels(cvy_classifier *classifier, const char *name, const struct cvy_pixels *pixels,
                               float *logits, float *probabilities)
{
    CVY_REQUIRE(classifier);
    CVY_REQUIRE(name);
    CVY_REQUIRE(pixels);
    struct cvy_predictor *predictor = &classifier->predictor;
    struct cvy_encoded encoded;
    cvy_status status;

    CVY_TRY(cvy_predictor_begin(predictor));
    status = cvy_pixels_encode(pixels, name, &predictor->buffer, &encoded);
    if (status == CVY_OK)
        status = classify_encoded(predictor, &encoded, logits, probabilities);
    return cvy_predictor_end(predictor, status);
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
            answer.features = evaluator->features ? evaluator->features + i * evaluator->feature_count : NULL;
        } else if (*worst == CVY_OK) {
            *worst = answer.status;
            snprintf(sentence, size, "%s", answer.error);
        }
        handler(context, &answer);
    }
}

static cvy_status classify_dataset(struct cvy_predictor *predictor, const struct cvy_dataset *dataset,
                                   cvy_answer_handler handler, void *context)
{
    const bool single = dataset->sample_count == 1;
    struct cvy_evaluator *evaluator = single ? &predictor->one : &predictor->many;
    struct cvy_source source = {0};
    const struct cvy_batch *batch;
    cvy_status status, worst = CVY_OK;
    char sentence[1024] = "";

    CVY_GOTO(single ? cvy_predictor_open_single(predictor) : cvy_predictor_open_batches(predictor, dataset));
    CVY_GOTO(cvy_predictor_open_source(predictor, dataset, (int32_t)evaluator->batch, false, &source));
    CVY_GOTO(cvy_source_start(&source, 0, 0));
    for (;;) {
        CVY_GOTO(cvy_predictor_stopped(predictor));
        CVY_GOTO(cvy_source_next(&source, &batch));
        if (!batch)
            break;
        CVY_GOTO(cvy_evaluator_run(evaluator, batch->images, batch->count, true));
        answer_batch(evaluator, dataset, batch, handler, context, &worst, sentence, sizeof sentence);
    }
    status = worst;
    if (worst != CVY_OK)
        cvy_error_put(sentence);
fail:
    cvy_source_close(&source);
    return status;
}

cvy_status cvy_classify_paths(cvy_classifier *classifier, const char *const *paths, size_t count,
                              cvy_answer_handler handler, void *context)
{
    CVY_REQUIRE(classifier);
    CVY_REQUIRE(paths || count == 0);
    CVY_REQUIRE(handler);
    struct cvy_predictor *predictor = &classifier->predictor;
    struct cvy_dataset dataset = {0};
    cvy_status status;

    CVY_TRY(cvy_predictor_expect_classifier(predictor));
    CVY_TRY(cvy_predictor_begin(predictor));
    atomic_store(&predictor->stop, false);
    CVY_GOTO(cvy_predictor_list(predictor, paths, count, &dataset));
    status = classify_dataset(predictor, &dataset, handler, context);
fail:
    cvy_dataset_close(&dataset);
    return cvy_predictor_end(predictor, status);
}

/* ---- evaluating ---- */

/* The validation part of a split as the training made it. A list may be another one: it is what the training had only
 * if as many images are left for training. */
static cvy_status open_split(struct cvy_predictor *predictor, const char *folder, bool list, struct cvy_dataset *val)
{
    const struct cvy_checkpoint_info *info = &predictor->info;
    struct cvy_dataset train = {0};
    cvy_status status;

    status = predictor->split_by_path
                 ? cvy_dataset_open_split(folder, predictor->val_split, &train, val)
                 : cvy_dataset_open_pair(folder, NULL, predictor->val_split, predictor->seed, &train, val);
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

/* Records for validation in DIR, or DIR/val; else the validation part of the split that the training made; else
 * DIR/<class> or the list DIR. */
static cvy_status open_validation(struct cvy_predictor *predictor, const char *folder, struct cvy_dataset *val)
{
    const char *const *names = predictor->info.classes;
    char path[4096 + 8];

    if (cvy_holds_records(folder, true))
        return cvy_dataset_open_records(val, folder, true, names, predictor->info.class_count);
    snprintf(path, sizeof path, "%s/val", folder);
    if (!cvy_path_is_directory(path) && predictor->val_split > 0)
        return open_split(predictor, folder, cvy_path_is_file(folder), val);
    return cvy_dataset_open(val, cvy_path_is_directory(path) ? path : folder, names, predictor->info.class_count);
}

/* Labels are indices into the data's classes: they must mean the same in the weights. */
static cvy_status check_classes(const struct cvy_predictor *predictor, const char *folder,
                                const struct cvy_dataset *val)
{
    const int32_t classes = predictor->network.model.num_classes, named = predictor->info.class_count;

    if (named == 0 && val->class_count > classes)
        return cvy_fail(CVY_BAD_DATA, "%s has %s, but the weights have %d", cvy_quote(folder),
                        cvy_counted(val->class_count, "class"), (int)classes);
    if (named == 0 && val->class_count < classes)
        cvy_log(CVY_LOG_WARNING,
                "%s has %s and the weights, which do not name theirs, have %d: the folders in "
                "order are taken for the first ones",
                cvy_quote(folder), cvy_counted(val->class_count, "class"), (int)classes);
    for (int32_t i = 0; named > 0 && i < val->class_count; i++) {
        if (i >= named || strcmp(val->classes[i], predictor->info.classes[i]) != 0)
            return cvy_fail(CVY_BAD_DATA, "class %s of %s is not class %d of the weights", cvy_quote(val->classes[i]),
                            cvy_quote(folder), (int)i);
    }
    return CVY_OK;
}

cvy_status cvy_predictor_open_validation(struct cvy_predictor *predictor, const char *folder, struct cvy_dataset *val)
{
    CVY_TRY(open_validation(predictor, folder, val));
    return check_classes(predictor, folder, val);
}

/* What the pass found in detail, as JSON and as a page. */
static cvy_status write_details(const struct cvy_predictor *predictor, struct cvy_collector *collector,
                                const struct cvy_evaluate_options *options, const struct cvy_evaluation *result)
{
    struct cvy_validation validation;
    cvy_status status;

    CVY_TRY(cvy_collector_finish(collector, predictor->info.classes, predictor->info.class_count, &validation));
    validation.images = result->images;
    validation.skipped = result->skipped;
    validation.loss = result->loss;
    validation.top1 = result->top1;
    validation.topk = result->top5;
    if (options->details)
        CVY_GOTO(cvy_validation_write(&validation, options->details));
    if (options->report)
        CVY_GOTO(cvy_page_of_validation(options->report, predictor->network.architecture->name, &validation));
    status = CVY_OK;
fail:
    cvy_validation_release(&validation);
    return status;
}

cvy_status cvy_evaluate(cvy_classifier *classifier, const char *folder, struct cvy_evaluation *result)
{
    return cvy_evaluate_with(classifier, folder, &CVY_EVALUATE_DEFAULTS, result);
}

static cvy_status evaluate(struct cvy_predictor *predictor, const char *folder,
                           const struct cvy_evaluate_options *options, struct cvy_evaluation *result)
{
    const int32_t classes = predictor->network.model.num_classes, top_k = classes < 5 ? classes : 5;
    struct cvy_collector collector = {0};
    struct cvy_pass pass = {.metrics = {.top_k = top_k}, .progress = cvy_predictor_go_on, .context = predictor};
    struct cvy_dataset val = {0};
    struct cvy_source source = {0};
    double start;
    cvy_status status;

    atomic_store(&predictor->stop, false);
    if (predictor->network.architecture->task == CVY_TASK_DETECT)
        return cvy_predictor_evaluate_detector(predictor, folder, options, result);
    if (options->area_rule)
        return cvy_fail(CVY_USAGE, "option --area-rule is for detectors, and %s is a classifier",
                        predictor->network.architecture->name);
    CVY_GOTO(cvy_predictor_open_validation(predictor, folder, &val));
    CVY_GOTO(cvy_predictor_open_batches(predictor, &val));
    CVY_GOTO(cvy_predictor_open_source(predictor, &val, predictor->batch_size, true, &source));
    if (options->report || options->details) {
        CVY_GOTO(cvy_collector_open(&collector, classes, top_k));
        pass.collector = &collector;
        pass.dataset = &val;
    }
    CVY_GOTO(cvy_predictor_time_batches(&source, &pass));
    start = cvy_clock();
    CVY_GOTO(cvy_evaluator_pass(&predictor->many, &source, &pass));
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
    cvy_predictor_set_latencies(predictor, &pass, result);
    if (pass.collector)
        CVY_GOTO(write_details(predictor, &collector, options, result));
fail:
    cvy_free(pass.latency);
    cvy_source_close(&source);
    cvy_dataset_close(&val);
    cvy_collector_close(&collector);
    return status;
}

cvy_status cvy_evaluate_with(cvy_classifier *classifier, const char *folder, const struct cvy_evaluate_options *options,
                             struct cvy_evaluation *result)
{
    CVY_REQUIRE(classifier);
    CVY_REQUIRE(folder);
    CVY_REQUIRE(options);
    CVY_REQUIRE(result);
    struct cvy_evaluate_options known = CVY_EVALUATE_DEFAULTS;

    memset(result, 0, sizeof *result);
    CVY_TRY(cvy_sized_take(&known, sizeof known, options, "cvy_evaluate_options"));
    CVY_TRY(cvy_predictor_begin(&classifier->predictor));
    return cvy_predictor_end(&classifier->predictor, evaluate(&classifier->predictor, folder, &known, result));
}
