#include "infer/pixels.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "data/image/api.h"

/* The bytes of a pixel, and where in it red, green and blue are. By format. */
static const struct layout {
    size_t bytes, red, green, blue;
} layouts[] = {
    [CVY_PIXELS_RGB] = {3, 0, 1, 2},  [CVY_PIXELS_BGR] = {3, 2, 1, 0},  [CVY_PIXELS_RGBA] = {4, 0, 1, 2},
    [CVY_PIXELS_BGRA] = {4, 2, 1, 0}, [CVY_PIXELS_GREY] = {1, 0, 0, 0},
};

void cvy_pixel_bytes_release(struct cvy_pixel_bytes *buffer)
{
    cvy_free(buffer->bytes);
    *buffer = (struct cvy_pixel_bytes){0};
}

static cvy_status check(const struct cvy_pixels *pixels, const char *name)
{
    if (!pixels->data)
        return cvy_fail(CVY_USAGE, "%s has no pixels", cvy_quote(name));
    if ((size_t)pixels->format >= sizeof layouts / sizeof layouts[0])
        return cvy_fail(CVY_USAGE, "%s: there is no format of pixels %d", cvy_quote(name), (int)pixels->format);
    if (pixels->width < 1 || pixels->height < 1 || (int64_t)pixels->width * pixels->height > CVY_MAX_PIXELS)
        return cvy_fail(CVY_USAGE, "%s: an image cannot have %d x %d pixels", cvy_quote(name), pixels->width,
                        pixels->height);
    const size_t row = (size_t)pixels->width * layouts[pixels->format].bytes;
    if (pixels->stride > 0 && pixels->stride < row)
        return cvy_fail(CVY_USAGE, "%s: a row of %zu bytes is longer than the stride of %zu", cvy_quote(name), row,
                        pixels->stride);
    return CVY_OK;
}

cvy_status cvy_pixels_encode(const struct cvy_pixels *given, const char *name, struct cvy_pixel_bytes *buffer,
                             struct cvy_encoded *encoded)
{
    struct cvy_pixels known = CVY_SIZED(cvy_pixels);
    const struct cvy_pixels *pixels = &known;
    char header[CVY_PPM_HEADER];

    CVY_TRY(cvy_sized_take(&known, sizeof known, given, "cvy_pixels"));
    CVY_TRY(check(pixels, name));
    const struct layout *layout = &layouts[pixels->format];
    const size_t width = (size_t)pixels->width, height = (size_t)pixels->height;
    const size_t stride = pixels->stride > 0 ? pixels->stride : width * layout->bytes;
    const size_t start = cvy_ppm_header(pixels->width, pixels->height, header);
    const size_t size = start + width * height * 3;

    if (size > buffer->capacity) {
        uint8_t *bytes = cvy_realloc(buffer->bytes, size, 1);
        if (!bytes)
            return cvy_fail_memory(size, "pixels");
        buffer->bytes = bytes;
        buffer->capacity = size;
    }
    memcpy(buffer->bytes, header, start);
    uint8_t *to = buffer->bytes + start;
    for (size_t y = 0; y < height; y++) {
        const uint8_t *from = (const uint8_t *)pixels->data + y * stride;
        for (size_t x = 0; x < width; x++, from += layout->bytes, to += 3) {
            to[0] = from[layout->red];
            to[1] = from[layout->green];
            to[2] = from[layout->blue];
        }
    }
    *encoded = (struct cvy_encoded){.name = name, .data = buffer->bytes, .size = size};
    return CVY_OK;
}
