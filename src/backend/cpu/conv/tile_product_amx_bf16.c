/* 1 x 1 convolutions for processors with tiles of bf16 (AMX). */
#define TILE_PRODUCT_TABLE cpu_tile_product_amx_bf16
#define TILE_PRODUCT_ISA   "amx_bf16"
#include "backend/cpu/conv/tile_product.inc"
