/* Pixels of every format and stride become packed RGB; what cannot be is refused. */
#include "infer/pixels.h"

#include "support_test.h"

static const struct cvy_pixels image = {.size = sizeof image, .width = 2, .height = 2};

static void expect_rgb(enum cvy_pixel_format format, const void *data, size_t stride, const char *wanted)
{
    struct cvy_pixel_bytes buffer = {0};
    struct cvy_encoded encoded;
    struct cvy_pixels pixels = image;

    pixels.format = format;
    pixels.data = data;
    pixels.stride = stride;
    assert_int_equal(cvy_pixels_encode(&pixels, "x", &buffer, &encoded), CVY_OK);
    assert_int_equal(encoded.size, strlen("P6\n2 2\n255\n") + 12);
    assert_memory_equal(encoded.data, "P6\n2 2\n255\n", strlen("P6\n2 2\n255\n"));
    assert_memory_equal((const char *)encoded.data + encoded.size - 12, wanted, 12);
    cvy_pixel_bytes_release(&buffer);
}

static void formats(void **state)
{
    (void)state;
    expect_rgb(CVY_PIXELS_RGB, "abcdefghijkl", 0, "abcdefghijkl");
    expect_rgb(CVY_PIXELS_RGB, "abcdef..ghijkl", 8, "abcdefghijkl"); /* nothing after the last row is read */
    expect_rgb(CVY_PIXELS_BGR, "cbafedihglkj", 0, "abcdefghijkl");
    expect_rgb(CVY_PIXELS_RGBA, "abc.def.ghi.jkl.", 0, "abcdefghijkl");
    expect_rgb(CVY_PIXELS_BGRA, "cba.fed.~ihg.lkj.", 9, "abcdefghijkl");
    expect_rgb(CVY_PIXELS_GREY, "ab.cd", 3, "aaabbbcccddd");
}

static void refused(void **state)
{
    struct cvy_pixel_bytes buffer = {0};
    struct cvy_encoded encoded;
    struct cvy_pixels wrong[6];

    (void)state;
    for (int i = 0; i < 6; i++) {
        wrong[i] = image;
        wrong[i].data = "abcdefghijkl";
    }
    wrong[0].size = 0;
    wrong[1].data = NULL;
    wrong[2].format = (enum cvy_pixel_format)5;
    wrong[3].height = -1;
    wrong[4].width = wrong[4].height = 1 << 30;
    wrong[5].stride = 5;
    for (int i = 0; i < 6; i++)
        assert_int_equal(cvy_pixels_encode(&wrong[i], "x", &buffer, &encoded), CVY_USAGE);
    assert_null(buffer.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(formats), cmocka_unit_test(refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
