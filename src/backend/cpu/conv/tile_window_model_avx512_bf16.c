/* The same with tiles in memory instead of the processor's: for tests (CONVOY_CPU_TILES=model). */
#define TILE_WINDOW_TABLE cpu_tile_window_amx_bf16_model
#define TILE_WINDOW_ISA   "amx_bf16 model"
#define TILES_MODEL
#include "backend/cpu/conv/tile_window.inc"
