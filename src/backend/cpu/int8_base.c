/* Integer inference without instructions for it. */
#include "backend/cpu/int8.h"

#define TILE       0
#define CONV       NULL
#define INT8_TABLE cpu_int8_kernels_base
#define INT8_ISA   "base"
#include "backend/cpu/int8_loops.inc"
