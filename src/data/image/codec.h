/* The decoders behind image.h: JPEG (libjpeg-turbo), PNG (libpng), PPM, BMP and GIF (our own); WebP, HEIC and AVIF, and
 * TIFF by libraries that are loaded when such an image comes. */
#ifndef CVY_DATA_IMAGE_CODEC_H
#define CVY_DATA_IMAGE_CODEC_H

#include <stdbool.h>
#include <stddef.h>

#include "convoy/status.h"
#include "data/image/format.h"

/* A growing buffer, reused from image to image; released when a far smaller one would do. */
struct cvy_pixel_buffer {
    uint8_t *data;
    size_t capacity;
};
/* At least `bytes` (content undefined). CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_pixel_buffer_reserve(struct cvy_pixel_buffer *buffer, size_t bytes);
void cvy_pixel_buffer_release(struct cvy_pixel_buffer *buffer);

/* The job of a decoder; filled in by image.c. */
struct cvy_codec_job {
    const char *name;
    const uint8_t *data;
    size_t size;
    int32_t width, height;
    size_t min_size; /* bytes that an image of this size takes at least in this format; more than `size`: cut off */
    enum cvy_jpeg_speed speed;
    struct cvy_pixel_buffer pixels; /* RGB result */
    struct cvy_pixel_buffer rows;   /* rows on their way */
};

struct cvy_jpeg;
CVY_CHECKED cvy_status cvy_jpeg_new(struct cvy_jpeg **jpeg);
void cvy_jpeg_free(struct cvy_jpeg *jpeg);            /* accepts NULL */
int cvy_jpeg_components(const struct cvy_jpeg *jpeg); /* of the image started last: 1, 3 or 4 */
bool cvy_jpeg_is_usual(const struct cvy_jpeg *jpeg);  /* cvy_decoder_is_usual_jpeg, of the image started last */
/* Read the header of job->data; sets width and height. */
CVY_CHECKED cvy_status cvy_jpeg_start(struct cvy_jpeg *jpeg, struct cvy_codec_job *job);
/* Whether the started image can be decoded at eighths of its size, and that from now on: changes width and height. */
bool cvy_jpeg_can_scale(const struct cvy_jpeg *jpeg);
void cvy_jpeg_scale(struct cvy_jpeg *jpeg, struct cvy_codec_job *job, int32_t eighths);
CVY_CHECKED cvy_status cvy_jpeg_read(struct cvy_jpeg *jpeg, struct cvy_codec_job *job, const struct cvy_box *need,
                                     const uint8_t **pixels, size_t *stride);

struct cvy_png;
CVY_CHECKED cvy_status cvy_png_new(struct cvy_png **png);
void cvy_png_free(struct cvy_png *png); /* accepts NULL */
CVY_CHECKED cvy_status cvy_png_start(struct cvy_png *png, struct cvy_codec_job *job);
CVY_CHECKED cvy_status cvy_png_read(struct cvy_png *png, struct cvy_codec_job *job, const struct cvy_box *need,
                                    const uint8_t **pixels, size_t *stride);

/* For a file that begins as a RIFF of kind WEBP. CVY_BAD_DATA also where libwebp is not on this system. */
CVY_CHECKED cvy_status cvy_webp_start(struct cvy_codec_job *job);
CVY_CHECKED cvy_status cvy_webp_read(struct cvy_codec_job *job, const struct cvy_box *need, const uint8_t **pixels,
                                     size_t *stride);

/* HEIC and AVIF: bytes whose first box names one of their brands. The state reads job->data until the next start. */
struct cvy_heif;
bool cvy_is_heif(const uint8_t *data, size_t size);
CVY_CHECKED cvy_status cvy_heif_new(struct cvy_heif **heif);
void cvy_heif_free(struct cvy_heif *state); /* accepts NULL */
CVY_CHECKED cvy_status cvy_heif_start(struct cvy_heif *heif, struct cvy_codec_job *job);
/* *pixels belong to the state. */
CVY_CHECKED cvy_status cvy_heif_read(struct cvy_heif *heif, const struct cvy_codec_job *job, const struct cvy_box *need,
                                     const uint8_t **pixels, size_t *stride);

bool cvy_is_tiff(const uint8_t *data, size_t size);
CVY_CHECKED cvy_status cvy_tiff_start(struct cvy_codec_job *job);
CVY_CHECKED cvy_status cvy_tiff_read(struct cvy_codec_job *job, const struct cvy_box *need, const uint8_t **pixels,
                                     size_t *stride);

/* For bytes that begin with "BM". */
struct cvy_bmp {
    int bits;                            /* of a pixel */
    bool top_down, six_greens, reversed; /* rows; 16 bits as 5, 6, 5; 32 bits with red first */
    size_t pixels;                       /* where they begin */
    uint64_t stride;                     /* bytes of a row */
    uint8_t palette[256][3];
};
CVY_CHECKED cvy_status cvy_bmp_start(struct cvy_codec_job *job, struct cvy_bmp *bmp);
CVY_CHECKED cvy_status cvy_bmp_read(struct cvy_codec_job *job, const struct cvy_bmp *bmp, const struct cvy_box *need,
                                    const uint8_t **pixels, size_t *stride);

/* The first image of a file that begins with "GIF8". */
struct cvy_gif {
    struct cvy_box frame; /* on the screen, which has the job's size */
    bool interlaced;
    size_t palette; /* where it is */
    int colours;    /* 0: there is none */
    int background; /* the index of what the frame does not cover */
    int code_bits;  /* of a plain index */
    size_t blocks;  /* where the codes begin */
};
CVY_CHECKED cvy_status cvy_gif_start(struct cvy_codec_job *job, struct cvy_gif *gif);
CVY_CHECKED cvy_status cvy_gif_read(struct cvy_codec_job *job, const struct cvy_gif *gif, const struct cvy_box *need,
                                    const uint8_t **pixels, size_t *stride);

/* Binary PPM of 8 bits: *pixels is where they begin in job->data. */
CVY_CHECKED cvy_status cvy_ppm_start(struct cvy_codec_job *job, size_t *pixels);
void cvy_ppm_read(const struct cvy_codec_job *job, size_t from, const struct cvy_box *need, const uint8_t **pixels,
                  size_t *stride);
enum { CVY_PPM_HEADER = 40 };
/* Writes the header before packed RGB; returns its length. */
size_t cvy_ppm_header(int32_t width, int32_t height, char header[CVY_PPM_HEADER]);

/* Encode packed RGB as a baseline JPEG; *data is freed with free() (libjpeg allocates it). */
CVY_CHECKED cvy_status cvy_jpeg_encode(const uint8_t *pixels, int32_t width, int32_t height, int quality,
                                       uint8_t **data, size_t *size);
/* Encode packed RGB as a PNG; *data is freed with free(). */
CVY_CHECKED cvy_status cvy_png_encode(const uint8_t *pixels, int32_t width, int32_t height, uint8_t **data,
                                      size_t *size);

/* A number of 1 to 4 bytes. */
uint32_t cvy_image_uint(const uint8_t *p, int bytes, bool big_endian);
/* The EXIF orientation (1..8) in a JPEG's APP1 segment, a PNG's eXIf, a WebP's EXIF chunk or a TIFF; 1 where there is
 * none, and of a HEIF, which libheif turns. */
int cvy_exif_orientation(enum cvy_image_format format, const uint8_t *data, size_t size);

#endif
