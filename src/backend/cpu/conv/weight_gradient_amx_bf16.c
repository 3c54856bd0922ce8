/* Weight gradients for processors with tiles of bf16 (AMX). */
#define WEIGHT_GRADIENT_TABLE cpu_weight_gradient_amx_bf16
#define WEIGHT_GRADIENT_ISA   "amx_bf16"
#define WEIGHT_GRADIENT_TILES
#include "backend/cpu/conv/weight_gradient_loops.inc"
