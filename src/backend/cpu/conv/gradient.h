/* What both kinds of gradients of weights of bf16 convolutions share (weight_gradient.c, tile_gradient.c): how their
 * output is cut into panels, and where sums belong in it. */
#ifndef CVY_BACKEND_CPU_CONV_GRADIENT_H
#define CVY_BACKEND_CPU_CONV_GRADIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/conv/places.h"
#include "backend/cpu/conv/weight_gradient_loops.h"
#include "ops/ops.h"

/* Extents below this are taken, so that sums of a few of them fit 32 bits. */
#define GRADIENT_MAX_EXTENT (INT32_MAX / 4)

/* Whether the gradient is one product of matrices: pixels of x and dy belong together one by one. */
static inline bool gradient_is_matrix_product(const struct cvy_conv2d_attr *attr)
{
    bool is = true;
    for (int i = 0; i < 2; i++)
        is = is && attr->kernel[i] == 1 && attr->stride[i] == 1 && attr->pad[2 * i] == 0 && attr->pad[2 * i + 1] == 0;
    return is;
}

/* Number and place of one side's blocks of 16 channels of a panel. */
struct gradient_extent {
    int32_t first, blocks;
};

static inline struct gradient_extent gradient_extent_of(int32_t blocks, int32_t panel_blocks, int32_t panel)
{
    const int32_t first = panel * panel_blocks, rest = blocks - first;
    return (struct gradient_extent){.first = first, .blocks = rest < panel_blocks ? rest : panel_blocks};
}

/* dw, which is (K, C, R, S). `x_channels`: with the `fold` taps of a window's row that stand beside them. */
struct gradient_output {
    float *dw;
    int64_t window, x_channels, dy_channels;
    int32_t fold;
    bool x_in_rows; /* rows of sums are numbers of x, lanes those of dy; else the other way round */
};

/* Where number i of x or dy begins. */
static inline int64_t gradient_place(const struct gradient_output *o, bool of_x, int64_t i)
{
    return of_x ? i / o->fold * o->window + i % o->fold : i * (o->x_channels / o->fold) * o->window;
}

/* How many of 16 numbers from `first` on there are, of the rows or of the lanes. */
static inline int32_t gradient_numbers(const struct gradient_output *o, bool of_rows, int64_t first)
{
    const int64_t rest = (of_rows == o->x_in_rows ? o->x_channels : o->dy_channels) - first;
    return (int32_t)(rest < CPU_CHANNELS ? rest : CPU_CHANNELS);
}

/* The block, whose sums are said, goes where the row and the lane, counted among all, belong. */
static inline void gradient_place_block(const struct gradient_output *o, int64_t row, int64_t lane,
                                        struct cpu_sum_block *block)
{
    const int64_t to = gradient_place(o, o->x_in_rows, row);
    block->lanes = gradient_numbers(o, false, lane);
    block->to = o->dw + to + gradient_place(o, !o->x_in_rows, lane);
    block->row_step = (size_t)(gradient_place(o, o->x_in_rows, row + 1) - to);
    block->lane_step = (size_t)gradient_place(o, !o->x_in_rows, 1);
    block->tap_step = (size_t)o->fold;
}

#endif
