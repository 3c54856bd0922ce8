/* What prepare() of a grouped convolution computes and run() reads. */
#ifndef CVY_BACKEND_CPU_CONV_GROUPED_CONV_PLAN_H
#define CVY_BACKEND_CPU_CONV_GROUPED_CONV_PLAN_H

#include "backend/cpu/conv/grouped_conv_loops.h"
#include "backend/cpu/cpu.h"

/* Columns of the aim that meet the same taps: all of them, or every stride-th in the gradient of the data. */
struct phase {
    struct cpu_grouped_run runs[CPU_GROUPED_TAPS];
    int32_t line_phase[CPU_GROUPED_TAPS]; /* of a line, of each run */
    int32_t run_count, taps, columns;
    int32_t tap[CPU_GROUPED_TAPS]; /* of the kernel, in the order of the runs */
    int32_t taps_before;           /* of the phases before this one */
};

/* Where a block of channels of an image lies: bytes from one to the next. */
struct grouped_image {
    size_t pixel, row, block, image;
};

struct grouped {
    enum cvy_op op;
    const struct cpu_grouped_loops *loops;
    size_t element; /* bytes of a number in an image */
    enum cvy_activation activation;
    int32_t batch, kernel[2], stride[2], pad[2]; /* pad: top, left */
    int32_t source_group, aim_group;             /* channels in a group */
    int32_t source_blocks, aim_blocks;           /* of channels, `loops->lanes` each */
    int32_t source[2], aim[2];                   /* extents */
    struct grouped_image source_at, aim_at;
    bool by_rows; /* channels-last: all blocks of a row before the next row, else all rows of a block first */
    struct phase phases[CPU_GROUPED_TAPS];
    int32_t phase_count;

    int32_t lines_of_row; /* of a block, at most */
    int32_t slots;        /* rows of the source kept as lines, */
    int32_t together;     /* of each of so many blocks */
    int32_t shift, line_phases, phase_places;
    size_t line_bytes;
    size_t lines_bytes;   /* the lines of one thread; then come the lines of dy, */
    size_t held_at;       /* which rows they are, */
    size_t finite_at;     /* whether they are finite, */
    size_t exact_at;      /* and the weights of a block for `exact`: */
    size_t chunk_bytes;   /* all of it */
    size_t weights_bytes; /* packed for `row`; a gradient: one piece of its sums */
    int32_t band, pieces; /* of a gradient: rows at a time; of the batch */
    size_t aim_line_bytes;

    struct cpu_grouped_step *steps; /* after this struct; those of a block follow one another */
    int32_t *first_step;            /* of each block of the aim, and the end */
    bool whole;                     /* every step takes every lane */
    const struct grouped *exact;    /* with tiles: the same with vectors, for rows with infinities; else NULL */
};

static inline bool grouped_is_gradient(const struct grouped *g)
{
    return g->op == CVY_OP_CONV2D_BWD_WEIGHTS;
}

static inline bool grouped_is_forward(const struct grouped *g)
{
    return g->op == CVY_OP_CONV2D;
}

/* Bytes of the weights that a tap of a step has: a vector of floats or pairs of bf16; with tiles pairs of all channels
 * of a block, for each lane, and in a gradient sums of all of them. */
static inline size_t grouped_vector_bytes(const struct grouped *g)
{
    const size_t vector = (size_t)g->loops->lanes * sizeof(float);
    if (!g->loops->tiles)
        return vector;
    return grouped_is_gradient(g) ? vector * CPU_GROUPED_LANES : vector * CPU_GROUPED_LANES / 2;
}

static inline int32_t grouped_steps(const struct grouped *g, int32_t block)
{
    return g->first_step[block + 1] - g->first_step[block];
}

static inline size_t grouped_at(const struct grouped_image *at, int32_t image, int32_t block, int32_t row)
{
    return (size_t)image * at->image + (size_t)block * at->block + (size_t)row * at->row;
}

/* The first and the last block of source channels that a block of the aim needs. */
static inline void grouped_span(const struct grouped *g, int32_t block, int32_t *first, int32_t *last)
{
    const int32_t lanes = g->loops->lanes;
    const int64_t group = (int64_t)block * lanes / g->aim_group,
                  end = ((int64_t)(block + 1) * lanes - 1) / g->aim_group;
    *first = (int32_t)(group * g->source_group / lanes);
    *last = (int32_t)(((end + 1) * g->source_group - 1) / lanes);
}

#endif
