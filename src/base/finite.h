/* Numbers that are none: NaN and the infinities. */
#ifndef CVY_BASE_FINITE_H
#define CVY_BASE_FINITE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* How many of `count` floats, of any alignment, are not finite. */
static inline size_t cvy_count_not_finite(const void *floats, size_t count)
{
    const uint32_t exponent = 0x7f800000;
    const unsigned char *bytes = floats;
    size_t found = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
        found += (bits & exponent) == exponent;
    }
    return found;
}

#endif
