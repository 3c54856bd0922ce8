/* Kernels for AVX-512 (F, BW, DQ, VL). */
#define KERNELS_TABLE cpu_kernels_avx512
#define KERNELS_ISA   "avx512"
#include "backend/cpu/kernels.inc"
