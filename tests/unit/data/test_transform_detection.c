/* What training does to images with boxes: the crop's distribution, the boxes' arithmetic, colours, and that batches
 * depend on neither threads nor restarts. */
#include <float.h>

#include "data/detection/coco_set.h"
#include "data/loader/loader.h"
#include "data/transform/detection.h"
#include "data/transform/tensorflow.h"
#include "support_images.h"
#include "support_test.h"

static struct cvy_rng stream(uint32_t index)
{
    return cvy_rng_new(1, CVY_RNG_TEST, 0, index);
}

/* ---- the crop ---- */

/* Mean area and range of width / height, as an implementation of the sampler in another language gave them; the mean of
 * 20,000 draws varies by less than 0.001 (the deviation of one is below 0.08). */
static void crops_are_distributed(void **state)
{
    enum { DRAWS = 20000 };
    static const struct {
        int32_t width, height;
        double area, low, high, whole;
    } cases[] = {{640, 480, 0.808, 1.00, 1.78, 0},
                 {480, 640, 0.805, 0.75, 1.00, 0},
                 {427, 640, 0.783, 0.75, 0.89, 0.0014},
                 {200, 640, 1, 0.3125, 0.3125, 1},
                 /* Where both ends of the ratios count: 3 is the widest, and 0.75 too wide for 0.5333. */
                 {660, 200, 0.7897, 2.475, 3.00, 0},
                 {480, 900, 1, 0.5333, 0.5333, 1}};

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct cvy_coco_image image = {1, cases[c].width, cases[c].height, 0, 0, 0};
        const struct cvy_truth truth = {&image, NULL, 0};
        double sum = 0, low = 9, high = 0;
        int whole = 0, mirrored = 0;
        for (uint32_t i = 0; i < DRAWS; i++) {
            struct cvy_rng rng = stream(i);
            struct cvy_detection_crop crop;
            assert_int_equal(cvy_detection_draw(&rng, image.width, image.height, &truth, &crop), CVY_OK);
            const struct cvy_box *w = &crop.window;
            assert_true(w->x >= 0 && w->y >= 0 && w->x + w->width <= image.width && w->y + w->height <= image.height);
            const double area = (double)w->width * w->height / ((double)image.width * image.height);
            const double ratio = (double)w->width / w->height;
            mirrored += crop.mirrored;
            sum += area;
            if (w->width == image.width && w->height == image.height) {
                whole++;
                continue;
            }
            assert_true(area >= 0.75F);
            low = ratio < low ? ratio : low;
            high = ratio > high ? ratio : high;
        }
        assert_true(fabs(sum / DRAWS - cases[c].area) < 0.002);
        assert_true(abs(mirrored - DRAWS / 2) < 5 * 71); /* five deviations of a fair coin */
        if (cases[c].whole == 1) {
            assert_int_equal(whole, DRAWS);
            continue;
        }
        assert_true(fabs((double)whole / DRAWS - cases[c].whole) < 0.0014); /* five deviations */
        assert_true(fabs(low - cases[c].low) < 0.015 && fabs(high - cases[c].high) < 0.015);
    }
}

/* Boxes of no pixel count for nothing: then all attempts fail, and the image stays whole. */
static void boxes_without_pixels(void **state)
{
    const struct cvy_coco_image image = {1, 640, 480, 0, 2, 0};
    const struct cvy_coco_object tiny = {.bbox = {10.2, 10.2, 0.3, 30}, .slot = 1};
    const struct cvy_coco_object both[] = {tiny, {.bbox = {5, 5, 20, 20}, .slot = 1}};
    int whole = 0;

    for (uint32_t i = 0; i < 200; i++) {
        struct cvy_detection_crop crop;
        struct cvy_rng rng = stream(i), same = rng;
        assert_int_equal(cvy_detection_draw(&rng, 640, 480, &(struct cvy_truth){&image, &tiny, 1}, &crop), CVY_OK);
        assert_int_equal(crop.window.width * crop.window.height, 640 * 480);
        assert_int_equal(cvy_detection_draw(&same, 640, 480, &(struct cvy_truth){&image, both, 2}, &crop), CVY_OK);
        whole += crop.window.width == 640 && crop.window.height == 480;
    }
    assert_true(whole < 10);
}

/* ---- the boxes ---- */

static void assert_box(const float *box, float ymin, float xmin, float ymax, float xmax)
{
    const float expected[4] = {ymin, xmin, ymax, xmax};

    for (int i = 0; i < 4; i++)
        if (fabsf(box[i] - expected[i]) > 1e-6F) /* a few roundings of numbers up to 1 */
            fail_msg("edge %d is %.9g instead of %.9g", i, (double)box[i], (double)expected[i]);
}

static void boxes_follow(void **state)
{
    static float boxes[CVY_MAX_BOXES][4];
    static int32_t labels[CVY_MAX_BOXES];
    struct cvy_target_boxes out = {boxes, labels};
    const struct cvy_coco_image image = {1, 200, 100, 0, 5, 0};
    const struct cvy_coco_object objects[] = {
        {.bbox = {20, 10, 100, 50}, .slot = 3},   /* partly in the window */
        {.bbox = {0, 0, 40, 20}, .slot = 4},      /* touches its corner: nothing in it */
        {.bbox = {39.5, 19.5, 1, 1}, .slot = 5},  /* a sliver, which stays */
        {.bbox = {50, 30, 1e-30, 10}, .slot = 6}, /* no width in float */
        {.bbox = {100, 50, 10, 10}, .slot = 7, .crowd = true},
    };
    const struct cvy_truth truth = {&image, objects, 5};
    struct cvy_detection_crop crop = {false, {40, 20, 100, 50}};

    cvy_detection_boxes(&truth, &crop, 200, 100, &out);
    assert_int_equal(labels[0], 3);
    assert_box(boxes[0], 0, 0, 0.8F, 0.8F);
    assert_int_equal(labels[1], 5);
    assert_box(boxes[1], 0, 0, 0.01F, 0.005F);
    assert_int_equal(labels[2], 7);
    assert_box(boxes[2], 0.6F, 0.6F, 0.8F, 0.7F);
    assert_int_equal(labels[3], 0);
    assert_box(boxes[3], 0, 0, 0, 0);

    /* Mirrored first: the window is one of the mirrored image. */
    crop.mirrored = true;
    cvy_detection_boxes(&truth, &crop, 200, 100, &out);
    assert_int_equal(labels[0], 3); /* x from 80 to 180 in the mirror */
    assert_box(boxes[0], 0, 0.4F, 0.8F, 1);
    assert_int_equal(labels[1], 7); /* x from 90 to 100; the sliver is outside now */
    assert_box(boxes[1], 0.6F, 0.5F, 0.8F, 0.6F);
    assert_int_equal(labels[2], 0);

    /* The whole image. */
    cvy_detection_boxes(&truth, NULL, 200, 100, &out);
    assert_int_equal(labels[3], 7);
    assert_box(boxes[0], 0.1F, 0.1F, 0.6F, 0.6F);
}

/* Exactly the shares that a record holds, divided in double and rounded once. */
static void shares(void **state)
{
    const struct cvy_coco_image image = {1, 640, 427, 0, 1, 0};
    const struct cvy_coco_object object = {.bbox = {473.07, 395.93, 38.65, 28.67}};
    float box[4];

    cvy_object_shares(&image, &object, box);
    assert_true(box[0] == (float)(395.93 / 427) && box[1] == (float)(473.07 / 640));
    assert_true(box[2] == (float)((395.93 + 28.67) / 427) && box[3] == (float)((473.07 + 38.65) / 640));
}

static void a_thousand_boxes(void **state)
{
    enum { COUNT = 1000 };
    static float boxes[CVY_MAX_BOXES + 1][4];
    static int32_t labels[CVY_MAX_BOXES + 1];
    static struct cvy_coco_object objects[COUNT];
    const struct cvy_coco_image image = {1, 2000, 100, 0, COUNT, 0};
    const struct cvy_truth truth = {&image, objects, COUNT};
    const struct cvy_detection_crop crop = {false, {100, 0, 1900, 100}};

    for (int i = 0; i < COUNT; i++)
        objects[i] = (struct cvy_coco_object){.bbox = {2 * i, 5, 2, 20}, .slot = i + 1};
    labels[CVY_MAX_BOXES] = -7;
    cvy_detection_boxes(&truth, NULL, 2000, 100, &(struct cvy_target_boxes){boxes, labels});
    assert_int_equal(labels[0], 1);
    assert_int_equal(labels[CVY_MAX_BOXES - 1], CVY_MAX_BOXES);
    assert_int_equal(labels[CVY_MAX_BOXES], -7);
    /* Those outside go before the list is cut. */
    cvy_detection_boxes(&truth, &crop, 2000, 100, &(struct cvy_target_boxes){boxes, labels});
    assert_int_equal(labels[0], 51);
    assert_int_equal(labels[CVY_MAX_BOXES - 1], 50 + CVY_MAX_BOXES);
}

/* ---- colours ---- */

static void colors(void **state)
{
    float pixels[6] = {200, 100, 50, 10, 10, 10};
    struct cvy_rng rng = stream(0), same = rng;

    cvy_color_jitter_apply(&(struct cvy_color_jitter){0}, &rng, pixels, 2);
    assert_true(pixels[0] == 200 && pixels[5] == 10);
    assert_memory_equal(&rng, &same, sizeof rng); /* nothing is drawn */

    const float factor = (float)cvy_rng_range(&same, 0.5, 1.5);
    cvy_color_jitter_apply(&(struct cvy_color_jitter){.brightness = 0.5}, &rng, pixels, 2);
    assert_true(pixels[1] == 100 * factor && pixels[0] == fminf(200 * factor, 255));

    /* A turn of the hue keeps the largest and the smallest channel; grey stays. */
    for (uint32_t i = 0; i < 50; i++) {
        float one[6] = {200, 100, 50, 10, 10, 10};
        rng = stream(i);
        same = rng;
        const double turn = cvy_rng_range(&same, -0.5, 0.5);
        cvy_color_jitter_apply(&(struct cvy_color_jitter){.hue = 0.5}, &rng, one, 2);
        assert_true(fabsf(fmaxf(fmaxf(one[0], one[1]), one[2]) - 200) < 1e-3F);
        assert_true(fabsf(fminf(fminf(one[0], one[1]), one[2]) - 50) < 1e-3F);
        assert_true(one[3] == 10 && one[4] == 10 && one[5] == 10);
        if (turn > 0.17 && turn < 0.33) { /* red, at a third of a sixth, becomes green */
            assert_true(one[1] > one[0] && one[1] > one[2]);
        }
    }
    /* Without contrast every pixel is the mean grey; without saturation each its own. */
    for (uint32_t i = 0; i < 50; i++) {
        float one[6] = {200, 100, 50, 10, 10, 10};
        rng = stream(i);
        same = rng;
        const float s = (float)cvy_rng_range(&same, 0, 2), grey = 0.299F * 200 + 0.587F * 100 + 0.114F * 50;
        cvy_color_jitter_apply(&(struct cvy_color_jitter){.saturation = 1}, &rng, one, 2);
        assert_true(fabsf(one[1] - (grey + (100 - grey) * s)) < 1e-3F && fabsf(one[4] - 10) < 1e-4F);
        float two[6] = {200, 100, 50, 10, 10, 10};
        const float mean = (grey + 10) / 2;
        rng = stream(i);
        cvy_color_jitter_apply(&(struct cvy_color_jitter){.contrast = 1}, &rng, two, 2);
        assert_true(fabsf(two[1] - (mean + (100 - mean) * s)) < 1e-3F);
    }
}

/* ---- the loader ---- */

enum { IMAGES = 11, SIZE = 32 };
static struct cvy_dataset set;

static int set_up(void **state)
{
    static char text[8192];
    char name[64];
    int length = snprintf(text, sizeof text,
                          "{\"categories\": [{\"id\": 5, \"name\": \"a\"}, {\"id\": 9, \"name\": \"b\"}], "
                          "\"images\": [");
    const struct cvy_category_rule rule = {0};
    struct cvy_coco_file file;

    test_folder_setup(state);
    for (int i = 0; i < IMAGES; i++) {
        snprintf(name, sizeof name, "%02d.jpg", i);
        support_write_jpeg(support_folder, name, (uint64_t)i, 60 + i, 50 - i);
        length += snprintf(text + length, sizeof text - (size_t)length,
                           "%s{\"id\": %d, \"file_name\": \"%s\", \"width\": %d, \"height\": %d}", i ? "," : "", i,
                           name, 60 + i, 50 - i);
    }
    length += snprintf(text + length, sizeof text - (size_t)length, "], \"annotations\": [");
    for (int i = 0; i < 30; i++) /* the last image has none */
        length += snprintf(text + length, sizeof text - (size_t)length,
                           "%s{\"id\": %d, \"image_id\": %d, \"category_id\": %d, \"bbox\": [%d, %d, 20, 10]}",
                           i ? "," : "", i, i % (IMAGES - 1), i % 2 ? 5 : 9, i, i / 2);
    snprintf(text + length, sizeof text - (size_t)length, "]}");
    assert_int_equal(cvy_coco_file_parse("x.json", text, strlen(text), &file), CVY_OK);
    assert_int_equal(cvy_dataset_from_coco(&set, "x.json", &file, support_folder, &rule), CVY_OK);
    cvy_coco_file_release(&file);
    return 0;
}

static int tear_down(void **state)
{
    cvy_dataset_close(&set);
    return test_folder_teardown(state);
}

static struct cvy_loader_options training(int workers)
{
    return (struct cvy_loader_options){.dataset = &set,
                                       .transform = {.training = true,
                                                     .detection = true,
                                                     .size = SIZE,
                                                     .color = {.brightness = 0.2, .contrast = 0.2, .hue = 0.1}},
                                       .batch_size = 3,
                                       .workers = workers,
                                       .prefetch = 2,
                                       .seed = 3,
                                       .sampler = CVY_SAMPLE_SHUFFLED,
                                       .drop_last = true,
                                       .replace_bad = true,
                                       .world = 1};
}

struct kept {
    float images[3 * SIZE * SIZE * 3], boxes[3 * CVY_MAX_BOXES * 4];
    int32_t labels[3 * CVY_MAX_BOXES];
};

/* Epoch 1 from batch `first` on. */
static void keep_epoch(int workers, int64_t first, struct kept *kept)
{
    const struct cvy_loader_options options = training(workers);
    struct cvy_loader *loader;
    const struct cvy_batch *batch;

    assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
    assert_int_equal(cvy_loader_batches(loader), 3);
    assert_int_equal(cvy_loader_start(loader, 1, first), CVY_OK);
    for (int64_t b = first; b < 3; b++) {
        assert_int_equal(cvy_loader_next(loader, &batch), CVY_OK);
        assert_non_null(batch);
        memcpy(kept[b].images, batch->images, sizeof kept[b].images);
        memcpy(kept[b].boxes, batch->boxes, sizeof kept[b].boxes);
        memcpy(kept[b].labels, batch->box_labels, sizeof kept[b].labels);
    }
    cvy_loader_close(loader);
}

static void batches_are_the_same(void **state)
{
    static struct kept one[3], other[3];
    static const int workers[] = {2, 8};
    int boxes = 0;

    keep_epoch(1, 0, one);
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
        memset(other, 0, sizeof other);
        keep_epoch(workers[i], 0, other);
        assert_memory_equal(one, other, sizeof one);
    }
    memset(other, 0, sizeof other);
    keep_epoch(2, 2, other); /* a run that continues in the middle */
    assert_memory_equal(&one[2], &other[2], sizeof one[2]);
    for (int i = 0; i < 3 * 3 * CVY_MAX_BOXES; i++)
        boxes += one[i / (3 * CVY_MAX_BOXES)].labels[i % (3 * CVY_MAX_BOXES)] > 0;
    assert_true(boxes > 10);
}

/* Evaluation: the whole image, resized as TensorFlow 1 does; a bad image has no boxes. */
static void evaluation(void **state)
{
    struct cvy_loader_options options = training(2);
    struct cvy_loader *loader;
    const struct cvy_batch *batch;

    options.transform = (struct cvy_transform){.detection = true, .size = SIZE};
    options.sampler = CVY_SAMPLE_IN_ORDER;
    options.drop_last = options.replace_bad = false;
    support_write(support_folder, "01.jpg", "no image", 8);
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
    assert_int_equal(cvy_loader_start(loader, 0, 0), CVY_OK);
    assert_int_equal(cvy_loader_next(loader, &batch), CVY_OK);
    assert_int_equal(batch->status[1], CVY_BAD_DATA);
    assert_int_equal(batch->labels[1], -1);
    assert_int_equal(batch->box_labels[CVY_MAX_BOXES], 0);
    assert_int_equal(batch->box_labels[0], 2);
    assert_int_equal(batch->labels[0], 0);
    assert_box(batch->boxes, 0, 0, 10.0F / 50, 20.0F / 60);

    /* The same with the decoder by hand. */
    struct cvy_decoder *decoder;
    struct cvy_encoded encoded;
    struct cvy_resizer resizer = {0};
    static float expected[SIZE * SIZE * 3];
    const uint8_t *pixels;
    size_t stride;
    int32_t width, height;
    assert_int_equal(cvy_decoder_new(&decoder), CVY_OK);
    cvy_decoder_set_speed(decoder, CVY_JPEG_FAST_DCT);
    assert_int_equal(cvy_sample_read(&set.samples[0], &encoded), CVY_OK);
    assert_int_equal(cvy_decoder_start(decoder, "x", encoded.data, encoded.size, &width, &height), CVY_OK);
    assert_int_equal(cvy_decoder_read(decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride), CVY_OK);
    assert_int_equal(cvy_tensorflow_resize(&resizer, pixels, stride, width, height, SIZE, SIZE,
                                           &(struct cvy_box){0, 0, SIZE, SIZE}, false, expected),
                     CVY_OK);
    assert_memory_equal(batch->images, expected, sizeof expected);
    cvy_encoded_release(&encoded);
    cvy_decoder_free(decoder);
    cvy_resizer_release(&resizer);

    /* The last batch is short: nothing after its end. */
    for (int64_t b = 1; b < cvy_loader_batches(loader); b++)
        assert_int_equal(cvy_loader_next(loader, &batch), CVY_OK);
    assert_int_equal(batch->count, 2);
    for (int i = 1; i < 3; i++) /* image 10 has no objects */
        assert_int_equal(batch->box_labels[i * CVY_MAX_BOXES], 0);
    cvy_loader_close(loader);
}

static void wrong_sets(void **state)
{
    struct cvy_loader_options options = training(1);
    struct cvy_loader *loader;

    options.transform.detection = false;
    assert_fails(cvy_loader_open(&options, &loader), CVY_BAD_DATA, "it is for detection");
    options.transform.detection = true;
    options.autoaugment = true;
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_USAGE);
}

RUN_TESTS(NULL, NULL, TEST(crops_are_distributed), TEST(boxes_without_pixels), TEST(boxes_follow), TEST(shares),
          TEST(a_thousand_boxes), TEST(colors), EACH(batches_are_the_same), EACH(evaluation), EACH(wrong_sets))
