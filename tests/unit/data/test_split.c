/* Sets with boxes that are not divided: a part of their images for validation, and what is such a set at all. */
#include "data/detection/detection_set.h"
#include "support_images.h"
#include "support_test.h"

/* A set of one image. */
static void add_file(const char *name)
{
    static const char text[] = "{\"images\": [{\"id\": 1, \"file_name\": \"1.jpg\", \"width\": 100, \"height\": 50}],"
                               " \"annotations\": [], \"categories\": [{\"id\": 3, \"name\": \"cat\"}]}";
    support_write(support_folder, name, text, sizeof text - 1);
}

enum { WHOLE = 12 };

/* DIR/annotations/instances_default.json and DIR/images: image i, in the order 12 to 1, is "i.jpg" and has i % 3 boxes
 * that begin at column i, and one that ends beyond the image. */
static void add_whole(void)
{
    char text[8192];
    size_t used = (size_t)snprintf(text, sizeof text, "{\"images\": [");

    for (int i = WHOLE; i > 0; i--) {
        char name[64];
        snprintf(name, sizeof name, "images/%d.jpg", i);
        support_write(support_folder, name, "x", 1);
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "{\"id\": %d, \"file_name\": \"%d.jpg\", \"width\": 100, \"height\": 50}%s", i, i,
                                 i > 1 ? ", " : "], \"annotations\": [");
    }
    for (int i = 1; i <= WHOLE; i++)
        for (int box = 0; box < i % 3; box++)
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     "%s{\"image_id\": %d, \"category_id\": %d, \"bbox\": [%d, %d, 5, 6]}",
                                     i + box > 1 ? ", " : "", i, box ? 7 : 3, i, box);
    for (int i = 1; i <= WHOLE; i++)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 ", {\"image_id\": %d, \"category_id\": 3, \"bbox\": [%d, 9, 999, 6]}", i, i);
    snprintf(text + used, sizeof text - used,
             "], \"categories\": [{\"id\": 7, \"name\": \"dog\"}, {\"id\": 3, \"name\": \"cat\"}]}");
    support_write(support_folder, "annotations/instances_default.json", text, strlen(text));
}

/* Each image with its own boxes; places in the order of the file. `seen` counts the images. */
static void check_part(const struct cvy_dataset *set, int seen[WHOLE + 1])
{
    uint32_t total = 0;

    assert_true(set->detection);
    assert_int_equal(set->class_count, 2);
    assert_string_equal(set->classes[0], "cat");
    assert_int_equal(set->category_ids[1], 7);
    assert_string_equal(set->source, below("annotations/instances_default.json"));
    for (uint32_t s = 0; s < set->sample_count; s++) {
        const int id = (int)set->images[s].id;
        const struct cvy_coco_object *objects;
        uint32_t before = 0;
        size_t count;
        char name[32];
        snprintf(name, sizeof name, "images/%d.jpg", id);
        assert_string_equal(set->samples[s].path, below(name));
        assert_true(s == 0 || strcmp(set->samples[s - 1].path, set->samples[s].path) < 0);
        cvy_dataset_objects(set, s, &objects, &count);
        assert_int_equal(count, id % 3);
        for (int box = 0; box < id % 3; box++) {
            assert_int_equal(objects[box].slot, box + 1);
            assert_true(objects[box].bbox[0] == id && objects[box].bbox[1] == box);
        }
        cvy_dataset_all_objects(set, s, &objects, &count);
        assert_int_equal(count, id % 3 + 1);
        assert_true(objects[id % 3].bbox[0] == id && objects[id % 3].bbox[2] == 999);
        for (uint32_t other = 0; other < set->sample_count; other++) /* the file counts down */
            before += set->images[other].id > id;
        assert_int_equal(set->places[s], before);
        total += (uint32_t)(id % 3);
        seen[id]++;
    }
    assert_int_equal(set->object_count, total);
}

static void open_split(double share, uint64_t seed, struct cvy_dataset *train, struct cvy_dataset *val)
{
    int seen[WHOLE + 1] = {0};

    if (cvy_dataset_open_detection_pair(support_folder, false, share, seed, train, val) != CVY_OK)
        fail_msg("%s", cvy_error());
    check_part(train, seen);
    check_part(val, seen);
    for (int i = 1; i <= WHOLE; i++)
        assert_int_equal(seen[i], 1);
}

static void close_both(struct cvy_dataset *train, struct cvy_dataset *val)
{
    cvy_dataset_close(train);
    cvy_dataset_close(val);
}

static void splits(void **state)
{
    static const struct {
        double share;
        uint32_t val;
    } shares[] = {{0.25, 3}, {0.2, 2}, {0.01, 1}, {0.99, 11}}; /* at least one on either side */
    struct cvy_dataset train, val, again, other;
    bool same = true;

    add_whole();
    assert_true(cvy_holds_detection(support_folder));
    assert_false(cvy_holds_detection_part(support_folder, CVY_DETECTION_VAL));
    assert_fails(cvy_dataset_open_detection_pair(support_folder, false, 0, 0, &train, &val), CVY_NO_INPUT,
                 "--val-split");
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        open_split(shares[i].share, 5, &train, &val);
        assert_int_equal(val.sample_count, shares[i].val);
        close_both(&train, &val);
    }

    /* The seed decides, and it alone. */
    open_split(0.5, 5, &train, &val);
    open_split(0.5, 5, &other, &again);
    for (uint32_t i = 0; i < val.sample_count; i++)
        assert_int_equal(val.images[i].id, again.images[i].id);
    close_both(&other, &again);
    open_split(0.5, 6, &other, &again);
    for (uint32_t i = 0; i < val.sample_count; i++)
        same = same && val.images[i].id == again.images[i].id;
    assert_false(same);
    close_both(&other, &again);
    close_both(&train, &val);

    /* What memory cannot hold leaves nothing after. */
    for (int64_t n = 1;; n++) {
        const cvy_status status =
            WITH_FAILURE(n, false, cvy_dataset_open_detection_pair(support_folder, false, 0.5, 5, &train, &val));
        if (status == CVY_OK)
            break;
        assert_null(train.samples);
        assert_null(val.samples);
    }
    close_both(&train, &val);
}

static void refuse_split(const char *path, double share, cvy_status expected, const char *reason)
{
    struct cvy_dataset train, val;

    assert_int_equal(cvy_dataset_open_detection_pair(path, false, share, 0, &train, &val), expected);
    assert_error(reason);
    assert_null(train.samples);
}

static void refused_splits(void **state)
{
    add_file("boxes.json");
    refuse_split(support_folder, 0.5, CVY_BAD_DATA, "one image only");
    refuse_split(below("boxes.json"), 0.5, CVY_BAD_DATA, "one image only");
    refuse_split(below("nowhere"), 0.5, CVY_NO_INPUT, "nowhere");
    refuse_split(support_folder, 1, CVY_USAGE, "--val-split");
    refuse_split(support_folder, -0.1, CVY_USAGE, "--val-split");
    add_file("more.json");
    refuse_split(support_folder, 0.5, CVY_BAD_DATA, "may both be meant");
    add_file("val/boxes.json");
    refuse_split(support_folder, 0.5, CVY_USAGE, "nothing is to be set aside");
}

/* Other files of a classification set. */
static void no_boxes(void **state)
{
    static const char counts[] = "{\"images\": 5000, \"annotations\": \"none\"}";

    support_write(support_folder, "cat/1.jpg", "x", 1);
    support_write(support_folder, "about.json", counts, sizeof counts - 1);
    assert_false(cvy_holds_detection(support_folder));
    add_file("whole.json");
    assert_true(cvy_holds_detection(support_folder));
    support_write(support_folder, "train/cat/1.jpg", "x", 1);
    assert_false(cvy_holds_detection(support_folder));
}

RUN_TESTS(NULL, NULL, IN_FOLDER(splits), IN_FOLDER(refused_splits), IN_FOLDER(no_boxes))
