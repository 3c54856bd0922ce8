/* The same with tiles in memory instead of the processor's: for tests (CONVOY_CPU_TILES=model). */
#define TILE_PRODUCT_TABLE cpu_tile_product_amx_bf16_model
#define TILE_PRODUCT_ISA   "amx_bf16 model"
#define TILES_MODEL
#include "backend/cpu/conv/tile_product.inc"
