/* Grouped convolutions of bf16 images for processors with tiles of bf16 (AMX). */
#define ISA_NAME      "amx_bf16"
#define PAIRS         1
#define GROUPED_TILES 1

#define TABLE          cpu_grouped_amx_bf16
#define GRADIENT_TABLE cpu_grouped_amx_bf16_gradient
#define IMAGE          uint16_t
#define IMAGE_NAME     bf16
#define IMAGE_IS_BF16  1
#include "backend/cpu/conv/grouped_conv_loops.inc"
