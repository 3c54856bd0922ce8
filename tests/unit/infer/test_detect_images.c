/* What a detector finds on lists of images is what it finds on each of them. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "convoy/detect.h"
#include "support_classifier.h"
#include "support_test.h"

enum { COUNT = 2 * IMAGES + 1, OBJECTS = CVY_DETECTED_OBJECTS_MAX };

struct found {
    struct cvy_detected_object objects[COUNT][OBJECTS];
    int count[COUNT], width[COUNT], height[COUNT];
    cvy_status status[COUNT];
    char errors[COUNT][CVY_ERROR_SIZE];
};

static struct cvy_detect_outputs outputs_for(struct found *found)
{
    memset(found, 0x7F, sizeof *found); /* what is not written shows */
    return (struct cvy_detect_outputs){.size = sizeof(struct cvy_detect_outputs),
                                       .objects = found->objects[0],
                                       .count = found->count,
                                       .width = found->width,
                                       .height = found->height,
                                       .status = found->status,
                                       .errors = found->errors[0]};
}

static cvy_detector *open_detector(const char *device, int batch)
{
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    cvy_detector *detector;

    options.weights = make_weights("ssd320");
    options.device = device;
    options.precision = "fp32";
    options.threads = 1;
    options.workers = 2;
    options.batch_size = batch;
    if (cvy_detector_open(&options, &detector) != CVY_OK)
        fail_msg("%s", cvy_error());
    return detector;
}

/* Images of other sizes each, every third one as a file. */
struct list {
    struct cvy_image images[COUNT];
    struct cvy_pixels pixels[COUNT];
    char files[COUNT][32 + sizeof painted[0]];
};

static void make_list(struct list *list)
{
    memset(list, 0, sizeof *list);
    for (int i = 0; i < COUNT; i++) {
        struct cvy_pixels *pixels = &list->pixels[i];
        struct cvy_image *image = &list->images[i];

        *pixels = painted_pixels(i % IMAGES);
        pixels->height = SIDE - i;
        *image = (struct cvy_image){.size = sizeof *image, .pixels = pixels};
        if (i % 3 == 1) {
            const size_t bytes = (size_t)pixels->height * SIDE * 3;
            const size_t header = (size_t)snprintf(list->files[i], 32, "P6\n%d %d\n255\n", SIDE, pixels->height);

            memcpy(list->files[i] + header, pixels->data, bytes);
            *image = (struct cvy_image){sizeof *image, "a file", list->files[i], header + bytes, NULL};
        } else if (i % 3 == 2) {
            pixels->width = SIDE / 2 + i;
            pixels->stride = (size_t)SIDE * 3;
        }
    }
}

static bool is_near(const struct cvy_detected_object *a, const struct cvy_detected_object *b)
{
    bool near = a->class_index == b->class_index && fabsf(a->score - b->score) <= 1e-4F;

    for (int k = 0; k < 4; k++)
        near &= fabsf(a->box[k] - b->box[k]) <= 1e-2F;
    return near && a->class_id == b->class_id && a->class_name == b->class_name;
}

/* Image i of the list alone. exact: the same bits, since its kernels are the same; else objects whose scores are nearly
 * the same may change places. */
static void expect_alone(cvy_detector *detector, const struct list *list, int i, const struct found *found, bool exact)
{
    static struct cvy_detected_object objects[OBJECTS];
    const struct cvy_image *image = &list->images[i];
    int count = 0, width = list->pixels[i].width, height = list->pixels[i].height, missing = 0;
    const cvy_status status = image->data ? cvy_detect_memory(detector, "alone", image->data, image->bytes, 0, objects,
                                                              &count, &width, &height)
                                          : cvy_detect_pixels(detector, "alone", image->pixels, 0, objects, &count);

    assert_int_equal(status, CVY_OK);
    assert_int_equal(found->status[i], CVY_OK);
    assert_string_equal(found->errors[i], "");
    assert_int_equal(found->width[i], width);
    assert_int_equal(found->height[i], height);
    assert_int_equal(found->count[i], count);
    assert_true(count > 10);
    for (int k = 0; k < count; k++) {
        const struct cvy_detected_object *wanted = &objects[k];
        bool there = false;

        if (exact) {
            assert_memory_equal(found->objects[i][k].box, wanted->box, sizeof wanted->box);
            assert_memory_equal(&found->objects[i][k].score, &wanted->score, sizeof wanted->score);
        }
        assert_float_equal(found->objects[i][k].score, wanted->score, 1e-4);
        for (int other = exact ? k : 0; other < (exact ? k + 1 : count); other++)
            there |= is_near(&found->objects[i][other], wanted);
        missing += !there;
    }
    assert_true(exact ? missing == 0 : missing <= 2); /* of many, the last ones may be others */
}

static void expect_none(const struct found *found, int i, cvy_status status, const char *words)
{
    assert_int_equal(found->status[i], status);
    assert_int_equal(found->count[i], 0);
    assert_true(found->width[i] == 0 && found->height[i] == 0);
    if (!strstr(found->errors[i], words))
        fail_msg("image %d: %s", i, found->errors[i]);
}

/* Nine images are two batches of four and one of one; two of them are none. */
static void images(void **state)
{
    static struct list list;
    static struct found found;
    cvy_detector *detector = open_detector("cpu", 4);
    struct cvy_detect_outputs outputs = outputs_for(&found);

    (void)state;
    make_list(&list);
    list.images[5] = (struct cvy_image){sizeof list.images[5], "the sixth", "no image", 8, NULL};
    list.images[6] = (struct cvy_image){.size = sizeof list.images[6]};
    assert_fails(cvy_detect_images(detector, list.images, COUNT, 0, &outputs), CVY_BAD_DATA, "the sixth");
    for (int i = 0; i < COUNT; i++)
        if (i != 5 && i != 6)
            expect_alone(detector, &list, i, &found, i == 8);
    expect_none(&found, 5, CVY_BAD_DATA, "\"the sixth\"");
    expect_none(&found, 6, CVY_USAGE, "\"image 6\" has neither bytes nor pixels");
    /* None of a batch can be computed. */
    assert_fails(cvy_detect_images(detector, list.images + 5, 2, 0, &outputs), CVY_BAD_DATA, "the sixth");
    expect_none(&found, 0, CVY_BAD_DATA, "\"the sixth\"");
    expect_none(&found, 1, CVY_USAGE, "\"image 1\" has neither bytes nor pixels");
    outputs.status = NULL;
    assert_fails(cvy_detect_images(detector, list.images, 1, 0, &outputs), CVY_USAGE, "errors without status");
    outputs.errors = NULL;
    assert_fails(cvy_detect_images(detector, list.images, COUNT, 0, &outputs), CVY_BAD_DATA, "the sixth");
    cvy_detector_close(detector);
}

/* On the reference device an image does not know of the others: three, and the fourth that fills the batch up. */
static void same_bits(void **state)
{
    enum { THREE = 3 };
    static struct list list;
    static struct found found;
    cvy_detector *detector = open_detector("ref", 4);
    const struct cvy_detect_outputs outputs = outputs_for(&found);

    (void)state;
    make_list(&list);
    if (cvy_detect_images(detector, list.images, THREE, 0, &outputs) != CVY_OK)
        fail_msg("%s", cvy_error());
    for (int i = 0; i < THREE; i++)
        expect_alone(detector, &list, i, &found, true);
    assert_int_equal(found.count[THREE], 0x7F7F7F7F); /* no row more is written */
    assert_int_equal(found.status[THREE], 0x7F7F7F7F);
    cvy_detector_close(detector);
}

static void thresholds(void **state)
{
    static struct list list;
    static struct found all, some;
    cvy_detector *detector = open_detector("cpu", 4), *context;
    struct cvy_detect_outputs outputs = outputs_for(&all);

    (void)state;
    make_list(&list);
    assert_int_equal(cvy_detector_open_context(detector, 0, &context), CVY_OK);
    assert_int_equal(cvy_detect_images(detector, list.images, 2, 0, &outputs), CVY_OK);
    cvy_detector_close(detector);
    const double threshold = (double)all.objects[1][all.count[1] / 2].score;
    outputs = outputs_for(&some);
    outputs.width = outputs.height = NULL;
    outputs.status = NULL;
    outputs.errors = NULL;
    assert_int_equal(cvy_detect_images(context, list.images, 2, threshold, &outputs), CVY_OK);
    for (int i = 0; i < 2; i++) {
        int wanted = 0;

        while (wanted < all.count[i] && (double)all.objects[i][wanted].score >= threshold)
            wanted++;
        assert_int_equal(some.count[i], wanted);
        assert_memory_equal(some.objects[i][0].box, all.objects[i][0].box, sizeof all.objects[i][0].box);
    }
    assert_true(some.count[1] > 0 && some.count[1] < all.count[1]);
    assert_int_equal(some.width[0], 0x7F7F7F7F);
    cvy_detector_close(context);
}

static void refused(void **state)
{
    static struct list list;
    static struct found found;
    cvy_detector *detector = open_detector("cpu", 4);
    const struct cvy_detect_outputs outputs = outputs_for(&found);
    struct cvy_detect_outputs others = outputs;
    struct {
        struct cvy_detect_outputs outputs;
        long more;
    } newer = {outputs, 0};

    (void)state;
    make_list(&list);
    assert_int_equal(cvy_detect_images(detector, NULL, 0, 0.5, &outputs), CVY_OK);
    assert_fails(cvy_detect_images(detector, list.images, -1, 0.5, &outputs), CVY_USAGE, "cannot be -1 images");
    assert_fails(cvy_detect_images(detector, list.images, 1, 1.5, &outputs), CVY_USAGE, "threshold of 1.5");
    assert_fails(cvy_detect_images(detector, list.images, 1, (double)NAN, &outputs), CVY_USAGE, "threshold");
    others.objects = NULL;
    assert_fails(cvy_detect_images(detector, list.images, 1, 0.5, &others), CVY_USAGE, "no place for objects");
    others = outputs;
    others.count = NULL;
    assert_fails(cvy_detect_images(detector, list.images, 1, 0.5, &others), CVY_USAGE, "no place for the counts");
    others = outputs;
    others.size = 0;
    assert_fails(cvy_detect_images(detector, list.images, 1, 0.5, &others), CVY_USAGE, "cvy_detect_outputs");
    list.images[1].size = 0;
    assert_fails(cvy_detect_images(detector, list.images, 2, 0.5, &outputs), CVY_USAGE, "image 1");
    newer.outputs.size = sizeof newer;
    assert_int_equal(cvy_detect_images(detector, list.images, 1, 0.5, &newer.outputs), CVY_OK);
    newer.more = 1;
    assert_fails(cvy_detect_images(detector, list.images, 1, 0.5, &newer.outputs), CVY_USAGE, "newer library");
    cvy_detector_close(detector);
}

/* ---- another thread ---- */

struct other {
    cvy_detector *detector;
    atomic_bool over;
    cvy_status status;
};

/* Again and again, until it is stopped. */
static void *detect_often(void *argument)
{
    static struct list list;
    static struct found found;
    struct other *other = argument;
    const struct cvy_detect_outputs outputs = outputs_for(&found);

    make_list(&list);
    do
        other->status = cvy_detect_images(other->detector, list.images, COUNT, 0.5, &outputs);
    while (other->status == CVY_OK || other->status == CVY_USAGE); /* the other one was first */
    atomic_store(&other->over, true);
    return NULL;
}

static void stopped(void **state)
{
    static struct found found;
    struct other other = {.detector = open_detector("cpu", 1)};
    const struct cvy_detect_outputs outputs = outputs_for(&found);
    pthread_t id;

    (void)state;
    assert_int_equal(pthread_create(&id, NULL, detect_often, &other), 0);
    while (cvy_detect_images(other.detector, NULL, 0, 0.5, &outputs) == CVY_OK)
        ;
    assert_non_null(strstr(cvy_error(), "in progress"));
    while (!atomic_load(&other.over))
        cvy_detector_stop(other.detector);
    assert_int_equal(pthread_join(id, NULL), 0);
    assert_int_equal(other.status, CVY_STOPPED);
    cvy_detector_close(other.detector);
}

RUN_TESTS(classifier_setup, classifier_teardown, TEST(images), TEST(same_bits), TEST(thresholds), TEST(refused),
          TEST(stopped))
