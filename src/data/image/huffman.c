#include "data/image/huffman.h"

static void enter(struct huffman *table, uint32_t code, int32_t length, uint8_t symbol)
{
    const int32_t free_bits = LOOKUP_BITS - length, size = symbol & 15;
    const uint32_t from = code << free_bits;

    for (uint32_t i = 0; i < 1U << free_bits; i++) {
        struct entry entry = {.bits = (uint8_t)length, .run = symbol >> 4 & 15, .size = size & 15};
        table->look[from + i] = entry;
    }
}

/* What entry `look[bits << used]` stands for where all of it is known: its bits; 0: it is not. */
static int32_t whole(const struct huffman *table, uint32_t bits, int32_t used, struct entry *entry, int16_t *value)
{
    const uint32_t from = bits << used & ((1 << LOOKUP_BITS) - 1);

    *entry = table->look[from];
    const int32_t length = entry->bits + entry->size;
    if (entry->bits == 0 || used + length > LOOKUP_BITS)
        return 0;
    *value = 0;
    if (entry->size > 0) {
        const int32_t read = (int32_t)(from >> (LOOKUP_BITS - length)) & ((1 << entry->size) - 1);
        *value = (int16_t)(read < 1 << (entry->size - 1) ? read - (1 << entry->size) + 1 : read);
    }
    return length;
}

static void make_couples(struct huffman *table)
{
    for (uint32_t bits = 0; bits < 1U << LOOKUP_BITS; bits++) {
        struct couple couple = {.max = 255};
        struct entry a, b;
        int16_t value;
        const int32_t length = whole(table, bits, 0, &a, &couple.first);
        if (length > 0 && a.size == 0 && a.run != 15) { /* the end */
            couple = (struct couple){.bits = length & 15, .advance = 64, .max = 1};
        } else if (length > 0 && a.size > 0) {
            couple.run = a.run;
            couple.second_at = a.run;
            couple.second = couple.first;
            couple.bits = length & 15;
            couple.advance = couple.max = (uint8_t)(a.run + 1);
            const int32_t more = whole(table, bits, length, &b, &value);
            if (more > 0 && b.size == 0 && b.run != 15) {
                couple.bits = (length + more) & 15;
                couple.advance = 64;
                couple.max++;
            } else if (more > 0 && b.size > 0) {
                couple.bits = (length + more) & 15;
                couple.second = value;
                couple.second_at = (uint8_t)(couple.advance + b.run);
                couple.advance = couple.max = (uint8_t)(couple.second_at + 1);
            }
        }
        table->couples[bits] = couple;
    }
}

static void make_jumps(struct huffman *table)
{
    for (uint32_t bits = 0; bits < 1U << LOOKUP_BITS; bits++) {
        struct jump jump = {.max = 255};
        int32_t used = 0, places = 0;
        for (;;) {
            /* After the known bits there may be anything: an entry counts if it lies within them. */
            const struct entry entry = table->look[bits << used & ((1 << LOOKUP_BITS) - 1)];
            const bool zeros = entry.size == 0;
            const int32_t length = entry.bits + entry.size;
            if (entry.bits == 0 || used + length > LOOKUP_BITS)
                break;
            used += length;
            if (zeros && entry.run != 15) { /* the end, of a block that is not full yet */
                jump = (struct jump){(uint8_t)used, 64, (uint8_t)(places + 1)};
                break;
            }
            places += entry.run + 1;
            if (places > 63)
                break;
            jump = (struct jump){(uint8_t)used, (uint8_t)places, (uint8_t)places};
        }
        table->jumps[bits] = jump;
    }
}

bool cvy_huffman_make(struct huffman *table, const uint8_t *counts, const uint8_t *symbols, bool dc)
{
    uint32_t code = 0;
    int32_t symbol = 0, total = 0;

    if (table->made && memcmp(table->counts, counts, 17) == 0 && memcmp(table->symbols, symbols, 256) == 0)
        return true; /* most files have the same tables */
    table->made = false;
    for (int length = 1; length <= 16; length++)
        total += counts[length];
    if (total > 256)
        return false;
    memcpy(table->counts, counts, 17);
    memcpy(table->symbols, symbols, 256);
    memset(table->look, 0, sizeof table->look);
    for (int length = 1; length <= 16; length++, code <<= 1) {
        table->offset[length] = symbol - (int32_t)code;
        for (int i = 0; i < counts[length]; i++, code++, symbol++) {
            if (code >= 1U << length || (dc && symbols[symbol] > 15))
                return false;
            if (length <= LOOKUP_BITS)
                enter(table, code, length, symbols[symbol]);
        }
        if (counts[length] > 0 && code >= 1U << length)
            return false; /* the code of ones alone is no code */
        table->limit[length] = code << (16 - length);
    }
    if (!dc) {
        make_couples(table);
        make_jumps(table);
    }
    table->made = true;
    return true;
}
