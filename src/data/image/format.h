/* What the decoder (image.h) and the codecs after it both speak of. */
#ifndef CVY_DATA_IMAGE_FORMAT_H
#define CVY_DATA_IMAGE_FORMAT_H

#include <stdint.h>

/* Images with more pixels are refused as decompression bombs (Pillow's error limit). */
#define CVY_MAX_PIXELS INT64_C(178956970)

/* A rectangle of an image, in pixels. */
struct cvy_box {
    int32_t x, y, width, height;
};

/* How JPEGs are decoded. */
enum cvy_jpeg_speed {
    CVY_JPEG_EXACT,
    CVY_JPEG_LIBRARY,  /* exactly too, but by libjpeg alone, whatever data/image/baseline.h could do: for tests */
    CVY_JPEG_FAST_DCT, /* with the faster integer DCT, as TensorFlow does by itself */
    CVY_JPEG_FAST      /* chroma samples repeated instead of interpolated too: TensorFlow's ImageNet program */
};

enum cvy_image_format {
    CVY_IMAGE_JPEG,
    CVY_IMAGE_PNG,
    CVY_IMAGE_WEBP,
    CVY_IMAGE_HEIF, /* HEIC or AVIF */
    CVY_IMAGE_TIFF,
    CVY_IMAGE_BMP,
    CVY_IMAGE_GIF,
    CVY_IMAGE_PPM
};

#endif
