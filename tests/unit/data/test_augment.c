/* AutoAugment: what it draws, and each operation on a picture small enough to follow. The parity tests compare all of
 * them with Pillow, byte for byte. */
#include "data/transform/augment.h"
#include "data/transform/augment_ops.h"
#include "data/transform/color_jitter.h"
#include "support_test.h"

enum { SIZE = 4, BYTES = SIZE * SIZE * 3 };

/* Pixel (x, y) is (16 * (4 * y + x), 200, 10 * x). */
static void draw(uint8_t *image)
{
    for (int y = 0; y < SIZE; y++)
        for (int x = 0; x < SIZE; x++, image += 3) {
            image[0] = (uint8_t)(16 * (4 * y + x));
            image[1] = 200;
            image[2] = (uint8_t)(10 * x);
        }
}

static void apply(enum cvy_augment_op op, int level, int sign, uint8_t *image)
{
    const struct cvy_augmentation one = {op, level, sign, true};
    uint8_t scratch[BYTES];
    draw(image);
    cvy_augment_apply(&one, image, SIZE, scratch);
}

static void assert_pixel(const uint8_t *image, int x, int y, int red, int green, int blue)
{
    const uint8_t *at = image + (y * SIZE + x) * 3;
    assert_int_equal(at[0], red);
    assert_int_equal(at[1], green);
    assert_int_equal(at[2], blue);
}

static void tables(void **state)
{
    uint8_t image[BYTES];
    apply(CVY_AUGMENT_INVERT, 9, 1, image);
    assert_pixel(image, 1, 2, 255 - 144, 55, 245);
    apply(CVY_AUGMENT_POSTERIZE, 10, 1, image); /* 4 bits */
    assert_pixel(image, 1, 2, 144, 192, 0);
    assert_pixel(image, 3, 2, 176, 192, 16);
    apply(CVY_AUGMENT_POSTERIZE, 0, 1, image); /* none */
    assert_pixel(image, 1, 2, 0, 0, 0);
    apply(CVY_AUGMENT_SOLARIZE, 5, 1, image); /* from 128 */
    assert_pixel(image, 1, 2, 111, 55, 10);
    assert_pixel(image, 3, 1, 112, 55, 30);
    apply(CVY_AUGMENT_SOLARIZE, 10, 1, image); /* from 256: never */
    assert_pixel(image, 1, 2, 144, 200, 10);
    apply(CVY_AUGMENT_SOLARIZE_ADD, 10, 1, image); /* 110, below 128 */
    assert_pixel(image, 1, 2, 144, 200, 120);
    assert_pixel(image, 3, 1, 222, 200, 140);
    apply(CVY_AUGMENT_BRIGHTNESS, 0, 1, image); /* a tenth */
    assert_pixel(image, 1, 2, 14, 20, 1);
    apply(CVY_AUGMENT_AUTOCONTRAST, 2, 1, image); /* 0..240, one value, 0..30 */
    assert_pixel(image, 1, 2, 153, 200, 85);
    apply(CVY_AUGMENT_EQUALIZE, 2, 1, image); /* 16 pixels are too few for a step: as it was */
    assert_pixel(image, 1, 2, 144, 200, 10);
}

static void geometry(void **state)
{
    uint8_t image[BYTES], plain[BYTES];
    draw(plain);
    apply(CVY_AUGMENT_TRANSLATE_X, 1, 1, image); /* by 25 pixels: nothing is left */
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(image[i], 128);
    for (int op = 0; op <= CVY_AUGMENT_ROTATE; op++) { /* by nothing */
        apply((enum cvy_augment_op)op, 0, -1, image);
        assert_memory_equal(image, plain, BYTES);
    }
    /* By 0.3 of a row each: row 0 lies 0.15 to the right, and the last row 1.05: its last pixel comes from outside. */
    apply(CVY_AUGMENT_SHEAR_X, 10, 1, image);
    assert_pixel(image, 3, 3, 128, 128, 128);
    assert_pixel(image, 2, 3, 240, 200, 30);   /* 1.05 further: after the last centre; Pillow says so too */
    apply(CVY_AUGMENT_SHEAR_Y, 10, -1, image); /* columns come from above */
    assert_pixel(image, 3, 0, 128, 128, 128);
    assert_pixel(image, 3, 2, 105, 200, 30);
    apply(CVY_AUGMENT_ROTATE, 10, 1, image); /* by 30 degrees: the middle stays, corners come from outside */
    assert_pixel(image, 0, 0, 128, 128, 128);
    apply(CVY_AUGMENT_ROTATE, 2, 1, image); /* 6 degrees are less than half a pixel here */
    assert_memory_equal(image, plain, BYTES);
}

/* The draws after those of a pair do not depend on the pair; the same stream gives the same image. */
static void draws_are_reproducible(void **state)
{
    uint8_t image[BYTES], again[BYTES], scratch[BYTES];
    int changed = 0;
    for (uint32_t i = 0; i < 200; i++) {
        struct cvy_rng a = cvy_rng_new(3, CVY_RNG_TEST, 0, i), b = a;
        struct cvy_augmentation pair[2];
        draw(image);
        draw(again);
        cvy_autoaugment(&a, image, SIZE, scratch);
        cvy_autoaugment_draw(&b, pair);
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_equal(a.counter[0], 2); /* 7 numbers of blocks of four */
        assert_int_equal(a.used, 3);
        for (int k = 0; k < 2; k++) {
            assert_true(pair[k].op < CVY_AUGMENT_OPS && (pair[k].sign == 1 || pair[k].sign == -1));
            assert_in_range(pair[k].level, 0, CVY_AUGMENT_LEVELS - 1);
            if (pair[k].applied)
                cvy_augment_apply(&pair[k], again, SIZE, scratch);
        }
        assert_memory_equal(image, again, BYTES);
        draw(again);
        changed += memcmp(image, again, BYTES) != 0;
    }
    assert_in_range(changed, 60, 190);
}

/* One change alone is that of the drawn factor; of two, the order is drawn too. */
static void color_jitter(void **state)
{
    static const struct cvy_color_jitter alone[] = {
        {.brightness = 0.4}, {.contrast = 0.7}, {.saturation = 1}, {.hue = 0.3}};
    const struct cvy_color_jitter both = {.brightness = 0.5, .contrast = 0.9};
    uint8_t image[BYTES], expected[BYTES], other[BYTES];
    int first = 0, second = 0;
    for (uint32_t i = 0; i < 100; i++) {
        struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_TEST, 1, i), same = rng;
        const struct cvy_color_jitter *jitter = &alone[i % 4];
        draw(image);
        draw(expected);
        cvy_color_jitter_bytes(jitter, &rng, image, SIZE);
        for (uint32_t n = 4; n > 1; n--)
            (void)cvy_rng_below(&same, n);
        if (i % 4 == 0)
            cvy_enhance_brightness(expected, SIZE, cvy_rng_range(&same, 0.6, 1.4));
        else if (i % 4 == 1)
            cvy_enhance_contrast(expected, SIZE, cvy_rng_range(&same, 1 - 0.7, 1.7));
        else if (i % 4 == 2)
            cvy_enhance_color(expected, SIZE, cvy_rng_range(&same, 0, 2));
        else
            cvy_turn_hue(expected, SIZE, cvy_rng_range(&same, -0.3, 0.3));
        assert_memory_equal(image, expected, BYTES);
        assert_memory_equal(&rng, &same, sizeof rng);

        rng = same = cvy_rng_new(5, CVY_RNG_TEST, 2, i);
        draw(image);
        cvy_color_jitter_bytes(&both, &rng, image, SIZE);
        for (uint32_t n = 4; n > 1; n--)
            (void)cvy_rng_below(&same, n);
        const double brightness = cvy_rng_range(&same, 0.5, 1.5), contrast = cvy_rng_range(&same, 1 - 0.9, 1.9);
        draw(expected);
        cvy_enhance_brightness(expected, SIZE, brightness);
        cvy_enhance_contrast(expected, SIZE, contrast);
        draw(other);
        cvy_enhance_contrast(other, SIZE, contrast);
        cvy_enhance_brightness(other, SIZE, brightness);
        first += memcmp(image, expected, BYTES) == 0;
        second += memcmp(image, other, BYTES) == 0;
        assert_true(memcmp(image, expected, BYTES) == 0 || memcmp(image, other, BYTES) == 0);
    }
    assert_true(first >= 25 && second >= 25);
}

RUN_TESTS(NULL, NULL, TEST(tables), TEST(geometry), TEST(draws_are_reproducible), TEST(color_jitter))
