/* Direct convolutions for AVX2 and FMA. */
#define DIRECT_TABLE cpu_direct_avx2
#define DIRECT_ISA   "avx2"
#include "backend/cpu/conv/direct_loops.inc"
