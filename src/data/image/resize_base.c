#define KERNELS cvy_resize_kernels_base
#include "data/image/resize.inc"
