/* Protocol buffers as text, without their schema: what TensorFlow's programs have their configurations in. A tree in an
 * arena; what the names and values mean is the caller's. At most 32 levels, 20000 fields, 4096 bytes of a value. */
#ifndef CVY_FORMATS_TEXT_PROTO_H
#define CVY_FORMATS_TEXT_PROTO_H

#include <stdbool.h>

#include "base/memory.h"
#include "convoy/status.h"

/* A field with its fields, in the order of the text; a list "[a, b]" is as many fields of one name. */
struct cvy_text_field {
    const char *name;
    const char *value; /* a word, a number or the text between quotes; NULL: a message */
    bool quoted;
    int line; /* from 1 */
    struct cvy_text_field *first, *next;
};

/* Read `size` bytes; `what` names them in errors. *first: the first field, NULL of an empty text; it lives in `arena`.
 * CVY_BAD_DATA names the line; CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_text_proto_parse(const char *what, const char *text, size_t size, struct cvy_arena *arena,
                                            struct cvy_text_field **first);

#endif
