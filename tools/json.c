/* A JSON printer: top-level entries each on a line of their own, everything below on one line. */
#include "json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Length of the UTF-8 sequence at `text`, 0 if it is none (overlong forms, surrogates and values past U+10FFFF are
 * none). */
static size_t utf8_length(const unsigned char *text)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t length = text[0] < 0x80             ? 1
                          : (text[0] & 0xe0) == 0xc0 ? 2
                          : (text[0] & 0xf0) == 0xe0 ? 3
                          : (text[0] & 0xf8) == 0xf0 ? 4
                                                     : 0;
    if (length <= 1)
        return length;
    uint32_t code = text[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) /* also the end of the text */
            return 0;
        code = code << 6 | (text[i] & 0x3fu);
    }
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < smallest[length] || code > 0x10ffff || surrogate ? 0 : length;
}

/* File names are bytes: what is not UTF-8 becomes U+FFFD, because JSON has no other way to say it. */
static void print_string(const char *text)
{
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        const size_t length = utf8_length(c);
        if (length == 0) {
            fputs("\\ufffd", stdout);
            c++;
        } else if (*c == '"' || *c == '\\') {
            printf("\\%c", *c++);
        } else if (*c < 0x20 || *c == 0x7f) {
            printf("\\u%04x", *c++);
        } else {
            fwrite(c, 1, length, stdout);
            c += length;
        }
    }
    putchar('"');
}

static void begin_entry(struct json *json, const char *key)
{
    if (json->count[json->depth]++ > 0)
        fputs(json->depth == 1 ? ",\n " : ", ", stdout);
    if (key) {
        print_string(key);
        fputs(": ", stdout);
    }
}

static void open_level(struct json *json, const char *key, char bracket)
{
    begin_entry(json, key);
    putchar(bracket);
    json->depth++;
    assert(json->depth < JSON_MAX_DEPTH);
    json->count[json->depth] = 0;
}

static void close_level(struct json *json, char bracket)
{
    putchar(bracket);
    json->depth--;
    if (json->depth == 0)
        putchar('\n');
}

void json_open_object(struct json *json, const char *key)
{
    open_level(json, key, '{');
}

void json_open_array(struct json *json, const char *key)
{
    open_level(json, key, '[');
}

void json_close_object(struct json *json)
{
    close_level(json, '}');
}

void json_close_array(struct json *json)
{
    close_level(json, ']');
}

void json_string(struct json *json, const char *key, const char *text)
{
    begin_entry(json, key);
    if (text)
        print_string(text);
    else
        fputs("null", stdout);
}

void json_int(struct json *json, const char *key, int64_t value)
{
    begin_entry(json, key);
    printf("%" PRId64, value);
}

void json_real(struct json *json, const char *key, double value, int digits)
{
    begin_entry(json, key);
    if (isfinite(value))
        printf("%.*g", digits, value);
    else
        fputs("null", stdout);
}
