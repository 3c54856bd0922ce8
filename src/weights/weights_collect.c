/* The tensors of a network as host memory, for files. */
#include <string.h>

#include "base/error.h"
#include "weights/weights.h"

/* The host's view of an arena: the device's memory itself, or a copy that the view keeps. */
static cvy_status host_arena(struct cvy_network *network, float *arena, int64_t count, struct cvy_weights_view *view,
                             float **host)
{
    const struct cvy_backend *backend = network->device->backend;
    const size_t bytes = (size_t)count * sizeof(float);
    float *copy;

    *host = arena;
    if (backend->host_memory)
        return backend->synchronize(network->device);
    copy = cvy_calloc((size_t)count + 1, sizeof(float));
    if (!copy)
        return cvy_fail_memory(bytes, "a copy of the weights");
    view->copies[view->copy_count++] = copy;
    *host = copy;
    return backend->download(network->device, copy, arena, bytes);
}

static struct cvy_named_tensor view_tensor(const char *name, const struct cvy_shape *shape, const float *data)
{
    struct cvy_named_tensor tensor = {.name = name, .dtype = CVY_F32, .shape = *shape, .data = data};

    tensor.bytes = (size_t)cvy_shape_elements(shape) * sizeof(float);
    return tensor;
}

/* Every tensor of a store with a prefix before its name; counters belong to the network. */
static cvy_status add_store(struct cvy_network *network, const struct cvy_store *store, const char *prefix,
                            bool counters, struct cvy_weights_view *view)
{
    const struct cvy_graph *table = &network->table;
    float *weights, *state;

    CVY_TRY(host_arena(network, store->weights, store->trainable_elements, view, &weights));
    CVY_TRY(host_arena(network, store->state, store->state_elements, view, &state));
    for (int32_t i = 0; i < table->param_count; i++) {
        const struct cvy_param *param = &table->params[i];
        const char *name = prefix[0] ? cvy_arena_printf(&view->arena, "%s%s", prefix, param->name) : param->name;

        if (!name)
            return cvy_fail_memory(strlen(param->name), "a tensor name");
        if (param->kind != CVY_PARAM_COUNTER)
            view->tensors[view->count++] = view_tensor(
                name, &param->shape, (param->kind == CVY_PARAM_TRAINABLE ? weights : state) + param->offset);
        else if (counters)
            view->tensors[view->count++] = (struct cvy_named_tensor){
                name, CVY_I64, cvy_shape0(), &network->counters[param->offset], sizeof(int64_t)};
    }
    return CVY_OK;
}

/* What the optimizer keeps for each parameter. */
static cvy_status add_optimizer(struct cvy_network *network, float *arena, const char *prefix,
                                struct cvy_weights_view *view)
{
    float *values;

    if (!arena)
        return CVY_OK;
    CVY_TRY(host_arena(network, arena, network->store.trainable_elements, view, &values));
    for (int32_t i = 0; i < network->table.param_count; i++) {
        const struct cvy_param *param = &network->table.params[i];
        const char *name;

        if (param->kind != CVY_PARAM_TRAINABLE)
            continue;
        name = cvy_arena_printf(&view->arena, "%s%s", prefix, param->name);
        if (!name)
            return cvy_fail_memory(strlen(param->name), "a tensor name");
        view->tensors[view->count++] = view_tensor(name, &param->shape, values + param->offset);
    }
    return CVY_OK;
}

cvy_status cvy_weights_collect(struct cvy_network *network, enum cvy_weights_part part, struct cvy_weights_view *view)
{
    enum { LISTS = 8 }; /* weights, momentum, squares, average; and those of a snapshot */
    const size_t capacity = LISTS * (size_t)network->table.param_count + 1;
    const struct cvy_store *store = &network->store;
    cvy_status status;

    view->tensors = cvy_calloc(capacity, sizeof *view->tensors);
    if (!view->tensors) {
        status = cvy_fail_memory(capacity * sizeof *view->tensors, "the list of tensors");
        goto fail;
    }
    CVY_GOTO(add_store(network, part == CVY_PART_AVERAGE ? &network->average : store, "", true, view));
    if (part != CVY_PART_TRAINING)
        return CVY_OK;
    CVY_GOTO(add_optimizer(network, store->momentum, CVY_MOMENTUM_PREFIX, view));
    CVY_GOTO(add_optimizer(network, store->square_average, CVY_SQUARE_PREFIX, view));
    if (network->average.weights)
        CVY_GOTO(add_store(network, &network->average, CVY_EMA_PREFIX, false, view));
    return CVY_OK;
fail:
    cvy_weights_view_release(view);
    return status;
}

cvy_status cvy_weights_collect_snapshot(struct cvy_network *network, const struct cvy_snapshot *snapshot,
                                        struct cvy_weights_view *view)
{
    cvy_status status;

    CVY_GOTO(add_store(network, &snapshot->store, CVY_LAST_GOOD_PREFIX, false, view));
    CVY_GOTO(add_optimizer(network, snapshot->store.momentum, CVY_LAST_GOOD_PREFIX CVY_MOMENTUM_PREFIX, view));
    CVY_GOTO(add_optimizer(network, snapshot->store.square_average, CVY_LAST_GOOD_PREFIX CVY_SQUARE_PREFIX, view));
    if (snapshot->average.weights)
        CVY_GOTO(add_store(network, &snapshot->average, CVY_LAST_GOOD_PREFIX CVY_EMA_PREFIX, false, view));
    return CVY_OK;
fail:
    cvy_weights_view_release(view);
    return status;
}

void cvy_weights_view_release(struct cvy_weights_view *view)
{
    cvy_free(view->tensors);
    for (int i = 0; i < view->copy_count; i++)
        cvy_free(view->copies[i]);
    cvy_arena_release(&view->arena);
    memset(view, 0, sizeof *view);
}
