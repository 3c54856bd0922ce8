#include "data/transform/crop.h"

#include <math.h>

#include "base/error.h"

struct cvy_box cvy_random_resized_crop(struct cvy_rng *rng, double min_area, int32_t width, int32_t height)
{
    const double area = (double)width * height;
    const double low = 3.0 / 4.0, high = 4.0 / 3.0;

    for (int attempt = 0; attempt < 10; attempt++) {
        const double target = area * cvy_rng_range(rng, min_area, 1.0);
        const double ratio = exp(cvy_rng_range(rng, log(low), log(high)));
        const double w = rint(sqrt(target * ratio)), h = rint(sqrt(target / ratio)); /* half to even */
        if (w >= 1 && w <= width && h >= 1 && h <= height) {
            struct cvy_box box = {.width = (int32_t)w, .height = (int32_t)h};
            box.y = (int32_t)cvy_rng_below(rng, (uint32_t)(height - box.height) + 1);
            box.x = (int32_t)cvy_rng_below(rng, (uint32_t)(width - box.width) + 1);
            return box;
        }
    }
    /* The central part with the nearest allowed ratio. */
    struct cvy_box box = {.width = width, .height = height};
    if ((double)width / height < low)
        box.height = (int32_t)rint(width / low);
    else if ((double)width / height > high)
        box.width = (int32_t)rint(height * high);
    box.x = (width - box.width) / 2;
    box.y = (height - box.height) / 2;
    return box;
}

/* One axis of CenterCrop: `size` of `full` positions. */
static void center_axis(int32_t full, int32_t size, int32_t *from, int32_t *count, int32_t *at)
{
    if (full < size) { /* padded with (size - full) / 2 before and the rest after */
        *from = 0;
        *count = full;
        *at = (size - full) / 2;
    } else {
        *from = (int32_t)rint((full - size) / 2.0); /* half to even */
        *count = size;
        *at = 0;
    }
}

cvy_status cvy_center_crop(int32_t resize, int32_t size, int32_t width, int32_t height, const char *name,
                           struct cvy_center_crop *crop)
{
    const int32_t shorter = width < height ? width : height, longer = width < height ? height : width;
    /* The product is exact in double (below 2^53), the quotient rounds as Python's does. */
    const double full = floor((double)((int64_t)resize * longer) / shorter);
    if (full > INT32_MAX / 4)
        return cvy_fail(CVY_BAD_DATA, "%s (%d x %d pixels) is too elongated to be resized to %d", cvy_quote(name),
                        width, height, resize);
    crop->full_width = width <= height ? resize : (int32_t)full;
    crop->full_height = width <= height ? (int32_t)full : resize;
    center_axis(crop->full_width, size, &crop->window.x, &crop->window.width, &crop->at_x);
    center_axis(crop->full_height, size, &crop->window.y, &crop->window.height, &crop->at_y);
    return CVY_OK;
}
