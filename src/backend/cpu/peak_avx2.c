/* What a processor with AVX2 and FMA can do at best. */
#define PEAK_TABLE cpu_peak_avx2
#define PEAK_BYTES 32
#define PEAK_SUMS  12
#include "backend/cpu/peak.inc"
