/* The arithmetic is DALI's: float, where torchvision's is double. */
#include "data/transform/dali.h"

#include <math.h>
#include <stdbool.h>

#include "base/error.h"

static const float min_ratio = 3.0F / 4.0F;
enum { ATTEMPTS = 100 };

static int32_t at_least_one(float length)
{
    return length < 1 ? 1 : (int32_t)length;
}

/* The widest crop of full height that the ratios allow, and the tallest of full width. */
static int32_t widest(float max_ratio, int32_t height)
{
    return at_least_one((float)height * max_ratio);
}

static int32_t highest(int32_t width)
{
    return at_least_one((float)width / min_ratio);
}

static bool attempt(struct cvy_rng *rng, float min_area, float max_ratio, int32_t width, int32_t height,
                    struct cvy_box *box)
{
    const float area = (float)width * (float)height;
    const float target = (float)cvy_rng_range(rng, (double)min_area, 1) * area;
    const float ratio = expf((float)cvy_rng_range(rng, log((double)min_ratio), log((double)max_ratio)));

    box->width = at_least_one(roundf(sqrtf(target * ratio)));
    box->height = at_least_one(roundf(sqrtf(target / ratio)));
    const float rounded = (float)box->width / (float)box->height;
    return box->width <= width && box->height <= height && rounded >= min_ratio && rounded <= max_ratio;
}

/* The largest crop whose ratio is allowed, at the nearest. */
static void fall_back(float max_ratio, int32_t width, int32_t height, struct cvy_box *box)
{
    const float ratio = (float)width / (float)height;

    box->width = ratio > max_ratio ? widest(max_ratio, height) : width;
    box->height = ratio < min_ratio ? highest(width) : height;
}

struct cvy_box cvy_dali_crop(struct cvy_rng *rng, float min_area, float max_ratio, int32_t width, int32_t height)
{
    const float min = min_area * (float)width * (float)height;
    struct cvy_box box = {0};
    bool found = (float)height * (float)widest(max_ratio, height) >= min && (float)width * (float)highest(width) >= min;

    if (found) {
        found = false;
        for (int i = 0; i < ATTEMPTS && !found; i++)
            found = attempt(rng, min_area, max_ratio, width, height, &box);
    }
    if (!found)
        fall_back(max_ratio, width, height, &box);
    box.x = (int32_t)cvy_rng_below(rng, (uint32_t)(width - box.width) + 1);
    box.y = (int32_t)cvy_rng_below(rng, (uint32_t)(height - box.height) + 1);
    return box;
}

/* One axis of the crop: `size` of `full` positions; padded where there are fewer, which DALI does not do. */
static void center_axis(int32_t full, int32_t size, int32_t *from, int32_t *count, int32_t *at)
{
    *from = full > size ? (int32_t)roundf(0.5F * (float)(full - size)) : 0;
    *count = full < size ? full : size;
    *at = full < size ? (size - full) / 2 : 0;
}

struct cvy_view cvy_dali_view(int32_t resize, int32_t width, int32_t height, const struct cvy_center_crop *crop)
{
    const double scale = (double)(width < height ? width : height) / resize;
    struct cvy_view view = {.width = crop->full_width * scale, .height = crop->full_height * scale};

    view.x = (width - view.width) / 2;
    view.y = (height - view.height) / 2;
    return view;
}

cvy_status cvy_dali_center_crop(int32_t resize, int32_t size, int32_t width, int32_t height, const char *name,
                                struct cvy_center_crop *crop)
{
    const int32_t shorter = width < height ? width : height, longer = width < height ? height : width;
    const double full = round((double)((int64_t)resize * longer) / shorter);

    if (full > INT32_MAX / 4)
        return cvy_fail(CVY_BAD_DATA, "%s (%d x %d pixels) is too elongated to be resized to %d", cvy_quote(name),
                        width, height, resize);
    *crop = (struct cvy_center_crop){.full_width = width <= height ? resize : (int32_t)full,
                                     .full_height = width <= height ? (int32_t)full : resize};
    center_axis(crop->full_width, size, &crop->window.x, &crop->window.width, &crop->at_x);
    center_axis(crop->full_height, size, &crop->window.y, &crop->window.height, &crop->at_y);
    return CVY_OK;
}
