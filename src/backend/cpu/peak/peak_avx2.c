/* Peak loops for processors with AVX2 and FMA. */
#define PEAK_TABLE cpu_peak_avx2
#define PEAK_BYTES 32
#define PEAK_SUMS  12
#include "backend/cpu/peak/peak.inc"
