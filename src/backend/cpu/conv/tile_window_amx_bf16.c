/* Convolutions with windows for processors with tiles of bf16 (AMX). */
#define TILE_WINDOW_TABLE cpu_tile_window_amx_bf16
#define TILE_WINDOW_ISA   "amx_bf16"
#include "backend/cpu/conv/tile_window.inc"
