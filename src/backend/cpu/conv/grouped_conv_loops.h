/* The inner loops of convolutions with few channels in a group: one table for each instruction set and type of the
 * images, all made from grouped_conv_loops.inc.
 *
 * A vector holds one pixel of a block of channels (8 or 16), and so several groups. For a block of the image that is
 * "aimed at" (y forward, dx backward; for the gradient of the weights dy), step i of its sum over the channels of a
 * group puts channel i of every group beside all lanes of that group: a permutation inside the register, after which
 * one multiplication serves all groups and no lane is idle.
 *
 * The image that is read through the windows comes as "lines": rows copied to scratch memory with zeros for the
 * padding, and converted where the arithmetic wants it. The columns that a stride brings under one tap stand side by
 * side there, so that strides need no code of their own. The zeros count as numbers: where a weight is infinite, a
 * pixel whose window reaches into the padding is NaN. */
#ifndef CVY_BACKEND_CPU_CONV_GROUPED_CONV_LOOPS_H
#define CVY_BACKEND_CPU_CONV_GROUPED_CONV_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/op.h"

#define CPU_GROUPED_LANES 16 /* channels of a block at most */
#define CPU_GROUPED_TAPS  7  /* extent of a kernel at most, either way */
#define CPU_GROUPED_BAND  16 /* rows that a gradient's sums run over at most before they go to memory */

/* Which channel of a block of the image that is read each lane takes in this step; lane_mask: the lanes that take one.
 * The others see 0. */
struct cpu_grouped_step {
    union {
        int32_t lane[CPU_GROUPED_LANES];      /* a channel; with `pairs`, forward: a pair of channels */
        uint16_t half[2 * CPU_GROUPED_LANES]; /* with `pairs`, gradient: of two pixels side by side */
    } index;
    uint32_t lane_mask;
    int32_t line;    /* its line among those of one row */
    int32_t channel; /* in the group; of a pair the first */
    int32_t block;   /* of channels, of the image that is read */
};

/* One to three taps that read neighbouring places of a line: output column q and tap `first_tap` + t the place
 * `place` + q + t. */
#define CPU_GROUPED_RUN 3
struct cpu_grouped_run {
    int32_t place, first_tap, taps;
};

/* One row of an image to be made a line: column c to place (c + shift) / phases of phase (c + shift) % phases. The
 * other places keep the zeros they have. */
struct cpu_grouped_line {
    void *to;
    const void *from;
    size_t pixel; /* elements from one column to the next: those of the block, or all channels in nhwc */
    int32_t columns, shift, phases, phase_places;
    const struct cpu_grouped_step *step; /* the loops that permute here take this one's lanes */
    bool finite;                         /* result of the loops with tiles: no infinity or NaN in it */
};

/* Memory to prefetch during the arithmetic. */
struct cpu_grouped_ahead {
    const char *at, *end;
};

/* Sums of products for `columns` pixels of a row of one block, and what comes after the sums. */
struct cpu_grouped_row {
    const struct cpu_grouped_step *steps;
    const struct cpu_grouped_run *runs;
    int32_t step_count, run_count, taps;   /* taps: of all runs */
    int32_t rows;                          /* of the window that lie in the image */
    const char *line[CPU_GROUPED_TAPS];    /* of each of them: line 0; the others are line_bytes apart */
    const char *weights[CPU_GROUPED_TAPS]; /* (step_count, taps, one vector) */
    size_t line_bytes;
    int32_t columns;
    size_t column_step; /* elements from one output to the next */
    void *out;
    const void *residual; /* may be NULL or `out` */
    const float *bias;    /* of the lanes; may be NULL */
    /* The rows that the next row of the aim will be the first to read: this many bytes for each column, in this many
     * cache lines for each step of each row of the window. */
    struct cpu_grouped_ahead ahead;
    size_t ahead_step;
    int32_t ahead_lines;
    enum cvy_activation activation;
    bool whole; /* every step takes every lane */
};

/* sums[row of the window][step][tap][lane] += the products over a band of rows of dy; with tiles [step][tap][channel of
 * the source's block][lane]. */
struct cpu_grouped_gradient {
    const struct cpu_grouped_step *steps;
    const struct cpu_grouped_run *runs;
    int32_t step_count, run_count, taps;
    int32_t window_rows;
    int32_t pairs[CPU_GROUPED_TAPS]; /* of rows that meet under this row of the window */
    const char *source[CPU_GROUPED_TAPS][CPU_GROUPED_BAND], *aim[CPU_GROUPED_TAPS][CPU_GROUPED_BAND];
    size_t line_bytes;
    int32_t columns;
    float *sums;
    struct cpu_grouped_ahead ahead[2]; /* the next band's rows of the source, and of dy */
    bool whole;                        /* every step takes every lane */
    size_t channel_bytes;              /* with tiles: from one channel of a line of the source to the next */
};

struct cpu_grouped_loops {
    const char *isa;
    int32_t lanes;
    /* Products of pairs of bf16: a step has two channels forward, and a gradient takes two pixels at a time. */
    bool pairs;
    bool permuted_lines; /* lines are permuted when made: one for each step, else one for each block */
    /* Tile products (grouped_conv_tiles.inc): a step has all channels of a block of the source, and its weights for a
     * tap are those of all lanes for all of them, with zeros for other groups. Only for lines that are finite. A
     * gradient has sums for all of them, of which those within a group count, and lines of its own
     * (grouped_conv_gradient_tiles.inc). */
    bool tiles;
    size_t line_element;               /* bytes of a channel in a line */
    size_t aim_element;                /* the same in a gradient's lines of dy, */
    int32_t aim_columns;               /* which have zeros up to a multiple of so many columns */
    int32_t gradient_columns;          /* of the rows of dy that a gradient takes at a time, about */
    int32_t tile;                      /* a row may read this many places after its last column */
    void (*begin)(void), (*end)(void); /* of a thread, around any number of calls of the others; NULL: nothing to do */
    void (*line)(struct cpu_grouped_line *line);
    void (*aim_line)(const struct cpu_grouped_line *line); /* of dy, with CPU_GROUPED_MARGIN as shift */
    void (*row)(const struct cpu_grouped_row *row);        /* NULL in tiles' loops for gradients; in the others: */
    void (*gradient)(const struct cpu_grouped_gradient *gradient); /* NULL, as aim_line */
};
/* Zeros before a line of dy: a gradient takes up to three neighbouring taps at once. */
#define CPU_GROUPED_MARGIN 2

extern const struct cpu_grouped_loops cpu_grouped_base_f32, cpu_grouped_base_bf16, cpu_grouped_avx2_f32,
    cpu_grouped_avx2_bf16, cpu_grouped_avx512_f32, cpu_grouped_avx512_bf16, cpu_grouped_avx512_bf16_pairs,
    cpu_grouped_amx_bf16, cpu_grouped_amx_bf16_gradient, cpu_grouped_amx_bf16_model,
    cpu_grouped_amx_bf16_gradient_model;

#endif
