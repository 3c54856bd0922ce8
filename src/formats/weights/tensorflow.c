#include "formats/weights/tensorflow.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/crc32c.h"
#include "formats/weights/table.h"

enum { MAX_TENSORS = 65536, MAX_PARTS = 4096 };

/* TensorFlow's numbers of element types (tensorflow/core/framework/types.proto) that are known here. */
enum { TYPE_FLOAT = 1, TYPE_DOUBLE = 2, TYPE_STRING = 7, TYPES = 20 };
static const struct type {
    bool known;
    enum cvy_dtype dtype;
} types[TYPES] = {
    [TYPE_FLOAT] = {true, CVY_F32}, [TYPE_DOUBLE] = {true, CVY_F64}, [3] = {true, CVY_I32},   [4] = {true, CVY_U8},
    [6] = {true, CVY_I8},           [9] = {true, CVY_I64},           [10] = {true, CVY_BOOL}, [14] = {true, CVY_BF16},
    [19] = {true, CVY_F16},
};

uint64_t cvy_tensorflow_type(enum cvy_dtype dtype)
{
    uint64_t number = 0;

    while (!types[number].known || types[number].dtype != dtype)
        number++;
    return number;
}

struct reader {
    struct cvy_tensor_file *file;
    const char *what;
    const struct cvy_mapping *part; /* NULL: of the file's own */
    uint64_t *used;                 /* (part_count) bytes of it that belong to tensors so far */
    size_t capacity;                /* of file->tensors */
    bool begun, older;
};

static cvy_status damaged(const struct reader *r, const char *name, const char *why)
{
    if (!name)
        return cvy_fail(CVY_BAD_DATA, "%s is a damaged TensorFlow checkpoint: %s", cvy_quote(r->what), why);
    return cvy_fail(CVY_BAD_DATA, "%s: tensor %s %s", cvy_quote(r->what), cvy_quote(name), why);
}

/* ---- what both kinds share ---- */

/* TensorShapeProto: field 2, for each dimension a message with its size as field 1. */
static cvy_status read_shape(const struct reader *r, const char *name, struct cvy_wire message, struct cvy_shape *shape)
{
    struct cvy_wire_field dimension, field;

    *shape = (struct cvy_shape){0};
    while (cvy_wire_next(&message, &dimension)) {
        if (dimension.number != 2 || dimension.type != CVY_WIRE_BYTES)
            return damaged(r, name, "has a shape that is not known");
        if (shape->rank == CVY_MAX_RANK)
            return damaged(r, name, "has more dimensions than are supported");
        int64_t *size = &shape->dim[shape->rank++];
        while (cvy_wire_next(&dimension.bytes, &field))
            if (field.number == 1 && field.type == CVY_WIRE_VARINT)
                *size = field.value > INT64_MAX ? -1 : (int64_t)field.value;
        if (cvy_wire_failed(&dimension.bytes))
            return damaged(r, name, "has a damaged shape");
    }
    return cvy_wire_failed(&message) ? damaged(r, name, "has a damaged shape") : CVY_OK;
}

/* Bytes by shape and type. */
static cvy_status set_bytes(const struct reader *r, struct cvy_named_tensor *tensor)
{
    const int64_t elements = cvy_shape_elements(&tensor->shape);

    if (elements < 0 || !cvy_size_mul((size_t)elements, cvy_dtype_size(tensor->dtype), &tensor->bytes))
        return damaged(r, tensor->name, "has an impossible size");
    return CVY_OK;
}

static cvy_status read_type(const struct reader *r, const char *name, uint64_t number, enum cvy_dtype *dtype)
{
    if (number >= TYPES || !types[number].known)
        return cvy_fail(CVY_BAD_DATA, "%s: tensor %s has TensorFlow's type %llu, which is not supported",
                        cvy_quote(r->what), cvy_quote(name), (unsigned long long)number);
    *dtype = types[number].dtype;
    return CVY_OK;
}

/* Room for one more; its name is copied. */
static cvy_status add_tensor(struct reader *r, const char *name, size_t length, struct cvy_named_tensor **tensor)
{
    struct cvy_tensor_file *file = r->file;

    if (length == 0 || strnlen(name, length) != length || length > CVY_TABLE_KEY)
        return damaged(r, NULL, "a tensor has no name");
    if (file->tensor_count == MAX_TENSORS)
        return damaged(r, NULL, "there are too many tensors");
    if (file->tensor_count == r->capacity) {
        const size_t wanted = r->capacity ? 2 * r->capacity : 256, bytes = wanted * sizeof *file->tensors;
        struct cvy_named_tensor *more = cvy_arena_alloc(&file->arena, bytes);

        if (!more)
            return cvy_fail_memory(bytes, "the tensor table");
        if (file->tensor_count > 0)
            memcpy(more, file->tensors, file->tensor_count * sizeof *more);
        file->tensors = more;
        r->capacity = wanted;
    }
    *tensor = &file->tensors[file->tensor_count];
    **tensor = (struct cvy_named_tensor){.name = cvy_arena_printf(&file->arena, "%.*s", (int)length, name)};
    if (!(*tensor)->name)
        return cvy_fail_memory(length, "a tensor name");
    file->tensor_count++;
    return CVY_OK;
}

/* ---- an index and its data files ---- */

/* BundleHeaderProto: 1 the number of data files, 2 their byte order (0: little-endian). */
static cvy_status read_header(struct reader *r, struct cvy_wire message)
{
    struct cvy_tensor_file *file = r->file;
    struct cvy_wire_field field;
    uint64_t parts = 0, big_endian = 0;

    while (cvy_wire_next(&message, &field)) {
        if (field.number == 1)
            parts = field.value;
        else if (field.number == 2)
            big_endian = field.value;
    }
    if (cvy_wire_failed(&message) || parts < 1 || parts > MAX_PARTS)
        return damaged(r, NULL, "its header is damaged");
    if (big_endian)
        return cvy_fail(CVY_BAD_DATA, "%s was written by a big-endian machine", cvy_quote(r->what));
    file->parts = cvy_arena_alloc(&file->arena, (size_t)parts * sizeof *file->parts);
    r->used = cvy_arena_alloc(&file->arena, (size_t)parts * sizeof *r->used);
    if (!file->parts || !r->used)
        return cvy_fail_memory((size_t)parts * sizeof *file->parts, "the list of data files");
    file->part_count = (size_t)parts;
    return CVY_OK;
}

/* NAME.data-00000-of-00001 for NAME.index. */
static cvy_status open_part(const struct reader *r, size_t number, const struct cvy_mapping **part)
{
    const size_t length = strlen(r->what), suffix = strlen(CVY_TENSORFLOW_SUFFIX);
    struct cvy_mapping *own = &r->file->parts[number];
    struct cvy_arena arena = {0};
    const char *path;
    cvy_status status;

    *part = r->part ? r->part : own;
    if ((*part)->data)
        return CVY_OK;
    if (length <= suffix || strcmp(r->what + length - suffix, CVY_TENSORFLOW_SUFFIX) != 0)
        return cvy_fail(CVY_BAD_DATA,
                        "%s is the index of a TensorFlow checkpoint: its name must end with " CVY_TENSORFLOW_SUFFIX
                        ", for the data files beside it begin like it",
                        cvy_quote(r->what));
    path = cvy_arena_printf(&arena, "%.*s.data-%05zu-of-%05zu", (int)(length - suffix), r->what, number,
                            r->file->part_count);
    status = path ? cvy_file_map(path, own) : cvy_fail_memory(length, "a file name");
    cvy_arena_release(&arena);
    return status;
}

/* BundleEntryProto: 1 type, 2 shape, 3 data file, 4 offset, 5 bytes, 6 masked CRC-32C, 7 slices of a tensor in parts.
 */
struct entry {
    uint64_t type, part, offset, bytes, sum;
    struct cvy_wire shape;
    bool sliced;
};

static cvy_status parse_entry(const struct reader *r, const char *name, struct cvy_wire message, struct entry *entry)
{
    struct cvy_wire_field field;

    *entry = (struct entry){.shape = {message.at, message.at}};
    while (cvy_wire_next(&message, &field)) {
        uint64_t *const numbers[] = {NULL,           &entry->type,  NULL,       &entry->part,
                                     &entry->offset, &entry->bytes, &entry->sum};

        if (field.number == 7)
            entry->sliced = true;
        else if (field.number == 2 && field.type == CVY_WIRE_BYTES)
            entry->shape = field.bytes;
        else if (field.number < sizeof numbers / sizeof *numbers && numbers[field.number])
            *numbers[field.number] = field.value;
    }
    return cvy_wire_failed(&message) ? damaged(r, name, "has a damaged entry") : CVY_OK;
}

static cvy_status read_entry(struct reader *r, const struct cvy_table_entry *from)
{
    struct cvy_named_tensor *tensor;
    const struct cvy_mapping *part;
    struct entry entry;

    CVY_TRY(parse_entry(r, from->key, from->value, &entry));
    if (entry.sliced)
        return damaged(r, from->key, "is saved in parts, which is not supported");
    if (entry.type == TYPE_STRING ||
        (from->key_size > 0 && !from->key[0])) /* a slice: its tensor follows, and says so */
        return CVY_OK;
    CVY_TRY(add_tensor(r, from->key, from->key_size, &tensor));
    CVY_TRY(read_type(r, tensor->name, entry.type, &tensor->dtype));
    CVY_TRY(read_shape(r, tensor->name, entry.shape, &tensor->shape));
    CVY_TRY(set_bytes(r, tensor));
    if (entry.bytes != tensor->bytes)
        return damaged(r, tensor->name, "has other bytes than its shape and type need");
    if (entry.part >= r->file->part_count)
        return damaged(r, tensor->name, "lies in a data file that there is not");
    CVY_TRY(open_part(r, (size_t)entry.part, &part));
    if (entry.offset > part->size || entry.bytes > part->size - entry.offset)
        return damaged(r, tensor->name, "lies beyond the end of its data file (truncated?)");
    r->used[entry.part] += entry.bytes;
    if (r->used[entry.part] > part->size)
        return damaged(r, tensor->name, "lies where another one does");
    tensor->data = entry.bytes > 0 ? (const uint8_t *)part->data + entry.offset : (const uint8_t *)"";
    if (entry.sum != cvy_crc32c_mask(cvy_crc32c(0, tensor->data, tensor->bytes)))
        return damaged(r, tensor->name, "is damaged: its checksum is wrong");
    return CVY_OK;
}

/* ---- the older kind ---- */

/* SavedSliceMeta: 1 name, 2 shape, 3 type. */
static cvy_status read_described(struct reader *r, struct cvy_wire message)
{
    struct cvy_wire name = {message.at, message.at}, shape = name;
    struct cvy_named_tensor *tensor;
    struct cvy_wire_field field;
    uint64_t type = 0;

    while (cvy_wire_next(&message, &field)) {
        if (field.number == 1 && field.type == CVY_WIRE_BYTES)
            name = field.bytes;
        else if (field.number == 2 && field.type == CVY_WIRE_BYTES)
            shape = field.bytes;
        else if (field.number == 3)
            type = field.value;
    }
    if (cvy_wire_failed(&message))
        return damaged(r, NULL, "its list of tensors is damaged");
    if (type != TYPE_FLOAT && type != TYPE_DOUBLE) /* such as the number of steps */
        return CVY_OK;
    CVY_TRY(add_tensor(r, (const char *)name.at, cvy_wire_size(&name), &tensor));
    CVY_TRY(read_type(r, tensor->name, type, &tensor->dtype));
    CVY_TRY(read_shape(r, tensor->name, shape, &tensor->shape));
    return set_bytes(r, tensor);
}

static int compare_tensors(const void *a, const void *b)
{
    const struct cvy_named_tensor *left = a, *right = b;

    return strcmp(left->name, right->name);
}

/* SavedTensorSlices: 1 SavedTensorSliceMeta, whose field 1 describes one tensor after the other. */
static cvy_status read_contents(struct reader *r, struct cvy_wire message)
{
    struct cvy_wire_field contents, field;

    while (cvy_wire_next(&message, &contents)) {
        if (contents.number != 1 || contents.type != CVY_WIRE_BYTES)
            continue;
        while (cvy_wire_next(&contents.bytes, &field))
            if (field.number == 1 && field.type == CVY_WIRE_BYTES)
                CVY_TRY(read_described(r, field.bytes));
        if (cvy_wire_failed(&contents.bytes))
            return damaged(r, NULL, "its list of tensors is damaged");
    }
    if (cvy_wire_failed(&message))
        return damaged(r, NULL, "its list of tensors is damaged");
    if (r->file->tensor_count > 0)
        qsort(r->file->tensors, r->file->tensor_count, sizeof *r->file->tensors, compare_tensors);
    return CVY_OK;
}

/* The packed list of a TensorProto: field 5 has floats, 6 doubles. */
static cvy_status read_values(const struct reader *r, struct cvy_named_tensor *tensor, struct cvy_wire message)
{
    const uint64_t list = tensor->dtype == CVY_F32 ? 5 : 6;
    struct cvy_wire values = {message.at, message.at};
    struct cvy_wire_field field;

    while (cvy_wire_next(&message, &field))
        if (field.number == list && field.type == CVY_WIRE_BYTES)
            values = field.bytes;
    if (cvy_wire_failed(&message))
        return damaged(r, tensor->name, "has damaged values");
    if (cvy_wire_size(&values) != tensor->bytes)
        return damaged(r, tensor->name, "has more or fewer values than its shape, or is saved in parts");
    tensor->data = values.at;
    return CVY_OK;
}

/* SavedTensorSlices: 2 SavedSlice: 1 name, 3 TensorProto. That it is the whole tensor, the number of values says. */
static cvy_status read_slice(struct reader *r, const struct cvy_table_entry *from)
{
    struct cvy_wire message = from->value, slice, name, values;
    struct cvy_wire_field field;
    struct cvy_named_tensor key = {0}, *tensor;
    char text[CVY_TABLE_KEY + 1];

    slice = name = values = (struct cvy_wire){message.at, message.at};
    while (cvy_wire_next(&message, &field))
        if (field.number == 2 && field.type == CVY_WIRE_BYTES)
            slice = field.bytes;
    while (cvy_wire_next(&slice, &field)) {
        if (field.number == 1 && field.type == CVY_WIRE_BYTES)
            name = field.bytes;
        else if (field.number == 3 && field.type == CVY_WIRE_BYTES)
            values = field.bytes;
    }
    if (cvy_wire_failed(&message) || cvy_wire_failed(&slice) || cvy_wire_size(&name) > CVY_TABLE_KEY)
        return damaged(r, NULL, "an entry is none of a tensor");
    memcpy(text, name.at, cvy_wire_size(&name));
    text[cvy_wire_size(&name)] = '\0';
    key.name = text;
    if (r->file->tensor_count == 0)
        return CVY_OK;
    tensor = bsearch(&key, r->file->tensors, r->file->tensor_count, sizeof key, compare_tensors);
    return tensor ? read_values(r, tensor, values) : CVY_OK; /* NULL: of a type that is not read */
}

static cvy_status check_complete(const struct reader *r)
{
    for (size_t i = 0; i < r->file->tensor_count; i++)
        if (!r->file->tensors[i].data)
            return damaged(r, r->file->tensors[i].name, "has no values");
    return CVY_OK;
}

/* ---- files ---- */

/* The first entry has no key: it tells the kinds apart. That of an index begins with a number, the older one with a
 * message. */
static cvy_status read_any(void *context, const struct cvy_table_entry *entry)
{
    struct reader *r = context;
    struct cvy_wire first = entry->value;
    struct cvy_wire_field field;

    if (r->begun)
        return r->older ? read_slice(r, entry) : read_entry(r, entry);
    if (entry->key_size != 0 || !cvy_wire_next(&first, &field))
        return damaged(r, NULL, "it has no header");
    r->begun = true;
    r->older = field.number == 1 && field.type == CVY_WIRE_BYTES;
    return r->older ? read_contents(r, entry->value) : read_header(r, entry->value);
}

bool cvy_tensorflow_looks_like(const void *data, size_t size)
{
    return cvy_table_looks_like(data, size);
}

cvy_status cvy_tensorflow_open_memory(struct cvy_tensor_file *file, const char *what, const void *data, size_t size,
                                      const struct cvy_mapping *part)
{
    struct reader r = {.file = file, .what = what, .part = part};
    cvy_status status;

    *file = (struct cvy_tensor_file){0};
    CVY_GOTO(cvy_table_visit(what, data, size, read_any, &r));
    if (!r.begun) {
        status = damaged(&r, NULL, "it has no header");
        goto fail;
    }
    CVY_GOTO(check_complete(&r));
    CVY_GOTO(cvy_tensor_file_check_names(file, what));
    return CVY_OK;
fail:
    cvy_tensor_file_close(file);
    return status;
}
