/* Evaluation: logits in, hits and cross-entropy out. */
#include "train/evaluate.h"

#include <string.h>

#include "base/error.h"

cvy_status cvy_evaluator_open(struct cvy_evaluator *evaluator, struct cvy_network *network, int64_t batch)
{
    const size_t count = (size_t)batch * (size_t)network->model.num_classes;
    cvy_status status;

    memset(evaluator, 0, sizeof *evaluator);
    evaluator->network = network;
    evaluator->batch = batch;
    CVY_GOTO(cvy_network_plan(network, CVY_MODEL_INFER, batch, &evaluator->plan));
    CVY_GOTO(cvy_feed_open(&evaluator->feed, network->device, batch, network->model.image_size));
    evaluator->plan.record = true;
    evaluator->logits = cvy_calloc(count, sizeof *evaluator->logits);
    evaluator->probabilities = cvy_calloc(count, sizeof *evaluator->probabilities);
    if (!evaluator->logits || !evaluator->probabilities) {
        status = cvy_fail_memory(count * sizeof *evaluator->logits, "the logits");
        goto fail;
    }
    return CVY_OK;
fail:
    cvy_evaluator_close(evaluator);
    return status;
}

void cvy_evaluator_close(struct cvy_evaluator *evaluator)
{
    cvy_plan_close(&evaluator->plan);
    cvy_feed_close(&evaluator->feed);
    cvy_free(evaluator->logits);
    cvy_free(evaluator->probabilities);
    memset(evaluator, 0, sizeof *evaluator);
}

cvy_status cvy_evaluator_run(struct cvy_evaluator *evaluator, const uint8_t *images, bool want_probabilities)
{
    const size_t count = (size_t)evaluator->batch * (size_t)evaluator->network->model.num_classes;

    CVY_TRY(cvy_feed_bind(&evaluator->feed, &evaluator->plan, images, NULL));
    CVY_TRY(cvy_plan_run(&evaluator->plan, NULL, NULL));
    CVY_TRY(cvy_plan_read_floats(&evaluator->plan, "logits", evaluator->logits, count));
    if (!want_probabilities)
        return CVY_OK;
    return cvy_plan_read_floats(&evaluator->plan, "probabilities", evaluator->probabilities, count);
}

cvy_status cvy_evaluator_pass(struct cvy_evaluator *evaluator, struct cvy_source *source, int64_t limit,
                              cvy_evaluate_progress progress, void *context, struct cvy_metrics *metrics)
{
    const int32_t classes = evaluator->network->model.num_classes;
    const struct cvy_batch *batch;

    CVY_TRY(cvy_source_start(source, 0, 0));
    for (int64_t done = 0; limit <= 0 || done < limit; done++) {
        CVY_TRY(cvy_source_next(source, &batch));
        if (!batch)
            break;
        CVY_TRY(cvy_evaluator_run(evaluator, batch->images, false));
        for (int32_t i = 0; i < batch->count; i++) {
            if (batch->status[i] != CVY_OK)
                metrics->skipped++;
            else
                cvy_metrics_add(metrics, evaluator->logits + (int64_t)i * classes, classes, batch->labels[i]);
        }
        if (progress && !progress(context, done + 1))
            return cvy_fail(CVY_STOPPED, "stopped during validation");
    }
    return CVY_OK;
}
