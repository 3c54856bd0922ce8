/* Decoding JPEG, PNG, WebP, HEIC, AVIF, TIFF, BMP, GIF (its first image) and PPM (which packed data sets hold) to RGB.
 */
#ifndef CVY_DATA_IMAGE_IMAGE_H
#define CVY_DATA_IMAGE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/status.h"
#include "data/image/format.h"

/* The endings of names that count as images, for sentences. */
#define CVY_IMAGE_ENDINGS "jpg, jpeg, jfif, png, webp, heic, heif, avif, tif, tiff, bmp, gif"
/* Is it one of them, in any case? Without the dot. */
bool cvy_is_image_ending(const char *ending);

/* A reusable decoder: buffers grow and stay. One thread at a time. */
struct cvy_decoder;
CVY_CHECKED cvy_status cvy_decoder_new(struct cvy_decoder **decoder);
void cvy_decoder_free(struct cvy_decoder *decoder); /* accepts NULL */

/* How JPEGs are decoded from now on; exactly by default. */
void cvy_decoder_set_speed(struct cvy_decoder *decoder, enum cvy_jpeg_speed speed);
/* Read the header. `name` stands for the image in errors; name and data must stay valid until the read. The format is
 * found from the content, never from the name. Grey, CMYK, YCCK, palette, alpha and 16-bit become RGB as Pillow's
 * convert("RGB") does. CVY_BAD_DATA: not one of these, a library is missing, damaged, without its end marker (a file
 * cut off anywhere is found here, so that training and evaluation agree on it), or too many pixels. */
CVY_CHECKED cvy_status cvy_decoder_start(struct cvy_decoder *decoder, const char *name, const void *data, size_t size,
                                         int32_t *width, int32_t *height);
/* Whether the image started last can be decoded at a lower resolution: baseline JPEGs with the usual sampling. */
bool cvy_decoder_can_scale(const struct cvy_decoder *decoder);
/* Decode it at eighths/8 (1, 2, 4 or 8) of its size, in the transform's own domain: pixel x of the result covers what
 * pixels [8 x / eighths, 8 (x + 1) / eighths) of the image cover. Sizes are rounded up. */
CVY_CHECKED cvy_status cvy_decoder_scale(struct cvy_decoder *decoder, int32_t eighths, int32_t *width, int32_t *height);
/* Decode at least the rectangle `need` of the image started last. *pixels points at its first pixel (R, G, B bytes),
 * rows *stride bytes apart; valid until the next start. Pixels equal those of a full decode. A premature end of the
 * data within the decoded part is CVY_BAD_DATA; other decoder warnings pass. */
CVY_CHECKED cvy_status cvy_decoder_read(struct cvy_decoder *decoder, const struct cvy_box *need, const uint8_t **pixels,
                                        size_t *stride);

/* The shorter side of the image started last, in pixels, whatever it is decoded at. */
int32_t cvy_decoder_shorter_side(const struct cvy_decoder *decoder);
/* Seconds spent in starts and reads so far. */
double cvy_decoder_seconds(const struct cvy_decoder *decoder);

/* The format of the image started last. */
enum cvy_image_format cvy_decoder_format(const struct cvy_decoder *decoder);
/* Whether it is a JPEG of grey or colour samples; CMYK and PNG are not. */
bool cvy_decoder_is_plain_jpeg(const struct cvy_decoder *decoder);
/* Whether it is a JPEG that other decoders than libjpeg read too: Huffman-coded, 8 bits, one scan without restart
 * markers, grey or YCbCr, chroma at the whole or half the width, at half the height only with half the width. To be
 * asked before it is read. */
bool cvy_decoder_is_usual_jpeg(const struct cvy_decoder *decoder);
/* The EXIF orientation (1..8) of the image started last; 1 where there is none. Reading never applies it. */
int cvy_decoder_orientation(const struct cvy_decoder *decoder);

#endif
