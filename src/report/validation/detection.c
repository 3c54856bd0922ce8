#include "report/validation/detection.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json_out.h"
#include "report/drawing/html.h"
#include "report/validation/saved.h"

enum { FORMAT = 1, MAX_CLASSES = 100000, MAX_MARKS = 100000 };

void cvy_detection_validation_release(struct cvy_detection_validation *validation)
{
    cvy_arena_release(&validation->arena);
    *validation = (struct cvy_detection_validation){0};
}

/* ---- writing ---- */

static void put_curve(struct cvy_json *json, const char *key, const struct cvy_precision_curve *curve)
{
    cvy_json_key(json, key);
    cvy_json_begin_array(json);
    for (int i = 0; i < CVY_CURVE_POINTS; i++)
        cvy_json_fixed(json, (double)curve->precision[i], 4);
    cvy_json_end_array(json);
}

static void put_classes(struct cvy_json *json, const struct cvy_detection_validation *v)
{
    cvy_json_key(json, "classes");
    cvy_json_begin_array(json);
    for (int32_t i = 0; i < v->class_count; i++) {
        const struct cvy_class_precision *p = &v->precisions[i];
        cvy_json_begin_object(json);
        cvy_json_put_string(json, "name", v->classes[i]);
        cvy_json_put_int(json, "objects", p->truths);
        cvy_json_put_int(json, "detections", p->detections);
        cvy_json_put_number(json, "ap", p->ap);
        cvy_json_put_number(json, "ap50", p->ap50);
        cvy_json_put_number(json, "ap75", p->ap75);
        cvy_json_put_number(json, "recall", p->recall);
        if (p->ap >= 0)
            put_curve(json, "precision50", &p->curve);
        cvy_json_end_object(json);
    }
    cvy_json_end_array(json);
}

/* Each as [label, ymin, xmin, ymax, xmax, score], objects with 1 or 0 for crowds in the place of the score. */
static void put_marks(struct cvy_json *json, const char *key, const struct cvy_mark *marks, size_t count, bool found)
{
    cvy_json_key(json, key);
    cvy_json_begin_array(json);
    for (size_t i = 0; i < count; i++) {
        cvy_json_begin_array(json);
        cvy_json_int(json, marks[i].label);
        for (int k = 0; k < 4; k++)
            cvy_json_fixed(json, (double)marks[i].box[k], 5);
        if (found)
            cvy_json_fixed(json, (double)marks[i].score, 4);
        else
            cvy_json_int(json, marks[i].crowd);
        cvy_json_end_array(json);
    }
    cvy_json_end_array(json);
}

static void put_pictures(struct cvy_json *json, const struct cvy_detection_validation *v)
{
    cvy_json_key(json, "pictures");
    cvy_json_begin_array(json);
    for (size_t i = 0; i < v->picture_count; i++) {
        const struct cvy_marked_picture *picture = &v->pictures[i];
        cvy_json_begin_object(json);
        cvy_json_put_string(json, "file", picture->file);
        cvy_json_put_int(json, "width", picture->width);
        cvy_json_put_int(json, "height", picture->height);
        put_marks(json, "objects", picture->truths, picture->truth_count, false);
        put_marks(json, "detections", picture->found, picture->found_count, true);
        cvy_json_put_string(json, "jpeg", picture->jpeg);
        cvy_json_end_object(json);
    }
    cvy_json_end_array(json);
}

cvy_status cvy_detection_validation_write(const struct cvy_detection_validation *v, const char *path)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};

    cvy_json_begin_object(&json);
    cvy_json_put_int(&json, "format", FORMAT);
    cvy_json_put_string(&json, "task", "detection");
    cvy_json_put_int(&json, "epoch", v->epoch);
    cvy_json_put_int(&json, "images", v->images);
    cvy_json_put_int(&json, "skipped", v->skipped);
    cvy_json_key(&json, "stats");
    cvy_json_begin_array(&json);
    for (int i = 0; i < CVY_DETECTION_STATS; i++)
        cvy_json_number(&json, v->stats[i]);
    cvy_json_end_array(&json);
    put_curve(&json, "precision50", &v->curves[CVY_CURVE_50]);
    put_curve(&json, "precision75", &v->curves[CVY_CURVE_75]);
    put_curve(&json, "precision", &v->curves[CVY_CURVE_ALL]);
    put_classes(&json, v);
    put_pictures(&json, v);
    cvy_json_end_object(&json);
    return cvy_saved_write(&text, path);
}

/* ---- reading ---- */

/* Exactly `count` numbers from low to high. */
static bool get_numbers(const struct cvy_json_value *list, double low, double high, double *numbers, size_t count)
{
    size_t i = 0;

    if (!cvy_saved_is_array(list) || list->count != count)
        return false;
    for (const struct cvy_json_value *value = list->first; value; value = value->next) {
        if (value->type != CVY_JSON_NUMBER || !(value->number >= low && value->number <= high))
            return false;
        numbers[i++] = value->number;
    }
    return true;
}

static bool get_curve(const struct cvy_json_value *object, const char *key, struct cvy_precision_curve *curve)
{
    double numbers[CVY_CURVE_POINTS];

    if (!get_numbers(cvy_json_get(object, key), -1, 1, numbers, CVY_CURVE_POINTS))
        return false;
    for (int i = 0; i < CVY_CURVE_POINTS; i++)
        curve->precision[i] = (float)numbers[i];
    return true;
}

static bool get_fraction(const struct cvy_json_value *object, const char *key, double *out)
{
    *out = cvy_json_get_number(object, key, NAN);
    return *out >= -1 && *out <= 1;
}

static bool read_class(const struct cvy_json_value *entry, struct cvy_class_precision *p)
{
    const int64_t max = INT64_C(1) << 53;

    for (int i = 0; i < CVY_CURVE_POINTS; i++)
        p->curve.precision[i] = -1;
    return entry->type == CVY_JSON_OBJECT && cvy_saved_count(entry, "objects", 0, max, &p->truths) &&
           cvy_saved_count(entry, "detections", 0, max, &p->detections) && get_fraction(entry, "ap", &p->ap) &&
           get_fraction(entry, "ap50", &p->ap50) && get_fraction(entry, "ap75", &p->ap75) &&
           get_fraction(entry, "recall", &p->recall) &&
           (!cvy_json_get(entry, "precision50") || get_curve(entry, "precision50", &p->curve));
}

static cvy_status read_classes(struct cvy_detection_validation *v, const struct cvy_json_value *list, const char *path)
{
    int32_t i = 0;

    if (!cvy_saved_is_array(list) || list->count < 1 || list->count > MAX_CLASSES)
        return cvy_saved_damaged(path, "the list of classes is");
    v->class_count = (int32_t)list->count;
    v->classes = cvy_arena_alloc(&v->arena, list->count * sizeof *v->classes);
    v->precisions = cvy_arena_alloc(&v->arena, list->count * sizeof *v->precisions);
    if (!v->classes || !v->precisions)
        return cvy_fail_memory(list->count * sizeof *v->precisions, "the classes of a validation");
    for (const struct cvy_json_value *entry = list->first; entry; entry = entry->next, i++) {
        if (!read_class(entry, &v->precisions[i]))
            return cvy_saved_damaged(path, "the list of classes is");
        v->classes[i] = cvy_json_get_string(entry, "name", NULL);
    }
    return CVY_OK;
}

static cvy_status read_marks(struct cvy_detection_validation *v, const struct cvy_json_value *list, const char *path,
                             bool found, struct cvy_mark **marks, size_t *count)
{
    if (!cvy_saved_is_array(list) || list->count > MAX_MARKS)
        return cvy_saved_damaged(path, "a list of boxes is");
    *marks = cvy_arena_alloc(&v->arena, (list->count + 1) * sizeof **marks);
    if (!*marks)
        return cvy_fail_memory(list->count * sizeof **marks, "the boxes of a picture");
    for (const struct cvy_json_value *entry = list->first; entry; entry = entry->next) {
        struct cvy_mark *mark = &(*marks)[(*count)++];
        double numbers[6];
        if (!get_numbers(entry, -1e6, 1e6, numbers, 6) || !(numbers[0] >= 0 && numbers[0] < v->class_count))
            return cvy_saved_damaged(path, "a list of boxes is");
        *mark = (struct cvy_mark){.label = (int32_t)numbers[0]};
        for (int k = 0; k < 4; k++)
            mark->box[k] = (float)numbers[k + 1];
        mark->score = found ? (float)numbers[5] : 0;
        mark->crowd = !found && numbers[5] != 0;
    }
    return CVY_OK;
}

static cvy_status read_pictures(struct cvy_detection_validation *v, const struct cvy_json_value *list, const char *path)
{
    if (!cvy_saved_is_array(list))
        return cvy_saved_damaged(path, "the list of pictures is");
    v->pictures = cvy_arena_alloc(&v->arena, (list->count + 1) * sizeof *v->pictures);
    if (!v->pictures)
        return cvy_fail_memory(list->count * sizeof *v->pictures, "the pictures of a validation");
    for (const struct cvy_json_value *entry = list->first; entry; entry = entry->next) {
        struct cvy_marked_picture *picture = &v->pictures[v->picture_count++];
        int64_t width, height;
        if (entry->type != CVY_JSON_OBJECT || !cvy_saved_count(entry, "width", 1, INT32_MAX, &width) ||
            !cvy_saved_count(entry, "height", 1, INT32_MAX, &height))
            return cvy_saved_damaged(path, "the list of pictures is");
        picture->width = (int32_t)width;
        picture->height = (int32_t)height;
        picture->file = cvy_json_get_string(entry, "file", NULL);
        picture->jpeg = cvy_json_get_string(entry, "jpeg", NULL);
        if (!cvy_is_base64(picture->jpeg))
            return cvy_saved_damaged(path, "the list of pictures is");
        CVY_TRY(read_marks(v, cvy_json_get(entry, "objects"), path, false, &picture->truths, &picture->truth_count));
        CVY_TRY(read_marks(v, cvy_json_get(entry, "detections"), path, true, &picture->found, &picture->found_count));
    }
    return CVY_OK;
}

static cvy_status read_all(struct cvy_detection_validation *v, const struct cvy_json_value *root, const char *path)
{
    int64_t format;

    if (!cvy_saved_count(root, "format", FORMAT, FORMAT, &format) ||
        !cvy_saved_count(root, "epoch", -1, 1000000, &v->epoch) ||
        !cvy_saved_count(root, "images", 0, INT64_C(1) << 53, &v->images) ||
        !cvy_saved_count(root, "skipped", 0, INT64_C(1) << 53, &v->skipped) ||
        !get_numbers(cvy_json_get(root, "stats"), -1, 1, v->stats, CVY_DETECTION_STATS) ||
        !get_curve(root, "precision50", &v->curves[CVY_CURVE_50]) ||
        !get_curve(root, "precision75", &v->curves[CVY_CURVE_75]) ||
        !get_curve(root, "precision", &v->curves[CVY_CURVE_ALL]))
        return cvy_fail(CVY_BAD_DATA, "%s does not hold a validation", cvy_quote(path));
    CVY_TRY(read_classes(v, cvy_json_get(root, "classes"), path));
    return read_pictures(v, cvy_json_get(root, "pictures"), path);
}

cvy_status cvy_detection_validation_read(struct cvy_detection_validation *validation, const char *path, bool *found)
{
    struct cvy_json_value *root;
    cvy_status status;

    *validation = (struct cvy_detection_validation){.epoch = -1};
    *found = false;
    CVY_GOTO(cvy_saved_read(path, &validation->arena, &root));
    *found = root->type == CVY_JSON_OBJECT && strcmp(cvy_json_get_string(root, "task", ""), "detection") == 0;
    if (*found)
        CVY_GOTO(read_all(validation, root, path));
fail:
    if (status != CVY_OK || !*found)
        cvy_detection_validation_release(validation);
    return status;
}
