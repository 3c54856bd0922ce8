/* A benchmark workload. */
#include "info/workload.h"

#include <string.h>

#include "base/error.h"
#include "base/system.h"

/* The network computes in integers, between the levels that quantizers have in `states`. */
static cvy_status use_integers(struct cvy_network *network, const float *states)
{
    const struct cvy_store *store = &network->store;
    const cvy_device *device = store->device;
    const size_t count = (size_t)store->state_elements;
    float *all = cvy_calloc(count + 1, sizeof *all);
    cvy_status status;

    if (!all)
        return cvy_fail_memory(count * sizeof *all, "the ranges of quantizers");
    CVY_GOTO(device->backend->download(store->device, all, store->state, count * sizeof *all));
    for (size_t i = 0; i < count; i++)
        all[i] = states[i] != 0 ? states[i] : all[i];
    CVY_GOTO(device->backend->upload(store->device, store->state, all, count * sizeof *all));
    network->int8 = true;
fail:
    cvy_free(all);
    return status;
}

cvy_status cvy_workload_open(struct cvy_workload *workload, cvy_device *device,
                             const struct cvy_architecture *architecture, const struct cvy_model_options *model,
                             enum cvy_dtype dtype, bool training, int32_t batch,
                             const struct cvy_loader_options *loader, const float *quantizer_states)
{
    const struct cvy_optimizer_options sgd = {.momentum = 0.9f, .weight_decay = 1e-4f};
    cvy_status status;

    memset(workload, 0, sizeof *workload);
    workload->training = training;
    workload->batch = batch;
    cvy_comm_single(&workload->comm);
    CVY_GOTO(cvy_network_open(&workload->network, device, architecture, model, dtype, training));
    CVY_GOTO(cvy_network_initialize(&workload->network, 0));
    if (quantizer_states)
        CVY_GOTO(use_integers(&workload->network, quantizer_states));
    workload->network.constant = !training;
    if (training)
        CVY_GOTO(cvy_trainer_open(&workload->trainer, &workload->network, &workload->comm, &sgd, batch));
    else
        CVY_GOTO(cvy_evaluator_open(&workload->evaluator, &workload->network, batch));
    if (loader)
        CVY_GOTO(cvy_source_open(&workload->source, loader));
    else
        CVY_GOTO(cvy_source_open_synthetic(&workload->source,
                                           &(struct cvy_synthetic){.batch_size = batch,
                                                                   .image_size = model->image_size,
                                                                   .num_classes = model->num_classes,
                                                                   .batches = INT64_MAX,
                                                                   .float_images = model->float_images,
                                                                   .boxes = architecture->task == CVY_TASK_DETECT}));
    CVY_GOTO(cvy_source_start(&workload->source, 0, 0));
    return CVY_OK;
fail:
    cvy_workload_close(workload);
    return status;
}

void cvy_workload_close(struct cvy_workload *workload)
{
    cvy_source_close(&workload->source);
    cvy_evaluator_close(&workload->evaluator);
    cvy_trainer_close(&workload->trainer);
    cvy_network_close(&workload->network);
    memset(workload, 0, sizeof *workload);
}

struct cvy_plan *cvy_workload_plan(struct cvy_workload *workload)
{
    return workload->training ? &workload->trainer.plan : cvy_evaluator_plan(&workload->evaluator);
}

int cvy_workload_streams(const struct cvy_workload *workload)
{
    return workload->training ? 1 : workload->evaluator.streams.count;
}

/* The next batch, of the next epoch where one ends. */
static cvy_status next_batch(struct cvy_workload *workload, const struct cvy_batch **batch)
{
    const double start = cvy_clock();

    CVY_TRY(cvy_source_next(&workload->source, batch));
    if (!*batch) {
        CVY_TRY(cvy_source_start(&workload->source, ++workload->epoch, 0));
        CVY_TRY(cvy_source_next(&workload->source, batch));
    }
    workload->data_seconds += cvy_clock() - start;
    return *batch ? CVY_OK : cvy_fail(CVY_BAD_DATA, "there are no images for a batch of %d", (int)workload->batch);
}

cvy_status cvy_workload_iterate(struct cvy_workload *workload)
{
    struct cvy_trainer *trainer = &workload->trainer;
    const struct cvy_batch *batch;
    struct cvy_trainer_result result;

    CVY_TRY(next_batch(workload, &batch));
    if (!workload->training)
        return cvy_evaluator_run(&workload->evaluator, batch->images, workload->batch, true);
    CVY_TRY(cvy_trainer_step(trainer, batch, 1e-3));
    return trainer->sent > trainer->lag ? cvy_trainer_result(trainer, trainer->lag, &result) : CVY_OK;
}

cvy_status cvy_workload_profile(struct cvy_workload *workload, int32_t iterations, double *seconds)
{
    struct cvy_plan *plan = cvy_workload_plan(workload);
    double *best = cvy_calloc((size_t)plan->step_count + 1, sizeof *best);
    const int64_t passes = workload->training ? 1 : cvy_streams_rounds(&workload->evaluator.streams);
    cvy_status status;

    if (!best)
        return cvy_fail_memory((size_t)plan->step_count * sizeof *best, "the times");
    plan->profile = true;
    for (int32_t i = 0; i <= iterations; i++) {
        const double start = cvy_clock();
        for (int32_t s = 0; s < plan->step_count; s++)
            plan->steps[s].seconds = 0;
        CVY_GOTO(cvy_workload_iterate(workload));
        CVY_GOTO(plan->device->backend->synchronize(plan->device));
        if (i <= 1 || cvy_clock() - start < *seconds) /* the first one warms up */
            *seconds = cvy_clock() - start;
        for (int32_t s = 0; s < plan->step_count; s++) { /* steps that set up run in the first one only */
            const bool first = plan->steps[s].setup ? i == 0 : i <= 1;
            if (first || (!plan->steps[s].setup && plan->steps[s].seconds < best[s]))
                best[s] = plan->steps[s].seconds;
        }
    }
    for (int32_t s = 0; s < plan->step_count; s++)
        plan->steps[s].seconds = plan->steps[s].setup ? best[s] : best[s] / (double)passes;
fail:
    plan->profile = false;
    cvy_free(best);
    return status;
}
