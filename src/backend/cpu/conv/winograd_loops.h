/* The inner loops of Winograd's algorithm for 3x3 windows (winograd.c), in fp32: one table for each instruction set,
 * made from winograd_loops.inc.
 *
 * A tile is a square of outputs; transforms turn the pixels of the source that it takes into numbers for each channel,
 * a square again, one for each "frequency"; there the convolution is a product of matrices, and a transform of the
 * results gives the outputs. Vectors hold the channels of a block. */
#ifndef CVY_BACKEND_CPU_CONV_WINOGRAD_LOOPS_H
#define CVY_BACKEND_CPU_CONV_WINOGRAD_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/op.h"

enum { WINOGRAD_TAPS = 9 };

/* Outputs of a tile and what they take; all of them squares, of which the side is said. */
enum winograd_form {
    WINOGRAD_2X2,         /* windows at stride 1 */
    WINOGRAD_4X4,         /* likewise */
    WINOGRAD_STRIDED,     /* at stride 2 */
    WINOGRAD_SPREAD_EVEN, /* the gradient of their data, where the window's first tap lies an even number of pixels */
    WINOGRAD_SPREAD_ODD,  /* before the image, or an odd one */
    WINOGRAD_FORMS,
    WINOGRAD_FORWARD_FORMS = WINOGRAD_STRIDED + 1 /* those with weights of their own: the others have STRIDED's */
};
static inline int winograd_outputs(enum winograd_form form)
{
    return form == WINOGRAD_2X2 || form == WINOGRAD_STRIDED ? 2 : 4;
}
/* Pixels of the source, */
static inline int winograd_inputs(enum winograd_form form)
{
    return form == WINOGRAD_2X2 ? 4 : form == WINOGRAD_4X4 ? 6 : form == WINOGRAD_STRIDED ? 5 : 3;
}
/* of which the next tile begins so many further on. */
static inline int winograd_step(enum winograd_form form)
{
    return form == WINOGRAD_4X4 || form == WINOGRAD_STRIDED ? 4 : 2;
}
static inline int winograd_numbers(enum winograd_form form)
{
    return form == WINOGRAD_2X2 ? 4 : form == WINOGRAD_4X4 ? 6 : 5;
}
/* Numbers of a window's weights: at stride 2 the last two of a row or column are the same. */
static inline int winograd_weights(enum winograd_form form)
{
    return form == WINOGRAD_4X4 ? 6 : 4;
}
static inline int winograd_weights_count(enum winograd_form form) /* their frequencies */
{
    return winograd_weights(form) * winograd_weights(form);
}
/* Which frequency of the weights one of the products has. */
static inline int winograd_weights_at(enum winograd_form form, int frequency)
{
    const int side = winograd_numbers(form), last = winograd_weights(form) - 1;
    const int row = frequency / side, column = frequency % side;
    return (row < last ? row : last) * (last + 1) + (column < last ? column : last);
}

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
    int32_t lanes;       /* channels of a block of an image: a vector, or two */
    int32_t panel_lanes; /* of a panel of products */
    void (*source[WINOGRAD_FORMS])(const struct cpu_winograd_tiles *tiles, const float *image, float *to);
    void (*aim[WINOGRAD_FORMS])(const struct cpu_winograd_tiles *tiles, const float *from,
                                const struct cpu_winograd_end *end, float *image);
    /* dy for gradients of weights: outputs as aim() takes them, into frequencies. */
    void (*gradient[WINOGRAD_FORWARD_FORMS])(const struct cpu_winograd_tiles *tiles, const float *image, float *to);
    /* Windows of `lanes` pairs of channels, [tap][lane], into frequencies, `plane` floats apart; and the transposed of
     * that, for sums of gradients. */
    void (*weights[WINOGRAD_FORWARD_FORMS])(const float *taps, float *to, size_t plane);
    void (*taps[WINOGRAD_FORWARD_FORMS])(const float *from, size_t plane, float *taps);
    void (*product)(const struct cpu_winograd_product *product);          /* a row's numbers follow each other */
    void (*product_gradient)(const struct cpu_winograd_product *product); /* the rows' numbers follow each other */
    size_t gradient_depth; /* floats from one depth to the next there: row_depth, a multiple of `lanes` */
};

extern const struct cpu_winograd_loops cpu_winograd_base, cpu_winograd_avx2, cpu_winograd_avx512;

/* Those for this processor. */
const struct cpu_winograd_loops *winograd_loops_here(void);

#endif
