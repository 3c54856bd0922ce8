#include "formats/container/tfrecord_index.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"

/* A line takes at most 40 bytes, so this is enough for 25 million records. */
static const size_t max_index_bytes = (size_t)1 << 30;

void cvy_tfrecord_index_release(struct cvy_tfrecord_index *index)
{
    cvy_free(index->places);
    *index = (struct cvy_tfrecord_index){0};
}

static cvy_status add_location(struct cvy_tfrecord_index *index, uint64_t offset, uint64_t size)
{
    if (index->count == index->capacity) {
        const size_t capacity = index->capacity ? 2 * index->capacity : 1024;
        struct cvy_tfrecord_location *grown = cvy_realloc(index->places, capacity, sizeof *grown);
        if (!grown)
            return cvy_fail_memory(capacity * sizeof *grown, "an index");
        index->places = grown;
        index->capacity = capacity;
    }
    index->places[index->count++] = (struct cvy_tfrecord_location){offset, size};
    return CVY_OK;
}

cvy_status cvy_tfrecord_scan(const char *path, int file, struct cvy_tfrecord_index *index)
{
    uint8_t header[CVY_TFRECORD_HEADER];
    uint64_t payload = 0;
    struct stat about;
    size_t got;

    if (fstat(file, &about) != 0)
        return cvy_fail_errno(cvy_input_status(errno), "cannot read %s", cvy_quote(path));
    if (!S_ISREG(about.st_mode))
        return cvy_fail(CVY_BAD_DATA, "%s is not a file", cvy_quote(path));
    const uint64_t end = (uint64_t)about.st_size;
    for (uint64_t offset = 0; offset < end; offset += payload + CVY_TFRECORD_FRAME) {
        CVY_TRY(cvy_file_read_at(path, file, offset, header, sizeof header, &got));
        if (got == CVY_TFRECORD_HEADER)
            CVY_TRY(cvy_tfrecord_check_header(path, offset, header, &payload));
        if (got < CVY_TFRECORD_HEADER || end - offset < payload + CVY_TFRECORD_FRAME)
            return cvy_tfrecord_truncated(path, offset);
        CVY_TRY(add_location(index, offset, payload + CVY_TFRECORD_FRAME));
    }
    return CVY_OK;
}

/* A decimal number at *text, which ends at `end`; false where there is none or it is too long. */
static bool read_number(const char **text, const char *end, uint64_t *number)
{
    const char *from = *text;

    *number = 0;
    for (; *text < end && **text >= '0' && **text <= '9'; ++*text) {
        const uint64_t digit = (uint64_t)(**text - '0');
        if (*number > (INT64_MAX - digit) / 10)
            return false;
        *number = *number * 10 + digit;
    }
    return *text > from;
}

static bool read_location(const char **text, const char *end, struct cvy_tfrecord_location *place)
{
    if (!read_number(text, end, &place->offset) || *text == end || *(*text)++ != ' ' ||
        !read_number(text, end, &place->size))
        return false;
    if (*text < end && **text == '\r')
        ++*text;
    return *text == end || *(*text)++ == '\n';
}

cvy_status cvy_tfrecord_index_read(const char *path, struct cvy_tfrecord_index *index)
{
    cvy_status status = CVY_OK;
    struct cvy_tfrecord_location place;
    uint64_t free_from = 0;
    void *data;
    size_t size;

    CVY_TRY(cvy_file_read(path, max_index_bytes, &data, &size));
    const char *text = data, *const end = text + size;
    for (size_t line = 1; text < end; line++) {
        if (!read_location(&text, end, &place) || place.offset < free_from || place.size < CVY_TFRECORD_FRAME ||
            place.size > CVY_TFRECORD_MAX + CVY_TFRECORD_FRAME) {
            status = cvy_fail(CVY_BAD_DATA, "line %zu of %s does not give the offset and size of a next record", line,
                              cvy_quote(path));
            goto fail;
        }
        CVY_GOTO(add_location(index, place.offset, place.size));
        free_from = place.offset + place.size;
    }
fail:
    cvy_free(data);
    return status;
}

cvy_status cvy_tfrecord_index_write(const char *path, const struct cvy_tfrecord_index *index)
{
    struct cvy_text text = {0};

    for (size_t i = 0; i < index->count; i++)
        cvy_text_printf(&text, "%llu %llu\n", (unsigned long long)index->places[i].offset,
                        (unsigned long long)index->places[i].size);
    cvy_status status =
        text.failed ? cvy_fail_memory(text.capacity, "an index") : cvy_file_replace(path, text.text, text.length);
    cvy_text_release(&text);
    return status;
}
