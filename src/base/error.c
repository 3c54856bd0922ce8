#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

enum { MESSAGE_SIZE = 2048, QUOTE_SIZE = 600, QUOTE_COUNT = 8, COUNTED_SIZE = 128 };

static _Thread_local char message[MESSAGE_SIZE];
/* In a module: the library's message. */
static void (*error_put_hook)(const char *text);
static void (*error_get_hook)(char *text, size_t size);

void cvy_error_share(void (*put)(const char *text), void (*get)(char *text, size_t size))
{
    error_put_hook = put;
    error_get_hook = get;
}

/* Arguments may point into `message` (cvy_error()), so every sentence is made beside it and then copied. */
static void record(const char *text)
{
    size_t length = strnlen(text, MESSAGE_SIZE - 1);
    if (error_put_hook) {
        error_put_hook(text);
        return;
    }
    memcpy(message, text, length);
    message[length] = 0;
}

/* Add ": reason" to a sentence as far as there is room. */
static void add_reason(char text[MESSAGE_SIZE], const char *reason)
{
    size_t used = strlen(text), capacity = MESSAGE_SIZE - 1 - used, length = strlen(reason);
    if (capacity < 2)
        return;
    memcpy(text + used, ": ", 2);
    capacity -= 2;
    if (length > capacity)
        length = capacity;
    memcpy(text + used + 2, reason, length);
    text[used + 2 + length] = 0;
}

const char *cvy_error(void)
{
    if (error_get_hook)
        error_get_hook(message, sizeof message);
    return message;
}

const char *cvy_version(void)
{
    return CONVOY_VERSION;
}

cvy_status cvy_fail(cvy_status status, const char *format, ...)
{
    char text[MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    record(text);
    return status;
}

cvy_status cvy_fail_errno(cvy_status status, const char *format, ...)
{
    int code = errno;
    char text[MESSAGE_SIZE], reason[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add_reason(text, strerror_r(code, reason, sizeof reason));
    record(text);
    return status;
}

cvy_status cvy_fail_memory(size_t bytes, const char *what)
{
    if (bytes == 0) /* nobody has counted them */
        return cvy_fail(CVY_NO_MEMORY, "out of memory for %s", what);
    return cvy_fail(CVY_NO_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}

cvy_status cvy_fail_context(cvy_status status, const char *format, ...)
{
    char text[MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add_reason(text, cvy_error());
    record(text);
    return status;
}

void cvy_error_get(char *text, size_t size)
{
    if (size > 0)
        snprintf(text, size, "%s", cvy_error());
}

void cvy_error_put(const char *text)
{
    record(text);
}

/* C0 and C1 controls, DEL, and the marks that reorder or hide text on a terminal. */
static bool is_unprintable(uint32_t code_point)
{
    return code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0) ||
           (code_point >= 0x200B && code_point <= 0x200F) || (code_point >= 0x2028 && code_point <= 0x202E) ||
           (code_point >= 0x2060 && code_point <= 0x206F) || code_point == 0xFEFF;
}

/* Write the escaped form of the sequence at `text` into `out`; returns the bytes taken from `text`. */
static size_t escape_one(const char *text, size_t left, char out[24])
{
    uint32_t code_point;
    size_t size = cvy_utf8_sequence(text, left, &code_point);
    if (size == 0) {
        snprintf(out, 24, "\\x%02X", (unsigned char)text[0]);
        return 1;
    }
    if (code_point == '\n')
        strcpy(out, "\\n");
    else if (code_point == '\r')
        strcpy(out, "\\r");
    else if (code_point == '\t')
        strcpy(out, "\\t");
    else if (code_point == '"' || code_point == '\\')
        snprintf(out, 24, "\\%c", (char)code_point);
    else if (is_unprintable(code_point))
        snprintf(out, 24, code_point < 0x80 ? "\\x%02X" : "\\u%04X", (unsigned)code_point);
    else
        snprintf(out, 24, "%.*s", (int)size, text);
    return size;
}

void cvy_escape_controls(char *text)
{
    for (; *text; text++) {
        const unsigned char one = (unsigned char)*text;
        const bool c1 = one == 0xC2 && (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xA0;

        if (one < 0x20 || one == 0x7F || c1)
            *text = '?';
        if (c1)
            *++text = '?';
    }
}

/* "es" after a hissing sound: classes, boxes, batches, but epochs. */
static const char *plural_ending(const char *noun)
{
    static const char *const hissing[] = {"s", "x", "sh", "tch"};
    const size_t length = strlen(noun);

    for (size_t i = 0; i < sizeof hissing / sizeof *hissing; i++) {
        const size_t end = strlen(hissing[i]);
        if (length >= end && strcmp(noun + length - end, hissing[i]) == 0)
            return "es";
    }
    return "s";
}

const char *cvy_counted(int64_t count, const char *noun)
{
    static _Thread_local char buffers[QUOTE_COUNT][COUNTED_SIZE];
    static _Thread_local unsigned turn;

    if (!noun)
        return "";
    char *out = buffers[turn++ % QUOTE_COUNT];

    snprintf(out, COUNTED_SIZE, "%lld %s%s", (long long)count, noun, count == 1 ? "" : plural_ending(noun));
    return out;
}

const char *cvy_quote(const char *text)
{
    static _Thread_local char buffers[QUOTE_COUNT][QUOTE_SIZE];
    static _Thread_local unsigned turn;

    if (!text)
        return "(null)";
    char *out = buffers[turn++ % QUOTE_COUNT];
    size_t used = 0, left = strlen(text);
    out[used++] = '"';
    while (left > 0) {
        char piece[24];
        size_t taken = escape_one(text, left, piece);
        size_t size = strlen(piece);
        if (used + size + sizeof "...\"" > QUOTE_SIZE) {
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(out + used, piece, size);
        used += size;
        text += taken;
        left -= taken;
    }
    out[used++] = '"';
    out[used] = 0;
    return out;
}
