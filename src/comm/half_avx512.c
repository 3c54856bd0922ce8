#define KERNELS cvy_half_kernels_avx512
#include "comm/half.inc"
