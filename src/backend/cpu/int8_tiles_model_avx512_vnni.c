/* The same with tiles in memory instead of the processor's: for tests (CONVOY_CPU_TILES=model). */
#define TILES_TABLE cpu_int8_tiles_model
#define TILES_ISA   "amx_int8 model"
#define TILES_MODEL
#include "backend/cpu/int8_tiles.inc"
