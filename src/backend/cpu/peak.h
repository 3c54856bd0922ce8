/* Loops that measure the processor's peak: one table for each instruction set, compiled from peak.inc. */
#ifndef CVY_BACKEND_CPU_PEAK_H
#define CVY_BACKEND_CPU_PEAK_H

#include <stddef.h>
#include <stdint.h>

struct cpu_peak {
    /* Multiply-adds in registers only; the number of floating-point operations done (two for each multiply-add). bf16:
     * products of bf16 added up in f32; NULL where there are no instructions for it. */
    double (*f32)(int64_t rounds), (*bf16)(int64_t rounds);
    /* Passes over memory. */
    float (*read)(const float *a, size_t count);
    void (*copy)(float *to, const float *from, size_t count);
    void (*triad)(float *a, const float *b, const float *c, size_t count); /* a = b + 3 c */
};
extern const struct cpu_peak cpu_peak_base, cpu_peak_avx2, cpu_peak_avx512, cpu_peak_avx512_bf16;

#endif
