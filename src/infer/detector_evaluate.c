/* One pass of a detector over a validation set, evaluated by COCO's rules. */
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/system.h"
#include "convoy/program/program.h"
#include "data/detection/detection_set.h"
#include "infer/predictor.h"
#include "report/page/page.h"

const char *cvy_evaluation_line(int index, double value, char buffer[96])
{
    return buffer ? cvy_coco_stat_line(index, value, buffer) : NULL;
}

/* The validation part of a split as the training made it. A COCO file may be another one: it is what the training had
 * only if as many images are left for training. */
static cvy_status open_split(const struct cvy_predictor *predictor, const char *path,
                             const struct cvy_category_rule *rule, struct cvy_dataset *val)
{
    const bool is_file = cvy_path_is_file(path);
    struct cvy_dataset train;
    cvy_status status = cvy_dataset_split_detection(path, rule, predictor->val_split, predictor->seed, &train, val);

    if (is_file &&
        (status == CVY_BAD_DATA || (status == CVY_OK && predictor->info.state.train_images != train.sample_count))) {
        cvy_dataset_close(val);
        status = cvy_dataset_open_detection(val, path, CVY_DETECTION_VAL, rule);
    } else if (status == CVY_OK) {
        cvy_log(CVY_LOG_INFO, "the %u images of %s that --val-split had set aside are taken", val->sample_count,
                cvy_quote(path));
    }
    cvy_dataset_close(&train);
    return status;
}

static struct cvy_category_rule category_rule(const struct cvy_predictor *predictor)
{
    const struct cvy_checkpoint_info *info = &predictor->info;

    return (struct cvy_category_rule){
        .coco = !info->category_ids && predictor->network.model.num_classes == CVY_COCO_SLOTS,
        .names = info->classes,
        .ids = info->category_ids,
        .count = info->class_count,
    };
}

cvy_status cvy_predictor_open_detection(struct cvy_predictor *predictor, const char *folder, bool training,
                                        struct cvy_dataset *dataset)
{
    const struct cvy_category_rule rule = category_rule(predictor);

    if (training && cvy_holds_detection_part(folder, CVY_DETECTION_TRAIN))
        CVY_TRY(cvy_dataset_open_detection(dataset, folder, CVY_DETECTION_TRAIN, &rule));
    else if (predictor->val_split > 0 && !cvy_holds_detection_part(folder, CVY_DETECTION_VAL))
        CVY_TRY(open_split(predictor, folder, &rule, dataset));
    else
        CVY_TRY(cvy_dataset_open_detection(dataset, folder, CVY_DETECTION_VAL, &rule));
    if (dataset->class_count <= predictor->network.model.num_classes)
        return CVY_OK;
    return cvy_fail(CVY_BAD_DATA, "%s has %s, but the weights have %d", cvy_quote(folder),
                    cvy_counted(dataset->class_count, "class"), (int)predictor->network.model.num_classes);
}

static cvy_status write_details(const struct cvy_predictor *predictor, const struct cvy_coco_result *coco,
                                const struct cvy_dataset *val, struct cvy_picture_collector *pictures,
                                const struct cvy_evaluate_options *options, int64_t skipped)
{
    struct cvy_detection_validation validation;
    cvy_status status;

    CVY_TRY(cvy_detections_validation(coco, val, pictures, &validation));
    validation.skipped = skipped;
    if (options->details)
        CVY_GOTO(cvy_detection_validation_write(&validation, options->details));
    if (options->report)
        CVY_GOTO(cvy_page_of_detection(options->report, predictor->network.architecture->name, &validation));
    status = CVY_OK;
fail:
    cvy_detection_validation_release(&validation);
    return status;
}

cvy_status cvy_predictor_evaluate_detector(struct cvy_predictor *predictor, const char *folder,
                                           const struct cvy_evaluate_options *options, struct cvy_evaluation *result)
{
    const bool details = options->report || options->details;
    struct cvy_coco_evaluation evaluation = {0};
    struct cvy_picture_collector pictures = {0};
    struct cvy_coco_result coco = {0};
    struct cvy_dataset val = {0};
    struct cvy_source source = {0};
    struct cvy_pass pass = {.progress = cvy_predictor_go_on,
                            .context = predictor,
                            .coco = &evaluation,
                            .dataset = &val,
                            .pictures = details ? &pictures : NULL};
    double start;
    cvy_status status;

    if (options->area_rule && !cvy_area_rule_parse(options->area_rule, &pass.area_rule))
        return cvy_fail(CVY_USAGE, "option --area-rule is annotation or box, not %s", cvy_quote(options->area_rule));
    CVY_GOTO(cvy_predictor_open_detection(predictor, folder, false, &val));
    cvy_pictures_open(&pictures, val.sample_count);
    CVY_GOTO(cvy_coco_open(&evaluation, val.class_count));
    CVY_GOTO(cvy_predictor_open_batches(predictor, &val));
    CVY_GOTO(cvy_predictor_open_source(predictor, &val, predictor->batch_size, true, &source));
    CVY_GOTO(cvy_predictor_time_batches(&source, &pass));
    start = cvy_clock();
    CVY_GOTO(cvy_evaluator_pass(&predictor->many, &source, &pass));
    if (pass.metrics.images == 0) {
        status = cvy_fail(CVY_BAD_DATA, "no image of %s can be read", cvy_quote(folder));
        goto fail;
    }
    CVY_GOTO(cvy_coco_finish(&evaluation, predictor->device->threads, &coco));
    *result = (struct cvy_evaluation){
        .images = pass.metrics.images,
        .skipped = pass.metrics.skipped,
        .images_per_second = (double)(pass.metrics.images + pass.metrics.skipped) / (cvy_clock() - start),
        .detection = true,
    };
    cvy_predictor_set_latencies(predictor, &pass, result);
    for (int i = 0; i < CVY_COCO_STATS; i++)
        result->stats[i] = coco.stats[i];
    if (details)
        CVY_GOTO(write_details(predictor, &coco, &val, &pictures, options, pass.metrics.skipped));
fail:
    cvy_free(pass.latency);
    cvy_source_close(&source);
    cvy_dataset_close(&val);
    cvy_coco_close(&evaluation);
    cvy_coco_result_release(&coco);
    cvy_pictures_close(&pictures);
    return status;
}
