#include "data/image/picture.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/image/codec.h"

enum { JPEG_QUALITY = 92 };

void cvy_picture_release(struct cvy_picture *picture)
{
    cvy_free(picture->pixels);
    *picture = (struct cvy_picture){0};
}

/* 2: mirrored, 3: turned by 180 degrees, 4: flipped top to bottom; 5 to 8: rows and columns swapped, then mirrored in
 * neither, one, both or the other direction. */
cvy_status cvy_picture_turn(struct cvy_decoder *decoder, int32_t width, int32_t height, int orientation,
                            struct cvy_picture *picture)
{
    const bool swap = orientation >= 5;
    /* Where shown pixel (x, y) comes from, before the swap: mirrored columns, mirrored rows. */
    const bool mirror_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const bool mirror_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const uint8_t *pixels;
    size_t stride;

    *picture = (struct cvy_picture){
        .width = swap ? height : width,
        .height = swap ? width : height,
        .format = cvy_decoder_format(decoder),
    };
    CVY_TRY(cvy_decoder_read(decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride));
    picture->pixels = cvy_calloc((size_t)width * 3, (size_t)height);
    if (!picture->pixels)
        return cvy_fail_memory((size_t)width * 3 * (size_t)height, "turning an image");
    uint8_t *out = picture->pixels;
    for (int32_t y = 0; y < picture->height; y++)
        for (int32_t x = 0; x < picture->width; x++, out += 3) {
            int32_t from_x = swap ? y : x, from_y = swap ? x : y;
            if (mirror_x)
                from_x = width - 1 - from_x;
            if (mirror_y)
                from_y = height - 1 - from_y;
            memcpy(out, pixels + (size_t)from_y * stride + (size_t)from_x * 3, 3);
        }
    return CVY_OK;
}

cvy_status cvy_picture_decode(struct cvy_decoder *decoder, const char *name, const void *data, size_t size,
                              bool exif_orientation, struct cvy_picture *picture)
{
    int32_t width, height;

    *picture = (struct cvy_picture){0};
    CVY_TRY(cvy_decoder_start(decoder, name, data, size, &width, &height));
    return cvy_picture_turn(decoder, width, height, exif_orientation ? cvy_decoder_orientation(decoder) : 1, picture);
}

cvy_status cvy_picture_write(const struct cvy_picture *picture, const char *path)
{
    const char *slash = strrchr(path, '/');
    uint8_t *data = NULL;
    char *folder = NULL;
    size_t size = 0;
    cvy_status status;

    if (slash && slash != path) {
        folder = cvy_strdup(path);
        if (!folder)
            return cvy_fail_memory(strlen(path), "a file name");
        folder[slash - path] = '\0';
        CVY_GOTO(cvy_make_directories(folder));
    }
    if (picture->format == CVY_IMAGE_JPEG)
        CVY_GOTO(cvy_jpeg_encode(picture->pixels, picture->width, picture->height, JPEG_QUALITY, &data, &size));
    else
        CVY_GOTO(cvy_png_encode(picture->pixels, picture->width, picture->height, &data, &size));
    CVY_GOTO(cvy_file_replace(path, data, size));
fail:
    free(data); /* the encoders' own */
    cvy_free(folder);
    return status;
}
