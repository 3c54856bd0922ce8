/* What a packed data set keeps of an image: its bytes, or the pixels made smaller. */
#ifndef CVY_DATASET_TOOLS_PACK_IMAGE_H
#define CVY_DATASET_TOOLS_PACK_IMAGE_H

#include "convoy/dataset.h"
#include "data/sample/sample.h"

struct cvy_pack_maker; /* decoder and buffers; one thread at a time */
/* `options` stay until it is freed. */
CVY_CHECKED cvy_status cvy_pack_maker_new(const struct cvy_pack_options *options, struct cvy_pack_maker **maker);
void cvy_pack_maker_free(struct cvy_pack_maker *maker); /* accepts NULL */

struct cvy_pack_image {
    const void *data; /* of the encoded image, or own */
    size_t size;
    bool reencoded;
    void *owned;
};
void cvy_pack_image_release(struct cvy_pack_image *image);
/* The bytes as they are; or with options->shorter_side a JPEG of that size, unless the image is no larger and no turn
 * is said in it; or with options->raw a PPM. CVY_BAD_DATA: damaged (kept bytes: as far as the header and the end tell).
 */
CVY_CHECKED cvy_status cvy_pack_image_make(struct cvy_pack_maker *maker, const struct cvy_encoded *encoded,
                                           struct cvy_pack_image *image);

#endif
