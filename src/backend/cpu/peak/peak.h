/* Loops that measure the processor's peak: one table for each instruction set, compiled from peak.inc. */
#ifndef CVY_BACKEND_CPU_PEAK_H
#define CVY_BACKEND_CPU_PEAK_H

#include <stddef.h>
#include <stdint.h>

/* All sums are equal, which the compiler is not to know. */
#if defined(__AVX512F__)
#define PEAK_OPAQUE(value) __asm__ volatile("" : "+v"(value))
#elif defined(__SSE2__)
#define PEAK_OPAQUE(value) __asm__ volatile("" : "+x"(value))
#elif defined(__aarch64__)
#define PEAK_OPAQUE(value) __asm__ volatile("" : "+w"(value))
#else
#define PEAK_OPAQUE(value) __asm__ volatile("" : "+m"(value))
#endif
/* They are to stay in registers, which they do only where no loop is left over them. */
#if defined(__clang__)
#define PEAK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define PEAK_UNROLL _Pragma("GCC unroll 32")
#endif

struct cpu_peak {
    /* Multiply-adds in registers only; the number of floating-point operations done (two for each multiply-add). bf16:
     * products of bf16 added up in f32; NULL where there are no instructions for it. */
    double (*f32)(int64_t rounds), (*bf16)(int64_t rounds);
    /* Passes over memory. */
    float (*read)(const float *a, size_t count);
    void (*copy)(float *to, const float *from, size_t count);
    void (*triad)(float *a, const float *b, const float *c, size_t count); /* a = b + 3 c */
};
extern const struct cpu_peak cpu_peak_base, cpu_peak_avx2, cpu_peak_avx512, cpu_peak_avx512_bf16, cpu_peak_amx_bf16;
/* The same of products of 8-bit integers added up in 32 bits, by what has them (enum cvy_int8_isa), and by AVX2
 * with 16 bits in between. */
double cpu_peak_int8_short(int64_t rounds);
double cpu_peak_int8_avx2(int64_t rounds);
double cpu_peak_int8_avx512(int64_t rounds);
double cpu_peak_int8_amx(int64_t rounds);

#endif
