/* Parts of JPEGs against the whole, at full size and at the lower resolutions of --decode fast; and how far images
 * decoded at a lower resolution are from exact ones. Files: drawn here in every sampling, with restart intervals and
 * in several scans; and those of CONVOY_TEST_DATA where it is set. The first argument is the number of crops. */
#include "base/file.h"
#include "data/set/dataset.h"
#include "data/transform/transform.h"
#include "support_images.h"
#include "support_test.h"

enum { MAX_PIXELS = 2 << 20 }; /* larger sample files are skipped: four whole decodes of each are kept */

static long wanted = 6000;

/* Begin to read a file at eighths of its size. */
static void start(const char *name, const struct bytes *file, int eighths, int32_t *width, int32_t *height)
{
    assert_int_equal(cvy_decoder_start(support_decoder, name, file->data, file->size, width, height), CVY_OK);
    if (eighths < 8)
        assert_int_equal(cvy_decoder_scale(support_decoder, eighths, width, height), CVY_OK);
}

/* `count` random parts at one resolution equal those of the whole. */
static void compare(const char *name, const struct bytes *file, int eighths, struct cvy_rng *rng, int count)
{
    int32_t width, height, w, h;
    const uint8_t *pixels;
    size_t stride;

    cvy_decoder_set_speed(support_decoder, CVY_JPEG_LIBRARY);
    start(name, file, eighths, &width, &height);
    const size_t row = (size_t)width * 3;
    assert_int_equal(cvy_decoder_read(support_decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride),
                     CVY_OK);
    uint8_t *all = malloc(row * (size_t)height);
    assert_non_null(all);
    for (int32_t y = 0; y < height; y++)
        memcpy(all + (size_t)y * row, pixels + (size_t)y * stride, row);
    cvy_decoder_set_speed(support_decoder, CVY_JPEG_EXACT);
    for (int i = 0; i < count; i++) {
        struct cvy_box need = {.x = (int32_t)cvy_rng_below(rng, (uint32_t)width),
                               .y = (int32_t)cvy_rng_below(rng, (uint32_t)height)};
        need.width = 1 + (int32_t)cvy_rng_below(rng, (uint32_t)(width - need.x));
        need.height = 1 + (int32_t)cvy_rng_below(rng, (uint32_t)(height - need.y));
        start(name, file, eighths, &w, &h);
        assert_int_equal(cvy_decoder_read(support_decoder, &need, &pixels, &stride), CVY_OK);
        for (int32_t y = 0; y < need.height; y++)
            if (memcmp(pixels + (size_t)y * stride, all + (size_t)(need.y + y) * row + (size_t)need.x * 3,
                       (size_t)need.width * 3) != 0)
                fail_msg("%s at %d/8: row %d of the part %d,%d %d x %d differs", name, eighths, y, need.x, need.y,
                         need.width, need.height);
    }
    free(all);
}

/* Random parts of one file, at full size and where it can be at the others. */
static long compare_file(const char *name, const struct bytes *file, struct cvy_rng *rng, int count)
{
    int32_t width, height;
    long done = 2 * count;

    if (cvy_decoder_start(support_decoder, name, file->data, file->size, &width, &height) != CVY_OK)
        return 0; /* damaged on purpose */
    const bool scales = cvy_decoder_can_scale(support_decoder);
    compare(name, file, 8, rng, 2 * count);
    for (int eighths = 4; scales && eighths > 0; eighths /= 2, done += count)
        compare(name, file, eighths, rng, count);
    return done;
}

/* There are kernels for halves; nothing else is offered. */
static void other_resolutions_are_refused(void **state)
{
    struct bytes file = support_any_jpeg(1, 40, 30);
    int32_t width, height;

    for (int32_t eighths = -1; eighths < 18; eighths++) {
        const bool half = eighths == 1 || eighths == 2 || eighths == 4 || eighths == 8;
        assert_int_equal(cvy_decoder_start(support_decoder, "x", file.data, file.size, &width, &height), CVY_OK);
        assert_int_equal(cvy_decoder_scale(support_decoder, eighths, &width, &height), half ? CVY_OK : CVY_FAILED);
        if (half)
            assert_true(width == 40 * eighths / 8 && height == (30 * eighths + 7) / 8);
    }
    free(file.data);
}

static void parts_of_drawn_files(void **state)
{
    long done = 0;

    for (uint32_t round = 0; done < wanted / 2; round++) {
        struct cvy_rng rng = cvy_rng_new(1, CVY_RNG_TEST, 11, round);
        const struct jpeg_kind *kind = &support_jpeg_kinds[round % SUPPORT_JPEG_KINDS];
        const int width = 1 + (int)cvy_rng_below(&rng, 300), height = 1 + (int)cvy_rng_below(&rng, 200);
        uint8_t *pixels = support_noise(&rng, width, height, kind->components);
        struct bytes file = support_jpeg(kind, pixels, width, height);
        done += compare_file(kind->name, &file, &rng, 10);
        free(pixels);
        free(file.data);
    }
    print_message("%ld crops of drawn files\n", done);
}

/* All values of the quantisation tables of one byte each become `value`. */
static void requantise(struct bytes *file, uint8_t value)
{
    for (size_t i = 2; file->data[i + 1] != 0xDA; i += 2 + ((size_t)file->data[i + 2] << 8 | file->data[i + 3])) {
        const size_t end = i + 2 + ((size_t)file->data[i + 2] << 8 | file->data[i + 3]);

        for (size_t table = i + 4; file->data[i + 1] == 0xDB && table < end; table += 65)
            memset(file->data + table + 1, value, 64);
    }
}

/* Coefficients that no encoder writes: sums leave 16 bits, and libjpeg's wrap in ways of their own. */
static void parts_of_overflowing_files(void **state)
{
    for (uint32_t round = 0; round < 120; round++) {
        struct cvy_rng rng = cvy_rng_new(1, CVY_RNG_TEST, 14, round);
        const struct jpeg_kind *kind = &support_jpeg_kinds[round % 7];
        const int width = 1 + (int)cvy_rng_below(&rng, 90), height = 1 + (int)cvy_rng_below(&rng, 90);
        uint8_t *pixels = support_noise(&rng, width, height, kind->components);
        struct bytes file = support_jpeg(kind, pixels, width, height);
        requantise(&file, (uint8_t)(20 + cvy_rng_below(&rng, 236)));
        assert_true(compare_file(kind->name, &file, &rng, 3) > 0);
        free(pixels);
        free(file.data);
    }
}

/* Every JPEG below CONVOY_TEST_DATA; with few crops wanted, some of them. */
static void parts_of_sample_files(void **state)
{
    const char *folder = getenv("CONVOY_TEST_DATA");
    struct cvy_arena arena = {0};
    const char **paths;
    size_t count;
    long done = 0;

    if (!folder) {
        print_message("CONVOY_TEST_DATA is not set\n");
        skip();
    }
    assert_int_equal(cvy_list_images(&folder, 1, &arena, &paths, &count), CVY_OK);
    assert_true(count > 0);
    const long files = wanted / 2 / 15 < (long)count ? wanted / 2 / 15 : (long)count;
    const int each = (int)((wanted / 2 + 5 * files - 1) / (5 * files)); /* twice in full, at 4/8, 2/8, 1/8 */
    for (long i = 0; done < wanted / 2; i++) { /* more rounds where files have fewer resolutions, or are skipped */
        assert_true(i < 10 * files);
        const char *path = paths[(size_t)(i % files) * count / (size_t)files];
        struct cvy_rng rng = cvy_rng_new(2, CVY_RNG_TEST, 12, (uint32_t)i);
        struct bytes file;
        void *data;
        int32_t width, height;
        assert_int_equal(cvy_file_read(path, 1 << 28, &data, &file.size), CVY_OK);
        file.data = data;
        if (cvy_decoder_start(support_decoder, path, file.data, file.size, &width, &height) == CVY_OK &&
            (int64_t)width * height <= MAX_PIXELS)
            done += compare_file(path, &file, &rng, each);
        cvy_free(data);
    }
    print_message("%ld crops of %ld files\n", done, files);
    assert_true(done >= wanted / 2);
    cvy_arena_release(&arena);
}

/* ---- the distance of --decode fast ---- */

/* The mean absolute difference of a training image in grey levels. Negative: decoded in full anyway. */
static double distance(const struct bytes *file, int32_t size, uint32_t index)
{
    struct cvy_transform transform = {.training = true, .size = size};
    const struct cvy_encoded encoded = {.name = "x", .data = file->data, .size = file->size};
    const struct cvy_rng start_rng = cvy_rng_new(3, CVY_RNG_TEST, 13, index);
    struct cvy_rng rng = start_rng;
    struct cvy_resizer resizer = {0};
    uint8_t *exact = malloc(cvy_transform_bytes(&transform)), *fast = malloc(cvy_transform_bytes(&transform));
    int32_t width, height;
    double sum = 0;

    assert_true(exact && fast);
    assert_int_equal(cvy_transform_image(&transform, support_decoder, &resizer, &encoded, &rng, exact), CVY_OK);
    rng = start_rng;
    assert_int_equal(cvy_decoder_start(support_decoder, "x", file->data, file->size, &width, &height), CVY_OK);
    const struct cvy_box crop = cvy_random_resized_crop(&rng, 0.08, width, height);
    const bool scaled = cvy_decoder_can_scale(support_decoder) &&
                        fmin(crop.width, crop.height) >= 3 * size; /* 1.5 times at half the size */
    rng = start_rng;
    transform.fast = true;
    assert_int_equal(cvy_transform_image(&transform, support_decoder, &resizer, &encoded, &rng, fast), CVY_OK);
    for (int32_t i = 0; i < size * size * 3; i++)
        sum += abs(fast[i] - exact[i]);
    cvy_resizer_release(&resizer);
    free(exact);
    free(fast);
    if (!scaled)
        assert_true(sum == 0);
    return scaled ? sum / (size * size * 3) : -1;
}

/* A picture of slow waves, in which every sampling can be right: (height, width, 3). */
static uint8_t *waves(int width, int height, int components)
{
    uint8_t *pixels = malloc((size_t)width * (size_t)height * (size_t)components);

    assert_non_null(pixels);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < components; c++)
                pixels[(y * width + x) * components + c] =
                    (uint8_t)lround(127.5 + 100 * sin(x * 0.02 * (c + 1)) * cos(y * 0.02 * (3 - c)));
    return pixels;
}

/* Nothing is moved: of slow waves, a shift by a tenth of a pixel of the result would be seen. */
static void lower_resolutions_stay_in_place(void **state)
{
    enum { WIDTH = 509, HEIGHT = 383 };
    int compared = 0;

    for (size_t k = 0; k < SUPPORT_JPEG_KINDS; k++) {
        uint8_t *pixels = waves(WIDTH, HEIGHT, support_jpeg_kinds[k].components);
        struct bytes file = support_jpeg(&support_jpeg_kinds[k], pixels, WIDTH, HEIGHT);
        for (uint32_t i = 0; i < 12; i++) {
            /* 0.5 of rounding and quantisation; a shift by a tenth of a pixel of the result adds as much. */
            const double difference = distance(&file, i % 2 ? 32 : 64, i);
            if (difference > 0.6)
                fail_msg("%s: %.2f grey levels", support_jpeg_kinds[k].name, difference);
            compared += difference >= 0;
        }
        free(pixels);
        free(file.data);
    }
    assert_true(compared > 40);
}

/* Photographs: below one grey level on average, for each resolution that is used. */
static void photographs_differ_by_less_than_a_level(void **state)
{
    const char *data = getenv("CONVOY_TEST_DATA");
    char *folder = data ? cvy_path_join(data, "imagenet-samples") : NULL;
    struct cvy_arena arena = {0};
    const char **paths;
    size_t count;

    if (!folder || !cvy_path_is_directory(folder)) {
        cvy_free(folder);
        print_message("no imagenet-samples in CONVOY_TEST_DATA\n");
        skip();
    }
    assert_int_equal(cvy_list_images((const char *const *)&folder, 1, &arena, &paths, &count), CVY_OK);
    for (int32_t size = 48; size <= 112; size *= 2, size -= size == 96 ? -16 : 0) {
        double sum = 0;
        int images = 0;
        for (size_t i = 0; i < count; i++) {
            struct bytes file;
            void *bytes;
            assert_int_equal(cvy_file_read(paths[i], 1 << 28, &bytes, &file.size), CVY_OK);
            file.data = bytes;
            for (uint32_t crop = 0; crop < 4; crop++) {
                const double difference = distance(&file, size, (uint32_t)i * 4 + crop);
                images += difference >= 0;
                sum += difference >= 0 ? difference : 0;
            }
            cvy_free(bytes);
        }
        print_message("size %d: %d images, %.3f grey levels\n", size, images, sum / images);
        assert_true(images > 0 && sum / images < 1);
    }
    cvy_arena_release(&arena);
    cvy_free(folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_drawn_files),
        cmocka_unit_test(other_resolutions_are_refused),
        cmocka_unit_test(parts_of_overflowing_files),
        cmocka_unit_test(parts_of_sample_files),
        cmocka_unit_test(lower_resolutions_stay_in_place),
        cmocka_unit_test(photographs_differ_by_less_than_a_level),
    };
    if (argc > 1)
        wanted = atol(argv[1]);
    return cmocka_run_group_tests(tests, support_decoder_set_up, support_decoder_tear_down);
}
