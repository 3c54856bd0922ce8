/* convoy check compares images: the same pixels twice, in two classes, in both parts; sizes, tiny and turned ones. */
#include "dataset_tools/check_duplicates.h"
#include "support_folder.h"
#include "support_images.h"
#include "support_test.h"

static struct cvy_check_report check(const char *name, int threads)
{
    const struct cvy_check_options options = {.threads = threads};
    struct cvy_check_report report;

    if (cvy_check_dataset(test_path(support_folder, name), &options, &report) != CVY_OK)
        fail_msg("%s", cvy_error());
    return report;
}

static int count_problems(const struct cvy_check_report *report, const char *part)
{
    int count = 0;
    for (size_t i = 0; i < report->problem_count; i++)
        count += strstr(report->problems[i].text, part) != NULL;
    return count;
}

static void repeated_images(void **state)
{
    struct bytes jpeg = support_any_jpeg(1, 40, 50);
    struct cvy_rng rng = cvy_rng_new(4, CVY_RNG_TEST, 0, 0);

    /* Its bytes with a comment have the same pixels. */
    uint8_t *comment = malloc(jpeg.size + 6);
    assert_non_null(comment);
    memcpy(comment, jpeg.data, 2);
    memcpy(comment + 2, "\xFF\xFE\0\4hi", 6);
    memcpy(comment + 8, jpeg.data + 2, jpeg.size - 2);
    support_write(support_folder, "set/train/a/1.jpg", jpeg.data, jpeg.size);
    support_write(support_folder, "set/train/a/2.jpg", comment, jpeg.size + 6);
    support_write(support_folder, "set/train/b/1.jpg", jpeg.data, jpeg.size);
    support_write(support_folder, "set/val/a/1.jpg", jpeg.data, jpeg.size);
    support_write(support_folder, "set/val/b/9.jpg", jpeg.data, jpeg.size);
    free(comment);
    free(jpeg.data);
    /* The same bytes of pixels in another shape are another image. */
    uint8_t *pixels = support_noise(&rng, 48, 12, 3);
    struct bytes wide = support_png(pixels, 48, 12, 3), high = support_png(pixels, 12, 48, 3);
    support_write(support_folder, "set/train/b/wide.png", wide.data, wide.size);
    support_write(support_folder, "set/train/b/high.png", high.data, high.size);
    free(pixels);
    free(wide.data);
    free(high.data);
    support_write_jpeg(support_folder, "set/val/b/large.jpg", 9, 90, 70);
    support_write(support_folder, "set/val/b/bad.jpg", "x", 1);
    support_write(support_folder, "set/val/b/bad2.jpg", "x", 1); /* unreadable ones are not compared */

    for (int threads = 1; threads < 4; threads += 2) {
        struct cvy_check_report report = check("set", threads);
        assert_int_equal(report.bad_images, 2);
        assert_int_equal(report.duplicates, 4);
        assert_int_equal(report.in_two_classes, 2);
        assert_int_equal(report.in_both_parts, 2);
        assert_int_equal(report.problem_count, 6);
        assert_int_equal(
            count_problems(&report, "/train/b/1.jpg\" are the same image under two classes, \"a\" and \"b\""), 1);
        assert_int_equal(count_problems(&report, "/val/b/9.jpg\" are the same image under two classes"), 1);
        assert_int_equal(count_problems(&report, "/val/a/1.jpg\" are the same image, in training and in validation"),
                         1);
        assert_int_equal(count_problems(&report, "/train/a/1.jpg\" and "), 4);
        assert_int_equal(report.smallest_size[0] * report.smallest_size[1], 48 * 12);
        assert_int_equal(report.largest_size[0], 90);
        assert_int_equal(report.largest_size[1], 70);
        assert_int_equal(report.tiny_images, 2);
        assert_int_equal(report.tiny.count, 2);
        assert_non_null(strstr(report.tiny.list[0], "/train/b/high.png"));
        assert_null(report.turned.list);
        assert_int_equal(report.turned_images, 0);
        cvy_check_report_release(&report);
    }
}

static void turned_images(void **state)
{
    static const uint8_t exif[] = {0xFF, 0xE1, 0, 34,   'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8,
                                   0,    1,    1, 0x12, 0,   3,   0,   0,   0, 1, 0,   6,   0, 0,  0, 0, 0, 0};
    struct bytes jpeg = support_any_jpeg(3, 40, 40);
    uint8_t *turned = malloc(jpeg.size + sizeof exif);

    assert_non_null(turned);
    memcpy(turned, jpeg.data, 2);
    memcpy(turned + 2, exif, sizeof exif);
    memcpy(turned + 2 + sizeof exif, jpeg.data + 2, jpeg.size - 2);
    support_write(support_folder, "set/a/turned.jpg", turned, jpeg.size + sizeof exif);
    support_write_jpeg(support_folder, "set/b/other.jpg", 5, 40, 40);
    free(turned);
    free(jpeg.data);
    struct cvy_check_report report = check("set", 2);
    assert_int_equal(report.turned_images, 1);
    assert_int_equal(report.turned.count, 1);
    assert_non_null(strstr(report.turned.list[0], "/set/a/turned.jpg"));
    assert_int_equal(report.problem_count + (size_t)report.duplicates + (size_t)report.tiny_images, 0);
    cvy_check_report_release(&report);
}

/* When there are very many, only the first are listed. */
static void long_lists_end(void **state)
{
    enum { COUNT = 2 * CVY_CHECK_LISTED + 7 };
    static struct cvy_sample samples[COUNT];
    static struct cvy_check_fingerprint fingerprints[COUNT];
    static const struct cvy_shard shard = {.path = "file"};
    static const char *classes[] = {"a", "b"};
    const struct cvy_dataset set = {.samples = samples, .sample_count = COUNT, .classes = classes, .class_count = 2};
    struct cvy_check_report report = {0};

    for (int i = 0; i < COUNT; i++) {
        samples[i] = (struct cvy_sample){.path = "file", .shard = &shard, .record_offset = (uint64_t)i, .label = i > 5};
        fingerprints[i] =
            (struct cvy_check_fingerprint){.hash = 7, .width = i % 2 ? 50 : 31, .height = 50, .orientation = 6};
    }
    assert_int_equal(cvy_check_compare(&report, (const struct cvy_check_part[2]){{&set, fingerprints}}), CVY_OK);
    assert_int_equal(report.duplicates, COUNT - 1);
    assert_int_equal(report.in_two_classes, COUNT - 6);
    assert_int_equal(report.problem_count, CVY_CHECK_LISTED + 5);
    assert_int_equal(report.tiny_images, COUNT / 2 + 1);
    assert_int_equal(report.turned_images, COUNT);
    assert_int_equal(report.tiny.count, CVY_CHECK_LISTED);
    assert_int_equal(report.turned.count, CVY_CHECK_LISTED);
    assert_string_equal(report.tiny.list[99], "file@198");
    assert_string_equal(report.turned.list[99], "file@99");
    assert_int_equal(count_problems(&report, "\"file@0\" and \"file@3\" are the same image"), 1);
    cvy_check_report_release(&report);
}

static void every_pixel_counts(void **state)
{
    uint8_t pixels[11 * 40];
    const uint64_t hash = (memset(pixels, 7, sizeof pixels), cvy_check_hash(pixels, 40, 13, 11));

    for (size_t i = 0; i < sizeof pixels; i++) {
        pixels[i] ^= 1;
        if (i % 40 < 39)
            assert_true(cvy_check_hash(pixels, 40, 13, 11) != hash);
        else /* between the rows */
            assert_true(cvy_check_hash(pixels, 40, 13, 11) == hash);
        pixels[i] ^= 1;
    }
}

RUN_TESTS(NULL, NULL, IN_FOLDER(repeated_images), IN_FOLDER(turned_images), TEST(long_lists_end),
          TEST(every_pixel_counts))
