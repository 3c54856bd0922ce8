/* Peak loop of AVX2 for products of bytes that have become words: 2 in each of 8 sums, added to others. */
#include <immintrin.h>

#include "backend/cpu/peak/peak.h"

double cpu_peak_int8_words(int64_t rounds)
{
    enum { SUMS = 12 };
    static volatile int sink;
    __m256i sums[SUMS], x = _mm256_set1_epi16(1), y = _mm256_set1_epi16(2), total = _mm256_setzero_si256();

    PEAK_UNROLL
    for (int i = 0; i < SUMS; i++)
        sums[i] = _mm256_setzero_si256();
    for (int64_t r = 0; r < rounds; r++) {
        PEAK_UNROLL
        for (int i = 0; i < SUMS; i++) {
            __m256i products;
            __asm__ volatile("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
                             : "+x"(sums[i]), "=&x"(products)
                             : "x"(x), "x"(y));
        }
    }
    PEAK_UNROLL
    for (int i = 0; i < SUMS; i++)
        total = _mm256_add_epi32(total, sums[i]);
    sink = _mm256_extract_epi32(total, 0);
    (void)sink;
    return 2.0 * SUMS * 16 * (double)rounds;
}
