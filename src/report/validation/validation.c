#include "report/validation/validation.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_out.h"
#include "report/drawing/html.h"
#include "report/validation/saved.h"

enum { FORMAT = 1 };

void cvy_validation_release(struct cvy_validation *validation)
{
    cvy_arena_release(&validation->arena);
    *validation = (struct cvy_validation){0};
}

const char *cvy_validation_class(const struct cvy_validation *validation, int32_t index, char buffer[32])
{
    if (validation->classes && index >= 0 && index < validation->class_count)
        return validation->classes[index];
    snprintf(buffer, 32, "class %d", (int)index);
    return buffer;
}

/* ---- writing ---- */

static void put_classes(struct cvy_json *json, const struct cvy_validation *v)
{
    cvy_json_key(json, "classes");
    cvy_json_begin_array(json);
    for (int32_t i = 0; i < v->class_count; i++) {
        cvy_json_begin_object(json);
        cvy_json_put_string(json, "name", v->classes ? v->classes[i] : NULL);
        cvy_json_put_int(json, "images", v->class_images[i]);
        cvy_json_put_int(json, "top1_hits", v->class_hits[i]);
        cvy_json_put_int(json, "topk_hits", v->class_topk_hits[i]);
        cvy_json_put_int(json, "predicted", v->class_predicted[i]);
        cvy_json_end_object(json);
    }
    cvy_json_end_array(json);
}

static void put_worst(struct cvy_json *json, const struct cvy_validation *v)
{
    cvy_json_key(json, "worst");
    cvy_json_begin_array(json);
    for (size_t i = 0; i < v->worst_count; i++) {
        const struct cvy_wrong_image *image = &v->worst[i];
        cvy_json_begin_object(json);
        cvy_json_put_string(json, "file", image->file);
        cvy_json_put_int(json, "label", image->label);
        cvy_json_put_int(json, "predicted", image->predicted);
        cvy_json_put_number(json, "probability", image->probability);
        cvy_json_put_number(json, "label_probability", image->label_probability);
        cvy_json_put_number(json, "loss", image->loss);
        cvy_json_put_string(json, "thumbnail", image->thumbnail);
        cvy_json_end_object(json);
    }
    cvy_json_end_array(json);
}

cvy_status cvy_validation_write(const struct cvy_validation *v, const char *path)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};

    cvy_json_begin_object(&json);
    cvy_json_put_int(&json, "format", FORMAT);
    cvy_json_put_int(&json, "epoch", v->epoch);
    cvy_json_put_int(&json, "images", v->images);
    cvy_json_put_int(&json, "skipped", v->skipped);
    cvy_json_put_number(&json, "loss", v->loss);
    cvy_json_put_number(&json, "top1", v->top1);
    cvy_json_put_int(&json, "k", v->top_k);
    cvy_json_put_number(&json, "topk", v->topk);
    put_classes(&json, v);
    cvy_json_key(&json, "confusion");
    cvy_json_begin_array(&json);
    for (size_t i = 0; i < v->cell_count; i++) {
        cvy_json_begin_array(&json);
        cvy_json_int(&json, v->cells[i].label);
        cvy_json_int(&json, v->cells[i].predicted);
        cvy_json_int(&json, v->cells[i].count);
        cvy_json_end_array(&json);
    }
    cvy_json_end_array(&json);
    put_worst(&json, v);
    cvy_json_end_object(&json);
    return cvy_saved_write(&text, path);
}

/* ---- reading ---- */

static bool get_class(const struct cvy_json_value *value, const struct cvy_validation *v, int32_t *out)
{
    if (!value || value->type != CVY_JSON_NUMBER || !value->is_integer || value->integer < 0 ||
        value->integer >= v->class_count)
        return false;
    *out = (int32_t)value->integer;
    return true;
}

static cvy_status read_classes(struct cvy_validation *v, const struct cvy_json_value *list, const char *path)
{
    const int64_t max = INT64_C(1) << 53;
    int64_t *counts;
    size_t i = 0;

    if (!cvy_saved_is_array(list) || list->count < 1 || list->count > 1000000)
        return cvy_saved_damaged(path, "the list of classes is");
    v->class_count = (int32_t)list->count;
    counts = cvy_arena_alloc(&v->arena, list->count * 4 * sizeof *counts);
    v->classes = cvy_arena_alloc(&v->arena, list->count * sizeof *v->classes);
    if (!counts || !v->classes)
        return cvy_fail_memory(list->count * 5 * sizeof *counts, "the classes of a validation");
    v->class_images = counts;
    v->class_hits = counts + list->count;
    v->class_topk_hits = counts + 2 * list->count;
    v->class_predicted = counts + 3 * list->count;
    for (const struct cvy_json_value *entry = list->first; entry; entry = entry->next, i++) {
        if (entry->type != CVY_JSON_OBJECT || !cvy_saved_count(entry, "images", 0, max, &v->class_images[i]) ||
            !cvy_saved_count(entry, "top1_hits", 0, v->class_images[i], &v->class_hits[i]) ||
            !cvy_saved_count(entry, "topk_hits", 0, v->class_images[i], &v->class_topk_hits[i]) ||
            !cvy_saved_count(entry, "predicted", 0, max, &v->class_predicted[i]))
            return cvy_saved_damaged(path, "the list of classes is");
        if (v->classes && !(v->classes[i] = cvy_json_get_string(entry, "name", NULL)))
            v->classes = NULL; /* all of them or none */
    }
    return CVY_OK;
}

static cvy_status read_cells(struct cvy_validation *v, const struct cvy_json_value *list, const char *path)
{
    if (!cvy_saved_is_array(list))
        return cvy_saved_damaged(path, "the confusion matrix is");
    v->cells = cvy_arena_alloc(&v->arena, (list->count + 1) * sizeof *v->cells);
    if (!v->cells)
        return cvy_fail_memory(list->count * sizeof *v->cells, "the confusion matrix");
    for (const struct cvy_json_value *entry = list->first; entry; entry = entry->next) {
        struct cvy_confusion_cell *cell = &v->cells[v->cell_count];
        const struct cvy_json_value *count =
            cvy_saved_is_array(entry) && entry->count == 3 ? entry->first->next->next : NULL;
        if (!count || !get_class(entry->first, v, &cell->label) ||
            !get_class(entry->first->next, v, &cell->predicted) || !count->is_integer || count->integer < 1 ||
            count->integer > INT64_C(1) << 53)
            return cvy_saved_damaged(path, "the confusion matrix is");
        cell->count = count->integer;
        v->cell_count++;
    }
    return CVY_OK;
}

static cvy_status read_worst(struct cvy_validation *v, const struct cvy_json_value *list, const char *path)
{
    if (!cvy_saved_is_array(list))
        return cvy_saved_damaged(path, "the list of images is");
    v->worst = cvy_arena_alloc(&v->arena, (list->count + 1) * sizeof *v->worst);
    if (!v->worst)
        return cvy_fail_memory(list->count * sizeof *v->worst, "the most wrong images");
    for (const struct cvy_json_value *entry = list->first; entry; entry = entry->next) {
        struct cvy_wrong_image *image = &v->worst[v->worst_count];
        *image = (struct cvy_wrong_image){
            .loss = cvy_json_get_number(entry, "loss", 0),
            .probability = cvy_json_get_number(entry, "probability", 0),
            .label_probability = cvy_json_get_number(entry, "label_probability", 0),
            .file = cvy_json_get_string(entry, "file", NULL),
            .thumbnail = cvy_json_get_string(entry, "thumbnail", NULL),
        };
        if (!get_class(cvy_json_get(entry, "label"), v, &image->label) ||
            !get_class(cvy_json_get(entry, "predicted"), v, &image->predicted) || !cvy_is_base64(image->thumbnail))
            return cvy_saved_damaged(path, "the list of images is");
        v->worst_count++;
    }
    return CVY_OK;
}

static cvy_status read_all(struct cvy_validation *v, const struct cvy_json_value *root, const char *path)
{
    int64_t top_k, format;

    if (root->type != CVY_JSON_OBJECT || !cvy_saved_count(root, "format", FORMAT, FORMAT, &format) ||
        !cvy_saved_count(root, "epoch", -1, 1000000, &v->epoch) ||
        !cvy_saved_count(root, "images", 0, INT64_C(1) << 53, &v->images) ||
        !cvy_saved_count(root, "skipped", 0, INT64_C(1) << 53, &v->skipped) ||
        !cvy_saved_count(root, "k", 1, 1000000, &top_k))
        return cvy_fail(CVY_BAD_DATA, "%s does not hold a validation", cvy_quote(path));
    v->top_k = (int32_t)top_k;
    v->loss = cvy_json_get_number(root, "loss", NAN);
    v->top1 = cvy_json_get_number(root, "top1", 0);
    v->topk = cvy_json_get_number(root, "topk", 0);
    CVY_TRY(read_classes(v, cvy_json_get(root, "classes"), path));
    CVY_TRY(read_cells(v, cvy_json_get(root, "confusion"), path));
    return read_worst(v, cvy_json_get(root, "worst"), path);
}

cvy_status cvy_validation_read(struct cvy_validation *validation, const char *path)
{
    struct cvy_json_value *root;
    cvy_status status;

    *validation = (struct cvy_validation){.epoch = -1};
    CVY_GOTO(cvy_saved_read(path, &validation->arena, &root));
    CVY_GOTO(read_all(validation, root, path));
fail:
    if (status != CVY_OK)
        cvy_validation_release(validation);
    return status;
}
