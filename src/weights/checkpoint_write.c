/* Writing checkpoints; checkpoint_read.c reads them. */
#include <stdio.h>

#include "backend/autotune.h"
#include "base/error.h"
#include "formats/weights/safetensors.h"
#include "options/options.h"
#include "weights/checkpoint.h"

/* Doubles as hexadecimal text: every bit survives, infinities and NaN too. */
static void put_exact(struct cvy_json *json, const char *key, double value)
{
    char text[40];

    snprintf(text, sizeof text, "%a", value);
    cvy_json_put_string(json, key, text);
}

static void write_class_weights(struct cvy_json *json, const float *weights, int32_t count)
{
    cvy_json_key(json, "class_weights");
    cvy_json_begin_array(json);
    for (int32_t k = 0; k < count; k++)
        cvy_json_float(json, weights[k]);
    cvy_json_end_array(json);
}

static void write_recent(struct cvy_json *json, const struct cvy_train_state *state)
{
    char text[40];

    cvy_json_put_int(json, "rewinds", state->rewinds);
    cvy_json_key(json, "recent_losses");
    cvy_json_begin_array(json);
    for (int64_t i = 0; i < state->recent_count; i++) {
        snprintf(text, sizeof text, "%a", state->recent_losses[i]);
        cvy_json_string(json, text);
    }
    cvy_json_end_array(json);
    if (state->start_loss > 0)
        put_exact(json, "start_loss", state->start_loss);
    if (state->diverged_step > 0) {
        cvy_json_put_int(json, "diverged_step", state->diverged_step);
        put_exact(json, "diverged_loss", state->diverged_loss);
    }
}

/* What training needs beyond the first numbers. */
static void write_training(struct cvy_json *json, const struct cvy_checkpoint *c, const struct cvy_train_state *state)
{
    put_exact(json, "loss_sum", state->loss_sum);
    cvy_json_put_int(json, "loss_count", state->loss_count);
    for (int i = 0; i < CVY_LOSS_PARTS; i++) {
        if (state->part_sums[i] != 0)
            put_exact(json, cvy_loss_part_names[i], state->part_sums[i]);
    }
    put_exact(json, "window_loss_sum", state->window_loss_sum);
    cvy_json_put_int(json, "window_count", state->window_count);
    cvy_json_put_int(json, "nonfinite", state->nonfinite);
    cvy_json_put_int(json, "train_images", state->train_images);
    cvy_json_put_int(json, "step_images", state->step_images);
    if (state->skipped != 0)
        cvy_json_put_int(json, "skipped_images", state->skipped);
    cvy_json_put_int(json, "stale_epochs", state->stale_epochs);
    put_exact(json, "patience_score", state->patience_score);
    if (state->scaler.scale > 0) {
        put_exact(json, "loss_scale", (double)state->scaler.scale);
        cvy_json_put_int(json, "loss_scale_good", state->scaler.good);
        cvy_json_put_int(json, "skipped_steps", state->scaler.skipped);
    }
    if (c->options->rewinds > 0 || state->rewinds > 0)
        write_recent(json, state);
}

static void write_position(struct cvy_json *json, const struct cvy_train_state *state)
{
    cvy_json_put_int(json, "epoch", state->epoch);
    cvy_json_put_int(json, "position", state->position);
    cvy_json_put_int(json, "step", state->step);
    cvy_json_put_int(json, "best_epoch", state->best_epoch);
    cvy_json_put_number(json, "best_score", state->best_score);
}

static void write_state(struct cvy_json *json, const struct cvy_checkpoint *c)
{
    cvy_json_begin_object(json);
    write_position(json, c->state);
    if (c->part == CVY_PART_TRAINING) {
        write_training(json, c, c->state);
        if (c->class_weights)
            write_class_weights(json, c->class_weights, c->network->model.num_classes);
        if (c->snapshot) {
            cvy_json_key(json, "last_good");
            cvy_json_begin_object(json);
            write_position(json, c->last_good);
            write_training(json, c, c->last_good);
            cvy_json_end_object(json);
        }
    }
    cvy_json_end_object(json);
}

static void write_three(struct cvy_json *json, const char *key, const float values[3])
{
    cvy_json_key(json, key);
    cvy_json_begin_array(json);
    for (int i = 0; i < 3; i++)
        cvy_json_float(json, values[i]);
    cvy_json_end_array(json);
}

void cvy_preprocessing_write(struct cvy_json *json, const struct cvy_preprocessing *preprocessing)
{
    cvy_json_begin_object(json);
    cvy_json_put_int(json, "image_size", preprocessing->image_size);
    cvy_json_put_int(json, "resize", preprocessing->resize);
    write_three(json, "mean", preprocessing->mean);
    write_three(json, "std", preprocessing->std);
    cvy_json_put_string(json, "interpolation", preprocessing->filter == CVY_FILTER_BICUBIC ? "bicubic" : "bilinear");
    cvy_json_put_bool(json, "exif_orientation", preprocessing->exif_orientation);
    if (preprocessing->tensorflow || preprocessing->dali) { /* pytorch is not said: files had no other before */
        cvy_json_put_string(json, "data_backend",
                            preprocessing->triangular ? "tensorflow-dali"
                            : preprocessing->dali     ? "dali"
                                                      : "tensorflow");
    }
    if (preprocessing->rounded_scale)
        cvy_json_put_bool(json, "rounded_scale", true);
    cvy_json_end_object(json);
}

static void write_classes(struct cvy_json *json, const char *const *classes, int32_t count)
{
    cvy_json_begin_array(json);
    for (int32_t i = 0; i < count; i++)
        cvy_json_string(json, classes[i]);
    cvy_json_end_array(json);
}

static void write_category_ids(struct cvy_json *json, const int64_t *ids, int32_t count)
{
    cvy_json_begin_array(json);
    for (int32_t i = 0; i < count; i++)
        cvy_json_int(json, ids[i]);
    cvy_json_end_array(json);
}

static void write_plan(struct cvy_json *json, const struct cvy_checkpoint *c)
{
    const struct cvy_network *network = c->network;
    const char *key, *row;

    cvy_json_begin_object(json);
    cvy_json_put_string(json, "device", network->device->backend->name);
    cvy_json_put_string(json, "precision", cvy_precision_name(network->dtype, network->device));
    cvy_json_put_int(json, "threads", network->device->threads);
    if (c->rank_threads) {
        cvy_json_key(json, "rank_threads");
        cvy_json_begin_array(json);
        for (int i = 0; i < c->ranks; i++)
            cvy_json_int(json, c->rank_threads[i]);
        cvy_json_end_array(json);
    }
    cvy_json_put_string(json, "description", network->device->description);
    cvy_json_put_string(json, "settings", network->device->settings);
    cvy_json_key(json, "kernels");
    cvy_json_begin_object(json);
    for (int32_t i = 0; cvy_autotuner_at(network->device->autotuner, i, &key, &row); i++)
        cvy_json_put_string(json, key, row);
    cvy_json_end_object(json);
    cvy_json_end_object(json);
}

void cvy_model_write(struct cvy_json *json, const struct cvy_model_options *model)
{
    cvy_json_begin_object(json);
    cvy_json_put_string(json, "padding", cvy_padding_name(model->resnet.same_padding));
    if (model->detector.torchvision_backbone)
        cvy_json_put_string(json, "backbone_strides", cvy_strides_name(model->detector.torchvision_backbone));
    if (model->quantize != CVY_QUANTIZE_NONE) {
        cvy_json_put_string(json, "quantize", cvy_quantize_name(model->quantize));
        cvy_json_put_int(json, "quant_delay", model->quant_delay);
    }
    cvy_json_end_object(json);
}

enum {
    META_FORMAT,
    META_ARCH,
    META_CLASSES,
    META_PREPROCESSING,
    META_STATE,
    META_OPTIONS,
    META_PLAN,
    META_MODEL,
    META_CATEGORY_IDS, /* the last one: of detectors alone */
    META_COUNT
};

static void write_metadata(const struct cvy_checkpoint *c, struct cvy_text texts[META_COUNT])
{
    struct cvy_json json[META_COUNT] = {{0}};

    for (int i = 0; i < META_COUNT; i++)
        json[i].text = &texts[i];
    cvy_json_int(&json[META_FORMAT], CVY_CHECKPOINT_FORMAT);
    cvy_json_string(&json[META_ARCH], c->network->architecture->name);
    write_classes(&json[META_CLASSES], c->classes, c->class_count);
    cvy_preprocessing_write(&json[META_PREPROCESSING], c->preprocessing);
    write_state(&json[META_STATE], c);
    cvy_options_write_json(c->options, CVY_OPTION_RESULT, &json[META_OPTIONS]);
    write_plan(&json[META_PLAN], c);
    cvy_model_write(&json[META_MODEL], &c->network->model);
    if (c->category_ids)
        write_category_ids(&json[META_CATEGORY_IDS], c->category_ids, c->class_count);
}

cvy_status cvy_checkpoint_write(const struct cvy_checkpoint *checkpoint, const char *path)
{
    static const char *const keys[META_COUNT] = {"convoy.format",        "convoy.arch",  "convoy.classes",
                                                 "convoy.preprocessing", "convoy.state", "convoy.options",
                                                 "convoy.plan",          "convoy.model", "convoy.category_ids"};
    const int count = checkpoint->category_ids ? META_COUNT : META_CATEGORY_IDS;
    struct cvy_weights_view view = {0};
    struct cvy_text texts[META_COUNT] = {{0}};
    struct cvy_tensor_meta metadata[META_COUNT];
    cvy_status status;

    write_metadata(checkpoint, texts);
    for (int i = 0; i < count; i++) {
        if (texts[i].failed) {
            status = cvy_fail_memory(texts[i].capacity, "the metadata of a checkpoint");
            goto fail;
        }
        metadata[i] = (struct cvy_tensor_meta){keys[i], texts[i].text};
    }
    CVY_GOTO(cvy_weights_collect(checkpoint->network, checkpoint->part, &view));
    if (checkpoint->snapshot && checkpoint->part == CVY_PART_TRAINING)
        CVY_GOTO(cvy_weights_collect_snapshot(checkpoint->network, checkpoint->snapshot, &view));
    status = cvy_st_write(path, view.tensors, view.count, metadata, (size_t)count);
fail:
    cvy_weights_view_release(&view);
    for (int i = 0; i < META_COUNT; i++)
        cvy_text_release(&texts[i]);
    return status;
}
