/* COCO's evaluation on cases that can be worked out by hand; parity/coco.sh compares many others. */
#include "eval/coco_match.h"
#include "eval/detection.h"
#include "support_test.h"

static struct cvy_coco_truth object(double x, double y, double width, double height, bool crowd)
{
    return (struct cvy_coco_truth){.box = {x, y, width, height}, .area = width * height, .crowd = crowd};
}

static struct cvy_coco_detection found(double x, double y, double width, double height, double score)
{
    return (struct cvy_coco_detection){.box = {x, y, width, height}, .score = score};
}

/* Two images; overlaps of exactly 0.8 and 0.9, which the thresholds' own rounding decides; a crowd with two detections
 * in it. The numbers are those of the reference program. */
static const double expected[CVY_COCO_STATS] = {0.766667, 1, 1, 0.9, 0.8, 0.7, 0.5, 0.8, 0.8, 0.9, 0.8, 0.7};

static void add_first(struct cvy_coco_evaluation *e, int64_t id)
{
    const struct cvy_coco_truth truths[] = {object(10, 10, 50, 50, false), object(100, 100, 20, 20, false),
                                            object(200, 200, 100, 100, true)};
    const struct cvy_coco_detection detections[] = {found(12, 12, 50, 50, .9), found(100, 100, 20, 18, .8),
                                                    found(210, 210, 50, 50, .7), found(220, 220, 60, 60, .65),
                                                    found(10, 10, 40, 60, .6)};

    assert_int_equal(cvy_coco_add(e, id, truths, 3, detections, 5), CVY_OK);
}

static void add_second(struct cvy_coco_evaluation *e, int64_t id)
{
    const struct cvy_coco_truth truth = object(0, 0, 150, 150, false);
    const struct cvy_coco_detection detections[] = {found(0, 0, 150, 120, .85), found(5, 5, 30, 30, .3)};

    assert_int_equal(cvy_coco_add(e, id, &truth, 1, detections, 2), CVY_OK);
}

static void check_numbers(struct cvy_coco_evaluation *e, int threads)
{
    struct cvy_coco_result result;

    assert_int_equal(cvy_coco_finish(e, threads, &result), CVY_OK);
    for (int i = 0; i < CVY_COCO_STATS; i++)
        assert_true(fabs(result.stats[i] - expected[i]) < 5e-7); /* written with six decimals */
    cvy_coco_result_release(&result);
}

static void by_hand(void **state)
{
    struct cvy_coco_evaluation e = {0};

    assert_int_equal(cvy_coco_open(&e, 1), CVY_OK);
    add_first(&e, 1);
    add_second(&e, 2);
    check_numbers(&e, 1);
    check_numbers(&e, 3); /* finishing changes nothing but the order of what is kept */
    cvy_coco_close(&e);
    assert_int_equal(cvy_coco_open(&e, 1), CVY_OK);
    add_second(&e, 2);
    add_first(&e, 1);
    check_numbers(&e, 1);
    cvy_coco_close(&e);
}

/* A category that has nothing to find is in no mean, whatever was found of it; one without any image in some range of
 * sizes is not in that range's mean. */
static void empty_categories(void **state)
{
    struct cvy_coco_evaluation e = {0};
    struct cvy_coco_result result;
    struct cvy_coco_detection wrong = found(1, 1, 5, 5, 0.9);
    const struct cvy_coco_truth crowd = {.box = {0, 0, 9, 9}, .area = 81, .category = 2, .crowd = true};

    wrong.category = 2;
    assert_int_equal(cvy_coco_open(&e, 3), CVY_OK);
    assert_int_equal(cvy_coco_add(&e, 7, &crowd, 1, &wrong, 1), CVY_OK);
    assert_int_equal(cvy_coco_finish(&e, 2, &result), CVY_OK);
    for (int i = 0; i < CVY_COCO_STATS; i++)
        assert_true(result.stats[i] == -1);
    assert_true(result.categories[2].ap == -1 && result.categories[2].crowds == 1);
    assert_int_equal(result.categories[2].truths, 0);
    assert_int_equal(result.categories[2].detections, 1);
    assert_true(result.precision[2 * CVY_COCO_THRESHOLDS * CVY_COCO_RECALLS] == -1);
    cvy_coco_result_release(&result);
    add_first(&e, 1);
    add_second(&e, 2);
    check_numbers(&e, 2); /* the two others are not in the means */
    cvy_coco_close(&e);
}

/* An object that is found, with an overlap of `height` / 100; what of the sizes and thresholds counts. */
static void find_one(double side, double height, struct cvy_coco_result *result)
{
    const struct cvy_coco_truth truth = object(0, 0, side, side, false);
    const struct cvy_coco_detection detection = found(0, 0, side, side * height / 100, 0.5);
    struct cvy_coco_evaluation e = {0};

    assert_int_equal(cvy_coco_open(&e, 1), CVY_OK);
    assert_int_equal(cvy_coco_add(&e, 1, &truth, 1, &detection, 1), CVY_OK);
    assert_int_equal(cvy_coco_finish(&e, 1, result), CVY_OK);
    cvy_coco_close(&e);
}

/* Both ends belong to a range of sizes, and to a threshold. */
static void limits(void **state)
{
    static const struct {
        double side;
        bool sizes[3]; /* small, medium, large */
    } rows[] = {{31.9, {1, 0, 0}}, {32, {1, 1, 0}}, {32.1, {0, 1, 0}},
                {95.9, {0, 1, 0}}, {96, {0, 1, 1}}, {96.1, {0, 0, 1}}};
    struct cvy_coco_result result;

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        find_one(rows[r].side, 100, &result);
        for (int i = 0; i < 3; i++) {
            assert_true(fabs(result.stats[3 + i] - (rows[r].sizes[i] ? 1 : -1)) < 1e-12);
            assert_true(fabs(result.stats[9 + i] - (rows[r].sizes[i] ? 1 : -1)) < 1e-12);
        }
        cvy_coco_result_release(&result);
    }
    find_one(100, 95, &result);
    assert_true(fabs(result.stats[0] - 1) < 1e-12);
    cvy_coco_result_release(&result);
    find_one(100, 94.99, &result);
    assert_true(fabs(result.stats[0] - 0.9) < 1e-12);
    cvy_coco_result_release(&result);
    find_one(100, 49.99, &result);
    assert_true(result.stats[0] == 0);
    cvy_coco_result_release(&result);
}

/* One object, found by the 101st detection only: it is too late. */
static void hundred_count(void **state)
{
    struct cvy_coco_detection detections[CVY_COCO_MAX_DETECTIONS + 1];
    const struct cvy_coco_truth truth = object(500, 500, 10, 10, false);
    struct cvy_coco_result result;

    for (int late = 0; late < 2; late++) {
        struct cvy_coco_evaluation e = {0};
        for (int i = 0; i <= CVY_COCO_MAX_DETECTIONS; i++)
            detections[i] = found(0, 0, 10, 10, 0.5);
        detections[CVY_COCO_MAX_DETECTIONS] = found(500, 500, 10, 10, late ? 0.4 : 0.6);
        assert_int_equal(cvy_coco_open(&e, 1), CVY_OK);
        assert_int_equal(cvy_coco_add(&e, 1, &truth, 1, detections, CVY_COCO_MAX_DETECTIONS + 1), CVY_OK);
        assert_int_equal(cvy_coco_finish(&e, 1, &result), CVY_OK);
        assert_int_equal(result.detections, CVY_COCO_MAX_DETECTIONS);
        /* The rules add 2.2e-16 below every fraction. */
        assert_true(fabs(result.stats[0] - (late ? 0 : 1)) < 1e-12);
        assert_true(fabs(result.categories[0].ap50 - (late ? 0 : 1)) < 1e-12);
        assert_true(result.categories[0].recall == (late ? 0 : 1));
        cvy_coco_result_release(&result);
        cvy_coco_close(&e);
    }
}

static void refusals(void **state)
{
    struct cvy_coco_evaluation e = {0};
    struct cvy_coco_result result;
    struct cvy_coco_truth truth = object(0, 0, 1, 1, false);
    struct cvy_coco_detection detection = found(0, 0, NAN, 1, 0.5);

    assert_int_equal(cvy_coco_open(&e, 0), CVY_BAD_DATA);
    assert_int_equal(cvy_coco_open(&e, 2), CVY_OK);
    assert_fails(cvy_coco_add(&e, 1, &truth, 1, &detection, 1), CVY_BAD_DATA, "not finite");
    detection = found(0, 0, 1, 1, INFINITY);
    assert_int_equal(cvy_coco_add(&e, 1, &truth, 1, &detection, 1), CVY_BAD_DATA);
    truth.category = 2;
    assert_fails(cvy_coco_add(&e, 1, &truth, 1, NULL, 0), CVY_BAD_DATA, "category 2 of image 1");
    assert_int_equal(cvy_coco_finish(&e, 1, &result), CVY_OK); /* without any image */
    assert_true(result.stats[0] == -1 && result.images == 0);
    cvy_coco_result_release(&result);
    assert_int_equal(cvy_coco_add(&e, 4, NULL, 0, NULL, 0), CVY_OK);
    assert_int_equal(cvy_coco_add(&e, 4, NULL, 0, NULL, 0), CVY_OK);
    assert_fails(cvy_coco_finish(&e, 1, &result), CVY_BAD_DATA, "image 4 is there twice");
    cvy_coco_close(&e);
}

/* Memory that runs out at any allocation leaves nothing after and is said. */
static void no_memory(void **state)
{
    bool failed = true;

    for (int64_t n = 1; failed; n++) {
        struct cvy_coco_evaluation e = {0};
        struct cvy_coco_result result = {0};
        const struct cvy_coco_truth truth = object(0, 0, 1, 1, false);
        const struct cvy_coco_detection detection = found(0, 0, 1, 1, 0.5);
        cvy_memory_fail_after(n, true);
        cvy_status status = cvy_coco_open(&e, 1);
        if (status == CVY_OK)
            status = cvy_coco_add(&e, 1, &truth, 1, &detection, 1);
        if (status == CVY_OK)
            status = cvy_coco_finish(&e, 1, &result);
        cvy_memory_fail_after(0, false);
        failed = status != CVY_OK;
        assert_true(status == CVY_OK || status == CVY_NO_MEMORY);
        assert_true(n > 5 || failed);
        cvy_coco_result_release(&result);
        cvy_coco_close(&e);
    }
}

static void lines(void **state)
{
    char buffer[96];

    assert_string_equal(cvy_coco_stat_line(0, 0.28, buffer),
                        " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.280");
    assert_string_equal(cvy_coco_stat_line(6, -1, buffer),
                        " Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=  1 ] = -1.000");
    assert_string_equal(cvy_coco_stat_name(9), "Recall/AR@100 (small)");
    assert_null(cvy_coco_stat_name(12));
}

static void measures(void **state)
{
    double stats[CVY_COCO_STATS] = {0.25, -1};
    struct cvy_measures list;

    stats[11] = 0.5;
    cvy_coco_measures(stats, &list);
    assert_int_equal(list.count, CVY_COCO_STATS);
    assert_true(cvy_measures_get(&list, "ap") == 25 && cvy_measures_get(&list, "ar_large") == 50);
    assert_true(isnan(cvy_measures_get(&list, "ap50")) && cvy_measures_get(&list, "ap75") == 0);
}

/* ---- a data set's images ---- */

/* An image of 300 x 200 pixels with two objects: the area of one annotation is far below that of its box. */
static struct cvy_coco_image image = {.id = 42, .width = 300, .height = 200, .object_count = 2};
static struct cvy_coco_object objects[] = {{{30, 20, 60, 50}, 900, 1, false, 0},
                                           {{100, 100, 30, 30}, 900, 2, false, 1}};
static const struct cvy_dataset dataset = {
    .class_count = 2, .detection = true, .sample_count = 1, .images = &image, .objects = objects};

static void of_a_dataset(void **state)
{
    /* Both found exactly; one of a class that the data does not have is skipped. */
    const float boxes[] = {0.1F, 0.1F, 0.35F, 0.3F, 0.5F, 1 / 3.0F, 0.65F, 130 / 300.0F, 0, 0, 1, 1};
    const float scores[] = {0.9F, 0.8F, 0.95F};
    const int32_t classes[] = {0, 1, 7};
    struct cvy_detection detections[3];

    cvy_detections_gather(boxes, scores, classes, 3, detections);
    for (int rule = CVY_AREA_ANNOTATION; rule <= CVY_AREA_BOX; rule++) {
        struct cvy_coco_evaluation e = {0};
        struct cvy_coco_result result;
        assert_int_equal(cvy_coco_open(&e, 2), CVY_OK);
        assert_int_equal(cvy_detections_evaluate(&e, &dataset, 0, detections, 3, (enum cvy_area_rule)rule), CVY_OK);
        assert_int_equal(cvy_coco_finish(&e, 1, &result), CVY_OK);
        assert_int_equal(result.detections, 2);
        assert_true(fabs(result.stats[0] - 1) < 1e-12);
        /* By annotation both are small; by box the first one is of 3000 square pixels. */
        assert_true(fabs(result.stats[3] - 1) < 1e-12);
        assert_true(rule == CVY_AREA_BOX ? fabs(result.stats[4] - 1) < 1e-12 : result.stats[4] == -1);
        assert_true(result.categories[0].truths == 1 && result.categories[1].truths == 1);
        cvy_coco_result_release(&result);
        cvy_coco_close(&e);
    }
}

/* What reaches beyond the image is there by the annotations, and not in the reference's records. The order is
 * that of the file: of equal overlaps the later object is taken. */
static void excluded_objects(void **state)
{
    struct cvy_coco_object three[] = {{{30, 20, 60, 50}, 3000, 1, false, 0},
                                      {{100, 100, 30, 30}, 900, 1, false, 2},
                                      {{290, 20, 20, 50}, 1000, 1, false, 1}};
    struct cvy_coco_image one = {.id = 1, .width = 300, .height = 200, .object_count = 2, .excluded_count = 1};
    const struct cvy_dataset set = {
        .class_count = 1, .detection = true, .sample_count = 1, .images = &one, .objects = three};
    const float boxes[] = {0.1F, 0.1F, 0.35F, 0.3F}, scores[] = {0.9F};
    struct cvy_detection detection;

    cvy_detections_gather(boxes, scores, &(int32_t){0}, 1, &detection);
    for (int rule = CVY_AREA_ANNOTATION; rule <= CVY_AREA_BOX; rule++) {
        const int64_t truths = rule == CVY_AREA_ANNOTATION ? 3 : 2;
        struct cvy_coco_evaluation e = {0};
        struct cvy_coco_result result;
        assert_int_equal(cvy_coco_open(&e, 1), CVY_OK);
        assert_int_equal(cvy_detections_evaluate(&e, &set, 0, &detection, 1, (enum cvy_area_rule)rule), CVY_OK);
        for (int64_t i = 0; i < truths; i++) /* in the order of the file */
            assert_true(e.truths[i].place == i &&
                        (rule == CVY_AREA_BOX || e.truths[i].box[0] == three[(const int[]){0, 2, 1}[i]].bbox[0]));
        assert_int_equal(cvy_coco_finish(&e, 1, &result), CVY_OK);
        assert_int_equal(result.categories[0].truths, truths);
        assert_true(fabs(result.stats[8] - 1.0 / (double)truths) < 1e-12); /* one of them is found */
        cvy_coco_result_release(&result);
        cvy_coco_close(&e);
    }
}

static void pixels_and_rules(void **state)
{
    const float box[4] = {0.1F, 0.2F, 0.6F, 0.9F};
    enum cvy_area_rule rule = CVY_AREA_ANNOTATION;
    float pixels[4];

    cvy_box_pixels(box, 640, 427, pixels);
    assert_true(pixels[0] == 0.2F * 640 && pixels[1] == 0.1F * 427);
    assert_true(pixels[2] == 0.9F * 640 - 0.2F * 640 && pixels[3] == 0.6F * 427 - 0.1F * 427);
    assert_true(cvy_area_rule_parse("box", &rule) && rule == CVY_AREA_BOX);
    assert_true(cvy_area_rule_parse("annotation", &rule) && rule == CVY_AREA_ANNOTATION);
    assert_false(cvy_area_rule_parse("", &rule));
}

RUN_TESTS(NULL, NULL, TEST(by_hand), TEST(empty_categories), TEST(hundred_count), TEST(limits), TEST(refusals),
          TEST(no_memory), TEST(lines), TEST(measures), TEST(of_a_dataset), TEST(excluded_objects),
          TEST(pixels_and_rules))
