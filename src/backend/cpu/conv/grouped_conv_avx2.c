/* Grouped convolutions for AVX2 and FMA. */
#define ISA_NAME "avx2"
#define PAIRS    0

#define TABLE         cpu_grouped_avx2_f32
#define IMAGE         float
#define IMAGE_NAME    f32
#define IMAGE_IS_BF16 0
#include "backend/cpu/conv/grouped_conv_loops.inc"

#define TABLE         cpu_grouped_avx2_bf16
#define IMAGE         uint16_t
#define IMAGE_NAME    bf16
#define IMAGE_IS_BF16 1
#include "backend/cpu/conv/grouped_conv_loops.inc"
