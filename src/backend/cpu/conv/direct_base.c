/* Direct convolutions for any processor. */
#include "base/system.h"

#define DIRECT_TABLE cpu_direct_base
#define DIRECT_ISA   CVY_BASE_ISA
#include "backend/cpu/conv/direct_loops.inc"
