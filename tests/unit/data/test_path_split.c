/* The split by a hash of the paths: what stays where it is, what both parts hold, and when a folder is split at all. */
#include "data/set/dataset.h"
#include "support_images.h"
#include "support_test.h"

static void add_images(const char *folder, const char *class, int from, int to)
{
    char name[128];

    for (int i = from; i < to; i++) {
        snprintf(name, sizeof name, "%s/%s/%03d.jpg", folder, class, i);
        support_write(support_folder, name, "x", 1);
    }
}

static bool is_in(const struct cvy_dataset *set, const char *end)
{
    for (uint32_t i = 0; i < set->sample_count; i++) {
        const size_t length = strlen(set->samples[i].path), tail = strlen(end);
        if (length >= tail && strcmp(set->samples[i].path + length - tail, end) == 0)
            return true;
    }
    return false;
}

static int count_class(const struct cvy_dataset *set, int32_t label)
{
    int count = 0;

    for (uint32_t i = 0; i < set->sample_count; i++)
        count += set->samples[i].label == label;
    return count;
}

/* 300 images: about a tenth; each image in one part; the same below another folder and below DIR/train. */
static void divides(void **state)
{
    struct cvy_dataset train, val, again_train, again_val;

    (void)state;
    for (int copy = 0; copy < 3; copy++) {
        const char *folder = copy == 0 ? "a" : copy == 1 ? "other/place" : "b/train";
        add_images(folder, "cat", 0, 200);
        add_images(folder, "dog", 0, 100);
    }
    assert_int_equal(cvy_dataset_open_split(below("a"), 0.1, &train, &val), CVY_OK);
    assert_int_equal(train.sample_count + val.sample_count, 300);
    /* Binomial with 300 and 0.1: 30 expected, standard deviation 5.2; the hash is fixed, so is the number. */
    assert_in_range(val.sample_count, 15, 45);
    assert_true(count_class(&val, 0) > 0 && count_class(&val, 1) > 0);
    for (uint32_t i = 0; i < val.sample_count; i++)
        assert_false(is_in(&train, val.samples[i].path));
    for (int copy = 1; copy < 3; copy++) {
        assert_int_equal(cvy_dataset_open_split(below(copy == 1 ? "other/place" : "b"), 0.1, &again_train, &again_val),
                         CVY_OK);
        assert_int_equal(again_val.sample_count, val.sample_count);
        for (uint32_t i = 0; i < val.sample_count; i++)
            assert_true(is_in(&again_val, strstr(val.samples[i].path, val.samples[i].label ? "dog/" : "cat/")));
        cvy_dataset_close(&again_train);
        cvy_dataset_close(&again_val);
    }
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
}

/* Files and classes that are added move none of those that were there. */
static void stays(void **state)
{
    struct cvy_dataset train, val, more_train, more_val;

    (void)state;
    add_images("grows", "cat", 0, 60);
    add_images("grows", "dog", 0, 60);
    assert_int_equal(cvy_dataset_open_split(below("grows"), 0.1, &train, &val), CVY_OK);
    add_images("grows", "ape", 0, 40);
    add_images("grows", "dog", 500, 560);
    add_images("grows", "cat", 500, 540);
    assert_int_equal(cvy_dataset_open_split(below("grows"), 0.1, &more_train, &more_val), CVY_OK);
    assert_int_equal(more_train.sample_count + more_val.sample_count, 260);
    for (uint32_t i = 0; i < val.sample_count; i++)
        assert_true(is_in(&more_val, val.samples[i].path));
    for (uint32_t i = 0; i < train.sample_count; i++)
        assert_true(is_in(&more_train, train.samples[i].path));
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    cvy_dataset_close(&more_train);
    cvy_dataset_close(&more_val);
}

/* Of each class one image at least on either side; of a class of one image none for validation. */
static void small_classes(void **state)
{
    struct cvy_dataset train, val;
    char name[24];

    (void)state;
    for (int c = 0; c < 20; c++) {
        snprintf(name, sizeof name, "class%02d", c);
        add_images("small", name, 0, c == 19 ? 1 : 2 + c % 3);
    }
    for (int pass = 0; pass < 2; pass++) { /* a share that none has to reach, and one that all reach */
        assert_int_equal(cvy_dataset_open_split(below("small"), pass ? 0.999 : 0.001, &train, &val), CVY_OK);
        for (int32_t c = 0; c < 20; c++) {
            assert_true(count_class(&train, c) > 0);
            assert_int_equal(count_class(&val, c) > 0, c != 19);
        }
        cvy_dataset_close(&train);
        cvy_dataset_close(&val);
    }
    add_images("single", "a", 0, 1);
    add_images("single", "b", 0, 1);
    assert_int_equal(cvy_dataset_open_split(below("single"), 0.1, &train, &val), CVY_BAD_DATA);
}

static void which_folders(void **state)
{
    struct cvy_dataset train, val;
    bool lacks;

    (void)state;
    add_images("flat", "a", 0, 2);
    add_images("flat", "b", 0, 2);
    add_images("parts/train", "a", 0, 2);
    add_images("whole/train", "a", 0, 2);
    add_images("whole/val", "a", 0, 2);
    add_images("named/train", "a", 0, 2);
    add_images("named/validation", "a", 0, 2);
    add_images("deep/photos/train", "a", 0, 2);
    assert_int_equal(cvy_dataset_lacks_validation(below("flat"), &lacks), CVY_OK);
    assert_true(lacks);
    assert_int_equal(cvy_dataset_lacks_validation(below("parts"), &lacks), CVY_OK);
    assert_true(lacks);
    assert_int_equal(cvy_dataset_lacks_validation(below("whole"), &lacks), CVY_OK);
    assert_false(lacks);
    assert_int_equal(cvy_dataset_lacks_validation(below("nowhere"), &lacks), CVY_OK);
    assert_false(lacks);
    assert_int_equal(cvy_dataset_lacks_validation(below("named"), &lacks), CVY_NO_INPUT);
    assert_int_equal(cvy_dataset_lacks_validation(below("deep"), &lacks), CVY_NO_INPUT);
    assert_int_equal(cvy_dataset_open_split(below("whole"), 0.1, &train, &val), CVY_USAGE);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(divides), IN_FOLDER(stays), IN_FOLDER(small_classes), IN_FOLDER(which_folders))
