/* The ranges of quantizers: histograms of the values that each of them will round, over the images of the calibration.
 */
#include <math.h>

#include "base/error.h"
#include "base/log.h"
#include "graph/quantizer.h"
#include "infer/quantize/ptq.h"

/* The product of two such scales is not zero yet. Files may have less: CVY_SMALLEST_RANGE. */
#define SMALLEST_CHOICE 1e-20F

struct observation {
    struct cvy_ptq *ptq;
    struct cvy_histogram *histograms; /* (quantizers) those of weights are not used */
    float *values;                    /* of the largest tensor */
    size_t capacity;
    int64_t images;
};

/* The levels of a quantizer of values, of which the highest is 1. */
static struct cvy_levels levels_of(const struct cvy_ptq_quantizer *quantizer)
{
    return cvy_quantizer_levels(&quantizer->attr, (float[]){-128.0F / 127, 1, 1});
}

/* What rounding does to a value that no layer reads. */
static void measure_value(const struct observation *observation, struct cvy_ptq_part *part)
{
    const struct cvy_histogram *histogram = &observation->histograms[part->inputs[0]];
    const struct cvy_ptq_quantizer *quantizer = &observation->ptq->parts.quantizers[part->inputs[0]];
    const double width = cvy_histogram_bin_width(histogram);

    for (int i = 0; i < CVY_HISTOGRAM_BINS; i++)
        part->signal += (double)histogram->bins[i] * ((i + 0.5) * width) * ((i + 0.5) * width);
    if (part->signal > 0)
        part->error = cvy_range_error(histogram, (int)levels_of(quantizer).high, (double)quantizer->observed[1]);
}

/* Reads a result of the plan: values (batch, per_image). */
static cvy_status read_values(struct observation *observation, struct cvy_evaluator *evaluator, const char *name,
                              size_t *per_image)
{
    const struct cvy_graph *graph = &cvy_evaluator_plan(evaluator)->graph;
    const struct cvy_shape *shape = cvy_shape_of(graph, cvy_graph_find_result(graph, name));
    size_t count;

    *per_image = 1;
    for (int32_t i = 1; i < shape->rank; i++)
        *per_image *= (size_t)shape->dim[i];
    count = *per_image * (size_t)evaluator->batch;
    if (count > observation->capacity) {
        cvy_free(observation->values);
        observation->capacity = 0;
        observation->values = cvy_calloc(count, sizeof *observation->values);
        if (!observation->values)
            return cvy_fail_memory(count * sizeof *observation->values, "the values of a layer");
        observation->capacity = count;
    }
    return cvy_plan_read_floats(cvy_evaluator_plan(evaluator), name, observation->values, count);
}

static cvy_status observe(void *context, struct cvy_evaluator *evaluator, const struct cvy_batch *batch)
{
    struct observation *observation = context;
    const struct cvy_ptq_parts *parts = &observation->ptq->parts;
    char name[32];

    for (int32_t i = 0; i < batch->count; i++)
        observation->images += batch->status[i] == CVY_OK;
    for (int32_t q = 0; q < parts->quantizer_count; q++) {
        size_t per_image;

        if (parts->quantizers[q].attr.weights)
            continue;
        CVY_TRY(read_values(observation, evaluator, cvy_ptq_value_name(parts->quantizers[q].param, name), &per_image));
        for (int32_t i = 0; i < batch->count; i++) {
            if (batch->status[i] == CVY_OK)
                cvy_histogram_add(&observation->histograms[q], observation->values + (size_t)i * per_image, per_image);
        }
    }
    return CVY_OK;
}

/* The state of a quantizer of values. Where all of them were 0 any range will do. */
static cvy_status choose(const struct observation *observation, int32_t q)
{
    const struct cvy_histogram *histogram = &observation->histograms[q];
    struct cvy_ptq_quantizer *quantizer = &observation->ptq->parts.quantizers[q];
    const struct cvy_levels levels = levels_of(quantizer);
    float range;

    if (histogram->infinite > 0)
        cvy_log(CVY_LOG_WARNING, "%lld values before quantizer %s are not finite and were left out",
                (long long)histogram->infinite, observation->ptq->network.table.params[quantizer->param].name);
    CVY_TRY(cvy_range_choose(histogram, observation->ptq->calibration, (int)levels.high, &range));
    range = range > 0 ? fmaxf(range, SMALLEST_CHOICE) : 1;
    quantizer->observed[0] = levels.low < 0 ? (float)((double)range * -128 / 127) : 0;
    quantizer->observed[1] = range;
    quantizer->observed[2] = (float)observation->images;
    return CVY_OK;
}

/* The state of a quantizer of weights, which are their own range. Where all of them are 0 any range will do. */
static cvy_status choose_weights(struct cvy_ptq *ptq, const struct cvy_ptq_part *part, int64_t images)
{
    struct cvy_ptq_quantizer *quantizer = &ptq->parts.quantizers[part->weights];
    const struct cvy_param *param = &ptq->network.table.params[part->param];
    const size_t count = (size_t)cvy_shape_elements(&param->shape);
    float *values = cvy_calloc(count, sizeof *values), range = 0;
    cvy_status status;

    if (!values)
        return cvy_fail_memory(count * sizeof *values, param->name);
    status = cvy_ptq_download(&ptq->network, part->param, values);
    for (size_t i = 0; i < count; i++)
        range = fmaxf(range, fabsf(values[i]));
    cvy_free(values);
    if (status == CVY_OK && !(range <= 3.0e38F))
        status = cvy_fail(CVY_BAD_DATA, "%s: %s has values that are not finite", cvy_quote(ptq->name), param->name);
    range = range > 0 ? fmaxf(range, SMALLEST_CHOICE) : 1;
    quantizer->observed[0] = quantizer->attr.channels ? 0 : -range;
    quantizer->observed[1] = range;
    quantizer->observed[2] = (float)images;
    return status;
}

cvy_status cvy_ptq_calibrate(struct cvy_ptq *ptq)
{
    const struct cvy_ptq_parts *parts = &ptq->parts;
    struct observation observation = {.ptq = ptq};
    cvy_status status;

    observation.histograms = cvy_calloc((size_t)parts->quantizer_count, sizeof *observation.histograms);
    if (!observation.histograms)
        return cvy_fail_memory((size_t)parts->quantizer_count * sizeof *observation.histograms, "the histograms");
    CVY_GOTO(cvy_ptq_run(ptq, CVY_PTQ_FLOATS, "calibration", observe, &observation));
    if (observation.images == 0) {
        status = cvy_fail(CVY_BAD_DATA, "no image for the calibration can be read");
        goto fail;
    }
    ptq->calibration_images = observation.images;
    for (int32_t q = 0; q < parts->quantizer_count; q++) {
        if (!parts->quantizers[q].attr.weights)
            CVY_GOTO(choose(&observation, q));
    }
    for (int32_t i = 0; i < parts->part_count; i++) {
        if (parts->parts[i].weights < 0)
            measure_value(&observation, &parts->parts[i]);
        else
            CVY_GOTO(choose_weights(ptq, &parts->parts[i], observation.images));
    }
fail:
    cvy_free(observation.histograms);
    cvy_free(observation.values);
    return status;
}
