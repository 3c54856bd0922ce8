/* What the targets that read files share. */
#ifndef SUPPORT_INPUT_H
#define SUPPORT_INPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "data/sample/sample.h"

static inline void must(bool good)
{
    if (!good)
        abort();
}

/* The input was refused for its bytes, with one sentence that names it. */
static inline void expect_sentence(cvy_status status)
{
    must(status == CVY_BAD_DATA && strstr(cvy_error(), "input") && !strchr(cvy_error(), '\n'));
}

/* The bytes as an open file. */
static inline int file_of(const uint8_t *data, size_t size)
{
    const int file = memfd_create("input", MFD_CLOEXEC);

    must(file >= 0 && write(file, data, size) == (ssize_t)size);
    return file;
}

/* The record at this place of the file is read as an image of it; whether it was. */
static inline bool read_sample(enum cvy_shard_kind kind, int file, uint64_t offset, uint64_t size)
{
    const struct cvy_shard shard = {.path = "input", .kind = kind, .file = file};
    const struct cvy_sample sample = {
        .path = "input", .record_bytes = (uint32_t)size, .record_offset = offset, .shard = &shard};
    struct cvy_encoded encoded;
    const cvy_status status = cvy_sample_read(&sample, &encoded);

    if (status != CVY_OK) {
        expect_sentence(status);
        return false;
    }
    const uint8_t *block = encoded.block, *image = encoded.data;
    must(image >= block && encoded.size <= size && image + encoded.size <= block + size);
    must(strncmp(encoded.name, "input@", 6) == 0 && (!encoded.own[0] || strstr(encoded.name, encoded.own)));
    cvy_encoded_release(&encoded);
    return true;
}

#endif
