#include "data/sample/image_record.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

enum { BOX_EDGES = 4 };

/* In the order of the fields of struct cvy_object_box. */
static const char *const box_keys[BOX_EDGES] = {"image/object/bbox/xmin", "image/object/bbox/ymin",
                                                "image/object/bbox/xmax", "image/object/bbox/ymax"};

static cvy_status read_text(struct cvy_example *example, const struct cvy_feature *feature, char *text, size_t size)
{
    size_t from, length, count;

    CVY_TRY(cvy_feature_bytes(example, feature, &from, &length, &count));
    return cvy_example_text(example, from, length, text, size);
}

static cvy_status read_boxes(struct cvy_example *example, const struct cvy_feature edges[BOX_EDGES],
                             struct cvy_image_record *record)
{
    cvy_status status = CVY_OK;
    float *values = NULL;
    size_t count = 0, now;

    CVY_TRY(cvy_feature_floats(example, &edges[0], NULL, 0, &count));
    if (count > 0) {
        values = cvy_calloc(count, sizeof *values);
        record->boxes = cvy_calloc(count, sizeof *record->boxes);
        if (!values || !record->boxes) {
            status = cvy_fail_memory(count * sizeof *record->boxes, "the boxes of an image");
            goto fail;
        }
    }
    for (int edge = 0; edge < BOX_EDGES; edge++) {
        CVY_GOTO(cvy_feature_floats(example, &edges[edge], values, count, &now));
        if (now != count) {
            status = cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s has %zu values of %s and %zu of %s",
                              (unsigned long long)example->record, cvy_quote(example->what), count, box_keys[0], now,
                              box_keys[edge]);
            goto fail;
        }
        for (size_t i = 0; i < count; i++)
            memcpy((char *)&record->boxes[i] + (size_t)edge * sizeof(float), &values[i], sizeof(float));
    }
    record->box_count = count;
fail:
    cvy_free(values);
    return status;
}

/* An image of several classes, or several images: which one counts is not for a reader to guess. */
static cvy_status expect_one(const struct cvy_example *example, const struct cvy_feature *feature, size_t count)
{
    return count <= 1 ? CVY_OK
                      : cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s has %zu values of %s, and may have one",
                                 (unsigned long long)example->record, cvy_quote(example->what), count,
                                 cvy_quote(feature->key));
}

static cvy_status read_feature(struct cvy_example *example, const struct cvy_feature *feature,
                               struct cvy_feature edges[BOX_EDGES], struct cvy_image_record *record)
{
    size_t count;

    if (strcmp(feature->key, "image/encoded") == 0) {
        CVY_TRY(cvy_feature_bytes(example, feature, &record->image_from, &record->image_size, &count));
        return expect_one(example, feature, count);
    }
    if (strcmp(feature->key, "image/class/label") == 0) {
        record->label = -1;
        CVY_TRY(cvy_feature_int64(example, feature, &record->label, 1, &count));
        return expect_one(example, feature, count);
    }
    if (strcmp(feature->key, "image/class/synset") == 0)
        return read_text(example, feature, record->synset, sizeof record->synset);
    if (strcmp(feature->key, "image/class/text") == 0)
        return read_text(example, feature, record->text, sizeof record->text);
    if (strcmp(feature->key, "image/filename") == 0)
        return read_text(example, feature, record->filename, sizeof record->filename);
    for (int edge = 0; edge < BOX_EDGES; edge++)
        if (strcmp(feature->key, box_keys[edge]) == 0)
            edges[edge] = *feature;
    return CVY_OK;
}

cvy_status cvy_image_record_read(struct cvy_example *example, bool boxes, struct cvy_image_record *record)
{
    struct cvy_feature feature, edges[BOX_EDGES] = {0};
    bool found;

    *record = (struct cvy_image_record){.label = -1};
    for (;;) {
        CVY_TRY(cvy_example_next(example, &feature, &found));
        if (!found)
            break;
        CVY_TRY(read_feature(example, &feature, edges, record));
    }
    if (record->image_size == 0)
        return cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s has no image (no key \"image/encoded\")",
                        (unsigned long long)example->record, cvy_quote(example->what));
    return boxes ? read_boxes(example, edges, record) : CVY_OK;
}

void cvy_image_record_release(struct cvy_image_record *record)
{
    cvy_free(record->boxes);
    *record = (struct cvy_image_record){0};
}

static cvy_status pack(const struct cvy_image_record_source *source, const float *edges, const int64_t *labels,
                       uint8_t **message, size_t *size)
{
    const int64_t width = source->width, height = source->height, channels = 3;
    const size_t name = strlen(source->class_name), boxes = source->box_count;
    /* The image comes last: what else a reader wants is then found in one piece before it. */
    const struct cvy_feature_value features[] = {
        {"image/class/label", CVY_FEATURE_INT64, &source->label, 1},
        {"image/class/synset", CVY_FEATURE_BYTES, source->class_name, name},
        {"image/class/text", CVY_FEATURE_BYTES, source->class_name, name},
        {"image/filename", CVY_FEATURE_BYTES, source->filename, strlen(source->filename)},
        {"image/height", CVY_FEATURE_INT64, &height, 1},
        {"image/width", CVY_FEATURE_INT64, &width, 1},
        {"image/channels", CVY_FEATURE_INT64, &channels, 1},
        {"image/colorspace", CVY_FEATURE_BYTES, "RGB", 3},
        {"image/format", CVY_FEATURE_BYTES, "JPEG", 4},
        {"image/object/bbox/xmin", CVY_FEATURE_FLOAT, edges, boxes},
        {"image/object/bbox/xmax", CVY_FEATURE_FLOAT, edges + boxes, boxes},
        {"image/object/bbox/ymin", CVY_FEATURE_FLOAT, edges + 2 * boxes, boxes},
        {"image/object/bbox/ymax", CVY_FEATURE_FLOAT, edges + 3 * boxes, boxes},
        {"image/object/bbox/label", CVY_FEATURE_INT64, labels, boxes},
        {"image/encoded", CVY_FEATURE_BYTES, source->image, source->image_size},
    };

    return cvy_example_pack(features, sizeof features / sizeof features[0], message, size);
}

/* The lists of a record: edge by edge, and the label once for each box. */
static void fill_lists(const struct cvy_image_record_source *source, float *edges, int64_t *labels)
{
    const size_t count = source->box_count;

    for (size_t i = 0; i < count; i++) {
        const struct cvy_object_box *box = &source->boxes[i];

        edges[i] = box->xmin;
        edges[count + i] = box->xmax;
        edges[2 * count + i] = box->ymin;
        edges[3 * count + i] = box->ymax;
        labels[i] = source->label;
    }
}

cvy_status cvy_image_record_pack(const struct cvy_image_record_source *source, uint8_t **message, size_t *size)
{
    const size_t boxes = source->box_count;
    float *edges = cvy_calloc(BOX_EDGES * boxes + 1, sizeof *edges);
    int64_t *labels = cvy_calloc(boxes + 1, sizeof *labels);
    cvy_status status;

    if (edges && labels) {
        fill_lists(source, edges, labels);
        status = pack(source, edges, labels, message, size);
    } else {
        status = cvy_fail_memory(boxes * sizeof *labels, "the boxes of a record");
    }
    cvy_free(edges);
    cvy_free(labels);
    return status;
}
