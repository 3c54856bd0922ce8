/* Reading and writing checkpoints. */
#include "weights/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/autotune.h"
#include "base/error.h"
#include "formats/weights/safetensors.h"
#include "options/options.h"

/* ---- writing ---- */

/* Doubles as hexadecimal text: every bit survives, infinities and NaN too. */
static void put_exact(struct cvy_json *json, const char *key, double value)
{
    char text[40];

    snprintf(text, sizeof text, "%a", value);
    cvy_json_key(json, key);
    cvy_json_string(json, text);
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
    cvy_json_key(json, "best_score");
    cvy_json_number(json, state->best_score);
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
    cvy_json_key(json, "interpolation");
    cvy_json_string(json, preprocessing->filter == CVY_FILTER_BICUBIC ? "bicubic" : "bilinear");
    cvy_json_key(json, "exif_orientation");
    cvy_json_bool(json, preprocessing->exif_orientation);
    if (preprocessing->tensorflow || preprocessing->dali) { /* pytorch is not said: files had no other before */
        cvy_json_key(json, "data_backend");
        cvy_json_string(json, preprocessing->triangular ? "tensorflow-dali"
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
    cvy_json_key(json, "device");
    cvy_json_string(json, network->device->backend->name);
    cvy_json_key(json, "precision");
    cvy_json_string(json, cvy_precision_name(network->dtype, network->device));
    cvy_json_put_int(json, "threads", network->device->threads);
    if (c->rank_threads) {
        cvy_json_key(json, "rank_threads");
        cvy_json_begin_array(json);
        for (int i = 0; i < c->ranks; i++)
            cvy_json_int(json, c->rank_threads[i]);
        cvy_json_end_array(json);
    }
    cvy_json_key(json, "description");
    cvy_json_string(json, network->device->description);
    cvy_json_key(json, "settings");
    cvy_json_string(json, network->device->settings);
    cvy_json_key(json, "kernels");
    cvy_json_begin_object(json);
    for (int32_t i = 0; cvy_autotuner_at(network->device->autotuner, i, &key, &row); i++) {
        cvy_json_key(json, key);
        cvy_json_string(json, row);
    }
    cvy_json_end_object(json);
    cvy_json_end_object(json);
}

void cvy_model_write(struct cvy_json *json, const struct cvy_model_options *model)
{
    cvy_json_begin_object(json);
    cvy_json_key(json, "padding");
    cvy_json_string(json, cvy_padding_name(model->resnet.same_padding));
    if (model->detector.torchvision_backbone) {
        cvy_json_key(json, "backbone_strides");
        cvy_json_string(json, cvy_strides_name(model->detector.torchvision_backbone));
    }
    if (model->quantize != CVY_QUANTIZE_NONE) {
        cvy_json_key(json, "quantize");
        cvy_json_string(json, cvy_quantize_name(model->quantize));
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

/* ---- reading ---- */

static cvy_status parse(const struct cvy_tensor_file *file, const char *what, const char *key, enum cvy_json_type type,
                        struct cvy_arena *arena, const struct cvy_json_value **value)
{
    /* A class name has 64 bytes there: this is room for 65,000, and for more in larger files. */
    const size_t memory = ((size_t)4 << 20) + file->mapping.size / 8;
    const char *text = cvy_tensor_metadata(file, key);
    struct cvy_json_value *root = NULL;
    cvy_status status;

    *value = NULL;
    if (!text)
        return CVY_OK;
    status = cvy_json_parse_within(key, text, strlen(text), memory, arena, &root);
    if (status != CVY_OK)
        return cvy_fail_context(status, "%s", cvy_quote(what));
    if (root->type != type)
        return cvy_fail(CVY_BAD_DATA, "%s: metadata %s is damaged", cvy_quote(what), key);
    *value = root;
    return CVY_OK;
}

/* Whether the entry is a text that is one number. */
static bool read_exact(const struct cvy_json_value *object, const char *key, double *value)
{
    const char *text = cvy_json_get_string(object, key, "");
    char *end = NULL;

    *value = cvy_double_parse(text, &end);
    return text[0] != '\0' && *end == '\0';
}

/* For training with a scaled loss. */
static bool read_scaler(const struct cvy_json_value *object, struct cvy_scaler *scaler)
{
    const int64_t good = cvy_json_get_int(object, "loss_scale_good", -1);
    const int64_t skipped = cvy_json_get_int(object, "skipped_steps", -1);
    double scale;

    if (!cvy_json_get(object, "loss_scale"))
        return true;
    if (!read_exact(object, "loss_scale", &scale) || !(scale > 0 && scale <= 0x1p127) || good < 0 || good > INT32_MAX ||
        skipped < 0 || skipped > INT32_MAX)
        return false;
    *scaler = (struct cvy_scaler){.scale = (float)scale, .good = (int32_t)good, .skipped = (int32_t)skipped};
    return true;
}

/* What a training has that goes back when it diverges; other files have none of it. */
static bool read_recent(const struct cvy_json_value *object, struct cvy_train_state *state)
{
    const struct cvy_json_value *array = cvy_json_get(object, "recent_losses");
    char *end;

    state->rewinds = cvy_json_get_int(object, "rewinds", 0);
    state->diverged_step = cvy_json_get_int(object, "diverged_step", 0);
    if (state->rewinds < 0 || state->rewinds > 1000000 || state->diverged_step < 0 ||
        (state->diverged_step > 0 && !read_exact(object, "diverged_loss", &state->diverged_loss)))
        return false;
    if (!array)
        return true;
    if (array->type != CVY_JSON_ARRAY || array->count > CVY_RECENT_STEPS)
        return false;
    for (const struct cvy_json_value *entry = array->first; entry; entry = entry->next) {
        if (entry->type != CVY_JSON_STRING || !entry->text[0])
            return false;
        state->recent_losses[state->recent_count++] = cvy_double_parse(entry->text, &end);
        if (*end)
            return false;
    }
    return true;
}

static cvy_status read_state(const struct cvy_json_value *object, const char *what, struct cvy_train_state *state)
{
    /* As older files have them, which knew one score. */
    const bool older = cvy_json_get(object, "best_top1") != NULL;
    const char *best = older ? "best_top1" : "best_score", *patience = older ? "patience_top1" : "patience_score";
    bool good;

    state->epoch = cvy_json_get_int(object, "epoch", -1);
    state->position = cvy_json_get_int(object, "position", -1);
    state->step = cvy_json_get_int(object, "step", -1);
    state->best_epoch = cvy_json_get_int(object, "best_epoch", -2);
    state->best_score = cvy_json_get_number(object, best, NAN);
    good = state->epoch >= 0 && state->position >= 0 && state->step >= 0 && state->best_epoch >= -1 &&
           isfinite(state->best_score);
    if (good && cvy_json_get(object, "loss_sum")) { /* weights to use have only the first part */
        good = read_exact(object, "loss_sum", &state->loss_sum) &&
               read_exact(object, "window_loss_sum", &state->window_loss_sum);
        for (int i = 0; i < CVY_LOSS_PARTS; i++) {
            if (cvy_json_get(object, cvy_loss_part_names[i]))
                good = good && read_exact(object, cvy_loss_part_names[i], &state->part_sums[i]);
        }
        state->loss_count = cvy_json_get_int(object, "loss_count", -1);
        state->window_count = cvy_json_get_int(object, "window_count", -1);
        state->nonfinite = cvy_json_get_int(object, "nonfinite", -1);
        state->train_images = cvy_json_get_int(object, "train_images", -1);
        good = good && state->loss_count >= 0 && state->window_count >= 0 && state->nonfinite >= 0 &&
               state->train_images >= 0 && read_scaler(object, &state->scaler);
        state->stale_epochs = cvy_json_get_int(object, "stale_epochs", 0); /* newer than the rest */
        state->step_images = cvy_json_get_int(object, "step_images", 0);
        state->skipped = cvy_json_get_int(object, "skipped_images", 0);
        good = good && state->step_images >= 0 && state->step_images <= (INT64_C(1) << 31) &&
               state->position <= (INT64_C(1) << 30) && state->skipped <= UINT32_MAX &&
               state->skipped >= -state->position * state->step_images;
        state->patience_score = state->best_score;
        if (cvy_json_get(object, patience))
            good = good && read_exact(object, patience, &state->patience_score);
        good = good && state->stale_epochs >= 0 && read_recent(object, state);
    }
    return good ? CVY_OK : cvy_fail(CVY_BAD_DATA, "%s: metadata convoy.state is damaged", cvy_quote(what));
}

/* The state that goes with the tensors under CVY_LAST_GOOD_PREFIX: of the same epoch, before the file's own, and as
 * many steps of all as of the epoch: from them follows what a rewind takes back (none is below 0). */
static cvy_status read_last_good(const struct cvy_json_value *object, const char *what,
                                 struct cvy_checkpoint_info *info)
{
    info->has_last_good = object != NULL;
    if (!object)
        return CVY_OK;
    if (object->type == CVY_JSON_OBJECT && cvy_json_get(object, "loss_sum")) {
        CVY_TRY(read_state(object, what, &info->last_good));
        if (info->last_good.epoch == info->state.epoch && info->last_good.position < info->state.position &&
            info->state.step - info->last_good.step == info->state.position - info->last_good.position)
            return CVY_OK;
    }
    return cvy_fail(CVY_BAD_DATA, "%s: metadata convoy.state is damaged", cvy_quote(what));
}

static bool read_three(const struct cvy_json_value *object, const char *key, float values[3])
{
    const struct cvy_json_value *array = cvy_json_get(object, key), *entry;
    int i = 0;

    if (!array || array->type != CVY_JSON_ARRAY || array->count != 3)
        return false;
    for (entry = array->first; entry; entry = entry->next, i++) {
        if (entry->type != CVY_JSON_NUMBER || !isfinite(entry->number))
            return false;
        values[i] = (float)entry->number;
    }
    return true;
}

static cvy_status read_preprocessing(const struct cvy_json_value *object, const char *what,
                                     struct cvy_preprocessing *preprocessing)
{
    const int64_t size = cvy_json_get_int(object, "image_size", 0), resize = cvy_json_get_int(object, "resize", 0);
    const char *backend = cvy_json_get_string(object, "data_backend", "");
    const char *filter = cvy_json_get_string(object, "interpolation", "");

    preprocessing->exif_orientation = cvy_json_get_bool(object, "exif_orientation", false);
    preprocessing->tensorflow = strcmp(backend, "tensorflow") == 0;
    preprocessing->triangular = strcmp(backend, "tensorflow-dali") == 0;
    preprocessing->dali = preprocessing->triangular || strcmp(backend, "dali") == 0;
    preprocessing->rounded_scale = cvy_json_get_bool(object, "rounded_scale", false);
    preprocessing->filter = strcmp(filter, "bicubic") == 0 ? CVY_FILTER_BICUBIC : CVY_FILTER_BILINEAR;
    if (size < 32 || size > 4096 || resize < size || resize > 16384 ||
        !read_three(object, "mean", preprocessing->mean) || !read_three(object, "std", preprocessing->std) ||
        !(preprocessing->std[0] > 0 && preprocessing->std[1] > 0 && preprocessing->std[2] > 0) ||
        (strcmp(filter, "bilinear") != 0 && strcmp(filter, "bicubic") != 0))
        return cvy_fail(CVY_BAD_DATA, "%s: metadata convoy.preprocessing is damaged", cvy_quote(what));
    preprocessing->image_size = (int32_t)size;
    preprocessing->resize = (int32_t)resize;
    return CVY_OK;
}

static cvy_status read_classes(const struct cvy_json_value *array, const char *what, struct cvy_checkpoint_info *info)
{
    if (array->count == 0) /* trained on synthetic data */
        return CVY_OK;
    if (array->count > 1000000)
        return cvy_fail(CVY_BAD_DATA, "%s: metadata convoy.classes is damaged", cvy_quote(what));
    info->classes = cvy_arena_alloc(&info->arena, array->count * sizeof *info->classes);
    if (!info->classes)
        return cvy_fail_memory(array->count * sizeof *info->classes, "the class names");
    for (const struct cvy_json_value *entry = array->first; entry; entry = entry->next) {
        if (entry->type != CVY_JSON_STRING)
            return cvy_fail(CVY_BAD_DATA, "%s: metadata convoy.classes is damaged", cvy_quote(what));
        info->classes[info->class_count++] = entry->text;
    }
    return CVY_OK;
}

/* From the state, where it has them. */
static cvy_status read_class_weights(const struct cvy_json_value *state, const char *what,
                                     struct cvy_checkpoint_info *info)
{
    const struct cvy_json_value *array = cvy_json_get(state, "class_weights");

    if (!array)
        return CVY_OK;
    if (array->type != CVY_JSON_ARRAY || array->count > 1000000)
        return cvy_fail(CVY_BAD_DATA, "%s: metadata convoy.state is damaged", cvy_quote(what));
    info->class_weights = cvy_arena_alloc(&info->arena, (array->count + 1) * sizeof *info->class_weights);
    if (!info->class_weights)
        return cvy_fail_memory(array->count * sizeof *info->class_weights, "the class weights");
    for (const struct cvy_json_value *entry = array->first; entry; entry = entry->next) {
        if (entry->type != CVY_JSON_NUMBER || !((float)entry->number > 0) || !isfinite((float)entry->number))
            return cvy_fail(CVY_BAD_DATA, "%s: metadata convoy.state is damaged", cvy_quote(what));
        info->class_weights[info->class_weight_count++] = (float)entry->number;
    }
    return CVY_OK;
}

static cvy_status read_model(const struct cvy_json_value *object, const char *what, struct cvy_checkpoint_info *info)
{
    const char *padding = cvy_json_get_string(object, "padding", "");
    const char *strides = cvy_json_get_string(object, "backbone_strides", "slim");
    const char *quantize = cvy_json_get_string(object, "quantize", "none");

    info->quant_delay = cvy_json_get_int(object, "quant_delay", 0);
    if (!cvy_padding_parse(padding, &info->same_padding) || !cvy_quantize_parse(quantize, &info->quantize) ||
        info->quant_delay < 0 || !cvy_strides_parse(strides, &info->torchvision_backbone))
        return cvy_fail(CVY_BAD_DATA, "%s: metadata convoy.model is damaged", cvy_quote(what));
    info->padding = padding;
    return CVY_OK;
}

static cvy_status check_format(const struct cvy_tensor_file *file, const char *what)
{
    const char *text = cvy_tensor_metadata(file, "convoy.format");
    char *end;
    long version;

    if (!text)
        return CVY_OK;
    version = strtol(text, &end, 10);
    if (end == text || *end != '\0' || version < 1)
        return cvy_fail(CVY_BAD_DATA, "%s: metadata convoy.format is damaged", cvy_quote(what));
    if (version > CVY_CHECKPOINT_FORMAT)
        return cvy_fail(CVY_BAD_DATA, "%s has format %ld; this version reads up to %d", cvy_quote(what), version,
                        CVY_CHECKPOINT_FORMAT);
    return CVY_OK;
}

static cvy_status read_category_ids(const struct cvy_json_value *array, const char *what,
                                    struct cvy_checkpoint_info *info)
{
    size_t i = 0;

    if (array->count != (size_t)info->class_count)
        return cvy_fail(CVY_BAD_DATA, "%s: metadata convoy.category_ids is damaged", cvy_quote(what));
    info->category_ids = cvy_arena_alloc(&info->arena, (array->count + 1) * sizeof *info->category_ids);
    if (!info->category_ids)
        return cvy_fail_memory(array->count * sizeof *info->category_ids, "the category ids");
    for (const struct cvy_json_value *entry = array->first; entry; entry = entry->next) {
        if (entry->type != CVY_JSON_NUMBER || !entry->is_integer)
            return cvy_fail(CVY_BAD_DATA, "%s: metadata convoy.category_ids is damaged", cvy_quote(what));
        info->category_ids[i++] = entry->integer;
    }
    return CVY_OK;
}

cvy_status cvy_checkpoint_read(const struct cvy_tensor_file *file, const char *what, struct cvy_checkpoint_info *info)
{
    const struct cvy_json_value *value;
    cvy_status status;

    memset(info, 0, sizeof *info);
    CVY_GOTO(check_format(file, what));
    CVY_GOTO(parse(file, what, "convoy.arch", CVY_JSON_STRING, &info->arena, &value));
    if (value)
        info->arch = value->text;
    CVY_GOTO(parse(file, what, "convoy.classes", CVY_JSON_ARRAY, &info->arena, &value));
    if (value)
        CVY_GOTO(read_classes(value, what, info));
    CVY_GOTO(parse(file, what, "convoy.category_ids", CVY_JSON_ARRAY, &info->arena, &value));
    if (value)
        CVY_GOTO(read_category_ids(value, what, info));
    CVY_GOTO(parse(file, what, "convoy.preprocessing", CVY_JSON_OBJECT, &info->arena, &value));
    info->has_preprocessing = value != NULL;
    if (value)
        CVY_GOTO(read_preprocessing(value, what, &info->preprocessing));
    CVY_GOTO(parse(file, what, "convoy.state", CVY_JSON_OBJECT, &info->arena, &value));
    info->has_state = value != NULL;
    info->resumable = value && cvy_json_get(value, "loss_sum");
    if (value)
        CVY_GOTO(read_state(value, what, &info->state));
    if (value)
        CVY_GOTO(read_last_good(cvy_json_get(value, "last_good"), what, info));
    if (value)
        CVY_GOTO(read_class_weights(value, what, info));
    CVY_GOTO(parse(file, what, "convoy.model", CVY_JSON_OBJECT, &info->arena, &value));
    if (value)
        CVY_GOTO(read_model(value, what, info));
    CVY_GOTO(parse(file, what, "convoy.options", CVY_JSON_OBJECT, &info->arena, &info->options));
    CVY_GOTO(parse(file, what, "convoy.plan", CVY_JSON_OBJECT, &info->arena, &info->plan));
    CVY_GOTO(parse(file, what, "convoy.quantization", CVY_JSON_OBJECT, &info->arena, &info->quantization));
    return CVY_OK;
fail:
    cvy_checkpoint_info_release(info);
    return status;
}

void cvy_checkpoint_info_release(struct cvy_checkpoint_info *info)
{
    cvy_arena_release(&info->arena);
    memset(info, 0, sizeof *info);
}
