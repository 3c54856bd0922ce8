#include "data/detection/object_record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "data/transform/detection.h"

enum key { ENCODED, SOURCE_ID, WIDTH, HEIGHT, YMIN, XMIN, YMAX, XMAX, AREA, CROWD, LABEL, TEXT, KEYS };
static const char *const keys[KEYS] = {
    "image/encoded",          "image/source_id",          "image/width",
    "image/height",           "image/object/bbox/ymin",   "image/object/bbox/xmin",
    "image/object/bbox/ymax", "image/object/bbox/xmax",   "image/object/area",
    "image/object/is_crowd",  "image/object/class/label", "image/object/class/text",
};

/* ---- reading ---- */

static cvy_status fail_record(const struct cvy_example *example, const char *why)
{
    return cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s %s", (unsigned long long)example->record,
                    cvy_quote(example->what), why);
}

static cvy_status check_count(const struct cvy_example *example, enum key key, size_t count, size_t expected)
{
    if (count == expected)
        return CVY_OK;
    return cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s has %zu values of %s and %zu of %s",
                    (unsigned long long)example->record, cvy_quote(example->what), expected, keys[YMIN], count,
                    keys[key]);
}

static cvy_status read_length(struct cvy_example *example, const struct cvy_feature *feature, int32_t *length)
{
    int64_t value = 0;
    size_t count;

    CVY_TRY(cvy_feature_int64(example, feature, &value, 1, &count));
    if (value < 1 || value > INT32_MAX)
        return fail_record(example, "does not say how many pixels its image has");
    *length = (int32_t)value;
    return CVY_OK;
}

static cvy_status read_id(struct cvy_example *example, const struct cvy_feature *feature, int64_t *id)
{
    char text[32] = "", *end;
    size_t at = 0;
    bool found;

    CVY_TRY(cvy_feature_next_text(example, feature, &at, text, sizeof text, &found));
    errno = 0;
    *id = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end || *id < 0)
        *id = -1;
    return CVY_OK;
}

static cvy_status read_boxes(struct cvy_example *example, const struct cvy_feature features[KEYS],
                             struct cvy_object_record *record)
{
    cvy_status status = CVY_OK;
    float *values = cvy_calloc(record->count, sizeof *values);
    size_t count;

    record->boxes = cvy_calloc(record->count, sizeof *record->boxes);
    if (!values || !record->boxes) {
        status = cvy_fail_memory(record->count * sizeof *record->boxes, "the boxes of an image");
        goto fail;
    }
    for (int edge = 0; edge < 4; edge++) {
        const enum key key = (enum key)(YMIN + edge);
        CVY_GOTO(cvy_feature_floats(example, &features[key], values, record->count, &count));
        CVY_GOTO(check_count(example, key, count, record->count));
        for (size_t i = 0; i < count; i++)
            record->boxes[i][edge] = values[i];
    }
fail:
    cvy_free(values);
    return status;
}

static cvy_status read_integers(struct cvy_example *example, const struct cvy_feature *feature, enum key key,
                                size_t expected, int64_t **values)
{
    size_t count;

    CVY_TRY(cvy_feature_int64(example, feature, NULL, 0, &count));
    if (count == 0)
        return CVY_OK;
    CVY_TRY(check_count(example, key, count, expected));
    *values = cvy_calloc(count, sizeof **values);
    if (!*values)
        return cvy_fail_memory(count * sizeof **values, "the boxes of an image");
    return cvy_feature_int64(example, feature, *values, count, &count);
}

static cvy_status read_areas(struct cvy_example *example, const struct cvy_feature *feature,
                             struct cvy_object_record *record)
{
    size_t count;

    CVY_TRY(cvy_feature_floats(example, feature, NULL, 0, &count));
    if (count == 0)
        return CVY_OK;
    CVY_TRY(check_count(example, AREA, count, record->count));
    record->areas = cvy_calloc(count, sizeof *record->areas);
    if (!record->areas)
        return cvy_fail_memory(count * sizeof *record->areas, "the boxes of an image");
    return cvy_feature_floats(example, feature, record->areas, count, &count);
}

static cvy_status read_texts(struct cvy_example *example, const struct cvy_feature *feature,
                             struct cvy_object_record *record)
{
    size_t from, length, count, at = 0;
    bool found;

    CVY_TRY(cvy_feature_bytes(example, feature, &from, &length, &count));
    if (count == 0)
        return CVY_OK;
    CVY_TRY(check_count(example, TEXT, count, record->count));
    record->texts = cvy_calloc(count, sizeof *record->texts);
    if (!record->texts)
        return cvy_fail_memory(count * sizeof *record->texts, "the boxes of an image");
    for (size_t i = 0; i < count; i++)
        CVY_TRY(cvy_feature_next_text(example, feature, &at, record->texts[i], sizeof record->texts[i], &found));
    return CVY_OK;
}

static cvy_status find_features(struct cvy_example *example, struct cvy_feature features[KEYS])
{
    struct cvy_feature feature;
    bool found;

    for (;;) {
        CVY_TRY(cvy_example_next(example, &feature, &found));
        if (!found)
            return CVY_OK;
        for (int key = 0; key < KEYS; key++)
            if (strcmp(feature.key, keys[key]) == 0)
                features[key] = feature;
    }
}

cvy_status cvy_object_record_read(struct cvy_example *example, struct cvy_object_record *record)
{
    struct cvy_feature features[KEYS] = {0};
    size_t from, length, count;

    *record = (struct cvy_object_record){.id = -1};
    CVY_TRY(find_features(example, features));
    CVY_TRY(cvy_feature_bytes(example, &features[ENCODED], &from, &length, &count));
    if (length == 0)
        return fail_record(example, "has no image (no key \"image/encoded\")");
    CVY_TRY(read_length(example, &features[WIDTH], &record->width));
    CVY_TRY(read_length(example, &features[HEIGHT], &record->height));
    CVY_TRY(read_id(example, &features[SOURCE_ID], &record->id));
    CVY_TRY(cvy_feature_floats(example, &features[YMIN], NULL, 0, &record->count));
    if (record->count == 0)
        return CVY_OK;
    CVY_TRY(read_boxes(example, features, record));
    CVY_TRY(read_areas(example, &features[AREA], record));
    CVY_TRY(read_integers(example, &features[CROWD], CROWD, record->count, &record->crowds));
    CVY_TRY(read_integers(example, &features[LABEL], LABEL, record->count, &record->labels));
    CVY_TRY(read_texts(example, &features[TEXT], record));
    if (!record->texts && !record->labels)
        return fail_record(example, "does not say what its boxes are around (no key \"image/object/class/text\")");
    return CVY_OK;
}

void cvy_object_record_release(struct cvy_object_record *record)
{
    cvy_free(record->boxes);
    cvy_free(record->areas);
    cvy_free(record->crowds);
    cvy_free(record->labels);
    cvy_free(record->texts);
    *record = (struct cvy_object_record){0};
}

/* ---- writing ---- */

/* The lists of a record, one after the other in a block. */
struct lists {
    float *edges[4], *areas;
    int64_t *crowds;
    const char **texts;
};

static cvy_status fill_lists(const struct cvy_object_record_source *source, struct lists *lists)
{
    const size_t count = source->about->object_count, capacity = count + 1;

    lists->crowds = cvy_calloc(capacity, sizeof *lists->crowds + sizeof *lists->texts + 5 * sizeof(float));
    if (!lists->crowds)
        return cvy_fail_memory(capacity * 36, "the boxes of an image");
    lists->texts = (const char **)(lists->crowds + capacity);
    lists->areas = (float *)(lists->texts + capacity);
    for (size_t edge = 0; edge < 4; edge++)
        lists->edges[edge] = lists->areas + (edge + 1) * capacity;
    for (size_t i = 0; i < count; i++) {
        const struct cvy_coco_object *object = &source->objects[i];
        float box[4];
        cvy_object_shares(source->about, object, box);
        for (int edge = 0; edge < 4; edge++)
            lists->edges[edge][i] = box[edge];
        lists->areas[i] = (float)object->area;
        lists->crowds[i] = object->crowd;
        lists->texts[i] = source->classes[object->slot - 1];
    }
    return CVY_OK;
}

cvy_status cvy_object_record_pack(const struct cvy_object_record_source *source, uint8_t **message, size_t *size)
{
    const int64_t width = source->about->width, height = source->about->height;
    const size_t count = source->about->object_count;
    struct lists lists = {0};
    char id[32], digest[65];

    CVY_TRY(fill_lists(source, &lists));
    snprintf(id, sizeof id, "%lld", (long long)source->about->id);
    cvy_sha256_text(source->image, source->image_size, digest);
    /* The image comes last: what else a reader wants is then found in one piece before it. */
    const struct cvy_feature_value features[] = {
        {"image/height", CVY_FEATURE_INT64, &height, 1},
        {"image/width", CVY_FEATURE_INT64, &width, 1},
        {"image/filename", CVY_FEATURE_BYTES, source->filename, strlen(source->filename)},
        {"image/source_id", CVY_FEATURE_BYTES, id, strlen(id)},
        {"image/key/sha256", CVY_FEATURE_BYTES, digest, strlen(digest)},
        {"image/format", CVY_FEATURE_BYTES, "jpeg", 4},
        {"image/object/bbox/xmin", CVY_FEATURE_FLOAT, lists.edges[1], count},
        {"image/object/bbox/xmax", CVY_FEATURE_FLOAT, lists.edges[3], count},
        {"image/object/bbox/ymin", CVY_FEATURE_FLOAT, lists.edges[0], count},
        {"image/object/bbox/ymax", CVY_FEATURE_FLOAT, lists.edges[2], count},
        {"image/object/class/text", CVY_FEATURE_TEXTS, lists.texts, count},
        {"image/object/is_crowd", CVY_FEATURE_INT64, lists.crowds, count},
        {"image/object/area", CVY_FEATURE_FLOAT, lists.areas, count},
        {"image/encoded", CVY_FEATURE_BYTES, source->image, source->image_size},
    };
    cvy_status status = cvy_example_pack(features, sizeof features / sizeof features[0], message, size);
    cvy_free(lists.crowds);
    return status;
}
