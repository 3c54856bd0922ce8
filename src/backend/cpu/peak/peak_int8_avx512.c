/* Peak loop of AVX512-VNNI: 4 products of bytes in each of 16 sums. */
#include <immintrin.h>

#include "backend/cpu/peak/peak.h"

double cpu_peak_int8_avx512(int64_t rounds)
{
    enum { SUMS = 24 };
    static volatile int sink;
    __m512i sums[SUMS], x = _mm512_set1_epi8(1), y = _mm512_set1_epi8(2), total = _mm512_setzero_si512();

    PEAK_UNROLL
    for (int i = 0; i < SUMS; i++)
        sums[i] = _mm512_setzero_si512();
    for (int64_t r = 0; r < rounds; r++) {
        PEAK_UNROLL
        for (int i = 0; i < SUMS; i++)
            __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sums[i]) : "v"(x), "v"(y));
    }
    PEAK_UNROLL
    for (int i = 0; i < SUMS; i++)
        total = _mm512_add_epi32(total, sums[i]);
    sink = _mm512_cvtsi512_si32(total);
    (void)sink;
    return 2.0 * SUMS * 64 * (double)rounds;
}
