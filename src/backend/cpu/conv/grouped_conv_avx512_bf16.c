/* Grouped convolutions of bf16 images for AVX-512 with sums of products of bf16. */
#define ISA_NAME "avx512_bf16"
#define PAIRS    1

#define TABLE         cpu_grouped_avx512_bf16_pairs
#define IMAGE         uint16_t
#define IMAGE_NAME    bf16
#define IMAGE_IS_BF16 1
#include "backend/cpu/conv/grouped_conv_loops.inc"
