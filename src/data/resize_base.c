#define KERNELS cvy_resize_kernels_base
#include "data/resize.inc"
