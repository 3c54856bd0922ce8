/* One training step. */
#include "train/trainer.h"

#include <string.h>

#include "base/error.h"

enum { BUCKET_ELEMENTS = 25 * 1024 * 1024 / 4 };

cvy_status cvy_feed_open(struct cvy_feed *feed, cvy_device *device, int64_t batch, int64_t image_size)
{
    const struct cvy_backend *backend = device->backend;
    cvy_status status;

    memset(feed, 0, sizeof *feed);
    feed->device = device;
    feed->label_bytes = (size_t)batch * sizeof(int32_t);
    if (!cvy_size_mul((size_t)batch, (size_t)(image_size * image_size * 3), &feed->image_bytes))
        return cvy_fail(CVY_NO_MEMORY, "a batch of %lld images is too large", (long long)batch);
    if (backend->host_memory)
        return CVY_OK;
    for (int i = 0; i < 2; i++) {
        CVY_GOTO(backend->allocate(device, feed->image_bytes, &feed->images[i]));
        CVY_GOTO(backend->allocate(device, feed->label_bytes, &feed->labels[i]));
    }
    return CVY_OK;
fail:
    cvy_feed_close(feed);
    return status;
}

void cvy_feed_close(struct cvy_feed *feed)
{
    for (int i = 0; feed->device && i < 2; i++) {
        feed->device->backend->release(feed->device, feed->images[i]);
        feed->device->backend->release(feed->device, feed->labels[i]);
    }
    memset(feed, 0, sizeof *feed);
}

cvy_status cvy_feed_bind(struct cvy_feed *feed, struct cvy_plan *plan, const uint8_t *images, const int32_t *labels)
{
    const struct cvy_backend *backend = feed->device->backend;
    const void *image_memory = images, *label_memory = labels;

    if (!backend->host_memory) {
        feed->turn = !feed->turn;
        CVY_TRY(backend->upload(feed->device, feed->images[feed->turn], images, feed->image_bytes));
        image_memory = feed->images[feed->turn];
        if (labels)
            CVY_TRY(backend->upload(feed->device, feed->labels[feed->turn], labels, feed->label_bytes));
        label_memory = feed->labels[feed->turn];
    }
    CVY_TRY(cvy_plan_bind(plan, "image", image_memory));
    return labels ? cvy_plan_bind(plan, "target", label_memory) : CVY_OK;
}

/* The gradient of the loss is a graph input: 1 here. */
static cvy_status open_loss_scale(struct cvy_trainer *trainer)
{
    const struct cvy_backend *backend = trainer->network->device->backend;
    const bool wide = cvy_plan_input_dtype(&trainer->plan, "loss_scale") == CVY_F64;
    const float one = 1.0f;
    const double wide_one = 1.0;

    CVY_TRY(backend->allocate(trainer->network->device, sizeof(double), &trainer->loss_scale));
    CVY_TRY(backend->upload(trainer->network->device, trainer->loss_scale,
                            wide ? (const void *)&wide_one : (const void *)&one, wide ? sizeof wide_one : sizeof one));
    return cvy_plan_bind(&trainer->plan, "loss_scale", trainer->loss_scale);
}

cvy_status cvy_trainer_open(struct cvy_trainer *trainer, struct cvy_network *network, struct cvy_comm *comm,
                            const struct cvy_optimizer_options *options, int64_t batch)
{
    cvy_status status;

    memset(trainer, 0, sizeof *trainer);
    trainer->network = network;
    trainer->comm = comm;
    CVY_GOTO(cvy_network_plan(network, CVY_MODEL_TRAIN, batch, &trainer->plan));
    CVY_GOTO(cvy_feed_open(&trainer->feed, network->device, batch, network->model.image_size));
    CVY_GOTO(cvy_optimizer_open(&trainer->optimizer, &network->table, options));
    CVY_GOTO(cvy_reducer_open(&trainer->reducer, comm, &network->store, &trainer->plan, BUCKET_ELEMENTS));
    CVY_GOTO(open_loss_scale(trainer));
    return CVY_OK;
fail:
    cvy_trainer_close(trainer);
    return status;
}

void cvy_trainer_close(struct cvy_trainer *trainer)
{
    cvy_plan_close(&trainer->plan);
    cvy_feed_close(&trainer->feed);
    cvy_optimizer_close(&trainer->optimizer);
    cvy_reducer_close(&trainer->reducer);
    if (trainer->loss_scale)
        trainer->network->device->backend->release(trainer->network->device, trainer->loss_scale);
    memset(trainer, 0, sizeof *trainer);
}

cvy_status cvy_trainer_step(struct cvy_trainer *trainer, const struct cvy_batch *batch, double learning_rate)
{
    struct cvy_network *network = trainer->network;

    CVY_TRY(cvy_feed_bind(&trainer->feed, &trainer->plan, batch->images, batch->labels));
    cvy_reducer_start(&trainer->reducer);
    CVY_TRY(cvy_plan_run(&trainer->plan, cvy_reducer_ready, &trainer->reducer));
    CVY_TRY(
        cvy_optimizer_step(&trainer->optimizer, &network->store, learning_rate, 1.0f / (float)trainer->comm->world));
    for (int32_t i = 0; i < network->table.param_count; i++) {
        const struct cvy_param *param = &network->table.params[i];
        if (param->kind == CVY_PARAM_COUNTER) /* a batch norm that is used twice has seen two batches */
            network->counters[param->offset] += param->uses;
    }
    return CVY_OK;
}

cvy_status cvy_trainer_loss(struct cvy_trainer *trainer, float *loss)
{
    return cvy_plan_read_floats(&trainer->plan, "loss", loss, 1);
}
