/* Winograd's algorithm for AVX-512. */
#define WINOGRAD_TABLE cpu_winograd_avx512
#define WINOGRAD_ISA   "avx512"
#include "backend/cpu/conv/winograd_loops.inc"
