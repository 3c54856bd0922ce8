/* Random changes of an image's colours. */
#ifndef CVY_DATA_TRANSFORM_COLOR_JITTER_H
#define CVY_DATA_TRANSFORM_COLOR_JITTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

/* How far colours are changed; 0: not at all. The factors of brightness, contrast and saturation are uniform between
 * 1 - x and 1 + x, the turn of the hue between -x and x of the colour circle. */
struct cvy_color_jitter {
    double brightness, contrast, saturation; /* 0..1 */
    double hue;                              /* 0..0.5 */
};
bool cvy_color_jitter_is_on(const struct cvy_color_jitter *jitter);
/* Draw and apply, in this order, to `count` pixels of three floats, 0..255 each. */
void cvy_color_jitter_apply(const struct cvy_color_jitter *jitter, struct cvy_rng *rng, float *pixels, size_t count);
/* torchvision's ColorJitter of Pillow's images, bit for bit for what is drawn: the four changes in an order that is
 * drawn anew for each image. `image`: (size, size, 3). */
void cvy_color_jitter_bytes(const struct cvy_color_jitter *jitter, struct cvy_rng *rng, uint8_t *image, int32_t size);

#endif
