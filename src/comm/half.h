/* Floats sent as 16 bits: rounded to nearest, ties to even; what is too large becomes infinity, NaNs stay NaNs. The
 * same bits on every processor. */
#ifndef CVY_COMM_HALF_H
#define CVY_COMM_HALF_H

#include <stddef.h>
#include <stdint.h>

enum cvy_half { CVY_HALF_BF16, CVY_HALF_F16, CVY_HALF_COUNT };

struct cvy_half_kernels {
    void (*pack)(uint16_t *to, const float *from, size_t count);
    void (*unpack)(float *to, const uint16_t *from, size_t count);
    void (*add)(float *to, const uint16_t *from, size_t count); /* to += from, in floats */
};
/* The fastest kernels for this processor (base/system.h). */
const struct cvy_half_kernels *cvy_half_kernels(enum cvy_half half);

/* Compiled once for each instruction set, by enum cvy_half. */
extern const struct cvy_half_kernels cvy_half_kernels_base[CVY_HALF_COUNT], cvy_half_kernels_avx2[CVY_HALF_COUNT],
    cvy_half_kernels_avx512[CVY_HALF_COUNT];

#endif
