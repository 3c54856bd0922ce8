/* Decoding, cropping and resizing images in a device's own memory. The host reads files, draws crops, and decodes what
 * the device does not take. */
#ifndef CVY_BACKEND_IMAGE_DECODER_H
#define CVY_BACKEND_IMAGE_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/status.h"

typedef struct cvy_device cvy_device;

/* One axis of a resize: results [first, first + count) of `out` over the stretch [origin, origin + extent) of a source
 * of `size` positions. They land at `at` of the square result, the rest of which is 0. */
struct cvy_resize_axis {
    double origin, extent;
    int32_t size, out, first, count, at;
};

/* An image, and what is made of it: bytes as the host's resize has them (data/image/resize.h), within one. */
struct cvy_device_image {
    const uint8_t *data; /* a JPEG that takes() accepted; NULL: pixels */
    size_t bytes;
    const uint8_t *pixels; /* R, G, B in the host's memory, rows `stride` bytes apart */
    size_t stride;
    int32_t width, height; /* of all of the JPEG, or of the pixels */
    int32_t x, y;          /* where in it the source begins, which has across.size x down.size positions */
    struct cvy_resize_axis across, down;
    bool cubic;       /* Keys' filter with a = -0.5; else the triangle */
    bool antialiased; /* the filter widens where the image shrinks */
    bool flip;        /* left to right */
    uint8_t *to;      /* (side, side, 3) of the device's memory */
};

struct cvy_image_decoder_options {
    int32_t side;    /* of the square results */
    int32_t lanes;   /* batches that are decoded side by side, each by a thread of its own */
    int32_t threads; /* that call takes() */
};

struct cvy_image_decoder;
/* Lanes whose memory is asked for before they are there. */
struct cvy_image_lanes {
    const struct cvy_image_decoding *decoding; /* NULL: the host decodes */
    struct cvy_image_decoder_options options;
    int64_t pixels; /* of an image */
};
/* Implemented by a backend. */
struct cvy_image_decoding {
    const char *name; /* "nvJPEG" */
    /* CVY_UNAVAILABLE with the reason where the device cannot decode. */
    cvy_status (*open)(cvy_device *device, const struct cvy_image_decoder_options *options,
                       struct cvy_image_decoder **decoder);
    void (*close)(struct cvy_image_decoder *decoder); /* accepts NULL */
    /* What decodes, "nvJPEG 13.0.1, in hardware"; valid until it is closed. */
    const char *(*description)(const struct cvy_image_decoder *decoder);
    /* Whether decode() can take this JPEG, which is baseline, of one scan, grey or YCbCr, and whose header is sound.
     * Each thread has its number. */
    bool (*takes)(struct cvy_image_decoder *decoder, int32_t thread, const uint8_t *data, size_t bytes, int32_t width,
                  int32_t height);
    /* Queues the work; what the images point to stays valid until wait() has returned. CVY_BAD_DATA: one of them is
     * damaged, and nothing is known of any. */
    cvy_status (*decode)(struct cvy_image_decoder *decoder, int32_t lane, const struct cvy_device_image *images,
                         int32_t count);
    /* Queued; `host` is of allocate_host(). */
    cvy_status (*upload)(struct cvy_image_decoder *decoder, int32_t lane, void *to, const void *host, size_t bytes);
    cvy_status (*wait)(struct cvy_image_decoder *decoder, int32_t lane);
    /* Bytes of the device that all lanes together come to take for batches of `count` such images, whole squares, but
     * for what a library takes within. */
    size_t (*lane_bytes)(const struct cvy_image_lanes *lanes, int64_t count);
};
static inline size_t cvy_image_lane_bytes(const struct cvy_image_lanes *lanes, int64_t count)
{
    return lanes->decoding ? lanes->decoding->lane_bytes(lanes, count) : 0;
}

#endif
