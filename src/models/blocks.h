/* Building blocks that networks share. */
#ifndef CVY_MODELS_BLOCKS_H
#define CVY_MODELS_BLOCKS_H

#include "ops/ops.h"

/* The paddings (above, below, left, right) of a window over x by TensorFlow's rule SAME: as many windows as strides
 * fit, the odd pixel last. Nothing once the graph has failed. */
void cvy_same_pads(const struct cvy_graph *graph, cvy_val x, int32_t kernel, int32_t stride, int32_t pads[4]);

/* A normal distribution cut off at two deviations, which has the deviation sqrt(scale / fan) after that (TensorFlow's
 * variance scaling). */
struct cvy_init cvy_init_truncated(double scale, double fan);

/* Hu et al., "Squeeze-and-excitation networks": y = x * sigmoid(W2 relu(W1 mean(x) + b1) + b2), a factor for each
 * channel of each image; parameters "se.fc1" and "se.fc2". `width`: hidden units, or for n < 0 the channels / -n;
 * CVY_USAGE when that leaves none. `variance_scaling`: weights start as TensorFlow's do, else as PyTorch's. */
cvy_val cvy_squeeze_excite(struct cvy_graph *graph, cvy_val x, int32_t width, bool variance_scaling);

#endif
