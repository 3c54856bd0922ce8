/* Layers in 8 bits against themselves in floats: their error, and the correction of each channel's mean. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "infer/quantize/ptq.h"

/* ---- parameters on the device ---- */

static float *address(const struct cvy_network *network, const struct cvy_param *param)
{
    return (param->kind == CVY_PARAM_TRAINABLE ? network->store.weights : network->store.state) + param->offset;
}

cvy_status cvy_ptq_download(const struct cvy_network *network, int32_t param, float *values)
{
    const struct cvy_param *p = &network->table.params[param];

    return network->device->backend->download(network->device, values, address(network, p),
                                              (size_t)cvy_shape_elements(&p->shape) * sizeof *values);
}

/* And back to it; the plans are told. */
static cvy_status upload_values(struct cvy_network *network, int32_t param, const float *values)
{
    const struct cvy_param *p = &network->table.params[param];

    network->store.version++;
    return network->device->backend->upload(network->device, address(network, p), values,
                                            (size_t)cvy_shape_elements(&p->shape) * sizeof *values);
}

cvy_status cvy_ptq_apply(struct cvy_ptq *ptq)
{
    const struct cvy_ptq_parts *parts = &ptq->parts;
    static const float off[3];
    bool *on = cvy_calloc((size_t)parts->quantizer_count, sizeof *on);
    cvy_status status = CVY_OK;

    if (!on)
        return cvy_fail_memory((size_t)parts->quantizer_count, "the list of quantizers");
    for (int32_t i = 0; i < parts->part_count; i++) {
        const struct cvy_ptq_part *part = &parts->parts[i];
        for (int32_t k = 0; part->quantized && k < part->input_count; k++)
            on[part->inputs[k]] = true;
        if (part->quantized && part->weights >= 0)
            on[part->weights] = true;
    }
    for (int32_t q = 0; q < parts->quantizer_count && status == CVY_OK; q++)
        status = upload_values(&ptq->network, parts->quantizers[q].param, on[q] ? parts->quantizers[q].observed : off);
    for (int32_t i = 0; i < ptq->mean_count && status == CVY_OK; i++) {
        const struct cvy_ptq_mean *mean = &ptq->means[i];
        status = upload_values(&ptq->network, mean->param,
                               parts->parts[mean->part].quantized ? mean->corrected : mean->original);
    }
    cvy_free(on);
    return status;
}

/* ---- the comparison ---- */

/* The mean error of a channel is the median of the means of this many groups of images: of single images whose values
 * lie far beyond the range, which are cut off, the error is so large that a plain mean would be theirs alone. */
enum { GROUPS = 31 };

struct comparison {
    struct cvy_ptq *ptq;
    double **errors;           /* (nodes) of each group and channel (GROUPS, channels), summed over its values */
    int64_t (*counts)[GROUPS]; /* (nodes) of the values of a channel in each group */
    int64_t images;            /* before this batch */
    float *values[2];          /* in floats, in 8 bits */
    size_t capacity;
};

static cvy_status grow(struct comparison *comparison, size_t count)
{
    for (int i = 0; i < 2 && count > comparison->capacity; i++) {
        cvy_free(comparison->values[i]);
        comparison->values[i] = cvy_calloc(count, sizeof(float));
    }
    if (!comparison->values[0] || !comparison->values[1])
        return cvy_fail_memory(count * sizeof(float), "the values of a layer");
    comparison->capacity = count > comparison->capacity ? count : comparison->capacity;
    return CVY_OK;
}

/* One image's output of a node, (channels, area), into the sums. */
static void add_image(struct cvy_ptq_part *part, double *errors, const float *plain, const float *rounded,
                      int64_t channels, int64_t area)
{
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, squares = 0, signal = 0;

        for (int64_t i = c * area; i < (c + 1) * area; i++) {
            const double error = (double)rounded[i] - (double)plain[i];
            sum += error;
            squares += error * error;
            signal += (double)plain[i] * (double)plain[i];
        }
        errors[c] += sum;
        part->error += squares;
        part->signal += signal;
    }
}

static cvy_status compare(void *context, struct cvy_evaluator *evaluator, const struct cvy_batch *batch)
{
    struct comparison *comparison = context;
    const struct cvy_ptq_parts *parts = &comparison->ptq->parts;
    const struct cvy_graph *graph = &cvy_evaluator_plan(evaluator)->graph;
    char name[32];

    for (int32_t n = 0; n < parts->node_count; n++) {
        const struct cvy_shape *shape =
            cvy_shape_of(graph, cvy_graph_find_result(graph, cvy_ptq_node_name(n, false, name)));
        const int64_t channels = parts->nodes[n].channels;
        const int64_t area = shape->rank == 4 ? shape->dim[2] * shape->dim[3] : 1, per_image = channels * area;
        const size_t count = (size_t)(per_image * evaluator->batch);

        CVY_TRY(grow(comparison, count));
        for (int i = 0; i < 2; i++)
            CVY_TRY(cvy_plan_read_floats(cvy_evaluator_plan(evaluator), cvy_ptq_node_name(n, i == 1, name),
                                         comparison->values[i], count));
        for (int32_t i = 0; i < batch->count; i++) {
            const int64_t group = (comparison->images + i) % GROUPS;

            if (batch->status[i] != CVY_OK)
                continue;
            add_image(&parts->parts[parts->nodes[n].part], comparison->errors[n] + group * channels,
                      comparison->values[0] + i * per_image, comparison->values[1] + i * per_image, channels, area);
            comparison->counts[n][group] += area;
        }
    }
    comparison->images += batch->count;
    return CVY_OK;
}

/* The entry of a parameter in the list of corrections; several nodes may share one. */
static struct cvy_ptq_mean *mean_of(struct cvy_ptq *ptq, const struct cvy_ptq_node *node)
{
    struct cvy_ptq_mean *mean = ptq->means;

    for (int32_t i = 0; i < ptq->mean_count; i++, mean++) {
        if (mean->param == node->param)
            return mean;
    }
    *mean = (struct cvy_ptq_mean){.param = node->param, .part = node->part, .channels = node->channels};
    mean->original = cvy_arena_alloc(&ptq->parts.arena, (size_t)node->channels * sizeof *mean->original);
    mean->corrected = cvy_arena_alloc(&ptq->parts.arena, (size_t)node->channels * sizeof *mean->corrected);
    if (!mean->original || !mean->corrected)
        return NULL;
    ptq->mean_count++;
    return mean;
}

/* The error of channel c of all the nodes that share a parameter. */
static double mean_error(const struct comparison *comparison, const struct cvy_ptq_node *node, int64_t c)
{
    const struct cvy_ptq_parts *parts = &comparison->ptq->parts;
    double means[GROUPS];
    int found = 0;

    for (int group = 0; group < GROUPS; group++) {
        double sum = 0;
        int64_t count = 0;

        for (int32_t n = 0; n < parts->node_count; n++) {
            if (parts->nodes[n].param != node->param)
                continue;
            sum += comparison->errors[n][group * node->channels + c];
            count += comparison->counts[n][group];
        }
        if (count > 0)
            means[found++] = sum / (double)count;
    }
    cvy_sort_values(means, found);
    return found > 0 ? (means[(found - 1) / 2] + means[found / 2]) / 2 : 0;
}

/* The corrected values of each parameter. */
static cvy_status correct(struct comparison *comparison)
{
    struct cvy_ptq *ptq = comparison->ptq;
    const struct cvy_ptq_parts *parts = &ptq->parts;

    ptq->means = cvy_arena_alloc(&ptq->parts.arena, (size_t)parts->node_count * sizeof *ptq->means);
    if (!ptq->means)
        return cvy_fail_memory((size_t)parts->node_count * sizeof *ptq->means, "the list of corrections");
    for (int32_t n = 0; n < parts->node_count; n++) {
        const struct cvy_ptq_node *node = &parts->nodes[n];
        struct cvy_ptq_mean *mean = node->param < 0 ? NULL : mean_of(ptq, node);

        if (node->param < 0)
            continue;
        if (!mean)
            return cvy_fail_memory((size_t)node->channels * 2 * sizeof(float), "a correction");
        CVY_TRY(cvy_ptq_download(&ptq->network, node->param, mean->original));
        for (int64_t c = 0; c < node->channels; c++) {
            const double error = mean_error(comparison, node, c);
            mean->corrected[c] = (float)((double)mean->original[c] + (node->mean ? error : -error));
        }
    }
    return CVY_OK;
}

cvy_status cvy_ptq_compare(struct cvy_ptq *ptq)
{
    const size_t nodes = (size_t)ptq->parts.node_count;
    struct comparison comparison = {.ptq = ptq};
    cvy_status status = CVY_OK;

    comparison.errors = cvy_calloc(nodes, sizeof *comparison.errors);
    comparison.counts = cvy_calloc(nodes, sizeof *comparison.counts);
    for (size_t n = 0; n < nodes && comparison.errors && comparison.counts; n++) {
        comparison.errors[n] = cvy_calloc(GROUPS * (size_t)ptq->parts.nodes[n].channels, sizeof **comparison.errors);
        if (!comparison.errors[n])
            status =
                cvy_fail_memory(GROUPS * (size_t)ptq->parts.nodes[n].channels * sizeof **comparison.errors, "sums");
    }
    if (!comparison.errors || !comparison.counts)
        status = cvy_fail_memory(nodes * sizeof *comparison.errors, "sums");
    CVY_GOTO(status);
    CVY_GOTO(cvy_ptq_apply(ptq));
    CVY_GOTO(cvy_ptq_run(ptq, CVY_PTQ_COMPARE, "comparison", compare, &comparison));
    if (ptq->options->bias_correction)
        CVY_GOTO(correct(&comparison));
fail:
    for (size_t n = 0; n < nodes && comparison.errors; n++)
        cvy_free(comparison.errors[n]);
    cvy_free(comparison.errors);
    cvy_free(comparison.counts);
    cvy_free(comparison.values[0]);
    cvy_free(comparison.values[1]);
    return status;
}
