/* Direct convolutions in fp32: what prepare() computes and run() reads. Explained in direct.c. */
#ifndef CVY_BACKEND_CPU_CONV_DIRECT_H
#define CVY_BACKEND_CPU_CONV_DIRECT_H

#include "backend/cpu/conv/direct_loops.h"
#include "backend/cpu/conv/places.h"
#include "backend/cpu/cpu.h"

/* What is read through windows: for pixel (p, q) of the grid and tap (r, s) the pixel (p * stride[0] + r * dilation[0]
 * - pad[0], likewise) of the source, 0 where it lies outside. */
struct direct_source {
    int32_t extent[2]; /* rows and columns of an image */
    int32_t grid[2];
    int32_t kernel[2], stride[2], dilation[2], pad[2];
    int32_t channels, lanes, blocks; /* lanes: of a block; the last one may have zeros beyond the channels */
    bool plain;                      /* (N, C, H, W), few channels; else in blocks */
    int32_t depth; /* blocks that a sum runs over: all taps of the blocks, or of the channels where plain */
    bool gathered; /* they are copied to working memory first; else they are the source's own blocks */
};

/* The source that windows read, for results as large as `grid`. */
struct direct_source direct_source_of(const struct cvy_conv2d_attr *attr, const struct cvy_tensor *source,
                                      const struct cvy_tensor *grid, int32_t lanes, bool plain);
/* Whether x is plain: its channels are fewer than a block. */
static inline bool direct_is_plain(const struct cvy_tensor *x, int32_t lanes)
{
    return x->shape.dim[1] % lanes != 0;
}
/* Blocks `first` to `end` of the depth of an image's `pixels` pixels of the grid from `pixel` on, to `to`, `step`
 * floats from one block to the next. */
void direct_gather(const struct direct_source *source, const float *image, int32_t first, int32_t end, int32_t pixel,
                   int32_t pixels, float *to, size_t step);
static inline int32_t direct_grid_pixels(const struct direct_source *source)
{
    return source->grid[0] * source->grid[1];
}
static inline size_t direct_image_floats(const struct direct_source *source)
{
    const size_t channels = (size_t)(source->plain ? source->channels : source->blocks * source->lanes);
    return channels * (size_t)source->extent[0] * (size_t)source->extent[1];
}

/* CVY_UNAVAILABLE with a sentence where direct convolutions do not fit, or oneDNN's are better. */
CVY_CHECKED cvy_status direct_expect(const struct cpu_device *device, const struct cvy_op_desc *desc,
                                     struct cvy_kernel_plan *plan);

/* Weights (K, C, R, S) as (panel, depth, channel of the source's block, lane of the panel): forward the lanes are
 * outputs K, backward channels C, and the window is turned round. `plain`: of a plain source. Numbers beyond the
 * channels are zeros. */
struct cvy_layout direct_weights_layout(bool backward, bool plain);
/* The first block of a panel of `blocks` that are cut into `panels` of about the same size. */
static inline int32_t direct_cut(int32_t blocks, int32_t panels, int32_t panel)
{
    return (int32_t)((int64_t)blocks * panel / panels);
}

#endif
