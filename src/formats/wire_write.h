/* Writing protobuf's wire format (formats/wire.h) to the end of a text, whose first failed allocation sticks. */
#ifndef CVY_FORMATS_WIRE_WRITE_H
#define CVY_FORMATS_WIRE_WRITE_H

#include "base/memory.h"

void cvy_wire_put_varint(struct cvy_text *text, uint64_t value);
/* `count` (8 at most) bytes of a little-endian number. */
void cvy_wire_put_fixed(struct cvy_text *text, int count, uint64_t value);
/* Fields: a varint; four bytes; a string or message. */
void cvy_wire_put_number(struct cvy_text *text, uint32_t number, uint64_t value);
void cvy_wire_put_fixed32(struct cvy_text *text, uint32_t number, uint32_t value);
void cvy_wire_put_bytes(struct cvy_text *text, uint32_t number, const void *bytes, size_t size);

#endif
