#include "base/sized.h"

#include <string.h>

#include "base/error.h"

enum { MAX_SIZE = 65536 }; /* of a struct: what says more is not one */

cvy_status cvy_sized_take(void *own, size_t own_size, const void *given, const char *name)
{
    const unsigned char *bytes = given;
    size_t size;

    memcpy(&size, given, sizeof size);
    if (size <= sizeof size || size > MAX_SIZE)
        return cvy_fail(CVY_USAGE, "struct %s begins with its size, and %zu is none: begin with its defaults", name,
                        size);
    for (size_t i = own_size; i < size; i++) {
        if (bytes[i] != 0)
            return cvy_fail(CVY_USAGE,
                            "struct %s: the program sets what only a newer library knows (%zu bytes, and %zu here)",
                            name, size, own_size);
    }
    memcpy((unsigned char *)own + sizeof size, bytes + sizeof size, (size < own_size ? size : own_size) - sizeof size);
    return CVY_OK;
}
