#define KERNELS cvy_resize_kernels_avx2
#include "data/image/resize.inc"
