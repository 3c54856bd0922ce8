/* Peak loops for any processor. */
#define PEAK_TABLE cpu_peak_base
#define PEAK_BYTES 16
#define PEAK_SUMS  12
#include "backend/cpu/peak/peak.inc"
