/* Places: where the pixels of images are counted with zeros between the rows of an image and between images, so that a
 * tap of a window is a distance (tile_gradient.c, tile_window.c). */
#ifndef CVY_BACKEND_CPU_CONV_PLACES_H
#define CVY_BACKEND_CPU_CONV_PLACES_H

#include <stddef.h>
#include <stdint.h>

static inline int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of a tile, 16 at most, so that tiles for that many are of equal height. `together`: tiles that are multiplied at
 * once. */
static inline int32_t tile_height(int64_t rows, int32_t together)
{
    return (int32_t)divide_up(rows, divide_up(rows, together * 16) * together);
}

/* Whole lines of the cache. */
static inline size_t whole_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Which places of a row, or which rows, have pixels that are read, over all planes. */
struct place_span {
    int32_t first, last;
};

/* A plane whose place i is pixel i * step + offset of `pixels`. */
static inline void place_span_add(struct place_span *span, int32_t pixels, int32_t step, int32_t offset)
{
    const int32_t begin = offset < 0 ? (int32_t)divide_up(-(int64_t)offset, step) : 0, end = pixels - 1 - offset;
    span->first = (int32_t)smaller(span->first, begin);
    span->last = (int32_t)larger(span->last, end < 0 ? 0 : end / step);
}

/* Places from one row, or one image, to the next: as many as there are results, whose taps reach as many places
 * further, and so many that no tap of one reads what belongs to the next or the one before. */
static inline int32_t place_pitch(struct place_span span, int32_t results, int32_t reach)
{
    const int32_t read = results - 1 + reach, last = span.last < read ? span.last : read;
    return (int32_t)larger(larger(results, last + 1), (int64_t)read + 1 - span.first);
}

/* Bands: some whole images, or some rows of an image. */
struct place_bands {
    int64_t batch;
    int32_t image_rows;       /* of results, of an image */
    int32_t rows, images;     /* of a band, at most */
    int64_t per_image, count; /* bands of an image; all of them */
};

/* `pitch`: rows of places from one image to the next. `fitting`: rows of places of a band. Whole images where one fits,
 * no more than `most_images` of them, else rows of one, about the same for all. */
static inline struct place_bands place_bands_of(int64_t batch, int32_t image_rows, int32_t pitch, int64_t fitting,
                                                int64_t most_images)
{
    struct place_bands bands = {.batch = batch, .image_rows = image_rows, .rows = image_rows, .images = 1};

    if (fitting >= pitch)
        bands.images = (int32_t)larger(smaller(smaller(fitting / pitch, most_images), batch), 1);
    else if (fitting < image_rows)
        bands.rows = (int32_t)divide_up(image_rows, divide_up(image_rows, larger(fitting, 1)));
    bands.per_image = divide_up(image_rows, bands.rows);
    bands.count = bands.per_image * divide_up(batch, bands.images);
    return bands;
}

struct place_band {
    int64_t image;     /* the first one */
    int32_t images;    /* how many */
    int32_t row, rows; /* of results, of each */
};

static inline struct place_band place_band_at(const struct place_bands *bands, int64_t index)
{
    struct place_band band = {.image = index / bands->per_image * bands->images,
                              .row = (int32_t)(index % bands->per_image) * bands->rows};
    band.images = (int32_t)smaller(bands->batch - band.image, bands->images);
    band.rows = (int32_t)smaller(bands->image_rows - band.row, bands->rows);
    return band;
}

/* Rows of places of a band, from the first row of its first image to the last one of its last image. */
static inline int64_t place_rows(const struct place_bands *bands, int32_t pitch)
{
    return (int64_t)(bands->images - 1) * pitch + bands->rows;
}

#endif
