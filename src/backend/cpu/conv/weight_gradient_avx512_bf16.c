/* Weight gradients for AVX-512 with sums of products of bf16. */
#define WEIGHT_GRADIENT_TABLE cpu_weight_gradient_avx512_bf16
#define WEIGHT_GRADIENT_ISA   "avx512_bf16"
#include "backend/cpu/conv/weight_gradient_loops.inc"
