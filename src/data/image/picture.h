/* A whole decoded image in memory, read and written. */
#ifndef CVY_DATA_IMAGE_PICTURE_H
#define CVY_DATA_IMAGE_PICTURE_H

#include "data/image/image.h"

struct cvy_picture {
    uint8_t *pixels; /* (height, width, 3) R, G, B; owned */
    int32_t width, height;
    enum cvy_image_format format; /* it was read from, and is written as */
};
void cvy_picture_release(struct cvy_picture *picture); /* accepts a zeroed one */

/* Decode an image in memory; with `exif_orientation` it is turned as that says. CVY_BAD_DATA, CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_picture_decode(struct cvy_decoder *decoder, const char *name, const void *data, size_t size,
                                          bool exif_orientation, struct cvy_picture *picture);
/* Decodes all of the image that the decoder has started (width x height pixels as stored), and turns it. */
CVY_CHECKED cvy_status cvy_picture_turn(struct cvy_decoder *decoder, int32_t width, int32_t height, int orientation,
                                        struct cvy_picture *picture);
/* Write it in its format, whole or not at all; the folders on the way are made. CVY_CANNOT_CREATE, CVY_CANNOT_WRITE,
 * CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_picture_write(const struct cvy_picture *picture, const char *path);

#endif
