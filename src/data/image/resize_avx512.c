#define KERNELS cvy_resize_kernels_avx512
#include "data/image/resize.inc"
