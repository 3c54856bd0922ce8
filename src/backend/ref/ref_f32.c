/* The reference kernels in single precision. */
#define REAL      float
#define REF_TABLE ref_functions_f32
#include "backend/ref/kernels.inc"
