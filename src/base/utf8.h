/* UTF-8 decoding, shared by messages and JSON. */
#ifndef CVY_BASE_UTF8_H
#define CVY_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed sequence at `text` (1 to 4) and its code point; 0 if the bytes are not UTF-8 (overlong
 * forms, surrogates and values over U+10FFFF included). */
size_t cvy_utf8_sequence(const char *text, size_t length, uint32_t *code_point);

#endif
