/* What prepare() of a weight gradient computes and run() reads; explained in weight_gradient.c. */
#ifndef CVY_BACKEND_CPU_CONV_WEIGHT_GRADIENT_PLAN_H
#define CVY_BACKEND_CPU_CONV_WEIGHT_GRADIENT_PLAN_H

#include "backend/cpu/conv/gradient.h"
#include "backend/cpu/cpu.h"

/* One side of the product. */
struct side {
    int32_t block;                      /* channels side by side in memory */
    int32_t pixel;                      /* elements from one pixel to the next */
    int64_t channels;                   /* with the taps that stand beside them: numbers of a pixel */
    int64_t image_stride, block_stride; /* elements; image_stride: from the first image of a unit to that of the next */
    int64_t second;                     /* from the first image of a unit to its second, 0: units hold one image */
    int32_t blocks;                     /* units of 16 that hold them */
    int32_t panel;                      /* blocks of a panel */
    int32_t panels;
    size_t image_units, block_units; /* packed: of one image of a chunk, and of a block of 16 */
};

struct weight_gradient {
    const struct cpu_weight_gradient_loops *loops;
    struct side x, dy;
    bool x_in_slots;       /* x is plain, and packed channel by channel */
    bool x_in_rows;        /* x is the row operand, dy in the lanes; else the other way round */
    int64_t batch, pixels; /* pixels: of an image cut into rows of our own, else 0 */
    int32_t height, width, out_height, out_width;
    int32_t kernel[2], stride[2], dilation[2], pad[2];
    int32_t fold;                     /* taps s that stand beside the channels of x: 1 or all */
    int32_t group;                    /* pixels of an image in a unit */
    int32_t phases;                   /* remainders of rows of x by the stride that occur */
    int32_t row_units;                /* units of a row */
    int32_t chunk_units;              /* of a chunk, at most, but for rows that are longer */
    int32_t chunk_rows, chunk_images; /* of dy */
    int32_t x_rows;                   /* of x in one phase of a chunk */
    int64_t image_chunks, chunks;     /* chunks of an image; all of them */
    int64_t pieces;
    size_t panel_floats;
    size_t lane_block, row_block; /* bytes of a packed block of 16 channels */
    size_t row_step;              /* bytes from one number of the row operand to the next: 4 in units */
    size_t lane_bytes, row_bytes; /* of a thread: the lane operand of a tile, and the row operand of a chunk */
    size_t thread_bytes;          /* both, and sums where there is one piece */
};

static inline int32_t taps(const struct weight_gradient *s)
{
    return s->kernel[0] * s->kernel[1] / s->fold;
}

#endif
