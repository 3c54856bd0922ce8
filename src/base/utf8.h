/* UTF-8 decoding, shared by messages and JSON. */
#ifndef CVY_BASE_UTF8_H
#define CVY_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed sequence at `text` (1 to 4) and its code point; 0 if the bytes are not UTF-8 (overlong
 * forms, surrogates and values over U+10FFFF included). */
size_t cvy_utf8_sequence(const char *text, size_t length, uint32_t *code_point);
/* Is all of the text well-formed? */
bool cvy_utf8_is_valid(const char *text);

#endif
