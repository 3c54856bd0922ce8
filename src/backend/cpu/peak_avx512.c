/* What a processor with AVX-512 can do at best. */
#define PEAK_TABLE cpu_peak_avx512
#define PEAK_BYTES 64
#define PEAK_SUMS  24
#include "backend/cpu/peak.inc"
