/* The EXIF orientation tag (0x0112). */
#include <string.h>

#include "data/image/codec.h"

uint32_t cvy_image_uint(const uint8_t *p, int bytes, bool big_endian)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)p[i] << 8 * (big_endian ? bytes - 1 - i : i);
    return value;
}

static uint64_t uint64_at(const uint8_t *p, bool big_endian)
{
    const uint64_t first = cvy_image_uint(p, 4, big_endian), second = cvy_image_uint(p + 4, 4, big_endian);

    return big_endian ? first << 32 | second : second << 32 | first;
}

/* `tiff` is a TIFF header with its first directory, as EXIF stores it. */
static int orientation_of_tiff(const uint8_t *tiff, size_t size)
{
    if (size < 8 || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0))
        return 1;
    const bool big_endian = tiff[0] == 'M';
    const size_t directory = cvy_image_uint(tiff + 4, 4, big_endian);
    if (directory > size - 2)
        return 1;
    const uint32_t entries = cvy_image_uint(tiff + directory, 2, big_endian);
    for (uint32_t i = 0; i < entries; i++) {
        const size_t at = directory + 2 + (size_t)12 * i; /* tag, type, count, value: 2 + 2 + 4 + 4 bytes */
        if (at > size - 12 || size < 12)
            return 1;
        if (cvy_image_uint(tiff + at, 2, big_endian) == 0x0112) {
            const uint32_t value = cvy_image_uint(tiff + at + 8, 2, big_endian);
            return value >= 1 && value <= 8 ? (int)value : 1;
        }
    }
    return 1;
}

/* The same with 8 bytes for offsets and counts: BigTIFF, which EXIF does not use. */
static int orientation_of_bigtiff(const uint8_t *tiff, size_t size)
{
    enum { ENTRY = 20 }; /* tag, type, count, value: 2 + 2 + 8 + 8 bytes */
    const bool big_endian = size > 0 && tiff[0] == 'M';
    uint64_t directory, entries;

    if (size < 16 + 8 + ENTRY)
        return 1;
    directory = uint64_at(tiff + 8, big_endian);
    if (directory > size - 8 - ENTRY)
        return 1;
    entries = uint64_at(tiff + directory, big_endian);
    for (uint64_t i = 0; i < entries && i <= (size - 8 - ENTRY - directory) / ENTRY; i++) {
        const uint8_t *entry = tiff + directory + 8 + i * ENTRY;
        const uint32_t value = cvy_image_uint(entry + 12, 2, big_endian);

        if (cvy_image_uint(entry, 2, big_endian) == 0x0112)
            return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

static bool is_bigtiff(const uint8_t *data, size_t size)
{
    return size >= 4 && (memcmp(data, "II+\0", 4) == 0 || memcmp(data, "MM\0+", 4) == 0);
}

static int orientation_of_jpeg(const uint8_t *data, size_t size)
{
    size_t at = 2; /* after SOI */
    while (size >= 4 && at <= size - 4 && data[at] == 0xFF) {
        const uint8_t marker = data[at + 1];
        if (marker == 0xFF) { /* fill byte */
            at++;
            continue;
        }
        if (marker == 0xDA || marker == 0xD9) /* SOS, EOI */
            return 1;
        const size_t length = cvy_image_uint(data + at + 2, 2, true); /* includes its own two bytes */
        if (length < 2 || length > size - at - 2)
            return 1;
        if (marker == 0xE1 && length >= 8 && memcmp(data + at + 4, "Exif\0\0", 6) == 0)
            return orientation_of_tiff(data + at + 10, length - 8);
        at += 2 + length;
    }
    return 1;
}

static int orientation_of_png(const uint8_t *data, size_t size)
{
    size_t at = 8; /* after the signature: length, type, data, CRC */
    while (size >= 12 && at <= size - 12) {
        const size_t length = cvy_image_uint(data + at, 4, true);
        if (length > size - 12 - at)
            return 1;
        if (memcmp(data + at + 4, "eXIf", 4) == 0)
            return orientation_of_tiff(data + at + 8, length);
        at += 12 + length;
    }
    return 1;
}

/* Chunks of a RIFF: name, size, data, a byte more where the size is odd. "Exif" may stand before the TIFF header. */
static int orientation_of_webp(const uint8_t *data, size_t size)
{
    size_t at = 12; /* after "RIFF", size, "WEBP" */
    while (size >= 8 && at <= size - 8) {
        const size_t length = cvy_image_uint(data + at + 4, 4, false);
        const uint8_t *exif = data + at + 8;
        if (length > size - 8 - at)
            return 1;
        if (memcmp(data + at, "EXIF", 4) == 0) {
            const size_t skip = length >= 6 && memcmp(exif, "Exif\0\0", 6) == 0 ? 6 : 0;
            return orientation_of_tiff(exif + skip, length - skip);
        }
        at += 8 + length + length % 2;
    }
    return 1;
}

int cvy_exif_orientation(enum cvy_image_format format, const uint8_t *data, size_t size)
{
    switch (format) {
    case CVY_IMAGE_JPEG:
        return orientation_of_jpeg(data, size);
    case CVY_IMAGE_PNG:
        return orientation_of_png(data, size);
    case CVY_IMAGE_WEBP:
        return orientation_of_webp(data, size);
    case CVY_IMAGE_TIFF:
        return is_bigtiff(data, size) ? orientation_of_bigtiff(data, size) : orientation_of_tiff(data, size);
    case CVY_IMAGE_HEIF: /* turned already */
    case CVY_IMAGE_BMP:
    case CVY_IMAGE_GIF:
    case CVY_IMAGE_PPM:
        break;
    }
    return 1;
}
