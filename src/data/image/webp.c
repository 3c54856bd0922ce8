/* WebP by libwebp, which is loaded when the first image of that kind comes: few data sets have one. */
#include <pthread.h>
#include <string.h>

#include <webp/decode.h>

#include "base/error.h"
#include "base/library.h"
#include "base/memory.h"
#include "data/image/codec.h"

enum {
    RIFF_HEADER = 12, /* "RIFF", size, "WEBP" */
    FLAGS_AT = 20,    /* of a chunk VP8X, which comes first */
    ANIMATED = 0x02,
    /* An image of one colour takes next to nothing. One of more pixels than any camera's in so few bytes is a bomb. */
    LARGE = 1 << 24,
    MAX_PIXELS_PER_BYTE = 4096
};

static struct {
    int (*get_info)(const uint8_t *data, size_t size, int *width, int *height);
    uint8_t *(*decode)(const uint8_t *data, size_t size, uint8_t *to, size_t to_bytes, int stride);
} webp;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char reason[CVY_LIBRARY_REASON]; /* "": it is loaded */

static void load(void)
{
    static const char *const libraries[] = {"libwebp.so.7", NULL};
    static const struct cvy_library_function functions[] = {{"WebPGetInfo", &webp.get_info},
                                                            {"WebPDecodeRGBInto", &webp.decode}};

    cvy_library_load(libraries, functions, sizeof functions / sizeof *functions, reason);
}

cvy_status cvy_webp_start(struct cvy_codec_job *job)
{
    const uint64_t bytes = 8 + (uint64_t)cvy_image_uint(job->data + 4, 4, false);
    int width, height;

    pthread_once(&once, load);
    if (reason[0])
        return cvy_fail(CVY_BAD_DATA, "%s is a WebP image, which takes libwebp (Debian: apt install libwebp7): %s",
                        cvy_quote(job->name), reason);
    if (bytes > job->size)
        return cvy_fail(CVY_BAD_DATA, "%s is truncated: %zu bytes of %llu", cvy_quote(job->name), job->size,
                        (unsigned long long)bytes);
    if (job->size > FLAGS_AT && memcmp(job->data + RIFF_HEADER, "VP8X", 4) == 0 && job->data[FLAGS_AT] & ANIMATED)
        return cvy_fail(CVY_BAD_DATA, "%s is an animated WebP: convert one of its pictures", cvy_quote(job->name));
    if (!webp.get_info(job->data, job->size, &width, &height) || width < 1 || height < 1)
        return cvy_fail(CVY_BAD_DATA, "%s is a WebP image with a damaged header", cvy_quote(job->name));
    job->width = width;
    job->height = height;
    if ((int64_t)width * height > LARGE)
        job->min_size = (size_t)((int64_t)width * height / MAX_PIXELS_PER_BYTE);
    return CVY_OK;
}

cvy_status cvy_webp_read(struct cvy_codec_job *job, const struct cvy_box *need, const uint8_t **pixels, size_t *stride)
{
    size_t bytes;

    *stride = (size_t)job->width * 3;
    if (!cvy_size_mul(*stride, (size_t)job->height, &bytes))
        return cvy_fail(CVY_BAD_DATA, "%s is too large", cvy_quote(job->name));
    CVY_TRY(cvy_pixel_buffer_reserve(&job->pixels, bytes + 64));
    if (!webp.decode(job->data, job->size, job->pixels.data, bytes, (int)*stride))
        return cvy_fail(CVY_BAD_DATA, "%s is a damaged WebP image", cvy_quote(job->name));
    *pixels = job->pixels.data + (size_t)need->y * *stride + (size_t)need->x * 3;
    return CVY_OK;
}
