/* The images that a network is quantised with: those of the calibration, and those its accuracy is measured on. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/rng.h"
#include "data/set/record_set.h"
#include "infer/quantize/ptq.h"

cvy_status cvy_ptq_progress(const struct cvy_ptq *ptq, const char *stage, int64_t done, int64_t total)
{
    const struct cvy_quantize_options *options = ptq->options;

    if (options->progress && !options->progress(options->context, stage, done, total))
        return ptq->written ? cvy_fail(CVY_STOPPED, "stopped; %s is written, but its accuracy was not measured",
                                       cvy_quote(options->output))
                            : cvy_fail(CVY_STOPPED, "stopped; nothing is written");
    return CVY_OK;
}

/* ---- the sets ---- */

static int ascending(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Leaves `count` samples of the set, drawn at random, in their order. */
static cvy_status draw(struct cvy_dataset *dataset, uint32_t count, uint64_t seed)
{
    struct cvy_rng rng = cvy_rng_new(seed, CVY_RNG_CALIBRATION, 0, 0);
    uint32_t *order;

    if (dataset->sample_count <= count)
        return CVY_OK;
    order = cvy_calloc(dataset->sample_count, sizeof *order);
    if (!order)
        return cvy_fail_memory(dataset->sample_count * sizeof *order, "the order of the images");
    cvy_rng_permutation(&rng, order, dataset->sample_count);
    qsort(order, count, sizeof *order, ascending);
    for (uint32_t i = 0; i < count; i++) {
        dataset->samples[i] = dataset->samples[order[i]];
        if (dataset->images)
            dataset->images[i] = dataset->images[order[i]];
        if (dataset->places)
            dataset->places[i] = dataset->places[order[i]];
    }
    dataset->sample_count = count;
    cvy_free(order);
    return CVY_OK;
}

cvy_status cvy_ptq_open_images(struct cvy_ptq *ptq)
{
    struct cvy_predictor *plain = &ptq->plain;
    const char *folder = ptq->options->data;
    const int wanted = ptq->options->images ? ptq->options->images : CVY_PTQ_IMAGES;

    if (plain->network.architecture->task == CVY_TASK_DETECT) {
        CVY_TRY(cvy_predictor_open_detection(plain, folder, false, &ptq->val));
        CVY_TRY(cvy_predictor_open_detection(plain, folder, true, &ptq->images));
    } else {
        CVY_TRY(cvy_predictor_open_validation(plain, folder, &ptq->val));
        if (cvy_holds_records(folder, false))
            CVY_TRY(cvy_dataset_open_records(&ptq->images, folder, false, NULL, 0));
        else if (cvy_holds_records(folder, true))
            CVY_TRY(cvy_dataset_open_records(&ptq->images, folder, true, NULL, 0));
        else
            CVY_TRY(cvy_dataset_open_training(&ptq->images, folder));
    }
    return draw(&ptq->images, (uint32_t)wanted, ptq->options->seed);
}

/* ---- passes ---- */

/* As many images as have four times the pixels of one of 224: the values of all layers are kept. */
static int32_t small_batch(const struct cvy_ptq *ptq)
{
    const double side = ptq->network.model.image_size, batch = 4 * 224 * 224 / (side * side);
    const uint32_t most = ptq->images.sample_count < 32 ? ptq->images.sample_count : 32;

    return batch < 1 ? 1 : batch > most ? (int32_t)most : (int32_t)batch;
}

cvy_status cvy_ptq_run(struct cvy_ptq *ptq, enum cvy_ptq_graph kind, const char *stage, cvy_ptq_batch receive,
                       void *context)
{
    struct cvy_evaluator evaluator = {0};
    struct cvy_source source = {0};
    const struct cvy_batch *batch;
    struct cvy_graph graph;
    cvy_status status;

    CVY_TRY(cvy_ptq_graph(&ptq->network, kind, &graph));
    CVY_TRY(cvy_evaluator_open_graph(&evaluator, &ptq->network, &graph, small_batch(ptq)));
    CVY_GOTO(cvy_predictor_open_source(&ptq->plain, &ptq->images, (int32_t)evaluator.batch, false, &source));
    CVY_GOTO(cvy_source_start(&source, 0, 0));
    for (int64_t done = 1;; done++) {
        CVY_GOTO(cvy_source_next(&source, &batch));
        if (!batch)
            break;
        CVY_GOTO(cvy_evaluator_run(&evaluator, batch->images, batch->count, false));
        CVY_GOTO(receive(context, &evaluator, batch));
        CVY_GOTO(cvy_ptq_progress(ptq, stage, done, cvy_source_batches(&source)));
    }
fail:
    cvy_source_close(&source);
    cvy_evaluator_close(&evaluator);
    return status;
}

/* ---- accuracy ---- */

static cvy_status classify(struct cvy_ptq *ptq, struct cvy_evaluator *evaluator, struct cvy_source *source,
                           const char *stage, struct cvy_ptq_score *score)
{
    const int32_t classes = ptq->network.model.num_classes;
    struct cvy_metrics metrics = {.top_k = classes < 5 ? classes : 5};
    const struct cvy_batch *batch;
    int64_t at = 0;

    CVY_TRY(cvy_source_start(source, 0, 0));
    for (int64_t done = 1;; done++) {
        CVY_TRY(cvy_source_next(source, &batch));
        if (!batch)
            break;
        CVY_TRY(cvy_evaluator_run(evaluator, batch->images, batch->count, false));
        for (int32_t i = 0; i < batch->count; i++) {
            const float *logits = evaluator->logits + (int64_t)i * classes;

            score->answers[at] = -1;
            if (batch->status[i] == CVY_OK)
                score->answers[at] = cvy_metrics_add(&metrics, logits, classes, batch->labels[i]).predicted;
            at++;
        }
        CVY_TRY(cvy_ptq_progress(ptq, stage, done, cvy_source_batches(source)));
    }
    score->images = metrics.images;
    score->accuracy = cvy_metrics_top1(&metrics);
    score->loss = cvy_metrics_loss(&metrics);
    return CVY_OK;
}

struct detection_progress {
    const struct cvy_ptq *ptq;
    const char *stage;
    int64_t total;
};

static bool detection_progress(void *context, int64_t done)
{
    const struct detection_progress *progress = context;

    return cvy_ptq_progress(progress->ptq, progress->stage, done, progress->total) == CVY_OK;
}

static cvy_status detect(struct cvy_ptq *ptq, struct cvy_evaluator *evaluator, struct cvy_source *source,
                         const char *stage, struct cvy_ptq_score *score)
{
    struct detection_progress progress = {ptq, stage, cvy_source_batches(source)};
    struct cvy_coco_evaluation evaluation = {0};
    struct cvy_coco_result coco = {0};
    struct cvy_pass pass = {
        .coco = &evaluation, .dataset = &ptq->val, .progress = detection_progress, .context = &progress};
    cvy_status status;

    CVY_GOTO(cvy_coco_open(&evaluation, ptq->val.class_count));
    CVY_GOTO(cvy_evaluator_pass(evaluator, source, &pass));
    CVY_GOTO(cvy_coco_finish(&evaluation, ptq->plain.device->threads, &coco));
    score->images = pass.metrics.images;
    score->accuracy = 100 * coco.stats[0];
fail:
    cvy_coco_close(&evaluation);
    cvy_coco_result_release(&coco);
    return status;
}

cvy_status cvy_ptq_evaluate(struct cvy_ptq *ptq, struct cvy_evaluator *evaluator, const char *stage,
                            struct cvy_ptq_score *score)
{
    struct cvy_source source = {0};
    cvy_status status;

    *score = (struct cvy_ptq_score){0};
    CVY_GOTO(cvy_predictor_open_source(&ptq->plain, &ptq->val, (int32_t)evaluator->batch, false, &source));
    if (ptq->network.architecture->task == CVY_TASK_DETECT) {
        CVY_GOTO(detect(ptq, evaluator, &source, stage, score));
    } else {
        score->answers = cvy_calloc((size_t)ptq->val.sample_count + 1, sizeof *score->answers);
        if (!score->answers) {
            status = cvy_fail_memory((size_t)ptq->val.sample_count * sizeof *score->answers, "the answers");
            goto fail;
        }
        CVY_GOTO(classify(ptq, evaluator, &source, stage, score));
    }
    if (score->images == 0) {
        status = cvy_fail(CVY_BAD_DATA, "no image of %s can be read", cvy_quote(ptq->options->data));
        goto fail;
    }
    cvy_source_close(&source);
    return CVY_OK;
fail:
    cvy_source_close(&source);
    cvy_free(score->answers);
    score->answers = NULL;
    return status;
}
