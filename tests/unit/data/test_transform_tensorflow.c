/* TensorFlow's crop, resize and evaluation geometry: limits, distribution and known numbers. Pixel for pixel against
 * TensorFlow itself: tests/parity/long_tfrecord.py. */
#include "data/transform/tensorflow.h"
#include "data/transform/transform.h"
#include "support_images.h"
#include "support_test.h"

static struct cvy_rng stream(uint32_t index)
{
    return cvy_rng_new(1, CVY_RNG_TEST, 0, index);
}

static void assert_inside(const struct cvy_box *crop, int32_t width, int32_t height)
{
    assert_true(crop->x >= 0 && crop->y >= 0 && crop->width >= 1 && crop->height >= 1);
    assert_true(crop->x + crop->width <= width && crop->y + crop->height <= height);
}

/* With a ratio of 1 in 100 x 100 the height is lrint(sqrt(500)) = 22 to 100, each equally often; the last position is
 * never drawn. */
static void heights_are_uniform(void **state)
{
    enum { LOW = 22, HIGH = 100, DRAWS = 79 * 400 };
    struct cvy_rng rng = stream(0);
    struct cvy_box crop;
    int seen[HIGH + 1] = {0}, max_x = 0;

    for (int i = 0; i < DRAWS; i++) {
        /* 22 x 22 is smaller than 5 %, so it becomes 23 x 23. */
        assert_true(cvy_tensorflow_draw_crop(&rng, 100, 100, 0.05F, 1, &crop));
        assert_int_equal(crop.width, crop.height);
        assert_inside(&crop, 100, 100);
        assert_true(crop.height == 100 || (crop.x < 100 - crop.width && crop.y < 100 - crop.height));
        seen[crop.height]++;
        max_x = crop.height == 50 && crop.x > max_x ? crop.x : max_x;
    }
    assert_int_equal(seen[LOW], 0);
    /* 400 expected, 800 for 23; five standard deviations. */
    assert_true(abs(seen[23] - 800) < 5 * 29);
    for (int h = 24; h <= HIGH; h++)
        assert_true(abs(seen[h] - 400) < 5 * 20);
    assert_int_equal(max_x, 49);
}

/* Every crop of many shapes of images keeps the limits of area and ratio, as whole pixels allow. */
static void limits(void **state)
{
    static const int32_t shapes[][2] = {{500, 375}, {375, 500}, {64, 64}, {33, 90}, {7, 5}, {2, 2}, {1, 1}};

    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const int32_t width = shapes[s][0], height = shapes[s][1];
        double smallest = 1, largest = 0;
        for (uint32_t i = 0; i < 3000; i++) {
            struct cvy_rng rng = stream(i);
            const struct cvy_box crop = cvy_tensorflow_crop(&rng, width, height, 0.05F, NULL, 0);
            const double area = (double)crop.width * crop.height / ((double)width * height);
            assert_inside(&crop, width, height);
            /* Without boxes a tenth of the image itself must be in the crop. */
            assert_true(area >= 0.1F || (crop.width == width && crop.height == height));
            smallest = area < smallest ? area : smallest;
            largest = area > largest ? area : largest;
            if (crop.width == width && crop.height == height)
                continue; /* may be what is taken after 100 attempts */
            assert_true(crop.width >= 0.75 * crop.height - 0.51 && crop.width <= 1.33 * crop.height + 0.51);
        }
        if (width >= 64)
            assert_true(smallest < 0.105 && largest > 0.7);
    }
}

/* An elongated image has no crop of an allowed ratio and a twentieth of its area. */
static void whole_image(void **state)
{
    struct cvy_rng rng = stream(0);
    const struct cvy_box crop = cvy_tensorflow_crop(&rng, 1000, 20, 0.05F, NULL, 0);

    assert_int_equal(crop.width, 1000);
    assert_int_equal(crop.height, 20);
    assert_int_equal(crop.x + crop.y, 0);
}

static int32_t common(int32_t a, int32_t a_end, int32_t b, int32_t b_end)
{
    const int32_t from = a > b ? a : b, end = a_end < b_end ? a_end : b_end;
    return end > from ? end - from : 0;
}

static void boxes(void **state)
{
    /* Pixels 80..100, 60..90 of 100 x 90, and one of no area. */
    static const struct cvy_object_box corner[] = {{0.5F, 0.5F, 0.504F, 0.9F}, {0.8F, 0.6667F, 1, 1}};
    static const struct cvy_object_box none[] = {{0.5F, 0.5F, 0.504F, 0.9F}};
    int outside = 0;

    for (uint32_t i = 0; i < 2000; i++) {
        struct cvy_rng rng = stream(i), same = rng;
        const struct cvy_box crop = cvy_tensorflow_crop(&rng, 100, 90, 0.05F, corner, 2);
        const int32_t covered =
            common(crop.x, crop.x + crop.width, 80, 100) * common(crop.y, crop.y + crop.height, 60, 90);
        assert_true(covered >= 60); /* a tenth of 20 x 30 */
        const struct cvy_box free = cvy_tensorflow_crop(&same, 100, 90, 0.05F, NULL, 0);
        outside += common(free.x, free.x + free.width, 80, 100) * common(free.y, free.y + free.height, 60, 90) < 60;
    }
    assert_true(outside > 500); /* so the box made a difference */
    struct cvy_rng rng = stream(0);
    const struct cvy_box crop = cvy_tensorflow_crop(&rng, 100, 90, 0.05F, none, 1);
    assert_int_equal(crop.width * crop.height, 9000);

    static const struct cvy_object_box wrong[] = {
        {-0.1F, 0, 1, 1}, {0, 0, 1.1F, 1}, {0.6F, 0, 0.5F, 1}, {0, 0.6F, 1, 0.5F}, {0, 0, 1, NAN}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(cvy_object_box_is_valid(&wrong[i]));
    assert_true(cvy_object_box_is_valid(&corner[1]));
}

/* int(side * (256 / shorter)) in float: the shorter side may lose a pixel. */
static void centers(void **state)
{
    static const struct {
        int32_t width, height, full_width, full_height, x, y;
    } cases[] = {
        {500, 375, 341, 256, 58, 16}, {375, 500, 256, 341, 16, 58},  {640, 480, 341, 256, 58, 16},
        {100, 133, 256, 340, 16, 58}, {333, 111, 768, 256, 272, 16}, {49, 49, 256, 256, 16, 16},
        {61, 83, 255, 348, 15, 62},
    };
    struct cvy_tensorflow_center center;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(cvy_tensorflow_center(256, 224, cases[i].width, cases[i].height, "x", &center), CVY_OK);
        assert_int_equal(center.full_width, cases[i].full_width);
        assert_int_equal(center.full_height, cases[i].full_height);
        assert_int_equal(center.x, cases[i].x);
        assert_int_equal(center.y, cases[i].y);
    }
    /* Where nothing is to be cropped, the lost pixel is kept. */
    assert_int_equal(cvy_tensorflow_center(256, 256, 61, 83, "x", &center), CVY_OK);
    assert_int_equal(center.full_width, 256);
    assert_fails(cvy_tensorflow_center(256, 224, 178000000, 1, "line.png", &center), CVY_BAD_DATA, "\"line.png\"");
}

static void resize(const uint8_t *pixels, int32_t width, int32_t height, int32_t full_width, int32_t full_height,
                   const struct cvy_box *window, bool flip, float *out)
{
    struct cvy_resizer resizer = {0};
    const struct cvy_box need = cvy_tensorflow_resize_need(width, height, full_width, full_height, window);
    const uint8_t *part = flip ? pixels : pixels + ((size_t)need.y * (size_t)width + (size_t)need.x) * 3;

    assert_int_equal(cvy_tensorflow_resize(&resizer, part, (size_t)width * 3, width, height, full_width, full_height,
                                           window, flip, out),
                     CVY_OK);
    cvy_resizer_release(&resizer);
}

static void resized(void **state)
{
    static const uint8_t pair[] = {0, 10, 20, 100, 110, 220};
    static const float wide[] = {0, 50, 100, 100}, mirrored[] = {100, 50, 0, 0};
    float out[12 * 12 * 3], part[5 * 4 * 3];

    resize(pair, 2, 1, 4, 1, &(struct cvy_box){0, 0, 4, 1}, false, out);
    for (int x = 0; x < 4; x++)
        assert_true(out[3 * x] == wide[x] && out[3 * x + 1] == 10 + wide[x] && out[3 * x + 2] == 20 + 2 * wide[x]);
    resize(pair, 2, 1, 4, 1, &(struct cvy_box){0, 0, 4, 1}, true, out);
    for (int x = 0; x < 4; x++)
        assert_true(out[3 * x] == mirrored[x]);
    /* Shrinking picks pixels, it does not average them. */
    uint8_t ramp[6 * 6 * 3];
    for (int i = 0; i < 6 * 6 * 3; i++)
        ramp[i] = (uint8_t)(i * i);
    resize(ramp, 6, 6, 3, 2, &(struct cvy_box){0, 0, 3, 2}, false, out);
    for (int y = 0; y < 2; y++)
        for (int x = 0; x < 3; x++)
            assert_true(out[(y * 3 + x) * 3] == (float)ramp[(y * 3 * 6 + x * 2) * 3]);
    /* A window is that part of the whole. */
    resize(ramp, 6, 6, 12, 11, &(struct cvy_box){0, 0, 12, 11}, false, out);
    resize(ramp, 6, 6, 12, 11, &(struct cvy_box){4, 6, 5, 4}, false, part);
    for (int y = 0; y < 4; y++)
        assert_memory_equal(part + y * 15, out + ((6 + y) * 12 + 4) * 3, 15 * sizeof(float));
}

/* The whole way: a function of the stream, floats that are no bytes, boxes that are refused. */
static void images(void **state)
{
    struct cvy_transform how = {.training = true, .tensorflow = true, .size = 9};
    struct bytes file = support_any_jpeg(4, 40, 31);
    struct cvy_object_box box = {0.25F, 0.25F, 0.75F, 0.75F};
    struct cvy_encoded encoded = {.name = "x.jpg", .data = file.data, .size = file.size};
    struct cvy_resizer resizer = {0};
    struct cvy_decoder *decoder;
    float first[9 * 9 * 3], second[9 * 9 * 3];
    struct cvy_rng rng = stream(8), same = rng;
    int fractions = 0;

    assert_int_equal(cvy_transform_bytes(&how), sizeof first);
    assert_int_equal(cvy_decoder_new(&decoder), CVY_OK);
    assert_int_equal(cvy_transform_image(&how, decoder, &resizer, &encoded, &rng, first), CVY_OK);
    assert_int_equal(cvy_transform_image(&how, decoder, &resizer, &encoded, &same, second), CVY_OK);
    assert_memory_equal(first, second, sizeof first);
    for (int i = 0; i < 9 * 9 * 3; i++) {
        assert_true(first[i] >= 0 && first[i] <= 255);
        fractions += first[i] != rintf(first[i]);
    }
    assert_true(fractions > 100);
    encoded.boxes = &box;
    encoded.box_count = 1;
    assert_int_equal(cvy_transform_image(&how, decoder, &resizer, &encoded, &rng, first), CVY_OK);
    box.xmax = 1.5F;
    assert_int_equal(cvy_transform_image(&how, decoder, &resizer, &encoded, &rng, first), CVY_BAD_DATA);
    assert_string_equal(cvy_error(), "box 0 of \"x.jpg\" is not inside the image");
    /* Smaller than the crop: enlarged. */
    how = (struct cvy_transform){.tensorflow = true, .size = 9, .resize = 9};
    assert_int_equal(cvy_transform_image(&how, decoder, &resizer, &encoded, NULL, first), CVY_OK);
    cvy_decoder_free(decoder);
    cvy_resizer_release(&resizer);
    free(file.data);
}

RUN_TESTS(NULL, NULL, TEST(heights_are_uniform), TEST(limits), TEST(whole_image), TEST(boxes), TEST(centers),
          TEST(resized), TEST(images))
