#include "formats/weights/tensorflow_write.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "formats/crc32c.h"
#include "formats/weights/table_write.h"
#include "formats/weights/tensorflow.h"
#include "formats/wire_write.h"

static int compare(const void *a, const void *b)
{
    const struct cvy_named_tensor *const *left = a, *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

/* BundleHeaderProto: one data file, little-endian (0, which is not written), version 1. */
static void add_header(struct cvy_table_writer *table)
{
    struct cvy_text header = {0}, version = {0};

    cvy_wire_put_number(&version, 1, 1);
    cvy_wire_put_number(&header, 1, 1);
    cvy_wire_put_bytes(&header, 3, version.text, version.failed ? 0 : version.length);
    cvy_table_add(table, "", 0, header.text, header.failed ? 0 : header.length);
    table->table.failed = table->table.failed || header.failed || version.failed;
    cvy_text_release(&header);
    cvy_text_release(&version);
}

/* TensorShapeProto */
static void put_shape(struct cvy_text *entry, const struct cvy_shape *shape)
{
    struct cvy_text text = {0}, dimension = {0};

    for (int32_t i = 0; i < shape->rank; i++) {
        dimension.length = 0;
        cvy_wire_put_number(&dimension, 1, (uint64_t)shape->dim[i]);
        cvy_wire_put_bytes(&text, 2, dimension.text, dimension.failed ? 0 : dimension.length);
    }
    cvy_wire_put_bytes(entry, 2, text.text, text.failed ? 0 : text.length);
    entry->failed = entry->failed || text.failed || dimension.failed;
    cvy_text_release(&dimension);
    cvy_text_release(&text);
}

/* BundleEntryProto; numbers that are 0 are not written. */
static void add_entry(struct cvy_table_writer *table, const struct cvy_named_tensor *tensor, uint64_t offset)
{
    struct cvy_text entry = {0};

    cvy_wire_put_number(&entry, 1, cvy_tensorflow_type(tensor->dtype));
    put_shape(&entry, &tensor->shape);
    if (offset > 0)
        cvy_wire_put_number(&entry, 4, offset);
    if (tensor->bytes > 0)
        cvy_wire_put_number(&entry, 5, tensor->bytes);
    cvy_wire_put_fixed32(&entry, 6, cvy_crc32c_mask(cvy_crc32c(0, tensor->data, tensor->bytes)));
    cvy_table_add(table, tensor->name, strlen(tensor->name), entry.text, entry.failed ? 0 : entry.length);
    table->table.failed = table->table.failed || entry.failed;
    cvy_text_release(&entry);
}

static cvy_status fill(struct cvy_table_writer *table, struct cvy_output *data,
                       const struct cvy_named_tensor *const *order, size_t count)
{
    uint64_t offset = 0;

    add_header(table);
    for (size_t i = 0; i < count; i++) {
        if (strlen(order[i]->name) > CVY_TABLE_KEY)
            return cvy_fail(CVY_USAGE, "the name %s is too long for a checkpoint of TensorFlow",
                            cvy_quote(order[i]->name));
        add_entry(table, order[i], offset);
        CVY_TRY(cvy_output_write(data, order[i]->data, order[i]->bytes));
        offset += order[i]->bytes;
    }
    return cvy_table_finish(table);
}

cvy_status cvy_tensorflow_write(const char *path, const struct cvy_named_tensor *tensors, size_t count)
{
    const struct cvy_tensor_file none = {0};

    return cvy_tensorflow_write_from(&none, path, path, tensors, count);
}

cvy_status cvy_tensorflow_write_from(const struct cvy_tensor_file *source, const char *what, const char *path,
                                     const struct cvy_named_tensor *tensors, size_t count)
{
    const size_t length = strlen(path), suffix = strlen(CVY_TENSORFLOW_SUFFIX);
    const struct cvy_named_tensor **order = cvy_calloc(count + 1, sizeof *order);
    struct cvy_arena arena = {0};
    const char *data_path =
        length > suffix ? cvy_arena_printf(&arena, "%.*s.data-00000-of-00001", (int)(length - suffix), path) : NULL;
    struct cvy_table_writer table = {0};
    struct cvy_output data = {0}, index = {0};
    cvy_status status;

    if (!order || !data_path) {
        status = cvy_fail_memory(count * sizeof *order, "the tensor table");
        goto fail;
    }
    for (size_t i = 0; i < count; i++)
        order[i] = &tensors[i];
    qsort(order, count, sizeof *order, compare);
    CVY_GOTO(cvy_output_open(&data, data_path));
    status = fill(&table, &data, order, count);
    CVY_GOTO(cvy_tensor_file_changed(source, what, status));
    CVY_GOTO(cvy_output_open(&index, path));
    CVY_GOTO(cvy_output_write(&index, table.table.text, table.table.length));
    CVY_GOTO(cvy_output_sync(&data)); /* on a full disk the old checkpoint stays */
    CVY_GOTO(cvy_output_sync(&index));
    (void)unlink(path); /* no index is beside another one's data; what cannot be removed will not be replaced either */
    CVY_GOTO(cvy_output_commit(&data));
    status = cvy_output_commit(&index);
fail:
    cvy_output_abort(&index);
    cvy_output_abort(&data);
    cvy_table_writer_release(&table);
    cvy_arena_release(&arena);
    cvy_free(order);
    return status;
}
