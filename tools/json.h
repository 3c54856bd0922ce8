/* JSON on stdout, one value after the other; commas and escapes are put in here. */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdint.h>

#define JSON_MAX_DEPTH 16

/* Zero-initialise. */
struct json {
    int depth;
    int count[JSON_MAX_DEPTH]; /* entries written at each depth */
};

/* `key` is the name inside an object, NULL inside an array and at the top. */
void json_open_object(struct json *json, const char *key);
void json_open_array(struct json *json, const char *key);
void json_close_object(struct json *json);
void json_close_array(struct json *json);
void json_string(struct json *json, const char *key, const char *text); /* NULL: null */
void json_int(struct json *json, const char *key, int64_t value);
/* With `digits` significant digits; null for what JSON has no number for (NaN, infinity). */
void json_real(struct json *json, const char *key, double value, int digits);

#endif
