#include "formats/wire_write.h"

#include "formats/wire.h"

void cvy_wire_put_varint(struct cvy_text *text, uint64_t value)
{
    unsigned char bytes[10];
    size_t count = 0;

    for (; value >= 0x80; value >>= 7)
        bytes[count++] = (unsigned char)(value | 0x80);
    bytes[count++] = (unsigned char)value;
    cvy_text_append(text, bytes, count);
}

void cvy_wire_put_fixed(struct cvy_text *text, int count, uint64_t value)
{
    unsigned char bytes[8];

    for (int i = 0; i < count; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
    cvy_text_append(text, bytes, (size_t)count);
}

static void put_tag(struct cvy_text *text, uint32_t number, enum cvy_wire_type type)
{
    cvy_wire_put_varint(text, (uint64_t)number << 3 | type);
}

void cvy_wire_put_number(struct cvy_text *text, uint32_t number, uint64_t value)
{
    put_tag(text, number, CVY_WIRE_VARINT);
    cvy_wire_put_varint(text, value);
}

void cvy_wire_put_fixed32(struct cvy_text *text, uint32_t number, uint32_t value)
{
    put_tag(text, number, CVY_WIRE_32);
    cvy_wire_put_fixed(text, 4, value);
}

void cvy_wire_put_bytes(struct cvy_text *text, uint32_t number, const void *bytes, size_t size)
{
    put_tag(text, number, CVY_WIRE_BYTES);
    cvy_wire_put_varint(text, size);
    cvy_text_append(text, bytes, size);
}
