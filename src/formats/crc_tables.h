/* Reflected 32-bit sums of any polynomial, eight bytes at a time from tables. */
#ifndef CVY_FORMATS_CRC_TABLES_H
#define CVY_FORMATS_CRC_TABLES_H

#include <stddef.h>
#include <stdint.h>

struct cvy_crc_tables {
    uint32_t of[8][256]; /* of[k][b]: what byte b does to the sum when k more bytes follow */
};
void cvy_crc_tables_make(struct cvy_crc_tables *tables, uint32_t polynomial); /* reflected */
/* Continues from `crc`, which is inverted already and stays so. */
uint32_t cvy_crc_tables_add(const struct cvy_crc_tables *tables, uint32_t crc, const unsigned char *bytes, size_t size);

#endif
