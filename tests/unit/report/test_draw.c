/* Boxes on pictures, and pictures in files. */
#include "base/file.h"
#include "report/drawing/draw.h"
#include "support_folder.h"
#include "support_test.h"

static struct cvy_picture grey(int32_t width, int32_t height)
{
    struct cvy_picture picture = {.width = width, .height = height, .format = CVY_IMAGE_PNG};

    picture.pixels = cvy_calloc((size_t)width * 3, (size_t)height);
    assert_non_null(picture.pixels);
    memset(picture.pixels, 127, (size_t)width * 3 * (size_t)height);
    return picture;
}

static const uint8_t *pixel(const struct cvy_picture *picture, int32_t x, int32_t y)
{
    return picture->pixels + ((size_t)y * (size_t)picture->width + (size_t)x) * 3;
}

static bool changed(const struct cvy_picture *picture, int32_t x, int32_t y)
{
    const uint8_t *p = pixel(picture, x, y);

    return p[0] != 127 || p[1] != 127 || p[2] != 127;
}

static bool is_colour(const uint8_t *p, int32_t label)
{
    const struct cvy_label_colour c = cvy_label_colour(label);

    return fabs(p[0] - 255 * c.red) < 1.5 && fabs(p[1] - 255 * c.green) < 1.5 && fabs(p[2] - 255 * c.blue) < 1.5;
}

static void lines_and_letters(void **state)
{
    struct cvy_picture picture = grey(640, 480);
    const struct cvy_drawn_box box = {100, 120, 200, 150, 3, "otter", 0.87};
    int letters = 0;

    assert_int_equal(cvy_draw_boxes(&picture, &box, 1), CVY_OK);
    assert_true(is_colour(pixel(&picture, 200, 120), 3) && is_colour(pixel(&picture, 200, 269), 3));
    assert_true(is_colour(pixel(&picture, 100, 200), 3) && is_colour(pixel(&picture, 299, 200), 3));
    assert_false(changed(&picture, 200, 200)); /* inside */
    assert_false(changed(&picture, 90, 200));
    assert_false(changed(&picture, 400, 50));
    for (int32_t x = 100; x < 200; x++) /* the label stands above the box: neither grey nor its background */
        letters += changed(&picture, x, 110) && !is_colour(pixel(&picture, x, 110), 3);
    assert_true(letters > 10);
    cvy_picture_release(&picture);
}

/* A label stays within the picture wherever the box is, and gives way to a better one. */
static void labels_inside(void **state)
{
    const struct cvy_drawn_box boxes[] = {
        {0, 0, 640, 480, 1, "whole picture", 0.9},
        {600, -20, 100, 50, 2, "beyond a corner", 0.8},
        {-500, 440, 510, 80, 4, "beyond another corner", 0.7},
        {0, 0, 640, 480, 5, "the same place", 0.6},
    };
    struct cvy_picture picture = grey(640, 480);
    int top = 0, second = 0;

    assert_int_equal(cvy_draw_boxes(&picture, boxes, 4), CVY_OK);
    for (int32_t x = 0; x < 640; x++) {
        top += changed(&picture, x, 8);
        second += changed(&picture, x, 470);
    }
    assert_true(top > 90 && second > 90); /* a label there, not lines alone */
    cvy_picture_release(&picture);
}

static void odd_names(void **state)
{
    char name[1000];
    const struct cvy_drawn_box boxes[] = {
        {10, 10, 50, 50, 0, "\xff\xfe broken \xc3", 0.5},
        {20, 40, 50, 50, -7, NULL, -1},
        {20, 60, 50, 50, 2147483647, name, 1},
        {20, 80, 0, 0, 2, "line\nfeed \xe2\x82\xac", 0},
        {-1e30, -1e30, 2e30, 2e30, 2, "", 0.5},
    };
    const int sizes[][2] = {{1, 1}, {3, 200}, {200, 3}, {96, 96}};

    memset(name, 'w', sizeof name);
    name[sizeof name - 1] = '\0';
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct cvy_picture picture = grey(sizes[i][0], sizes[i][1]);
        assert_int_equal(cvy_draw_boxes(&picture, boxes, 5), CVY_OK);
        cvy_picture_release(&picture);
    }
    struct cvy_picture picture = grey(8, 8);
    const struct cvy_drawn_box bad = {NAN, 0, 1, 1, 0, "nan", 0.5};
    assert_int_equal(cvy_draw_boxes(&picture, &bad, 1), CVY_FAILED);
    assert_int_equal(cvy_draw_boxes(&picture, NULL, 0), CVY_OK); /* nothing changes it */
    for (int32_t i = 0; i < 64; i++)
        assert_false(changed(&picture, i % 8, i / 8));
    cvy_picture_release(&picture);
}

/* A picture is drawn in pieces where it is large: the seams at multiples of 4096 are not seen. */
static void wide_picture(void **state)
{
    struct cvy_picture picture = grey(9000, 40);
    const struct cvy_drawn_box box = {-100, 5, 9200, 30, 1, NULL, -1};

    assert_int_equal(cvy_draw_boxes(&picture, &box, 1), CVY_OK);
    for (int32_t x = 15; x < 8985; x++)
        assert_memory_equal(pixel(&picture, x, 14), pixel(&picture, 20, 14), 3);
    assert_true(changed(&picture, 4096, 14));
    cvy_picture_release(&picture);
}

/* Every label's letters can be read on its colour: a contrast of 4.5 at least, as WCAG 2 asks for. */
static void contrast(void **state)
{
    for (int32_t label = 0; label < 2000; label++) {
        const struct cvy_label_colour c = cvy_label_colour(label);
        const double part[3] = {c.red, c.green, c.blue}, weight[3] = {0.2126, 0.7152, 0.0722};
        double l = 0;
        for (int i = 0; i < 3; i++) {
            assert_true(part[i] >= 0 && part[i] <= 1);
            l += weight[i] * (part[i] <= 0.04045 ? part[i] / 12.92 : pow((part[i] + 0.055) / 1.055, 2.4));
        }
        assert_true((c.black_text ? (l + 0.05) / 0.05 : 1.05 / (l + 0.05)) >= 4.5);
    }
}

/* What is written is what is read: PNG exactly, JPEG closely. */
static void files(void **state)
{
    const char *folder = *state, *path = test_path(folder, "new/folder/picture");
    struct cvy_decoder *decoder;
    struct cvy_picture back;

    assert_int_equal(cvy_decoder_new(&decoder), CVY_OK);
    for (int format = 0; format < 2; format++) {
        struct cvy_picture picture = {.width = 61, .height = 47, .format = format ? CVY_IMAGE_JPEG : CVY_IMAGE_PNG};
        double difference = 0;
        void *data;
        size_t size;
        picture.pixels = malloc(61 * 47 * 3);
        assert_non_null(picture.pixels);
        for (int i = 0; i < 61 * 47; i++) { /* smooth: what JPEG keeps */
            picture.pixels[3 * i] = (uint8_t)(4 * (i % 61));
            picture.pixels[3 * i + 1] = (uint8_t)(5 * (i / 61));
            picture.pixels[3 * i + 2] = 99;
        }
        assert_int_equal(cvy_picture_write(&picture, path), CVY_OK);
        assert_int_equal(cvy_file_read(path, 1 << 20, &data, &size), CVY_OK);
        assert_int_equal(cvy_picture_decode(decoder, path, data, size, true, &back), CVY_OK);
        assert_int_equal(back.format, picture.format);
        assert_true(back.width == 61 && back.height == 47);
        for (int i = 0; i < 61 * 47 * 3; i++)
            difference += abs(back.pixels[i] - picture.pixels[i]);
        assert_true(format ? difference / (61 * 47 * 3) < 3 : difference == 0);
        cvy_picture_release(&back);
        cvy_free(data);
        free(picture.pixels);
    }
    cvy_decoder_free(decoder);
    struct cvy_picture picture = grey(4, 4);
    assert_int_equal(cvy_picture_write(&picture, "/proc/none/picture.png"), CVY_CANNOT_CREATE);
    cvy_picture_release(&picture);
}

RUN_TESTS(NULL, NULL, TEST(lines_and_letters), TEST(labels_inside), TEST(odd_names), TEST(wide_picture), TEST(contrast),
          IN_FOLDER(files))
