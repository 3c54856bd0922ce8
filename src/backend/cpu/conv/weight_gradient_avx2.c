/* Weight gradients for AVX2 and FMA. */
#define WEIGHT_GRADIENT_TABLE cpu_weight_gradient_avx2
#define WEIGHT_GRADIENT_ISA   "avx2"
#include "backend/cpu/conv/weight_gradient_loops.inc"
