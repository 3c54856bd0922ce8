/* COCO files and the sets made of them: what is kept, what is left out, and the sentences for what cannot be. */
#include "data/detection/coco_set.h"
#include "data/detection/detection_set.h"
#include "formats/json_stream.h"
#include "support_images.h"
#include "support_test.h"

/* ---- files in memory ---- */

#define FILED(id, name) "{\"id\": " #id ", \"file_name\": \"" name "\", \"width\": 100, \"height\": 50}"
#define IMAGE(id)       "{\"id\": " #id ", \"file_name\": \"" #id ".jpg\", \"width\": 100, \"height\": 50}"
#define BOX(id, image, category, box)                                                                                  \
    "{\"id\": " #id ", \"image_id\": " #image ", \"category_id\": " #category ", \"bbox\": [" box "]}"
#define CATS                         "\"categories\": [{\"id\": 7, \"name\": \"dog\"}, {\"id\": 3, \"name\": \"cat\"}]"
#define FILE_OF(images, annotations) "{\"images\": [" images "], \"annotations\": [" annotations "], " CATS "}"

static const struct cvy_category_rule fresh = {0}, coco = {.coco = true};

static cvy_status open_text(struct cvy_dataset *set, const char *text, const struct cvy_category_rule *rule)
{
    struct cvy_coco_file file;

    *set = (struct cvy_dataset){0};
    cvy_status status = cvy_coco_file_parse("some.json", text, strlen(text), &file);
    if (status == CVY_OK)
        status = cvy_dataset_from_coco(set, "some.json", &file, "pictures", rule);
    cvy_coco_file_release(&file);
    return status;
}

static void must_open(struct cvy_dataset *set, const char *text, const struct cvy_category_rule *rule)
{
    const cvy_status status = open_text(set, text, rule);
    if (status != CVY_OK)
        print_error("%s\n", cvy_error());
    assert_int_equal(status, CVY_OK);
}

static void refuse_by(const char *text, const struct cvy_category_rule *rule, const char *reason)
{
    struct cvy_dataset set;
    const cvy_status status = open_text(&set, text, rule);

    if (status != CVY_BAD_DATA || !strstr(cvy_error(), reason))
        print_error("status %d, \"%s\" instead of \"%s\" for %s\n", (int)status, cvy_error(), reason, text);
    assert_fails(status, CVY_BAD_DATA, reason);
    assert_error("\"some.json\"");
    assert_null(strchr(cvy_error(), '\n'));
    assert_null(set.samples);
}

static void refuse(const char *text, const char *reason)
{
    refuse_by(text, &fresh, reason);
}

static void objects_of(const struct cvy_dataset *set, uint32_t sample, const struct cvy_coco_object **objects,
                       size_t expected)
{
    size_t count;

    cvy_dataset_objects(set, sample, objects, &count);
    assert_int_equal(count, expected);
}

/* Categories by id, samples by name, objects in the order of the file; outlines of every kind are skipped. */
static void what_is_kept(void **state)
{
    static const char text[] =
        "{\"info\": {\"images\": 3}, \"annotations\": ["
        "{\"segmentation\": [[1, 2.5, 3e0, 4]], \"area\": 12.5, \"iscrowd\": 0, \"image_id\": 20, \"bbox\": [1.5, 2, "
        "3, 4],"
        " \"category_id\": 7, \"id\": 5},"
        "{\"segmentation\": {\"counts\": [1, 2], \"size\": [50, 100]}, \"iscrowd\": 1, \"image_id\": 10,"
        " \"bbox\": [0, 0, 100, 50], \"category_id\": 3, \"id\": 6, \"area\": null},"
        "{\"segmentation\": {\"counts\": \"abc\", \"size\": [50, 100]}, \"iscrowd\": true, \"image_id\": 20,"
        " \"bbox\": [-4, 1, 10, 5], \"category_id\": 3, \"extra\": {\"bbox\": [[]], \"id\": {}}}"
        "], \"licenses\": [[], {}], \"images\": [" IMAGE(20) ", " IMAGE(10) ", " IMAGE(30) "], " CATS "}";
    const struct cvy_coco_object *objects;
    struct cvy_dataset set;

    must_open(&set, text, &fresh);
    assert_true(set.detection);
    assert_int_equal(set.class_count, 2);
    assert_string_equal(set.classes[0], "cat");
    assert_string_equal(set.classes[1], "dog");
    assert_int_equal(set.category_ids[0], 3);
    assert_int_equal(set.category_ids[1], 7);
    assert_int_equal(set.sample_count, 3);
    assert_string_equal(set.samples[0].path, "pictures/10.jpg");
    assert_string_equal(set.samples[2].path, "pictures/30.jpg");
    assert_int_equal(set.images[1].id, 20);
    assert_int_equal(set.images[1].width, 100);
    assert_int_equal(set.images[1].height, 50);
    objects_of(&set, 0, &objects, 1);
    assert_int_equal(objects[0].slot, 1);
    assert_true(objects[0].crowd);
    assert_true(objects[0].area == 5000); /* of the box: the file says nothing */
    objects_of(&set, 1, &objects, 2);
    assert_int_equal(objects[0].slot, 2);
    assert_false(objects[0].crowd);
    assert_true(objects[0].area == 12.5 && objects[0].bbox[0] == 1.5 && objects[0].bbox[3] == 4);
    assert_true(objects[1].crowd);
    assert_true(objects[1].bbox[0] == -4); /* only the right and lower edges count */
    objects_of(&set, 2, &objects, 0);
    cvy_dataset_close(&set);
}

/* The rules of the reference's records: no width or height, or beyond the image, in double. Training does not see them,
 * an evaluation may. */
static void what_is_set_aside(void **state)
{
    static const char text[] = FILE_OF(
        IMAGE(1),
        BOX(1, 1, 3, "10, 10, 0, 5") "," BOX(2, 1, 3, "10, 10, 5, -1") "," BOX(3, 1, 3, "90, 0, 10.5, 5") "," BOX(
            4, 1, 3,
            "0, 40, 5, 10.0000001") "," BOX(5, 1, 3,
                                            "90, 40, 10, 10") "," BOX(6, 1, 3,
                                                                      "-9, 0, 8, 8") "," BOX(7, 1, 3,
                                                                                             "99.9, 49.9, 0.1, "
                                                                                             "0.1") "," BOX(8, 1, 3,
                                                                                                            "1e30"
                                                                                                            "0, "
                                                                                                            "0, "
                                                                                                            "1e30"
                                                                                                            "0, "
                                                                                                            "1"));
    const struct cvy_coco_object *objects;
    struct cvy_dataset set;

    must_open(&set, text, &fresh);
    assert_int_equal(set.odd.count[CVY_BOX_EMPTY], 2);
    assert_int_equal(set.odd.count[CVY_BOX_OUTSIDE], 4);
    assert_int_equal(set.odd.listed_count, 6);
    assert_int_equal(set.odd.listed[1].kind, CVY_BOX_EMPTY);
    assert_true(set.odd.listed[1].bbox[3] == -1);
    assert_true(text[set.odd.listed[0].at - 1] == '}');
    objects_of(&set, 0, &objects, 2);
    assert_true(objects[0].bbox[0] == 90 && objects[1].bbox[2] == 0.1);
    assert_int_equal(set.object_count, 2);
    size_t count;
    cvy_dataset_all_objects(&set, 0, &objects, &count);
    assert_int_equal(count, 8);
    static const uint32_t places[] = {4, 6, 0, 1, 2, 3, 5, 7};
    for (size_t i = 0; i < count; i++)
        assert_int_equal(objects[i].place, places[i]);
    assert_true(objects[2].bbox[2] == 0 && objects[5].bbox[1] == 40 && objects[7].bbox[0] == 1e300);
    cvy_dataset_close(&set);
}

/* Each image has its own objects, whatever lies between those of the file. */
static void set_aside_of_each_image(void **state)
{
    static const char text[] =
        FILE_OF(IMAGE(1) "," IMAGE(2), BOX(1, 2, 3, "0, 0, 0, 5") "," BOX(2, 1, 3, "1, 0, 5, 5") "," BOX(
                                           3, 2, 3, "2, 0, 5, 5") "," BOX(4, 1, 7, "96, 0, 5, 5"));
    const struct cvy_coco_object *objects;
    struct cvy_dataset set;
    size_t count;

    must_open(&set, text, &fresh);
    for (uint32_t sample = 0; sample < 2; sample++) {
        objects_of(&set, sample, &objects, 1);
        assert_true(objects[0].bbox[0] == sample + 1);
        cvy_dataset_all_objects(&set, sample, &objects, &count);
        assert_int_equal(count, 2);
        assert_true(objects[1].bbox[0] == (sample == 0 ? 96 : 0) && objects[1].slot == (sample == 0 ? 2 : 1));
    }
    cvy_dataset_close(&set);
}

static void slots_of_coco(void **state)
{
    static const char text[] = FILE_OF(IMAGE(1), BOX(1, 1, 7, "0, 0, 5, 5"));
    const struct cvy_coco_object *objects;
    struct cvy_dataset set, other;

    must_open(&set, text, &coco);
    assert_int_equal(set.class_count, 90);
    assert_string_equal(set.classes[6], "dog");
    assert_string_equal(set.classes[11], "");
    assert_int_equal(set.category_ids[89], 90);
    objects_of(&set, 0, &objects, 1);
    assert_int_equal(objects[0].slot, 7);
    refuse_by("{\"images\": [" IMAGE(1) "], \"categories\": [{\"id\": 91, \"name\": \"x\"}]}", &coco, "no category 91");

    /* A set that comes later has the classes of the first, whatever it names itself. */
    const struct cvy_category_rule known = cvy_categories_of(&set);
    must_open(&other, "{\"images\": [" IMAGE(1) "], \"categories\": [{\"id\": 7, \"name\": \"dog\"}]}", &known);
    assert_int_equal(other.class_count, 90);
    assert_string_equal(other.classes[6], "dog");
    cvy_dataset_close(&other);
    refuse_by("{\"images\": [" IMAGE(1) "], \"categories\": [{\"id\": 7, \"name\": \"wolf\"}]}", &known,
              "category 7 is \"wolf\", but \"dog\"");
    cvy_dataset_close(&set);
}

static void known_classes(void **state)
{
    static const char *const names[] = {"dog", "bird"};
    static const int64_t ids[] = {7, 9};
    const struct cvy_category_rule by_name = {.names = names, .count = 2};
    const struct cvy_category_rule by_id = {.names = names, .ids = ids, .count = 2};
    const struct cvy_coco_object *objects;
    struct cvy_dataset set;

    /* "cat" is not among them: that matters only where there is one. */
    must_open(&set, FILE_OF(IMAGE(1), BOX(1, 1, 7, "0, 0, 5, 5")), &by_name);
    assert_int_equal(set.class_count, 2);
    assert_int_equal(set.category_ids[0], 7);
    objects_of(&set, 0, &objects, 1);
    assert_int_equal(objects[0].slot, 1);
    cvy_dataset_close(&set);
    refuse_by(FILE_OF(IMAGE(1), BOX(1, 1, 3, "0, 0, 5, 5")), &by_name, "category 3, \"cat\", is not among the classes");
    refuse_by(FILE_OF(IMAGE(1), BOX(1, 1, 3, "0, 0, 5, 5")), &by_id, "is not among the classes");
    must_open(&set, FILE_OF(IMAGE(1), ""), &by_id);
    assert_int_equal(set.category_ids[1], 9);
    cvy_dataset_close(&set);
}

/* Whole numbers that a program has written as floats are the same numbers. */
static void whole_numbers(void **state)
{
    const struct cvy_coco_object *objects;
    struct cvy_dataset set;

    must_open(&set,
              "{\"images\": [{\"id\": 20.0, \"file_name\": \"a.jpg\", \"width\": 1e2, \"height\": 50.0},"
              " {\"id\": -9007199254740991.0, \"file_name\": \"b.jpg\", \"width\": 9, \"height\": 9},"
              " {\"id\": 9223372036854775807, \"file_name\": \"c.jpg\", \"width\": 9, \"height\": 9}],"
              " \"annotations\": [{\"id\": 1.0, \"image_id\": 2e1, \"category_id\": 70e-1, \"iscrowd\": 1.0,"
              " \"bbox\": [0, 0, 5, 5]}],"
              " \"categories\": [{\"id\": 7.0, \"name\": \"dog\"}]}",
              &fresh);
    assert_int_equal(set.category_ids[0], 7);
    assert_true(set.images[0].id == 20 && set.images[0].width == 100 && set.images[0].height == 50);
    assert_true(set.images[1].id == -9007199254740991 && set.images[2].id == INT64_MAX);
    objects_of(&set, 0, &objects, 1);
    assert_true(objects[0].crowd);
    cvy_dataset_close(&set);
}

static void bad_files(void **state)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", "bad JSON near byte 0: parse error: premature EOF"},
        {"[]", "a COCO file is an object"},
        {"7", "a COCO file is an object"},
        {"{}", "is no COCO file: it has no list \"images\""},
        {"{\"images\": []}", "it has no list \"categories\""},
        {"{\"images\": [], \"categories\": []}", "names no categories"},
        {"{\"images\": [], " CATS "}", "names no images"},
        {"{\"images\": {}, " CATS "}", "near byte 12: this is not a list: \"images\""},
        {"{\"images\": [], \"images\": []}", "there is a second list \"images\""},
        {"{\"images\": [3]}", "an entry is not an object"},
        {"{\"images\": [{}]}", "an image has no \"id\""},
        {"{\"images\": [{\"id\": \"1\"}]}", "an image has an \"id\" that is not a whole number"},
        {"{\"images\": [{\"id\": 1.5}]}", "not a whole number"},
        {"{\"images\": [{\"id\": 1e-1}]}", "not a whole number"},
        {"{\"images\": [{\"id\": 9007199254740992.0}]}", "not a whole number"}, /* 2^53: the next one is this, too */
        {"{\"images\": [{\"id\": -1e300}]}", "not a whole number"},
        {"{\"images\": [{\"id\": 9223372036854775808}]}", "not a whole number"},
        {"{\"images\": [{\"id\": null}]}", "not a whole number"},
        {FILE_OF(IMAGE(1.0) "," IMAGE(1), ""), "two images have the id 1"},
        {FILE_OF(IMAGE(1), "{\"id\": 1, \"iscrowd\": 0.5}"), "\"iscrowd\" that is not a whole number"},
        {"{\"images\": [{\"id\": 1, \"id\": 2}]}", "an image has two \"id\""},
        {"{\"images\": [{\"id\": 1e400}]}", "bad JSON near byte 24: a number is too large"},
        {"{\"images\": [{\"id\": 1, \"file_name\": 3}]}", "\"file_name\" that is not a text"},
        {"{\"images\": [{\"id\": 1, \"file_name\": \"\"}]}", "\"file_name\" that is not a text"},
        {"{\"images\": [{\"id\": 1, \"file_name\": \"a\\u0000b\"}]}", "bad JSON near byte 45: a string holds a zero"},
        {"{\"images\": [{\"id\": 1, \"file_name\": \"a\", \"width\": 0}]}", "\"width\" that is not a number of pixels"},
        {"{\"images\": [{\"id\": 1, \"file_name\": \"a\", \"width\": 5}]}", "an image has no \"height\""},
        {"{\"images\": [{\"id\": 1, \"file_name\": \"a\", \"height\": 4e9}]}", "\"height\" that is not a number"},
        {FILE_OF(FILED(7, "../../secret.jpg"), ""), "a file_name has a part \"..\": image 7"},
        {FILE_OF(FILED(7, "a/.."), ""), "a file_name has a part \"..\": image 7"},
        {FILE_OF(FILED(7, "/data/../secret.jpg"), ""), "a file_name has a part \"..\": image 7"},
        {FILE_OF(IMAGE(1) "," IMAGE(1), ""), "two images have the id 1"},
        {FILE_OF(IMAGE(1), BOX(1, 1, 3, "0, 0, 5, 5") "," BOX(1, 1, 3, "0, 0, 5, 5")), "two annotations have the id 1"},
        {FILE_OF(IMAGE(1), BOX(1, 2, 3, "0, 0, 5, 5")), "an annotation is of an unknown image, 2"},
        {FILE_OF(IMAGE(1), BOX(1, 1, 4, "0, 0, 5, 5")), "an annotation is of an unknown category, 4"},
        {FILE_OF(IMAGE(1), BOX(1, 1, 3, "0, 0, 5")), "\"bbox\" that is not a list of four numbers"},
        {FILE_OF(IMAGE(1), BOX(1, 1, 3, "0, 0, 5, 5, 5")), "\"bbox\" that is not a list of four numbers"},
        {FILE_OF(IMAGE(1), BOX(1, 1, 3, "0, 0, 5, null")), "\"bbox\" that is not a list of four numbers"},
        {FILE_OF(IMAGE(1), BOX(1, 1, 3, "0, 0, 5, NaN")), "bad JSON near byte"},
        {FILE_OF(IMAGE(1), BOX(1, 1, 3, "0, 0, 5, Infinity")), "bad JSON near byte"},
        {FILE_OF(IMAGE(1), "{\"id\": 1, \"image_id\": 1, \"category_id\": 3}"), "an annotation has no \"bbox\""},
        {FILE_OF(IMAGE(1), "{\"id\": 1, \"image_id\": 1, \"bbox\": [0, 0, 1, 1]}"), "has no \"category_id\""},
        {FILE_OF(IMAGE(1), "{\"id\": 1, \"area\": -1}"), "an annotation has an \"area\" that is not an area"},
        {FILE_OF(IMAGE(1), "{\"id\": 1, \"iscrowd\": \"no\"}"), "\"iscrowd\" that is not a whole number"},
        {FILE_OF(IMAGE(1), "") "x", "bad JSON near byte"},
        {"{\"images\": [], \"categories\": [{\"id\": 1, \"name\": \"a\"}, {\"id\": 1, \"name\": \"b\"}]}",
         "two categories have the id 1"},
        {"{\"a\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
         "bad JSON near byte 70: nested more than 64"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].text, cases[i].reason);
}

/* By paths, whether names are absolute or of the folder; dots that lead nowhere else are fine. */
static void order_of_images(void **state)
{
    static const char *const expected[] = {"/z.jpg", "pictures/..a", "pictures/a..b/...jpg", "pictures/a.jpg"};
    struct cvy_dataset set;

    must_open(&set,
              FILE_OF(FILED(1, "a.jpg") "," FILED(2, "..a") "," FILED(3, "/z.jpg") "," FILED(4, "a..b/...jpg"), ""),
              &fresh);
    assert_int_equal(set.sample_count, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_string_equal(set.samples[i].path, expected[i]);
    cvy_dataset_close(&set);
}

/* A good file that is cut anywhere is refused, with the place where it ends. */
static void cut_files(void **state)
{
    static const char text[] = FILE_OF(IMAGE(1), BOX(1, 1, 3, "0, 0, 5, 5"));

    for (size_t size = 0; size < sizeof text - 1; size++) {
        struct cvy_coco_file file;
        char place[64];
        assert_int_equal(cvy_coco_file_parse("some.json", text, size, &file), CVY_BAD_DATA);
        snprintf(place, sizeof place, "\"some.json\": bad JSON near byte %zu: ", size);
        if (strncmp(cvy_error(), place, strlen(place)) != 0)
            fail_msg("\"%s\" instead of \"%s\"", cvy_error(), place);
    }
}

static void memory_that_fails(void **state)
{
    static const char text[] =
        FILE_OF(IMAGE(1) "," IMAGE(2), BOX(1, 1, 3, "0, 0, 5, 5") "," BOX(2, 1, 3, "0, 0, 0, 5"));

    for (int64_t n = 1;; n++) {
        struct cvy_dataset set;
        const cvy_status status = WITH_FAILURE(n, false, open_text(&set, text, &fresh));
        cvy_dataset_close(&set);
        if (status == CVY_OK)
            break;
        assert_int_equal(status, CVY_NO_MEMORY);
        assert_true(n < 1000);
    }
}

/* ---- the stream ---- */

struct counted {
    int values, skipped;
};

static cvy_status count_event(void *context, struct cvy_json_stream *stream, const struct cvy_json_event *event)
{
    struct counted *counted = context;

    counted->values++;
    if (event->kind == CVY_JSON_HAS_KEY && event->text[0] == 's') {
        counted->skipped++;
        cvy_json_skip(stream);
    }
    return CVY_OK;
}

static cvy_status skip_lists(void *context, struct cvy_json_stream *stream, const struct cvy_json_event *event)
{
    ++*(int *)context;
    if (event->kind == CVY_JSON_BEGIN_ARRAY)
        cvy_json_skip(stream);
    return CVY_OK;
}

static void skipping(void **state)
{
    static const char text[] = "{\"a\": [1, {\"s\": [[2], 3]}, 4], \"s\": 5, \"b\": {\"s\": {\"s\": 6}, \"c\": 7}}";
    struct counted counted = {0};
    int events = 0;

    assert_int_equal(cvy_json_stream_text("x", text, strlen(text), count_event, &counted), CVY_OK);
    assert_int_equal(counted.skipped, 3);
    assert_int_equal(counted.values, 17);
    assert_int_equal(cvy_json_stream_text("x", text, strlen(text), skip_lists, &events), CVY_OK);
    assert_int_equal(events, 16);
}

/* ---- folders ---- */

static const char one_image[] = FILE_OF(IMAGE(1), BOX(1, 1, 3, "0, 0, 5, 5"));

static void add_file(const char *name)
{
    support_write(support_folder, name, one_image, strlen(one_image));
}

/* The path of the only image of a part, after the folder. */
static void expect_image(const char *path, enum cvy_detection_part part, const char *image)
{
    struct cvy_dataset set;
    const cvy_status status = cvy_dataset_open_detection(&set, path, part, &fresh);

    if (status != CVY_OK)
        print_error("%s\n", cvy_error());
    assert_int_equal(status, CVY_OK);
    assert_string_equal(set.samples[0].path, below(image));
    cvy_dataset_close(&set);
}

static void layout_of_coco(void **state)
{
    struct cvy_dataset train, val;
    add_file("annotations/instances_train2017.json");
    add_file("annotations/instances_val2017.json");
    add_file("annotations/captions_train2017.json");
    add_file("annotations/person_keypoints_train2017.json");
    support_write(support_folder, "train2017/1.jpg", "x", 1);
    support_write(support_folder, "val2017/1.jpg", "x", 1);
    assert_true(cvy_holds_detection(support_folder));
    assert_int_equal(cvy_dataset_open_detection_pair(support_folder, false, 0, 0, &train, &val), CVY_OK);
    assert_string_equal(train.samples[0].path, below("train2017/1.jpg"));
    assert_string_equal(val.samples[0].path, below("val2017/1.jpg"));
    assert_int_equal(val.class_count, 2);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    expect_image(below("annotations/instances_val2017.json"), CVY_DETECTION_VAL, "val2017/1.jpg");

    /* The files of another year, without its images. */
    add_file("annotations/instances_train2014.json");
    expect_image(support_folder, CVY_DETECTION_TRAIN, "train2017/1.jpg");
    support_write(support_folder, "train2014/1.jpg", "x", 1);
    assert_fails(cvy_dataset_open_detection(&train, support_folder, CVY_DETECTION_TRAIN, &fresh), CVY_BAD_DATA,
                 "may both be meant");
    assert_true(cvy_holds_detection(support_folder));
}

static void other_layouts(void **state)
{
    struct cvy_dataset train, val;
    assert_false(cvy_holds_detection(support_folder));
    assert_int_equal(cvy_dataset_open_detection_pair(support_folder, false, 0, 0, &train, &val), CVY_NO_INPUT);
    /* Not every JSON file is one of boxes. */
    support_write(support_folder, "train.json", "{\"about\": 1}", 12);
    support_write(support_folder, "val/cat/notes.json", one_image, strlen(one_image));
    support_write(support_folder, "val/notes.json", "", 0);
    assert_false(cvy_holds_detection(support_folder));
    add_file("train/_annotations.coco.json");
    support_write(support_folder, "train/1.jpg", "x", 1);
    assert_true(cvy_holds_detection(support_folder));
    expect_image(support_folder, CVY_DETECTION_TRAIN, "train/1.jpg");
    assert_fails(cvy_dataset_open_detection_pair(support_folder, false, 0, 0, &train, &val), CVY_NO_INPUT,
                 "no COCO file for validation");
    assert_null(train.samples);
    add_file("valid/_annotations.coco.json");
    support_write(support_folder, "valid/1.jpg", "x", 1);
    expect_image(support_folder, CVY_DETECTION_VAL, "valid/1.jpg");
    /* One folder alone, named directly. */
    expect_image(below("valid"), CVY_DETECTION_VAL, "valid/1.jpg");
    expect_image(below("valid"), CVY_DETECTION_TRAIN, "valid/1.jpg");
    assert_fails(cvy_dataset_open_detection(&val, below("nowhere"), CVY_DETECTION_VAL, &fresh), CVY_NO_INPUT,
                 "nowhere");
}

static void images_elsewhere(void **state)
{
    add_file("train.json");
    add_file("val.json");
    support_write(support_folder, "images/train/other.jpg", "x", 1);
    /* Not there at all: the likeliest folder is named. */
    expect_image(support_folder, CVY_DETECTION_TRAIN, "images/train/1.jpg");
    support_write(support_folder, "images/1.jpg", "x", 1);
    expect_image(support_folder, CVY_DETECTION_TRAIN, "images/1.jpg");
    expect_image(support_folder, CVY_DETECTION_VAL, "images/1.jpg");
}

/* Behind every other folder where they might be: in the set's own. */
static void images_in_the_set_itself(void **state)
{
#define NAMED(name) "{\"images\": [{\"id\": 1, \"file_name\": \"" name "\", \"width\": 9, \"height\": 9}], " CATS "}"
    static const char train_text[] = NAMED("train2017/1.jpg"), val_text[] = NAMED("val2017/1.jpg");
    add_file("annotations/instances_train2017.json");
    add_file("annotations/instances_val2017.json");
    support_write(support_folder, "1.jpg", "x", 1);
    expect_image(support_folder, CVY_DETECTION_TRAIN, "1.jpg");
    expect_image(support_folder, CVY_DETECTION_VAL, "1.jpg");
    /* Names that say the folder. */
    support_write(support_folder, "annotations/instances_train2017.json", train_text, strlen(train_text));
    support_write(support_folder, "annotations/instances_val2017.json", val_text, strlen(val_text));
    support_write(support_folder, "train2017/1.jpg", "x", 1);
    support_write(support_folder, "val2017/1.jpg", "x", 1);
    expect_image(support_folder, CVY_DETECTION_TRAIN, "train2017/1.jpg");
    expect_image(support_folder, CVY_DETECTION_VAL, "val2017/1.jpg");
}

/* ---- real data ---- */

static void real_data(void **state)
{
    const char *data = getenv("CONVOY_TEST_DATA");
    static const struct {
        const char *name;
        uint32_t train, val, train_objects;
        int32_t classes;
    } sets[] = {{"coco-tiny", 24, 24, 294, 80}, {"bccd", 292, 72, 3941, 3}};
    if (!data)
        skip();
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct cvy_dataset train, val;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", data, sets[i].name);
        assert_int_equal(cvy_dataset_open_detection_pair(path, false, 0, 0, &train, &val), CVY_OK);
        assert_int_equal(train.sample_count, sets[i].train);
        assert_int_equal(val.sample_count, sets[i].val);
        assert_int_equal(train.object_count, sets[i].train_objects);
        assert_int_equal(train.class_count, sets[i].classes);
        cvy_dataset_close(&train);
        cvy_dataset_close(&val);
    }
}

RUN_TESTS(NULL, NULL, TEST(what_is_kept), TEST(whole_numbers), TEST(what_is_set_aside), TEST(set_aside_of_each_image),
          TEST(slots_of_coco), TEST(known_classes), TEST(bad_files), TEST(order_of_images), TEST(cut_files),
          TEST(memory_that_fails), TEST(skipping), IN_FOLDER(layout_of_coco), IN_FOLDER(other_layouts),
          IN_FOLDER(images_elsewhere), IN_FOLDER(images_in_the_set_itself), TEST(real_data))
