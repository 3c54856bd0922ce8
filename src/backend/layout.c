/* Layouts; the CUDA module has a copy of this file. */
#include <string.h>

#include "backend/backend.h"

bool cvy_layout_equal(const struct cvy_layout *a, const struct cvy_layout *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind != CVY_LAYOUT_OPAQUE)
        return true;
    return a->detail_size == b->detail_size && memcmp(a->detail, b->detail, a->detail_size) == 0;
}

const char *cvy_images_name(enum cvy_images images)
{
    static const char *const names[] = {"device", "blocked", "nhwc"};

    return names[images];
}

const char *cvy_layout_name(const struct cvy_layout *layout)
{
    static const char *const names[] = {"plain", "nhwc", "nChw16c", "nChw8c", "nhwc4", "nhwc8", "opaque"};
    return names[layout->kind];
}
