/* Arithmetic in float where TensorFlow's kernels compute in float: what is rounded to whole pixels depends on it. */
#include "data/transform/tensorflow.h"

#include <math.h>

#include "base/error.h"

enum { MAX_ATTEMPTS = 100 };

/* ---- the training crop ---- */

bool cvy_tensorflow_draw_crop(struct cvy_rng *rng, int32_t width, int32_t height, float min_area, float ratio,
                              struct cvy_box *crop)
{
    const float all = (float)width * (float)height, min = min_area * (float)width * (float)height;
    int32_t low = (int32_t)lrintf(sqrtf(min / ratio)), high = (int32_t)lrintf(sqrtf(all / ratio));

    /* The tallest crop whose width fits. */
    if (lrintf((float)high * ratio) > width) {
        high = (int32_t)(((double)width + 0.5 - 1e-7) / (double)ratio);
        if (lrintf((float)high * ratio) > width)
            high--;
    }
    if (high > height)
        high = height;
    if (low > high)
        low = high;
    int32_t h = low < high ? low + (int32_t)cvy_rng_below(rng, (uint32_t)(high - low) + 1) : low;
    int32_t w = (int32_t)lrintf((float)h * ratio);
    /* Rounding may have left the allowed areas by one row. */
    if ((float)w * (float)h < min) {
        h++;
        w = (int32_t)lrintf((float)h * ratio);
    }
    if ((float)w * (float)h > all) {
        h--;
        w = (int32_t)lrintf((float)h * ratio);
    }
    const float area = (float)w * (float)h;
    if (area < min || area > all || w > width || h > height || w < 1 || h < 1)
        return false;
    /* The last position is never drawn: so it is there. */
    crop->y = h < height ? (int32_t)cvy_rng_below(rng, (uint32_t)(height - h)) : 0;
    crop->x = w < width ? (int32_t)cvy_rng_below(rng, (uint32_t)(width - w)) : 0;
    crop->width = w;
    crop->height = h;
    return true;
}

bool cvy_object_box_is_valid(const struct cvy_object_box *box)
{
    return box->xmin >= 0 && box->xmin <= box->xmax && box->xmax <= 1 && box->ymin >= 0 && box->ymin <= box->ymax &&
           box->ymax <= 1;
}

/* A box in whole pixels, each corner rounded down. */
static struct cvy_box to_pixels(const struct cvy_object_box *box, int32_t width, int32_t height)
{
    struct cvy_box pixels = {.x = (int32_t)(box->xmin * (float)width), .y = (int32_t)(box->ymin * (float)height)};

    pixels.width = (int32_t)(box->xmax * (float)width) - pixels.x;
    pixels.height = (int32_t)(box->ymax * (float)height) - pixels.y;
    return pixels;
}

/* Pixels of two spans that are in both. */
static int32_t overlap(int32_t a, int32_t a_length, int32_t b, int32_t b_length)
{
    const int32_t from = a > b ? a : b, end = a + a_length < b + b_length ? a + a_length : b + b_length;

    return end > from ? end - from : 0;
}

static bool covers(const struct cvy_box *crop, const struct cvy_box *box, float min_covered)
{
    const float area = (float)box->width * (float)box->height;
    const float common = (float)overlap(crop->x, crop->width, box->x, box->width) *
                         (float)overlap(crop->y, crop->height, box->y, box->height);

    return area >= 1 && common / area >= min_covered;
}

static bool covers_any(const struct cvy_box *crop, float min_covered, int32_t width, int32_t height,
                       const struct cvy_object_box *boxes, size_t box_count)
{
    const struct cvy_box all = {0, 0, width, height};

    if (box_count == 0)
        return covers(crop, &all, min_covered);
    for (size_t i = 0; i < box_count; i++) {
        const struct cvy_box box = to_pixels(&boxes[i], width, height);
        if (covers(crop, &box, min_covered))
            return true;
    }
    return false;
}

struct cvy_box cvy_tensorflow_crop_by(const struct cvy_tensorflow_rules *rules, struct cvy_rng *rng, int32_t width,
                                      int32_t height, const struct cvy_object_box *boxes, size_t box_count)
{
    struct cvy_box crop;

    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        const float ratio = (float)cvy_rng_uniform(rng) * (rules->max_ratio - rules->min_ratio) + rules->min_ratio;
        if (cvy_tensorflow_draw_crop(rng, width, height, rules->min_area, ratio, &crop) &&
            covers_any(&crop, rules->min_covered, width, height, boxes, box_count))
            return crop;
    }
    return (struct cvy_box){0, 0, width, height};
}

struct cvy_box cvy_tensorflow_crop(struct cvy_rng *rng, int32_t width, int32_t height, float min_area,
                                   const struct cvy_object_box *boxes, size_t box_count)
{
    const struct cvy_tensorflow_rules rules = {min_area, 0.75F, 1.33F, 0.1F};

    return cvy_tensorflow_crop_by(&rules, rng, width, height, boxes, box_count);
}

/* ---- the evaluation crop ---- */

cvy_status cvy_tensorflow_center(int32_t resize, int32_t size, int32_t width, int32_t height, const char *name,
                                 struct cvy_tensorflow_center *center)
{
    const float scale = (float)resize / (float)(width < height ? width : height);
    const float wide = (float)width * scale, high = (float)height * scale;

    if (wide > (float)(INT32_MAX / 4) || high > (float)(INT32_MAX / 4))
        return cvy_fail(CVY_BAD_DATA, "%s (%d x %d pixels) is too elongated to be resized to %d", cvy_quote(name),
                        width, height, resize);
    /* Rounding down may lose a pixel of the shorter side, which TensorFlow cannot crop from where resize is size. */
    center->full_width = (int32_t)wide > size ? (int32_t)wide : size;
    center->full_height = (int32_t)high > size ? (int32_t)high : size;
    center->x = (center->full_width - size) / 2;
    center->y = (center->full_height - size) / 2;
    return CVY_OK;
}

/* ---- the resize ---- */

/* Where a position of the result reads: between pixels `low` and `high`, the share `weight` of the second. */
struct tap {
    int32_t low, high;
    float weight;
};

static struct tap tap_of(int32_t in, int32_t out, int32_t position)
{
    const float at = (float)position * ((float)in / (float)out);
    struct tap tap = {.low = (int32_t)at};

    /* Only rounding could come to the end. */
    tap.low = tap.low < in ? tap.low : in - 1;
    tap.high = tap.low + 1 < in ? tap.low + 1 : in - 1;
    tap.weight = at - (float)tap.low;
    return tap;
}

/* One axis of the source rectangle. */
static void need_axis(int32_t in, int32_t out, int32_t from, int32_t count, int32_t *need_from, int32_t *need_count)
{
    *need_from = tap_of(in, out, from).low;
    *need_count = tap_of(in, out, from + count - 1).high + 1 - *need_from;
}

struct cvy_box cvy_tensorflow_resize_need(int32_t width, int32_t height, int32_t full_width, int32_t full_height,
                                          const struct cvy_box *window)
{
    struct cvy_box need;

    need_axis(width, full_width, window->x, window->width, &need.x, &need.width);
    need_axis(height, full_height, window->y, window->height, &need.y, &need.height);
    return need;
}

static inline float mix(float a, float b, float weight)
{
    return a + (b - a) * weight;
}

cvy_status cvy_tensorflow_resize(struct cvy_resizer *resizer, const uint8_t *part, size_t stride, int32_t width,
                                 int32_t height, int32_t full_width, int32_t full_height, const struct cvy_box *window,
                                 bool flip, float *out)
{
    const struct cvy_box need = cvy_tensorflow_resize_need(width, height, full_width, full_height, window);
    struct tap *columns;

    CVY_TRY(cvy_resizer_reserve(resizer, (size_t)window->width * sizeof *columns));
    columns = resizer->buffer;
    for (int32_t x = 0; x < window->width; x++) { /* in bytes of a row of the part */
        columns[x] = tap_of(width, full_width, window->x + x);
        columns[x].low = 3 * (flip ? width - 1 - columns[x].low : columns[x].low - need.x);
        columns[x].high = 3 * (flip ? width - 1 - columns[x].high : columns[x].high - need.x);
    }
    for (int32_t y = 0; y < window->height; y++) {
        const struct tap row = tap_of(height, full_height, window->y + y);
        const uint8_t *top = part + (size_t)(row.low - need.y) * stride;
        const uint8_t *bottom = part + (size_t)(row.high - need.y) * stride;
        for (int32_t x = 0; x < window->width; x++, out += 3) {
            const struct tap column = columns[x];
            for (int c = 0; c < 3; c++)
                out[c] = mix(mix(top[column.low + c], top[column.high + c], column.weight),
                             mix(bottom[column.low + c], bottom[column.high + c], column.weight), row.weight);
        }
    }
    return CVY_OK;
}
