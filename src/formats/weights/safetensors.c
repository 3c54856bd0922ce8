#include "formats/weights/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_out.h"
#include "base/memory.h"
#include "formats/json_in.h"

enum { LENGTH_BYTES = 8, HEADER_ALIGNMENT = 8 };
/* The format's own limit. */
static const uint64_t MAX_HEADER = 100000000;
/* What the header's JSON may take beside half of the file's size: a tensor has some 600 bytes there. */
static const size_t FREE_BYTES = (size_t)16 << 20;

static const char *const type_names[CVY_DTYPE_COUNT] = {
    [CVY_F32] = "F32", [CVY_F64] = "F64", [CVY_F16] = "F16", [CVY_BF16] = "BF16", [CVY_U8] = "U8",
    [CVY_I8] = "I8",   [CVY_I32] = "I32", [CVY_I64] = "I64", [CVY_BOOL] = "BOOL",
};

/* ---- reading ---- */

/* A tensor's place in the data section while the header is checked. */
struct source {
    const char *what; /* the file, for errors */
    const unsigned char *data;
    uint64_t size; /* of the data section */
};

static cvy_status bad_tensor(const struct source *source, const char *name, const char *why)
{
    return cvy_fail(CVY_BAD_DATA, "%s: tensor %s %s", cvy_quote(source->what), cvy_quote(name), why);
}

static cvy_status read_type(const struct source *source, const struct cvy_json_value *entry, enum cvy_dtype *dtype)
{
    const char *text = cvy_json_get_string(entry, "dtype", NULL);
    if (!text)
        return bad_tensor(source, entry->key, "has no \"dtype\"");
    for (int i = 0; i < CVY_DTYPE_COUNT; i++)
        if (!strcmp(text, type_names[i])) {
            *dtype = (enum cvy_dtype)i;
            return CVY_OK;
        }
    return cvy_fail(CVY_BAD_DATA, "%s: tensor %s has the type %s, which is not supported", cvy_quote(source->what),
                    cvy_quote(entry->key), cvy_quote(text));
}

static cvy_status read_shape(const struct source *source, const struct cvy_json_value *entry, struct cvy_shape *shape)
{
    const struct cvy_json_value *list = cvy_json_get(entry, "shape");
    if (!list || list->type != CVY_JSON_ARRAY)
        return bad_tensor(source, entry->key, "has no \"shape\"");
    if (list->count > CVY_MAX_RANK)
        return cvy_fail(CVY_BAD_DATA, "%s: tensor %s has %zu dimensions; at most %d are supported",
                        cvy_quote(source->what), cvy_quote(entry->key), list->count, CVY_MAX_RANK);
    *shape = (struct cvy_shape){0};
    for (const struct cvy_json_value *item = list->first; item; item = item->next) {
        if (!item->is_integer || item->integer < 0)
            return bad_tensor(source, entry->key, "has a dimension that is not a whole number");
        shape->dim[shape->rank++] = item->integer;
    }
    return CVY_OK;
}

/* "data_offsets": [begin, end), whole numbers inside the data section. */
static cvy_status read_range(const struct source *source, const struct cvy_json_value *entry, uint64_t *begin,
                             uint64_t *end)
{
    const struct cvy_json_value *list = cvy_json_get(entry, "data_offsets");
    if (!list || list->type != CVY_JSON_ARRAY || list->count != 2)
        return bad_tensor(source, entry->key, "has no \"data_offsets\" of two numbers");
    const struct cvy_json_value *first = list->first, *second = first->next;
    if (!first->is_integer || !second->is_integer || first->integer < 0 || second->integer < first->integer)
        return bad_tensor(source, entry->key, "has impossible \"data_offsets\"");
    *begin = (uint64_t)first->integer;
    *end = (uint64_t)second->integer;
    if (*end > source->size)
        return cvy_fail(
            CVY_BAD_DATA, "%s: tensor %s ends at byte %llu of the data, but there are only %llu (truncated?)",
            cvy_quote(source->what), cvy_quote(entry->key), (unsigned long long)*end, (unsigned long long)source->size);
    return CVY_OK;
}

static cvy_status read_tensor(const struct source *source, const struct cvy_json_value *entry,
                              struct cvy_named_tensor *tensor)
{
    uint64_t begin = 0, end = 0;
    size_t bytes;
    if (entry->type != CVY_JSON_OBJECT)
        return bad_tensor(source, entry->key, "is not described by an object");
    if (!entry->key[0])
        return cvy_fail(CVY_BAD_DATA, "%s: a tensor has no name", cvy_quote(source->what));
    tensor->name = entry->key;
    CVY_TRY(read_type(source, entry, &tensor->dtype));
    CVY_TRY(read_shape(source, entry, &tensor->shape));
    CVY_TRY(read_range(source, entry, &begin, &end));
    int64_t elements = cvy_shape_elements(&tensor->shape);
    if (elements < 0 || !cvy_size_mul((size_t)elements, cvy_dtype_size(tensor->dtype), &bytes))
        return bad_tensor(source, entry->key, "has an impossible size");
    if (bytes != end - begin)
        return cvy_fail(CVY_BAD_DATA, "%s: tensor %s has %llu bytes, but its shape and type need %zu",
                        cvy_quote(source->what), cvy_quote(entry->key), (unsigned long long)(end - begin), bytes);
    tensor->data = source->data + begin;
    tensor->bytes = bytes;
    return CVY_OK;
}

/* By place in the file; empty tensors before the one that begins at the same byte. */
static int compare_places(const void *a, const void *b)
{
    const struct cvy_named_tensor *left = a, *right = b;
    if (left->data != right->data)
        return (const char *)left->data < (const char *)right->data ? -1 : 1;
    if (left->bytes != right->bytes)
        return left->bytes < right->bytes ? -1 : 1;
    return strcmp(left->name, right->name);
}

/* The tensors, in order of place, must cover the data section without a hole, an overlap or a rest. */
static cvy_status check_cover(const struct source *source, const struct cvy_tensor_file *file)
{
    const unsigned char *next = source->data;
    for (size_t i = 0; i < file->tensor_count; i++) {
        const struct cvy_named_tensor *tensor = &file->tensors[i];
        if (tensor->data != next)
            return bad_tensor(source, tensor->name,
                              (const unsigned char *)tensor->data < next ? "overlaps the one before it"
                                                                         : "leaves a hole before it");
        next += tensor->bytes;
    }
    uint64_t rest = source->size - (uint64_t)(next - source->data);
    if (rest > 0)
        return cvy_fail(CVY_BAD_DATA, "%s: %llu bytes at the end belong to no tensor", cvy_quote(source->what),
                        (unsigned long long)rest);
    return CVY_OK;
}

static cvy_status read_metadata(const struct source *source, struct cvy_tensor_file *file,
                                const struct cvy_json_value *object)
{
    if (object->type != CVY_JSON_OBJECT)
        return cvy_fail(CVY_BAD_DATA, "%s: \"__metadata__\" is not an object", cvy_quote(source->what));
    file->metadata = cvy_arena_alloc(&file->arena, object->count * sizeof *file->metadata);
    if (!file->metadata)
        return cvy_fail_memory(object->count * sizeof *file->metadata, "metadata");
    for (const struct cvy_json_value *entry = object->first; entry; entry = entry->next) {
        if (entry->type != CVY_JSON_STRING)
            return cvy_fail(CVY_BAD_DATA, "%s: the metadata entry %s is not a string", cvy_quote(source->what),
                            cvy_quote(entry->key));
        file->metadata[file->metadata_count++] = (struct cvy_tensor_meta){entry->key, entry->text};
    }
    return CVY_OK;
}

/* The length of the JSON header, checked against the file. */
static cvy_status read_header_length(const char *what, const unsigned char *bytes, size_t size, size_t *length)
{
    uint64_t value = 0;
    if (size < LENGTH_BYTES)
        return cvy_fail(CVY_BAD_DATA, "%s: not a safetensors file: only %s long", cvy_quote(what),
                        cvy_counted((int64_t)size, "byte"));
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    if (value > MAX_HEADER)
        return cvy_fail(CVY_BAD_DATA, "%s: not a safetensors file: a header of %llu bytes is over the limit of %llu",
                        cvy_quote(what), (unsigned long long)value, (unsigned long long)MAX_HEADER);
    if (value > size - LENGTH_BYTES)
        return cvy_fail(CVY_BAD_DATA, "%s: truncated inside the header", cvy_quote(what));
    if (value < 2 || bytes[LENGTH_BYTES] != '{')
        return cvy_fail(CVY_BAD_DATA, "%s: not a safetensors file: no header", cvy_quote(what));
    *length = (size_t)value;
    return CVY_OK;
}

cvy_status cvy_st_open_memory(struct cvy_tensor_file *file, const char *what, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    struct cvy_json_value *root;
    size_t length = 0;
    cvy_status status;
    *file = (struct cvy_tensor_file){0};
    CVY_GOTO(read_header_length(what, bytes, size, &length));
    CVY_GOTO(cvy_json_parse_within(what, (const char *)bytes + LENGTH_BYTES, length, FREE_BYTES + size / 2,
                                   &file->arena, &root));

    struct source source = {what, bytes + LENGTH_BYTES + length, size - LENGTH_BYTES - length};
    size_t table = root->count * sizeof *file->tensors; /* the parser limits count */
    file->tensors = cvy_arena_alloc(&file->arena, table);
    if (!file->tensors) {
        status = cvy_fail_memory(table, "the tensor table");
        goto fail;
    }
    for (const struct cvy_json_value *entry = root->first; entry; entry = entry->next)
        if (!strcmp(entry->key, "__metadata__"))
            CVY_GOTO(read_metadata(&source, file, entry));
        else
            CVY_GOTO(read_tensor(&source, entry, &file->tensors[file->tensor_count++]));
    qsort(file->tensors, file->tensor_count, sizeof *file->tensors, compare_places);
    CVY_GOTO(check_cover(&source, file));
    return CVY_OK;

fail:
    cvy_tensor_file_close(file);
    return status;
}

cvy_status cvy_st_open(struct cvy_tensor_file *file, const char *path)
{
    struct cvy_mapping mapping;
    *file = (struct cvy_tensor_file){0};
    CVY_TRY(cvy_file_map(path, &mapping));
    cvy_status status = cvy_st_open_memory(file, path, mapping.data, mapping.size);
    if (status != CVY_OK) {
        cvy_file_unmap(&mapping);
        return status;
    }
    file->mapping = mapping;
    return CVY_OK;
}

/* ---- writing ---- */

/* Bytes of a tensor's data by its shape; CVY_FAILED for a shape that no memory can hold. */
static cvy_status data_bytes(const struct cvy_named_tensor *tensor, size_t *bytes)
{
    int64_t elements = cvy_shape_elements(&tensor->shape);
    if (elements < 0 || !cvy_size_mul((size_t)elements, cvy_dtype_size(tensor->dtype), bytes) ||
        *bytes > (size_t)INT64_MAX / 2)
        return cvy_fail(CVY_FAILED, "tensor %s has an impossible size", cvy_quote(tensor->name));
    return CVY_OK;
}

/* The order of the data: by alignment, largest first, so that every tensor lies aligned; then as given. */
static void order_tensors(const struct cvy_named_tensor *tensors, size_t count, const struct cvy_named_tensor **order)
{
    size_t placed = 0;
    for (size_t size = 8; size > 0; size /= 2)
        for (size_t i = 0; i < count; i++)
            if (cvy_dtype_size(tensors[i].dtype) == size)
                order[placed++] = &tensors[i];
}

static cvy_status make_header(const struct cvy_named_tensor *const *order, size_t tensor_count,
                              const struct cvy_tensor_meta *metadata, size_t metadata_count, struct cvy_text *header)
{
    struct cvy_json json = {.text = header};
    size_t offset = 0, bytes = 0;
    cvy_json_begin_object(&json);
    if (metadata_count > 0) {
        cvy_json_key(&json, "__metadata__");
        cvy_json_begin_object(&json);
        for (size_t i = 0; i < metadata_count; i++) {
            cvy_json_key(&json, metadata[i].key);
            cvy_json_string(&json, metadata[i].value);
        }
        cvy_json_end_object(&json);
    }
    for (size_t i = 0; i < tensor_count; i++) {
        const struct cvy_named_tensor *tensor = order[i];
        size_t end;
        CVY_TRY(data_bytes(tensor, &bytes));
        if (!cvy_size_add(offset, bytes, &end) || end > INT64_MAX)
            return cvy_fail(CVY_FAILED, "the tensors are too large for one file");
        cvy_json_key(&json, tensor->name);
        cvy_json_begin_object(&json);
        cvy_json_key(&json, "dtype");
        cvy_json_string(&json, type_names[tensor->dtype]);
        cvy_json_key(&json, "shape");
        cvy_json_begin_array(&json);
        for (int32_t d = 0; d < tensor->shape.rank; d++)
            cvy_json_int(&json, tensor->shape.dim[d]);
        cvy_json_end_array(&json);
        cvy_json_key(&json, "data_offsets");
        cvy_json_begin_array(&json);
        cvy_json_int(&json, (int64_t)offset);
        cvy_json_int(&json, (int64_t)end);
        cvy_json_end_array(&json);
        cvy_json_end_object(&json);
        offset = end;
    }
    cvy_json_end_object(&json);
    while (!header->failed && header->length % HEADER_ALIGNMENT != 0)
        cvy_text_puts(header, " ");
    if (header->failed)
        return cvy_fail_memory(header->capacity * 2, "a safetensors header");
    if (header->length > MAX_HEADER)
        return cvy_fail(CVY_FAILED, "a safetensors header of %zu bytes is over the limit", header->length);
    return CVY_OK;
}

static cvy_status write_parts(struct cvy_output *output, const struct cvy_text *header,
                              const struct cvy_named_tensor *const *order, size_t tensor_count)
{
    unsigned char length[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (unsigned char)((uint64_t)header->length >> (8 * i));
    CVY_TRY(cvy_output_write(output, length, sizeof length));
    CVY_TRY(cvy_output_write(output, header->text, header->length));
    for (size_t i = 0; i < tensor_count; i++) {
        size_t bytes = 0;
        CVY_TRY(data_bytes(order[i], &bytes));
        CVY_TRY(cvy_output_write(output, order[i]->data, bytes));
    }
    return CVY_OK;
}

cvy_status cvy_st_write(const char *path, const struct cvy_named_tensor *tensors, size_t tensor_count,
                        const struct cvy_tensor_meta *metadata, size_t metadata_count)
{
    const struct cvy_tensor_file none = {0};

    return cvy_st_write_from(&none, path, path, tensors, tensor_count, metadata, metadata_count);
}

cvy_status cvy_st_write_from(const struct cvy_tensor_file *source, const char *what, const char *path,
                             const struct cvy_named_tensor *tensors, size_t tensor_count,
                             const struct cvy_tensor_meta *metadata, size_t metadata_count)
{
    struct cvy_text header = {0};
    struct cvy_output output = {0};
    cvy_status status;
    const struct cvy_named_tensor **order = cvy_calloc(tensor_count, sizeof *order);
    if (!order) {
        status = cvy_fail_memory(tensor_count * sizeof *order, "the tensor table");
        goto fail;
    }
    order_tensors(tensors, tensor_count, order);
    CVY_GOTO(make_header(order, tensor_count, metadata, metadata_count, &header));
    CVY_GOTO(cvy_output_open(&output, path));
    status = write_parts(&output, &header, order, tensor_count);
    CVY_GOTO(cvy_tensor_file_changed(source, what, status));
    status = cvy_output_commit(&output);

fail:
    cvy_output_abort(&output);
    cvy_text_release(&header);
    cvy_free(order);
    return status;
}
