/* Winograd's algorithm for AVX2 and FMA. */
#define WINOGRAD_TABLE cpu_winograd_avx2
#define WINOGRAD_ISA   "avx2"
#include "backend/cpu/conv/winograd_loops.inc"
