/* Kernels for any processor (128-bit vectors where the compiler has them). */
#define KERNELS_TABLE cpu_kernels_base
#define KERNELS_ISA   "base"
#include "backend/cpu/kernels.inc"
