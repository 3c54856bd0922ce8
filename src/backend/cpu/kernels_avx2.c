/* Kernels for AVX2 and FMA. */
#define KERNELS_TABLE cpu_kernels_avx2
#define KERNELS_ISA   "avx2"
#include "backend/cpu/kernels.inc"
