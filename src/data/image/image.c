#include "data/image/image.h"

#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"
#include "data/image/codec.h"

struct cvy_decoder {
    struct cvy_jpeg *jpeg;
    struct cvy_png *png;
    struct cvy_heif *heif;
    struct cvy_bmp bmp;
    struct cvy_gif gif;
    struct cvy_codec_job job;
    enum cvy_image_format format;
    size_t ppm_pixels; /* where those of a PPM begin */
    bool started;
    int32_t shorter_side;
    double seconds;
};

cvy_status cvy_decoder_new(struct cvy_decoder **out)
{
    cvy_status status = CVY_OK;
    struct cvy_decoder *decoder = cvy_calloc(1, sizeof *decoder);
    *out = NULL;
    if (!decoder)
        return cvy_fail_memory(sizeof *decoder, "an image decoder");
    CVY_GOTO(cvy_jpeg_new(&decoder->jpeg));
    CVY_GOTO(cvy_png_new(&decoder->png));
    CVY_GOTO(cvy_heif_new(&decoder->heif));
    *out = decoder;
    return CVY_OK;
fail:
    cvy_decoder_free(decoder);
    return status;
}

void cvy_decoder_free(struct cvy_decoder *decoder)
{
    if (!decoder)
        return;
    cvy_jpeg_free(decoder->jpeg);
    cvy_png_free(decoder->png);
    cvy_heif_free(decoder->heif);
    cvy_pixel_buffer_release(&decoder->job.pixels);
    cvy_pixel_buffer_release(&decoder->job.rows);
    cvy_free(decoder);
}

void cvy_decoder_set_speed(struct cvy_decoder *decoder, enum cvy_jpeg_speed speed)
{
    decoder->job.speed = speed;
}

bool cvy_is_image_ending(const char *ending)
{
    static const char *const endings[] = {"jpg",  "jpeg", "jfif", "png",  "webp", "heic",
                                          "heif", "avif", "tif",  "tiff", "bmp",  "gif"};

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (strcasecmp(ending, endings[i]) == 0)
            return true;
    }
    return false;
}

static const uint8_t png_signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

static cvy_status find_format(const struct cvy_codec_job *job, enum cvy_image_format *format)
{
    if (job->size == 0)
        return cvy_fail(CVY_BAD_DATA, "%s is an empty file", cvy_quote(job->name));
    if (job->size >= 3 && job->data[0] == 0xFF && job->data[1] == 0xD8 && job->data[2] == 0xFF)
        *format = CVY_IMAGE_JPEG;
    else if (job->size >= sizeof png_signature && memcmp(job->data, png_signature, sizeof png_signature) == 0)
        *format = CVY_IMAGE_PNG;
    else if (job->size >= 16 && memcmp(job->data, "RIFF", 4) == 0 && memcmp(job->data + 8, "WEBP", 4) == 0)
        *format = CVY_IMAGE_WEBP;
    else if (cvy_is_heif(job->data, job->size))
        *format = CVY_IMAGE_HEIF;
    else if (cvy_is_tiff(job->data, job->size))
        *format = CVY_IMAGE_TIFF;
    else if (job->size >= 6 && (memcmp(job->data, "GIF87a", 6) == 0 || memcmp(job->data, "GIF89a", 6) == 0))
        *format = CVY_IMAGE_GIF;
    else if (job->size >= 18 && memcmp(job->data, "BM", 2) == 0)
        *format = CVY_IMAGE_BMP;
    else if (job->size >= 3 && memcmp(job->data, "P6", 2) == 0 && strchr(" \t\r\n#", job->data[2]) && job->data[2])
        *format = CVY_IMAGE_PPM;
    else
        return cvy_fail(CVY_BAD_DATA,
                        "%s is no image of a kind that is read (JPEG, PNG, WebP, HEIC, AVIF, TIFF, BMP, GIF or PPM)",
                        cvy_quote(job->name));
    return CVY_OK;
}

static cvy_status start_format(struct cvy_decoder *decoder)
{
    struct cvy_codec_job *job = &decoder->job;

    switch (decoder->format) {
    case CVY_IMAGE_JPEG:
        return cvy_jpeg_start(decoder->jpeg, job);
    case CVY_IMAGE_PNG:
        return cvy_png_start(decoder->png, job);
    case CVY_IMAGE_WEBP:
        return cvy_webp_start(job);
    case CVY_IMAGE_HEIF:
        return cvy_heif_start(decoder->heif, job);
    case CVY_IMAGE_TIFF:
        return cvy_tiff_start(job);
    case CVY_IMAGE_BMP:
        return cvy_bmp_start(job, &decoder->bmp);
    case CVY_IMAGE_GIF:
        return cvy_gif_start(job, &decoder->gif);
    case CVY_IMAGE_PPM:
        break;
    }
    return cvy_ppm_start(job, &decoder->ppm_pixels);
}

static cvy_status start(struct cvy_decoder *decoder, const char *name, const void *data, size_t size, int32_t *width,
                        int32_t *height)
{
    struct cvy_codec_job *job = &decoder->job;

    decoder->started = false;
    job->name = name;
    job->data = data;
    job->size = size;
    job->width = job->height = 0;
    job->min_size = 0;
    CVY_TRY(find_format(job, &decoder->format));
    CVY_TRY(start_format(decoder));
    if ((int64_t)job->width * job->height > CVY_MAX_PIXELS)
        return cvy_fail(CVY_BAD_DATA, "%s has %d x %d pixels, more than the %lld allowed", cvy_quote(name), job->width,
                        job->height, (long long)CVY_MAX_PIXELS);
    if (job->min_size > size)
        return cvy_fail(CVY_BAD_DATA, "%s is truncated: %d x %d pixels take more than its %zu bytes", cvy_quote(name),
                        job->width, job->height, size);
    *width = job->width;
    *height = job->height;
    decoder->shorter_side = job->width < job->height ? job->width : job->height;
    decoder->started = true;
    return CVY_OK;
}

cvy_status cvy_decoder_start(struct cvy_decoder *decoder, const char *name, const void *data, size_t size,
                             int32_t *width, int32_t *height)
{
    const double before = cvy_clock();
    const cvy_status status = start(decoder, name, data, size, width, height);

    decoder->seconds += cvy_clock() - before;
    return status;
}

bool cvy_decoder_can_scale(const struct cvy_decoder *decoder)
{
    return decoder->started && decoder->format == CVY_IMAGE_JPEG && cvy_jpeg_can_scale(decoder->jpeg);
}

cvy_status cvy_decoder_scale(struct cvy_decoder *decoder, int32_t eighths, int32_t *width, int32_t *height)
{
    const bool halves = eighths == 1 || eighths == 2 || eighths == 4 || eighths == 8;

    if (!cvy_decoder_can_scale(decoder) || !halves)
        return cvy_fail(CVY_FAILED, "no image was started that can be decoded at %d/8 of its size", eighths);
    cvy_jpeg_scale(decoder->jpeg, &decoder->job, eighths);
    *width = decoder->job.width;
    *height = decoder->job.height;
    return CVY_OK;
}

static cvy_status read_part(struct cvy_decoder *decoder, const struct cvy_box *need, const uint8_t **pixels,
                            size_t *stride)
{
    struct cvy_codec_job *job = &decoder->job;

    if (!decoder->started)
        return cvy_fail(CVY_FAILED, "no image was started, or it was read already");
    if (need->x < 0 || need->y < 0 || need->width < 1 || need->height < 1 || need->width > job->width - need->x ||
        need->height > job->height - need->y)
        return cvy_fail(CVY_FAILED, "the rectangle %d,%d %d x %d is not inside %s (%d x %d)", need->x, need->y,
                        need->width, need->height, cvy_quote(job->name), job->width, job->height);
    decoder->started = false;
    switch (decoder->format) {
    case CVY_IMAGE_JPEG:
        return cvy_jpeg_read(decoder->jpeg, job, need, pixels, stride);
    case CVY_IMAGE_PNG:
        return cvy_png_read(decoder->png, job, need, pixels, stride);
    case CVY_IMAGE_WEBP:
        return cvy_webp_read(job, need, pixels, stride);
    case CVY_IMAGE_HEIF:
        return cvy_heif_read(decoder->heif, job, need, pixels, stride);
    case CVY_IMAGE_TIFF:
        return cvy_tiff_read(job, need, pixels, stride);
    case CVY_IMAGE_BMP:
        return cvy_bmp_read(job, &decoder->bmp, need, pixels, stride);
    case CVY_IMAGE_GIF:
        return cvy_gif_read(job, &decoder->gif, need, pixels, stride);
    case CVY_IMAGE_PPM:
        break;
    }
    cvy_ppm_read(job, decoder->ppm_pixels, need, pixels, stride);
    return CVY_OK;
}

cvy_status cvy_decoder_read(struct cvy_decoder *decoder, const struct cvy_box *need, const uint8_t **pixels,
                            size_t *stride)
{
    const double before = cvy_clock();
    const cvy_status status = read_part(decoder, need, pixels, stride);

    decoder->seconds += cvy_clock() - before;
    return status;
}

int32_t cvy_decoder_shorter_side(const struct cvy_decoder *decoder)
{
    return decoder->shorter_side;
}

double cvy_decoder_seconds(const struct cvy_decoder *decoder)
{
    return decoder->seconds;
}

enum cvy_image_format cvy_decoder_format(const struct cvy_decoder *decoder)
{
    return decoder->format;
}

bool cvy_decoder_is_plain_jpeg(const struct cvy_decoder *decoder)
{
    return decoder->format == CVY_IMAGE_JPEG && cvy_jpeg_components(decoder->jpeg) != 4;
}

bool cvy_decoder_is_usual_jpeg(const struct cvy_decoder *decoder)
{
    return decoder->started && decoder->format == CVY_IMAGE_JPEG && cvy_jpeg_is_usual(decoder->jpeg);
}

int cvy_decoder_orientation(const struct cvy_decoder *decoder)
{
    return cvy_exif_orientation(decoder->format, decoder->job.data, decoder->job.size);
}
