/* Buckets of gradients, and what sums them. */
#include "trainer/reducer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum {
    SMALL_ELEMENTS = 8 * 1024 / 4,
    LAST_SHARE = 16 /* a bucket has this many times what the last one may have, which nothing hides */
};

static int by_number(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return x < y ? -1 : x > y;
}

/* Some parameters: each stretch of them that is unbroken in the arena is a bucket. */
static void add_buckets(struct cvy_reducer *reducer, const struct cvy_graph *table, int32_t *params, int32_t count)
{
    struct cvy_bucket *bucket = NULL;

    qsort(params, (size_t)count, sizeof *params, by_number); /* the order of the arena */
    for (int32_t i = 0; i < count; i++) {
        const struct cvy_param *param = &table->params[params[i]];

        if (!bucket || bucket->first + bucket->count != param->offset) {
            bucket = &reducer->buckets[reducer->bucket_count++];
            bucket->first = param->offset;
        }
        bucket->count += cvy_shape_elements(&param->shape);
        bucket->parameters++;
        reducer->bucket_of[params[i]] = reducer->bucket_count - 1;
    }
}

/* What sums the buckets between several processes. */
static cvy_status open_sums(struct cvy_reducer *reducer)
{
    const struct cvy_store *store = reducer->store;
    const size_t bytes = (size_t)store->trainable_elements * sizeof *reducer->staged;

    if (reducer->comm->world == 1)
        return CVY_OK;
    reducer->on_device = store->device->joined;
    if (reducer->on_device)
        return CVY_OK;
    if (store->device->backend->host_memory)
        return cvy_comm_worker_open(&reducer->worker, reducer->comm, reducer->bucket_count + 1);
    reducer->staged = cvy_calloc_aligned(bytes);
    return reducer->staged ? CVY_OK : cvy_fail_memory(bytes, "the gradients on their way to other ranks");
}

/* The hook is to come as soon as a bucket is full. */
void cvy_reducer_split(struct cvy_reducer *reducer, struct cvy_plan *plan)
{
    cvy_reducer_start(reducer);
    if (!reducer->on_device)
        return;
    for (int32_t i = 0; i < plan->ready_count; i++)
        plan->ready[i].ends_part = --reducer->buckets[reducer->bucket_of[plan->ready[i].param]].waiting == 0;
}

static int by_number_backwards(const void *a, const void *b)
{
    return by_number(b, a);
}

static int64_t elements_of(const struct cvy_plan *plan, int32_t param)
{
    return cvy_shape_elements(&plan->graph.params[param].shape);
}

/* order: of as many numbers as there are parameters. These are taken from the last one to the first, which is about how
 * gradients become ready: in which order they do is each plan's affair, and ranks may have other kernels or numbers of
 * threads. */
static void fill_buckets(struct cvy_reducer *reducer, const struct cvy_plan *plan, int32_t *order, int64_t elements)
{
    const int64_t last = elements / LAST_SHARE;
    int64_t sum = 0, left = 0;
    int32_t first = 0;

    for (int32_t i = 0; i < plan->ready_count; i++) {
        order[i] = plan->ready[i].param;
        left += elements_of(plan, order[i]);
    }
    qsort(order, (size_t)plan->ready_count, sizeof *order, by_number_backwards);
    for (int32_t i = 0; i < plan->ready_count; i++) {
        const int64_t with_this = left;

        sum += elements_of(plan, order[i]);
        left -= elements_of(plan, order[i]);
        if (sum < elements && left > 0 && (left > last || with_this <= last))
            continue;
        add_buckets(reducer, &plan->graph, order + first, i + 1 - first);
        first = i + 1;
        sum = 0;
    }
}

cvy_status cvy_reducer_open(struct cvy_reducer *reducer, struct cvy_comm *comm, struct cvy_store *store,
                            struct cvy_plan *plan, int64_t elements)
{
    const size_t capacity = (size_t)plan->graph.param_count + 1;
    int32_t *order = cvy_calloc(capacity, sizeof *order);
    cvy_status status = CVY_OK;

    memset(reducer, 0, sizeof *reducer);
    reducer->comm = comm;
    reducer->store = store;
    reducer->bucket_of = cvy_calloc(capacity, sizeof *reducer->bucket_of);
    reducer->buckets = cvy_calloc(capacity, sizeof *reducer->buckets);
    if (!order || !reducer->bucket_of || !reducer->buckets) {
        cvy_reducer_close(reducer);
        status = cvy_fail_memory(capacity * sizeof *reducer->buckets, "the gradient buckets");
        goto fail;
    }
    fill_buckets(reducer, plan, order, elements);
    status = open_sums(reducer);
    if (status == CVY_OK)
        cvy_reducer_split(reducer, plan);
    if (status != CVY_OK)
        cvy_reducer_close(reducer);
fail:
    cvy_free(order);
    return status;
}

cvy_status cvy_reducer_wire_dtype(struct cvy_reducer *reducer, enum cvy_comm_type type)
{
    cvy_device *device = reducer->store->device;
    int64_t max = 0;

    reducer->type = type;
    if (!reducer->on_device || type == CVY_COMM_F32)
        return CVY_OK;
    for (int32_t i = 0; i < reducer->bucket_count; i++)
        max = reducer->buckets[i].count > max ? reducer->buckets[i].count : max;
    return device->backend->collective->reserve(device, max);
}

void cvy_reducer_close(struct cvy_reducer *reducer)
{
    cvy_comm_worker_close(reducer->worker);
    cvy_free_aligned(reducer->staged);
    cvy_free(reducer->bucket_of);
    cvy_free(reducer->buckets);
    memset(reducer, 0, sizeof *reducer);
}

void cvy_reducer_start(struct cvy_reducer *reducer)
{
    for (int32_t i = 0; i < reducer->bucket_count; i++)
        reducer->buckets[i].waiting = reducer->buckets[i].parameters;
    reducer->next = 0;
}

/* Small buckets are sent in full precision, as between hosts. */
static cvy_status sum_on_device(const struct cvy_reducer *reducer, const struct cvy_bucket *bucket)
{
    const struct cvy_store *store = reducer->store;
    const bool small = bucket->count <= SMALL_ELEMENTS;
    const enum cvy_dtype narrow = reducer->type == CVY_COMM_F32_AS_BF16  ? CVY_BF16
                                  : reducer->type == CVY_COMM_F32_AS_F16 ? CVY_F16
                                                                         : CVY_F32;

    return store->device->backend->collective->sum(store->device, store->gradients + bucket->first, bucket->count,
                                                   small ? CVY_F32 : narrow);
}

/* Sums a bucket all of whose parameters are ready. */
static cvy_status sum_bucket(const struct cvy_reducer *reducer, const struct cvy_bucket *bucket)
{
    const struct cvy_store *store = reducer->store;

    if (reducer->gradient_sum)
        CVY_TRY(store->device->backend->combine(store->device, CVY_COMBINE_ADD, store->gradients + bucket->first,
                                                reducer->gradient_sum + bucket->first, bucket->count, 0));
    if (reducer->on_device)
        return sum_on_device(reducer, bucket);
    cvy_comm_worker_post(reducer->worker, store->gradients + bucket->first, bucket->count, reducer->type);
    return CVY_OK;
}

cvy_status cvy_reducer_ready(void *context, int32_t param)
{
    struct cvy_reducer *reducer = context;

    reducer->buckets[reducer->bucket_of[param]].waiting--;
    if (reducer->staged)
        return CVY_OK;
    for (; reducer->next < reducer->bucket_count && reducer->buckets[reducer->next].waiting == 0; reducer->next++)
        CVY_TRY(sum_bucket(reducer, &reducer->buckets[reducer->next]));
    return CVY_OK;
}

cvy_status cvy_reducer_finish(struct cvy_reducer *reducer)
{
    const struct cvy_store *store = reducer->store;
    const struct cvy_backend *backend = store->device->backend;
    const size_t bytes = (size_t)store->trainable_elements * sizeof *reducer->staged;

    if (reducer->worker)
        return cvy_comm_worker_wait(reducer->worker);
    if (reducer->on_device) {
        reducer->comm->mark(reducer->comm);
        return backend->collective->fence(store->device);
    }
    if (!reducer->staged)
        return CVY_OK;
    CVY_TRY(backend->download(store->device, reducer->staged, store->gradients, bytes));
    for (int32_t i = 0; i < reducer->bucket_count; i++)
        CVY_TRY(reducer->comm->all_reduce(reducer->comm, reducer->staged + reducer->buckets[i].first,
                                          reducer->buckets[i].count, reducer->type));
    return backend->upload(store->device, store->gradients, reducer->staged, bytes);
}
