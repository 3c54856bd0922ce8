/* Any bytes as a checkpoint of TensorFlow: refused with a sentence, or every tensor can be read. Bytes that begin with
 * 'T' are entries of a table, around which a sound one is made, for a fuzzer finds no CRC by itself: lengths of the key
 * and the value (16 bits), key, value. Where a key begins with '!' the value is a type, an offset and dimensions, a
 * byte each, of which the entry of an index is made. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/crc32c.h"
#include "formats/weights/tensorflow.h"
#include "models/naming.h"
#include "support_tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t part_bytes[256] = {1, 2, 3};

/* ---- a table ---- */

struct bytes {
    uint8_t *at;
};

static void put(struct bytes *b, uint64_t value, int count)
{
    for (int i = 0; i < count; i++)
        *b->at++ = (uint8_t)(value >> (8 * i));
}

static void put_varint(struct bytes *b, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        *b->at++ = (uint8_t)(value | 128);
    *b->at++ = (uint8_t)value;
}

static void put_bytes(struct bytes *b, const void *data, size_t size)
{
    if (size > 0)
        memcpy(b->at, data, size);
    b->at += size;
}

static void put_entry(struct bytes *b, const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size)
{
    put_varint(b, 0);
    put_varint(b, key_size);
    put_varint(b, value_size);
    put_bytes(b, key, key_size);
    put_bytes(b, value, value_size);
}

/* A BundleEntryProto whose checksum is right, if its bytes are there. */
static size_t make_entry(const uint8_t *value, size_t size, uint8_t entry[256])
{
    static const uint8_t widths[20] = {
        [1] = 4, [2] = 8, [3] = 4, [4] = 1, [6] = 1, [9] = 8, [10] = 1, [14] = 2, [19] = 2};
    const uint8_t type = size > 0 ? value[0] : 1, offset = size > 1 ? value[1] : 0;
    uint64_t bytes = type < sizeof widths ? widths[type] : 0;
    struct bytes b = {entry};

    put(&b, 8, 1);
    put_varint(&b, type);
    put(&b, 18, 1); /* the shape */
    uint8_t *const length = b.at++;
    for (size_t i = 2; i < size && i < 12; i++) {
        put(&b, 18, 1); /* a dimension */
        put(&b, value[i] < 128 ? 2 : 3, 1);
        put(&b, 8, 1);
        put_varint(&b, value[i]);
        bytes = bytes > 1 << 20 ? bytes : bytes * value[i];
    }
    *length = (uint8_t)(b.at - length - 1);
    put(&b, 32, 1);
    put_varint(&b, offset);
    put(&b, 40, 1);
    put_varint(&b, bytes);
    put(&b, 53, 1); /* fixed32 number 6 */
    put(&b,
        bytes <= sizeof part_bytes - offset ? cvy_crc32c_mask(cvy_crc32c(0, part_bytes + offset, (size_t)bytes)) : 0,
        4);
    return (size_t)(b.at - entry);
}

/* Ends a block that begins at `block`: no restarts, no compression, the sum. */
static void end_block(struct bytes *b, const uint8_t *block)
{
    put(b, 0, 4);
    put(b, 0, 1);
    put(b, cvy_crc32c_mask(cvy_crc32c(0, block, (size_t)(b->at - block))), 4);
}

static uint8_t *wrap(const uint8_t *data, size_t size, size_t *file_size)
{
    static const uint8_t magic[8] = {0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb};
    uint8_t *file = malloc(size * 70 + 1024), place[32], entry[256];
    struct bytes b = {file}, p = {place};
    size_t block, index;

    if (!file)
        return NULL;
    for (size_t at = 0; at + 4 <= size;) {
        size_t key = data[at] | (size_t)data[at + 1] << 8, value = data[at + 2] | (size_t)data[at + 3] << 8;
        at += 4;
        key = key < size - at ? key : size - at;
        const uint8_t *const text = data + at;
        at += key;
        value = value < size - at ? value : size - at;
        if (key > 0 && text[0] == '!')
            put_entry(&b, text, key, entry, make_entry(data + at, value, entry));
        else
            put_entry(&b, text, key, data + at, value);
        at += value;
    }
    block = (size_t)(b.at - file) + 4;
    end_block(&b, file);
    index = (size_t)(b.at - file);
    put_varint(&p, 0);
    put_varint(&p, block);
    put_entry(&b, (const uint8_t *)"~", 1, place, (size_t)(p.at - place));
    const size_t index_size = (size_t)(b.at - file) - index + 4;
    end_block(&b, file + index);
    uint8_t *const footer = b.at;
    put_varint(&b, 0);
    put_varint(&b, 0);
    put_varint(&b, index);
    put_varint(&b, index_size);
    put(&b, 0, 8);
    put(&b, 0, 8);
    put(&b, 0, 8);
    put(&b, 0, 8);
    b.at = footer + 40;
    put_bytes(&b, magic, sizeof magic);
    *file_size = (size_t)(b.at - file);
    return file;
}

/* ---- what must hold ---- */

static void check(const uint8_t *data, size_t size)
{
    const struct cvy_mapping part = {part_bytes, sizeof part_bytes, NULL};
    struct cvy_tensor_file file;
    cvy_status status = cvy_tensorflow_open_memory(&file, "input", data, size, &part);
    enum cvy_naming naming;

    if (is_refused(status, &file))
        return;
    read_tensors(&file);
    status = cvy_naming_read(&file, "input", &naming);
    if (status != CVY_OK && status != CVY_BAD_DATA)
        abort();
    cvy_tensor_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == 'T') {
        size_t file_size;
        uint8_t *file = wrap(data + 1, size - 1, &file_size);
        if (!file)
            return 0;
        check(file, file_size);
        free(file);
    }
    check(data, size);
    return 0;
}
