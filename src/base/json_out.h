/* JSON text written piece by piece into a cvy_text; commas and nesting are kept here. */
#ifndef CVY_BASE_JSON_OUT_H
#define CVY_BASE_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

/* Zero-initialise with .text set. At most 32 levels. No white space is written except ", " and ": ". */
struct cvy_json {
    struct cvy_text *text;
    int depth;
    bool comma[32];
};
void cvy_json_begin_object(struct cvy_json *json);
void cvy_json_end_object(struct cvy_json *json);
void cvy_json_begin_array(struct cvy_json *json);
void cvy_json_end_array(struct cvy_json *json);
void cvy_json_key(struct cvy_json *json, const char *key);
void cvy_json_string(struct cvy_json *json, const char *value); /* NULL writes null; invalid UTF-8 becomes U+FFFD */
void cvy_json_int(struct cvy_json *json, int64_t value);
void cvy_json_number(struct cvy_json *json, double value); /* shortest that reads back; null if not finite */
void cvy_json_float(struct cvy_json *json, float value);   /* %.9g */
void cvy_json_fixed(struct cvy_json *json, double value, int decimals); /* %.*f; null if not finite */
void cvy_json_bool(struct cvy_json *json, bool value);
void cvy_json_raw(struct cvy_json *json, const char *text); /* text that is JSON already */
/* Key and value in one. */
void cvy_json_put_string(struct cvy_json *json, const char *key, const char *value);
void cvy_json_put_int(struct cvy_json *json, const char *key, int64_t value);
void cvy_json_put_number(struct cvy_json *json, const char *key, double value);
void cvy_json_put_bool(struct cvy_json *json, const char *key, bool value);
/* The shortest of printf's %.1g to %.17g that reads back to the same double, with a point whatever the locale.
 * Returns buffer. */
char *cvy_double_text(double value, char buffer[32]);
/* "%.<digits>g" with a point whatever the locale (digits at most 17). Returns buffer. */
char *cvy_digits_text(double value, int digits, char buffer[32]);
/* strtod with a point whatever the locale of the program that uses the library. */
double cvy_double_parse(const char *text, char **end);

#endif
