/* Winograd's algorithm for any processor. */
#include "base/system.h"

#define WINOGRAD_TABLE cpu_winograd_base
#define WINOGRAD_ISA   CVY_BASE_ISA
#include "backend/cpu/conv/winograd_loops.inc"
