/* Peak loops of vectors of 32 bytes for products of bytes, 4 in each of 8 sums: by AVX-VNNI, and by AVX2, those of two
 * vectors in 16 bits first. */
#include <immintrin.h>

#include "backend/cpu/peak/peak.h"

/* `code` adds `products` for each vector to sum 0, from factors 3 and 4; 1 and 2 are free. */
#define PEAK_LOOP(name, code, products)                                                                                \
    double name(int64_t rounds)                                                                                        \
    {                                                                                                                  \
        enum { SUMS = 12 };                                                                                            \
        static volatile int sink;                                                                                      \
        __m256i sums[SUMS], x = _mm256_set1_epi8(1), y = _mm256_set1_epi8(2), total = _mm256_setzero_si256();          \
                                                                                                                       \
        PEAK_UNROLL                                                                                                    \
        for (int i = 0; i < SUMS; i++)                                                                                 \
            sums[i] = _mm256_setzero_si256();                                                                          \
        for (int64_t r = 0; r < rounds; r++) {                                                                         \
            PEAK_UNROLL                                                                                                \
            for (int i = 0; i < SUMS; i++) {                                                                           \
                __m256i first, second;                                                                                 \
                __asm__ volatile(code : "+x"(sums[i]), "=&x"(first), "=&x"(second) : "x"(x), "x"(y));                  \
            }                                                                                                          \
        }                                                                                                              \
        PEAK_UNROLL                                                                                                    \
        for (int i = 0; i < SUMS; i++)                                                                                 \
            total = _mm256_add_epi32(total, sums[i]);                                                                  \
        sink = _mm256_extract_epi32(total, 0);                                                                         \
        (void)sink;                                                                                                    \
        return 2.0 * SUMS * (products) * (double)rounds;                                                               \
    }

PEAK_LOOP(cpu_peak_int8_avx2, "%{vex%} vpdpbusd %4, %3, %0", 32)
PEAK_LOOP(cpu_peak_int8_short,
          "vpmaddubsw %4, %3, %1\n\tvpmaddubsw %4, %3, %2\n\tvpaddw %2, %1, %1\n\tvpmaddwd %4, %1, %1\n\t"
          "vpaddd %1, %0, %0",
          64)
