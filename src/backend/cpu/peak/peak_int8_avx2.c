/* Peak loop of AVX-VNNI: 4 products of bytes in each of 8 sums. */
#include <immintrin.h>

#include "backend/cpu/peak/peak.h"

double cpu_peak_int8_avx2(int64_t rounds)
{
    enum { SUMS = 12 };
    static volatile int sink;
    __m256i sums[SUMS], x = _mm256_set1_epi8(1), y = _mm256_set1_epi8(2), total = _mm256_setzero_si256();

    PEAK_UNROLL
    for (int i = 0; i < SUMS; i++)
        sums[i] = _mm256_setzero_si256();
    for (int64_t r = 0; r < rounds; r++) {
        PEAK_UNROLL
        for (int i = 0; i < SUMS; i++)
            __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums[i]) : "x"(x), "x"(y));
    }
    PEAK_UNROLL
    for (int i = 0; i < SUMS; i++)
        total = _mm256_add_epi32(total, sums[i]);
    sink = _mm256_extract_epi32(total, 0);
    (void)sink;
    return 2.0 * SUMS * 32 * (double)rounds;
}
