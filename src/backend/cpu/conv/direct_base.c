/* Direct convolutions for any processor. */
#define DIRECT_TABLE cpu_direct_base
#if defined(__aarch64__)
#define DIRECT_ISA "neon"
#else
#define DIRECT_ISA "base"
#endif
#include "backend/cpu/conv/direct_loops.inc"
