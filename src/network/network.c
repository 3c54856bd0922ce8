/* Networks: graphs of an architecture, the store they share, random start values. */
#include "network/network.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"
#include "base/system.h"
#include "network/split.h"
#include "ops/ops.h"

const float cvy_tensorflow_mean[3] = {123.68f, 116.28f, 103.53f};
const float cvy_tensorflow_std[3] = {58.395f, 57.12f, 57.385f};
const float cvy_imagenet_mean[3] = {123.675f, 116.28f, 103.53f};
const float cvy_imagenet_std[3] = {58.395f, 57.12f, 57.375f};
/* of TensorFlow's detector; its images keep their scale */
static const float detection_mean[3] = {123.68f, 116.779f, 103.939f};

void cvy_model_options_adapt(struct cvy_model_options *model, const struct cvy_architecture *architecture)
{
    if (architecture->task != CVY_TASK_DETECT)
        return;
    model->float_images = true;
    memcpy(model->mean, detection_mean, sizeof model->mean);
    for (int i = 0; i < 3; i++)
        model->std[i] = 1;
    model->detector.regularization = 4e-4F;
}

struct cvy_model_options cvy_model_options_make(int32_t num_classes, int32_t image_size)
{
    struct cvy_model_options model = {.num_classes = num_classes, .image_size = image_size};

    memcpy(model.mean, cvy_imagenet_mean, sizeof model.mean);
    memcpy(model.std, cvy_imagenet_std, sizeof model.std);
    return model;
}

struct cvy_model_options cvy_model_options_usual(const struct cvy_architecture *architecture, int32_t num_classes,
                                                 int32_t image_size)
{
    const int32_t usual = architecture->task == CVY_TASK_DETECT ? 90 : 1000;
    struct cvy_model_options model = cvy_model_options_make(num_classes ? num_classes : usual,
                                                            image_size ? image_size : architecture->default_image_size);

    cvy_model_options_adapt(&model, architecture);
    return model;
}

/* The value in f32: that of a cast that is there already, or of a new one. */
static cvy_val widened(struct cvy_graph *graph, cvy_val value)
{
    for (int32_t n = 0; n < graph->node_count; n++) {
        const struct cvy_node *node = &graph->nodes[n];

        if (node->op == CVY_OP_CAST && node->in[0] == value && graph->values[node->out[0]].dtype == CVY_F32)
            return node->out[0];
    }
    return cvy_cast(graph, value, CVY_F32);
}

/* Results are read as floats whatever the network computes in. */
static void widen_results(struct cvy_graph *graph)
{
    for (int32_t r = 0; r < graph->result_count; r++) {
        struct cvy_graph_result *result = &graph->results[r];

        if (result->kind == CVY_RESULT_NAMED && graph->status == CVY_OK &&
            cvy_dtype_size(graph->values[result->value].dtype) == 2)
            result->value = widened(graph, result->value);
    }
}

cvy_status cvy_network_graph(const struct cvy_architecture *architecture, const struct cvy_model_options *model,
                             const cvy_device *device, enum cvy_dtype dtype, enum cvy_model_mode mode,
                             const float *int8_state, struct cvy_graph *graph)
{
    struct cvy_model_options options = *model;
    cvy_status status;

    options.keep_activations = device->gpu; /* there, memory is plenty and its bandwidth what a step waits for */
    CVY_TRY(cvy_model_graph(architecture, &options, mode, true, graph));
    if (int8_state) {
        cvy_rewrite_int8(graph, int8_state);
        status = cvy_graph_status(graph);
        if (status != CVY_OK) {
            cvy_graph_release(graph);
            return status;
        }
    }
    if (dtype == CVY_F32)
        return CVY_OK;
    cvy_rewrite_precision(graph, cvy_ops, dtype);
    widen_results(graph);
    if (mode != CVY_MODEL_INFER && device->conv_statistics && cvy_dtype_size(dtype) == 2)
        cvy_rewrite_statistics(graph);
    status = cvy_graph_status(graph);
    if (status != CVY_OK)
        cvy_graph_release(graph);
    return status;
}

bool cvy_network_wants_int8(const char *precision, const cvy_device *device, const struct cvy_model_options *model)
{
    const bool open = !precision || strcmp(precision, "auto") == 0;

    return open && device->int8 && cvy_quantize_symmetric(model->quantize);
}

static cvy_status check_image_type(const struct cvy_network *network)
{
    if (!network->model.float_images || network->dtype != CVY_F64)
        return CVY_OK;
    return cvy_fail(CVY_USAGE,
                    "precision fp64 is not possible with images of fp32: those of --data-backend tensorflow and of "
                    "detectors");
}

cvy_status cvy_network_open(struct cvy_network *network, cvy_device *device,
                            const struct cvy_architecture *architecture, const struct cvy_model_options *model,
                            enum cvy_dtype dtype, bool training)
{
    cvy_status status;

    memset(network, 0, sizeof *network);
    network->architecture = architecture;
    network->model = *model;
    network->dtype = dtype;
    network->device = device;
    CVY_TRY(check_image_type(network));
    CVY_GOTO(cvy_model_graph(architecture, model, CVY_MODEL_INFER, false, &network->table));
    network->counters = cvy_calloc((size_t)network->table.counters + 1, sizeof *network->counters);
    if (!network->counters) {
        status = cvy_fail_memory((size_t)network->table.counters * sizeof *network->counters, "the counters");
        goto fail;
    }
    CVY_GOTO(cvy_store_open(&network->store, device, network->table.trainable_elements, network->table.state_elements,
                            training));
    return CVY_OK;
fail:
    cvy_network_close(network);
    return status;
}

cvy_status cvy_network_open_beside(struct cvy_network *network, cvy_device *device,
                                   const struct cvy_model_options *model, const struct cvy_network *owner)
{
    cvy_status status;

    memset(network, 0, sizeof *network);
    network->architecture = owner->architecture;
    network->model = *model;
    network->dtype = owner->dtype;
    network->int8 = owner->int8;
    network->constant = owner->constant;
    network->device = device;
    CVY_TRY(check_image_type(network));
    CVY_GOTO(cvy_model_graph(owner->architecture, model, CVY_MODEL_INFER, false, &network->table));
    network->store = owner->store;
    network->store.device = NULL; /* it is not this one's to release */
    return CVY_OK;
fail:
    cvy_network_close(network);
    return status;
}

cvy_status cvy_network_extend(struct cvy_network *network, int extras, bool average)
{
    const struct cvy_store *store = &network->store;

    CVY_TRY(cvy_store_extend(&network->store, extras));
    if (!average || network->average.weights)
        return CVY_OK;
    return cvy_store_open(&network->average, network->device, store->trainable_elements, store->state_elements, false);
}

cvy_status cvy_network_start_average(struct cvy_network *network)
{
    const struct cvy_store *store = &network->store, *average = &network->average;
    cvy_device *device = network->device;

    CVY_TRY(device->backend->combine(device, CVY_COMBINE_COPY, average->weights, store->weights,
                                     store->trainable_elements, NULL));
    return device->backend->combine(device, CVY_COMBINE_COPY, average->state, store->state, store->state_elements,
                                    NULL);
}

void cvy_network_close(struct cvy_network *network)
{
    cvy_workspace_close(&network->workspace);
    cvy_store_close(&network->average);
    cvy_store_close(&network->store);
    cvy_free(network->counters);
    cvy_graph_release(&network->table);
    memset(network, 0, sizeof *network);
}

/* Plans address the store by the offsets of their own graph: both tables must be the same. */
static bool same_table(const struct cvy_graph *a, const struct cvy_graph *b)
{
    if (a->param_count != b->param_count)
        return false;
    for (int32_t i = 0; i < a->param_count; i++) {
        const struct cvy_param *p = &a->params[i], *q = &b->params[i];
        if (strcmp(p->name, q->name) != 0 || p->kind != q->kind || p->offset != q->offset ||
            !cvy_shape_equal(&p->shape, &q->shape))
            return false;
    }
    return true;
}

cvy_status cvy_network_reserve(struct cvy_network *network, size_t bytes)
{
    return cvy_workspace_open(&network->workspace, network->device, bytes);
}

/* The graph of a mode, of integers where the network has them. */
static cvy_status make_graph(const struct cvy_network *network, enum cvy_model_mode mode, struct cvy_graph *graph)
{
    const struct cvy_store *store = &network->store;
    float *state = NULL;
    cvy_status status = CVY_OK;

    if (network->int8 && mode == CVY_MODEL_INFER) {
        state = cvy_calloc((size_t)store->state_elements + 1, sizeof *state);
        if (!state)
            return cvy_fail_memory((size_t)store->state_elements * sizeof *state, "the ranges of quantizers");
        status = network->device->backend->download(network->device, state, store->state,
                                                    (size_t)store->state_elements * sizeof *state);
    }
    if (status == CVY_OK)
        status = cvy_network_graph(network->architecture, &network->model, network->device, network->dtype, mode, state,
                                   graph);
    cvy_free(state);
    return status;
}

cvy_status cvy_network_split(const struct cvy_network *network, int64_t batch, struct cvy_split *split)
{
    struct cvy_graph graph;

    CVY_TRY(make_graph(network, CVY_MODEL_INFER, &graph));
    *split = cvy_split_batch(&graph, network->device, network->constant, batch);
    cvy_graph_release(&graph);
    return CVY_OK;
}

static cvy_status prepare_plan(struct cvy_network *network, enum cvy_model_mode mode, int64_t batch,
                               struct cvy_plan *plan)
{
    struct cvy_graph graph;

    CVY_TRY(make_graph(network, mode, &graph));
    if (!same_table(&graph, &network->table)) {
        cvy_graph_release(&graph);
        return cvy_fail(CVY_FAILED, "the graph of %s does not have the network's parameters",
                        network->architecture->name);
    }
    return cvy_plan_prepare(plan, network->device, &network->store, &graph, batch);
}

cvy_status cvy_network_plan(struct cvy_network *network, enum cvy_model_mode mode, int64_t batch, struct cvy_plan *plan)
{
    cvy_status status;

    CVY_TRY(prepare_plan(network, mode, batch, plan));
    status = cvy_plan_allocate(plan, cvy_plan_bytes(plan) <= network->workspace.bytes ? &network->workspace : NULL);
    if (status != CVY_OK)
        cvy_plan_close(plan);
    return status;
}

cvy_status cvy_network_plan_beside(struct cvy_network *network, int64_t batch, struct cvy_plan *beside,
                                   struct cvy_plan *plan)
{
    cvy_status status;

    CVY_TRY(prepare_plan(network, CVY_MODEL_INFER, batch, plan));
    status = cvy_plan_allocate_beside(plan, beside);
    if (status != CVY_OK)
        cvy_plan_close(plan);
    return status;
}

/* Standard normal without the tails beyond 2: TensorFlow's. */
static double truncated_normal(struct cvy_rng *rng)
{
    double value;

    do
        value = cvy_rng_normal(rng);
    while (fabs(value) >= 2);
    return value;
}

/* scale times standard normal numbers, of which each has a counter of its own: any thread may draw any of them. */
static void fill_normal(const struct cvy_rng *start, double scale, float *values, int64_t count, int threads)
{
    enum { CHUNK = 8192 };

#pragma omp parallel for num_threads(threads) schedule(static) if (count > CHUNK)
    for (int64_t first = 0; first < count; first += CHUNK) {
        const int64_t some = count - first < CHUNK ? count - first : CHUNK;
        struct cvy_rng rng = *start;
        double normals[CHUNK];
        rng.counter[0] += (uint32_t)first;
        cvy_rng_normals(&rng, normals, some);
        for (int64_t i = 0; i < some; i++)
            values[first + i] = (float)(scale * normals[i]);
    }
}

static void fill(const struct cvy_param *param, struct cvy_rng *rng, float *values, int64_t count, int threads)
{
    const double scale = param->init_scale;

    if (param->init == CVY_INIT_NORMAL) {
        fill_normal(rng, scale, values, count, threads);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        switch (param->init) {
        case CVY_INIT_ZERO:
            values[i] = 0.0f;
            break;
        case CVY_INIT_ONE:
            values[i] = 1.0f;
            break;
        case CVY_INIT_NORMAL: /* above */
            break;
        case CVY_INIT_TRUNCATED_NORMAL:
            values[i] = (float)(scale * truncated_normal(rng));
            break;
        case CVY_INIT_UNIFORM:
            values[i] = (float)cvy_rng_range(rng, -scale, scale);
            break;
        case CVY_INIT_CONSTANT:
            values[i] = (float)scale;
            break;
        }
    }
}

cvy_status cvy_network_initialize(struct cvy_network *network, uint64_t seed)
{
    const struct cvy_graph *table = &network->table;
    cvy_status status = CVY_OK;
    int64_t largest = 1;
    float *values;

    for (int32_t i = 0; i < table->param_count; i++) {
        const int64_t count = cvy_shape_elements(&table->params[i].shape);
        largest = count > largest ? count : largest;
    }
    values = cvy_calloc((size_t)largest, sizeof *values);
    if (!values)
        return cvy_fail_memory((size_t)largest * sizeof *values, "the start values");
    for (int32_t i = 0; i < table->param_count && status == CVY_OK; i++) {
        const struct cvy_param *param = &table->params[i];
        const int64_t count = cvy_shape_elements(&param->shape);
        struct cvy_rng rng = cvy_rng_new(seed, CVY_RNG_INIT, 0, (uint32_t)i);
        float *base = param->kind == CVY_PARAM_TRAINABLE ? network->store.weights : network->store.state;

        if (param->kind == CVY_PARAM_COUNTER) {
            network->counters[param->offset] = 0;
            continue;
        }
        fill(param, &rng, values, count, network->device->threads > 0 ? network->device->threads : 1);
        status = network->device->backend->upload(network->device, base + param->offset, values,
                                                  (size_t)count * sizeof *values);
    }
    cvy_free(values);
    network->store.version++;
    return status;
}

int64_t cvy_network_parameters(const struct cvy_network *network)
{
    return network->table.trainable_elements + cvy_network_frozen(network);
}

int64_t cvy_network_frozen(const struct cvy_network *network)
{
    int64_t elements = 0;

    for (int32_t i = 0; i < network->table.param_count; i++) {
        const struct cvy_param *param = &network->table.params[i];
        if (param->kind == CVY_PARAM_FROZEN)
            elements += cvy_shape_elements(&param->shape);
    }
    return elements;
}

bool cvy_is_head(const char *name)
{
    return cvy_name_under(name, "fc", 2) || cvy_name_under(name, "head.class_predictor", 20);
}

cvy_status cvy_plan_read_floats(struct cvy_plan *plan, const char *name, float *values, size_t count)
{
    const cvy_val value = cvy_graph_find_result(&plan->graph, name);
    double *wide;
    cvy_status status;

    if (value == CVY_NONE || plan->graph.values[value].dtype != CVY_F64)
        return cvy_plan_read(plan, name, values, count * sizeof *values);
    wide = cvy_calloc(count, sizeof *wide);
    if (!wide)
        return cvy_fail_memory(count * sizeof *wide, name);
    status = cvy_plan_read(plan, name, wide, count * sizeof *wide);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)wide[i];
    cvy_free(wide);
    return status;
}

enum cvy_dtype cvy_plan_input_dtype(const struct cvy_plan *plan, const char *name)
{
    for (int32_t i = 0; i < plan->graph.input_count; i++) {
        if (strcmp(plan->graph.input_list[i].name, name) == 0)
            return plan->graph.values[plan->graph.input_list[i].value].dtype;
    }
    return CVY_F32;
}
