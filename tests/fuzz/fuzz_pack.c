/* Any bytes as a file of a packed data set, as they are and with checksums that fit: refused with a sentence, or
 * records fill the file from the header to the index and are read within their bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/container/pack.h"
#include "formats/crc32c.h"
#include "support_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

/* The checksums of header, index and trailer, wherever the trailer says the index begins. */
static void fix_checksums(uint8_t *data, size_t size)
{
    uint8_t *trailer = data + size - CVY_PACK_TRAILER;
    uint64_t from;

    put32(data + CVY_PACK_HEADER - 4, cvy_crc32c(0, data, CVY_PACK_HEADER - 4));
    memcpy(&from, trailer + 8, sizeof from);
    if (from <= size - CVY_PACK_TRAILER)
        put32(trailer + 32, cvy_crc32c(0, data + from, size - CVY_PACK_TRAILER - (size_t)from));
    put32(trailer + CVY_PACK_TRAILER - 4, cvy_crc32c(0, trailer, CVY_PACK_TRAILER - 4));
}

/* Whether it is a good one. */
static bool read_record(uint8_t *data, const struct cvy_pack_location *place, bool mended)
{
    struct cvy_pack_record record;
    uint8_t *at = data + place->offset;

    if (mended)
        put32(at + 4, cvy_crc32c(0, at + 8, place->size - 8));
    const cvy_status status = cvy_pack_record_parse("input", place->offset, at, place->size, &record);
    if (status != CVY_OK) {
        expect_sentence(status);
        return false;
    }
    must((const uint8_t *)record.name == at + CVY_PACK_FRAME &&
         record.image == at + CVY_PACK_FRAME + record.name_size && record.image + record.size == at + place->size &&
         record.name_size <= CVY_PACK_NAME_LIMIT);
    return true;
}

static void read_file(uint8_t *data, size_t size, bool mended)
{
    struct cvy_pack_index index;
    const int file = file_of(data, size);

    const cvy_status status = cvy_pack_index_read("input", file, &index);
    if (status != CVY_OK)
        expect_sentence(status);
    uint64_t at = CVY_PACK_HEADER;
    for (size_t i = 0; status == CVY_OK && i < index.count; i++) {
        const struct cvy_pack_location *place = &index.places[i];
        must(place->offset == at && place->size > CVY_PACK_FRAME && place->size <= size - at && place->label >= 0 &&
             place->label < index.class_count);
        const bool good = read_record(data, place, mended);
        must(pwrite(file, data + at, place->size, (off_t)at) == (ssize_t)place->size); /* as it was mended */
        must(read_sample(CVY_SHARD_PACK, file, at, place->size) == good);
        at += place->size;
    }
    for (int32_t c = 0; status == CVY_OK && c < index.class_count; c++)
        must(index.classes[c] && index.classes[c][0]);
    cvy_pack_index_release(&index);
    close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);

    if (!copy)
        return 0;
    memcpy(copy, data, size);
    read_file(copy, size, false);
    if (size >= CVY_PACK_HEADER + CVY_PACK_TRAILER) {
        fix_checksums(copy, size);
        read_file(copy, size, true);
    }
    free(copy);
    return 0;
}
