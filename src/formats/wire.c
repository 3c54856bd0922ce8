#include "formats/wire.h"

static bool fail(struct cvy_wire *wire)
{
    wire->at = wire->end = NULL;
    return false;
}

bool cvy_wire_varint(struct cvy_wire *wire, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && wire->at != wire->end; shift += 7) {
        const uint8_t byte = *wire->at++;
        if (shift == 63 && byte > 1) /* beyond 64 bits */
            break;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return fail(wire);
}

bool cvy_wire_fixed(struct cvy_wire *wire, int count, uint64_t *value)
{
    *value = 0;
    if (cvy_wire_size(wire) < (size_t)count)
        return fail(wire);
    for (int i = 0; i < count; i++)
        *value |= (uint64_t)wire->at[i] << (8 * i);
    wire->at += count;
    return true;
}

bool cvy_wire_read(struct cvy_wire *wire, uint64_t count, struct cvy_wire *bytes)
{
    if (!wire->at || count > cvy_wire_size(wire))
        return fail(wire);
    *bytes = (struct cvy_wire){wire->at, wire->at + count};
    wire->at += count;
    return true;
}

bool cvy_wire_next(struct cvy_wire *wire, struct cvy_wire_field *field)
{
    uint64_t tag, length;

    if (wire->at == wire->end)
        return false;
    if (!cvy_wire_varint(wire, &tag))
        return false;
    *field = (struct cvy_wire_field){.number = tag >> 3, .type = (enum cvy_wire_type)(tag & 7)};
    switch (field->type) {
    case CVY_WIRE_VARINT:
        return cvy_wire_varint(wire, &field->value);
    case CVY_WIRE_64:
        return cvy_wire_fixed(wire, 8, &field->value);
    case CVY_WIRE_BYTES:
        return cvy_wire_varint(wire, &length) && cvy_wire_read(wire, length, &field->bytes);
    case CVY_WIRE_32:
        return cvy_wire_fixed(wire, 4, &field->value);
    }
    return fail(wire);
}
