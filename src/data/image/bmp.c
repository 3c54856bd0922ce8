/* Windows bitmaps without compression: 1, 4 and 8 bits with a palette, 16, 24 and 32 bits. */
#include <string.h>

#include "base/error.h"
#include "data/image/codec.h"

enum { FILE_HEADER = 14, OLD_HEADER = 12, RGB = 0, BITFIELDS = 3, ALPHA_BITFIELDS = 6 };

static uint32_t number(const uint8_t *at, int bytes)
{
    return cvy_image_uint(at, bytes, false);
}

static cvy_status refuse(const struct cvy_codec_job *job, const char *what)
{
    return cvy_fail(CVY_BAD_DATA, "%s is a BMP image %s", cvy_quote(job->name), what);
}

/* The masks of 16 and 32 bits: those of the usual layouts alone are read. */
static bool find_masks(const uint8_t *masks, struct cvy_bmp *bmp)
{
    const uint32_t red = number(masks, 4), green = number(masks + 4, 4), blue = number(masks + 8, 4);

    bmp->six_greens = bmp->bits == 16 && red == 0xF800 && green == 0x7E0 && blue == 0x1F;
    bmp->reversed = bmp->bits == 32 && red == 0xFF && green == 0xFF00 && blue == 0xFF0000;
    return bmp->six_greens || bmp->reversed || (bmp->bits == 16 && red == 0x7C00 && green == 0x3E0 && blue == 0x1F) ||
           (bmp->bits == 32 && red == 0xFF0000 && green == 0xFF00 && blue == 0xFF);
}

static cvy_status find_palette(const struct cvy_codec_job *job, struct cvy_bmp *bmp, size_t at, uint32_t entries,
                               size_t entry_bytes)
{
    const uint32_t most = 1u << bmp->bits;

    if (entries == 0 || entries > most)
        entries = most;
    if (at > job->size || (size_t)entries * entry_bytes > job->size - at)
        return refuse(job, "that is truncated");
    memset(bmp->palette, 0, sizeof bmp->palette); /* what lies beyond is black */
    for (uint32_t i = 0; i < entries; i++)
        for (int c = 0; c < 3; c++)
            bmp->palette[i][c] = job->data[at + i * entry_bytes + 2 - (size_t)c];
    return CVY_OK;
}

cvy_status cvy_bmp_start(struct cvy_codec_job *job, struct cvy_bmp *bmp)
{
    const uint8_t *header = job->data + FILE_HEADER;
    const size_t header_bytes = job->size >= FILE_HEADER + 4 ? number(header, 4) : 0;
    const bool old = header_bytes == OLD_HEADER;
    uint32_t compression = RGB, colours = 0;
    int64_t width, height;

    *bmp = (struct cvy_bmp){0};
    if ((!old && (header_bytes < 40 || header_bytes > 1024)) || header_bytes > job->size - FILE_HEADER)
        return refuse(job, "with a header that is not understood");
    width = old ? (int32_t)number(header + 4, 2) : (int32_t)number(header + 4, 4);
    height = old ? (int32_t)number(header + 6, 2) : (int32_t)number(header + 8, 4);
    bmp->bits = (int)number(header + (old ? 10 : 14), 2);
    if (!old) {
        compression = number(header + 16, 4);
        colours = number(header + 32, 4);
    }
    bmp->top_down = height < 0;
    height = height < 0 ? -height : height;
    if (width < 1 || height < 1 || height > INT32_MAX)
        return refuse(job, "with a damaged header");
    if (compression != RGB && compression != BITFIELDS && compression != ALPHA_BITFIELDS)
        return refuse(job, "with compression: convert it to PNG");
    if (bmp->bits <= 8 ? (bmp->bits != 1 && bmp->bits != 4 && bmp->bits != 8) || compression != RGB
                       : bmp->bits != 24 && (old || (bmp->bits != 16 && bmp->bits != 32)))
        return refuse(job, "with a header that is not understood");
    bmp->pixels = number(job->data + 10, 4);
    if (bmp->bits <= 8)
        CVY_TRY(find_palette(job, bmp, FILE_HEADER + header_bytes, colours, old ? 3 : 4));
    else if (compression != RGB && bmp->bits != 24 && (job->size < FILE_HEADER + 52 || !find_masks(header + 40, bmp)))
        return refuse(job, "of an unusual layout: convert it to PNG");
    bmp->stride = ((uint64_t)width * (uint64_t)bmp->bits + 31) / 32 * 4; /* 31 + 6 bits */
    job->width = (int32_t)width;
    job->height = (int32_t)height;
    if (width * height > CVY_MAX_PIXELS) /* the caller says so */
        return CVY_OK;
    if (bmp->pixels > job->size || bmp->stride * (uint64_t)height > job->size - bmp->pixels)
        return refuse(job, "that is truncated");
    return CVY_OK;
}

/* One pixel of a row. */
static void convert(const struct cvy_bmp *bmp, const uint8_t *row, size_t x, uint8_t *rgb)
{
    if (bmp->bits <= 8) {
        const size_t bit = x * (size_t)bmp->bits;
        const unsigned index = row[bit / 8] >> (8 - (size_t)bmp->bits - bit % 8) & ((1u << bmp->bits) - 1);
        memcpy(rgb, bmp->palette[index], 3);
    } else if (bmp->bits == 16) { /* rounded down, as Pillow does */
        const uint32_t value = number(row + 2 * x, 2);
        rgb[0] = (uint8_t)((value >> (bmp->six_greens ? 11 : 10) & 31) * 255 / 31);
        rgb[1] = (uint8_t)(bmp->six_greens ? (value >> 5 & 63) * 255 / 63 : (value >> 5 & 31) * 255 / 31);
        rgb[2] = (uint8_t)((value & 31) * 255 / 31);
    } else {
        const uint8_t *from = row + x * (size_t)bmp->bits / 8;
        for (int c = 0; c < 3; c++)
            rgb[c] = from[bmp->reversed ? c : 2 - c];
    }
}

cvy_status cvy_bmp_read(struct cvy_codec_job *job, const struct cvy_bmp *bmp, const struct cvy_box *need,
                        const uint8_t **pixels, size_t *stride)
{
    *stride = (size_t)need->width * 3;
    CVY_TRY(cvy_pixel_buffer_reserve(&job->pixels, *stride * (size_t)need->height + 64));
    for (int32_t y = 0; y < need->height; y++) {
        const int32_t line = bmp->top_down ? need->y + y : job->height - 1 - need->y - y;
        const uint8_t *row = job->data + bmp->pixels + (size_t)line * (size_t)bmp->stride;
        for (int32_t x = 0; x < need->width; x++)
            convert(bmp, row, (size_t)(need->x + x), job->pixels.data + (size_t)y * *stride + (size_t)x * 3);
    }
    *pixels = job->pixels.data;
    return CVY_OK;
}
