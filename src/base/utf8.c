#include "base/utf8.h"

#include <string.h>

size_t cvy_utf8_sequence(const char *text, size_t length, uint32_t *code_point)
{
    const unsigned char *bytes = (const unsigned char *)text;
    if (length == 0)
        return 0;
    uint32_t first = bytes[0], value, smallest;
    size_t size;
    if (first < 0x80) {
        *code_point = first;
        return 1;
    } else if (first >= 0xC2 && first < 0xE0) {
        size = 2, value = first & 0x1F, smallest = 0x80;
    } else if (first >= 0xE0 && first < 0xF0) {
        size = 3, value = first & 0x0F, smallest = 0x800;
    } else if (first >= 0xF0 && first < 0xF5) {
        size = 4, value = first & 0x07, smallest = 0x10000;
    } else {
        return 0;
    }
    if (length < size)
        return 0;
    for (size_t i = 1; i < size; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
        value = value << 6 | (bytes[i] & 0x3F);
    }
    if (value < smallest || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        return 0;
    *code_point = value;
    return size;
}

bool cvy_utf8_is_valid(const char *text)
{
    size_t left = strlen(text), size;
    uint32_t code_point;

    while (left > 0) {
        size = cvy_utf8_sequence(text, left, &code_point);
        if (size == 0)
            return false;
        text += size;
        left -= size;
    }
    return true;
}
