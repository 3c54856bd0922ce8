/* The inner loops of our own weight gradients of bf16 convolutions: one table for each instruction set, all made from
 * weight_gradient_loops.inc. What they work on are units of 64 bytes: 16 channels of what one step of a sum takes.
 * Where the processor adds up products of pairs of bf16, a unit holds two neighbouring pixels, the two numbers of a
 * channel side by side; elsewhere it holds one pixel in float. */
#ifndef CVY_BACKEND_CPU_CONV_WEIGHT_GRADIENT_LOOPS_H
#define CVY_BACKEND_CPU_CONV_WEIGHT_GRADIENT_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_UNIT     64 /* bytes */
#define CPU_CHANNELS 16 /* of a unit */
#define CPU_RANGES   64 /* of memory that is fetched ahead */
#define CPU_LINE     64 /* bytes of a cache line */
#define CPU_SUM_ROWS 8  /* the rows of a matrix of sums are a multiple of this */

/* One row of pixels of an image, to be packed into units. */
struct cpu_unit_row {
    const uint16_t *from;  /* column 0 of the row in the first channel */
    int32_t block;         /* channels side by side in memory: 1, or as many as a vector has floats at least */
    int32_t pixel;         /* elements from one pixel of the row to the next: block, or all channels in nhwc */
    int32_t channels;      /* of a unit that there are, the others become 0 */
    size_t block_stride;   /* elements from one block of channels to the next */
    int32_t columns;       /* in the row */
    int32_t first, stride; /* pixel q is column first + q * stride; 0 outside the row */
    int32_t pixels, units; /* pixels from there up to the last unit are 0 */
    size_t second;         /* not 0: a unit holds one pixel of two images, which are this many elements apart */
    /* Rows of block 1: `fold` taps of a channel stand as channels of their own, tap t moved by t * step columns; the
     * row begins with number `slot` of them. Else 0, 1, 0. */
    int32_t slot, fold, step;
};

/* Memory that will be read next, prefetched during the multiplication: a list of ranges and the progress through it.
 * Each tile of sums prefetches `share` lines. */
struct cpu_range {
    const char *from;
    int32_t lines;
};
struct cpu_ahead {
    struct cpu_range range_list[CPU_RANGES];
    int32_t ranges, range, line, share;
};

/* sums[row][lane] += the products of row operand and lane operand over all units of all segments. The lane operand is
 * meant to stay in the first-level cache while all rows pass by. */
struct cpu_products {
    float *sums; /* (rows, pitch) */
    size_t pitch;
    const char *lanes, *rows;
    size_t row_step;                  /* bytes from one number of the row operand to the next: 4 in units */
    size_t lane_block, row_block;     /* bytes from one block of 16 channels to the next */
    size_t lane_segment, row_segment; /* bytes from one segment to the next */
    int32_t lane_blocks, row_count;   /* at most tile_blocks; a multiple of CPU_SUM_ROWS */
    int32_t units, segments;
    struct cpu_ahead *ahead;
};

/* Bytes from one unit of a number of the row operand to the next: where pack_slots() made it they are neighbours. */
static inline size_t cpu_row_unit(size_t row_step)
{
    return row_step == 4 ? CPU_UNIT : 4;
}

/* Finished sums of up to 16 rows and 16 lanes, with all their taps, to be added up over the pieces in their order and
 * put into the gradient. */
struct cpu_sum_block {
    const float *sums;        /* of the first row, tap and piece: 16 lanes */
    size_t pitch, tap, piece; /* floats from the sums of one row, tap, piece to the next */
    int32_t rows, lanes, taps, pieces;
    float *to;
    size_t row_step, lane_step, tap_step; /* the same in the gradient */
};

struct cpu_weight_gradient_loops {
    const char *isa;
    int32_t group;                  /* pixels in a unit: 2 or 1 */
    int32_t tile_rows, tile_blocks; /* of sums that are made at a time */
    void (*pack)(void *to, const struct cpu_unit_row *row);
    /* The channels of a row of block 1 one after the other, each `pitch` bytes long, 4 of them for each unit. */
    void (*pack_slots)(void *to, size_t pitch, const struct cpu_unit_row *row);
    void (*multiply)(const struct cpu_products *products);
    void (*write)(const struct cpu_sum_block *block);
};

extern const struct cpu_weight_gradient_loops cpu_weight_gradient_base, cpu_weight_gradient_avx2,
    cpu_weight_gradient_avx512, cpu_weight_gradient_avx512_bf16;

#endif
