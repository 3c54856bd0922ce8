/* The first image of a GIF (GIF89a specification, CompuServe 1990), on its screen as Pillow shows it: what it does not
 * cover has the transparent index, else index 0; transparency itself is dropped. */
#include <string.h>

#include "base/error.h"
#include "data/image/codec.h"

enum {
    SCREEN = 13, /* signature, screen */
    CODES = 4096,
    /* A code stands for 4095 pixels at most and takes 9 bits or more; a screen may have nothing on it. */
    LARGE = 1 << 24,
    MAX_PIXELS_PER_BYTE = 4096
};

static cvy_status refuse(const struct cvy_codec_job *job, const char *what)
{
    return cvy_fail(CVY_BAD_DATA, "%s is a GIF image %s", cvy_quote(job->name), what);
}

/* After the sub-blocks at *at; false: the end of the file comes first. */
static bool skip_blocks(const struct cvy_codec_job *job, size_t *at)
{
    while (*at < job->size && job->data[*at] != 0)
        *at += 1 + (size_t)job->data[*at];
    return (*at)++ < job->size;
}

/* What stands before the first image; *at is its descriptor. */
static cvy_status skip_extensions(const struct cvy_codec_job *job, struct cvy_gif *gif, size_t *at)
{
    while (*at < job->size && job->data[*at] == '!') {
        const uint8_t *extension = job->data + *at;
        /* Label 0xF9, 4 bytes: flags, delay, index. */
        if (job->size - *at >= 8 && extension[1] == 0xF9 && extension[2] == 4 && extension[3] & 1)
            gif->background = extension[6];
        *at += 2;
        if (!skip_blocks(job, at))
            return refuse(job, "that is truncated");
    }
    if (*at >= job->size || job->size - *at < 11)
        return refuse(job, "that is truncated");
    return job->data[*at] == ',' ? CVY_OK : refuse(job, "without an image in it");
}

cvy_status cvy_gif_start(struct cvy_codec_job *job, struct cvy_gif *gif)
{
    const uint8_t *data = job->data;
    size_t at = SCREEN;
    int64_t pixels;

    *gif = (struct cvy_gif){0};
    if (job->size < SCREEN)
        return refuse(job, "that is truncated");
    job->width = (int32_t)cvy_image_uint(data + 6, 2, false);
    job->height = (int32_t)cvy_image_uint(data + 8, 2, false);
    if (data[10] & 0x80) {
        gif->palette = at;
        gif->colours = 2 << (data[10] & 7);
        at += 3 * (size_t)gif->colours;
    }
    CVY_TRY(skip_extensions(job, gif, &at));
    gif->frame = (struct cvy_box){
        (int32_t)cvy_image_uint(data + at + 1, 2, false), (int32_t)cvy_image_uint(data + at + 3, 2, false),
        (int32_t)cvy_image_uint(data + at + 5, 2, false), (int32_t)cvy_image_uint(data + at + 7, 2, false)};
    gif->interlaced = data[at + 9] & 0x40;
    if (data[at + 9] & 0x80) {
        gif->palette = at + 10;
        gif->colours = 2 << (data[at + 9] & 7);
        at += 3 * (size_t)gif->colours;
    }
    at += 10;
    if (at >= job->size || (gif->colours && gif->palette + 3 * (size_t)gif->colours > job->size))
        return refuse(job, "that is truncated");
    gif->code_bits = data[at];
    gif->blocks = at + 1;
    if (gif->code_bits < 1 || gif->code_bits > 11 || gif->frame.width < 1 || gif->frame.height < 1)
        return refuse(job, "with a damaged header");
    if (gif->frame.x + gif->frame.width > job->width) /* the screen grows */
        job->width = gif->frame.x + gif->frame.width;
    if (gif->frame.y + gif->frame.height > job->height)
        job->height = gif->frame.y + gif->frame.height;
    pixels = (int64_t)job->width * job->height;
    job->min_size = (size_t)((int64_t)gif->frame.width * gif->frame.height / MAX_PIXELS_PER_BYTE);
    if (pixels > LARGE)
        job->min_size = (size_t)(pixels / MAX_PIXELS_PER_BYTE);
    return CVY_OK;
}

/* Codes from bits that lie in sub-blocks, the lowest bit first. */
struct bits {
    const struct cvy_codec_job *job;
    size_t at; /* of the next byte, or of a block's length where left is 0 */
    int left;  /* bytes of the block */
    uint32_t held;
    int count; /* bits that are held */
};

/* -1: there are no more. */
static int next_code(struct bits *bits, int size)
{
    while (bits->count < size) {
        if (bits->left == 0) {
            if (bits->at >= bits->job->size || bits->job->data[bits->at] == 0)
                return -1;
            bits->left = bits->job->data[bits->at++];
        }
        if (bits->at >= bits->job->size)
            return -1;
        bits->held |= (uint32_t)bits->job->data[bits->at++] << bits->count;
        bits->count += 8;
        bits->left--;
    }
    const int code = (int)(bits->held & ((1u << size) - 1));
    bits->held >>= size;
    bits->count -= size;
    return code;
}

/* The indices of the frame, in the order of the file; false: damaged, or not all of them. */
static bool read_indices(const struct cvy_codec_job *job, const struct cvy_gif *gif, uint8_t *to, size_t count)
{
    const int clear = 1 << gif->code_bits, end = clear + 1;
    struct bits bits = {.job = job, .at = gif->blocks};
    uint16_t prefix[CODES];
    uint8_t last[CODES], text[CODES];
    int size = gif->code_bits + 1, next = end + 1, previous = -1;
    uint8_t first = 0;
    size_t done = 0;

    while (done < count) {
        const int code = next_code(&bits, size);
        int length = 0, at = code;

        if (code < 0 || code == end)
            return false;
        if (code == clear) {
            size = gif->code_bits + 1;
            next = end + 1;
            previous = -1;
            continue;
        }
        if (code > next || (code == next && previous < 0) || (previous < 0 && code > clear))
            return false;
        if (code == next) { /* the previous text and its first letter again */
            text[length++] = first;
            at = previous;
        }
        for (; at > clear; at = prefix[at]) /* each is less than its code: it ends, after 4093 letters at most */
            text[length++] = last[at];
        text[length++] = first = (uint8_t)at;
        while (length > 0 && done < count)
            to[done++] = text[--length];
        if (previous >= 0 && next < CODES) {
            prefix[next] = (uint16_t)previous;
            last[next++] = first;
            if (next == 1 << size && size < 12)
                size++;
        }
        previous = code;
    }
    return true;
}

/* The row of the frame that is the n-th in the file. */
static int32_t row_of(const struct cvy_gif *gif, int32_t n)
{
    static const struct {
        int32_t from, step;
    } passes[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};

    for (int p = 0; gif->interlaced && p < 4; p++) {
        const int32_t rows = gif->frame.height > passes[p].from
                                 ? (gif->frame.height - passes[p].from + passes[p].step - 1) / passes[p].step
                                 : 0;
        if (n < rows)
            return passes[p].from + n * passes[p].step;
        n -= rows;
    }
    return n;
}

static void put_colour(const struct cvy_codec_job *job, const struct cvy_gif *gif, int index, uint8_t *rgb)
{
    if (index < gif->colours)
        memcpy(rgb, job->data + gif->palette + 3 * (size_t)index, 3);
    else if (gif->colours == 0) /* no palette at all: levels of grey */
        memset(rgb, index, 3);
    else
        memset(rgb, 0, 3);
}

cvy_status cvy_gif_read(struct cvy_codec_job *job, const struct cvy_gif *gif, const struct cvy_box *need,
                        const uint8_t **pixels, size_t *stride)
{
    const size_t count = (size_t)gif->frame.width * (size_t)gif->frame.height; /* 16 bits each */
    const size_t all = (size_t)job->width * (size_t)job->height;
    uint8_t colours[256][3], *screen;

    CVY_TRY(cvy_pixel_buffer_reserve(&job->rows, count));
    CVY_TRY(cvy_pixel_buffer_reserve(&job->pixels, all * 3 + 64));
    screen = job->pixels.data;
    if (!read_indices(job, gif, job->rows.data, count))
        return refuse(job, "that is damaged or ends early");
    for (int i = 0; i < 256; i++)
        put_colour(job, gif, i, colours[i]);
    for (size_t i = 0; count < all && i < all; i++)
        memcpy(screen + 3 * i, colours[gif->background], 3);
    for (int32_t n = 0; n < gif->frame.height; n++) {
        const uint8_t *from = job->rows.data + (size_t)n * (size_t)gif->frame.width;
        uint8_t *to =
            screen + ((size_t)(gif->frame.y + row_of(gif, n)) * (size_t)job->width + (size_t)gif->frame.x) * 3;
        for (int32_t x = 0; x < gif->frame.width; x++)
            memcpy(to + 3 * (size_t)x, colours[from[x]], 3);
    }
    *stride = (size_t)job->width * 3;
    *pixels = screen + (size_t)need->y * *stride + (size_t)need->x * 3;
    return CVY_OK;
}
