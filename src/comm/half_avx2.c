#define KERNELS cvy_half_kernels_avx2
#include "comm/half.inc"
