#include "formats/container/pack.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "formats/crc32c.h"

static const char head_mark[8] = {'C', 'V', 'Y', 'P', 'A', 'C', 'K', '\n'};
static const char tail_mark[8] = {'C', 'V', 'Y', 'I', 'N', 'D', 'X', '\n'};

enum {
    HEAD_SUM = CVY_PACK_HEADER - 4,  /* where the header's checksum is */
    TAIL_SUM = CVY_PACK_TRAILER - 4, /* and the trailer's */
    PLACE_BYTES = 8,
    MAX_CLASSES = 1000000 /* as many as --num-classes allows */
};
/* 25 million images, with the longest class names that a folder may have. */
static const uint64_t max_index_bytes = (uint64_t)1 << 30;

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, value);
    put16(at + 2, value >> 16);
}

static void put64(uint8_t *at, uint64_t value)
{
    put32(at, (uint32_t)value);
    put32(at + 4, (uint32_t)(value >> 32));
}

static uint32_t get16(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8;
}

static uint32_t get32(const uint8_t *at)
{
    return get16(at) | get16(at + 2) << 16;
}

static uint64_t get64(const uint8_t *at)
{
    return get32(at) | (uint64_t)get32(at + 4) << 32;
}

/* ---- header ---- */

void cvy_pack_header_write(const struct cvy_pack_header *header, uint8_t bytes[CVY_PACK_HEADER])
{
    memcpy(bytes, head_mark, sizeof head_mark);
    put32(bytes + 8, CVY_PACK_VERSION);
    put32(bytes + 12, header->val);
    put32(bytes + 16, header->shard);
    put32(bytes + 20, header->shards);
    memcpy(bytes + 24, header->set, CVY_PACK_SET);
    put32(bytes + 40, 0);
    put32(bytes + HEAD_SUM, cvy_crc32c(0, bytes, HEAD_SUM));
}

static cvy_status read_header(const char *what, const uint8_t bytes[CVY_PACK_HEADER], struct cvy_pack_header *header)
{
    if (memcmp(bytes, head_mark, sizeof head_mark) != 0)
        return cvy_fail(CVY_BAD_DATA, "%s is no file of a packed data set", cvy_quote(what));
    const uint32_t version = get32(bytes + 8);
    if (version != CVY_PACK_VERSION)
        return cvy_fail(CVY_BAD_DATA, "%s is of version %u of packed data sets, and this program reads version %d",
                        cvy_quote(what), version, CVY_PACK_VERSION);
    *header = (struct cvy_pack_header){
        .val = get32(bytes + 12) == 1, .shard = get32(bytes + 16), .shards = get32(bytes + 20)};
    memcpy(header->set, bytes + 24, CVY_PACK_SET);
    if (get32(bytes + HEAD_SUM) != cvy_crc32c(0, bytes, HEAD_SUM) || get32(bytes + 12) > 1 || get32(bytes + 40) != 0 ||
        header->shard >= header->shards)
        return cvy_fail(CVY_BAD_DATA, "the header of %s is damaged", cvy_quote(what));
    return CVY_OK;
}

/* ---- records ---- */

void cvy_pack_frame_write(const char *name, const void *image, size_t size, uint8_t frame[CVY_PACK_FRAME])
{
    const size_t name_size = strlen(name);

    put32(frame, (uint32_t)(name_size + size));
    put16(frame + 8, (uint32_t)name_size);
    put16(frame + 10, 0);
    uint32_t sum = cvy_crc32c(0, frame + 8, 4);
    sum = cvy_crc32c(sum, name, name_size);
    put32(frame + 4, cvy_crc32c(sum, image, size));
}

cvy_status cvy_pack_record_parse(const char *what, uint64_t offset, const void *data, size_t size,
                                 struct cvy_pack_record *record)
{
    const uint8_t *bytes = data;
    const size_t name_size = size >= CVY_PACK_FRAME ? get16(bytes + 8) : 0;

    if (size < CVY_PACK_FRAME || get32(bytes) != size - CVY_PACK_FRAME || get16(bytes + 10) != 0 ||
        name_size > CVY_PACK_NAME_LIMIT || name_size > size - CVY_PACK_FRAME ||
        get32(bytes + 4) != cvy_crc32c(0, bytes + 8, size - 8))
        return cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s is damaged: its checksum is wrong",
                        (unsigned long long)offset, cvy_quote(what));
    *record = (struct cvy_pack_record){.name = (const char *)bytes + CVY_PACK_FRAME,
                                       .name_size = name_size,
                                       .image = bytes + CVY_PACK_FRAME + name_size,
                                       .size = size - CVY_PACK_FRAME - name_size};
    return CVY_OK;
}

/* ---- index ---- */

void cvy_pack_index_write(struct cvy_text *out, const struct cvy_pack_location *places, size_t count,
                          const char *const *classes, int32_t class_count)
{
    const size_t from = out->length;
    uint8_t trailer[CVY_PACK_TRAILER] = {0};
    uint64_t end = CVY_PACK_HEADER;

    for (size_t i = 0; i < count; i++) {
        uint8_t place[PLACE_BYTES];
        put32(place, places[i].size);
        put32(place + 4, (uint32_t)places[i].label);
        cvy_text_append(out, place, sizeof place);
        end += places[i].size;
    }
    for (int32_t c = 0; c < class_count; c++) {
        uint8_t length[2];
        put16(length, (uint32_t)strlen(classes[c]));
        cvy_text_append(out, length, sizeof length);
        cvy_text_append(out, classes[c], strlen(classes[c]));
    }
    memcpy(trailer, tail_mark, sizeof tail_mark);
    put64(trailer + 8, end);
    put64(trailer + 16, count);
    put32(trailer + 24, (uint32_t)class_count);
    put32(trailer + 32, out->failed ? 0 : cvy_crc32c(0, out->text + from, out->length - from));
    put32(trailer + TAIL_SUM, cvy_crc32c(0, trailer, TAIL_SUM));
    cvy_text_append(out, trailer, sizeof trailer);
}

/* What the trailer says, checked against the size of the file. */
struct trailer {
    uint64_t from, size; /* of the index */
    uint64_t count;
    uint32_t classes, sum;
};

static cvy_status read_all(const char *what, int file, uint64_t offset, void *bytes, size_t size)
{
    size_t got;

    CVY_TRY(cvy_file_read_at(what, file, offset, bytes, size, &got));
    return got == size ? CVY_OK : cvy_fail(CVY_BAD_DATA, "%s is truncated", cvy_quote(what));
}

static cvy_status read_trailer(const char *what, int file, uint64_t file_size, struct trailer *trailer)
{
    uint8_t bytes[CVY_PACK_TRAILER];

    CVY_TRY(read_all(what, file, file_size - sizeof bytes, bytes, sizeof bytes));
    if (memcmp(bytes, tail_mark, sizeof tail_mark) != 0)
        return cvy_fail(CVY_BAD_DATA, "%s is truncated: it does not end with an index", cvy_quote(what));
    *trailer = (struct trailer){
        .from = get64(bytes + 8), .count = get64(bytes + 16), .classes = get32(bytes + 24), .sum = get32(bytes + 32)};
    const uint64_t end = file_size - CVY_PACK_TRAILER;
    if (get32(bytes + TAIL_SUM) != cvy_crc32c(0, bytes, TAIL_SUM) || get32(bytes + 28) != 0 ||
        trailer->from < CVY_PACK_HEADER || trailer->from > end)
        return cvy_fail(CVY_BAD_DATA, "the index of %s is damaged", cvy_quote(what));
    trailer->size = end - trailer->from;
    if (trailer->size > max_index_bytes || trailer->count > trailer->size / PLACE_BYTES || trailer->classes < 1 ||
        trailer->classes > MAX_CLASSES)
        return cvy_fail(CVY_BAD_DATA, "the index of %s is damaged", cvy_quote(what));
    return CVY_OK;
}

/* Records fill the file from the header to the index. */
static bool read_locations(const struct trailer *trailer, const uint8_t *bytes, struct cvy_pack_index *index)
{
    uint64_t at = CVY_PACK_HEADER;

    for (size_t i = 0; i < trailer->count; i++, bytes += PLACE_BYTES) {
        const uint32_t size = get32(bytes), label = get32(bytes + 4);
        if (size <= CVY_PACK_FRAME || size > INT32_MAX || size > trailer->from - at || label >= trailer->classes)
            return false;
        index->places[i] = (struct cvy_pack_location){.offset = at, .size = size, .label = (int32_t)label};
        at += size;
    }
    index->count = trailer->count;
    return at == trailer->from;
}

/* Names fill the rest of the index; none is empty or has an end in it. */
static cvy_status take_classes(const char *what, const struct trailer *trailer, const uint8_t *bytes, size_t size,
                               struct cvy_pack_index *index)
{
    size_t at = 0;

    for (uint32_t c = 0; c < trailer->classes; c++) {
        const size_t length = size - at >= 2 ? get16(bytes + at) : 0;
        if (length == 0 || length > size - at - 2 || memchr(bytes + at + 2, 0, length))
            return cvy_fail(CVY_BAD_DATA, "the index of %s is damaged", cvy_quote(what));
        char *name = cvy_arena_alloc(&index->arena, length + 1);
        if (!name)
            return cvy_fail_memory(length, "class names");
        memcpy(name, bytes + at + 2, length);
        index->classes[c] = name;
        at += 2 + length;
    }
    index->class_count = (int32_t)trailer->classes;
    return at == size ? CVY_OK : cvy_fail(CVY_BAD_DATA, "the index of %s is damaged", cvy_quote(what));
}

static cvy_status parse_index(const char *what, const struct trailer *trailer, const uint8_t *bytes,
                              struct cvy_pack_index *index)
{
    const size_t places = (size_t)trailer->count * PLACE_BYTES, rest = (size_t)trailer->size - places;

    /* A class takes three bytes at least: a count that could not be true asks for no memory. */
    if (cvy_crc32c(0, bytes, (size_t)trailer->size) != trailer->sum || trailer->classes > rest / 3)
        return cvy_fail(CVY_BAD_DATA, "the index of %s is damaged", cvy_quote(what));
    index->places = cvy_calloc(trailer->count + 1, sizeof *index->places);
    index->classes = cvy_arena_alloc(&index->arena, trailer->classes * sizeof *index->classes);
    if (!index->places || !index->classes)
        return cvy_fail_memory(trailer->count * sizeof *index->places, "the list of images");
    if (!read_locations(trailer, bytes, index))
        return cvy_fail(CVY_BAD_DATA, "the index of %s is damaged", cvy_quote(what));
    return take_classes(what, trailer, bytes + places, rest, index);
}

cvy_status cvy_pack_index_read(const char *what, int file, struct cvy_pack_index *index)
{
    struct stat about;
    struct trailer trailer = {0};
    uint8_t header[CVY_PACK_HEADER];

    *index = (struct cvy_pack_index){0};
    if (fstat(file, &about) != 0)
        return cvy_fail_errno(cvy_input_status(errno), "cannot read %s", cvy_quote(what));
    if (about.st_size < CVY_PACK_HEADER)
        return cvy_fail(CVY_BAD_DATA, "%s is no file of a packed data set", cvy_quote(what));
    CVY_TRY(read_all(what, file, 0, header, sizeof header));
    CVY_TRY(read_header(what, header, &index->header));
    if (about.st_size < CVY_PACK_HEADER + CVY_PACK_TRAILER)
        return cvy_fail(CVY_BAD_DATA, "%s is truncated: it does not end with an index", cvy_quote(what));
    CVY_TRY(read_trailer(what, file, (uint64_t)about.st_size, &trailer));
    uint8_t *bytes = cvy_realloc(NULL, (size_t)trailer.size + 1, 1);
    if (!bytes)
        return cvy_fail_memory((size_t)trailer.size, "the list of images");
    cvy_status status = read_all(what, file, trailer.from, bytes, (size_t)trailer.size);
    if (status == CVY_OK)
        status = parse_index(what, &trailer, bytes, index);
    cvy_free(bytes);
    return status;
}

void cvy_pack_index_release(struct cvy_pack_index *index)
{
    cvy_free(index->places);
    cvy_arena_release(&index->arena);
    *index = (struct cvy_pack_index){0};
}
