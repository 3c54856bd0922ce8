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

cvy_status cvy_feed_ahead(struct cvy_feed *feed, const uint8_t *images, const int32_t *labels)
{
    const struct cvy_backend *backend = feed->device->backend;
    const int turn = !feed->turn, count = labels ? 2 : 1;
    void *const to[] = {feed->images[turn], feed->labels[turn]};
    const void *const from[] = {images, labels};
    const size_t bytes[] = {feed->image_bytes, feed->label_bytes};

    if (backend->host_memory)
        return CVY_OK;
    feed->turn = turn;
    feed->fed = true;
    if (backend->feed)
        return backend->feed(feed->device, to, from, bytes, count);
    for (int i = 0; i < count; i++)
        CVY_TRY(backend->upload(feed->device, to[i], from[i], bytes[i]));
    return CVY_OK;
}

cvy_status cvy_feed_bind(struct cvy_feed *feed, struct cvy_plan *plan, const uint8_t *images, const int32_t *labels)
{
    const void *image_memory = images, *label_memory = labels;

    if (!feed->device->backend->host_memory) {
        if (!feed->fed)
            CVY_TRY(cvy_feed_ahead(feed, images, labels));
        feed->fed = false;
        image_memory = feed->images[feed->turn];
        label_memory = feed->labels[feed->turn];
    }
    CVY_TRY(cvy_plan_bind(plan, "image", image_memory));
    return labels ? cvy_plan_bind(plan, "target", label_memory) : CVY_OK;
}

/* The gradient of the loss is a graph input. */
static cvy_status open_scaler(struct cvy_trainer *trainer, const struct cvy_optimizer_options *options)
{
    cvy_device *device = trainer->network->device;
    const struct cvy_scaler scaler = {.scale = options->loss_scale > 0 ? options->loss_scale : 1};
    const double wide_one = 1;
    void *memory;

    trainer->scaling = options->loss_scale > 0;
    CVY_TRY(device->backend->allocate(device, sizeof scaler, &memory));
    trainer->scaler = memory;
    if (cvy_plan_input_dtype(&trainer->plan, "loss_scale") != CVY_F64)
        CVY_TRY(device->backend->upload(device, memory, &scaler, sizeof scaler));
    else if (trainer->scaling)
        return cvy_fail(CVY_USAGE, "the loss is not scaled in fp64");
    else
        CVY_TRY(device->backend->upload(device, memory, &wide_one, sizeof wide_one));
    return cvy_plan_bind(&trainer->plan, "loss_scale", memory);
}

cvy_status cvy_trainer_get_scaler(struct cvy_trainer *trainer, struct cvy_scaler *scaler)
{
    cvy_device *device = trainer->network->device;

    memset(scaler, 0, sizeof *scaler);
    return trainer->scaling ? device->backend->download(device, scaler, trainer->scaler, sizeof *scaler) : CVY_OK;
}

cvy_status cvy_trainer_set_scaler(struct cvy_trainer *trainer, const struct cvy_scaler *scaler)
{
    cvy_device *device = trainer->network->device;

    if (!trainer->scaling || scaler->scale == 0)
        return CVY_OK;
    return device->backend->upload(device, trainer->scaler, scaler, sizeof *scaler);
}

cvy_status cvy_trainer_open(struct cvy_trainer *trainer, struct cvy_network *network, struct cvy_comm *comm,
                            const struct cvy_optimizer_options *options, int64_t batch)
{
    cvy_status status;

    memset(trainer, 0, sizeof *trainer);
    trainer->network = network;
    trainer->comm = comm;
    trainer->accumulate = options->accumulate > 1 ? options->accumulate : 1;
    CVY_GOTO(cvy_network_extend(network, cvy_optimizer_extras(options), options->average_decay > 0));
    CVY_GOTO(cvy_network_plan(network, CVY_MODEL_TRAIN, batch, &trainer->plan));
    CVY_GOTO(
        cvy_feed_open(&trainer->feed, network->device, batch, cvy_model_input_size(&network->model, CVY_MODEL_TRAIN)));
    CVY_GOTO(cvy_optimizer_open(&trainer->optimizer, &network->table, options));
    CVY_GOTO(cvy_reducer_open(&trainer->reducer, comm, &network->store, &trainer->plan, BUCKET_ELEMENTS));
    CVY_GOTO(open_scaler(trainer, options));
    trainer->plan.record = comm->world == 1; /* the sums of several processes have a life of their own */
    if (comm->world > 1)
        trainer->reducer.gradient_sum = network->store.gradient_sum;
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
    if (trainer->scaler)
        trainer->network->device->backend->release(trainer->network->device, trainer->scaler);
    memset(trainer, 0, sizeof *trainer);
}

cvy_status cvy_trainer_feed(struct cvy_trainer *trainer, const struct cvy_batch *batch)
{
    return cvy_feed_ahead(&trainer->feed, batch->images, batch->labels);
}

/* After a pass: the gradients of earlier batches wait in a sum of their own, and the last batch of a step gets them.
 * Between processes that happens bucket by bucket, before each is summed over the ranks (cvy_reducer_ready). */
static cvy_status gather_gradients(const struct cvy_trainer *trainer, bool last)
{
    const struct cvy_store *store = &trainer->network->store;
    const struct cvy_backend *backend = store->device->backend;

    if (trainer->accumulate == 1 || (last && trainer->reducer.gradient_sum))
        return CVY_OK;
    if (last)
        return backend->combine(store->device, CVY_COMBINE_ADD, store->gradients, store->gradient_sum,
                                store->trainable_elements, 0);
    return backend->combine(store->device, trainer->done == 0 ? CVY_COMBINE_COPY : CVY_COMBINE_ADD, store->gradient_sum,
                            store->gradients, store->trainable_elements, 0);
}

/* The reference's rule: young averages forget faster. */
static cvy_status move_average(const struct cvy_trainer *trainer)
{
    const struct cvy_store *store = &trainer->network->store, *average = &trainer->network->average;
    const struct cvy_backend *backend = store->device->backend;
    const double decay = trainer->optimizer.options.average_decay;
    const double young = (1.0 + (double)trainer->batches) / (10.0 + (double)trainer->batches);
    const double share = 1 - (young < decay ? young : decay);

    if (!(decay > 0))
        return CVY_OK;
    CVY_TRY(backend->combine(store->device, CVY_COMBINE_TOWARDS, average->weights, store->weights,
                             store->trainable_elements, share));
    return backend->combine(store->device, CVY_COMBINE_TOWARDS, average->state, store->state, store->state_elements,
                            share);
}

cvy_status cvy_trainer_step(struct cvy_trainer *trainer, const struct cvy_batch *batch, double learning_rate)
{
    struct cvy_network *network = trainer->network;
    const bool last = trainer->done + 1 == trainer->accumulate;
    const float scale = 1.0f / (float)(trainer->comm->world * trainer->accumulate);

    CVY_TRY(cvy_feed_bind(&trainer->feed, &trainer->plan, batch->images, batch->labels));
    cvy_reducer_start(&trainer->reducer);
    CVY_TRY(cvy_plan_run(&trainer->plan, last ? cvy_reducer_ready : NULL, &trainer->reducer));
    CVY_TRY(gather_gradients(trainer, last));
    trainer->done = last ? 0 : trainer->done + 1;
    if (last)
        CVY_TRY(cvy_optimizer_step(&trainer->optimizer, &network->store, learning_rate, scale,
                                   trainer->scaling ? trainer->scaler : NULL));
    CVY_TRY(move_average(trainer));
    trainer->batches++;
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
