/* Gradients of weights for processors with tiles of bf16 (AMX). */
#define TILE_GRADIENT_TABLE cpu_tile_gradient_amx_bf16
#define TILE_GRADIENT_ISA   "amx_bf16"
#include "backend/cpu/conv/tile_gradient.inc"
