/* Images that come as pixels become what the decoder reads without work: a header and packed RGB. */
#ifndef CVY_INFER_PIXELS_H
#define CVY_INFER_PIXELS_H

#include "convoy/infer.h"
#include "data/sample/sample.h"

/* Zero-initialise; grows as needed. */
struct cvy_pixel_bytes {
    uint8_t *bytes;
    size_t capacity;
};
void cvy_pixel_bytes_release(struct cvy_pixel_bytes *buffer);
/* *encoded borrows from `buffer` and `name`. CVY_USAGE: size, format or stride are not possible; CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_pixels_encode(const struct cvy_pixels *pixels, const char *name,
                                         struct cvy_pixel_bytes *buffer, struct cvy_encoded *encoded);

#endif
