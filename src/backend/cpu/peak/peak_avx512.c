/* Peak loops for processors with AVX-512. */
#define PEAK_TABLE cpu_peak_avx512
#define PEAK_BYTES 64
#define PEAK_SUMS  24
#include "backend/cpu/peak/peak.inc"
