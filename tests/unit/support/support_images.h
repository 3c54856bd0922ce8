/* Folders and images for the tests of the data path. Every call ends the test on failure. */
#ifndef SUPPORT_IMAGES_H
#define SUPPORT_IMAGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "data/image/image.h"
#include "support_folder.h"

struct bytes {
    uint8_t *data; /* freed with free() */
    size_t size;
};

/* How a test JPEG is stored. */
struct jpeg_kind {
    const char *name;
    int components;                       /* 1, 3, or 4 (CMYK, stored as given) */
    int h, v;                             /* sampling factors of the first component */
    int progressive, arithmetic, restart; /* restart: MCUs between markers, 0 for none */
    int separate_scans;                   /* a scan for each component */
};

/* Every sampling that is met, restart intervals, several scans; the first seven are what data/image/baseline.h may
 * take, or nearly so. */
enum { SUPPORT_JPEG_KINDS = 19 };
extern const struct jpeg_kind support_jpeg_kinds[SUPPORT_JPEG_KINDS];

/* Blurred noise with edges: gives the chroma planes something to interpolate. (height, width, components) */
uint8_t *support_noise(struct cvy_rng *rng, int width, int height, int components);
/* The same of one colour, under a tint that changes by at most 1.2 levels from pixel to pixel and never saturates: it
 * hardly matters how chroma is interpolated. */
uint8_t *support_tinted_noise(struct cvy_rng *rng, int width, int height, int components);
struct bytes support_jpeg(const struct jpeg_kind *kind, const uint8_t *pixels, int width, int height);
/* All of a JPEG as libjpeg makes it (R, G, B), chroma interpolated or repeated. */
uint8_t *support_jpeg_pixels(const struct bytes *jpeg, bool interpolated);
/* A small valid colour JPEG of random content. */
struct bytes support_any_jpeg(uint64_t seed, int width, int height);
struct bytes support_png(const uint8_t *pixels, int width, int height, int channels);

/* In the test's folder images/train/... and images/val/...: this many random JPEGs of different sizes, in turn of the
 * classes ape, bee and cat, called 00.jpg and so on over both parts. */
void support_write_classes(int train, int val);
/* A decoder, as setup and teardown of a test or a group. */
extern struct cvy_decoder *support_decoder;
int support_decoder_set_up(void **state);
int support_decoder_tear_down(void **state);
/* Write a file below `folder`, making the folders on its way. */
void support_write(const char *folder, const char *name, const void *data, size_t size);
/* A random JPEG file. */
void support_write_jpeg(const char *folder, const char *name, uint64_t seed, int width, int height);

#endif
