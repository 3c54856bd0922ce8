/* Images times one factor for each channel of each image: squeeze and excitation. */
#include "backend/cuda/kernels/channels.h"
#include "backend/cuda/kernels/kernels.h"

struct scale_args {
    struct gpu_spread spread;
    const void *x, *residual;
    void *y;
    const float *factor, *shift;
    float shift_factor;
    bool relu;
};

#define KERNELS "backend/cuda/kernels/scale_channels.inc"
#include "backend/cuda/kernels/widths.inc"

GPU_EXTERN void gpu_scale_channels(void *stream, const struct gpu_scale_channels *what)
{
    struct scale_args args;

    memset(&args, 0, sizeof args);
    args.spread = gpu_spread_map(what->images, what->rows, what->channels);
    args.x = what->x;
    args.residual = what->residual;
    args.y = what->y;
    args.factor = what->factor;
    args.shift = what->shift;
    args.shift_factor = what->shift ? what->shift_factor : 0;
    args.relu = what->relu;
    GPU_LAUNCH_SPREAD(scale, what->dtype, stream, what->images, args.spread, args);
}
