/* Pillow's antialiased resize, bit for bit (fixed point of 22 bits, horizontal pass then vertical, each rounded to
 * uint8), combined with a crop of the result and a horizontal flip. */
#ifndef CVY_DATA_IMAGE_RESIZE_H
#define CVY_DATA_IMAGE_RESIZE_H

#include "data/image/image.h"

/* The resampling filter. Pillow's are antialiased: where an image is shrunk their support grows accordingly. */
enum cvy_filter {
    CVY_FILTER_BILINEAR, /* Pillow's: a triangle over two pixels */
    CVY_FILTER_BICUBIC,  /* Pillow's: over four, a = -0.5 */
    CVY_FILTER_LINEAR,   /* DALI's: the triangle, over two pixels however much is shrunk */
    CVY_FILTER_CUBIC     /* DALI's: the cubic one, over four; beyond the edges the edge's pixels count */
};

/* Reusable tables and rows. Zero-initialise; one thread at a time. */
struct cvy_resizer {
    void *buffer;
    size_t capacity;
    enum cvy_filter filter; /* of everything but cvy_resize_need */
};
void cvy_resizer_release(struct cvy_resizer *resizer);                                 /* the filter stays */
CVY_CHECKED cvy_status cvy_resizer_reserve(struct cvy_resizer *resizer, size_t bytes); /* of `buffer` */

/* Resize `source` (width x height RGB, rows `stride` bytes apart) to full_width x full_height, and write only the
 * rectangle `window` of that result to `out` (window->height rows of window->width * 3 bytes, packed), mirrored left to
 * right when `flip`. Only the source rows and columns that the window needs are read. CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_resize(struct cvy_resizer *resizer, const uint8_t *source, size_t stride, int32_t width,
                                  int32_t height, int32_t full_width, int32_t full_height, const struct cvy_box *window,
                                  bool flip, uint8_t *out);
/* A rectangle whose edges may lie between the centres of pixels: pixel i covers [i, i + 1). */
struct cvy_view {
    double x, y, width, height;
};
/* The source rectangle that this window reads, where the result shows `view` of the source: NULL, all of it. It may
 * reach beyond the edges by less than half a pixel of the result: the source ends there. */
struct cvy_box cvy_resize_need(enum cvy_filter filter, int32_t width, int32_t height, const struct cvy_view *view,
                               int32_t full_width, int32_t full_height, const struct cvy_box *window);
/* cvy_resize of such a view, where only that rectangle of the source is there: `part` points at its first pixel. */
CVY_CHECKED cvy_status cvy_resize_part(struct cvy_resizer *resizer, const uint8_t *part, size_t stride, int32_t width,
                                       int32_t height, const struct cvy_view *view, int32_t full_width,
                                       int32_t full_height, const struct cvy_box *window, bool flip, uint8_t *out);

/* Resize what `view` shows of `source` (width x height, which the view does not leave) to size x size. */
CVY_CHECKED cvy_status cvy_resize_view(struct cvy_resizer *resizer, const uint8_t *source, size_t stride, int32_t width,
                                       int32_t height, const struct cvy_view *view, int32_t size, bool flip,
                                       uint8_t *out);

#endif
