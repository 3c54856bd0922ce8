/* CRC-32C (Castagnoli): polynomial 0x1EDC6F41 reflected, start and end inverted; and the masked form that TFRecords
 * store. */
#ifndef CVY_FORMATS_CRC32C_H
#define CVY_FORMATS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues from `crc`, 0 at the start. */
uint32_t cvy_crc32c(uint32_t crc, const void *data, size_t size);
/* The same without special instructions: what the other is compared with. */
uint32_t cvy_crc32c_plain(uint32_t crc, const void *data, size_t size);
/* A sum over bytes that hold sums themselves would be weak: the stored form is turned by 15 bits and moved on. */
static inline uint32_t cvy_crc32c_mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

#endif
