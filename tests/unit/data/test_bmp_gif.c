/* BMP and GIF: pixels that are known, and every way a file can be bad. More kinds, against Pillow: parity.formats. */
#include "data/image/image.h"
#include "support_images.h"
#include "support_test.h"

enum { WIDTH = 21, HEIGHT = 13 };

static cvy_status read_all(const char *name, const void *data, size_t size, const uint8_t **pixels, size_t *stride)
{
    int32_t width, height;
    const cvy_status status = cvy_decoder_start(support_decoder, name, data, size, &width, &height);

    return status != CVY_OK ? status
                            : cvy_decoder_read(support_decoder, &(struct cvy_box){0, 0, width, height}, pixels, stride);
}

static void assert_refused(const char *name, const void *data, size_t size, const char *reason)
{
    const uint8_t *pixels;
    size_t stride;

    assert_int_equal(read_all(name, data, size, &pixels, &stride), CVY_BAD_DATA);
    if (!strstr(cvy_error(), reason) || !strstr(cvy_error(), name))
        fail_msg("not '%s': %s", reason, cvy_error());
}

static uint8_t *put(uint8_t *to, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *to++ = i < 4 ? (uint8_t)(value >> 8 * i) : 0;
    return to;
}

/* Cut anywhere, in memory of its own so that no byte beyond is read unseen. */
static void assert_cuts_refused(const char *name, const uint8_t *data, size_t size, const char *reason)
{
    for (size_t length = 6; length < size; length++) {
        uint8_t *copy = malloc(length);
        assert_non_null(copy);
        memcpy(copy, data, length);
        assert_refused(name, copy, length, length < 18 ? name : reason);
        free(copy);
    }
}

/* ---- BMP ---- */

static size_t bmp_header(uint8_t *file, int32_t width, int32_t height, int bits, uint32_t compression)
{
    uint8_t *at = file;

    memcpy(at, "BM", 2);
    at = put(at + 2, 0, 8);
    at = put(at, 54, 4);
    at = put(at, 40, 4);
    at = put(at, (uint32_t)width, 4);
    at = put(at, (uint32_t)height, 4);
    at = put(at, 1, 2);
    at = put(at, (uint32_t)bits, 2);
    at = put(at, compression, 4);
    at = put(at, 0, 20);
    return (size_t)(at - file);
}

static void bmp_rows_stand_where_they_should(void **state)
{
    enum { STRIDE = (WIDTH * 3 + 3) / 4 * 4 };
    uint8_t file[54 + STRIDE * HEIGHT] = {0};

    (void)state;
    for (int flipped = 0; flipped < 2; flipped++) {
        const uint8_t *pixels;
        size_t stride;
        bmp_header(file, WIDTH, flipped ? -HEIGHT : HEIGHT, 24, 0);
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++) {
                uint8_t *pixel = file + 54 + (flipped ? y : HEIGHT - 1 - y) * STRIDE + x * 3;
                pixel[0] = 3, pixel[1] = (uint8_t)x, pixel[2] = (uint8_t)y; /* blue, green, red */
            }
        assert_int_equal(read_all("a.bmp", file, sizeof file, &pixels, &stride), CVY_OK);
        assert_int_equal(cvy_decoder_format(support_decoder), CVY_IMAGE_BMP);
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++)
                assert_memory_equal(pixels + (size_t)y * stride + (size_t)x * 3,
                                    ((uint8_t[]){(uint8_t)y, (uint8_t)x, 3}), 3);
        assert_cuts_refused("a.bmp", file, sizeof file, "a.bmp");
    }
}

static void bad_bmps_are_named(void **state)
{
    uint8_t file[200] = {0};

    (void)state;
    bmp_header(file, 4, 4, 24, 1);
    assert_refused("a.bmp", file, sizeof file, "with compression: convert it to PNG");
    bmp_header(file, 4, 4, 7, 0);
    assert_refused("a.bmp", file, sizeof file, "header that is not understood");
    bmp_header(file, 0, 4, 24, 0);
    assert_refused("a.bmp", file, sizeof file, "damaged header");
    bmp_header(file, 4, INT32_MIN, 24, 0);
    assert_refused("a.bmp", file, sizeof file, "damaged header");
    bmp_header(file, INT32_MAX, INT32_MAX, 32, 0);
    assert_refused("a.bmp", file, sizeof file, "more than the 178956970 allowed");
    bmp_header(file, 10000, 10000, 1, 0);
    assert_refused("a.bmp", file, sizeof file, "truncated");
    bmp_header(file, 4, 4, 16, 3); /* masks of zeros */
    assert_refused("a.bmp", file, sizeof file, "unusual layout: convert it to PNG");
}

/* ---- GIF ---- */

/* A GIF whose codes are plain indices of 7 bits, with a clear code before the table grows them to 9; palette: i, 2
 * i, 3. */
static size_t make_gif(uint8_t *file, int width, int height, int frame_width, int frame_height)
{
    uint8_t *at = file, *block = NULL;
    uint32_t held = 0;
    int bits = 0, since = 0, sent = 0;

    memcpy(at, "GIF89a", 6);
    at = put(at + 6, (uint32_t)width, 2);
    at = put(at, (uint32_t)height, 2);
    *at++ = 0x80 | 6;
    *at++ = 0, *at++ = 0;
    for (uint8_t i = 0; i < 128; i++)
        *at++ = i, *at++ = (uint8_t)(2 * i), *at++ = 3;
    *at++ = ',';
    at = put(at, 0, 4);
    at = put(at, (uint32_t)frame_width, 2);
    at = put(at, (uint32_t)frame_height, 2);
    *at++ = 0;
    *at++ = 7;
    while (sent <= frame_width * frame_height) {
        const bool end = sent == frame_width * frame_height, clear = since == 0 && !end;
        held |= (uint32_t)(clear ? 128 : end ? 129 : sent % 128) << bits;
        bits += 8;
        since = clear ? 1 : (since + 1) % 100;
        sent += !clear;
        while (bits >= 8) {
            if (!block || *block == 200)
                *(block = at++) = 0;
            *at++ = (uint8_t)held;
            ++*block;
            held >>= 8;
            bits -= 8;
        }
    }
    *at++ = 0;
    *at++ = ';';
    return (size_t)(at - file);
}

static void gif_pixels_are_the_palettes(void **state)
{
    uint8_t file[2000];
    const size_t size = make_gif(file, WIDTH + 2, HEIGHT + 1, WIDTH, HEIGHT);
    const uint8_t *pixels;
    size_t stride;

    (void)state;
    assert_int_equal(read_all("a.gif", file, size, &pixels, &stride), CVY_OK);
    assert_int_equal(cvy_decoder_format(support_decoder), CVY_IMAGE_GIF);
    for (int y = 0; y <= HEIGHT; y++)
        for (int x = 0; x < WIDTH + 2; x++) {
            const uint8_t index = x < WIDTH && y < HEIGHT ? (uint8_t)((y * WIDTH + x) % 128) : 0;
            assert_memory_equal(pixels + (size_t)y * stride + (size_t)x * 3,
                                ((uint8_t[]){index, (uint8_t)(2 * index), 3}), 3);
        }
    assert_cuts_refused("a.gif", file, size - 4, "a.gif"); /* the last codes: an end, the blocks' end, the file's */
}

static void bad_gifs_are_named(void **state)
{
    uint8_t file[2000];
    size_t size = make_gif(file, WIDTH, HEIGHT, WIDTH, HEIGHT);

    (void)state;
    file[13 + 384 + 10 + 3] = 200; /* after the clear code: one that the table has not */
    assert_refused("a.gif", file, size, "damaged or ends early");
    size = make_gif(file, 65535, 65535, 2, 2);
    assert_refused("a.gif", file, size, "more than the 178956970 allowed");
    size = make_gif(file, 13000, 13000, 2, 2);
    assert_refused("a.gif", file, size, "pixels take more than its");
    size = make_gif(file, 2, 2, 2, 2);
    put(file + 13 + 384 + 5, 4000, 2);
    put(file + 13 + 384 + 7, 4000, 2);
    assert_refused("a.gif", file, size, "pixels take more than its");
    put(file + 13 + 384 + 5, 0, 2);
    assert_refused("a.gif", file, size, "damaged header");
    assert_refused("a.gif", "GIF89a\1\0\1\0\0\0\0;", 14, "truncated");
    assert_refused("a.gif", "GIF89a\1\0\1\0\0\0\0;;;;;;;;;;;;", 25, "without an image");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bmp_rows_stand_where_they_should),
        TEST(bad_bmps_are_named),
        TEST(gif_pixels_are_the_palettes),
        TEST(bad_gifs_are_named),
    };

    return cmocka_run_group_tests(tests, support_decoder_set_up, support_decoder_tear_down);
}
