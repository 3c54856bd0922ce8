#include <example.pb-c.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "formats/container/example.h"

/* One feature with everything that protobuf-c wants to point to. */
struct part {
    Cvy__Features__FeatureEntry entry;
    Cvy__Feature feature;
    Cvy__BytesList bytes;
    Cvy__FloatList floats;
    Cvy__Int64List integers;
    ProtobufCBinaryData string, *strings; /* strings: of a list of texts; freed */
};

/* A list of byte strings: one, or texts. */
static cvy_status fill_bytes(struct part *part, const struct cvy_feature_value *value, void *values)
{
    const bool texts = value->kind == CVY_FEATURE_TEXTS;

    cvy__bytes_list__init(&part->bytes);
    part->bytes.n_value = texts ? value->count : 1;
    part->bytes.value = &part->string;
    part->string = (ProtobufCBinaryData){value->count, values};
    if (texts) {
        part->strings = part->bytes.value = cvy_calloc(value->count + 1, sizeof *part->strings);
        if (!part->strings)
            return cvy_fail_memory(value->count * sizeof *part->strings, "a record");
        for (size_t i = 0; i < value->count; i++) {
            char *text = ((char **)values)[i];
            part->strings[i] = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
        }
    }
    part->feature.kind_case = CVY__FEATURE__KIND_BYTES_LIST;
    part->feature.bytes_list = &part->bytes;
    return CVY_OK;
}

static cvy_status fill(struct part *part, const struct cvy_feature_value *value)
{
    /* What is packed is only read, but protobuf-c has no const. */
    void *values = (void *)(uintptr_t)value->values;

    cvy__features__feature_entry__init(&part->entry);
    cvy__feature__init(&part->feature);
    part->entry.key = (char *)(uintptr_t)value->key;
    part->entry.value = &part->feature;
    switch (value->kind) {
    case CVY_FEATURE_NONE:
        break;
    case CVY_FEATURE_BYTES:
    case CVY_FEATURE_TEXTS:
        return fill_bytes(part, value, values);
    case CVY_FEATURE_FLOAT:
        cvy__float_list__init(&part->floats);
        part->floats.n_value = value->count;
        part->floats.value = values;
        part->feature.kind_case = CVY__FEATURE__KIND_FLOAT_LIST;
        part->feature.float_list = &part->floats;
        break;
    case CVY_FEATURE_INT64:
        cvy__int64_list__init(&part->integers);
        part->integers.n_value = value->count;
        part->integers.value = values;
        part->feature.kind_case = CVY__FEATURE__KIND_INT64_LIST;
        part->feature.int64_list = &part->integers;
        break;
    }
    return CVY_OK;
}

cvy_status cvy_example_pack(const struct cvy_feature_value *values, size_t count, uint8_t **message, size_t *size)
{
    cvy_status status = CVY_OK;
    Cvy__Features features = CVY__FEATURES__INIT;
    Cvy__Example example = CVY__EXAMPLE__INIT;
    struct part *parts = cvy_calloc(count + 1, sizeof *parts);
    Cvy__Features__FeatureEntry **entries = cvy_calloc(count + 1, sizeof *entries);

    *message = NULL;
    *size = 0;
    if (!parts || !entries) {
        status = cvy_fail_memory((count + 1) * sizeof *parts, "a record");
        goto fail;
    }
    for (size_t i = 0; i < count; i++) {
        CVY_GOTO(fill(&parts[i], &values[i]));
        entries[i] = &parts[i].entry;
    }
    features.n_feature = count;
    features.feature = entries;
    example.features = &features;
    const size_t bytes = cvy__example__get_packed_size(&example);
    if (bytes > INT32_MAX) {
        status = cvy_fail(CVY_BAD_DATA, "a record of %zu bytes is more than the format can hold", bytes);
        goto fail;
    }
    *message = cvy_realloc(NULL, bytes + 1, 1);
    if (!*message) {
        status = cvy_fail_memory(bytes, "a record");
        goto fail;
    }
    *size = cvy__example__pack(&example, *message);
fail:
    for (size_t i = 0; parts && i < count; i++)
        cvy_free(parts[i].strings);
    cvy_free(parts);
    cvy_free(entries);
    return status;
}
