/* Copies of a network's arenas. */
#include "network/snapshot.h"

#include <string.h>

#include "base/error.h"

cvy_status cvy_snapshot_open(struct cvy_snapshot *snapshot, const struct cvy_network *network)
{
    const struct cvy_store *store = &network->store;
    cvy_status status;
    void *memory;

    memset(snapshot, 0, sizeof *snapshot);
    CVY_GOTO(
        cvy_store_open(&snapshot->store, network->device, store->trainable_elements, store->state_elements, false));
    if (store->momentum) {
        CVY_GOTO(network->device->backend->allocate(network->device, (size_t)store->trainable_elements * sizeof(float),
                                                    &memory));
        snapshot->store.momentum = memory;
    }
    CVY_GOTO(cvy_store_extend(&snapshot->store, store->square_average ? CVY_EXTRA_SQUARE_AVERAGE : 0));
    if (network->average.weights)
        CVY_GOTO(cvy_store_open(&snapshot->average, network->device, store->trainable_elements, store->state_elements,
                                false));
    snapshot->open = true;
    return CVY_OK;
fail:
    cvy_snapshot_close(snapshot);
    return status;
}

void cvy_snapshot_close(struct cvy_snapshot *snapshot)
{
    cvy_store_close(&snapshot->average);
    cvy_store_close(&snapshot->store);
    memset(snapshot, 0, sizeof *snapshot);
}

static cvy_status copy_floats(cvy_device *device, float *to, const float *from, int64_t count)
{
    if (!to || !from || count == 0)
        return CVY_OK;
    return device->backend->combine(device, CVY_COMBINE_COPY, to, from, count, NULL);
}

static cvy_status copy_store(struct cvy_store *to, const struct cvy_store *from)
{
    if (!to->weights || !from->weights)
        return CVY_OK;
    CVY_TRY(copy_floats(from->device, to->weights, from->weights, from->trainable_elements));
    CVY_TRY(copy_floats(from->device, to->momentum, from->momentum, from->trainable_elements));
    CVY_TRY(copy_floats(from->device, to->square_average, from->square_average, from->trainable_elements));
    CVY_TRY(copy_floats(from->device, to->state, from->state, from->state_elements));
    to->version++;
    return CVY_OK;
}

cvy_status cvy_snapshot_take(struct cvy_snapshot *snapshot, const struct cvy_network *network)
{
    CVY_TRY(copy_store(&snapshot->store, &network->store));
    CVY_TRY(copy_store(&snapshot->average, &network->average));
    snapshot->taken = true;
    return CVY_OK;
}

cvy_status cvy_snapshot_restore(const struct cvy_snapshot *snapshot, struct cvy_network *network)
{
    CVY_TRY(copy_store(&network->store, &snapshot->store));
    return copy_store(&network->average, &snapshot->average);
}
