/* Evaluation: logits in, hits and cross-entropy out. */
#include "eval/evaluate.h"

#include <string.h>

#include "base/error.h"
#include "base/system.h"

int32_t cvy_evaluation_batch(const struct cvy_architecture *architecture)
{
    return architecture->task == CVY_TASK_DETECT ? 8 : 32;
}

_Static_assert((int)CVY_MAX_DETECTIONS == (int)CVY_MAX_BOXES, "model_graph.c has one number for both");

static bool detects(const struct cvy_evaluator *evaluator)
{
    return evaluator->network->architecture->task == CVY_TASK_DETECT;
}

/* Room for the features where the plan has them. */
static cvy_status open_features(struct cvy_evaluator *evaluator, size_t batch)
{
    const cvy_val value = cvy_graph_find_result(&cvy_evaluator_plan(evaluator)->graph, CVY_FEATURES);

    if (value == CVY_NONE)
        return CVY_OK;
    const struct cvy_shape *shape = cvy_shape_of(&cvy_evaluator_plan(evaluator)->graph, value);
    evaluator->feature_count = 1;
    for (int32_t i = 0; i < 3; i++) {
        evaluator->feature_shape[i] = i + 1 < shape->rank ? shape->dim[i + 1] : 1;
        evaluator->feature_count *= evaluator->feature_shape[i];
    }
    evaluator->features = cvy_calloc(batch * (size_t)evaluator->feature_count, sizeof *evaluator->features);
    return evaluator->features ? CVY_OK
                               : cvy_fail_memory(batch * (size_t)evaluator->feature_count * sizeof *evaluator->features,
                                                 "the features");
}

static cvy_status open_results(struct cvy_evaluator *evaluator, size_t batch)
{
    const size_t answers = batch * (size_t)evaluator->network->model.num_classes, rows = batch * CVY_MAX_DETECTIONS;
    struct cvy_detector_outputs *found = &evaluator->found;

    if (!detects(evaluator)) {
        CVY_TRY(open_features(evaluator, batch));
        evaluator->logits = cvy_calloc(answers, sizeof *evaluator->logits);
        evaluator->probabilities = cvy_calloc(answers, sizeof *evaluator->probabilities);
        return evaluator->logits && evaluator->probabilities
                   ? CVY_OK
                   : cvy_fail_memory(answers * sizeof *evaluator->logits, "the logits");
    }
    found->boxes = cvy_calloc(rows, 4 * sizeof *found->boxes);
    found->scores = cvy_calloc(rows, sizeof *found->scores);
    found->classes = cvy_calloc(rows, sizeof *found->classes);
    found->count = cvy_calloc(batch, sizeof *found->count);
    return found->boxes && found->scores && found->classes && found->count
               ? CVY_OK
               : cvy_fail_memory(rows * 4 * sizeof *found->boxes, "the detections");
}

cvy_status cvy_evaluator_open(struct cvy_evaluator *evaluator, struct cvy_network *network, int64_t batch)
{
    return cvy_evaluator_open_beside(evaluator, network, batch, NULL);
}

cvy_status cvy_evaluator_open_beside(struct cvy_evaluator *evaluator, struct cvy_network *network, int64_t batch,
                                     struct cvy_evaluator *owner)
{
    cvy_status status;

    *evaluator = (struct cvy_evaluator){.network = network, .batch = batch};
    CVY_GOTO(cvy_streams_open(&evaluator->streams, network, batch, owner ? cvy_evaluator_plan(owner) : NULL));
    CVY_GOTO(open_results(evaluator, (size_t)batch));
    return CVY_OK;
fail:
    cvy_evaluator_close(evaluator);
    return status;
}

cvy_status cvy_evaluator_open_graph(struct cvy_evaluator *evaluator, struct cvy_network *network,
                                    struct cvy_graph *graph, int64_t batch)
{
    cvy_status status;

    *evaluator = (struct cvy_evaluator){.network = network, .batch = batch};
    CVY_GOTO(cvy_streams_open_graph(&evaluator->streams, network, graph, batch));
    CVY_GOTO(open_results(evaluator, (size_t)batch));
    return CVY_OK;
fail:
    cvy_evaluator_close(evaluator);
    return status;
}

void cvy_evaluator_close(struct cvy_evaluator *evaluator)
{
    cvy_streams_close(&evaluator->streams);
    cvy_free(evaluator->logits);
    cvy_free(evaluator->probabilities);
    cvy_free(evaluator->features);
    cvy_free(evaluator->found.boxes);
    cvy_free(evaluator->found.scores);
    cvy_free(evaluator->found.classes);
    cvy_free(evaluator->found.count);
    cvy_free(evaluator->shown);
    memset(evaluator, 0, sizeof *evaluator);
}

/* The results of a plan's pass for the images from number `first` on. */
static cvy_status read_found(struct cvy_evaluator *evaluator, struct cvy_plan *plan, size_t first)
{
    const size_t images = (size_t)plan->batch, rows = images * CVY_MAX_DETECTIONS;
    const size_t row = first * CVY_MAX_DETECTIONS;
    struct cvy_detector_outputs *found = &evaluator->found;

    CVY_TRY(cvy_plan_read_floats(plan, "boxes", found->boxes + 4 * row, rows * 4));
    CVY_TRY(cvy_plan_read_floats(plan, "scores", found->scores + row, rows));
    CVY_TRY(cvy_plan_read(plan, "classes", found->classes + row, rows * sizeof *found->classes));
    return cvy_plan_read(plan, "count", found->count + first, images * sizeof *found->count);
}

static cvy_status read_answers(struct cvy_evaluator *evaluator, struct cvy_plan *plan, size_t first,
                               bool want_probabilities)
{
    const size_t images = (size_t)plan->batch, classes = (size_t)evaluator->network->model.num_classes;
    const size_t features = (size_t)evaluator->feature_count, at = first * classes, count = images * classes;

    if (evaluator->features)
        CVY_TRY(cvy_plan_read_floats(plan, CVY_FEATURES, evaluator->features + first * features, images * features));
    CVY_TRY(cvy_plan_read_floats(plan, "logits", evaluator->logits + at, count));
    if (!want_probabilities)
        return CVY_OK;
    return cvy_plan_read_floats(plan, "probabilities", evaluator->probabilities + at, count);
}

/* A batch that is computed. */
struct wanted {
    struct cvy_evaluator *evaluator;
    const uint8_t *images;
    bool probabilities;
};

static cvy_status run_part(void *context, struct cvy_stream *stream, int64_t first)
{
    const struct wanted *wanted = context;
    struct cvy_evaluator *evaluator = wanted->evaluator;
    const size_t bytes = cvy_model_image_bytes(&evaluator->network->model, CVY_MODEL_INFER);
    const struct cvy_host_batch part = {.images = wanted->images + (size_t)first * bytes};

    CVY_TRY(cvy_batch_upload_bind(&stream->upload, &stream->plan, &part));
    CVY_TRY(cvy_plan_run(&stream->plan, NULL));
    return detects(evaluator) ? read_found(evaluator, &stream->plan, (size_t)first)
                              : read_answers(evaluator, &stream->plan, (size_t)first, wanted->probabilities);
}

cvy_status cvy_evaluator_run(struct cvy_evaluator *evaluator, const uint8_t *images, int64_t count,
                             bool want_probabilities)
{
    struct wanted wanted = {evaluator, images, want_probabilities};

    return cvy_streams_run(&evaluator->streams, count, run_part, &wanted);
}

/* An image as people look at it: bytes. */
static cvy_status image_to_show(struct cvy_evaluator *evaluator, const struct cvy_batch *batch, int32_t index,
                                const uint8_t **shown)
{
    const struct cvy_model_options *model = &evaluator->network->model;
    cvy_device *device = evaluator->network->device;
    const size_t bytes = cvy_model_image_bytes(model, CVY_MODEL_INFER);
    const size_t count = model->float_images ? bytes / sizeof(float) : bytes;
    const uint8_t *image = batch->images + (size_t)index * bytes;

    *shown = image;
    if (!model->float_images && !batch->on_device)
        return CVY_OK;
    if (!evaluator->shown)
        evaluator->shown = cvy_calloc(count, 1);
    *shown = evaluator->shown;
    if (!evaluator->shown)
        return cvy_fail_memory(count, "an image of the report");
    if (batch->on_device) /* where there are only bytes */
        return device->backend->download(device, evaluator->shown, image, count);
    for (size_t i = 0; i < count; i++)
        evaluator->shown[i] = (uint8_t)(((const float *)(const void *)image)[i] + 0.5F);
    return CVY_OK;
}

/* Hand one answer to the collector. */
static cvy_status collect(struct cvy_evaluator *evaluator, struct cvy_pass *pass, const struct cvy_batch *batch,
                          int32_t index, const struct cvy_answer_score *score)
{
    const int32_t size = (int32_t)evaluator->network->model.image_size;
    const struct cvy_sample *sample = pass->dataset ? &pass->dataset->samples[batch->samples[index]] : NULL;
    struct cvy_validation_image image = {
        .label = batch->labels[index],
        .predicted = score->predicted,
        .in_topk = score->rank < pass->metrics.top_k,
        .loss = score->loss,
        .probability = score->probability,
        .label_probability = score->label_probability,
        .file = sample ? sample->path : NULL,
        .offset = sample && sample->shard ? (int64_t)sample->record_offset : -1,
        .size = size,
    };

    if (!pass->collector)
        return CVY_OK;
    if (cvy_collector_keeps(pass->collector, &image))
        CVY_TRY(image_to_show(evaluator, batch, index, &image.image));
    return cvy_collector_add(pass->collector, &image);
}

/* One image of a detector's: counted, and handed to COCO's evaluation. */
static cvy_status count_found(struct cvy_evaluator *evaluator, struct cvy_pass *pass, const struct cvy_batch *batch,
                              int32_t index)
{
    const struct cvy_model_options *model = &evaluator->network->model;
    const struct cvy_detector_outputs *found = &evaluator->found;
    const size_t bytes = cvy_model_image_bytes(model, CVY_MODEL_INFER);
    const size_t row = (size_t)index * CVY_MAX_DETECTIONS;
    struct cvy_detection detections[CVY_MAX_DETECTIONS];
    size_t count = 0;

    pass->metrics.images++;
    if (!pass->coco || !pass->dataset)
        return CVY_OK;
    cvy_detections_gather(found->boxes + 4 * row, found->scores + row, found->classes + row, found->count[index],
                          detections);
    for (int32_t i = 0; i < found->count[index]; i++) { /* of classes that the data have */
        if (detections[i].label < pass->dataset->class_count)
            detections[count++] = detections[i];
    }
    if (pass->pictures)
        CVY_TRY(cvy_detections_picture(pass->pictures, pass->dataset, batch->samples[index],
                                       (const float *)(const void *)(batch->images + (size_t)index * bytes),
                                       model->image_size, detections, count));
    return cvy_detections_evaluate(pass->coco, pass->dataset, batch->samples[index], detections, count,
                                   pass->area_rule);
}

static cvy_status count_batch(struct cvy_evaluator *evaluator, struct cvy_pass *pass, const struct cvy_batch *batch)
{
    const int32_t classes = evaluator->network->model.num_classes;

    for (int32_t i = 0; i < batch->count; i++) {
        struct cvy_answer_score score;

        if (batch->status[i] != CVY_OK) {
            pass->metrics.skipped++;
            continue;
        }
        if (detects(evaluator)) {
            CVY_TRY(count_found(evaluator, pass, batch, i));
            continue;
        }
        score = cvy_metrics_add(&pass->metrics, evaluator->logits + (int64_t)i * classes, classes, batch->labels[i]);
        CVY_TRY(collect(evaluator, pass, batch, i, &score));
    }
    return CVY_OK;
}

cvy_status cvy_evaluator_pass(struct cvy_evaluator *evaluator, struct cvy_source *source, struct cvy_pass *pass)
{
    const double begin = cvy_clock();
    const struct cvy_batch *batch;

    CVY_TRY(cvy_source_start(source, 0, 0));
    while (pass->limit <= 0 || pass->batches < pass->limit) {
        double start;

        CVY_TRY(cvy_source_next(source, &batch));
        if (!batch)
            break;
        start = cvy_clock();
        CVY_TRY(cvy_evaluator_run(evaluator, batch->images, batch->count, false));
        CVY_TRY(count_batch(evaluator, pass, batch));
        if (pass->latency)
            pass->latency[pass->batches] = cvy_clock() - start;
        if (pass->losses)
            CVY_TRY(cvy_detection_loss_add(pass->losses, cvy_evaluator_plan(evaluator), batch, pass->loss_sums));
        pass->batches++;
        pass->seconds = cvy_clock() - begin;
        pass->wait = cvy_source_wait_seconds(source);
        if (pass->progress && !pass->progress(pass->context, pass->batches))
            return cvy_fail(CVY_STOPPED, "stopped during validation");
    }
    return CVY_OK;
}
