/* Integer inference with AVX2 alone. There is no instruction that adds products of bytes without saturation (vpmaddubsw
 * keeps 16 bits of two of them), so bytes become words, of which vpmaddwd adds two products to 32 bits: twice as many a
 * cycle as products of floats on processors that multiply words in two units and add in others. */
#include "backend/cpu/int8_avx2_ends.inc"

/* Steps of four channels whose pixels are widened at a time. */
enum { SLICE = 64 };

/* The sum with the products of four unsigned and four signed bytes for each lane. */
INLINE __m256i add_products(__m256i sum, __m256i x, __m256i w)
{
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), odd = _mm256_srai_epi16(w, 8);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_and_si256(x, _mm256_set1_epi16(255)), even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_srli_epi16(x, 8), odd));
}

/* ---- sums over all channels of pixels ---- */

/* `count` bytes, a multiple of 4, as words. */
INLINE void widen(int16_t *to, const uint8_t *from, int64_t count)
{
    int64_t i = 0;
    for (; i + 16 <= count; i += 16)
        _mm256_storeu_si256((void *)(to + i), _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(from + i))));
    for (; i < count; i += 4) {
        int32_t bytes;
        memcpy(&bytes, from + i, sizeof bytes);
        _mm_storel_epi64((void *)(to + i), _mm_cvtepu8_epi16(_mm_cvtsi32_si128(bytes)));
    }
}

/* Adds the products of four channels of a pixel and of their weights of four output channels each. Written out: it
 * takes all registers that there are, and the compiler would read all pixels first and keep sums in memory. */
#define ADD_PIXEL(low, high, from, first, second)                                                                      \
    do {                                                                                                               \
        __m256i both, one;                                                                                             \
        __asm__("vpbroadcastq %4, %2\n\t"                                                                              \
                "vpmaddwd %5, %2, %3\n\t"                                                                              \
                "vpaddd %3, %0, %0\n\t"                                                                                \
                "vpmaddwd %6, %2, %2\n\t"                                                                              \
                "vpaddd %2, %1, %1"                                                                                    \
                : "+x"(low), "+x"(high), "=&x"(both), "=&x"(one)                                                       \
                : "m"(*(const __m64 *)(const void *)(from)) /* which may alias */, "x"(first), "x"(second));           \
    } while (0)

/* Eight output channels for all pixels of a slice: added to `start`, of one pixel, or to what is in `to`. `step`: bytes
 * from one four channels' weights to the next. Each register has two sums for each of four channels. */
INLINE void sum_half(const int16_t words[TILE][4 * SLICE], const int8_t *w, int64_t step, int64_t quads,
                     const int32_t *start, int32_t *to)
{
    __m256i low[TILE], high[TILE];
#pragma GCC unroll 6
    for (int i = 0; i < TILE; i++)
        low[i] = high[i] = _mm256_setzero_si256();
    for (int64_t quad = 0; quad < quads; quad++, w += step) {
        const __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)w));
        const __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(w + 16)));
#pragma GCC unroll 6
        for (int i = 0; i < TILE; i++)
            ADD_PIXEL(low[i], high[i], words[i] + 4 * quad, first, second);
    }
#pragma GCC unroll 6
    for (int i = 0; i < TILE; i++, to += PANEL) {
        const __m256i sums = _mm256_permute4x64_epi64(_mm256_hadd_epi32(low[i], high[i]), 0xd8);
        const __m256i before = _mm256_load_si256((const void *)(start ? start : to));
        _mm256_store_si256((void *)to, _mm256_add_epi32(before, sums));
    }
}

static void sum_slice(const struct tile *tile, const int32_t *start, const int16_t words[TILE][4 * SLICE],
                      const int8_t *w, int64_t quads, int32_t *to)
{
    const int64_t step = (int64_t)4 * LANES * tile->vectors;
    for (int half = 0; half < 2 * tile->vectors; half++)
        sum_half(words, w + 4 * HALF * half, step, quads, start ? start + HALF * half : NULL, to + HALF * half);
}

/* to (TILE, PANEL) */
static void sum_one_group(const struct tile *tile, int32_t *to)
{
    int16_t words[TILE][4 * SLICE] __attribute__((aligned(32)));
    const uint8_t *const *pixels = tile->pixels;
    const int32_t *start = tile->finish->start;
    const int8_t *w = tile->w;
    int64_t skip = tile->skip, filled = 0;

    for (int64_t tap = 0; tap < tile->taps; tap++, pixels += tile->pointers, skip += tile->bytes)
        for (int64_t quad = 0, taken; quad < tile->quads; quad += taken) {
            const int64_t left = tile->quads - quad;
            taken = left < SLICE - filled ? left : SLICE - filled;
            for (int i = 0; i < TILE; i++)
                widen(words[i] + 4 * filled, pixels[i] + skip + 4 * quad, 4 * taken);
            filled += taken;
            if (filled < SLICE && !(tap + 1 == tile->taps && taken == left))
                continue;
            sum_slice(tile, start, words, w, filled, to);
            w += filled * 4 * LANES * tile->vectors;
            start = NULL;
            filled = 0;
        }
}

#define SUM_ONE_GROUP sum_one_group
#define INT8_TABLE    cpu_int8_kernels_avx2
#define INT8_ISA      "avx2"
#include "backend/cpu/int8_avx2_sums.inc"
