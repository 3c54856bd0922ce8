/* SHA-256 (FIPS 180-4) of bytes in memory. */
#ifndef CVY_BASE_SHA256_H
#define CVY_BASE_SHA256_H

#include <stddef.h>

/* As 64 hexadecimal digits, terminated. Returns `text`. */
char *cvy_sha256_text(const void *data, size_t size, char text[65]);

#endif
