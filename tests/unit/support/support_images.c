#include <stdio.h>

#include <jpeglib.h>
#include <png.h>

#include "base/file.h"
#include "support_images.h"
#include "support_test.h"

const struct jpeg_kind support_jpeg_kinds[SUPPORT_JPEG_KINDS] = {
    {"4:4:4", 3, 1, 1, 0, 0, 0, 0},
    {"4:2:2", 3, 2, 1, 0, 0, 0, 0},
    {"4:2:0", 3, 2, 2, 0, 0, 0, 0},
    {"4:4:0", 3, 1, 2, 0, 0, 0, 0},
    {"4:1:1", 3, 4, 1, 0, 0, 0, 0},
    {"4:1:0", 3, 4, 2, 0, 0, 0, 0},
    {"grey", 1, 1, 1, 0, 0, 0, 0},
    {"grey 2 x 2", 1, 2, 2, 0, 0, 0, 0},
    {"cmyk", 4, 1, 1, 0, 0, 0, 0},
    {"4:4:4 restart", 3, 1, 1, 0, 0, 5, 0},
    {"4:2:2 restart", 3, 2, 1, 0, 0, 1, 0},
    {"4:2:0 restart", 3, 2, 2, 0, 0, 3, 0},
    {"grey restart", 1, 1, 1, 0, 0, 7, 0},
    {"progressive", 3, 2, 2, 1, 0, 0, 0},
    {"4:4:4 progressive", 3, 1, 1, 1, 0, 0, 0},
    {"arithmetic", 3, 2, 2, 0, 1, 0, 0},
    {"separate scans", 3, 2, 2, 0, 0, 0, 1},
    {"grey progressive", 1, 1, 1, 1, 0, 0, 0},
    {"1 x 4", 3, 1, 4, 0, 0, 0, 0},
};

uint8_t *support_noise(struct cvy_rng *rng, int width, int height, int components)
{
    const int cell = 5, across = width / cell + 1, down = height / cell + 1;
    uint8_t *cells = malloc((size_t)across * (size_t)down * (size_t)components);
    uint8_t *pixels = malloc((size_t)width * (size_t)height * (size_t)components);
    assert_non_null(cells);
    assert_non_null(pixels);
    for (int i = 0; i < across * down * components; i++)
        cells[i] = (uint8_t)cvy_rng_below(rng, 256);
    for (int i = 0; i < width * height * components; i++) {
        const int c = i % components, x = i / components % width, y = i / components / width;
        const int value = cells[((y / cell) * across + x / cell) * components + c] + (int)cvy_rng_below(rng, 41) - 20;
        pixels[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    free(cells);
    return pixels;
}

uint8_t *support_tinted_noise(struct cvy_rng *rng, int width, int height, int components)
{
    const double phase = (double)cvy_rng_below(rng, 628) / 100, weights[] = {1, 0.2, -1, 0.5};
    uint8_t *grey = support_noise(rng, width, height, 1), *pixels = malloc((size_t)width * (size_t)height * 4);

    assert_non_null(pixels);
    for (int i = 0; i < width * height; i++) {
        const double tint = 30 * sin(phase + i % width / 26.0) * cos(phase + i / width / 26.0);
        for (int c = 0; c < components; c++)
            pixels[i * components + c] = (uint8_t)lround(64 + grey[i] / 2 + tint * weights[c]);
    }
    free(grey);
    return pixels;
}

struct bytes support_jpeg(const struct jpeg_kind *kind, const uint8_t *pixels, int width, int height)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    jpeg_scan_info scans[4] = {{0}};
    unsigned char *data = NULL;
    unsigned long size = 0;

    info.err = jpeg_std_error(&errors); /* an error ends the test program */
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &data, &size);
    info.image_width = (JDIMENSION)width;
    info.image_height = (JDIMENSION)height;
    info.input_components = kind->components;
    info.in_color_space = kind->components == 1 ? JCS_GRAYSCALE : kind->components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 85, TRUE);
    info.comp_info[0].h_samp_factor = kind->h;
    info.comp_info[0].v_samp_factor = kind->v;
    info.arith_code = kind->arithmetic ? TRUE : FALSE;
    info.restart_interval = (unsigned)kind->restart;
    if (kind->progressive)
        jpeg_simple_progression(&info);
    if (kind->separate_scans) {
        for (int i = 0; i < kind->components; i++) {
            scans[i].comps_in_scan = 1;
            scans[i].component_index[0] = i;
            scans[i].Se = 63;
        }
        info.scan_info = scans;
        info.num_scans = kind->components;
    }
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
        const size_t offset = (size_t)info.next_scanline * (size_t)width * (size_t)kind->components;
        JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + offset);
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    return (struct bytes){data, size};
}

uint8_t *support_jpeg_pixels(const struct bytes *jpeg, bool interpolated)
{
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    uint8_t *pixels;

    info.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, jpeg->data, jpeg->size);
    (void)jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_RGB;
    info.do_fancy_upsampling = interpolated;
    (void)jpeg_start_decompress(&info);
    pixels = malloc((size_t)info.output_width * info.output_height * 3);
    assert_non_null(pixels);
    while (info.output_scanline < info.output_height) {
        JSAMPROW row = pixels + (size_t)info.output_scanline * info.output_width * 3;
        (void)jpeg_read_scanlines(&info, &row, 1);
    }
    (void)jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
    return pixels;
}

struct bytes support_any_jpeg(uint64_t seed, int width, int height)
{
    struct cvy_rng rng = cvy_rng_new(seed, CVY_RNG_TEST, 0, 0);
    uint8_t *pixels = support_noise(&rng, width, height, 3);
    struct bytes bytes = support_jpeg(&(struct jpeg_kind){.components = 3, .h = 2, .v = 2}, pixels, width, height);
    free(pixels);
    return bytes;
}

struct bytes support_png(const uint8_t *pixels, int width, int height, int channels)
{
    static const png_uint_32 formats[] = {0, PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = formats[channels]};
    png_alloc_size_t size = 0;
    assert_true(png_image_write_to_memory(&image, NULL, &size, 0, pixels, 0, NULL));
    uint8_t *data = malloc(size);
    assert_non_null(data);
    assert_true(png_image_write_to_memory(&image, data, &size, 0, pixels, 0, NULL));
    return (struct bytes){data, size};
}

void support_write(const char *folder, const char *name, const void *data, size_t size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(cvy_make_directories(path), CVY_OK);
    *slash = '/';
    test_file_write(path, data, size);
}

void support_write_jpeg(const char *folder, const char *name, uint64_t seed, int width, int height)
{
    struct bytes bytes = support_any_jpeg(seed, width, height);
    support_write(folder, name, bytes.data, bytes.size);
    free(bytes.data);
}

void support_write_classes(int train, int val)
{
    static const char *const classes[] = {"ape", "bee", "cat"};
    char name[64];

    for (int i = 0; i < train + val; i++) {
        snprintf(name, sizeof name, "images/%s/%s/%02d.jpg", i < train ? "train" : "val", classes[i % 3], i);
        support_write_jpeg(support_folder, name, (uint64_t)i, 30 + i % 25, 50 - i % 25);
    }
}

struct cvy_decoder *support_decoder;

int support_decoder_set_up(void **state)
{
    return cvy_decoder_new(&support_decoder) == CVY_OK ? 0 : -1;
}

int support_decoder_tear_down(void **state)
{
    cvy_decoder_free(support_decoder);
    support_decoder = NULL;
    return 0;
}
