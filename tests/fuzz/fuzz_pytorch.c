/* Any bytes as a PyTorch file: refused with a sentence, or every tensor can be read, in place or copied. Bytes that
 * begin like a pickle are also put into a sound file, for a fuzzer finds no CRC by itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/crc32.h"
#include "formats/weights/pytorch.h"
#include "models/naming.h"
#include "support_tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the smallest file around a pickle: the pickle and a storage of 16 bytes, without 64-bit numbers ---- */

static uint8_t *at; /* end of the file that is being written */

static void put(uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *at++ = (uint8_t)(value >> (8 * i));
}

static void put_bytes(const void *data, size_t size)
{
    if (size > 0)
        memcpy(at, data, size);
    at += size;
}

static void put_common(uint32_t crc, size_t size, const char *name)
{
    put(0, 4);
    put(0, 4);
    put(0, 2);
    put(crc, 4);
    put((uint32_t)size, 4);
    put((uint32_t)size, 4);
    put((uint32_t)strlen(name), 2);
    put(0, 2);
}

static uint8_t *wrap(const uint8_t *pickle, size_t size, size_t *file_size)
{
    static const uint8_t storage[16] = {0, 0, 128, 63, 0, 0, 0, 64, 1, 2, 3, 4, 5, 6, 7, 8};
    static const char *const names[2] = {"a/data.pkl", "a/data/0"};
    const void *const contents[2] = {pickle, storage};
    const size_t sizes[2] = {size, sizeof storage};
    uint32_t places[2];
    uint8_t *file = malloc(size + 512);

    if (!file)
        return NULL;
    at = file;
    for (int i = 0; i < 2; i++) {
        places[i] = (uint32_t)(at - file);
        put(0x04034b50, 4);
        put_common(cvy_crc32(0, contents[i], sizes[i]), sizes[i], names[i]);
        put_bytes(names[i], strlen(names[i]));
        put_bytes(contents[i], sizes[i]);
    }
    const uint32_t directory = (uint32_t)(at - file);
    for (int i = 0; i < 2; i++) {
        put(0x02014b50, 4);
        put(0, 2);
        put_common(cvy_crc32(0, contents[i], sizes[i]), sizes[i], names[i]);
        put(0, 4);
        put(0, 4);
        put(0, 2);
        put(places[i], 4);
        put_bytes(names[i], strlen(names[i]));
    }
    const uint32_t length = (uint32_t)(at - file) - directory;
    put(0x06054b50, 4);
    put(0, 4);
    put(2, 2);
    put(2, 2);
    put(length, 4);
    put(directory, 4);
    put(0, 2);
    *file_size = (size_t)(at - file);
    return file;
}

/* The same in the format before 1.6: the pickle where the object stands, and one storage, "0". */
static uint8_t *wrap_old(const uint8_t *pickle, size_t size, size_t *file_size)
{
    static const uint8_t start[] = "\200\2\212\12\154\374\234\106\371\40\152\250\120\31." /* magic number */
                                   "\200\2M\351\3."                                       /* 1001 */
                                   "\200\2}X\15\0\0\0little_endian\210s.",
                         end[] = "\200\2]X\1\0\0\0"
                                 "0a."
                                 "\4\0\0\0\0\0\0\0" /* elements */
                                 "\0\0\200\77\0\0\0\100\1\2\3\4\5\6\7\10";
    uint8_t *file = malloc(size + sizeof start + sizeof end);

    if (!file)
        return NULL;
    at = file;
    put_bytes(start, sizeof start - 1);
    put_bytes(pickle, size);
    put_bytes(end, sizeof end - 1);
    *file_size = (size_t)(at - file);
    return file;
}

/* ---- what must hold ---- */

static void check(const uint8_t *data, size_t size)
{
    struct cvy_tensor_file file;
    cvy_status status = cvy_pytorch_open_memory(&file, "input", data, size);

    if (is_refused(status, &file))
        return;
    read_tensors(&file);
    for (size_t i = 0; i < file.tensor_count; i++)
        if (strchr(file.tensors[i].name, '\n'))
            abort();
    for (size_t i = 0; i < file.metadata_count; i++)
        if (!file.metadata[i].key[0] || !file.metadata[i].value)
            abort();
    enum cvy_naming naming;
    status = cvy_naming_read(&file, "input", &naming);
    if (status != CVY_OK && status != CVY_BAD_DATA)
        abort();
    cvy_tensor_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int old = 0; old < 2 && size > 0 && data[0] == 0x80; old++) { /* a pickle: PROTO */
        size_t file_size;
        uint8_t *file = (old ? wrap_old : wrap)(data, size, &file_size);
        if (!file)
            return 0;
        check(file, file_size);
        free(file);
    }
    check(data, size);
    return 0;
}
