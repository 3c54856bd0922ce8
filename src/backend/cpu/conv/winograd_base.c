/* Winograd's algorithm for any processor. */
#define WINOGRAD_TABLE cpu_winograd_base
#if defined(__aarch64__)
#define WINOGRAD_ISA "neon"
#else
#define WINOGRAD_ISA "base"
#endif
#include "backend/cpu/conv/winograd_loops.inc"
