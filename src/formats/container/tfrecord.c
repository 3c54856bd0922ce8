#include "formats/container/tfrecord.h"

#include "base/error.h"
#include "formats/crc32c.h"

static void put32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get32(const uint8_t *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

void cvy_tfrecord_header(uint64_t size, uint8_t header[CVY_TFRECORD_HEADER])
{
    put32(header, (uint32_t)size);
    put32(header + 4, (uint32_t)(size >> 32));
    put32(header + 8, cvy_crc32c_mask(cvy_crc32c(0, header, 8)));
}

void cvy_tfrecord_footer(const void *payload, size_t size, uint8_t footer[CVY_TFRECORD_FOOTER])
{
    put32(footer, cvy_crc32c_mask(cvy_crc32c(0, payload, size)));
}

void cvy_tfrecord_append(struct cvy_text *out, const void *payload, size_t size)
{
    uint8_t header[CVY_TFRECORD_HEADER], footer[CVY_TFRECORD_FOOTER];

    cvy_tfrecord_header(size, header);
    cvy_tfrecord_footer(payload, size, footer);
    cvy_text_append(out, header, sizeof header);
    cvy_text_append(out, payload, size);
    cvy_text_append(out, footer, sizeof footer);
}

cvy_status cvy_tfrecord_check_header(const char *what, uint64_t offset, const uint8_t header[CVY_TFRECORD_HEADER],
                                     uint64_t *size)
{
    const bool right = get32(header + 8) == cvy_crc32c_mask(cvy_crc32c(0, header, 8));

    if (!right && offset == 0 && header[0] == 0x1F && header[1] == 0x8B)
        return cvy_fail(CVY_BAD_DATA, "%s is compressed by gzip: gunzip makes the records that are read",
                        cvy_quote(what));
    if (!right)
        return cvy_fail(CVY_BAD_DATA, "%s holds no record at byte %llu: the checksum of its length is wrong",
                        cvy_quote(what), (unsigned long long)offset);
    *size = (uint64_t)get32(header + 4) << 32 | get32(header);
    if (*size > CVY_TFRECORD_MAX)
        return cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s has %llu bytes, more than the %llu allowed",
                        (unsigned long long)offset, cvy_quote(what), (unsigned long long)*size,
                        (unsigned long long)CVY_TFRECORD_MAX);
    return CVY_OK;
}

cvy_status cvy_tfrecord_truncated(const char *what, uint64_t offset)
{
    return cvy_fail(CVY_BAD_DATA, "%s is truncated: it ends within the record at byte %llu", cvy_quote(what),
                    (unsigned long long)offset);
}

cvy_status cvy_tfrecord_parse(const char *what, uint64_t offset, const void *data, size_t size, const uint8_t **payload,
                              size_t *payload_size, size_t *used)
{
    const uint8_t *bytes = data;
    uint64_t length = 0;

    if (size >= CVY_TFRECORD_HEADER)
        CVY_TRY(cvy_tfrecord_check_header(what, offset, bytes, &length));
    if (size < CVY_TFRECORD_FRAME || length > size - CVY_TFRECORD_FRAME)
        return cvy_tfrecord_truncated(what, offset);
    bytes += CVY_TFRECORD_HEADER;
    if (get32(bytes + length) != cvy_crc32c_mask(cvy_crc32c(0, bytes, (size_t)length)))
        return cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s is damaged: its checksum is wrong",
                        (unsigned long long)offset, cvy_quote(what));
    *payload = bytes;
    *payload_size = (size_t)length;
    if (used)
        *used = (size_t)length + CVY_TFRECORD_FRAME;
    return CVY_OK;
}
