/* Images as bytes of a file and as pixels: decoding, encoding, turning, resizing. What others need of libjpeg and
 * libpng, they get here. */
#ifndef CVY_DATA_IMAGE_API_H
#define CVY_DATA_IMAGE_API_H

#include "data/image/codec.h"
#include "data/image/format.h"
#include "data/image/image.h"
#include "data/image/picture.h"
#include "data/image/resize.h"

#endif
