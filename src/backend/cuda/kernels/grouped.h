/* What the kernels of grouped 3x3 convolutions share: a block works on a slab of 32 channels, whole groups of them, a
 * warp on octets of neighbours. */
#ifndef CVY_BACKEND_CUDA_KERNELS_GROUPED_H
#define CVY_BACKEND_CUDA_KERNELS_GROUPED_H

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/warp.h"

enum {
    SLAB = 32,
    OCTETS = SLAB / 8,
    TAPS = 9,
    GROUPED_THREADS = 256,
    HALO_PIXEL = SLAB + 8, /* places of a pixel: 8 neighbours lie in banks of their own, and by how much a tap is away
                            * is the same everywhere */
    /* Steps of 16 inputs each, for an octet of outputs. Groups of up to 8: an octet of inputs under two taps, in the
     * order of the taps or (BY_ROWS) of those of a row; of 16: under a tap; of 32: in two halves. */
    STEPS_8 = 5,
    STEPS_8_BY_ROWS = 6,
    STEPS_16 = 9,
    STEPS_32 = 18,
    FRAGMENTS = 32 * OCTETS * 4, /* numbers of a step of a gradient of weights */
};

/* A step's tap for its first 8 inputs (half 0) and its others; there may be none: TAPS. */
GPU_BODY int32_t tap_of(int steps, int32_t step, int32_t half)
{
    if (steps == STEPS_8_BY_ROWS)
        return step % 2 == 0 ? step / 2 * 3 + half : half == 0 ? step / 2 * 3 + 2 : TAPS;
    return steps == STEPS_8 ? 2 * step + half : steps == STEPS_16 ? step : step / 2;
}

/* The octet of those inputs. */
GPU_BODY int32_t octet_of(int steps, int32_t step, int32_t half, int32_t outputs)
{
    if (steps <= STEPS_8_BY_ROWS)
        return outputs;
    return steps == STEPS_16 ? outputs / 2 * 2 + half : step % 2 * 2 + half;
}

/* Where 8 channels of a pixel of the tile lie in shared memory: those of 8 neighbours in banks of their own. */
GPU_BODY int32_t words_of(int32_t pixel, int32_t octet)
{
    return (pixel * OCTETS + (octet ^ (pixel >> 1 & (OCTETS - 1)))) * 8;
}

/* The weights of two inputs, `in` and the next one, for an output, channels of the slab, under a tap of the convolution
 * whose weights of the slab `w` are: of a data gradient inputs are channels of dy. `width`: a power of two. 0 between
 * groups, and where there is no tap. */
GPU_BODY uint32_t group_weights(const uint16_t *w, int32_t width, bool data, int32_t in, int32_t out, int32_t tap)
{
    uint32_t pair = 0;

    GPU_UNROLL
    for (int i = 0; i < 2; i++) {
        const int32_t outer = data ? in + i : out, inner = data ? out : in + i;
        if (tap < TAPS) {
            const uint32_t weight = w[(outer * TAPS + tap) * width + (inner & (width - 1))];
            pair |= (width > 8 || (outer ^ inner) < width ? weight : 0) << 16 * i;
        }
    }
    return pair;
}

/* Those of the block's slab. */
GPU_BODY const uint16_t *slab_weights(const void *w, int32_t width)
{
    return (const uint16_t *)w + (int64_t)GPU_BLOCK_Y * SLAB * TAPS * width;
}

/* Adds `pieces` of gradients of weights, as the kernels leave them, in order. */
GPU_EXTERN void gpu_grouped_add(void *stream, const struct gpu_grouped *what, int steps, int64_t pieces,
                                const float *partial, float *dw);

#endif
