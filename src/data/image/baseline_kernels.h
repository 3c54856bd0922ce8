/* The arithmetic of baseline.c for AVX2; bit for bit what libjpeg computes. */
#ifndef CVY_DATA_IMAGE_BASELINE_KERNELS_H
#define CVY_DATA_IMAGE_BASELINE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Two blocks side by side: (2, 8, 8) dequantised coefficients, row by row, to 8 rows of 16 samples. */
void cvy_baseline_idct_avx2(const int16_t *blocks, uint8_t *out, size_t stride);
/* The same to `size` x `size` samples for each block: 4, 2 or 1. Only what does not overflow is libjpeg's (below). */
void cvy_baseline_reduced_idct_avx2(const int16_t *blocks, int32_t size, uint8_t *out, size_t stride);

/* Whether no sum of the reduced transforms of these blocks can leave 16 bits: what encoders write, and most of what
 * they do not. */
bool cvy_baseline_fits_avx2(const int16_t *blocks, int32_t count);

/* Chroma to twice its width: out (2 * count), where in[-1] and in[count] are neighbours too. */
void cvy_baseline_widen_avx2(const uint8_t *in, size_t count, uint8_t *out);
/* To twice its width and height: one of the two rows, `near` the row above or below it. */
void cvy_baseline_grow_avx2(const uint8_t *in, const uint8_t *near, size_t count, uint8_t *out);

/* One row to RGB. Reads and writes whole groups of 16 pixels: up to 15 samples and 45 bytes more than `count` says. */
void cvy_baseline_rgb_avx2(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, size_t count, uint8_t *out);
void cvy_baseline_grey_avx2(const uint8_t *y, size_t count, uint8_t *out);

#endif
