/* Weight gradients for AVX-512 without instructions for bf16. */
#define WEIGHT_GRADIENT_TABLE cpu_weight_gradient_avx512
#define WEIGHT_GRADIENT_ISA   "avx512"
#include "backend/cpu/conv/weight_gradient_loops.inc"
