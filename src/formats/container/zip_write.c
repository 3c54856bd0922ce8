/* Writing: each member after its header, the directory at the end. */
#include <string.h>

#include "base/error.h"
#include "formats/container/zip.h"
#include "formats/crc32.h"

enum {
    HEADER_BYTES = 30,
    ALIGNMENT = 64,         /* of a member's data: a reader may map the file and use it in place */
    WIDE_FIELD = 0x0001,    /* 64-bit numbers */
    PADDING_FIELD = 0x4246, /* "FB": bytes without meaning, the field that PyTorch pads with */
    FIELD_BYTES = 4,        /* kind and length of an extra field */
    VERSION = 20,           /* what a reader must understand: 2.0; 4.5 for 64-bit numbers */
    VERSION_WIDE = 45,
    MADE_1980 = 0x0021, /* the first day that the format knows: the same input gives the same bytes */
};
static const uint64_t MAX_NARROW = 0xFFFFFFFF; /* this value itself means: in the extra field */

static void put(struct cvy_text *text, uint64_t value, int size)
{
    unsigned char bytes[8];

    for (int i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
    cvy_text_append(text, bytes, (size_t)size);
}

cvy_status cvy_zip_create(struct cvy_zip_writer *zip, const char *path)
{
    return cvy_output_open(&zip->output, path);
}

static cvy_status write_bytes(struct cvy_zip_writer *zip, const void *data, size_t size)
{
    CVY_TRY(cvy_output_write(&zip->output, data, size));
    zip->offset += size;
    return CVY_OK;
}

/* What header and directory say alike: version to name length. */
static void put_common(struct cvy_text *text, bool wide, uint32_t crc, uint64_t size, size_t name_length)
{
    put(text, wide ? VERSION_WIDE : VERSION, 2);
    put(text, 0, 2); /* flags */
    put(text, 0, 2); /* stored */
    put(text, 0, 2); /* time */
    put(text, MADE_1980, 2);
    put(text, crc, 4);
    put(text, wide ? MAX_NARROW : size, 4);
    put(text, wide ? MAX_NARROW : size, 4);
    put(text, name_length, 2);
}

/* The padding before the data, then the data begins at a multiple of the alignment. */
static void put_header(struct cvy_text *text, uint64_t offset, bool wide, uint32_t crc, uint64_t size, const char *name)
{
    const size_t length = strlen(name), wide_bytes = wide ? FIELD_BYTES + 16 : 0;
    const size_t padding =
        (ALIGNMENT - (offset + HEADER_BYTES + length + wide_bytes + FIELD_BYTES) % ALIGNMENT) % ALIGNMENT;

    put(text, 0x04034b50, 4);
    put_common(text, wide, crc, size, length);
    put(text, wide_bytes + FIELD_BYTES + padding, 2);
    cvy_text_puts(text, name);
    if (wide) {
        put(text, WIDE_FIELD, 2);
        put(text, 16, 2);
        put(text, size, 8);
        put(text, size, 8);
    }
    put(text, PADDING_FIELD, 2);
    put(text, padding, 2);
    for (size_t i = 0; i < padding; i++)
        put(text, 0, 1);
}

static void put_entry(struct cvy_text *text, uint64_t offset, bool wide, uint32_t crc, uint64_t size, const char *name)
{
    put(text, 0x02014b50, 4);
    put(text, wide ? VERSION_WIDE : VERSION, 2);
    put_common(text, wide, crc, size, strlen(name));
    put(text, wide ? FIELD_BYTES + 24 : 0, 2);
    put(text, 0, 2); /* comment */
    put(text, 0, 2); /* disk */
    put(text, 0, 2); /* attributes */
    put(text, 0, 4);
    put(text, wide ? MAX_NARROW : offset, 4);
    cvy_text_puts(text, name);
    if (wide) {
        put(text, WIDE_FIELD, 2);
        put(text, 24, 2);
        put(text, size, 8);
        put(text, size, 8);
        put(text, offset, 8);
    }
}

cvy_status cvy_zip_add(struct cvy_zip_writer *zip, const char *name, const void *data, size_t size)
{
    const bool wide = zip->wide || size >= MAX_NARROW || zip->offset >= MAX_NARROW;
    const uint32_t crc = cvy_crc32(0, data, size);
    struct cvy_text header = {0};
    cvy_status status;

    put_entry(&zip->directory, zip->offset, wide, crc, size, name);
    put_header(&header, zip->offset, wide, crc, size, name);
    zip->count++;
    status = zip->directory.failed || header.failed
                 ? cvy_fail_memory(zip->directory.capacity, "the directory of a zip file")
                 : write_bytes(zip, header.text, header.length);
    if (status == CVY_OK)
        status = write_bytes(zip, data, size);
    cvy_text_release(&header);
    return status;
}

cvy_status cvy_zip_commit(struct cvy_zip_writer *zip)
{
    struct cvy_text *text = &zip->directory;
    const uint64_t place = zip->offset, length = text->length, wide_end = place + length;
    cvy_status status;

    put(text, 0x06064b50, 4); /* the end of zip64, always: as PyTorch's */
    put(text, 44, 8);         /* bytes that follow */
    put(text, VERSION_WIDE, 2);
    put(text, VERSION_WIDE, 2);
    put(text, 0, 8); /* disks */
    put(text, zip->count, 8);
    put(text, zip->count, 8);
    put(text, length, 8);
    put(text, place, 8);
    put(text, 0x07064b50, 4); /* where it is */
    put(text, 0, 4);
    put(text, wide_end, 8);
    put(text, 1, 4);
    put(text, 0x06054b50, 4); /* the end */
    put(text, 0, 4);
    put(text, zip->count < 0xFFFF ? zip->count : 0xFFFF, 2);
    put(text, zip->count < 0xFFFF ? zip->count : 0xFFFF, 2);
    put(text, length < MAX_NARROW ? length : MAX_NARROW, 4);
    put(text, place < MAX_NARROW ? place : MAX_NARROW, 4);
    put(text, 0, 2);
    if (text->failed)
        status = cvy_fail_memory(text->capacity, "the directory of a zip file");
    else
        status = cvy_output_write(&zip->output, text->text, text->length);
    if (status == CVY_OK)
        status = cvy_output_commit(&zip->output);
    cvy_zip_abort(zip);
    return status;
}

void cvy_zip_abort(struct cvy_zip_writer *zip)
{
    cvy_output_abort(&zip->output);
    cvy_text_release(&zip->directory);
    *zip = (struct cvy_zip_writer){0};
}
