#include "base/json_out.h"

#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { MAX_DEPTH = (int)(sizeof((struct cvy_json *)0)->comma / sizeof(bool)) };

/* Before every value (and key): the comma that separates it from the one before. */
static void separate(struct cvy_json *json)
{
    if (json->comma[json->depth])
        cvy_text_puts(json->text, ", ");
    json->comma[json->depth] = true;
}

static void begin(struct cvy_json *json, const char *bracket)
{
    separate(json);
    cvy_text_puts(json->text, bracket);
    if (json->depth + 1 >= MAX_DEPTH) {
        json->text->failed = true; /* no text is better than a wrong one */
        return;
    }
    json->comma[++json->depth] = false;
}

static void end(struct cvy_json *json, const char *bracket)
{
    if (json->depth > 0)
        json->depth--;
    cvy_text_puts(json->text, bracket);
}

void cvy_json_begin_object(struct cvy_json *json)
{
    begin(json, "{");
}

void cvy_json_end_object(struct cvy_json *json)
{
    end(json, "}");
}

void cvy_json_begin_array(struct cvy_json *json)
{
    begin(json, "[");
}

void cvy_json_end_array(struct cvy_json *json)
{
    end(json, "]");
}

static void append_string(struct cvy_text *text, const char *value)
{
    size_t left = strlen(value);
    cvy_text_puts(text, "\"");
    while (left > 0) {
        uint32_t code_point = 0;
        size_t size = cvy_utf8_sequence(value, left, &code_point);
        if (size == 0) {
            cvy_text_puts(text, "\xEF\xBF\xBD"); /* U+FFFD, the replacement character */
            size = 1;
        } else if (code_point == '"' || code_point == '\\') {
            cvy_text_printf(text, "\\%c", (char)code_point);
        } else if (code_point == '\n') {
            cvy_text_puts(text, "\\n");
        } else if (code_point == '\t') {
            cvy_text_puts(text, "\\t");
        } else if (code_point < 0x20 || code_point == 0x7F) {
            cvy_text_printf(text, "\\u%04x", (unsigned)code_point);
        } else {
            cvy_text_append(text, value, size);
        }
        value += size;
        left -= size;
    }
    cvy_text_puts(text, "\"");
}

void cvy_json_key(struct cvy_json *json, const char *key)
{
    separate(json);
    append_string(json->text, key);
    cvy_text_puts(json->text, ": ");
    json->comma[json->depth] = false; /* the value follows without one */
}

void cvy_json_string(struct cvy_json *json, const char *value)
{
    separate(json);
    if (value)
        append_string(json->text, value);
    else
        cvy_text_puts(json->text, "null");
}

void cvy_json_int(struct cvy_json *json, int64_t value)
{
    separate(json);
    cvy_text_printf(json->text, "%" PRId64, value);
}

/* What printf wrote with the locale's decimal separator, with a point. The separator may be several bytes long. */
static void set_decimal_point(char *number)
{
    char *out = number;
    bool separated = false;
    for (const char *in = number; *in; in++) {
        if (strchr("+-0123456789abcdefinxABCDEFINX", *in)) {
            *out++ = *in;
        } else if (!separated) {
            *out++ = '.';
            separated = true;
        }
    }
    *out = 0;
}

char *cvy_double_text(double value, char buffer[32])
{
    /* 15 digits always survive the way into a normal double, 17 always suffice for the way back. A subnormal one has
     * fewer good digits. */
    int precision = fabs(value) < DBL_MIN ? 1 : 15;
    for (; precision <= 17; precision++) {
        snprintf(buffer, 32, "%.*g", precision, value);
        if (strtod(buffer, NULL) == value)
            break;
    }
    set_decimal_point(buffer);
    return buffer;
}

char *cvy_digits_text(double value, int digits, char buffer[32])
{
    snprintf(buffer, 32, "%.*g", digits < 17 ? digits : 17, value);
    set_decimal_point(buffer);
    return buffer;
}

static locale_t c_locale;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double cvy_double_parse(const char *text, char **end)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_c_locale);
    return c_locale ? strtod_l(text, end, c_locale) : strtod(text, end);
}

void cvy_json_number(struct cvy_json *json, double value)
{
    char buffer[32];
    separate(json);
    cvy_text_puts(json->text, isfinite(value) ? cvy_double_text(value, buffer) : "null");
}

void cvy_json_float(struct cvy_json *json, float value)
{
    char buffer[32];
    separate(json);
    cvy_text_puts(json->text, isfinite(value) ? cvy_digits_text((double)value, 9, buffer) : "null");
}

void cvy_json_fixed(struct cvy_json *json, double value, int decimals)
{
    char buffer[400]; /* DBL_MAX has 309 digits before the point */
    separate(json);
    snprintf(buffer, sizeof buffer, "%.*f", decimals < 60 ? decimals : 60, value);
    set_decimal_point(buffer);
    cvy_text_puts(json->text, isfinite(value) ? buffer : "null");
}

void cvy_json_bool(struct cvy_json *json, bool value)
{
    separate(json);
    cvy_text_puts(json->text, value ? "true" : "false");
}

void cvy_json_raw(struct cvy_json *json, const char *text)
{
    separate(json);
    cvy_text_puts(json->text, text);
}

void cvy_json_put_string(struct cvy_json *json, const char *key, const char *value)
{
    cvy_json_key(json, key);
    cvy_json_string(json, value);
}

void cvy_json_put_int(struct cvy_json *json, const char *key, int64_t value)
{
    cvy_json_key(json, key);
    cvy_json_int(json, value);
}

void cvy_json_put_number(struct cvy_json *json, const char *key, double value)
{
    cvy_json_key(json, key);
    cvy_json_number(json, value);
}

void cvy_json_put_bool(struct cvy_json *json, const char *key, bool value)
{
    cvy_json_key(json, key);
    cvy_json_bool(json, value);
}
