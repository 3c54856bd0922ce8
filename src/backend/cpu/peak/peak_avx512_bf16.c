/* Peak loops for processors with AVX-512 and AVX512-BF16. */
#include <immintrin.h>
#include <stdint.h>

#include "backend/cpu/peak/peak.h"

static double peak_bf16(int64_t rounds)
{
    enum { SUMS = 24 };
    static volatile float sink;
    __m512 sums[SUMS], total = _mm512_setzero_ps();
    __m512i x = _mm512_set1_epi32(0x3F003F00), y = _mm512_set1_epi32(0x3E803E80); /* 0.5 and 0.25, twice each */

    PEAK_UNROLL
    for (int i = 0; i < SUMS; i++)
        sums[i] = _mm512_setzero_ps();
    for (int64_t r = 0; r < rounds; r++) {
        PEAK_UNROLL
        for (int i = 0; i < SUMS; i++) {
            sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)x, (__m512bh)y);
            PEAK_OPAQUE(sums[i]);
        }
    }
    PEAK_UNROLL
    for (int i = 0; i < SUMS; i++)
        total = _mm512_add_ps(total, sums[i]);
    sink = _mm512_cvtss_f32(total);
    (void)sink;
    return 2.0 * SUMS * 32 * (double)rounds;
}

#define PEAK_TABLE cpu_peak_avx512_bf16
#define PEAK_BYTES 64
#define PEAK_SUMS  24
#define PEAK_BF16  peak_bf16
#include "backend/cpu/peak/peak.inc"
