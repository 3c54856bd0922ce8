/* The inner loops of resize.c, compiled once for each instruction set from resize.inc. Integer arithmetic: every
 * variant gives the same bytes. */
#ifndef CVY_DATA_IMAGE_RESIZE_KERNELS_H
#define CVY_DATA_IMAGE_RESIZE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Fixed-point bits of a weight, as in Pillow. */
enum { RESIZE_BITS = 22 };
/* Weights are also kept as high << RESIZE_LOW_BITS | low, both fitting int16 for multiply-add instructions. */
enum { RESIZE_LOW_BITS = 11 };
/* Bytes that a row kernel may read after the last pixel of its row. */
enum { RESIZE_OVERREAD = 16 };
/* Rows that are made side by side, and bytes that may be written after the last pixel of each. */
enum { RESIZE_ROWS = 4, RESIZE_OVERWRITE = 1 };

/* For each of `count` results along one axis: the first source position, how many follow, their weights. */
struct resize_axis {
    int32_t count, stride; /* stride: weights per result, a multiple of 4; unused ones are 0 */
    int32_t *first, *taps;
    int32_t *weights; /* (count, stride) */
    int16_t *split;   /* (count, stride / 4, 32): weight pairs (0,1) x 4, (2,3) x 4 high, then low; NULL: not made */
};

struct resize_kernels {
    /* One row of RGB: out (axis->count * 3). May read RESIZE_OVERREAD bytes past the last pixel used. */
    void (*row)(const struct resize_axis *axis, const uint8_t *in, uint8_t *out);
    /* RESIZE_ROWS of them; may write RESIZE_OVERWRITE bytes past each. */
    void (*rows)(const struct resize_axis *axis, const uint8_t *in, size_t stride, uint8_t *out, size_t out_stride);
    /* out[i] = sum over t of weights[t] * in[t * stride + i], i < bytes. */
    void (*column)(const uint8_t *in, size_t stride, const int32_t *weights, int32_t taps, size_t bytes, uint8_t *out);
};

extern const struct resize_kernels cvy_resize_kernels_base, cvy_resize_kernels_avx2, cvy_resize_kernels_avx512;

#endif
