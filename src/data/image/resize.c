/* Pillow's resize. Along each axis, with scale = in / out, width = max(scale, 1) (1 of the filter that is not
 * antialiased) and reach = width, of the cubic filter 2 width: result x is the mean of source positions i in
 * [int(c - reach + 0.5), int(c + reach + 0.5)), cut to the image, where c = (x + 0.5) * scale, weighted with
 * f(|i - c + 0.5| / width). Weights are made in double, divided by their sum, and rounded to 22 bits; the horizontal
 * pass comes first; each pass rounds to uint8, but for DALI's cubic filter, which keeps floats between them. */
#include "data/image/resize.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"
#include "data/image/resize_kernels.h"

/* Above this many weights a result (an enlarged row of pixels shrunk to a few), the table of pairs is not worth its
 * memory. */
enum { MAX_SPLIT_TAPS = 1024 };

struct span {
    int32_t first, taps;
};

/* One axis: `out` results over the stretch [origin, origin + extent) of a source of `size` positions. */
struct axis_map {
    double origin, extent;
    int32_t size, out;
    enum cvy_filter filter;
};

static struct axis_map across_of(enum cvy_filter filter, int32_t width, const struct cvy_view *view, int32_t out)
{
    return (struct axis_map){view ? view->x : 0, view ? view->width : width, width, out, filter};
}

static struct axis_map down_of(enum cvy_filter filter, int32_t height, const struct cvy_view *view, int32_t out)
{
    return (struct axis_map){view ? view->y : 0, view ? view->height : height, height, out, filter};
}

static double filter_width(const struct axis_map *map)
{
    const double scale = map->extent / map->out;
    return scale < 1.0 || map->filter == CVY_FILTER_LINEAR || map->filter == CVY_FILTER_CUBIC ? 1.0 : scale;
}

static bool is_cubic(enum cvy_filter filter)
{
    return filter == CVY_FILTER_BICUBIC || filter == CVY_FILTER_CUBIC;
}

static double filter_reach(const struct axis_map *map)
{
    return (is_cubic(map->filter) ? 2.0 : 1.0) * filter_width(map);
}

/* Keys' cubic convolution (1981) with a = -0.5, and the triangle. */
static double filter_at(enum cvy_filter filter, double x)
{
    const double a = -0.5;

    if (!is_cubic(filter))
        return x < 1.0 ? 1.0 - x : 0.0;
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

static double centre_of(const struct axis_map *map, int32_t x)
{
    return map->origin + (x + 0.5) * (map->extent / map->out);
}

static struct span source_span(const struct axis_map *map, int32_t x)
{
    const double centre = centre_of(map, x), reach = filter_reach(map);
    const double low = centre - reach + 0.5, high = centre + reach + 0.5;
    const int32_t first = low < 0 ? 0 : (int32_t)low;
    const int32_t end = high > map->size ? map->size : (int32_t)high;
    return (struct span){first, end - first};
}

/* The source positions that results [from, from + count) of the axis read. */
static struct span range_span(const struct axis_map *map, int32_t from, int32_t count)
{
    const struct span a = source_span(map, from), b = source_span(map, from + count - 1);
    return (struct span){a.first, b.first + b.taps - a.first};
}

struct cvy_box cvy_resize_need(enum cvy_filter filter, int32_t width, int32_t height, const struct cvy_view *view,
                               int32_t full_width, int32_t full_height, const struct cvy_box *window)
{
    const struct axis_map across = across_of(filter, width, view, full_width),
                          down = down_of(filter, height, view, full_height);
    const struct span x = range_span(&across, window->x, window->width);
    const struct span y = range_span(&down, window->y, window->height);
    return (struct cvy_box){x.first, y.first, x.taps, y.taps};
}

void cvy_resizer_release(struct cvy_resizer *resizer)
{
    cvy_free_aligned(resizer->buffer);
    resizer->buffer = NULL;
    resizer->capacity = 0;
}

cvy_status cvy_resizer_reserve(struct cvy_resizer *resizer, size_t bytes)
{
    if (bytes <= resizer->capacity)
        return CVY_OK;
    cvy_resizer_release(resizer);
    resizer->buffer = cvy_calloc_aligned(bytes);
    if (!resizer->buffer)
        return cvy_fail_memory(bytes, "resizing an image");
    resizer->capacity = bytes;
    return CVY_OK;
}

/* The weights of positions beyond the edges are those of the edges. */
static double add_beyond(const struct axis_map *map, double centre, struct span span, double *scratch)
{
    const int32_t low = (int32_t)floor(centre - 2 + 0.5), end = (int32_t)floor(centre + 2 + 0.5);
    double sum = 0.0;

    for (int32_t i = low; i < end; i++) {
        const double weight = filter_at(map->filter, fabs(i - centre + 0.5));
        if (i < 0)
            scratch[0] += weight;
        else if (i >= map->size)
            scratch[span.taps - 1] += weight;
        sum += i < 0 || i >= map->size ? weight : 0;
    }
    return sum;
}

/* Weights of one result; `scratch` holds as many doubles as there are taps. */
static void make_weights(const struct axis_map *map, int32_t x, struct span span, int32_t stride, double *scratch,
                         int32_t *weights)
{
    const double centre = centre_of(map, x), inverse = 1.0 / filter_width(map);
    double sum = 0.0;

    for (int32_t t = 0; t < span.taps; t++) {
        scratch[t] = filter_at(map->filter, fabs((t + span.first - centre + 0.5) * inverse));
        sum += scratch[t];
    }
    if (map->filter == CVY_FILTER_CUBIC)
        sum += add_beyond(map, centre, span, scratch);
    for (int32_t t = 0; t < stride; t++) {
        double w = t < span.taps ? scratch[t] : 0.0;
        if (sum != 0.0)
            w /= sum;
        weights[t] = (int32_t)((w < 0 ? -0.5 : 0.5) + w * (1 << RESIZE_BITS));
    }
}

/* The same weights as pairs of int16 in the order of the row kernel. */
static void split_weights(const int32_t *weights, int32_t stride, int16_t *split)
{
    for (int32_t t = 0; t < stride; t += 4, split += 32)
        for (int pair = 0; pair < 8; pair++)
            for (int i = 0; i < 2; i++) {
                const int32_t w = weights[t + (pair >= 4 ? 2 : 0) + i];
                split[pair * 2 + i] = (int16_t)(w >> RESIZE_LOW_BITS);
                split[16 + pair * 2 + i] = (int16_t)(w & ((1 << RESIZE_LOW_BITS) - 1));
            }
}

/* Pieces of the resizer's buffer. The first pass over the layout (base NULL) measures, the second hands out. */
struct layout {
    uint8_t *base;
    size_t used;
    bool overflow;
};
static void *take(struct layout *layout, size_t count, size_t size)
{
    size_t bytes;
    void *piece = layout->base ? layout->base + layout->used : NULL;
    if (!cvy_size_mul(count, size, &bytes) || bytes > SIZE_MAX - 64 ||
        !cvy_size_add(layout->used, (bytes + 63) / 64 * 64, &layout->used))
        layout->overflow = true;
    return piece;
}

/* ceil(reach) * 2 + 1 positions at most, rounded up to a multiple of 4. */
static int64_t weights_per_result(const struct axis_map *map)
{
    return ((int64_t)ceil(filter_reach(map)) * 2 + 1 + 3) / 4 * 4;
}

static void take_axis(struct layout *layout, struct resize_axis *axis, const struct axis_map *map, int32_t count,
                      bool split)
{
    axis->count = count;
    axis->stride = (int32_t)weights_per_result(map);
    const size_t weights = (size_t)count * (size_t)axis->stride; /* < 2^62 */
    axis->first = take(layout, (size_t)count, sizeof *axis->first);
    axis->taps = take(layout, (size_t)count, sizeof *axis->taps);
    axis->weights = take(layout, weights, sizeof *axis->weights);
    axis->split = split && axis->stride <= MAX_SPLIT_TAPS ? take(layout, weights, 8 * sizeof *axis->split) : NULL;
}

static void fill_axis(struct resize_axis *axis, const struct axis_map *map, int32_t from, bool reverse, int32_t origin,
                      double *scratch)
{
    for (int32_t i = 0; i < axis->count; i++) {
        const int32_t x = from + (reverse ? axis->count - 1 - i : i);
        const struct span span = source_span(map, x);
        int32_t *weights = axis->weights + (size_t)i * (size_t)axis->stride;
        axis->first[i] = span.first - origin;
        axis->taps[i] = span.taps;
        make_weights(map, x, span, axis->stride, scratch, weights);
        if (axis->split)
            split_weights(weights, axis->stride, axis->split + (size_t)i * (size_t)axis->stride * 8);
    }
}

static const struct resize_kernels *pick_kernels(void)
{
    switch (cvy_cpu_isa()) {
    case CVY_ISA_AVX512:
    case CVY_ISA_AVX512_BF16:
    case CVY_ISA_AMX_BF16:
        return CVY_IF_AVX(&cvy_resize_kernels_avx512);
    case CVY_ISA_AVX2:
        return CVY_IF_AVX(&cvy_resize_kernels_avx2);
    case CVY_ISA_BASE:
        break;
    }
    return &cvy_resize_kernels_base;
}

/* The horizontal pass over the needed rows. A row near the end of the source is copied first where the kernel would
 * read past the end. */
static void shrink_rows(const struct resize_kernels *kernels, const struct resize_axis *axis, const uint8_t *source,
                        size_t stride, size_t row_bytes, int32_t rows, uint8_t *copy, uint8_t *out, size_t out_stride)
{
    int32_t y = 0;

    for (; y < rows && (size_t)(rows - y) * stride >= RESIZE_ROWS * stride + RESIZE_OVERREAD; y += RESIZE_ROWS)
        kernels->rows(axis, source + (size_t)y * stride, stride, out + (size_t)y * out_stride, out_stride);
    for (; y < rows; y++) {
        const uint8_t *row = source + (size_t)y * stride;
        const size_t left = (size_t)(rows - 1 - y) * stride + row_bytes;
        if (left < row_bytes + RESIZE_OVERREAD)
            row = memcpy(copy, row, row_bytes);
        kernels->row(axis, row, out + (size_t)y * out_stride);
    }
}

/* The sum of `axis`' result i over values that lie `step` apart. */
static float sum_bytes(const struct resize_axis *axis, int32_t i, const uint8_t *values, size_t step)
{
    const int32_t *weights = axis->weights + (size_t)i * (size_t)axis->stride;
    int64_t sum = 0;

    for (int32_t t = 0; t < axis->taps[i]; t++)
        sum += (int64_t)weights[t] * values[(size_t)(axis->first[i] + t) * step];
    return (float)sum / (1 << RESIZE_BITS);
}

/* Both passes with floats between them: what the cubic filter has beyond black and white counts in the second. */
static void resize_in_floats(const struct resize_axis *across, const struct resize_axis *down, const uint8_t *part,
                             size_t stride, int32_t lines, float *rows, uint8_t *out)
{
    const size_t width = (size_t)across->count * 3;

    for (int32_t y = 0; y < lines; y++)
        for (size_t i = 0; i < width; i++)
            rows[(size_t)y * width + i] = sum_bytes(across, (int32_t)(i / 3), part + (size_t)y * stride + i % 3, 3);
    for (int32_t y = 0; y < down->count; y++, out += width) {
        const int32_t *weights = down->weights + (size_t)y * (size_t)down->stride;
        const float *first = rows + (size_t)down->first[y] * width;
        for (size_t i = 0; i < width; i++) {
            float sum = 0;
            for (int32_t t = 0; t < down->taps[y]; t++)
                sum += (float)weights[t] / (1 << RESIZE_BITS) * first[(size_t)t * width + i];
            out[i] = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : lrintf(sum));
        }
    }
}

/* Resize by two axes; `part` points at the first pixel that `window` needs. */
static cvy_status resize(struct cvy_resizer *resizer, const uint8_t *part, size_t stride, const struct axis_map *across,
                         const struct axis_map *down, const struct cvy_box *window, bool flip, uint8_t *out)
{
    const struct resize_kernels *kernels = pick_kernels();
    const struct span columns = range_span(across, window->x, window->width);
    const struct span lines = range_span(down, window->y, window->height);
    const int64_t max =
        weights_per_result(across) > weights_per_result(down) ? weights_per_result(across) : weights_per_result(down);
    const size_t row_bytes = (size_t)window->width * 3, need_bytes = (size_t)columns.taps * 3;
    const bool in_floats = across->filter == CVY_FILTER_CUBIC;
    const size_t row_stride = (row_bytes * (in_floats ? sizeof(float) : 1) + RESIZE_OVERWRITE + 63) / 64 * 64;
    struct resize_axis horizontal = {0}, vertical = {0};
    struct layout layout = {0};
    double *scratch = NULL;
    uint8_t *rows = NULL, *copy = NULL;

    for (int pass = 0; pass < 2; pass++) {
        layout = (struct layout){.base = resizer->buffer};
        if (pass == 0)
            layout.base = NULL;
        take_axis(&layout, &horizontal, across, window->width, true);
        take_axis(&layout, &vertical, down, window->height, false);
        scratch = take(&layout, (size_t)max, sizeof *scratch);
        rows = take(&layout, (size_t)lines.taps, row_stride);
        copy = take(&layout, need_bytes + 64, 1);
        if (layout.overflow)
            return cvy_fail_memory(SIZE_MAX, "resizing an image");
        if (pass == 0)
            CVY_TRY(cvy_resizer_reserve(resizer, layout.used));
    }
    fill_axis(&horizontal, across, window->x, flip, columns.first, scratch);
    fill_axis(&vertical, down, window->y, false, lines.first, scratch);

    if (in_floats) {
        resize_in_floats(&horizontal, &vertical, part, stride, lines.taps, (float *)(void *)rows, out);
        return CVY_OK;
    }
    shrink_rows(kernels, &horizontal, part, stride, need_bytes, lines.taps, copy, rows, row_stride);
    for (int32_t y = 0; y < window->height; y++)
        kernels->column(rows + (size_t)vertical.first[y] * row_stride, row_stride,
                        vertical.weights + (size_t)y * (size_t)vertical.stride, vertical.taps[y], row_bytes,
                        out + (size_t)y * row_bytes);
    return CVY_OK;
}

cvy_status cvy_resize_part(struct cvy_resizer *resizer, const uint8_t *part, size_t stride, int32_t width,
                           int32_t height, const struct cvy_view *view, int32_t full_width, int32_t full_height,
                           const struct cvy_box *window, bool flip, uint8_t *out)
{
    const enum cvy_filter filter = resizer->filter;
    const struct axis_map across = across_of(filter, width, view, full_width),
                          down = down_of(filter, height, view, full_height);
    return resize(resizer, part, stride, &across, &down, window, flip, out);
}

cvy_status cvy_resize(struct cvy_resizer *resizer, const uint8_t *source, size_t stride, int32_t width, int32_t height,
                      int32_t full_width, int32_t full_height, const struct cvy_box *window, bool flip, uint8_t *out)
{
    const struct cvy_box need = cvy_resize_need(resizer->filter, width, height, NULL, full_width, full_height, window);
    const uint8_t *part = source + (size_t)need.y * stride + (size_t)need.x * 3;
    return cvy_resize_part(resizer, part, stride, width, height, NULL, full_width, full_height, window, flip, out);
}

cvy_status cvy_resize_view(struct cvy_resizer *resizer, const uint8_t *source, size_t stride, int32_t width,
                           int32_t height, const struct cvy_view *view, int32_t size, bool flip, uint8_t *out)
{
    const struct axis_map across = {view->x, view->width, width, size, resizer->filter};
    const struct axis_map down = {view->y, view->height, height, size, resizer->filter};
    const struct cvy_box all = {0, 0, size, size};
    const struct span x = range_span(&across, 0, size), y = range_span(&down, 0, size);
    const uint8_t *part = source + (size_t)y.first * stride + (size_t)x.first * 3;

    return resize(resizer, part, stride, &across, &down, &all, flip, out);
}
