/* protobuf's wire format over memory: messages field by field, in place. A field is a varint of (number << 3 | type)
 * and a value: type 0 a varint, 1 eight bytes, 2 a length and that many bytes, 5 four bytes. (TFRecords have a reader
 * of their own, for their messages need not be in memory: formats/container/example.h.) */
#ifndef CVY_FORMATS_WIRE_H
#define CVY_FORMATS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cvy_wire_type { CVY_WIRE_VARINT = 0, CVY_WIRE_64 = 1, CVY_WIRE_BYTES = 2, CVY_WIRE_32 = 5 };

/* What is left of a message. `at` is NULL once something in it was no message. */
struct cvy_wire {
    const uint8_t *at, *end;
};
struct cvy_wire_field {
    uint64_t number;
    enum cvy_wire_type type;
    uint64_t value;        /* of types 0, 1 and 5 */
    struct cvy_wire bytes; /* of type 2: a string, or a message */
};

static inline size_t cvy_wire_size(const struct cvy_wire *wire)
{
    return (size_t)(wire->end - wire->at);
}
/* The next field; false at the end, and where the bytes are none. */
bool cvy_wire_next(struct cvy_wire *wire, struct cvy_wire_field *field);
static inline bool cvy_wire_failed(const struct cvy_wire *wire)
{
    return !wire->at;
}
/* A bare varint, or `count` (8 at most) bytes as a little-endian number. */
bool cvy_wire_varint(struct cvy_wire *wire, uint64_t *value);
bool cvy_wire_fixed(struct cvy_wire *wire, int count, uint64_t *value);
/* The next `count` bytes, which are then after it. */
bool cvy_wire_read(struct cvy_wire *wire, uint64_t count, struct cvy_wire *bytes);

#endif
