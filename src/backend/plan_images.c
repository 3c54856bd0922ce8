/* In which layout the images of a plan are: a question for the whole plan, since each change of layout costs as much as
 * a kernel. Where the device knows two, the plan is made and run in both once, with the store's parameters and without
 * images, and the answer is kept by the autotuner. */
#include <stdio.h>
#include <string.h>

#include "backend/autotune.h"
#include "backend/plan_internal.h"
#include "base/cache.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "ops/ops.h"

/* A pass of fewer operations is over sooner than one notices, and is not worth a question: that of resnet18 on an image
 * of 224 px has 3.6 * 10^9. */
static const double min_flops = 1e9;
/* Passes after one to warm up, and after how many seconds no further one begins; twice of both where none was without
 * other programs on its cores. */
enum { MAX_PASSES = 5 };
static const double enough_seconds = 2;
/* The first layout stays unless the other is faster by this share: what is nearer is noise. */
static const double min_lead = 0.04;
/* A plan may take this share of the memory that is there while it is timed. */
static const double max_share = 0.8;

static enum cvy_dtype type_of(const struct cvy_graph *graph)
{
    for (int32_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].dtype == CVY_BF16)
            return CVY_BF16;
    }
    return CVY_F32;
}

/* Everything that decides the speed of a pass: each node with its shapes and types. */
static void make_key(const struct cvy_plan *plan, struct cvy_text *key)
{
    const struct cvy_graph *graph = &plan->graph;
    uint64_t hash = cvy_hash(&plan->batch, sizeof plan->batch);

    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *node = &graph->nodes[n];
        struct cvy_op_desc desc;
        struct cvy_text text = {0};
        cvy_node_describe(graph, node, plan->batch, &desc);
        cvy_autotune_key(&desc, 0, &text);
        hash = text.failed ? hash : cvy_hash_more(hash, text.text, text.length);
        key->failed = key->failed || text.failed;
        cvy_text_release(&text);
    }
    cvy_text_printf(key, "images %016llx nodes%d b%lld %s t%d", (unsigned long long)hash, (int)graph->node_count,
                    (long long)plan->batch, graph->training ? "train" : "infer", plan->device->threads);
}

static double pass_flops(const struct cvy_graph *graph, int64_t batch)
{
    double sum = 0;

    for (int32_t n = 0; n < graph->node_count; n++)
        sum += cvy_node_flops(graph, &graph->nodes[n]);
    return sum * (double)batch;
}

/* ---- timing ---- */

/* What a pass reads and must not change while it is timed: inputs full of zeros, a copy of the running statistics. The
 * parameters are the plan's, or zeros where it has no memory for them yet (network/memory.c). */
struct trial {
    struct cvy_store store;
    struct cvy_store *real;
    bool own_parameters;
    void *inputs[CVY_PLAN_INPUTS];
    cvy_status (*sum_ranks)(void *context, double *values, int64_t count);
};

static cvy_status open_inputs(struct trial *trial, struct cvy_plan *plan)
{
    const struct cvy_graph *graph = &plan->graph;

    if (graph->input_count > CVY_PLAN_INPUTS)
        return cvy_fail(CVY_UNAVAILABLE, "the plan has more than %d inputs", CVY_PLAN_INPUTS);
    for (int32_t i = 0; i < graph->input_count; i++) {
        const struct cvy_value *value = &graph->values[graph->input_list[i].value];
        const struct cvy_tensor tensor = {.shape = cvy_shape_bind(&value->shape, plan->batch), .dtype = value->dtype};
        const size_t bytes = plan->device->backend->tensor_bytes(plan->device, &tensor);
        if (bytes == 0)
            return cvy_fail(CVY_UNAVAILABLE, "an input is too large");
        CVY_TRY(plan->device->backend->allocate(plan->device, bytes, &trial->inputs[i]));
    }
    return CVY_OK;
}

static void close_trial(struct trial *trial, struct cvy_plan *plan)
{
    const struct cvy_backend *backend = plan->device->backend;

    for (int i = 0; i < CVY_PLAN_INPUTS; i++)
        backend->release(plan->device, trial->inputs[i]);
    if (trial->own_parameters)
        cvy_store_close(&trial->store);
    else
        backend->release(plan->device, trial->store.state);
    plan->store = trial->real;
    plan->device->sum_ranks = trial->sum_ranks;
}

/* In a store with the parameters' memory: each pass writes the gradients anew. */
static cvy_status copy_state(struct trial *trial, const struct cvy_plan *plan)
{
    const struct cvy_backend *backend = plan->device->backend;
    const size_t bytes = (size_t)plan->store->state_elements * sizeof(float);
    void *state = NULL;

    trial->store = *plan->store;
    trial->store.state = NULL;
    CVY_TRY(backend->allocate(plan->device, bytes ? bytes : sizeof(float), &state));
    trial->store.state = state;
    return bytes ? backend->upload(plan->device, state, plan->store->state, bytes) : CVY_OK; /* host memory, too */
}

/* Batches of other ranks are not waited for. */
static cvy_status open_trial(struct trial *trial, struct cvy_plan *plan)
{
    cvy_status status;

    *trial = (struct trial){.real = plan->store, .sum_ranks = plan->device->sum_ranks};
    plan->device->sum_ranks = NULL;
    trial->own_parameters = !plan->store->weights;
    if (trial->own_parameters)
        CVY_GOTO(cvy_store_open(&trial->store, plan->device, plan->store->trainable_elements,
                                plan->store->state_elements, plan->graph.training));
    else
        CVY_GOTO(copy_state(trial, plan));
    CVY_GOTO(open_inputs(trial, plan));
    plan->store = &trial->store;
    return CVY_OK;
fail:
    close_trial(trial, plan);
    return status;
}

static cvy_status time_passes(struct cvy_plan *plan, const struct trial *trial, double *seconds, bool *clean)
{
    double spent = 0;
    int more = 1;

    for (int32_t i = 0; i < plan->graph.input_count; i++)
        CVY_TRY(cvy_plan_bind(plan, plan->graph.input_list[i].name, trial->inputs[i]));
    *clean = false;
    for (int pass = 0; pass <= MAX_PASSES * more && spent < enough_seconds * more; pass++) {
        const int64_t before = cvy_preemptions();
        const double start = cvy_clock();
        CVY_TRY(cvy_plan_run(plan, NULL));
        CVY_TRY(plan->device->backend->synchronize(plan->device));
        const double took = cvy_clock() - start;
        if (pass == 0)
            continue; /* weights laid out, pages of memory seen for the first time */
        *clean = *clean || cvy_preemptions() == before;
        more = *clean ? 1 : 2;
        spent += took;
        if (pass == 1 || took < *seconds)
            *seconds = took;
    }
    return CVY_OK;
}

/* Whether the plan's memory is there, with some to spare for what else the run will want. */
static bool fits(const struct cvy_plan *plan)
{
    const size_t available = cvy_device_available_memory(plan->device);

    return available == SIZE_MAX || (double)cvy_plan_bytes(plan) < max_share * (double)available;
}

/* The shortest time of a pass with images in this layout; the plan is as it was afterwards. */
static cvy_status time_images(struct cvy_plan *plan, const struct trial *trial, enum cvy_images images, double *seconds,
                              bool *clean)
{
    cvy_status status;

    plan->images = images;
    CVY_GOTO(cvy_plan_build(plan));
    CVY_GOTO(cvy_plan_layout(plan));
    if (!fits(plan)) {
        status = cvy_fail(CVY_UNAVAILABLE, "there is not enough memory for a trial");
        goto fail;
    }
    CVY_GOTO(cvy_plan_allocate(plan, NULL));
    status = time_passes(plan, trial, seconds, clean);
fail:
    cvy_plan_drop(plan);
    return status;
}

/* *chosen = the fastest. A layout that cannot be timed has a negative time and is not chosen; an error where the first
 * cannot. */
static cvy_status time_all(struct cvy_plan *plan, const enum cvy_images *layouts, int count, double *seconds,
                           int *chosen, bool *clean)
{
    struct trial trial;
    bool this_clean = false;
    cvy_status status = CVY_OK;

    CVY_TRY(open_trial(&trial, plan));
    *chosen = 0;
    for (int i = 0; i < count && status == CVY_OK; i++) {
        status = time_images(plan, &trial, layouts[i], &seconds[i], &this_clean);
        if (status != CVY_OK && i > 0) {
            cvy_log(CVY_LOG_DEBUG, "images in %s are not timed: %s", cvy_images_name(layouts[i]), cvy_error());
            seconds[i] = -1;
            status = CVY_OK;
            continue;
        }
        *clean = *clean && this_clean;
        if (status == CVY_OK && seconds[i] < seconds[*chosen] * (1 - min_lead))
            *chosen = i;
    }
    close_trial(&trial, plan);
    return status;
}

static cvy_status measure(struct cvy_plan *plan, const struct cvy_autotune_question *question,
                          const enum cvy_images *layouts, int *chosen)
{
    double seconds[CVY_MAX_IMAGES] = {0};
    bool clean = true;
    const cvy_status status = time_all(plan, layouts, question->count, seconds, chosen, &clean);

    if (status != CVY_OK) { /* of memory, too: the run itself may need less, and says better what it lacks */
        cvy_log(CVY_LOG_DEBUG, "the layouts of images are not timed: %s", cvy_error());
        *chosen = -1;
        return CVY_OK;
    }
    if (seconds[1] >= 0)
        cvy_log(CVY_LOG_INFO, "timed the layouts of images, once: %s %.4g ms, %s %.4g ms", question->names[0],
                seconds[0] * 1e3, question->names[1], seconds[1] * 1e3);
    return cvy_autotuner_remember(plan->device->autotuner, question, seconds, *chosen, clean);
}

static cvy_status choose(struct cvy_plan *plan, const enum cvy_images *layouts, int count)
{
    struct cvy_autotuner *autotuner = plan->device->autotuner;
    const char *names[CVY_MAX_IMAGES];
    struct cvy_text key = {0};
    const bool timing = plan->store && plan->device->backend->host_memory && cvy_autotuner_may_time(autotuner);
    char reason[CVY_AUTOTUNE_REASON] = "";
    cvy_status status = CVY_OK;
    int chosen;

    for (int i = 0; i < count; i++)
        names[i] = cvy_images_name(layouts[i]);
    make_key(plan, &key);
    if (key.failed) {
        cvy_text_release(&key);
        return cvy_fail_memory(key.capacity, "a plan");
    }
    const struct cvy_autotune_question question = {key.text, names, count};
    chosen = cvy_autotuner_answer(autotuner, &question, timing, reason);
    if (chosen < 0 && timing) {
        CVY_GOTO(measure(plan, &question, layouts, &chosen));
        if (chosen >= 0)
            (void)cvy_autotuner_answer(autotuner, &question, false, reason);
    }
    plan->images = layouts[chosen < 0 ? 0 : chosen];
    if (reason[0])
        snprintf(plan->images_reason, sizeof plan->images_reason, "%s", reason);
    status = cvy_autotuner_use(autotuner, key.text, cvy_images_name(plan->images));
fail:
    cvy_text_release(&key);
    return status;
}

cvy_status cvy_plan_choose_images(struct cvy_plan *plan)
{
    enum cvy_images layouts[CVY_MAX_IMAGES];
    const char *why = "";
    int count;

    if (!plan->device->backend->images)
        return CVY_OK;
    count = plan->device->backend->images(plan->device, type_of(&plan->graph), plan->graph.training, layouts, &why);
    if (count > 1 && plan->device->autotuner &&
        !cvy_graph_has_integers(&plan->graph) /* those are channels-last anyway */ &&
        pass_flops(&plan->graph, plan->batch) >= min_flops)
        CVY_TRY(choose(plan, layouts, count));
    else
        plan->images = layouts[0];
    if (cvy_graph_has_integers(&plan->graph))
        why = "of what is left in floats; bytes are channels-last";
    if (!plan->images_reason[0])
        snprintf(plan->images_reason, sizeof plan->images_reason, "%s", why);
    return CVY_OK;
}
