/* One training step. */
#include "trainer/trainer.h"

#include <assert.h>
#include <string.h>

#include "backend/invalid_label.h"
#include "base/error.h"

enum { BUCKET_ELEMENTS = 25 * 1024 * 1024 / 4 };

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

static cvy_status open_rates(struct cvy_trainer *trainer)
{
    cvy_device *device = trainer->network->device;
    void *memory;

    CVY_TRY(device->backend->allocate(device, sizeof *trainer->rates, &memory));
    trainer->rates = memory;
    trainer->lag = device->backend->download_async ? 1 : 0;
    return CVY_OK;
}

/* ---- mixup and class weights: inputs of networks that have them ---- */

static cvy_status open_mixup(struct cvy_trainer *trainer, int64_t batch)
{
    const size_t bytes = (size_t)batch * 4;

    if (!trainer->network->model.mixup)
        return CVY_OK;
    trainer->partner = cvy_calloc_aligned(bytes);
    trainer->coefficient = cvy_calloc_aligned(bytes);
    return trainer->partner && trainer->coefficient ? CVY_OK : cvy_fail_memory(bytes, "the partners of a batch");
}

void cvy_trainer_set_mixup(struct cvy_trainer *trainer, const struct cvy_mixup *mixup)
{
    trainer->mixup = *mixup;
}

static cvy_status open_class_weights(struct cvy_trainer *trainer)
{
    const size_t count = (size_t)trainer->network->model.num_classes;
    cvy_device *device = trainer->network->device;
    float *ones;
    void *memory;
    cvy_status status;

    if (!trainer->network->model.class_weights)
        return CVY_OK;
    CVY_TRY(device->backend->allocate(device, count * sizeof *ones, &memory));
    trainer->class_weights = memory;
    ones = cvy_calloc(count, sizeof *ones);
    if (!ones)
        return cvy_fail_memory(count * sizeof *ones, "the class weights");
    for (size_t k = 0; k < count; k++)
        ones[k] = 1;
    status = cvy_trainer_set_class_weights(trainer, ones);
    cvy_free(ones);
    return status == CVY_OK ? cvy_plan_bind(&trainer->plan, "class_weights", memory) : status;
}

cvy_status cvy_trainer_set_class_weights(struct cvy_trainer *trainer, const float *weights)
{
    cvy_device *device = trainer->network->device;
    const size_t bytes = (size_t)trainer->network->model.num_classes * sizeof *weights;

    return trainer->class_weights ? device->backend->upload(device, trainer->class_weights, weights, bytes) : CVY_OK;
}

/* ---- the step ---- */

cvy_status cvy_trainer_open(struct cvy_trainer *trainer, struct cvy_network *network, struct cvy_comm *comm,
                            const struct cvy_optimizer_options *options, int64_t batch)
{
    cvy_status status;

    memset(trainer, 0, sizeof *trainer);
    trainer->network = network;
    trainer->comm = comm;
    trainer->parts = network->architecture && network->architecture->task == CVY_TASK_DETECT;
    trainer->accumulate = options->accumulate > 1 ? options->accumulate : 1;
    CVY_GOTO(cvy_network_extend(network, cvy_optimizer_extras(options), options->average_decay > 0));
    CVY_GOTO(cvy_network_plan(network, CVY_MODEL_TRAIN, batch, &trainer->plan));
    CVY_GOTO(cvy_batch_upload_open(&trainer->upload, network->device, batch,
                                   cvy_model_image_bytes(&network->model, CVY_MODEL_TRAIN)));
    CVY_GOTO(cvy_optimizer_open(&trainer->optimizer, &network->table, options));
    CVY_GOTO(cvy_reducer_open(&trainer->reducer, comm, &network->store, &trainer->plan, BUCKET_ELEMENTS));
    CVY_GOTO(open_scaler(trainer, options));
    CVY_GOTO(open_rates(trainer));
    CVY_GOTO(open_mixup(trainer, batch));
    CVY_GOTO(open_class_weights(trainer));
    trainer->plan.capture = !trainer->reducer.worker; /* sums beside the pass have a life of their own */
    if (trainer->reducer.worker || trainer->reducer.on_device)
        trainer->reducer.gradient_sum = network->store.gradient_sum;
    return CVY_OK;
fail:
    cvy_trainer_close(trainer);
    return status;
}

cvy_status cvy_trainer_open_short(struct cvy_trainer *trainer, int64_t batch)
{
    struct cvy_plan *plan = &trainer->short_plan;

    CVY_TRY(cvy_network_plan(trainer->network, CVY_MODEL_TRAIN, batch, plan));
    plan->capture = trainer->plan.capture;
    cvy_reducer_split(&trainer->reducer, plan);
    CVY_TRY(cvy_plan_bind(plan, "loss_scale", trainer->scaler));
    return trainer->class_weights ? cvy_plan_bind(plan, "class_weights", trainer->class_weights) : CVY_OK;
}

/* After a failure the device may still work on a step. */
static void finish_work(const struct cvy_trainer *trainer)
{
    char reason[512];

    if (!trainer->network)
        return;
    cvy_error_get(reason, sizeof reason);
    if (trainer->network->device->backend->synchronize(trainer->network->device) != CVY_OK)
        cvy_error_put(reason); /* what failed first is the reason */
}

void cvy_trainer_close(struct cvy_trainer *trainer)
{
    finish_work(trainer);
    cvy_plan_close(&trainer->plan);
    cvy_plan_close(&trainer->short_plan);
    cvy_batch_upload_close(&trainer->upload);
    cvy_optimizer_close(&trainer->optimizer);
    cvy_reducer_close(&trainer->reducer);
    cvy_free_aligned(trainer->partner);
    cvy_free_aligned(trainer->coefficient);
    if (trainer->network) {
        const struct cvy_backend *backend = trainer->network->device->backend;
        backend->release(trainer->network->device, trainer->scaler);
        backend->release(trainer->network->device, trainer->rates);
        backend->release(trainer->network->device, trainer->class_weights);
    }
    memset(trainer, 0, sizeof *trainer);
}

/* With mixup: who mixes with whom, drawn. */
static struct cvy_host_batch host_batch_of(struct cvy_trainer *trainer, const struct cvy_batch *batch, int64_t count)
{
    if (trainer->partner)
        cvy_mixup_draw(&trainer->mixup, batch->epoch, batch->index, (int32_t)count, trainer->partner,
                       trainer->coefficient);
    if (trainer->parts)
        return (struct cvy_host_batch){.images = batch->images, .boxes = batch->boxes, .box_labels = batch->box_labels};
    return (struct cvy_host_batch){.images = batch->images,
                                   .labels = batch->labels,
                                   .partner = trainer->partner,
                                   .coefficient = trainer->coefficient};
}

/* Accumulation: the gradients of a step's earlier batches are kept in a sum of their own... */
static cvy_status keep_gradients(const struct cvy_trainer *trainer)
{
    const struct cvy_store *store = &trainer->network->store;

    return store->device->backend->combine(store->device, trainer->done == 0 ? CVY_COMBINE_COPY : CVY_COMBINE_ADD,
                                           store->gradient_sum, store->gradients, store->trainable_elements, NULL);
}

/* ... and added to those of the last one. A reducer that sums while the pass runs does that bucket by bucket. */
static cvy_status add_kept_gradients(const struct cvy_trainer *trainer)
{
    const struct cvy_store *store = &trainer->network->store;

    if (trainer->accumulate == 1 || trainer->reducer.gradient_sum)
        return CVY_OK;
    return store->device->backend->combine(store->device, CVY_COMBINE_ADD, store->gradients, store->gradient_sum,
                                           store->trainable_elements, NULL);
}

/* The reference's rule: young averages forget faster. */
static double average_share(const struct cvy_trainer *trainer)
{
    const struct cvy_optimizer_options *options = &trainer->optimizer.options;
    const double decay = options->average_decay;
    const int64_t moves = options->average_by_step ? trainer->batches / trainer->accumulate : trainer->batches;
    const double young = (1.0 + (double)moves) / (10.0 + (double)moves);

    return 1 - (young < decay ? young : decay);
}

static bool is_last(const struct cvy_trainer *trainer)
{
    return trainer->done + 1 == trainer->accumulate;
}

static cvy_status move_average(const struct cvy_trainer *trainer)
{
    const struct cvy_store *store = &trainer->network->store, *average = &trainer->network->average;
    const struct cvy_backend *backend = store->device->backend;
    const float *share = &trainer->rates->average_share;

    if (!(trainer->optimizer.options.average_decay > 0) ||
        (trainer->optimizer.options.average_by_step && !is_last(trainer)))
        return CVY_OK;
    CVY_TRY(backend->combine(store->device, CVY_COMBINE_TOWARDS, average->weights, store->weights,
                             store->trainable_elements, share));
    return backend->combine(store->device, CVY_COMBINE_TOWARDS, average->state, store->state, store->state_elements,
                            share);
}

static cvy_status gradient_ready(void *context, int32_t param)
{
    struct cvy_trainer *trainer = context;

    return cvy_reducer_ready(&trainer->reducer, param);
}

/* After the last batch of a step of several ranks. */
static cvy_status fence_gradients(void *context)
{
    struct cvy_trainer *trainer = context;

    CVY_TRY(add_kept_gradients(trainer));
    return cvy_reducer_finish(&trainer->reducer);
}

static cvy_status step_optimizer(struct cvy_trainer *trainer)
{
    const float scale = 1.0f / (float)(trainer->comm->world * trainer->accumulate);

    if (trainer->comm->world == 1)
        CVY_TRY(add_kept_gradients(trainer));
    return cvy_optimizer_step(&trainer->optimizer, &trainer->network->store, &trainer->rates->learning_rate, scale,
                              trainer->scaling ? trainer->scaler : NULL);
}

/* After every batch. */
static cvy_status end_batch(void *context)
{
    struct cvy_trainer *trainer = context;

    CVY_TRY(is_last(trainer) ? step_optimizer(trainer) : keep_gradients(trainer));
    return move_average(trainer);
}

/* end_batch() queues the same for all first batches of a step, for all between, and for all last ones. */
static struct cvy_plan_pass pass_of(struct cvy_trainer *trainer)
{
    const bool last = is_last(trainer), several = trainer->comm->world > 1;

    return (struct cvy_plan_pass){
        .ready = last && several ? gradient_ready : NULL,
        .fence = last && several ? fence_gradients : NULL,
        .tail = end_batch,
        .kind = last ? 2 : trainer->done > 0,
        .context = trainer,
    };
}

static_assert(1 + CVY_LOSS_PARTS <= CVY_PLAN_NUMBERS, "a plan finds the loss and its parts together");
static_assert(CVY_PLAN_NUMBER_BYTES + sizeof(struct cvy_scaler) <= CVY_ASYNC_DOWNLOAD_BYTES,
              "a device downloads them together");

/* What cvy_trainer_result reads. */
static cvy_status download_results(struct cvy_trainer *trainer, struct cvy_plan *plan)
{
    const char *names[1 + CVY_LOSS_PARTS] = {"loss"};
    cvy_device *device = trainer->network->device;
    const struct cvy_backend *backend = device->backend;
    const bool shorter = plan == &trainer->short_plan;
    struct cvy_plan_numbers *numbers = shorter ? &trainer->short_numbers : &trainer->numbers;
    const int place = (int)(trainer->sent++ % 2);
    const void *from[CVY_PLAN_NUMBERS + 1];
    size_t bytes[CVY_PLAN_NUMBERS + 1], used = 0;
    int pieces;

    memcpy(names + 1, cvy_loss_part_names, sizeof cvy_loss_part_names);
    if (numbers->count == 0)
        CVY_TRY(cvy_plan_find_numbers(plan, trainer->parts ? 1 + CVY_LOSS_PARTS : 1, names, numbers));
    trainer->shorter[place] = shorter;
    pieces = numbers->pieces;
    memcpy(from, numbers->from, sizeof numbers->from);
    memcpy(bytes, numbers->bytes, sizeof numbers->bytes);
    if (trainer->scaling) {
        from[pieces] = trainer->scaler;
        bytes[pieces++] = sizeof *trainer->scaler;
    }
    if (backend->download_async)
        return backend->download_async(device, place, from, bytes, pieces);
    for (int i = 0; i < pieces; i++) {
        CVY_TRY(backend->download(device, trainer->results[place] + used, from[i], bytes[i]));
        used += bytes[i];
    }
    return CVY_OK;
}

cvy_status cvy_trainer_step(struct cvy_trainer *trainer, const struct cvy_batch *batch, double learning_rate)
{
    struct cvy_network *network = trainer->network;
    struct cvy_plan *plan = batch->count == trainer->short_plan.batch ? &trainer->short_plan : &trainer->plan;
    const struct cvy_host_batch parts = host_batch_of(trainer, batch, plan->batch);
    const struct cvy_rates rates = {(float)learning_rate, (float)average_share(trainer)};
    const struct cvy_plan_pass pass = pass_of(trainer);

    CVY_TRY(cvy_batch_upload_bind(&trainer->upload, plan, &parts));
    CVY_TRY(cvy_device_upload_small(network->device, trainer->rates, &rates, sizeof rates));
    cvy_reducer_start(&trainer->reducer);
    CVY_TRY(cvy_plan_run(plan, &pass));
    CVY_TRY(download_results(trainer, plan));
    trainer->done = is_last(trainer) ? 0 : trainer->done + 1;
    trainer->batches++;
    for (int32_t i = 0; i < network->table.param_count; i++) {
        const struct cvy_param *param = &network->table.params[i];
        if (param->kind == CVY_PARAM_COUNTER) /* a batch norm that is used twice has seen two batches */
            network->counters[param->offset] += param->uses;
    }
    return CVY_OK;
}

const char *const cvy_loss_part_names[CVY_LOSS_PARTS] = {"localization_loss", "classification_loss",
                                                         "regularization_loss"};

static size_t result_bytes(const struct cvy_plan_numbers *numbers)
{
    size_t sum = 0;

    for (int i = 0; i < numbers->pieces; i++)
        sum += numbers->bytes[i];
    return sum;
}

/* The graph's loss is what is differentiated: the penalty on the weights is the optimizer's, and the loss that is told
 * holds it too. */
cvy_status cvy_trainer_result(struct cvy_trainer *trainer, int back, struct cvy_trainer_result *result)
{
    cvy_device *device = trainer->network->device;
    const int place = (int)((trainer->sent + 1 - back) % 2);
    const struct cvy_plan_numbers *numbers = trainer->shorter[place] ? &trainer->short_numbers : &trainer->numbers;
    const size_t bytes = result_bytes(numbers), more = trainer->scaling ? sizeof result->scaler : 0;
    float values[1 + CVY_LOSS_PARTS] = {0};

    memset(result, 0, sizeof *result);
    if (trainer->sent <= back)
        return cvy_fail(CVY_FAILED, "no batch has been trained whose loss could be read");
    if (device->backend->download_async)
        CVY_TRY(device->backend->download_wait(device, place, trainer->results[place], bytes + more));
    cvy_plan_numbers_read(numbers, trainer->results[place], values);
    if (!trainer->parts && values[0] == CVY_INVALID_LABEL_LOSS)
        return cvy_fail(CVY_FAILED, "a label of the batch is outside 0 to %d",
                        (int)trainer->network->model.num_classes - 1);
    result->loss = values[0] + values[1 + CVY_LOSS_REGULARIZATION];
    memcpy(result->parts, values + 1, sizeof result->parts);
    memcpy(&result->scaler, trainer->results[place] + bytes, more);
    return CVY_OK;
}

cvy_status cvy_trainer_loss(struct cvy_trainer *trainer, float *loss)
{
    struct cvy_trainer_result result;

    CVY_TRY(cvy_trainer_result(trainer, 0, &result));
    *loss = result.loss;
    return CVY_OK;
}
