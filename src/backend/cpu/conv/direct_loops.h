/* The inner loops of direct convolutions in fp32 (direct.c, direct_gradient.c): one table for each instruction set,
 * made from direct_loops.inc.
 *
 * Images lie in blocks of `lanes` channels: a pixel's channels of a block follow each other, then comes the next pixel.
 * Vectors hold channels of the aim, or of x in gradients of weights; the other operand is taken number by number. A
 * tile of sums, some pixels (or numbers) times some blocks, stays in registers for the whole of a chunk of the depth.
 */
#ifndef CVY_BACKEND_CPU_CONV_DIRECT_LOOPS_H
#define CVY_BACKEND_CPU_CONV_DIRECT_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "graph/op.h"

enum { CPU_DIRECT_PANEL = 3 }; /* blocks of a panel at most */

/* Blocks of some pixels that follow each other: each block's begin at `at` + block * `step`, in floats. */
struct cpu_direct_blocks {
    float *at;
    size_t step;
};

/* Sums over `depth` blocks of the source, for `pixels` pixels and the `panel_blocks` blocks of a panel. */
struct cpu_direct_product {
    const float *source; /* as cpu_direct_blocks */
    size_t source_step;
    const float *panel; /* (depth, lanes of the source's block, panel_blocks, lanes) */
    int32_t depth, panel_blocks, pixels;
    struct cpu_direct_blocks before; /* sums of the chunks before; `at` NULL: none */
    struct cpu_direct_blocks to;
    /* After the last chunk, where `end` is not 0; what is NULL is left out. */
    const float *bias;                 /* of the panel's lanes */
    struct cpu_direct_blocks residual; /* may be `to` */
    enum cvy_activation activation;
};

/* sums[number][lane] += numbers times lanes, over the pixels of some images: (numbers of a block, `pitch`). */
struct cpu_direct_gradient {
    const float *numbers;              /* a block of the image whose channels are taken one by one */
    const float *lanes;                /* and some blocks of the other image, */
    size_t lanes_step;                 /* floats from one to the next */
    size_t numbers_image, lanes_image; /* floats from one image to the next */
    int32_t lanes_blocks, images, pixels;
    float *sums;
    size_t pitch;
};

struct cpu_direct_loops {
    const char *isa;
    int32_t lanes;
    int32_t panel_blocks; /* of a panel at most, and of a gradient's lanes: CPU_DIRECT_PANEL or less */
    void (*product)(const struct cpu_direct_product *product);
    void (*gradient)(const struct cpu_direct_gradient *gradient);
};

extern const struct cpu_direct_loops cpu_direct_base, cpu_direct_avx2;

/* Those for this processor; NULL: none, for oneDNN's are better there. */
const struct cpu_direct_loops *direct_loops_here(void);

#endif
