/* Integer inference with AVX2 alone, exact by an instruction that is not: vpmaddubsw adds two products of bytes to 16
 * bits, which saturate. The weights alone tell whether they can (int8_pack.c): where they cannot, it is as good as
 * any, and where those of two steps cannot together, these are added before vpmaddwd widens them; elsewhere bytes
 * become words, of which vpmaddwd adds two products to 32 bits. */
#include "backend/cpu/int8.h"

/* Sums of HALVES of a vector are made together: eight registers of them. */
enum { TILE = 8, HALVES = 1, PANEL = CPU_INT8_WIDE_PANEL };

#include "backend/cpu/int8_avx2_ends.inc"

/* The sum with the products of four unsigned and four signed bytes for each lane. */
INLINE __m256i add_products(__m256i sum, __m256i x, __m256i w)
{
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), odd = _mm256_srai_epi16(w, 8);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_and_si256(x, _mm256_set1_epi16(255)), even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_srli_epi16(x, 8), odd));
}

/* ---- sums over all channels of pixels ---- */

/* What a slice takes of a tile's pixels, for each pairing: side by side, for what lies 4096 bytes apart has the same
 * place in the first cache. */
struct slice {
    uint8_t x[CPU_INT8_SLICE][CPU_INT8_PAIRINGS][CPU_INT8_PAIRING_BYTES] __attribute__((aligned(32)));
};

INLINE __m256i pairing_of(int pairing)
{
    const __m256i fours =
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    return _mm256_add_epi8(four_bytes(cpu_int8_pairings[pairing]), fours);
}

INLINE void fill_step(struct slice *slice, int64_t step, __m256i bytes)
{
    _mm256_store_si256((void *)slice->x[step][0], bytes);
    for (int pairing = 1; pairing < CPU_INT8_PAIRINGS; pairing++)
        _mm256_store_si256((void *)slice->x[step][pairing], _mm256_shuffle_epi8(bytes, pairing_of(pairing)));
}

/* Eight steps from `step` on, whose bytes begin at from[i] + skip. */
INLINE void fill_eight(struct slice *slice, int64_t step, const uint8_t *const *from, int64_t skip)
{
    __m256i rows[TILE], pairs[TILE], fours[8];
#pragma GCC unroll 8
    for (int i = 0; i < TILE; i++)
        rows[i] = _mm256_loadu_si256((const void *)(from[i] + skip));
#pragma GCC unroll 4
    for (int i = 0; i < TILE; i += 2) {
        pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) { /* steps 2 i and 2 i + 1 of each lane of 128 bits */
        fours[2 * i] = _mm256_unpacklo_epi64(pairs[i], pairs[2 + i]);
        fours[2 * i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[2 + i]);
        fours[4 + 2 * i] = _mm256_unpacklo_epi64(pairs[4 + i], pairs[6 + i]);
        fours[4 + 2 * i + 1] = _mm256_unpackhi_epi64(pairs[4 + i], pairs[6 + i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        fill_step(slice, step + i, _mm256_permute2x128_si256(fours[i], fours[4 + i], 0x20));
        fill_step(slice, step + 4 + i, _mm256_permute2x128_si256(fours[i], fours[4 + i], 0x31));
    }
}

/* Steps `step` to `end` of the slice, whose bytes begin at from[i] + skip. */
INLINE void fill(struct slice *slice, int64_t step, int64_t end, const uint8_t *const *from, int64_t skip)
{
    for (; step + 8 <= end; step += 8, skip += 32)
        fill_eight(slice, step, from, skip);
    for (; step < end; step++, skip += 4) {
        int32_t bytes[TILE];
        for (int i = 0; i < TILE; i++)
            memcpy(&bytes[i], from[i] + skip, 4);
        fill_step(slice, step, _mm256_loadu_si256((const void *)bytes));
    }
}

/* The sum with the products of four bytes of a pixel and of these weights, whose pairs fit into 16 bits. Written out:
 * compilers read all pixels first, which takes more registers than there are. */
INLINE __m256i add_short_products(__m256i sum, const uint8_t *x, __m256i w, __m256i ones)
{
    __m256i words;
    __asm__("vpbroadcastd %2, %1\n\t"
            "vpmaddubsw %3, %1, %1\n\t"
            "vpmaddwd %4, %1, %1\n\t"
            "vpaddd %1, %0, %0"
            : "+x"(sum), "=&x"(words)
            : "m"(*(const uint8_t(*)[4])x), "x"(w), "x"(ones));
    return sum;
}

/* The same of two steps whose four products for a word fit into 16 bits together: they are widened once. */
INLINE __m256i add_couple(__m256i sum, const uint8_t *x, const uint8_t *x2, __m256i w, __m256i w2, __m256i ones)
{
    __m256i words, words2;
    __asm__("vpbroadcastd %3, %1\n\t"
            "vpbroadcastd %4, %2\n\t"
            "vpmaddubsw %5, %1, %1\n\t"
            "vpmaddubsw %6, %2, %2\n\t"
            "vpaddw %2, %1, %1\n\t"
            "vpmaddwd %7, %1, %1\n\t"
            "vpaddd %1, %0, %0"
            : "+x"(sum), "=&x"(words), "=&x"(words2)
            : "m"(*(const uint8_t(*)[4])x), "m"(*(const uint8_t(*)[4])x2), "x"(w), "x"(w2), "x"(ones));
    return sum;
}

/* Eight output channels for all pixels of a slice of `count` steps: added to `start`, of one pixel, or to what is in
 * `to` (TILE, PANEL). w (count, 8, 4), in this order (int8_pack.c). */
INLINE void sum_half(const struct slice *slice, const int8_t *w, const uint16_t *order, int64_t count,
                     const int32_t *start, int32_t *to)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const uint16_t *const steps = order + CPU_INT8_ORDER_HEAD;
    const uint16_t *const singles = steps + 2 * order[0], *const others = steps + order[1], *const end = steps + count;
    const uint8_t *const bytes = (const uint8_t *)slice->x;
    __m256i sums[TILE];
#pragma GCC unroll 8
    for (int i = 0; i < TILE; i++)
        sums[i] = _mm256_load_si256((const void *)(start ? start : to + PANEL * i));
    for (order = steps; order < singles; order += 2, w += 64) {
        const __m256i weights = _mm256_loadu_si256((const void *)w),
                      weights2 = _mm256_loadu_si256((const void *)(w + 32));
        const uint8_t *x = bytes + order[0], *x2 = bytes + order[1];
#pragma GCC unroll 8
        for (int i = 0; i < TILE; i++)
            sums[i] = add_couple(sums[i], x + 4 * i, x2 + 4 * i, weights, weights2, ones);
    }
    for (; order < others; order++, w += 32) {
        const __m256i weights = _mm256_loadu_si256((const void *)w);
#pragma GCC unroll 8
        for (int i = 0; i < TILE; i++)
            sums[i] = add_short_products(sums[i], bytes + *order + 4 * i, weights, ones);
    }
    for (; order < end; order++, w += 32) {
        const __m256i weights = _mm256_loadu_si256((const void *)w);
#pragma GCC unroll 8
        for (int i = 0; i < TILE; i++)
            sums[i] = add_products(sums[i], four_bytes(bytes + *order + 4 * i), weights);
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE; i++)
        _mm256_store_si256((void *)(to + PANEL * i), sums[i]);
}

/* to (TILE, PANEL) */
static void sum_one_group(const struct tile *tile, int32_t *to)
{
    struct slice slice;
    const int64_t steps = tile->taps * tile->quads, order_size = cpu_int8_order_size(steps);
    const uint8_t *const *pixels = tile->pixels;
    const int32_t *start = tile->finish->start;
    int64_t skip = tile->skip, filled = 0, done = 0, slices = 0;

    for (int64_t tap = 0; tap < tile->taps; tap++, pixels += tile->pointers, skip += tile->bytes)
        for (int64_t quad = 0, taken; quad < tile->quads; quad += taken) {
            const int64_t left = tile->quads - quad;
            taken = left < CPU_INT8_SLICE - filled ? left : CPU_INT8_SLICE - filled;
            fill(&slice, filled, filled + taken, pixels, skip + 4 * quad);
            filled += taken;
            if (filled < CPU_INT8_SLICE && done + filled < steps)
                continue;
            for (int half = 0; half < 2 * tile->vectors; half++)
                sum_half(&slice, tile->w + 4 * HALF * (half * steps + done),
                         tile->order + half * order_size + done + CPU_INT8_ORDER_HEAD * slices, filled,
                         start ? start + HALF * half : NULL, to + HALF * half);
            start = NULL;
            done += filled;
            slices++;
            filled = 0;
        }
}

#define SUM_ONE_GROUP sum_one_group
#define SORTED        true
#define INT8_TABLE    cpu_int8_kernels_avx2
#define INT8_ISA      "avx2"
#include "backend/cpu/int8_avx2_sums.inc"
