/* PNG through libpng, converted to RGB as Pillow's convert("RGB") does: palette through its colours (transparency
 * ignored), alpha dropped, 16-bit colour cut to its high byte, 16-bit grey clipped at 255. */
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "data/image/codec.h"

/* What libpng may allocate at once beyond the size of the file: texts and profiles are of no use here, and their chunks
 * may claim any length. */
enum { MAX_EXTRA = 4 << 20 };
/* deflate makes at most this many bytes of one. */
enum { MAX_INFLATION = 1032 };

struct cvy_png {
    png_structp read;
    png_infop info;
    jmp_buf jump;
    bool ends_early, no_memory;
    size_t max_block; /* bytes */
    char message[128];
    size_t position;
    /* of the image in progress */
    struct cvy_codec_job *job;
    struct cvy_box need;
    int bit_depth, color_type, channels;
    size_t row_bytes; /* of one converted row, at most */
    bool interlaced;
    uint8_t palette[256][3];
};

static void on_error(png_structp read, png_const_charp text)
{
    struct cvy_png *png = png_get_error_ptr(read);
    snprintf(png->message, sizeof png->message, "%s", text);
    longjmp(png->jump, 1);
}

static void on_warning(png_structp read, png_const_charp text)
{
    (void)read;
    (void)text;
}

static void on_read(png_structp read, png_bytep out, size_t count)
{
    struct cvy_png *png = png_get_io_ptr(read);
    if (count > png->job->size - png->position) {
        png->ends_early = true;
        png_error(read, "the data ends early");
    }
    memcpy(out, png->job->data + png->position, count);
    png->position += count;
}

/* libpng reports a failed allocation as an error or a warning like any other: remember that it was one. */
static png_voidp on_malloc(png_structp read, png_alloc_size_t size)
{
    struct cvy_png *png = png_get_mem_ptr(read);
    if (size > png->max_block)
        return NULL;
    void *block = cvy_realloc(NULL, size, 1);
    png->no_memory |= !block;
    return block;
}

static void on_free(png_structp read, png_voidp block)
{
    (void)read;
    cvy_free(block);
}

static cvy_status guarded(struct cvy_png *png, void (*body)(struct cvy_png *))
{
    png->ends_early = png->no_memory = false;
    if (setjmp(png->jump) == 0) {
        body(png);
        return CVY_OK;
    }
    const char *name = cvy_quote(png->job->name);
    if (png->no_memory)
        return cvy_fail(CVY_NO_MEMORY, "out of memory while decoding %s", name);
    if (png->ends_early)
        return cvy_fail(CVY_BAD_DATA, "%s is truncated: the PNG data ends early", name);
    return cvy_fail(CVY_BAD_DATA, "%s cannot be decoded: %s", name, png->message);
}

cvy_status cvy_png_new(struct cvy_png **out)
{
    struct cvy_png *png = cvy_calloc(1, sizeof *png);
    if (!png)
        return cvy_fail_memory(sizeof *png, "a PNG decoder");
    *out = png;
    return CVY_OK;
}

static void destroy(struct cvy_png *png)
{
    if (png->read)
        png_destroy_read_struct(&png->read, &png->info, NULL);
    png->read = NULL;
    png->info = NULL;
}

void cvy_png_free(struct cvy_png *png)
{
    if (!png)
        return;
    destroy(png);
    cvy_free(png);
}

static void read_header(struct cvy_png *png)
{
    png_set_user_limits(png->read, 0x7FFFFFFF, 0x7FFFFFFF); /* CVY_MAX_PIXELS is the limit */
    png_set_read_fn(png->read, png, on_read);
    png_read_info(png->read, png->info);
}

/* Whether the chunk that ends every PNG is there: a file that was cut off has none. */
static bool has_end_chunk(const struct cvy_codec_job *job)
{
    static const uint8_t end[8] = {0, 0, 0, 0, 'I', 'E', 'N', 'D'};
    for (size_t at = job->size; at >= sizeof end; at--)
        if (job->data[at - 1] == 'D' && memcmp(job->data + at - sizeof end, end, sizeof end) == 0)
            return true;
    return false;
}

cvy_status cvy_png_start(struct cvy_png *png, struct cvy_codec_job *job)
{
    destroy(png);
    png->job = job;
    png->position = 0;
    png->max_block = job->size + MAX_EXTRA;
    png->read = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, png, on_error, on_warning, png, on_malloc, on_free);
    png->info = png->read ? png_create_info_struct(png->read) : NULL;
    if (!png->info)
        return cvy_fail(CVY_NO_MEMORY, "out of memory while decoding %s", cvy_quote(job->name));
    CVY_TRY(guarded(png, read_header));
    if (!has_end_chunk(job))
        return cvy_fail(CVY_BAD_DATA, "%s is truncated: the PNG data ends early", cvy_quote(job->name));
    job->width = (int32_t)png_get_image_width(png->read, png->info);
    job->height = (int32_t)png_get_image_height(png->read, png->info);
    png->bit_depth = png_get_bit_depth(png->read, png->info);
    png->color_type = png_get_color_type(png->read, png->info);
    png->interlaced = png_get_interlace_type(png->read, png->info) != PNG_INTERLACE_NONE;
    job->min_size = png_get_rowbytes(png->read, png->info) * (size_t)job->height / MAX_INFLATION;
    return CVY_OK;
}

static void set_conversions(struct cvy_png *png)
{
    const bool plain_grey = png->color_type == PNG_COLOR_TYPE_GRAY;

    if (png->color_type == PNG_COLOR_TYPE_PALETTE) {
        png_colorp colors = NULL;
        int count = 0;
        png_set_packing(png->read);
        (void)png_get_PLTE(png->read, png->info, &colors, &count);
        for (int i = 0; i < 256; i++) { /* an index past the palette is that shade of grey, as in Pillow */
            const bool known = colors && i < count;
            png->palette[i][0] = known ? colors[i].red : (uint8_t)i;
            png->palette[i][1] = known ? colors[i].green : (uint8_t)i;
            png->palette[i][2] = known ? colors[i].blue : (uint8_t)i;
        }
    }
    if (plain_grey && png->bit_depth < 8)
        png_set_expand_gray_1_2_4_to_8(png->read);
    if (!plain_grey && png->bit_depth == 16)
        png_set_strip_16(png->read);
    (void)png_set_interlace_handling(png->read);
    png_read_update_info(png->read, png->info);
    png->channels = png_get_channels(png->read, png->info);
}

static void row_to_rgb(const struct cvy_png *png, const uint8_t *in, uint8_t *out)
{
    const struct cvy_box *need = &png->need;
    const bool grey = png->color_type == PNG_COLOR_TYPE_GRAY || png->color_type == PNG_COLOR_TYPE_GRAY_ALPHA;
    const bool wide = png->color_type == PNG_COLOR_TYPE_GRAY && png->bit_depth == 16;
    const size_t step = wide ? 2 : (size_t)png->channels;

    in += step * (size_t)need->x;
    for (int32_t i = 0; i < need->width; i++, in += step, out += 3) {
        if (png->color_type == PNG_COLOR_TYPE_PALETTE)
            memcpy(out, png->palette[in[0]], 3);
        else if (wide)
            out[0] = out[1] = out[2] = in[0] ? 255 : in[1];
        else if (grey)
            out[0] = out[1] = out[2] = in[0];
        else
            memcpy(out, in, 3);
    }
}

static void read_plain(struct cvy_png *png)
{
    const struct cvy_box *need = &png->need;
    uint8_t *row = png->job->rows.data;

    set_conversions(png);
    for (int32_t y = 0; y < need->y + need->height; y++) {
        png_read_row(png->read, row, NULL);
        if (y >= need->y)
            row_to_rgb(png, row, png->job->pixels.data + (size_t)(y - need->y) * (size_t)need->width * 3);
    }
    if (need->y + need->height == png->job->height)
        png_read_end(png->read, NULL);
}

/* Seven passes over the whole image; the rows hold it until the last one. */
static void read_interlaced(struct cvy_png *png)
{
    const struct cvy_box *need = &png->need;
    const size_t row_bytes = png->row_bytes;

    set_conversions(png);
    for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; pass++)
        for (int32_t y = 0; y < png->job->height; y++)
            png_read_row(png->read, png->job->rows.data + (size_t)y * row_bytes, NULL);
    png_read_end(png->read, NULL);
    for (int32_t y = 0; y < need->height; y++)
        row_to_rgb(png, png->job->rows.data + (size_t)(need->y + y) * row_bytes,
                   png->job->pixels.data + (size_t)y * (size_t)need->width * 3);
}

cvy_status cvy_png_read(struct cvy_png *png, struct cvy_codec_job *job, const struct cvy_box *need,
                        const uint8_t **pixels, size_t *stride)
{
    size_t bytes;

    png->need = *need;
    png->row_bytes = (size_t)job->width * 4;  /* RGBA, or less */
    png->max_block += (size_t)job->width * 8; /* rows as they are stored: 16 bits */
    if (!cvy_size_mul(png->row_bytes, png->interlaced ? (size_t)job->height : 1, &bytes))
        return cvy_fail(CVY_BAD_DATA, "%s is too large", cvy_quote(job->name));
    CVY_TRY(cvy_pixel_buffer_reserve(&job->rows, bytes));
    if (png->interlaced)
        memset(job->rows.data, 0, bytes);
    *stride = (size_t)need->width * 3;
    CVY_TRY(cvy_pixel_buffer_reserve(&job->pixels, *stride * (size_t)need->height + 64));
    CVY_TRY(guarded(png, png->interlaced ? read_interlaced : read_plain));
    *pixels = job->pixels.data;
    destroy(png);
    return CVY_OK;
}
