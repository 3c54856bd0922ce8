/* Decoding: what is left out changes nothing, colours, and every way a file can be bad. */
#include <stdio.h>

#include <jpeglib.h> /* needs FILE */

#include "data/image/codec.h"
#include "data/image/image.h"
#include "support_images.h"
#include "support_test.h"

/* The whole image, packed. */
static uint8_t *decode_all(const struct bytes *file, int *width, int *height)
{
    const uint8_t *pixels;
    size_t stride;
    assert_int_equal(cvy_decoder_start(support_decoder, "test", file->data, file->size, width, height), CVY_OK);
    assert_int_equal(cvy_decoder_read(support_decoder, &(struct cvy_box){0, 0, *width, *height}, &pixels, &stride),
                     CVY_OK);
    uint8_t *copy = malloc((size_t)*width * (size_t)*height * 3);
    assert_non_null(copy);
    for (int y = 0; y < *height; y++)
        memcpy(copy + (size_t)y * (size_t)*width * 3, pixels + (size_t)y * stride, (size_t)*width * 3);
    return copy;
}

static void compare_part(const char *what, const struct bytes *file, const uint8_t *all, int width,
                         const struct cvy_box *need)
{
    int32_t w, h;
    const uint8_t *pixels;
    size_t stride;
    assert_int_equal(cvy_decoder_start(support_decoder, "test", file->data, file->size, &w, &h), CVY_OK);
    assert_int_equal(cvy_decoder_read(support_decoder, need, &pixels, &stride), CVY_OK);
    for (int y = 0; y < need->height; y++)
        if (memcmp(pixels + (size_t)y * stride, all + ((size_t)(need->y + y) * (size_t)width + (size_t)need->x) * 3,
                   (size_t)need->width * 3) != 0)
            fail_msg("%s: row %d of the part %d,%d %d x %d differs", what, y, need->x, need->y, need->width,
                     need->height);
}

static void compare_parts(const char *what, const struct bytes *file, struct cvy_rng *rng, int count)
{
    int width, height;
    uint8_t *all = decode_all(file, &width, &height);
    for (int i = 0; i < count; i++) {
        struct cvy_box need = {.x = (int32_t)cvy_rng_below(rng, (uint32_t)width),
                               .y = (int32_t)cvy_rng_below(rng, (uint32_t)height)};
        need.width = 1 + (int32_t)cvy_rng_below(rng, (uint32_t)(width - need.x));
        need.height = 1 + (int32_t)cvy_rng_below(rng, (uint32_t)(height - need.y));
        compare_part(what, file, all, width, &need);
    }
    free(all);
}

static void parts_of_a_jpeg_equal_the_whole(void **state)
{
    static const int sizes[][2] = {{1, 1}, {7, 30}, {16, 16}, {33, 17}, {100, 75}, {150, 131}, {210, 40}};
    for (size_t k = 0; k < SUPPORT_JPEG_KINDS; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            struct cvy_rng rng = cvy_rng_new(k, CVY_RNG_TEST, 1, (uint32_t)s);
            uint8_t *pixels = support_noise(&rng, sizes[s][0], sizes[s][1], support_jpeg_kinds[k].components);
            struct bytes file = support_jpeg(&support_jpeg_kinds[k], pixels, sizes[s][0], sizes[s][1]);
            compare_parts(support_jpeg_kinds[k].name, &file, &rng, 60);
            free(pixels);
            free(file.data);
        }
}

static void parts_of_a_png_equal_the_whole(void **state)
{
    for (int channels = 1; channels <= 4; channels++) {
        struct cvy_rng rng = cvy_rng_new(0, CVY_RNG_TEST, 2, (uint32_t)channels);
        uint8_t *pixels = support_noise(&rng, 61, 43, channels);
        struct bytes file = support_png(pixels, 61, 43, channels);
        int width, height;
        uint8_t *all = decode_all(&file, &width, &height);
        assert_int_equal(width, 61);
        assert_int_equal(height, 43);
        /* PNG is lossless: grey is spread, alpha dropped. */
        for (int i = 0; i < 61 * 43; i++)
            for (int c = 0; c < 3; c++)
                assert_int_equal(all[i * 3 + c], pixels[i * channels + (channels < 3 ? 0 : c)]);
        free(all);
        compare_parts("png", &file, &rng, 60);
        free(pixels);
        free(file.data);
    }
}

static void cmyk_is_read_inverted(void **state)
{
    /* Stored samples, the way Photoshop writes them: 255 is no ink. */
    static const uint8_t stored[4][4] = {{255, 255, 255, 255}, {255, 255, 255, 0}, {0, 255, 255, 255}, {0, 0, 0, 128}};
    static const uint8_t expected[4][3] = {{255, 255, 255}, {0, 0, 0}, {0, 255, 255}, {0, 0, 0}};
    for (int i = 0; i < 4; i++) {
        uint8_t pixels[16 * 16 * 4];
        for (int p = 0; p < 16 * 16; p++)
            memcpy(pixels + p * 4, stored[i], 4);
        struct bytes file = support_jpeg(&(struct jpeg_kind){.components = 4, .h = 1, .v = 1}, pixels, 16, 16);
        int width, height;
        uint8_t *all = decode_all(&file, &width, &height);
        for (int p = 0; p < 16 * 16; p++)
            for (int c = 0; c < 3; c++) /* a flat block may come back one level off */
                assert_in_range(all[p * 3 + c] + 1, expected[i][c], expected[i][c] + 2);
        free(all);
        free(file.data);
    }
}

/* Start and read everything. */
static cvy_status try_read(const char *name, const void *data, size_t size)
{
    int32_t width, height;
    const uint8_t *pixels;
    size_t stride;
    cvy_status status = cvy_decoder_start(support_decoder, name, data, size, &width, &height);
    if (status == CVY_OK)
        status = cvy_decoder_read(support_decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride);
    return status;
}

static void assert_refused(const char *name, const void *data, size_t size, const char *reason)
{
    assert_int_equal(try_read(name, data, size), CVY_BAD_DATA);
    if (!strstr(cvy_error(), name) || !strstr(cvy_error(), reason))
        fail_msg("\"%s\" does not speak of %s and \"%s\"", cvy_error(), name, reason);
}

static void bad_files_are_named(void **state)
{
    static const char text[] = "This is not an image, whatever its name says.\n";
    assert_refused("empty.jpg", "", 0, "empty");
    assert_refused("text.jpg", text, sizeof text, "no image of a kind that is read");
    assert_refused("head.jpg", "\xFF\xD8\xFF", 3, "truncated");
    assert_refused("head.png", "\x89PNG\r\n\x1A\n", 8, "truncated");
}

/* Cut anywhere, even by one byte, even where the rows that are read are complete. */
static void truncated_files_are_refused(void **state)
{
    static const struct jpeg_kind some[] = {{"", 3, 2, 2, 0, 0, 0, 0}, {"", 3, 1, 1, 1, 0, 0, 0}};
    struct cvy_rng rng = cvy_rng_new(0, CVY_RNG_TEST, 3, 0);
    uint8_t *pixels = support_noise(&rng, 50, 40, 3);
    for (int k = 0; k < 3; k++) {
        struct bytes file = k < 2 ? support_jpeg(&some[k], pixels, 50, 40) : support_png(pixels, 50, 40, 3);
        const size_t end = k < 2 ? file.size : file.size - 4; /* the CRC of a PNG's last chunk is not missed */
        for (size_t size = 9; size < end; size += size + 40 < end ? 13 : 1) {
            uint8_t *cut = malloc(size); /* so that reading past the end is caught */
            int32_t width, height;
            memcpy(cut, file.data, size);
            assert_fails(try_read("cut", cut, size), CVY_BAD_DATA, "\"cut\"");
            if (size > end - 40) { /* found before anything is decoded */
                assert_fails(cvy_decoder_start(support_decoder, "cut", cut, size, &width, &height), CVY_BAD_DATA,
                             "truncated");
            }
            free(cut);
        }
        assert_int_equal(try_read("whole", file.data, file.size), CVY_OK);
        free(file.data);
    }
    free(pixels);
}

static void other_damage_passes(void **state)
{
    struct bytes file = support_any_jpeg(5, 64, 64);
    /* Bytes in the middle of the coded data: libjpeg warns and continues, as Pillow does. */
    for (size_t i = 0; i < 8; i++)
        file.data[file.size * 3 / 4 + i] = 0x55;
    assert_int_equal(try_read("damaged", file.data, file.size), CVY_OK);
    /* Bytes after the end. */
    uint8_t *longer = calloc(1, file.size + 1000);
    assert_non_null(longer);
    memcpy(longer, file.data, file.size);
    assert_int_equal(try_read("longer", longer, file.size + 1000), CVY_OK);
    free(longer);
    free(file.data);
}

/* libpng's own allocations fail one after the other: never the image's fault. */
static void memory_may_run_out(void **state)
{
    struct cvy_rng rng = cvy_rng_new(0, CVY_RNG_TEST, 9, 0);
    uint8_t *noise = support_noise(&rng, 40, 30, 3);
    struct bytes file = support_png(noise, 40, 30, 3);
    int refused = 0;
    for (int64_t n = 1; n < 40; n++) {
        int32_t width, height;
        const uint8_t *pixels;
        size_t stride;
        cvy_memory_fail_after(n, true);
        cvy_status status = cvy_decoder_start(support_decoder, "test", file.data, file.size, &width, &height);
        if (status == CVY_OK)
            status = cvy_decoder_read(support_decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride);
        cvy_memory_fail_after(0, false);
        if (status != CVY_OK && status != CVY_NO_MEMORY)
            fail_msg("allocation %d failed: %s", (int)n, cvy_error());
        refused += status != CVY_OK;
    }
    assert_true(refused >= 4); /* the structures of libpng, its row buffers, ours */
    free(noise);
    free(file.data);
}

static void bombs_are_refused(void **state)
{
    struct bytes file = support_any_jpeg(6, 16, 16);
    int32_t width, height;
    for (size_t i = 0; i + 9 < file.size; i++)
        if (file.data[i] == 0xFF && file.data[i + 1] == 0xC0) /* SOF0: length, precision, height, width */
            memcpy(file.data + i + 5, "\xFF\x00\xFF\x00", 4);
    assert_int_equal(cvy_decoder_start(support_decoder, "bomb.jpg", file.data, file.size, &width, &height),
                     CVY_BAD_DATA);
    assert_error("\"bomb.jpg\" has 65280 x 65280 pixels");
    free(file.data);
}

/* What a header promises is held against the size of the file before anything is allocated for it. */
static void promises_beyond_the_file_are_refused(void **state)
{
    static const uint8_t text_chunk[] = {0x7F, 0xFF, 0xFF, 0xFF, 't', 'E', 'X', 't', 'a', 0};
    uint8_t pixels[16 * 16 * 3] = {0};
    struct bytes jpeg = support_any_jpeg(0, 16, 16), png = support_png(pixels, 16, 16, 3);
    for (size_t i = 0; i + 9 < jpeg.size; i++)
        if (jpeg.data[i] == 0xFF && jpeg.data[i + 1] == 0xC0)
            memcpy(jpeg.data + i + 5, "\x34\x00\x34\x00", 4); /* 13312 x 13312: allowed */
    assert_refused("wide.jpg", jpeg.data, jpeg.size, "13312 x 13312 pixels take more than its");
    /* IHDR ends after 33 bytes: a text of 2 GiB follows, which libpng would make room for. */
    uint8_t *longer = malloc(png.size + sizeof text_chunk);
    assert_non_null(longer);
    memcpy(longer, png.data, 33);
    memcpy(longer + 33, text_chunk, sizeof text_chunk);
    memcpy(longer + 33 + sizeof text_chunk, png.data + 33, png.size - 33);
    cvy_memory_fail_above(64 << 20);
    assert_refused("text.png", longer, png.size + sizeof text_chunk, "cannot be decoded");
    cvy_memory_fail_above(0);
    free(longer);
    free(jpeg.data);
    free(png.data);
}

/* A flat grey image of `side` x `side` pixels whose coefficients are refined in 1 + `scans` scans. */
static struct bytes many_scans(int side, int scans)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    jpeg_scan_info script[1 + 3 * 63] = {{.comps_in_scan = 1}};
    uint8_t *row = calloc(1, (size_t)side);
    struct bytes file = {0};
    unsigned long size = 0;

    for (int i = 0; i < scans; i++) { /* coefficient after coefficient, then a bit more of each */
        const int pass = i / 63;
        script[1 + i] = (jpeg_scan_info){1, {0}, 1 + i % 63, 1 + i % 63, pass ? 3 - pass : 0, 2 - pass};
    }
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &file.data, &size);
    info.image_width = info.image_height = (JDIMENSION)side;
    info.input_components = 1;
    info.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&info);
    info.scan_info = script;
    info.num_scans = 1 + scans;
    jpeg_start_compress(&info, TRUE);
    for (int y = 0; y < side; y++)
        (void)jpeg_write_scanlines(&info, &row, 1);
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    free(row);
    file.size = size;
    return file;
}

/* Each scan is a pass over the image: the larger it is, the fewer it may have. */
static void scans_are_limited_by_the_pixels(void **state)
{
    for (int side = 64; side <= 6000; side += 5936) {
        struct bytes file = many_scans(side, 130);
        if (side == 64)
            assert_int_equal(try_read("small.jpg", file.data, file.size), CVY_OK);
        else
            assert_refused("large.jpg", file.data, file.size, "more than 99 scans of 6000 x 6000 pixels");
        free(file.data);
    }
}

static void reads_outside_the_image_are_refused(void **state)
{
    static const struct cvy_box boxes[] = {{-1, 0, 5, 5}, {0, 0, 0, 5},         {0, 0, 33, 5},       {30, 0, 3, 5},
                                           {0, 17, 1, 8}, {0, 0, 5, INT32_MAX}, {INT32_MAX, 0, 1, 1}};
    struct bytes file = support_any_jpeg(7, 32, 24);
    const uint8_t *pixels;
    size_t stride;
    int32_t width, height;
    assert_int_equal(cvy_decoder_start(support_decoder, "x", file.data, file.size, &width, &height), CVY_OK);
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++)
        assert_int_equal(cvy_decoder_read(support_decoder, &boxes[i], &pixels, &stride), CVY_FAILED);
    assert_int_equal(cvy_decoder_read(support_decoder, &(struct cvy_box){0, 0, 32, 24}, &pixels, &stride), CVY_OK);
    assert_int_equal(cvy_decoder_read(support_decoder, &(struct cvy_box){0, 0, 32, 24}, &pixels, &stride), CVY_FAILED);
    free(file.data);
}

/* SOI, APP1 with a one-entry EXIF directory, then the rest of the file. */
static struct bytes with_orientation(const struct bytes *file, int orientation, bool big_endian)
{
    uint8_t little[] = {0xFF,
                        0xE1,
                        0,
                        34,
                        'E',
                        'x',
                        'i',
                        'f',
                        0,
                        0,
                        'I',
                        'I',
                        42,
                        0,
                        8,
                        0,
                        0,
                        0,
                        1,
                        0,
                        0x12,
                        1,
                        3,
                        0,
                        1,
                        0,
                        0,
                        0,
                        (uint8_t)orientation,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0};
    uint8_t big[] = {0xFF, 0xE1, 0, 34, 'E', 'x', 'i',  'f', 0, 0, 'M', 'M', 0, 42, 0,
                     0,    0,    8, 0,  1,   1,   0x12, 0,   3, 0, 0,   0,   1, 0,  (uint8_t)orientation,
                     0,    0,    0, 0,  0,   0};
    struct bytes out = {malloc(file->size + sizeof little), file->size + sizeof little};
    assert_non_null(out.data);
    memcpy(out.data, file->data, 2);
    memcpy(out.data + 2, big_endian ? big : little, sizeof little);
    memcpy(out.data + 2 + sizeof little, file->data + 2, file->size - 2);
    return out;
}

static void exif_orientation_is_found(void **state)
{
    struct bytes file = support_any_jpeg(8, 32, 24);
    int32_t width, height;
    assert_int_equal(cvy_decoder_start(support_decoder, "x", file.data, file.size, &width, &height), CVY_OK);
    assert_int_equal(cvy_decoder_orientation(support_decoder), 1);
    for (int orientation = 0; orientation < 10; orientation++)
        for (int big = 0; big < 2; big++) {
            struct bytes turned = with_orientation(&file, orientation, big);
            assert_int_equal(cvy_decoder_start(support_decoder, "x", turned.data, turned.size, &width, &height),
                             CVY_OK);
            assert_int_equal(cvy_decoder_orientation(support_decoder),
                             orientation >= 1 && orientation <= 8 ? orientation : 1);
            assert_int_equal(width, 32); /* reading does not apply it */
            free(turned.data);
        }
    free(file.data);
}

static void put(uint8_t **at, uint64_t value, int bytes, bool big_endian)
{
    for (int i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(value >> 8 * (big_endian ? bytes - 1 - i : i));
}

/* Header and directory of a TIFF file, with a width before the tag; big: BigTIFF. Its size. */
static size_t tiff_with_orientation(uint8_t *to, bool big, bool big_endian, int orientation)
{
    const int word = big ? 8 : 4;
    uint8_t *at = to;

    memcpy(at, big_endian ? "MM" : "II", 2);
    at += 2;
    put(&at, big ? 43 : 42, 2, big_endian);
    if (big)
        put(&at, big_endian ? 8ULL << 16 : 8, 4, big_endian); /* of 8 bytes; and two of nothing */
    put(&at, big ? 16 : 8, word, big_endian);
    put(&at, 2, big ? 8 : 2, big_endian);
    for (int tag = 0; tag < 2; tag++) {
        put(&at, tag ? 274 : 256, 2, big_endian);
        put(&at, 3, 2, big_endian);
        put(&at, 1, word, big_endian);
        put(&at, tag ? (uint64_t)orientation : 32, 2, big_endian);
        put(&at, 0, word - 2, big_endian);
    }
    return (size_t)(at - to);
}

static void orientation_of_tiff_is_found(void **state)
{
    for (int form = 0; form < 4; form++)
        for (int orientation = 0; orientation < 10; orientation++) {
            uint8_t whole[80];
            const size_t size = tiff_with_orientation(whole, form & 1, form & 2, orientation);

            for (size_t length = 0; length <= size; length++) {
                uint8_t *part = malloc(length + !length); /* sanitizers see its end */
                const bool there = length == size && orientation >= 1 && orientation <= 8;

                assert_non_null(part);
                memcpy(part, whole, length);
                assert_int_equal(cvy_exif_orientation(CVY_IMAGE_TIFF, part, length), there ? orientation : 1);
                free(part);
            }
        }
}

RUN_TESTS(support_decoder_set_up, support_decoder_tear_down, TEST(parts_of_a_jpeg_equal_the_whole),
          TEST(parts_of_a_png_equal_the_whole), TEST(promises_beyond_the_file_are_refused),
          TEST(scans_are_limited_by_the_pixels), TEST(cmyk_is_read_inverted), TEST(bad_files_are_named),
          TEST(truncated_files_are_refused), TEST(other_damage_passes), TEST(bombs_are_refused),
          TEST(memory_may_run_out), TEST(reads_outside_the_image_are_refused), TEST(exif_orientation_is_found),
          TEST(orientation_of_tiff_is_found))
