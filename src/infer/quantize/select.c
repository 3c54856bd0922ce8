/* Which layers stay in floats. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "infer/quantize/ptq.h"

enum { RANKING_IMAGES = 64 }; /* on which each layer's cost is measured */

/* The answers of a network, to compare with: its logits, of a detector its codes too. */
struct answers {
    const char *names[2];
    size_t counts[2]; /* of a batch */
    int results;
};

/* The images of the ranking in memory, and what the network in floats says about them. */
struct ranking {
    struct cvy_ptq *ptq;
    struct answers answers;
    uint8_t *images; /* (batches, batch, image bytes) */
    float *expected; /* (batches, both results of a batch) */
    float *values;   /* of a batch */
    size_t batch_bytes, batch_values;
    int32_t batches;
};

static struct answers find_answers(const struct cvy_evaluator *evaluator)
{
    const struct cvy_graph *graph = &cvy_evaluator_plan(evaluator)->graph;
    struct answers answers = {.names = {"logits", "codes"}};

    for (int i = 0; i < 2; i++) {
        const cvy_val value = cvy_graph_find_result(graph, answers.names[i]);
        if (value == CVY_NONE)
            break;
        answers.counts[i] = (size_t)evaluator->batch;
        for (int32_t d = 1; d < cvy_shape_of(graph, value)->rank; d++)
            answers.counts[i] *= (size_t)cvy_shape_of(graph, value)->dim[d];
        answers.results++;
    }
    return answers;
}

static cvy_status answer(const struct ranking *ranking, int32_t batch, float *values)
{
    struct cvy_evaluator *evaluator = &ranking->ptq->rounded;

    CVY_TRY(
        cvy_evaluator_run(evaluator, ranking->images + (size_t)batch * ranking->batch_bytes, evaluator->batch, false));
    for (int i = 0; i < ranking->answers.results; i++) {
        CVY_TRY(cvy_plan_read_floats(cvy_evaluator_plan(evaluator), ranking->answers.names[i], values,
                                     ranking->answers.counts[i]));
        values += ranking->answers.counts[i];
    }
    return CVY_OK;
}

/* The squared error of the answers relative to what they should be, summed over the kinds of answers. */
static cvy_status cost(const struct ranking *ranking, double *cost)
{
    double error[2] = {0}, signal[2] = {0};

    for (int32_t b = 0; b < ranking->batches; b++) {
        const float *expected = ranking->expected + (size_t)b * ranking->batch_values, *values = ranking->values;

        CVY_TRY(answer(ranking, b, ranking->values));
        for (int r = 0; r < ranking->answers.results; r++) {
            for (size_t i = 0; i < ranking->answers.counts[r]; i++) {
                const double difference = (double)*values++ - (double)*expected;
                error[r] += difference * difference;
                signal[r] += (double)*expected * (double)*expected;
                expected++;
            }
        }
    }
    *cost = 0;
    for (int r = 0; r < ranking->answers.results; r++)
        *cost += signal[r] > 0 ? error[r] / signal[r] : error[r];
    return CVY_OK;
}

static void quantize_all(struct cvy_ptq_parts *parts, bool quantized)
{
    for (int32_t i = 0; i < parts->part_count; i++)
        parts->parts[i].quantized = quantized && !parts->parts[i].gate;
}

static cvy_status open_ranking(struct ranking *ranking, struct cvy_ptq *ptq)
{
    const int32_t batch = (int32_t)ptq->rounded.batch, batches = (RANKING_IMAGES + batch - 1) / batch;
    struct cvy_source source = {0};
    const struct cvy_batch *next;
    cvy_status status;

    *ranking = (struct ranking){.ptq = ptq, .answers = find_answers(&ptq->rounded)};
    ranking->batch_bytes = (size_t)batch * cvy_model_image_bytes(&ptq->network.model, CVY_MODEL_INFER);
    for (int i = 0; i < ranking->answers.results; i++)
        ranking->batch_values += ranking->answers.counts[i];
    ranking->images = cvy_calloc_aligned((size_t)batches * ranking->batch_bytes);
    ranking->expected = cvy_calloc((size_t)batches * ranking->batch_values, sizeof(float));
    ranking->values = cvy_calloc(ranking->batch_values, sizeof(float));
    if (!ranking->images || !ranking->expected || !ranking->values)
        return cvy_fail_memory((size_t)batches * ranking->batch_bytes, "the images of a comparison");
    CVY_GOTO(cvy_predictor_open_source(&ptq->plain, &ptq->images, batch, false, &source));
    CVY_GOTO(cvy_source_start(&source, 0, 0));
    while (ranking->batches < batches) {
        CVY_GOTO(cvy_source_next(&source, &next));
        if (!next)
            break;
        memcpy(ranking->images + (size_t)ranking->batches++ * ranking->batch_bytes, next->images, ranking->batch_bytes);
    }
    quantize_all(&ptq->parts, false);
    CVY_GOTO(cvy_ptq_apply(ptq));
    for (int32_t b = 0; b < ranking->batches; b++)
        CVY_GOTO(answer(ranking, b, ranking->expected + (size_t)b * ranking->batch_values));
fail:
    cvy_source_close(&source);
    return status;
}

static void close_ranking(struct ranking *ranking)
{
    cvy_free_aligned(ranking->images);
    cvy_free(ranking->expected);
    cvy_free(ranking->values);
}

/* What each part costs alone, when everything else is computed in floats. */
static cvy_status measure_costs(struct cvy_ptq *ptq)
{
    struct ranking ranking;
    cvy_status status = open_ranking(&ranking, ptq);

    for (int32_t i = 0; i < ptq->parts.part_count && status == CVY_OK; i++) {
        struct cvy_ptq_part *part = &ptq->parts.parts[i];

        if (part->gate)
            continue;
        part->quantized = true;
        CVY_GOTO(cvy_ptq_apply(ptq));
        part->quantized = false;
        CVY_GOTO(cost(&ranking, &part->cost));
        CVY_GOTO(cvy_ptq_progress(ptq, "ranking of layers", i + 1, ptq->parts.part_count));
    }
fail:
    close_ranking(&ranking);
    return status;
}

struct ranked {
    double cost;
    int32_t part;
};

/* By falling cost; equal ones in the network's order. */
static int costliest_first(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    return x->cost != y->cost ? (x->cost < y->cost) - (x->cost > y->cost) : x->part - y->part;
}

/* The accuracy with the `floats` costliest parts in floats. */
static cvy_status try_floats(struct cvy_ptq *ptq, const struct ranked *order, int32_t floats, double *accuracy)
{
    struct cvy_ptq_score score;

    quantize_all(&ptq->parts, true);
    for (int32_t i = 0; i < floats; i++)
        ptq->parts.parts[order[i].part].quantized = false;
    CVY_TRY(cvy_ptq_apply(ptq));
    CVY_TRY(cvy_ptq_evaluate(ptq, &ptq->rounded, "evaluation in 8 bits", &score));
    cvy_free(score.answers);
    *accuracy = score.accuracy;
    return CVY_OK;
}

bool cvy_ptq_is_enough(double floats, double accuracy, double max_drop)
{
    return floats - accuracy <= max_drop + 1e-9;
}

/* How many of them must stay in floats: doubled until it is enough, then bisected. More layers in floats are taken to
 * lose no more. */
static cvy_status bisect(struct cvy_ptq *ptq, const struct ranked *order)
{
    const double floats = ptq->floats.accuracy, max_drop = ptq->options->max_drop;
    int32_t few = 0, enough = 1;
    double accuracy;

    for (;;) {
        enough = enough < ptq->parts.part_count ? enough : ptq->parts.part_count;
        CVY_TRY(try_floats(ptq, order, enough, &accuracy));
        if (cvy_ptq_is_enough(floats, accuracy, max_drop) || enough == ptq->parts.part_count)
            break;
        few = enough;
        enough *= 2;
    }
    while (enough - few > 1) {
        const int32_t middle = few + (enough - few) / 2;

        CVY_TRY(try_floats(ptq, order, middle, &accuracy));
        if (cvy_ptq_is_enough(floats, accuracy, max_drop))
            enough = middle;
        else
            few = middle;
    }
    return try_floats(ptq, order, enough, &accuracy);
}

cvy_status cvy_ptq_select(struct cvy_ptq *ptq, double *everything)
{
    struct ranked *order;
    cvy_status status;

    if (ptq->floats.answers && ptq->options->max_drop * (double)ptq->floats.images < 100)
        cvy_log(CVY_LOG_INFO,
                "each of the %lld validation images counts for %.2f points: with --max-drop %g a single one decides",
                (long long)ptq->floats.images, 100 / (double)ptq->floats.images, ptq->options->max_drop);
    CVY_TRY(try_floats(ptq, NULL, 0, everything));
    if (cvy_ptq_is_enough(ptq->floats.accuracy, *everything, ptq->options->max_drop))
        return CVY_OK;
    cvy_log(CVY_LOG_INFO, "8 bits everywhere lose %.2f points: looking for the layers that cost them",
            ptq->floats.accuracy - *everything);
    CVY_TRY(measure_costs(ptq));
    order = cvy_calloc((size_t)ptq->parts.part_count, sizeof *order);
    if (!order)
        return cvy_fail_memory((size_t)ptq->parts.part_count * sizeof *order, "the order of layers");
    for (int32_t i = 0; i < ptq->parts.part_count; i++)
        order[i] = (struct ranked){ptq->parts.parts[i].cost, i};
    qsort(order, (size_t)ptq->parts.part_count, sizeof *order, costliest_first);
    status = bisect(ptq, order);
    cvy_free(order);
    return status;
}
