/* Detection sets as TFRecords: what is written is read again, label maps, and what is refused. */
#include "base/file.h"
#include "base/sha256.h"
#include "convoy/dataset.h"
#include "convoy/program/check.h"
#include "convoy/program/shapes.h"
#include "data/detection/detection_records.h"
#include "data/detection/detection_set.h"
#include "data/detection/label_map.h"
#include "data/detection/object_record.h"
#include "data/loader/loader.h"
#include "data/set/split.h"
#include "data/transform/detection.h"
#include "formats/container/tfrecord.h"
#include "support_images.h"
#include "support_test.h"

static const struct cvy_category_rule fresh = {0};

/* ---- SHA-256: the standard's examples, and every length around a block ---- */

static void digests(void **state)
{
    char text[65], zeros[130] = {0}, last[65] = "";

    assert_string_equal(cvy_sha256_text("abc", 3, text),
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_string_equal(cvy_sha256_text("", 0, text),
                        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_string_equal(cvy_sha256_text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, text),
                        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    for (size_t size = 0; size <= sizeof zeros; size++) {
        cvy_sha256_text(zeros, size, text);
        assert_string_not_equal(text, last);
        memcpy(last, text, sizeof last);
    }
}

/* ---- label maps ---- */

static void refuse_map(const char *text, const char *reason)
{
    struct cvy_label_map map;

    assert_int_equal(cvy_label_map_parse("some.pbtxt", text, strlen(text), &map), CVY_BAD_DATA);
    if (!strstr(cvy_error(), reason) || !strstr(cvy_error(), "\"some.pbtxt\""))
        fail_msg("\"%s\" instead of \"%s\"", cvy_error(), reason);
    assert_null(map.labels);
}

static void label_maps(void **state)
{
    static const char text[] = "# two\nitem {\n  name: \"/m/01g317\"\n  id: 1\n  display_name: \"person\" }\n"
                               "item: { id: 7, name: 'a \\'b\\' \"c\"'; extra: 3 more: \"x\" }";
    struct cvy_label_map map, again;
    struct cvy_text written = {0};

    assert_int_equal(cvy_label_map_parse("some.pbtxt", text, strlen(text), &map), CVY_OK);
    assert_int_equal(map.count, 2);
    assert_int_equal(cvy_label_map_find(&map, "/m/01g317"), 1);
    assert_int_equal(cvy_label_map_find(&map, "person"), 1);
    assert_int_equal(cvy_label_map_find(&map, "a 'b' \"c\""), 7);
    assert_int_equal(cvy_label_map_find(&map, "cat"), -1);
    cvy_label_map_write(&written, map.labels[1].id, map.labels[1].name);
    assert_int_equal(cvy_label_map_parse("again", written.text, written.length, &again), CVY_OK);
    assert_string_equal(again.labels[0].name, map.labels[1].name);
    cvy_text_release(&written);
    cvy_label_map_release(&again);
    cvy_label_map_release(&map);

    assert_int_equal(cvy_label_map_coco(&map), CVY_OK);
    assert_int_equal(map.count, 80);
    assert_int_equal(cvy_label_map_find(&map, "person"), 1);
    assert_int_equal(cvy_label_map_find(&map, "stop sign"), 13);
    assert_int_equal(cvy_label_map_find(&map, "toothbrush"), 90);
    assert_int_equal(cvy_label_map_find(&map, ""), -1);
    cvy_label_map_release(&map);

    refuse_map("", "line 1 of \"some.pbtxt\": there is no item");
    refuse_map("items { }", "something else than an item");
    refuse_map("item \n\n ( }", "line 3");
    refuse_map("item { name: \"a\" }", "no name or no id");
    refuse_map("item { name: a id: 1 }", "a name is not in quotes");
    refuse_map("item { name: \"a", "a name does not end");
    refuse_map("item { id: x }", "an id is no number");
    refuse_map("item { id: 99999999999999999999 }", "an id is no number");
    refuse_map("item { id: 1", "in braces");
    refuse_map("item { id 1 }", "in braces");
    refuse_map("item { key: }", "a key has no value");
}

/* ---- whole sets ---- */

static void make_set(const char *name)
{
    const struct cvy_shape_boxes_options options = {
        .train_images = 7, .val_images = 3, .classes = 4, .image_size = 64, .quality = 90};

    assert_int_equal(cvy_write_shape_boxes(below(name), &options), CVY_OK);
}

static void assert_same_objects(const struct cvy_dataset *a, const struct cvy_dataset *b)
{
    assert_int_equal(a->sample_count, b->sample_count);
    assert_int_equal(a->object_count, b->object_count);
    assert_int_equal(a->class_count, b->class_count);
    for (int32_t c = 0; c < a->class_count; c++) {
        assert_string_equal(a->classes[c], b->classes[c]);
        assert_int_equal(a->category_ids[c], b->category_ids[c]);
    }
    for (uint32_t i = 0; i < a->sample_count; i++) {
        const struct cvy_coco_object *x, *y;
        uint32_t other = 0;
        size_t m, n;
        while (b->images[other].id != a->images[i].id)
            assert_true(++other < b->sample_count);
        assert_int_equal(a->images[i].width, b->images[other].width);
        assert_int_equal(a->images[i].height, b->images[other].height);
        cvy_dataset_objects(a, i, &x, &m);
        cvy_dataset_objects(b, other, &y, &n);
        assert_int_equal(m, n);
        for (size_t o = 0; o < m; o++) {
            float p[4], q[4];
            cvy_object_shares(&a->images[i], &x[o], p);
            cvy_object_shares(&b->images[other], &y[o], q);
            assert_memory_equal(p, q, sizeof p); /* shares survive the way through pixels bit for bit */
            assert_int_equal(x[o].slot, y[o].slot);
            assert_true(x[o].crowd == y[o].crowd && x[o].area == y[o].area);
        }
    }
}

static void there_and_back(void **state)
{
    struct cvy_tfrecord_options options = CVY_TFRECORD_DEFAULTS;
    struct cvy_tfrecord_result result;
    struct cvy_dataset train, val, train_records, val_records;

    make_set("shapes");
    options.train_shards = 3;
    assert_int_equal(cvy_write_tfrecords(below("shapes"), below("records"), &options, &result), CVY_OK);
    assert_int_equal(result.train_images, 7);
    assert_int_equal(result.train_shards, 3);
    assert_int_equal(result.val_shards, 1);
    assert_true(cvy_holds_detection(below("records")));
    assert_int_equal(cvy_dataset_open_detection_pair(below("shapes"), false, 0, 0, &train, &val), CVY_OK);
    assert_int_equal(cvy_dataset_open_detection_pair(below("records"), false, 0, 0, &train_records, &val_records),
                     CVY_OK);
    assert_int_equal(result.boxes, train.object_count + val.object_count);
    assert_same_objects(&train, &train_records);
    assert_same_objects(&val, &val_records);
    /* Image i is in file i mod 3. */
    assert_string_equal(train_records.samples[3].path, below("records/coco_train.record-00001-of-00003"));
    assert_int_equal(train_records.images[3].id, 2);
    assert_int_equal(train_records.images[4].id, 5);

    /* And the same pixels. */
    struct cvy_encoded a, b;
    assert_int_equal(cvy_sample_read(&train.samples[1], &a), CVY_OK);
    assert_int_equal(cvy_sample_read(&train_records.samples[3], &b), CVY_OK);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    cvy_encoded_release(&a);
    cvy_encoded_release(&b);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    cvy_dataset_close(&train_records);
    cvy_dataset_close(&val_records);

    /* Whose files are gone is not a smaller set; who holds records is not written again. */
    assert_int_equal(cvy_write_tfrecords(below("records"), below("again"), &options, &result), CVY_USAGE);
    assert_int_equal(remove(below("records/coco_train.record-00001-of-00003")), 0);
    assert_fails(cvy_dataset_open_detection(&train, below("records"), CVY_DETECTION_TRAIN, &fresh), CVY_BAD_DATA,
                 "there are 3");
    options.val_split = 0.5;
    assert_int_equal(cvy_write_tfrecords(below("shapes"), below("again"), &options, &result), CVY_USAGE);
}

/* Opened once, when the set is; open as long as one of its parts is. */
static void files_stay_open(void **state)
{
    const struct cvy_tfrecord_options options = {.size = sizeof(struct cvy_tfrecord_options), .train_shards = 3};
    struct cvy_tfrecord_result result;
    struct cvy_dataset all, train, val;

    make_set("shapes");
    assert_int_equal(cvy_write_tfrecords(below("shapes"), below("records"), &options, &result), CVY_OK);
    for (int held = 0; held < 2; held++) {
        cvy_shards_set_max_open(held ? -1 : 0);
        assert_int_equal(cvy_dataset_open_detection(&all, below("records"), CVY_DETECTION_TRAIN, &fresh), CVY_OK);
        cvy_shards_set_max_open(-1);
        assert_int_equal(cvy_dataset_split(&all, 0.3, 0, &train, &val), CVY_OK);
        cvy_dataset_close(&all);
        assert_int_equal(rename(below("records"), below("away")), 0);
        for (uint32_t i = 0; i < train.sample_count; i++) {
            struct cvy_encoded encoded;
            assert_int_equal(cvy_sample_read(&train.samples[i], &encoded), held ? CVY_OK : CVY_NO_INPUT);
            if (held)
                cvy_encoded_release(&encoded);
        }
        assert_int_equal(rename(below("away"), below("records")), 0);
        cvy_dataset_close(&train);
        cvy_dataset_close(&val);
    }
}

/* A set without parts, of four images; both categories are called so. */
static void make_whole(const char *first, const char *second)
{
    char text[2048];
    size_t used = (size_t)snprintf(text, sizeof text, "{\"images\": [");

    for (int i = 4; i > 0; i--) {
        char name[64];
        snprintf(name, sizeof name, "whole/images/%d.jpg", i);
        support_write_jpeg(support_folder, name, (uint64_t)i, 90, 90);
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "{\"id\": %d, \"file_name\": \"%d.jpg\", \"width\": 90, \"height\": 90}%s", i, i,
                                 i > 1 ? ", " : "");
    }
    used +=
        (size_t)snprintf(text + used, sizeof text - used,
                         "], \"annotations\": [{\"id\": 1, \"image_id\": 2, \"category_id\": 5, \"bbox\": [1, 1, 9, "
                         "9]}], \"categories\": [{\"id\": 5, \"name\": \"%s\"}, {\"id\": 8, \"name\": \"%s\"}]}",
                         first, second);
    support_write(support_folder, "whole/annotations/instances_default.json", text, used);
}

/* Records have the names of categories alone. */
static void equal_names(void **state)
{
    const struct cvy_tfrecord_options options = {.size = sizeof(struct cvy_tfrecord_options), .val_split = 0.25};
    struct cvy_tfrecord_result result;

    make_whole("cell", "cell");
    assert_int_equal(cvy_write_tfrecords(below("whole"), below("records"), &options, &result), CVY_BAD_DATA);
    if (!strstr(cvy_error(), "two categories \"cell\", 5 and 8"))
        fail_msg("\"%s\"", cvy_error());
    assert_false(cvy_path_exists(below("records")));
}

/* A set without parts in two of records, each counted from 0. */
static void records_of_a_split(void **state)
{
    const struct cvy_tfrecord_options options = {
        .size = sizeof(struct cvy_tfrecord_options), .val_split = 0.25, .seed = 3, .train_shards = 3};
    struct cvy_dataset train, val;
    struct cvy_tfrecord_result result;

    make_whole("cell", "cel");
    assert_int_equal(cvy_write_tfrecords(below("whole"), below("records"), &options, &result), CVY_OK);
    assert_int_equal(result.train_images, 3);
    assert_int_equal(result.val_images, 1);
    assert_int_equal(result.boxes, 1);
    assert_int_equal(cvy_dataset_open_detection_pair(below("whole"), false, 0.25, 3, &train, &val), CVY_OK);
    assert_int_equal(train.sample_count, 3);
    assert_int_equal(val.sample_count, 1);
    /* Image i is in file i mod 3: of the three, in the order of the COCO file, which counts down. */
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(train.places[i], 2 - i);
    assert_int_equal(val.places[0], 0);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
}

/* A record of other hands. */
static void write_record(const char *name, const struct cvy_feature_value *features, size_t count)
{
    struct cvy_text out = {0};
    uint8_t *message;
    size_t size;

    assert_int_equal(cvy_example_pack(features, count, &message, &size), CVY_OK);
    cvy_tfrecord_append(&out, message, size);
    support_write(support_folder, name, out.text, out.length);
    cvy_text_release(&out);
    cvy_free(message);
}

static const int64_t length = 100, labels[] = {3, 17};
static const float low[] = {0.1F, NAN}, high[] = {0.5F, 0.6F}, min[] = {0, 0}, max[] = {1, 1};
static const char *const texts[] = {"car", "cat"}, *const strange[] = {"car", "cell"};
#define USUAL                                                                                                          \
    {"image/encoded", CVY_FEATURE_BYTES, "x", 1}, {"image/width", CVY_FEATURE_INT64, &length, 1},                      \
        {"image/height", CVY_FEATURE_INT64, &length, 1}, {"image/object/bbox/xmin", CVY_FEATURE_FLOAT, low, 2},        \
        {"image/object/bbox/xmax", CVY_FEATURE_FLOAT, high, 2}, {"image/object/bbox/ymin", CVY_FEATURE_FLOAT, min, 2}, \
    {                                                                                                                  \
        "image/object/bbox/ymax", CVY_FEATURE_FLOAT, max, 2                                                            \
    }

static void other_hands(void **state)
{
    const struct cvy_feature_value named[] = {USUAL, {"image/object/class/text", CVY_FEATURE_TEXTS, texts, 2}};
    const struct cvy_feature_value labelled[] = {USUAL, {"image/object/class/label", CVY_FEATURE_INT64, labels, 2}};
    struct cvy_dataset set;

    for (int way = 0; way < 2; way++) {
        const struct cvy_coco_object *objects;
        size_t count;
        write_record("my_train.tfrecord", way ? labelled : named, 8);
        assert_int_equal(cvy_dataset_open_detection(&set, support_folder, CVY_DETECTION_TRAIN, &fresh), CVY_OK);
        assert_int_equal(set.class_count, 80);
        assert_int_equal(set.images[0].id, 1); /* counted: none is given */
        cvy_dataset_objects(&set, 0, &objects, &count);
        assert_int_equal(count, 1); /* the NaN is left out */
        assert_int_equal(set.odd.count[CVY_BOX_NOT_FINITE], 1);
        assert_string_equal(set.classes[objects[0].slot - 1], "car");
        assert_true(fabs(objects[0].bbox[0] - 10) < 1e-4 && fabs(objects[0].area - 4000) < 1e-2);
        cvy_dataset_close(&set);
    }
}

/* Numbers that are none: left out, counted, and named by file and byte. */
static void not_finite(void **state)
{
    enum { COUNT = 7 };
    static const char *const cars[COUNT] = {"car", "car", "car", "car", "car", "car", "car"};
    static const float xmin[COUNT] = {0.1F, -INFINITY, 0.1F, NAN, 0.1F, 0.1F, 0.1F};
    static const float xmax[COUNT] = {0.5F, 0.5F, INFINITY, 0.5F, 0.5F, 0.5F, 0.5F};
    static const float ymin[COUNT] = {0}, ymax[COUNT] = {1, 1, 1, 1, 1, 1, INFINITY};
    static const float areas[COUNT] = {7, 7, 7, 7, NAN, INFINITY, 7};
    const struct cvy_feature_value features[] = {
        {"image/encoded", CVY_FEATURE_BYTES, "x", 1},
        {"image/width", CVY_FEATURE_INT64, &length, 1},
        {"image/height", CVY_FEATURE_INT64, &length, 1},
        {"image/object/bbox/xmin", CVY_FEATURE_FLOAT, xmin, COUNT},
        {"image/object/bbox/xmax", CVY_FEATURE_FLOAT, xmax, COUNT},
        {"image/object/bbox/ymin", CVY_FEATURE_FLOAT, ymin, COUNT},
        {"image/object/bbox/ymax", CVY_FEATURE_FLOAT, ymax, COUNT},
        {"image/object/area", CVY_FEATURE_FLOAT, areas, COUNT},
        {"image/object/class/text", CVY_FEATURE_TEXTS, cars, COUNT},
    };
    struct cvy_check_report report;
    struct cvy_dataset set;

    write_record("my_train.tfrecord", features, sizeof features / sizeof *features);
    assert_int_equal(cvy_dataset_open_detection(&set, support_folder, CVY_DETECTION_TRAIN, &fresh), CVY_OK);
    assert_int_equal(set.object_count, 1);
    assert_int_equal(set.odd.count[CVY_BOX_NOT_FINITE], COUNT - 1);
    assert_int_equal(set.odd.count[CVY_BOX_EMPTY] + set.odd.count[CVY_BOX_OUTSIDE], 0);
    assert_string_equal(set.odd.listed[0].file, below("my_train.tfrecord"));
    cvy_dataset_close(&set);

    assert_int_equal(cvy_check_dataset(support_folder, &CVY_CHECK_DEFAULTS, &report), CVY_OK);
    assert_int_equal(report.train_boxes.not_finite, COUNT - 1);
    assert_int_equal(report.problem_count, COUNT); /* and the image, which is none */
    assert_string_equal(report.problems[1].path, below("my_train.tfrecord"));
    assert_non_null(
        strstr(report.problems[1].text, "my_train.tfrecord\", near byte 0: a box of image 1 or its area is"));
    cvy_check_report_release(&report);
}

static void refuse(const struct cvy_feature_value *features, size_t count, const char *reason)
{
    struct cvy_dataset set;

    write_record("my_train.record", features, count);
    assert_int_equal(cvy_dataset_open_detection(&set, support_folder, CVY_DETECTION_TRAIN, &fresh), CVY_BAD_DATA);
    if (!strstr(cvy_error(), reason) || !strstr(cvy_error(), "my_train.record"))
        fail_msg("\"%s\" instead of \"%s\"", cvy_error(), reason);
    assert_null(set.samples);
}

static void bad_records(void **state)
{
    const struct cvy_feature_value unknown[] = {USUAL, {"image/object/class/text", CVY_FEATURE_TEXTS, strange, 2}};
    const struct cvy_feature_value fewer[] = {USUAL, {"image/object/class/text", CVY_FEATURE_TEXTS, texts, 1}};
    const struct cvy_feature_value crowds[] = {USUAL, {"image/object/is_crowd", CVY_FEATURE_INT64, labels, 1}};
    const struct cvy_feature_value none[] = {USUAL};

    refuse(unknown, 8, "has a category \"cell\" that the label map does not have");
    refuse(fewer, 8, "has 2 values of image/object/bbox/ymin and 1 of image/object/class/text");
    refuse(crowds, 8, "and 1 of image/object/is_crowd");
    refuse(none, 7, "does not say what its boxes are around");
    refuse(none, 6, "and 0 of image/object/bbox/ymax");
    refuse(none, 2, "does not say how many pixels");
    refuse(none + 1, 2, "has no image");
    support_write(support_folder, "my_train.record", "no record at all", 16);
    struct cvy_dataset set;
    assert_int_equal(cvy_dataset_open_detection(&set, support_folder, CVY_DETECTION_TRAIN, &fresh), CVY_BAD_DATA);
}

RUN_TESTS(NULL, NULL, TEST(digests), TEST(label_maps), IN_FOLDER(there_and_back), IN_FOLDER(files_stay_open),
          IN_FOLDER(equal_names), IN_FOLDER(records_of_a_split), IN_FOLDER(other_hands), IN_FOLDER(not_finite),
          IN_FOLDER(bad_records))
