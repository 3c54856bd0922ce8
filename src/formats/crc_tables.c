#include "formats/crc_tables.h"

void cvy_crc_tables_make(struct cvy_crc_tables *tables, uint32_t polynomial)
{
    uint32_t(*of)[256] = tables->of;

    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        of[0][b] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++)
            of[k][b] = of[k - 1][b] >> 8 ^ of[0][of[k - 1][b] & 255];
}

uint32_t cvy_crc_tables_add(const struct cvy_crc_tables *tables, uint32_t crc, const unsigned char *bytes, size_t size)
{
    const uint32_t(*of)[256] = tables->of;

    for (; size >= 8; size -= 8, bytes += 8) {
        uint32_t next = 0;
        for (int i = 0; i < 4; i++)
            next ^= of[7 - i][(crc >> (8 * i) & 255) ^ bytes[i]] ^ of[3 - i][bytes[4 + i]];
        crc = next;
    }
    for (; size > 0; size--, bytes++)
        crc = crc >> 8 ^ of[0][(crc ^ *bytes) & 255];
    return crc;
}
