/* The inner loops of Winograd's algorithm for 3x3 windows at stride 1 (winograd.c), in fp32: one table for each
 * instruction set, made from winograd_loops.inc.
 *
 * A tile is `side` x `side` outputs, 2 or 4; they take side + 2 pixels of the source either way. Transforms turn a tile
 * into (side + 2)^2 numbers for each channel, one for each "frequency"; there the convolution is a product of matrices,
 * and a transform of the results gives the outputs. Vectors hold the channels of a block. */
#ifndef CVY_BACKEND_CPU_CONV_WINOGRAD_LOOPS_H
#define CVY_BACKEND_CPU_CONV_WINOGRAD_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/op.h"

enum {
    WINOGRAD_TAPS = 9,
    WINOGRAD_MOST = 36 /* frequencies, of tiles of 4 x 4 */
};

/* Tiles side by side in a row of one block of channels of an image (rows, columns, lanes). Their numbers lie `tile`
 * floats apart, those of the frequencies `plane`. */
struct cpu_winograd_tiles {
    int32_t rows, columns; /* of the image */
    int32_t row, column;   /* the first pixel of the first tile; pixels outside of the image are zeros */
    int32_t count;
    size_t tile, plane;
};

/* What happens to outputs beside the transform. */
struct cpu_winograd_end {
    const float *bias;     /* of the block's lanes; NULL: 0 */
    const float *residual; /* where the block of this image begins; may be the output; NULL: none */
    enum cvy_activation activation;
};

/* sums[r][lane] = sum over the depth d of rows[r * row_step + d * row_depth] * panel[d * panel_lanes + lane], added to
 * what is there with `more`. */
struct cpu_winograd_product {
    const float *rows;
    size_t row_step;
    const float *panel;
    float *sums; /* (count, panel_lanes) */
    int32_t count, depth;
    bool more;
};

struct cpu_winograd_loops {
    const char *isa;
    int32_t lanes;       /* channels of a block of an image */
    int32_t panel_lanes; /* of a panel of products */
    /* Element 0: tiles of 2 x 2, 1: of 4 x 4. */
    void (*source[2])(const struct cpu_winograd_tiles *tiles, const float *image, float *to);
    void (*aim[2])(const struct cpu_winograd_tiles *tiles, const float *from, const struct cpu_winograd_end *end,
                   float *image);
    /* dy for gradients of weights: outputs as aim() takes them, into frequencies. */
    void (*gradient[2])(const struct cpu_winograd_tiles *tiles, const float *image, float *to);
    /* Windows of `lanes` pairs of channels, [tap][lane], into frequencies, `plane` floats apart; and the transposed of
     * that, for sums of gradients. */
    void (*weights[2])(const float *taps, float *to, size_t plane);
    void (*taps[2])(const float *from, size_t plane, float *taps);
    void (*product)(const struct cpu_winograd_product *product);          /* a row's numbers follow each other */
    void (*product_gradient)(const struct cpu_winograd_product *product); /* the rows' numbers follow each other */
    size_t gradient_depth; /* floats from one depth to the next there: row_depth, a multiple of `lanes` */
};

extern const struct cpu_winograd_loops cpu_winograd_avx2, cpu_winograd_avx512;

/* Those for this processor; NULL: none. */
const struct cpu_winograd_loops *winograd_loops_here(void);

#endif
