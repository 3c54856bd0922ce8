/* Statistics of batch norms, batch by batch. */
#include "network/statistics.h"

#include <string.h>

#include "base/error.h"

cvy_status cvy_statistics_open(struct cvy_statistics *statistics, struct cvy_network *network, int64_t batch)
{
    cvy_device *device = network->device;
    const size_t bytes = ((size_t)network->store.state_elements + 1) * sizeof(float);
    cvy_status status;
    void *memory;

    memset(statistics, 0, sizeof *statistics);
    statistics->network = network;
    CVY_GOTO(cvy_network_plan(network, CVY_MODEL_STATISTICS, batch, &statistics->plan));
    CVY_GOTO(cvy_batch_upload_open(&statistics->upload, device, batch,
                                   cvy_model_image_bytes(&network->model, CVY_MODEL_STATISTICS)));
    CVY_GOTO(device->backend->allocate(device, bytes, &memory));
    statistics->store.state = memory;
    CVY_GOTO(device->backend->allocate(device, bytes, &memory));
    statistics->mean = memory;
    CVY_GOTO(device->backend->allocate(device, sizeof(float), &memory));
    statistics->share = memory;
    return CVY_OK;
fail:
    cvy_statistics_close(statistics);
    return status;
}

void cvy_statistics_close(struct cvy_statistics *statistics)
{
    if (statistics->network) {
        const struct cvy_backend *backend = statistics->network->device->backend;

        cvy_plan_close(&statistics->plan);
        cvy_batch_upload_close(&statistics->upload);
        backend->release(statistics->network->device, statistics->store.state);
        backend->release(statistics->network->device, statistics->mean);
        backend->release(statistics->network->device, statistics->share);
    }
    memset(statistics, 0, sizeof *statistics);
}

static cvy_status copy(const struct cvy_statistics *statistics, float *to, const float *from)
{
    cvy_device *device = statistics->network->device;

    return device->backend->combine(device, CVY_COMBINE_COPY, to, from, statistics->network->store.state_elements,
                                    NULL);
}

/* What no batch norm of the pass changes, frozen ones and their parameters, stays as it is. */
cvy_status cvy_statistics_start(struct cvy_statistics *statistics, const struct cvy_store *store)
{
    float *state = statistics->store.state;

    statistics->store = *store;
    statistics->store.state = state;
    statistics->store.version++;
    statistics->batches = 0;
    statistics->plan.store = NULL; /* pointers are resolved anew, the weights may be others */
    cvy_plan_use_store(&statistics->plan, &statistics->store);
    return copy(statistics, state, store->state);
}

cvy_status cvy_statistics_add(struct cvy_statistics *statistics, const uint8_t *images)
{
    const struct cvy_host_batch batch = {.images = images};
    const struct cvy_plan_pass pass = {0};
    cvy_device *device = statistics->network->device;
    const float share = 1.0f / (float)(statistics->batches + 1);

    CVY_TRY(cvy_batch_upload_bind(&statistics->upload, &statistics->plan, &batch));
    CVY_TRY(cvy_plan_run(&statistics->plan, &pass));
    if (statistics->batches++ == 0)
        return copy(statistics, statistics->mean, statistics->store.state);
    CVY_TRY(cvy_device_upload_small(device, statistics->share, &share, sizeof share));
    return device->backend->combine(device, CVY_COMBINE_TOWARDS, statistics->mean, statistics->store.state,
                                    statistics->network->store.state_elements, statistics->share);
}

cvy_status cvy_statistics_finish(struct cvy_statistics *statistics, struct cvy_store *store)
{
    if (statistics->batches == 0)
        return CVY_OK;
    CVY_TRY(copy(statistics, store->state, statistics->mean));
    store->version++;
    return statistics->network->device->backend->synchronize(statistics->network->device);
}
