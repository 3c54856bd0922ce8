/* Opening and reading a plan, and the parameter store that plans share. */
#include "backend/plan.h"

#include <stdlib.h>
#include <string.h>

#include "backend/plan_internal.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "ops/ops.h"

/* ---- the store ---- */

static cvy_status allocate_floats(cvy_device *device, int64_t count, const char *what, float **memory)
{
    size_t bytes;
    void *block = NULL;
    cvy_status status;

    if (count < 0 || !cvy_size_mul((size_t)count, sizeof(float), &bytes))
        return cvy_fail(CVY_NO_MEMORY, "%s would need more memory than can be addressed", what);
    status = device->backend->allocate(device, bytes ? bytes : sizeof(float), &block);
    *memory = block;
    return status;
}

cvy_status cvy_store_open(struct cvy_store *store, cvy_device *device, int64_t trainable_elements,
                          int64_t state_elements, bool training)
{
    cvy_status status;

    memset(store, 0, sizeof *store);
    store->device = device;
    store->trainable_elements = trainable_elements;
    store->state_elements = state_elements;
    store->version = 1;
    CVY_GOTO(allocate_floats(device, trainable_elements, "the parameters", &store->weights));
    CVY_GOTO(allocate_floats(device, state_elements, "the running statistics", &store->state));
    if (training) {
        CVY_GOTO(allocate_floats(device, trainable_elements, "the gradients", &store->gradients));
        CVY_GOTO(allocate_floats(device, trainable_elements, "the momentum", &store->momentum));
    }
    return CVY_OK;
fail:
    cvy_store_close(store);
    return status;
}

cvy_status cvy_store_extend(struct cvy_store *store, int extras)
{
    if (extras & CVY_EXTRA_SQUARE_AVERAGE && !store->square_average)
        CVY_TRY(allocate_floats(store->device, store->trainable_elements, "the averages of squares",
                                &store->square_average));
    if (extras & CVY_EXTRA_GRADIENT_SUM && !store->gradient_sum)
        CVY_TRY(
            allocate_floats(store->device, store->trainable_elements, "the sums of gradients", &store->gradient_sum));
    return CVY_OK;
}

void cvy_store_close(struct cvy_store *store)
{
    if (store->device) {
        const struct cvy_backend *backend = store->device->backend;
        backend->release(store->device, store->weights);
        backend->release(store->device, store->gradients);
        backend->release(store->device, store->momentum);
        backend->release(store->device, store->square_average);
        backend->release(store->device, store->gradient_sum);
        backend->release(store->device, store->state);
    }
    memset(store, 0, sizeof *store);
}

/* ---- the workspace ---- */

cvy_status cvy_workspace_open(struct cvy_workspace *workspace, cvy_device *device, size_t bytes)
{
    *workspace = (struct cvy_workspace){.device = device, .bytes = bytes};
    return bytes ? device->backend->allocate(device, bytes, &workspace->memory) : CVY_OK;
}

void cvy_workspace_close(struct cvy_workspace *workspace)
{
    if (workspace->device)
        workspace->device->backend->release(workspace->device, workspace->memory);
    memset(workspace, 0, sizeof *workspace);
}

/* ---- opening ---- */

/* Where a tensor lies; NULL for inputs, which are bound later, and for what is there in parts alone. */
static void *tensor_memory(const struct cvy_plan *plan, int32_t index)
{
    const struct cvy_plan_tensor *t = &plan->tensors[index];

    if (t->local)
        return NULL;
    switch (t->storage) {
    case CVY_STORE_ACTIVATION:
        return plan->activations + t->offset;
    case CVY_STORE_CONSTANT:
        return t->shared ? t->shared : plan->constants + t->offset;
    case CVY_STORE_WEIGHT:
        return plan->store->weights + plan->graph.params[t->param].offset;
    case CVY_STORE_GRADIENT:
        return plan->store->gradients + plan->graph.params[t->param].offset;
    case CVY_STORE_STATE:
        return plan->store->state + plan->graph.params[t->param].offset;
    case CVY_STORE_INPUT:
        break;
    }
    return NULL;
}

static void resolve_pointers(struct cvy_plan *plan)
{
    for (int32_t s = 0; s < plan->step_count; s++) {
        struct cvy_plan_step *step = &plan->steps[s];
        for (int i = 0; i < CVY_MAX_INPUTS; i++)
            step->in_ptr[i] = step->in[i] >= 0 ? tensor_memory(plan, step->in[i]) : NULL;
        for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
            step->out_ptr[i] = step->out[i] >= 0 ? tensor_memory(plan, step->out[i]) : NULL;
        if (step->kernel.scratch_bytes)
            step->scratch_ptr = plan->activations + step->scratch_offset;
    }
    cvy_plan_resolve_chains(plan);
}

static int by_step(const void *a, const void *b)
{
    const struct cvy_plan_ready *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->param < y->param ? -1 : x->param > y->param;
}

/* A gradient may be changed (summed over the ranks) once it is made and the last step that reads it has run; where that
 * is one of a chain, all of the chain. */
static cvy_status list_ready_gradients(struct cvy_plan *plan)
{
    plan->ready = cvy_calloc((size_t)plan->tensor_count + 1, sizeof *plan->ready);
    if (!plan->ready)
        return cvy_fail_memory((size_t)plan->tensor_count * sizeof *plan->ready, "a plan");
    for (int32_t s = 0; s < plan->step_count; s++) {
        for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
            const struct cvy_plan_tensor *t = plan->steps[s].out[i] >= 0 ? &plan->tensors[plan->steps[s].out[i]] : NULL;
            int32_t step;
            if (!t || t->storage != CVY_STORE_GRADIENT)
                continue;
            step = t->last < plan->step_count ? t->last : plan->step_count - 1; /* named results are read afterwards */
            step = step > s ? step : s;
            if (plan->steps[step].chain >= 0)
                step = plan->chains[plan->steps[step].chain].end - 1;
            plan->ready[plan->ready_count++] = (struct cvy_plan_ready){step, t->param, false};
        }
    }
    qsort(plan->ready, (size_t)plan->ready_count, sizeof *plan->ready, by_step);
    return CVY_OK;
}

size_t cvy_plan_bytes(const struct cvy_plan *plan)
{
    return plan->activation_bytes + plan->constant_bytes;
}

cvy_status cvy_plan_allocate(struct cvy_plan *plan, struct cvy_workspace *workspace)
{
    const size_t bytes = cvy_plan_bytes(plan);
    char *memory = NULL;

    if (!plan->store)
        return cvy_fail(CVY_FAILED, "this plan is a dry run: it has no parameters to run with");
    if (workspace && workspace->bytes < bytes)
        return cvy_fail(CVY_FAILED, "a plan of %zu bytes does not fit into a workspace of %zu", bytes,
                        workspace->bytes);
    if (workspace) {
        memory = workspace->memory;
    } else if (bytes) {
        CVY_TRY(plan->device->backend->allocate(plan->device, bytes, &plan->memory));
        memory = plan->memory;
    }
    plan->workspace = workspace;
    plan->activations = memory;
    plan->constants = memory ? plan->activations + plan->activation_bytes : NULL;
    plan->placed = true;
    resolve_pointers(plan);
    return CVY_OK;
}

void cvy_plan_use_store(struct cvy_plan *plan, struct cvy_store *store)
{
    if (plan->store == store)
        return;
    plan->store = store;
    plan->store_version = 0; /* of no store: the constants are to be made again */
    cvy_plan_destroy_captures(plan);
    resolve_pointers(plan);
}

/* What the device wants otherwise in the graph. */
static cvy_status rewrite(struct cvy_plan *plan)
{
    cvy_device *device = plan->device;
    cvy_status status;

    if (!device->backend->rewrite)
        return CVY_OK;
    device->dry_run = plan->store == NULL;
    status = device->backend->rewrite(device, &plan->graph, plan->batch);
    device->dry_run = false;
    return status == CVY_OK ? cvy_graph_status(&plan->graph) : status;
}

cvy_status cvy_plan_prepare(struct cvy_plan *plan, cvy_device *device, struct cvy_store *store, struct cvy_graph *graph,
                            int64_t batch)
{
    cvy_status status;

    memset(plan, 0, sizeof *plan);
    plan->device = device;
    plan->store = store;
    plan->batch = batch;
    plan->graph = *graph;
    memset(graph, 0, sizeof *graph);
    CVY_GOTO(cvy_device_enter(device));
    if (batch < 1) {
        status = cvy_fail(CVY_USAGE, "a batch of %lld images is impossible", (long long)batch);
        goto fail;
    }
    CVY_GOTO(cvy_graph_status(&plan->graph));
    CVY_GOTO(cvy_graph_check_batch(&plan->graph, batch));
    if (store && (store->trainable_elements != plan->graph.trainable_elements ||
                  store->state_elements != plan->graph.state_elements)) {
        status = cvy_fail(CVY_FAILED, "the parameter store was made for another network");
        goto fail;
    }
    CVY_GOTO(rewrite(plan));
    CVY_GOTO(cvy_plan_choose_images(plan));
    CVY_GOTO(cvy_plan_build(plan));
    CVY_GOTO(cvy_plan_layout(plan));
    CVY_GOTO(list_ready_gradients(plan));
    return CVY_OK;
fail:
    cvy_plan_close(plan);
    return status;
}

cvy_status cvy_plan_open(struct cvy_plan *plan, cvy_device *device, struct cvy_store *store, struct cvy_graph *graph,
                         int64_t batch)
{
    cvy_status status;

    CVY_TRY(cvy_plan_prepare(plan, device, store, graph, batch));
    status = store ? cvy_plan_allocate(plan, NULL) : CVY_OK;
    if (status != CVY_OK)
        cvy_plan_close(plan);
    return status;
}

void cvy_plan_drop(struct cvy_plan *plan)
{
    cvy_plan_destroy_captures(plan);
    if (plan->workspace && plan->workspace->user == plan)
        plan->workspace->user = NULL;
    if (plan->device) {
        for (int32_t s = 0; s < plan->step_count; s++)
            cvy_kernel_release(plan->device, &plan->steps[s].kernel);
        plan->device->backend->release(plan->device, plan->memory);
    }
    cvy_free(plan->steps);
    cvy_free(plan->tensors);
    cvy_free(plan->ready);
    cvy_free(plan->chains);
    *plan = (struct cvy_plan){.device = plan->device, .store = plan->store, .graph = plan->graph, .batch = plan->batch};
}

void cvy_plan_close(struct cvy_plan *plan)
{
    cvy_plan_drop(plan);
    cvy_graph_release(&plan->graph);
    memset(plan, 0, sizeof *plan);
}

cvy_status cvy_plan_bind(struct cvy_plan *plan, const char *name, const void *memory)
{
    cvy_val value = CVY_NONE;

    for (int32_t i = 0; i < plan->graph.input_count; i++) {
        if (strcmp(plan->graph.input_list[i].name, name) != 0)
            continue;
        value = plan->graph.input_list[i].value;
        if (i < CVY_PLAN_INPUTS)
            plan->bound[i] = memory;
    }
    if (value == CVY_NONE)
        return cvy_fail(CVY_FAILED, "the plan has no input \"%s\"", name);
    for (int32_t s = 0; s < plan->step_count; s++) {
        struct cvy_plan_step *step = &plan->steps[s];
        for (int i = 0; i < CVY_MAX_INPUTS; i++) {
            const struct cvy_plan_tensor *t = step->in[i] >= 0 ? &plan->tensors[step->in[i]] : NULL;
            /* Kernels read inputs only: the cast does not let anyone write. */
            if (t && t->storage == CVY_STORE_INPUT && t->value == value)
                step->in_ptr[i] = (void *)(uintptr_t)memory;
        }
    }
    return CVY_OK;
}

/* ---- reading ---- */

/* The tensor of a named result that can be read now. */
static cvy_status find_result(const struct cvy_plan *plan, const char *name, int32_t *tensor)
{
    const cvy_val value = cvy_graph_find_result(&plan->graph, name);

    *tensor = value == CVY_NONE ? -1 : cvy_plan_result_tensor(plan, value);
    if (*tensor < 0)
        return cvy_fail(CVY_FAILED, "the plan has no result \"%s\"", name);
    if (!plan->placed)
        return cvy_fail(CVY_FAILED, "this plan is a dry run: it has no result \"%s\" to read", name);
    if (plan->workspace && plan->workspace->user != plan)
        return cvy_fail(CVY_FAILED, "another plan ran since: result \"%s\" is gone", name);
    return CVY_OK;
}

static cvy_status expect_bytes(const struct cvy_plan *plan, const char *name, int32_t tensor, size_t bytes)
{
    return plan->tensors[tensor].bytes == bytes
               ? CVY_OK
               : cvy_fail(CVY_FAILED, "result \"%s\" has %zu bytes, not %zu", name, plan->tensors[tensor].bytes, bytes);
}

cvy_status cvy_plan_read(struct cvy_plan *plan, const char *name, void *host, size_t bytes)
{
    int32_t t;

    CVY_TRY(find_result(plan, name, &t));
    CVY_TRY(expect_bytes(plan, name, t, bytes));
    return plan->device->backend->download(plan->device, host, tensor_memory(plan, t), bytes);
}

/* Results that lie close together (plan_memory.c) are one piece. */
cvy_status cvy_plan_find_numbers(const struct cvy_plan *plan, int count, const char *const *names,
                                 struct cvy_plan_numbers *numbers)
{
    size_t begin = SIZE_MAX, end = 0, sum = 0;
    bool close = true;
    int32_t t;

    memset(numbers, 0, sizeof *numbers);
    for (int i = 0; i < count; i++) {
        CVY_TRY(find_result(plan, names[i], &t));
        const struct cvy_plan_tensor *tensor = &plan->tensors[t];
        numbers->wide[i] = tensor->tensor.dtype == CVY_F64;
        CVY_TRY(expect_bytes(plan, names[i], t, numbers->wide[i] ? sizeof(double) : sizeof(float)));
        close = close && tensor->storage == CVY_STORE_ACTIVATION;
        begin = tensor->offset < begin ? tensor->offset : begin;
        end = tensor->offset + tensor->bytes > end ? tensor->offset + tensor->bytes : end;
        numbers->from[i] = tensor_memory(plan, t);
        numbers->bytes[i] = tensor->bytes;
        numbers->at[i] = sum;
        sum += tensor->bytes;
    }
    numbers->count = numbers->pieces = count;
    if (!close || end - begin > CVY_PLAN_NUMBER_BYTES)
        return CVY_OK;
    numbers->pieces = 1;
    numbers->bytes[0] = end - begin;
    for (int i = 0; i < count; i++)
        numbers->at[i] = (size_t)((const char *)numbers->from[i] - (plan->activations + begin));
    numbers->from[0] = plan->activations + begin;
    return CVY_OK;
}

void cvy_plan_numbers_read(const struct cvy_plan_numbers *numbers, const char *bytes, float *values)
{
    for (int i = 0; i < numbers->count; i++) {
        double wide;

        if (numbers->wide[i]) {
            memcpy(&wide, bytes + numbers->at[i], sizeof wide);
            values[i] = (float)wide;
        } else {
            memcpy(&values[i], bytes + numbers->at[i], sizeof values[i]);
        }
    }
}
