/* CRC-32 as zip has it: polynomial 0x04C11DB7 reflected, start and end inverted. */
#ifndef CVY_FORMATS_CRC32_H
#define CVY_FORMATS_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Continues from `crc`, 0 at the start. */
uint32_t cvy_crc32(uint32_t crc, const void *data, size_t size);
/* The same without special instructions: what the other is compared with. */
uint32_t cvy_crc32_plain(uint32_t crc, const void *data, size_t size);

#endif
