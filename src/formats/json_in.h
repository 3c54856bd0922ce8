/* JSON text in, as a tree in an arena. Built on a stream of events (formats/json_stream.h); at most 64 levels and 4 Mi
 * values, duplicate keys and numbers that a double cannot hold are refused. */
#ifndef CVY_FORMATS_JSON_IN_H
#define CVY_FORMATS_JSON_IN_H

#include <stdbool.h>

#include "base/memory.h"
#include "convoy/status.h"

enum cvy_json_type { CVY_JSON_NULL, CVY_JSON_BOOL, CVY_JSON_NUMBER, CVY_JSON_STRING, CVY_JSON_ARRAY, CVY_JSON_OBJECT };

/* Arrays and objects keep their entries as a list, in file order. */
struct cvy_json_value {
    enum cvy_json_type type;
    bool boolean;
    bool is_integer;  /* a number without fraction or exponent that fits 64 bits */
    int64_t integer;  /* when is_integer */
    double number;    /* every number */
    const char *text; /* strings (terminated; embedded NUL is refused) */
    const char *key;  /* name inside the parent object, else NULL */
    struct cvy_json_value *first, *next;
    size_t count; /* entries of an array or object */
};

/* `what` names the source in errors ("model.safetensors"). The tree lives in `arena`. CVY_BAD_DATA, CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_json_parse(const char *what, const char *text, size_t length, struct cvy_arena *arena,
                                      struct cvy_json_value **root);
/* The same for untrusted text: CVY_BAD_DATA when its values, at least two bytes of text each, would need more than
 * `memory` bytes in addition to their strings. */
CVY_CHECKED cvy_status cvy_json_parse_within(const char *what, const char *text, size_t length, size_t memory,
                                             struct cvy_arena *arena, struct cvy_json_value **root);
/* The entry of an object, or NULL. */
const struct cvy_json_value *cvy_json_get(const struct cvy_json_value *object, const char *key);
/* Typed lookups with a default for a missing entry or one of another type. */
double cvy_json_get_number(const struct cvy_json_value *object, const char *key, double otherwise);
int64_t cvy_json_get_int(const struct cvy_json_value *object, const char *key, int64_t otherwise);
const char *cvy_json_get_string(const struct cvy_json_value *object, const char *key, const char *otherwise);
bool cvy_json_get_bool(const struct cvy_json_value *object, const char *key, bool otherwise);

#endif
