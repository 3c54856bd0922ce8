#include "report/drawing/html.h"

#include <math.h>
#include <string.h>

#include "base/json_out.h"
#include "base/utf8.h"

void cvy_html_escaped(struct cvy_text *out, const char *text)
{
    size_t left = text ? strlen(text) : 0;

    while (left > 0) {
        uint32_t code_point = 0;
        size_t size = cvy_utf8_sequence(text, left, &code_point);

        if (size == 0 || code_point < 0x20 || code_point == 0xFFFE || code_point == 0xFFFF)
            cvy_text_puts(out, "\xEF\xBF\xBD");
        else if (code_point == '<' || code_point == '>' || code_point == '&' || code_point == '"')
            cvy_text_printf(out, "&#%u;", (unsigned)code_point);
        else
            cvy_text_append(out, text, size);
        size += size == 0;
        text += size;
        left -= size;
    }
}

void cvy_html_coordinate(struct cvy_text *out, double value)
{
    char buffer[32];
    const double rounded = round(value * 10) / 10;

    cvy_text_puts(out, cvy_double_text(rounded == 0 ? 0 : rounded, buffer));
}

void cvy_html_attribute(struct cvy_text *out, const char *name, double value)
{
    cvy_text_printf(out, " %s=\"", name);
    cvy_html_coordinate(out, value);
    cvy_text_puts(out, "\"");
}

void cvy_html_fixed(struct cvy_text *out, double value, int decimals)
{
    struct cvy_json number = {.text = out};

    if (isfinite(value))
        cvy_json_fixed(&number, value, decimals);
    else
        cvy_text_puts(out, "n/a");
}

void cvy_base64(struct cvy_text *out, const void *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *bytes = data;

    for (size_t i = 0; i < size; i += 3) {
        const size_t count = size - i < 3 ? size - i : 3;
        const uint32_t group = (uint32_t)bytes[i] << 16 | (count > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                               (count > 2 ? (uint32_t)bytes[i + 2] : 0);
        char four[4] = {digits[group >> 18], digits[group >> 12 & 63], digits[group >> 6 & 63], digits[group & 63]};

        if (count < 3)
            four[3] = '=';
        if (count < 2)
            four[2] = '=';
        cvy_text_append(out, four, sizeof four);
    }
}

bool cvy_is_base64(const char *text)
{
    return !text || text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")] == '\0';
}
