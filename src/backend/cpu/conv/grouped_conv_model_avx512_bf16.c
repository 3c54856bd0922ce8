/* The same with tiles in memory instead of the processor's: for tests (CONVOY_CPU_TILES=model). */
#define ISA_NAME      "amx_bf16 model"
#define PAIRS         1
#define GROUPED_TILES 1
#define TILES_MODEL

#define TABLE          cpu_grouped_amx_bf16_model
#define GRADIENT_TABLE cpu_grouped_amx_bf16_gradient_model
#define IMAGE          uint16_t
#define IMAGE_NAME     bf16
#define IMAGE_IS_BF16  1
#include "backend/cpu/conv/grouped_conv_loops.inc"
