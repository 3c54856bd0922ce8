/* protobuf's wire format, as far as tf.train.Example needs it. A field is a varint of (number << 3 | type) and a value:
 * type 0 a varint, 1 eight bytes, 2 a length and that many bytes, 5 four bytes. Nested messages are byte strings.
 * Messages that say the same thing twice where it can be said once (a feature with two lists) are refused; no writer
 * makes them. */
#include "formats/container/example.h"

#include <string.h>

#include "base/error.h"
#include "base/file.h"

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* One field: the value's place in the message (without the length of byte strings), or the value of a varint. */
struct field {
    uint64_t number;
    enum wire wire;
    uint64_t value;
    size_t from, end;
};

static cvy_status damaged(const struct cvy_example *example, const char *why)
{
    return cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s is no tf.train.Example: %s",
                    (unsigned long long)example->record, cvy_quote(example->what), why);
}

void cvy_example_open_memory(struct cvy_example *example, const char *what, uint64_t record, const void *data,
                             size_t size)
{
    *example = (struct cvy_example){.what = what, .record = record, .size = size, .data = data, .file = -1};
}

void cvy_example_open_file(struct cvy_example *example, const char *what, uint64_t record, int file, uint64_t begin,
                           size_t size)
{
    *example = (struct cvy_example){.what = what, .record = record, .size = size, .file = file, .begin = begin};
}

/* ---- bytes ---- */

static cvy_status fill_window(struct cvy_example *example, size_t at)
{
    const size_t want = example->size - at < CVY_EXAMPLE_WINDOW ? example->size - at : CVY_EXAMPLE_WINDOW;

    example->window_from = at;
    CVY_TRY(cvy_file_read_at(example->what, example->file, example->begin + at, example->window, want,
                             &example->window_count));
    return example->window_count == want ? CVY_OK : damaged(example, "the file ends within it");
}

/* `count` bytes at `at`, which lie in the message; count is at most CVY_EXAMPLE_WINDOW. */
static cvy_status look(struct cvy_example *example, size_t at, size_t count, const uint8_t **bytes)
{
    if (example->data) {
        *bytes = example->data + at;
        return CVY_OK;
    }
    if (at < example->window_from || at + count > example->window_from + example->window_count)
        CVY_TRY(fill_window(example, at));
    *bytes = example->window + (at - example->window_from);
    return CVY_OK;
}

static cvy_status read_varint(struct cvy_example *example, size_t *at, size_t end, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        const uint8_t *byte;
        if (*at >= end)
            return damaged(example, "a number ends early");
        CVY_TRY(look(example, *at, 1, &byte));
        ++*at;
        if (shift < 64)
            *value |= (uint64_t)(*byte & 127) << shift;
        if (!(*byte & 128))
            return CVY_OK;
    }
    return damaged(example, "a number of more than ten bytes");
}

/* The field at *at of a message that ends at `end`; *at moves after it. */
static cvy_status read_field(struct cvy_example *example, size_t *at, size_t end, struct field *field)
{
    uint64_t tag, length = 0;

    CVY_TRY(read_varint(example, at, end, &tag));
    field->number = tag >> 3;
    field->wire = (enum wire)(tag & 7);
    field->from = *at;
    switch (field->wire) {
    case WIRE_VARINT:
        CVY_TRY(read_varint(example, at, end, &field->value));
        break;
    case WIRE_64:
        length = 8;
        break;
    case WIRE_32:
        length = 4;
        break;
    case WIRE_BYTES:
        CVY_TRY(read_varint(example, at, end, &length));
        field->from = *at;
        break;
    default:
        return damaged(example, "a field of an unknown kind");
    }
    if (field->number == 0 || field->number > UINT32_MAX >> 3)
        return damaged(example, "a field with a number that cannot be");
    if (length > end - *at)
        return damaged(example, "a field is longer than what holds it");
    *at += (size_t)length;
    field->end = *at;
    return CVY_OK;
}

cvy_status cvy_example_text(struct cvy_example *example, size_t from, size_t length, char *text, size_t size)
{
    const size_t count = length < size - 1 ? length : size - 1;
    const uint8_t *bytes;

    if (count > CVY_EXAMPLE_WINDOW)
        return cvy_fail(CVY_FAILED, "a text of %zu bytes is more than can be read", count);
    text[0] = 0;
    if (count == 0)
        return CVY_OK;
    CVY_TRY(look(example, from, count, &bytes));
    memcpy(text, bytes, count);
    text[count] = 0;
    return CVY_OK;
}

/* ---- features ---- */

static cvy_status read_kind(struct cvy_example *example, size_t at, size_t end, struct cvy_feature *feature)
{
    struct field field;

    while (at < end) {
        CVY_TRY(read_field(example, &at, end, &field));
        if (field.number > CVY_FEATURE_INT64)
            continue;
        if (field.wire != WIRE_BYTES || feature->kind != CVY_FEATURE_NONE)
            return damaged(example, "a feature that is not one list");
        feature->kind = (enum cvy_feature_kind)field.number;
        feature->from = field.from;
        feature->end = field.end;
    }
    return CVY_OK;
}

/* An entry of the map: its key and its feature. */
static cvy_status read_entry(struct cvy_example *example, size_t at, size_t end, struct cvy_feature *feature)
{
    struct field field;
    bool has_key = false, has_value = false;

    *feature = (struct cvy_feature){0};
    while (at < end) {
        CVY_TRY(read_field(example, &at, end, &field));
        if (field.number > 2)
            continue;
        if (field.wire != WIRE_BYTES || (field.number == 1 ? has_key : has_value))
            return damaged(example, "a feature is not a name and a value");
        if (field.number == 1) {
            has_key = true;
            CVY_TRY(cvy_example_text(example, field.from, field.end - field.from, feature->key, sizeof feature->key));
        } else {
            has_value = true;
            CVY_TRY(read_kind(example, field.from, field.end, feature));
        }
    }
    return CVY_OK;
}

cvy_status cvy_example_next(struct cvy_example *example, struct cvy_feature *feature, bool *found)
{
    struct field field;

    *found = false;
    for (;;) {
        const bool inside = example->at < example->features_end;
        if (!inside && example->at >= example->size)
            return CVY_OK;
        CVY_TRY(read_field(example, &example->at, inside ? example->features_end : example->size, &field));
        if (field.number != 1)
            continue;
        if (field.wire != WIRE_BYTES)
            return damaged(example, inside ? "a feature is not a message" : "its features are not a message");
        if (inside) {
            *found = true;
            return read_entry(example, field.from, field.end, feature);
        }
        example->at = field.from;
        example->features_end = field.end;
    }
}

/* ---- lists ---- */

static cvy_status expect_kind(const struct cvy_example *example, const struct cvy_feature *feature,
                              enum cvy_feature_kind kind)
{
    if (feature->kind == kind || feature->kind == CVY_FEATURE_NONE)
        return CVY_OK;
    return cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s has a feature %s of another type than expected",
                    (unsigned long long)example->record, cvy_quote(example->what), cvy_quote(feature->key));
}

cvy_status cvy_feature_bytes(struct cvy_example *example, const struct cvy_feature *feature, size_t *from,
                             size_t *length, size_t *count)
{
    struct field field;

    *from = *length = *count = 0;
    CVY_TRY(expect_kind(example, feature, CVY_FEATURE_BYTES));
    for (size_t at = feature->from; at < feature->end;) {
        CVY_TRY(read_field(example, &at, feature->end, &field));
        if (field.number != 1)
            continue;
        if (field.wire != WIRE_BYTES)
            return damaged(example, "a list of something else than byte strings");
        if (*count == 0) {
            *from = field.from;
            *length = field.end - field.from;
        }
        ++*count;
    }
    return CVY_OK;
}

cvy_status cvy_feature_next_text(struct cvy_example *example, const struct cvy_feature *feature, size_t *at, char *text,
                                 size_t size, bool *found)
{
    struct field field;

    *found = false;
    CVY_TRY(expect_kind(example, feature, CVY_FEATURE_BYTES));
    if (*at == 0)
        *at = feature->from;
    while (!*found && *at < feature->end) {
        CVY_TRY(read_field(example, at, feature->end, &field));
        if (field.number != 1)
            continue;
        if (field.wire != WIRE_BYTES)
            return damaged(example, "a list of something else than byte strings");
        CVY_TRY(cvy_example_text(example, field.from, field.end - field.from, text, size));
        *found = true;
    }
    return CVY_OK;
}

cvy_status cvy_feature_int64(struct cvy_example *example, const struct cvy_feature *feature, int64_t *values,
                             size_t limit, size_t *count)
{
    struct field field;

    *count = 0;
    CVY_TRY(expect_kind(example, feature, CVY_FEATURE_INT64));
    for (size_t at = feature->from; at < feature->end;) {
        CVY_TRY(read_field(example, &at, feature->end, &field));
        if (field.number != 1)
            continue;
        if (field.wire != WIRE_VARINT && field.wire != WIRE_BYTES)
            return damaged(example, "a list of something else than integers");
        if (field.wire == WIRE_VARINT) {
            if (*count < limit)
                values[*count] = (int64_t)field.value;
            ++*count;
            continue;
        }
        for (size_t packed = field.from; packed < field.end; ++*count) {
            uint64_t value;
            CVY_TRY(read_varint(example, &packed, field.end, &value));
            if (*count < limit)
                values[*count] = (int64_t)value;
        }
    }
    return CVY_OK;
}

cvy_status cvy_feature_floats(struct cvy_example *example, const struct cvy_feature *feature, float *values,
                              size_t limit, size_t *count)
{
    struct field field;

    *count = 0;
    CVY_TRY(expect_kind(example, feature, CVY_FEATURE_FLOAT));
    for (size_t at = feature->from; at < feature->end;) {
        CVY_TRY(read_field(example, &at, feature->end, &field));
        if (field.number != 1)
            continue;
        /* One value, or several in one string. */
        if ((field.wire != WIRE_32 && field.wire != WIRE_BYTES) || (field.end - field.from) % 4 != 0)
            return damaged(example, "a list of something else than floats");
        for (size_t one = field.from; one < field.end; one += 4, ++*count) {
            const uint8_t *b;
            if (*count >= limit)
                continue;
            CVY_TRY(look(example, one, 4, &b));
            const uint32_t bits = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
            memcpy(&values[*count], &bits, 4);
        }
    }
    return CVY_OK;
}
