#include "eval/detection_loss.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "ops/anchors.h"
#include "ops/ops.h"
#include "trainer/trainer.h"

static const char *const inputs[] = {"codes", "logits", "boxes", "labels"};
enum { INPUTS = sizeof inputs / sizeof inputs[0] };

/* The losses of one image, as models/model_graph.c has them in training. */
static cvy_status build(struct cvy_graph *graph, const struct cvy_anchors *anchors, int64_t width)
{
    const int64_t count = cvy_anchors_count(anchors);
    cvy_status status;

    cvy_graph_init(graph, false);
    const cvy_val codes = cvy_graph_input(graph, "codes", CVY_F32, cvy_shape3(CVY_BATCH, count, 4), false);
    const cvy_val logits = cvy_graph_input(graph, "logits", CVY_F32, cvy_shape3(CVY_BATCH, count, width), false);
    const cvy_val boxes = cvy_graph_input(graph, "boxes", CVY_F32, cvy_shape3(CVY_BATCH, CVY_MAX_BOXES, 4), false);
    const cvy_val labels = cvy_graph_input(graph, "labels", CVY_I32, cvy_shape2(CVY_BATCH, CVY_MAX_BOXES), false);
    const struct cvy_match_values match = cvy_detection_match(graph, boxes, labels, anchors);
    const cvy_val classes = cvy_focal_loss(graph, logits, match.classes, match.positives);
    const cvy_val places = cvy_smooth_l1_loss(graph, codes, match.targets, match.classes, match.positives);

    cvy_graph_result(graph, CVY_RESULT_NAMED, "localization_loss", -1, places);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "classification_loss", -1, classes);
    status = cvy_graph_status(graph);
    if (status != CVY_OK)
        cvy_graph_release(graph);
    return status;
}

/* Bytes of an input of one image. */
static size_t input_bytes(const struct cvy_detection_loss *loss, int input)
{
    const size_t rows[INPUTS] = {loss->anchors, loss->anchors, CVY_MAX_BOXES, CVY_MAX_BOXES};
    const size_t width[INPUTS] = {4, loss->width, 4, 1};

    return rows[input] * width[input] * 4;
}

cvy_status cvy_detection_loss_open(struct cvy_detection_loss *loss, struct cvy_network *network,
                                   const struct cvy_plan *predictions)
{
    const cvy_val logits = cvy_graph_find_result(&predictions->graph, "logits");
    const struct cvy_anchors anchors = cvy_anchors_ssd(network->model.image_size, network->model.image_size);
    cvy_device *device = network->device;
    struct cvy_graph graph;
    cvy_status status;

    *loss = (struct cvy_detection_loss){.network = network, .none = {.device = device}};
    CVY_REQUIRE(logits != CVY_NONE);
    loss->batch = (size_t)predictions->batch;
    loss->anchors = (size_t)cvy_anchors_count(&anchors);
    loss->width = (size_t)cvy_shape_of(&predictions->graph, logits)->dim[2];
    CVY_GOTO(build(&graph, &anchors, (int64_t)loss->width));
    CVY_GOTO(cvy_plan_open(&loss->plan, device, &loss->none, &graph, 1));
    for (int i = 0; i < INPUTS; i++) {
        CVY_GOTO(device->backend->allocate(device, input_bytes(loss, i), &loss->memory[i]));
        CVY_GOTO(cvy_plan_bind(&loss->plan, inputs[i], loss->memory[i]));
    }
    loss->codes = cvy_calloc(loss->batch, input_bytes(loss, 0));
    loss->logits = cvy_calloc(loss->batch, input_bytes(loss, 1));
    if (loss->codes && loss->logits)
        return CVY_OK;
    status = cvy_fail_memory(loss->batch * input_bytes(loss, 1), "the predictions of a batch");
fail:
    cvy_detection_loss_close(loss);
    return status;
}

size_t cvy_detection_loss_bytes(const struct cvy_model_options *model, int64_t batch)
{
    const struct cvy_anchors anchors = cvy_anchors_ssd(model->image_size, model->image_size);
    const size_t one = (size_t)cvy_anchors_count(&anchors) * (4 + 1 + (size_t)model->num_classes) * sizeof(float);

    return one * ((size_t)batch + 1);
}

void cvy_detection_loss_close(struct cvy_detection_loss *loss)
{
    cvy_plan_close(&loss->plan);
    for (int i = 0; loss->network && i < INPUTS; i++)
        loss->network->device->backend->release(loss->network->device, loss->memory[i]);
    cvy_free(loss->codes);
    cvy_free(loss->logits);
    memset(loss, 0, sizeof *loss);
}

/* Objects are counted on this rank: the others may have other images by now, or none. */
static cvy_status run_alone(struct cvy_detection_loss *loss)
{
    cvy_device *device = loss->network->device;
    cvy_status (*const sum_ranks)(void *context, double *values, int64_t count) = device->sum_ranks;
    cvy_status status;

    device->sum_ranks = NULL;
    status = cvy_plan_run(&loss->plan, NULL);
    device->sum_ranks = sum_ranks;
    return status;
}

static cvy_status add_image(struct cvy_detection_loss *loss, const struct cvy_batch *batch, size_t image,
                            double sums[CVY_EVAL_LOSSES])
{
    const void *from[INPUTS] = {
        loss->codes + image * loss->anchors * 4,
        loss->logits + image * loss->anchors * loss->width,
        batch->boxes + image * CVY_MAX_BOXES * 4,
        batch->box_labels + image * CVY_MAX_BOXES,
    };
    cvy_device *device = loss->network->device;
    float values[CVY_EVAL_LOSSES];

    for (int i = 0; i < INPUTS; i++)
        CVY_TRY(device->backend->upload(device, loss->memory[i], from[i], input_bytes(loss, i)));
    CVY_TRY(run_alone(loss));
    CVY_TRY(cvy_plan_read_floats(&loss->plan, "localization_loss", &values[0], 1));
    CVY_TRY(cvy_plan_read_floats(&loss->plan, "classification_loss", &values[1], 1));
    for (int i = 0; i < CVY_EVAL_LOSSES; i++)
        sums[i] += (double)values[i];
    return CVY_OK;
}

cvy_status cvy_detection_loss_add(struct cvy_detection_loss *loss, struct cvy_plan *predictions,
                                  const struct cvy_batch *batch, double sums[CVY_EVAL_LOSSES])
{
    if (!batch->boxes)
        return CVY_OK;
    if ((size_t)batch->count > loss->batch || (size_t)predictions->batch != loss->batch)
        return cvy_fail(CVY_USAGE, "losses of %zu images cannot be those of a batch of %d, computed %lld at a time",
                        loss->batch, (int)batch->count, (long long)predictions->batch);
    CVY_TRY(cvy_plan_read_floats(predictions, "codes", loss->codes, loss->batch * loss->anchors * 4));
    CVY_TRY(cvy_plan_read_floats(predictions, "logits", loss->logits, loss->batch * loss->anchors * loss->width));
    for (int32_t i = 0; i < batch->count; i++) {
        if (batch->status[i] == CVY_OK)
            CVY_TRY(add_image(loss, batch, (size_t)i, sums));
    }
    return CVY_OK;
}

/* Half the factor for each squared weight of a kernel, learnt or frozen, as the training's graph has it. */
static cvy_status penalty(const struct cvy_network *network, const struct cvy_store *store, double *value)
{
    double sum = 0;

    for (int32_t i = 0; i < network->table.param_count; i++) {
        const struct cvy_param *param = &network->table.params[i];
        const float *values = param->kind == CVY_PARAM_FROZEN ? store->state : store->weights;

        if (param->shape.rank == 4 && (param->kind == CVY_PARAM_FROZEN || param->kind == CVY_PARAM_TRAINABLE))
            CVY_TRY(cvy_store_sum_squares(store, values + param->offset, cvy_shape_elements(&param->shape), &sum));
    }
    *value = (double)network->model.detector.regularization * sum / 2;
    return CVY_OK;
}

cvy_status cvy_detection_loss_measures(const struct cvy_network *network, const struct cvy_store *store,
                                       const double losses[CVY_EVAL_LOSSES], struct cvy_measures *measures)
{
    static const char *const names[] = {"localization_loss", "classification_loss", "total_loss"};
    double values[3] = {0};

    if (losses) {
        CVY_TRY(penalty(network, store, &values[2]));
        for (int i = 0; i < CVY_EVAL_LOSSES; i++) {
            values[i] = losses[i];
            values[2] += losses[i];
        }
    }
    for (int i = 0; i < 3 && measures->count < CVY_MEASURES_MAX; i++) {
        struct cvy_measure *measure = &measures->list[measures->count++];
        snprintf(measure->name, sizeof measure->name, "%s", names[i]);
        measure->value = values[i];
    }
    return CVY_OK;
}
