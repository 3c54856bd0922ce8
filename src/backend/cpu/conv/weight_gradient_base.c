/* Weight gradients for any processor (128-bit vectors where the compiler has them). */
#define WEIGHT_GRADIENT_TABLE cpu_weight_gradient_base
#define WEIGHT_GRADIENT_ISA   "base"
#include "backend/cpu/conv/weight_gradient_loops.inc"
