/* Huffman codes of baseline JPEGs: tables with which one lookup decodes most coefficients, and a bit reader. Everything
 * that a block needs is inline, so that the reader stays in registers. */
#ifndef CVY_DATA_IMAGE_HUFFMAN_H
#define CVY_DATA_IMAGE_HUFFMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LOOKUP_BITS = 10 };

/* A code: its bits (0: it is longer than LOOKUP_BITS), the zeros before the coefficient, and the coefficient's bits. */
struct entry {
    uint8_t bits;
    uint8_t run : 4, size : 4;
};

/* One or two whole coefficients (one: twice the same), or the end of the block after none or one: where they lie from
 * here on, and the rest as in struct jump. */
struct couple {
    int16_t first, second;
    uint8_t bits : 4, run : 4, second_at;
    uint8_t advance, max;
};

/* As many whole coefficients as LOOKUP_BITS hold, where only their length counts: bits to take; places to move on, 64
 * where the block ends after them; and the most places that a block must have left for that. 255: none is whole. */
struct jump {
    uint8_t bits, advance, max;
};

struct huffman {
    struct entry look[1 << LOOKUP_BITS];
    struct couple couples[1 << LOOKUP_BITS]; /* of AC */
    struct jump jumps[1 << LOOKUP_BITS];     /* of AC */
    /* Longer codes: those of `length` bits are below limit[length] (left-aligned in 16 bits). */
    uint32_t limit[18];
    int32_t offset[17]; /* from code to symbol */
    uint8_t symbols[256];
    uint8_t counts[17]; /* what it was made from, with the symbols */
    bool made;
};

struct bit_reader {
    uint64_t buffer; /* the next bits, first one highest */
    int32_t count;   /* of them */
    const uint8_t *next;
};

/* From the counts (17, the first unused) of codes of each length and the symbols (256). False: they are no code. A
 * table that was made from the same is kept. */
bool cvy_huffman_make(struct huffman *table, const uint8_t *counts, const uint8_t *symbols, bool dc);

/* At least 56 bits. What lies in the buffer beyond `count` is what comes next: it is or-ed over itself. */
static inline void refill(struct bit_reader *bits)
{
    uint64_t word;

    memcpy(&word, bits->next, sizeof word);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    bits->buffer |= word >> bits->count;
    bits->next += (63 - bits->count) >> 3;
    bits->count |= 56;
}

static inline void drop(struct bit_reader *bits, int32_t count)
{
    bits->buffer <<= count;
    bits->count -= count;
}

/* `size` bits, at least one, as the value they stand for: those that begin with 0 are negative. */
static inline int32_t take_value(struct bit_reader *bits, int32_t size)
{
    const int32_t value = (int32_t)(bits->buffer >> (64 - size));

    drop(bits, size);
    return value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
}

/* A code longer than LOOKUP_BITS among the next 16 bits; without bits: there is none. */
static inline struct entry long_code(const struct huffman *table, uint32_t next)
{
    for (int32_t length = LOOKUP_BITS + 1; length <= 16; length++)
        if (next < table->limit[length]) {
            const int32_t place = (int32_t)(next >> (16 - length)) + table->offset[length];
            const int32_t symbol = place >= 0 && place < 256 ? table->symbols[place] : 0;
            return (struct entry){.bits = (uint8_t)length, .run = symbol >> 4 & 15, .size = symbol & 15};
        }
    return (struct entry){0};
}

/* Code, run and size of the next coefficient. */
static inline bool take_code(struct bit_reader *bits, const struct huffman *table, struct entry *entry)
{
    *entry = table->look[bits->buffer >> (64 - LOOKUP_BITS)];
    if (entry->bits == 0)
        *entry = long_code(table, (uint32_t)(bits->buffer >> 48));
    drop(bits, entry->bits);
    return entry->bits > 0;
}

#endif
