/* WebP: the pixels that went in, orientation, and every way a file can be bad. libwebp itself encodes; without it there
 * is one thing to test. */
#include <dlfcn.h>
#include <stdio.h>

#include "data/image/image.h"
#include "support_images.h"
#include "support_test.h"

enum { WIDTH = 53, HEIGHT = 38 };

static void *library;

/* Lossless, so that the result is known. */
static struct bytes encode(const uint8_t *pixels, int width, int height)
{
    size_t (*lossless)(const uint8_t *rgb, int width, int height, int stride, uint8_t **out);
    void *found = dlsym(library, "WebPEncodeLosslessRGB");
    struct bytes file = {0};

    assert_non_null(found);
    memcpy(&lossless, &found, sizeof found);
    file.size = lossless(pixels, width, height, width * 3, &file.data);
    assert_true(file.size > 20);
    return file;
}

static struct bytes encode_noise(uint64_t seed, uint8_t **pixels)
{
    struct cvy_rng rng = cvy_rng_new(seed, CVY_RNG_TEST, 1, 0);

    *pixels = support_noise(&rng, WIDTH, HEIGHT, 3);
    return encode(*pixels, WIDTH, HEIGHT);
}

static void assert_refused(const void *data, size_t size, const char *reason)
{
    const uint8_t *pixels;
    int32_t width, height;
    size_t stride;
    cvy_status status = cvy_decoder_start(support_decoder, "a.webp", data, size, &width, &height);

    if (status == CVY_OK)
        status = cvy_decoder_read(support_decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride);
    assert_int_equal(status, CVY_BAD_DATA);
    if (!strstr(cvy_error(), reason) || !strstr(cvy_error(), "\"a.webp\""))
        fail_msg("not '%s': %s", reason, cvy_error());
}

static void pixels_come_back(void **state)
{
    static const struct cvy_box needs[] = {
        {0, 0, WIDTH, HEIGHT}, {0, 0, 1, 1}, {WIDTH - 1, HEIGHT - 1, 1, 1}, {7, 11, 30, 20}, {0, 37, WIDTH, 1}};
    uint8_t *noise;
    struct bytes file = encode_noise(1, &noise);

    (void)state;
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        const struct cvy_box *need = &needs[i];
        const uint8_t *pixels;
        int32_t width, height;
        size_t stride;
        assert_int_equal(cvy_decoder_start(support_decoder, "a", file.data, file.size, &width, &height), CVY_OK);
        assert_int_equal(width, WIDTH);
        assert_int_equal(height, HEIGHT);
        assert_int_equal(cvy_decoder_format(support_decoder), CVY_IMAGE_WEBP);
        assert_false(cvy_decoder_can_scale(support_decoder));
        assert_false(cvy_decoder_is_plain_jpeg(support_decoder));
        assert_int_equal(cvy_decoder_read(support_decoder, need, &pixels, &stride), CVY_OK);
        for (int32_t y = 0; y < need->height; y++)
            assert_memory_equal(pixels + (size_t)y * stride,
                                noise + ((size_t)(need->y + y) * WIDTH + (size_t)need->x) * 3, (size_t)need->width * 3);
    }
    free(noise);
    free(file.data);
}

static void put(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

/* The extended form: a header chunk, the image's, and one of EXIF. */
static struct bytes extend(const struct bytes *plain, uint8_t flags, int orientation, bool prefixed)
{
    static const uint8_t tiff[26] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1};
    const size_t image = plain->size - 12, exif = sizeof tiff + (prefixed ? 6 : 0);
    struct bytes file = {.size = 12 + 18 + image + 8 + exif};
    uint8_t *at = file.data = calloc(1, file.size);

    assert_non_null(file.data);
    memcpy(at, "RIFF    WEBPVP8X", 16);
    put(at + 4, (uint32_t)(file.size - 8));
    put(at + 16, 10);
    at[20] = flags;
    at[24] = WIDTH - 1;
    at[27] = HEIGHT - 1;
    memcpy(at + 30, plain->data + 12, image);
    at += 30 + image;
    memcpy(at, "EXIF", 4);
    put(at + 4, (uint32_t)exif);
    if (prefixed)
        memcpy(at + 8, "Exif\0\0", 6);
    memcpy(at + 8 + exif - sizeof tiff, tiff, sizeof tiff);
    at[8 + exif - sizeof tiff + 18] = (uint8_t)orientation;
    return file;
}

static void orientation_is_found(void **state)
{
    uint8_t *noise;
    struct bytes plain = encode_noise(2, &noise);
    int32_t width, height;

    (void)state;
    for (int orientation = 0; orientation <= 9; orientation++)
        for (int prefixed = 0; prefixed < 2; prefixed++) {
            struct bytes file = extend(&plain, 0x08, orientation, prefixed != 0);
            assert_int_equal(cvy_decoder_start(support_decoder, "a", file.data, file.size, &width, &height), CVY_OK);
            assert_int_equal(cvy_decoder_orientation(support_decoder),
                             orientation >= 1 && orientation <= 8 ? orientation : 1);
            free(file.data);
        }
    assert_int_equal(cvy_decoder_start(support_decoder, "a", plain.data, plain.size, &width, &height), CVY_OK);
    assert_int_equal(cvy_decoder_orientation(support_decoder), 1);
    free(plain.data);
    free(noise);
}

static void bad_files_are_named(void **state)
{
    uint8_t *noise;
    struct bytes file = encode_noise(3, &noise), animated = extend(&file, 0x02, 1, false);

    (void)state;
    for (size_t size = 16; size < file.size; size++) { /* of its own length, so that no byte beyond is read unseen */
        uint8_t *copy = malloc(size);
        assert_non_null(copy);
        memcpy(copy, file.data, size);
        assert_refused(copy, size, "is truncated");
        put(copy + 4, (uint32_t)(size - 8)); /* whose header agrees; the last bits may be padding */
        if (size + 8 < file.size)
            assert_refused(copy, size, "damaged");
        free(copy);
    }
    assert_refused("RIFF\x04\0\0\0WEBP", 12, "is no image of a kind that is read");
    assert_refused("RIFF\x08\0\0\0WAVEfmt ", 16, "is no image of a kind that is read");
    assert_refused("RIFF\x08\0\0\0WEBPVP9 ", 16, "damaged header");
    assert_refused(animated.data, animated.size, "is an animated WebP");
    free(animated.data);
    free(file.data);
    free(noise);
}

/* Fifty bytes promise a gigabyte of pixels. */
static void bombs_are_refused(void **state)
{
    uint8_t header[30] = "RIFF\x16\0\0\0WEBPVP8L\x0a\0\0\0\x2f";

    (void)state;
    put(header + 21, (16384 - 1) | (16384 - 1) << 14);
    assert_refused(header, sizeof header, "more than the 178956970 allowed");
    put(header + 21, (12000 - 1) | (12000 - 1) << 14);
    assert_refused(header, sizeof header, "12000 x 12000 pixels take more than its 30 bytes");
}

static void without_the_library(void **state)
{
    (void)state;
    assert_refused("RIFF\x08\0\0\0WEBPVP8 ", 16, "takes libwebp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_come_back),
        cmocka_unit_test(orientation_is_found),
        cmocka_unit_test(bad_files_are_named),
        cmocka_unit_test(bombs_are_refused),
    };
    const struct CMUnitTest missing[] = {cmocka_unit_test(without_the_library)};

    library = dlopen("libwebp.so.7", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return cmocka_run_group_tests(missing, support_decoder_set_up, support_decoder_tear_down);
    return cmocka_run_group_tests(tests, support_decoder_set_up, support_decoder_tear_down);
}
