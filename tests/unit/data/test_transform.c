/* The geometry of torchvision's transforms. The pixels are compared with torchvision itself by
 * tests/parity/preprocess.sh. */
#include "data/transform/dali.h"
#include "data/transform/transform.h"
#include "support_images.h"
#include "support_test.h"

static void crops_lie_inside(void **state)
{
    static const int sizes[][2] = {{500, 375}, {375, 500}, {64, 64}, {1, 1}, {3, 2}, {2000, 100}, {7, 900}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (uint32_t i = 0; i < 2000; i++) {
            struct cvy_rng rng = cvy_rng_new(s, CVY_RNG_TEST, 0, i);
            const struct cvy_box box = cvy_random_resized_crop(&rng, 0.08, sizes[s][0], sizes[s][1]);
            assert_true(box.x >= 0 && box.y >= 0 && box.width >= 1 && box.height >= 1);
            assert_true(box.x + box.width <= sizes[s][0] && box.y + box.height <= sizes[s][1]);
        }
}

/* Ten attempts by torchvision's rules and a hundred by DALI's, each with two numbers; then the crop of DALI has a
 * place. */
static void attempts_are_counted(void **state)
{
    struct cvy_rng rng = cvy_rng_new(1, CVY_RNG_TEST, 0, 0), other = rng;
    struct cvy_box box = cvy_random_resized_crop(&rng, 0.08, 100000, 30);

    for (int i = 0; i < 2 * 10; i++)
        (void)cvy_rng_uniform(&other);
    assert_int_equal(cvy_rng_u32(&rng), cvy_rng_u32(&other));
    /* The largest crop with a ratio of 4/3 has 0.44333 of the area, and nearly every attempt asks for more. */
    rng = other;
    box = cvy_dali_crop(&rng, 0.4433F, CVY_DALI_MAX_RATIO, 300, 100);
    assert_true(box.width == 133 && box.height == 100);
    for (int i = 0; i < 2 * 100; i++)
        (void)cvy_rng_uniform(&other);
    (void)cvy_rng_below(&other, 1);
    (void)cvy_rng_below(&other, 300 - 133 + 1);
    assert_int_equal(cvy_rng_u32(&rng), cvy_rng_u32(&other));
    /* TensorFlow's program says 1.33. */
    box = cvy_dali_crop(&rng, 0.05F, CVY_TENSORFLOW_DALI_MAX_RATIO, 100000, 300);
    assert_true(box.width == 399 && box.height == 300);
}

/* --min-crop-area: no crop takes less of the image (less a rounded side), and small ones do come. */
static void the_smallest_crop_can_be_chosen(void **state)
{
    double min = 1;
    for (uint32_t i = 0; i < 5000; i++) {
        struct cvy_rng rng = cvy_rng_new(7, CVY_RNG_TEST, 2, i);
        const struct cvy_box box = cvy_random_resized_crop(&rng, 0.35, 1000, 1000);
        min = fmin(min, (double)box.width * box.height / 1e6);
    }
    assert_true(min > 0.349 && min < 0.36);
}

/* Area uniform in 8..100 %, the logarithm of the ratio uniform in 3/4..4/3, the place uniform in what is left. */
static void crops_are_distributed_as_stated(void **state)
{
    enum { COUNT = 20000 };
    double area = 0, ratio = 0, left = 0, min = 1;
    int wide = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_TEST, 1, i);
        const struct cvy_box box = cvy_random_resized_crop(&rng, 0.08, 1000, 1000);
        const double part = (double)box.width * box.height / 1e6, shape = log((double)box.width / box.height);
        /* Rounding a side of at least 240 pixels moves the ratio by less than 0.5 %. */
        assert_true(fabs(shape) < log(4.0 / 3) + 0.005);
        assert_true(part > 0.079 && part <= 1);
        min = part < min ? part : min;
        area += part;
        ratio += shape;
        wide += box.width > box.height;
        left += box.width < 1000 ? (double)box.x / (1000 - box.width) : 0.5;
    }
    /* An area A is taken when neither side passes the image: |log ratio| <= -log A, which has the probability below.
     * The bounds are five standard errors of the mean wide. */
    double expected = 0, weight = 0;
    for (double a = 0.08; a < 1; a += 1e-5) {
        const double taken = fmin(1, -log(a) / log(4.0 / 3));
        expected += a * taken;
        weight += taken;
    }
    expected /= weight;
    assert_true(fabs(area / COUNT - expected) < 5 * 0.26 / sqrt(COUNT));
    assert_true(fabs(ratio / COUNT) < 5 * 0.167 / sqrt(COUNT));
    assert_true(fabs((double)wide / COUNT - 0.5) < 5 * 0.5 / sqrt(COUNT));
    assert_true(fabs(left / COUNT - 0.5) < 5 * 0.29 / sqrt(COUNT) + 0.002);
    assert_true(min < 0.081);
}

/* Ten attempts cannot succeed on a line of pixels: its centre with the nearest allowed ratio is taken. */
static void elongated_images_fall_back(void **state)
{
    struct cvy_rng rng = cvy_rng_new(0, CVY_RNG_TEST, 2, 0);
    struct cvy_box box = cvy_random_resized_crop(&rng, 0.08, 100000, 30);
    assert_int_equal(box.width, 40); /* 30 * 4 / 3 */
    assert_int_equal(box.height, 30);
    assert_int_equal(box.x, (100000 - 40) / 2);
    assert_int_equal(box.y, 0);
    box = cvy_random_resized_crop(&rng, 0.08, 30, 100001);
    assert_int_equal(box.width, 30);
    assert_int_equal(box.height, 40); /* 30 / (3 / 4) */
    assert_int_equal(box.x, 0);
    assert_int_equal(box.y, (100001 - 40) / 2);
}

static void usual_margins(void **state)
{
    static const int32_t rows[][2] = {{224, 256}, {32, 37}, {48, 55}, {64, 73}, {96, 110}, {160, 183}, {288, 329}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(cvy_usual_resize(rows[i][0]), rows[i][1]);
}

static void centre_crops(void **state)
{
    static const struct {
        int width, height, resize, size;
        struct cvy_center_crop expected; /* by hand from torchvision's formulas */
    } cases[] = {
        {500, 375, 256, 224, {341, 256, {58, 16, 224, 224}, 0, 0}}, /* 117 / 2 = 58.5: to even */
        {375, 500, 256, 224, {256, 341, {16, 58, 224, 224}, 0, 0}},
        {100, 100, 227, 224, {227, 227, {2, 2, 224, 224}, 0, 0}}, /* 1.5: to even */
        {100, 100, 225, 224, {225, 225, {0, 0, 224, 224}, 0, 0}}, /* 0.5: to even */
        {7, 3, 64, 64, {149, 64, {42, 0, 64, 64}, 0, 0}},         /* 64 * 7 / 3 = 149.3; 42.5: to even */
        {30, 30, 20, 31, {20, 20, {0, 0, 20, 20}, 5, 5}},         /* padded with 5 before, 6 after */
        {60, 20, 20, 31, {60, 20, {14, 0, 31, 20}, 0, 5}},        /* 14.5: to even */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cvy_center_crop crop;
        assert_int_equal(cvy_center_crop(cases[i].resize, cases[i].size, cases[i].width, cases[i].height, "x", &crop),
                         CVY_OK);
        assert_memory_equal(&crop, &cases[i].expected, sizeof crop);
    }
    struct cvy_center_crop crop;
    assert_fails(cvy_center_crop(256, 224, 178000000, 1, "line.png", &crop), CVY_BAD_DATA, "\"line.png\"");
}

/* DALI's: to the nearest pixel, halves away from zero. */
static void centre_crops_of_dali(void **state)
{
    static const struct {
        int width, height, resize, size;
        struct cvy_center_crop expected;
    } cases[] = {
        {500, 375, 256, 224, {341, 256, {59, 16, 224, 224}, 0, 0}}, /* 117 / 2 = 58.5: up */
        {375, 500, 256, 224, {256, 341, {16, 59, 224, 224}, 0, 0}},
        {100, 100, 225, 224, {225, 225, {1, 1, 224, 224}, 0, 0}}, /* 0.5: up */
        {7, 4, 64, 64, {112, 64, {24, 0, 64, 64}, 0, 0}},
        {5, 3, 64, 64, {107, 64, {22, 0, 64, 64}, 0, 0}}, /* 64 * 5 / 3 = 106.7; 21.5: up */
        {30, 30, 20, 31, {20, 20, {0, 0, 20, 20}, 5, 5}}, /* padded, where DALI refuses */
        {60, 20, 20, 31, {60, 20, {15, 0, 31, 20}, 0, 5}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cvy_center_crop crop;
        assert_int_equal(
            cvy_dali_center_crop(cases[i].resize, cases[i].size, cases[i].width, cases[i].height, "x", &crop), CVY_OK);
        assert_memory_equal(&crop, &cases[i].expected, sizeof crop);
    }
    struct cvy_center_crop crop;
    assert_int_equal(cvy_dali_center_crop(256, 224, 178000000, 1, "line.png", &crop), CVY_BAD_DATA);
}

/* Crops of DALI lie in the image, have 8 % of it or more and a ratio of 3/4 to 4/3 after rounding, and come to lie
 * everywhere; of what is too elongated they are the largest with the nearest ratio. */
static void crops_of_dali(void **state)
{
    struct cvy_rng rng = cvy_rng_new(0, CVY_RNG_TEST, 7, 0);
    double smallest = 1, largest = 0;
    bool corners[4] = {false};
    for (int i = 0; i < 4000; i++) {
        const struct cvy_box box = cvy_dali_crop(&rng, 0.08F, CVY_DALI_MAX_RATIO, 60, 50);
        const double share = box.width * box.height / 3000.0, ratio = (double)box.width / box.height;
        assert_true(box.x >= 0 && box.y >= 0 && box.x + box.width <= 60 && box.y + box.height <= 50);
        assert_true(ratio >= 0.75 - 1e-6 && ratio <= 4.0 / 3 + 1e-6);
        smallest = share < smallest ? share : smallest;
        largest = share > largest ? share : largest;
        corners[0] |= box.x == 0;
        corners[1] |= box.y == 0;
        corners[2] |= box.x + box.width == 60;
        corners[3] |= box.y + box.height == 50;
    }
    assert_true(smallest > 0.07 && smallest < 0.09 && largest > 0.95); /* 0.08 before sides are rounded */
    assert_true(corners[0] && corners[1] && corners[2] && corners[3]);
    struct cvy_box box = cvy_dali_crop(&rng, 0.08F, CVY_DALI_MAX_RATIO, 100000, 30);
    assert_true(box.width == 40 && box.height == 30 && box.y == 0);
    box = cvy_dali_crop(&rng, 0.08F, CVY_DALI_MAX_RATIO, 30, 100001);
    assert_true(box.width == 30 && box.height == 40 && box.x == 0);
    box = cvy_dali_crop(&rng, 1.0F, CVY_DALI_MAX_RATIO, 300, 100); /* no crop of all of it has an allowed ratio */
    assert_true(box.width == 133 && box.height == 100);
    box = cvy_dali_crop(&rng, 0.08F, CVY_DALI_MAX_RATIO, 1, 1);
    assert_true(box.width == 1 && box.height == 1);
}

static uint8_t *run(const struct cvy_transform *transform, const struct bytes *file, uint32_t index)
{
    struct cvy_decoder *decoder;
    struct cvy_resizer resizer = {0};
    struct cvy_rng rng = cvy_rng_new(0, CVY_RNG_AUGMENT, 0, index);
    const struct cvy_encoded encoded = {.name = "x", .data = file->data, .size = file->size};
    uint8_t *out = malloc(cvy_transform_bytes(transform));
    assert_non_null(out);
    assert_int_equal(cvy_decoder_new(&decoder), CVY_OK);
    assert_int_equal(cvy_transform_image(transform, decoder, &resizer, &encoded, &rng, out), CVY_OK);
    cvy_decoder_free(decoder);
    cvy_resizer_release(&resizer);
    return out;
}

/* A flat image stays flat, and only the padding is black. */
static void small_images_are_padded(void **state)
{
    uint8_t pixels[10 * 10 * 3];
    struct cvy_transform transform = {.size = 15, .resize = 8};
    memset(pixels, 200, sizeof pixels);
    struct bytes file = support_png(pixels, 10, 10, 3);
    for (int rules = 0; rules < 2; rules++) {
        transform.dali = rules;
        uint8_t *out = run(&transform, &file, 0);
        for (int y = 0; y < 15; y++)
            for (int x = 0; x < 15; x++)
                for (int c = 0; c < 3; c++) /* 8 of 15: 3 before, 4 after */
                    assert_int_equal(out[(y * 15 + x) * 3 + c], x >= 3 && x < 11 && y >= 3 && y < 11 ? 200 : 0);
        free(out);
    }
    free(file.data);
}

/* Where position `i` of `out` reads along a side of `size`: by DALI's default both sides have the shorter one's scale.
 */
static double dali_position(int i, int size, int out, double scale, bool rounded)
{
    return rounded ? (i + 0.5) * size / out - 0.5 : (i + 0.5) * scale + (size - out * scale) / 2 - 0.5;
}

/* DALI's evaluation over noise, against its formula in double; a result may be another level where ours is rounded
 * between the passes. The two scales differ by far more. */
static void evaluation_of_dali(void **state)
{
    enum { WIDTH = 53, HEIGHT = 37, RESIZE = 20, FULL = 29, SIZE = 16 }; /* 53 * 20 / 37 = 28.65 */
    uint8_t pixels[WIDTH * HEIGHT * 3];
    int different = 0;

    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 2654435761U >> 13);
    struct bytes file = support_png(pixels, WIDTH, HEIGHT, 3);
    for (int rounded = 0; rounded < 2; rounded++) {
        const struct cvy_transform transform = {.size = SIZE, .resize = RESIZE, .dali = true, .rounded_scale = rounded};
        uint8_t *out = run(&transform, &file, 0);
        for (int i = 0; i < SIZE * SIZE * 3; i++) {
            double value[2] = {0};
            for (int other = 0; other < 2; other++) {
                const double scale = HEIGHT / (double)RESIZE;
                const double x = dali_position(i / 3 % SIZE + 7, WIDTH, FULL, scale, rounded != other); /* 6.5: up */
                const double y = dali_position(i / 3 / SIZE + 2, HEIGHT, RESIZE, scale, true);
                for (int corner = 0; corner < 4; corner++) {
                    const int column = (int)floor(x) + corner % 2, row = (int)floor(y) + corner / 2;
                    value[other] +=
                        (1 - fabs(x - column)) * (1 - fabs(y - row)) * pixels[(row * WIDTH + column) * 3 + i % 3];
                }
            }
            assert_true(fabs(out[i] - value[0]) < 1.01);
            different += fabs(out[i] - value[1]) > 2;
        }
        free(out);
    }
    assert_true(different > 100);
    free(file.data);
}

static void half_of_the_images_are_flipped(void **state)
{
    /* Dark to light from left to right: the crop's direction shows the flip. */
    uint8_t pixels[32 * 32 * 3];
    const struct cvy_transform transform = {.training = true, .size = 8};
    int flipped = 0;
    for (int i = 0; i < 32 * 32; i++)
        memset(pixels + i * 3, i % 32 * 8, 3);
    struct bytes file = support_png(pixels, 32, 32, 3);
    for (uint32_t i = 0; i < 400; i++) {
        uint8_t *out = run(&transform, &file, i), *again = run(&transform, &file, i);
        assert_memory_equal(out, again, 8 * 8 * 3);
        flipped += out[0] > out[7 * 3];
        free(out);
        free(again);
    }
    assert_in_range(flipped, 150, 250); /* five standard deviations of 10 */
    free(file.data);
}

RUN_TESTS(NULL, NULL, TEST(crops_lie_inside), TEST(crops_are_distributed_as_stated), TEST(attempts_are_counted),
          TEST(the_smallest_crop_can_be_chosen), TEST(elongated_images_fall_back), TEST(usual_margins),
          TEST(centre_crops), TEST(centre_crops_of_dali), TEST(evaluation_of_dali), TEST(crops_of_dali),
          TEST(small_images_are_padded), TEST(half_of_the_images_are_flipped))
