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

#endif
