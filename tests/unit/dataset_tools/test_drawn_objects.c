/* The built-in data set, and the check that is run before training. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "convoy/program/check.h"
#include "convoy/program/shapes.h"
#include "data/detection/detection_set.h"
#include "data/set/dataset.h"
#include "dataset_tools/drawn_objects.h"
#include "support_images.h"
#include "support_test.h"

static void write_shapes(const char *name, const struct cvy_shapes_options *options)
{
    assert_int_equal(cvy_write_shapes(below(name), options), CVY_OK);
}

static void read_all(const char *name, void **data, size_t *size)
{
    assert_int_equal(cvy_file_read(below(name), 1 << 20, data, size), CVY_OK);
}

static bool same_file(const char *a, const char *b)
{
    void *x, *y;
    size_t m, n;
    read_all(a, &x, &m);
    read_all(b, &y, &n);
    const bool same = m == n && memcmp(x, y, m) == 0;
    cvy_free(x);
    cvy_free(y);
    return same;
}

static void the_same_options_give_the_same_bytes(void **state)
{
    struct cvy_shapes_options options = CVY_SHAPES_DEFAULTS;
    options.train_per_class = 3;
    options.val_per_class = 2;
    options.image_size = 32;
    options.threads = 1;
    write_shapes("one", &options);
    options.threads = 4;
    options.train_per_class = 4; /* a larger set begins with the smaller one */
    write_shapes("four", &options);
    options.seed = 1;
    write_shapes("seed", &options);

    const char *train_folder = below("one/train"), *val_folder = below("one/val");
    struct cvy_dataset train, val;
    assert_int_equal(cvy_dataset_open(&train, train_folder, NULL, 0), CVY_OK);
    assert_int_equal(cvy_dataset_open(&val, val_folder, train.classes, train.class_count), CVY_OK);
    assert_int_equal(train.class_count, CVY_DRAWN_CLASSES);
    assert_int_equal(train.sample_count, 3 * CVY_DRAWN_CLASSES);
    assert_int_equal(val.sample_count, 2 * CVY_DRAWN_CLASSES);
    for (int c = 0; c < CVY_DRAWN_CLASSES; c++)
        assert_string_equal(train.classes[c], cvy_drawn_class_names[c]);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);

    for (int c = 0; c < CVY_DRAWN_CLASSES; c++) {
        char a[128], b[128];
        for (int i = 0; i < 3; i++) {
            snprintf(a, sizeof a, "one/train/%s/%06d.jpg", cvy_drawn_class_names[c], i);
            snprintf(b, sizeof b, "four/train/%s/%06d.jpg", cvy_drawn_class_names[c], i);
            assert_true(same_file(a, b));
            snprintf(b, sizeof b, "seed/train/%s/%06d.jpg", cvy_drawn_class_names[c], i);
            assert_false(same_file(a, b));
        }
        snprintf(b, sizeof b, "one/val/%s/000000.jpg", cvy_drawn_class_names[c]);
        snprintf(a, sizeof a, "one/train/%s/000000.jpg", cvy_drawn_class_names[c]);
        assert_false(same_file(a, b)); /* disjoint streams */
    }
}

static void impossible_sets_are_refused(void **state)
{
    struct cvy_shapes_options options = CVY_SHAPES_DEFAULTS;
    support_write(support_folder, "full/x", "x", 1);
    const char *full = below("full"), *inside = below("full/x/y");
    assert_fails(cvy_write_shapes(full, &options), CVY_CANNOT_CREATE, "not empty");
    assert_int_equal(cvy_write_shapes(inside, &options), CVY_CANNOT_CREATE);
    options.image_size = 31;
    assert_int_equal(cvy_write_shapes(full, &options), CVY_USAGE);
    options = CVY_SHAPES_DEFAULTS;
    options.quality = 0;
    assert_int_equal(cvy_write_shapes(full, &options), CVY_USAGE);
    options = CVY_SHAPES_DEFAULTS;
    options.val_per_class = 0;
    assert_int_equal(cvy_write_shapes(full, &options), CVY_USAGE);
}

/* ---- whole or not at all ---- */

static cvy_status write_small_shapes(const char *path)
{
    struct cvy_shapes_options options = CVY_SHAPES_DEFAULTS;

    options.train_per_class = options.val_per_class = options.threads = 1;
    options.image_size = 32;
    return cvy_write_shapes(path, &options);
}

static cvy_status write_small_scenes(const char *path)
{
    struct cvy_shape_boxes_options options = CVY_SHAPE_BOXES_DEFAULTS;

    options.train_images = 3;
    options.val_images = options.threads = 1;
    options.image_size = 64;
    return cvy_write_shape_boxes(path, &options);
}

static cvy_status (*const writers[])(const char *path) = {write_small_shapes, write_small_scenes};

/* A disk that has no space for files above a size: the folder and those above it are there in the end only, and an
 * empty one that was there stays so. Returns how often the writing failed. */
static int fill_disk(cvy_status (*write)(const char *path), const char *name, const char *kept)
{
    struct rlimit old, tight;
    cvy_status status = CVY_CANNOT_WRITE;
    int failures = 0;

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = old;
    for (rlim_t limit = 0; limit < 8192; limit += 64, failures++) {
        tight.rlim_cur = limit;
        setrlimit(RLIMIT_FSIZE, &tight);
        status = write(below(name));
        setrlimit(RLIMIT_FSIZE, &old);
        if (status == CVY_OK)
            break;
        assert_fails(status, CVY_CANNOT_WRITE, name); /* the name that it would have had */
        assert_null(strstr(cvy_error(), ".tmp."));
        assert_int_equal(test_folder_entries(support_folder), kept ? 1 : 0);
        if (kept)
            assert_int_equal(test_folder_entries(below(kept)), 0);
    }
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, CVY_OK);
    assert_int_equal(test_folder_entries(support_folder), 1); /* no temporary one beside it */
    return failures;
}

static void full_disks_leave_nothing(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        assert_true(fill_disk(writers[i], "above/set", NULL) > 5);
        assert_int_equal(test_folder_entries(below("above")), 1);
        assert_int_equal(test_folder_entries(below("above/set")), i == 0 ? 2 : 3);
        test_folder_remove(below("above"));
        assert_int_equal(mkdir(below("there"), 0700), 0);
        assert_true(fill_disk(writers[i], "there", "there") > 5);
        assert_int_equal(test_folder_entries(below("there")), i == 0 ? 2 : 3);
        test_folder_remove(below("there"));
    }
}

static void without_memory_nothing_is_left(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        cvy_status status = CVY_NO_MEMORY;
        int64_t n = 0;

        while (status != CVY_OK) {
            status = WITH_FAILURE(++n, false, writers[i](below("above/set")));
            assert_true(status == CVY_OK || status == CVY_NO_MEMORY);
            assert_int_equal(test_folder_entries(support_folder), status == CVY_OK ? 1 : 0);
        }
        assert_true(n > 20);
        test_folder_remove(below("above"));
    }
}

/* A folder that is a link is filled, not replaced; slashes at the end, and none at all. */
static void folders_of_every_kind(void **state)
{
    struct stat about;
    const char *inside = below("real"), *link = below("link"), *slashes = below("slashes//");

    assert_int_equal(mkdir(inside, 0700), 0);
    assert_int_equal(symlink("real", link), 0);
    assert_int_equal(write_small_shapes(link), CVY_OK);
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(stat(inside, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0700);
    assert_int_equal(test_folder_entries(inside), 2);
    assert_int_equal(write_small_shapes(slashes), CVY_OK);
    assert_int_equal(test_folder_entries(below("slashes")), 2);
    assert_int_equal(test_folder_entries(support_folder), 3);
    assert_int_equal(write_small_shapes(""), CVY_CANNOT_CREATE);
    assert_fails(write_small_shapes(link), CVY_CANNOT_CREATE, "not empty");
}

/* The object must be visible against its ground: pixels differ between an image and the same with another object. */
static void classes_differ_only_by_the_object(void **state)
{
    enum { SIDE = 32, BYTES = SIDE * SIDE * 3 };
    uint8_t first[BYTES], other[BYTES];
    for (uint32_t i = 0; i < 20; i++) {
        struct cvy_rng a = cvy_rng_new(0, CVY_RNG_TEST, 0, i), b = a;
        cvy_draw_object(&a, 0, SIDE, first);
        for (int shape = 1; shape < CVY_DRAWN_CLASSES; shape++) {
            int changed = 0;
            struct cvy_rng again = b;
            cvy_draw_object(&again, shape, SIDE, other);
            for (int p = 0; p < BYTES; p++)
                changed += abs(first[p] - other[p]) > 30;
            /* The smallest objects are 12 pixels across; an arrow and another class share at most most of it. */
            assert_in_range(changed, 8, BYTES * 2 / 3);
        }
    }
}

static void a_check_finds_every_bad_file(void **state)
{
    struct cvy_check_report report;
    struct bytes jpeg = support_any_jpeg(1, 50, 40);
    uint8_t pixels[20 * 30 * 3] = {0};
    struct bytes png = support_png(pixels, 20, 30, 3), other = support_any_jpeg(2, 50, 40);
    pixels[0] = 1;
    struct bytes mislabelled = support_png(pixels, 20, 30, 3);
    support_write(support_folder, "train/cat/1.jpg", jpeg.data, jpeg.size);
    support_write(support_folder, "train/cat/2.jpg", jpeg.data, jpeg.size / 2);
    support_write(support_folder, "train/cat/3.jpg", "", 0);
    support_write(support_folder, "train/dog/1.png", png.data, png.size);
    support_write(support_folder, "train/dog/2.jpg", mislabelled.data, mislabelled.size);
    static uint8_t ppm[14 + 50 * 40 * 3] = "P6 50 40\n255\n";
    support_write(support_folder, "train/dog/3.png", ppm, sizeof ppm - 1);
    support_write(support_folder, "val/cat/1.jpg", "text", 4);
    support_write(support_folder, "val/dog/1.jpg", other.data, other.size);
    for (int threads = 0; threads < 4; threads++) {
        assert_int_equal(cvy_check_dataset(support_folder, &(struct cvy_check_options){.threads = threads}, &report),
                         CVY_OK);
        assert_int_equal(report.class_count, 2);
        assert_string_equal(report.classes[0].name, "cat");
        assert_int_equal(report.classes[0].train, 3);
        assert_int_equal(report.classes[0].val, 1);
        assert_int_equal(report.train_images, 6);
        assert_int_equal(report.val_images, 2);
        assert_int_equal(report.bad_images, 3);
        assert_int_equal(report.problem_count, 5);
        static const char *const reasons[] = {"truncated", "empty", "PNG image under another ending",
                                              "PPM image under another ending", "no image of a kind that is read"};
        for (size_t i = 0; i < 5; i++)
            assert_non_null(strstr(report.problems[i].text, reasons[i]));
        assert_non_null(strstr(report.problems[0].path, "train/cat/2.jpg"));
        assert_int_equal(report.min_side, 20);
        assert_int_equal(report.median_side, 40);
        assert_int_equal(report.max_side, 40);
        cvy_check_report_release(&report);
    }
    free(jpeg.data);
    free(png.data);
    free(other.data);
    free(mislabelled.data);
    assert_int_equal(cvy_check_dataset("/nonexistent", NULL, &report), CVY_NO_INPUT);
    cvy_check_report_release(&report);
}

/* ---- with boxes ---- */

static void write_scenes(const char *name, const struct cvy_shape_boxes_options *options)
{
    const char *path = below(name);
    assert_int_equal(cvy_write_shape_boxes(path, options), CVY_OK);
}

static void scenes_are_detection_sets(void **state)
{
    struct cvy_shape_boxes_options options = {
        .train_images = 12, .val_images = 4, .classes = 4, .image_size = 64, .quality = 90, .threads = 1};
    struct cvy_dataset train, val;
    int without = 0, seen[5] = {0};

    write_scenes("one", &options);
    options.threads = 3;
    write_scenes("same", &options);
    options.train_images = 14;
    write_scenes("more", &options);
    assert_true(same_file("one/annotations/instances_train.json", "same/annotations/instances_train.json"));
    assert_true(same_file("one/annotations/instances_val.json", "more/annotations/instances_val.json"));
    assert_true(same_file("one/train/000012.jpg", "same/train/000012.jpg"));
    assert_true(same_file("one/train/000012.jpg", "more/train/000012.jpg"));
    assert_true(same_file("one/val/000004.jpg", "more/val/000004.jpg"));
    assert_false(same_file("one/val/000001.jpg", "one/train/000001.jpg"));

    const char *path = below("one");
    assert_int_equal(cvy_dataset_open_detection_pair(path, false, 0, 0, &train, &val), CVY_OK);
    assert_int_equal(train.sample_count, 12);
    assert_int_equal(val.sample_count, 4);
    assert_int_equal(train.class_count, 4);
    assert_string_equal(train.classes[0], "circle");
    assert_int_equal(train.odd.count[CVY_BOX_EMPTY] + train.odd.count[CVY_BOX_OUTSIDE], 0);
    for (uint32_t i = 0; i < train.sample_count; i++) {
        const struct cvy_coco_object *objects;
        size_t count;
        cvy_dataset_objects(&train, i, &objects, &count);
        without += count == 0;
        for (size_t o = 0; o < count; o++) {
            seen[objects[o].slot]++;
            assert_true(objects[o].area > 20 && objects[o].area <= objects[o].bbox[2] * objects[o].bbox[3]);
            assert_true(objects[o].bbox[0] >= 0 && objects[o].bbox[1] >= 0);
        }
    }
    assert_true(without < 6);
    for (int slot = 1; slot <= 4; slot++)
        assert_true(seen[slot] > 0);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
}

/* On a ground of one colour, what differs from it is the objects, and the boxes are around them. */
static void boxes_fit(void **state)
{
    enum { WIDTH = 96, HEIGHT = 72 };
    static uint8_t pixels[WIDTH * HEIGHT * 3];
    struct cvy_scene_object objects[CVY_SCENE_OBJECTS];
    int circles = 0;

    for (uint32_t i = 0; i < 40; i++) {
        struct cvy_rng rng = cvy_rng_new(5, CVY_RNG_TEST, 0, i);
        const int count = cvy_draw_scene(&rng, CVY_DRAWN_CLASSES, WIDTH, HEIGHT, pixels, objects);
        assert_in_range(count, 0, CVY_SCENE_OBJECTS);
        for (int o = 0; o < count; o++) {
            const struct cvy_box *box = &objects[o].box;
            assert_true(box->x >= 0 && box->y >= 0 && box->width > 0 && box->height > 0);
            assert_true(box->x + box->width <= WIDTH && box->y + box->height <= HEIGHT);
            if (objects[o].kind != 0)
                continue;
            /* A circle takes pi / 4 of the square around it; pixels of its edge blur that where it is small. */
            circles++;
            assert_true(abs(box->width - box->height) <= 1);
            assert_true(fabs((double)objects[o].area / (box->width * box->height) - 0.785) < 0.08);
        }
    }
    assert_true(circles > 5);
}

static void impossible_scenes_are_refused(void **state)
{
    static const struct cvy_shape_boxes_options cases[] = {
        {.train_images = 0, .val_images = 1, .classes = 1, .image_size = 64, .quality = 90},
        {.train_images = 1, .val_images = 0, .classes = 1, .image_size = 64, .quality = 90},
        {.train_images = 1, .val_images = 1, .classes = 11, .image_size = 64, .quality = 90},
        {.train_images = 1, .val_images = 1, .classes = 1, .image_size = 63, .quality = 90},
        {.train_images = 1, .val_images = 1, .classes = 1, .image_size = 64, .quality = 0},
    };
    const char *path = below("new");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(cvy_write_shape_boxes(path, &cases[i]), CVY_USAGE);
    support_write(support_folder, "new/x", "x", 1);
    const struct cvy_shape_boxes_options usual = CVY_SHAPE_BOXES_DEFAULTS;
    assert_int_equal(cvy_write_shape_boxes(path, &usual), CVY_CANNOT_CREATE);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(the_same_options_give_the_same_bytes), IN_FOLDER(impossible_sets_are_refused),
          IN_FOLDER(full_disks_leave_nothing), IN_FOLDER(without_memory_nothing_is_left),
          IN_FOLDER(folders_of_every_kind), IN_FOLDER(classes_differ_only_by_the_object),
          IN_FOLDER(scenes_are_detection_sets), TEST(boxes_fit), IN_FOLDER(impossible_scenes_are_refused),
          IN_FOLDER(a_check_finds_every_bad_file))
