/* PNG through libpng: 8-bit RGB. */
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/image/codec.h"

enum { COMPRESSION = 6 };

struct encoder {
    png_structp write;
    png_infop info;
    jmp_buf jump;
    bool out_of_memory;
    char message[128];
    uint8_t *data;
    size_t size, capacity;
};

static void on_error(png_structp write, png_const_charp text)
{
    struct encoder *encoder = png_get_error_ptr(write);

    snprintf(encoder->message, sizeof encoder->message, "%s", text);
    longjmp(encoder->jump, 1);
}

static void on_warning(png_structp write, png_const_charp text)
{
    (void)write;
    (void)text;
}

static void on_write(png_structp write, png_bytep bytes, size_t count)
{
    struct encoder *encoder = png_get_io_ptr(write);

    if (count > encoder->capacity - encoder->size) {
        const size_t capacity = (encoder->capacity + count) * 2;
        uint8_t *data = realloc(encoder->data, capacity);
        if (!data) {
            encoder->out_of_memory = true;
            png_error(write, "out of memory");
        }
        encoder->data = data;
        encoder->capacity = capacity;
    }
    memcpy(encoder->data + encoder->size, bytes, count);
    encoder->size += count;
}

static void on_flush(png_structp write)
{
    (void)write;
}

/* False when libpng gave up; the encoder says why. */
static bool encode(struct encoder *encoder, const uint8_t *pixels, int32_t width, int32_t height)
{
    if (setjmp(encoder->jump) != 0)
        return false;
    encoder->write = png_create_write_struct(PNG_LIBPNG_VER_STRING, encoder, on_error, on_warning);
    encoder->info = encoder->write ? png_create_info_struct(encoder->write) : NULL;
    if (!encoder->info) {
        encoder->out_of_memory = true;
        return false;
    }
    png_set_user_limits(encoder->write, 0x7FFFFFFF, 0x7FFFFFFF);
    png_set_write_fn(encoder->write, encoder, on_write, on_flush);
    png_set_compression_level(encoder->write, COMPRESSION);
    png_set_IHDR(encoder->write, encoder->info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(encoder->write, encoder->info);
    for (int32_t y = 0; y < height; y++)
        png_write_row(encoder->write, pixels + (size_t)y * (size_t)width * 3);
    png_write_end(encoder->write, NULL);
    return true;
}

cvy_status cvy_png_encode(const uint8_t *pixels, int32_t width, int32_t height, uint8_t **data, size_t *size)
{
    struct encoder encoder = {0};
    const bool done = encode(&encoder, pixels, width, height);

    png_destroy_write_struct(&encoder.write, &encoder.info);
    *data = NULL;
    *size = 0;
    if (!done) {
        free(encoder.data);
        return encoder.out_of_memory ? cvy_fail(CVY_NO_MEMORY, "out of memory while encoding a PNG")
                                     : cvy_fail(CVY_FAILED, "a PNG cannot be encoded: %s", encoder.message);
    }
    *data = encoder.data;
    *size = encoder.size;
    return CVY_OK;
}
