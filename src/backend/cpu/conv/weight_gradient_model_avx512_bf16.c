/* The same with tiles in memory instead of the processor's: for tests (CONVOY_CPU_TILES=model). */
#define WEIGHT_GRADIENT_TABLE cpu_weight_gradient_amx_bf16_model
#define WEIGHT_GRADIENT_ISA   "amx_bf16 model"
#define WEIGHT_GRADIENT_TILES
#define TILES_MODEL
#include "backend/cpu/conv/weight_gradient_loops.inc"
