/* The reference kernels in double precision. */
#define REAL      double
#define REF_TABLE ref_functions_f64
#include "backend/ref/kernels.inc"
