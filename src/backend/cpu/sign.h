/* What of an image passes an activation, in bits: an opaque layout of images of bf16 that hold ones and zeros. For each
 * pixel in channels-last order one 32-bit word for each 32 channels; bit c % 32 of word c / 32 is channel c. */
#ifndef CVY_BACKEND_CPU_SIGN_H
#define CVY_BACKEND_CPU_SIGN_H

#include "backend/cpu/cpu.h"

enum { CPU_SIGN_CHANNELS = 32 /* of a word */ };

struct cvy_layout cpu_sign_layout(void);
bool cpu_is_sign(const struct cvy_layout *layout);
/* CVY_UNAVAILABLE with a sentence unless a tensor of this shape and type can lie so. */
CVY_CHECKED cvy_status cpu_expect_sign(const struct cvy_tensor *tensor);
/* The words of the run of an image that begins `offset` bytes after the image's first number; NULL stays NULL. */
static inline uint32_t *cpu_sign_at(void *sign, size_t offset)
{
    return cpu_run_at(sign, offset / 16);
}
/* Bytes of a tensor that lies so; 0 on overflow. */
size_t cpu_sign_bytes(const struct cvy_tensor *tensor);

#endif
