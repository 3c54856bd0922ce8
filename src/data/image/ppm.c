/* Binary PPM ("P6"), 8 bits: decoded pixels as a file, which packed data sets hold with --raw. Reading copies nothing.
 */
#include <stdio.h>

#include "base/error.h"
#include "data/image/codec.h"

/* Skip white space and comments; false at the end. */
static bool skip_space(const struct cvy_codec_job *job, size_t *at)
{
    for (; *at < job->size; ++*at) {
        const uint8_t c = job->data[*at];
        if (c == '#')
            while (*at < job->size && job->data[*at] != '\n')
                ++*at;
        else if (c != ' ' && c != '\t' && c != '\r' && c != '\n')
            return true;
    }
    return false;
}

static bool read_number(const struct cvy_codec_job *job, size_t *at, int32_t *number)
{
    int64_t value = 0;
    size_t from;

    if (!skip_space(job, at))
        return false;
    for (from = *at; *at < job->size && job->data[*at] >= '0' && job->data[*at] <= '9'; ++*at) {
        value = value * 10 + job->data[*at] - '0';
        if (value > INT32_MAX)
            return false;
    }
    *number = (int32_t)value;
    return *at > from && value > 0;
}

cvy_status cvy_ppm_start(struct cvy_codec_job *job, size_t *pixels)
{
    size_t at = 2;
    int32_t width, height, highest;

    if (!read_number(job, &at, &width) || !read_number(job, &at, &height) || !read_number(job, &at, &highest) ||
        highest != 255 || at == job->size)
        return cvy_fail(CVY_BAD_DATA, "%s is a PPM image with a header that is not understood", cvy_quote(job->name));
    at++;                                                      /* one white space */
    const uint64_t bytes = (uint64_t)width * (uint64_t)height; /* of 31 bits each: no overflow, nor with 3 below */
    if (bytes > CVY_MAX_PIXELS || bytes * 3 <= job->size - at) {
        job->width = width;
        job->height = height;
        *pixels = at;
        return CVY_OK; /* too many pixels: the caller says so */
    }
    return cvy_fail(CVY_BAD_DATA, "%s ends early", cvy_quote(job->name));
}

void cvy_ppm_read(const struct cvy_codec_job *job, size_t from, const struct cvy_box *need, const uint8_t **pixels,
                  size_t *stride)
{
    *stride = (size_t)job->width * 3;
    *pixels = job->data + from + (size_t)need->y * *stride + (size_t)need->x * 3;
}

size_t cvy_ppm_header(int32_t width, int32_t height, char header[CVY_PPM_HEADER])
{
    return (size_t)snprintf(header, CVY_PPM_HEADER, "P6\n%d %d\n255\n", (int)width, (int)height);
}
