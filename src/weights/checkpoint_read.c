/* Reading the metadata of checkpoints, which may be anybody's; checkpoint_write.c writes them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "weights/checkpoint.h"

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
    if (cvy_json_get(object, "start_loss") &&
        !(read_exact(object, "start_loss", &state->start_loss) && state->start_loss > 0))
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

static cvy_status read_training(const struct cvy_json_value *state, const char *what, struct cvy_checkpoint_info *info)
{
    CVY_TRY(read_state(state, what, &info->state));
    CVY_TRY(read_last_good(cvy_json_get(state, "last_good"), what, info));
    return read_class_weights(state, what, info);
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
        CVY_GOTO(read_training(value, what, info));
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
