/* Integer convolutions for processors with tiles of bytes (AMX). */
#define TILES_TABLE cpu_int8_tiles_amx
#define TILES_ISA   "amx_int8"
#include "backend/cpu/int8_tiles.inc"
