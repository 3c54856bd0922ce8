/* tf.train.Example: what protobuf-c writes and what other writers may write is read, from memory and from files. */
#include <example.pb-c.h>
#include <fcntl.h>

#include "data/sample/image_record.h"
#include "support_folder.h"
#include "support_test.h"

/* Find a feature of a message. */
static bool find(struct cvy_example *example, const char *key, struct cvy_feature *feature)
{
    struct cvy_feature each;
    bool found = false, is_there = false;

    for (;;) {
        assert_int_equal(cvy_example_next(example, &each, &found), CVY_OK);
        if (!found)
            return is_there;
        if (strcmp(each.key, key) == 0) {
            *feature = each;
            is_there = true;
        }
    }
}

/* Every kind of list, many values, and an image longer than what is looked at in one piece. */
static const int64_t integers[] = {0, 1, -1, INT64_MAX, INT64_MIN, 127, 128, 300};
static const float reals[] = {0, 1.5F, -2.25F, 3e38F};
static uint8_t blob[3 * CVY_EXAMPLE_WINDOW];

static void pack_all(uint8_t **message, size_t *size)
{
    const struct cvy_feature_value values[] = {
        {"blob", CVY_FEATURE_BYTES, blob, sizeof blob},
        {"integers", CVY_FEATURE_INT64, integers, sizeof integers / sizeof integers[0]},
        {"reals", CVY_FEATURE_FLOAT, reals, sizeof reals / sizeof reals[0]},
        {"empty", CVY_FEATURE_BYTES, "", 0},
        {"none", CVY_FEATURE_FLOAT, NULL, 0},
        {"bare", CVY_FEATURE_NONE, NULL, 0},
    };
    for (size_t i = 0; i < sizeof blob; i++)
        blob[i] = (uint8_t)(i * 7 + i / 256);
    assert_int_equal(cvy_example_pack(values, sizeof values / sizeof values[0], message, size), CVY_OK);
}

static void read_all(struct cvy_example *example, const uint8_t *message)
{
    struct cvy_feature feature;
    size_t from, length, count;
    int64_t whole[16];
    float real[16];
    char text[8];

    const size_t start = example->at;
    assert_true(find(example, "blob", &feature));
    assert_int_equal(cvy_feature_bytes(example, &feature, &from, &length, &count), CVY_OK);
    assert_int_equal(count, 1);
    assert_int_equal(length, sizeof blob);
    assert_memory_equal(message + from, blob, length);
    assert_int_equal(cvy_example_text(example, from, length, text, sizeof text), CVY_OK);
    assert_memory_equal(text, blob, 1); /* blob begins with a 0 */
    example->at = start;
    example->features_end = 0;
    assert_true(find(example, "integers", &feature));
    assert_int_equal(cvy_feature_int64(example, &feature, whole, 16, &count), CVY_OK);
    assert_int_equal(count, 8);
    assert_memory_equal(whole, integers, sizeof integers);
    assert_int_equal(cvy_feature_int64(example, &feature, whole, 1, &count), CVY_OK); /* room for one */
    assert_int_equal(count, 8);
    assert_fails(cvy_feature_floats(example, &feature, real, 16, &count), CVY_BAD_DATA, "\"integers\"");
    example->at = start;
    example->features_end = 0;
    assert_true(find(example, "reals", &feature));
    assert_int_equal(cvy_feature_floats(example, &feature, real, 16, &count), CVY_OK);
    assert_int_equal(count, 4);
    assert_memory_equal(real, reals, sizeof reals);
    for (int i = 0; i < 3; i++) {
        static const char *const keys[] = {"empty", "none", "bare"};
        example->at = start;
        example->features_end = 0;
        assert_true(find(example, keys[i], &feature));
        if (i == 0)
            assert_int_equal(cvy_feature_bytes(example, &feature, &from, &length, &count), CVY_OK);
        else
            assert_int_equal(cvy_feature_floats(example, &feature, real, 16, &count), CVY_OK);
        assert_int_equal(count, i == 0);
    }
}

static void written_and_read(void **state)
{
    struct cvy_example example;
    uint8_t *message;
    size_t size;

    pack_all(&message, &size);
    cvy_example_open_memory(&example, "memory", 0, message, size);
    read_all(&example, message);

    /* In a file, after other bytes. */
    FILE *out = fopen(test_path(support_folder, "message"), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite("before", 1, 6, out), 6);
    assert_int_equal(fwrite(message, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
    const int file = open(test_path(support_folder, "message"), O_RDONLY);
    cvy_example_open_file(&example, "file", 0, file, 6, size);
    read_all(&example, message);
    /* A file that ends early. */
    cvy_example_open_file(&example, "file", 0, file, 6, size + 1);
    struct cvy_feature feature;
    bool found = true;
    cvy_status status = CVY_OK;
    while (found && status == CVY_OK)
        status = cvy_example_next(&example, &feature, &found);
    assert_fails(status, CVY_BAD_DATA, "the file ends within it");
    close(file);

    /* protobuf-c's own reading agrees. */
    Cvy__Example *unpacked = cvy__example__unpack(NULL, size, message);
    assert_non_null(unpacked);
    assert_int_equal(unpacked->features->n_feature, 6);
    assert_string_equal(unpacked->features->feature[1]->key, "integers");
    assert_memory_equal(unpacked->features->feature[1]->value->int64_list->value, integers, sizeof integers);
    cvy__example__free_unpacked(unpacked, NULL);
    cvy_free(message);
}

/* Bytes of the wire format by hand: lists that are not packed, unknown fields, features in two pieces. */
static void other_writers(void **state)
{
    static const uint8_t message[] = {
        0x10, 0x05,                                     /* unknown field 2 of Example */
        0x0A, 0x10,                                     /* features, 16 bytes */
        0x0A, 0x0E,                                     /*   entry */
        0x0A, 0x01, 'i',                                /*     key */
        0x12, 0x09,                                     /*     value */
        0x1A, 0x07, 0x08, 0x07, 0x08, 0x96, 0x01, 0x0A, /*       int64_list: 7, 150, packed: */
        0x00,                                           /*       nothing */
        0x0A, 0x13,                                     /* features again, 19 bytes */
        0x1D, 0,    0,    0,    0,                      /*   unknown field 3, 4 bytes */
        0x0A, 0x0C,                                     /*   entry with its value first */
        0x12, 0x07,                                     /*     value */
        0x12, 0x05, 0x0D, 0,    0,    0x80, 0x3F,       /*       float_list: 1.0 */
        0x0A, 0x01, 'f',                                /*     key */
    };
    struct cvy_example example;
    struct cvy_feature feature;
    int64_t whole[4];
    float real[4];
    size_t count;
    bool found;

    cvy_example_open_memory(&example, "bytes", 0, message, sizeof message);
    assert_int_equal(cvy_example_next(&example, &feature, &found), CVY_OK);
    assert_true(found);
    assert_string_equal(feature.key, "i");
    assert_int_equal(cvy_feature_int64(&example, &feature, whole, 4, &count), CVY_OK);
    assert_int_equal(count, 2);
    assert_int_equal(whole[0], 7);
    assert_int_equal(whole[1], 150);
    assert_int_equal(cvy_example_next(&example, &feature, &found), CVY_OK);
    assert_true(found);
    assert_string_equal(feature.key, "f");
    assert_int_equal(cvy_feature_floats(&example, &feature, real, 4, &count), CVY_OK);
    assert_int_equal(count, 1);
    assert_true(real[0] == 1.0F);
    assert_int_equal(cvy_example_next(&example, &feature, &found), CVY_OK);
    assert_false(found);
}

/* A record as the ImageNet files have it, with boxes. */
static void image_record(void **state)
{
    static const float low[] = {0.125F, 0}, high[] = {0.5F, 1}, top[] = {0.25F, 0}, bottom[] = {0.75F, 1};
    const int64_t labels[] = {1000, 7};
    const char *const images[] = {"bytes", "more"};
    struct cvy_feature_value values[] = {
        {"image/encoded", CVY_FEATURE_BYTES, "bytes", 5},
        {"image/class/label", CVY_FEATURE_INT64, labels, 1},
        {"image/class/synset", CVY_FEATURE_BYTES, "n15075141", 9},
        {"image/class/text", CVY_FEATURE_BYTES, "toilet tissue", 13},
        {"image/filename", CVY_FEATURE_BYTES, "n15075141_1.JPEG", 16},
        {"image/object/bbox/xmin", CVY_FEATURE_FLOAT, low, 2},
        {"image/object/bbox/xmax", CVY_FEATURE_FLOAT, high, 2},
        {"image/object/bbox/ymin", CVY_FEATURE_FLOAT, top, 2},
        {"image/object/bbox/ymax", CVY_FEATURE_FLOAT, bottom, 2},
    };
    struct cvy_image_record record;
    struct cvy_example example;
    uint8_t *message;
    size_t size;

    assert_int_equal(cvy_example_pack(values, 9, &message, &size), CVY_OK);
    cvy_example_open_memory(&example, "records", 40, message, size);
    assert_int_equal(cvy_image_record_read(&example, true, &record), CVY_OK);
    assert_int_equal(record.label, 1000);
    assert_int_equal(record.image_size, 5);
    assert_memory_equal(message + record.image_from, "bytes", 5);
    assert_string_equal(record.synset, "n15075141");
    assert_string_equal(record.text, "toilet tissue");
    assert_string_equal(record.filename, "n15075141_1.JPEG");
    assert_int_equal(record.box_count, 2);
    const struct cvy_object_box *box = &record.boxes[0];
    assert_true(box->xmin == 0.125F && box->ymin == 0.25F && box->xmax == 0.5F && box->ymax == 0.75F);
    cvy_image_record_release(&record);
    cvy_free(message);

    /* Lists of different lengths. */
    values[8].count = 1;
    assert_int_equal(cvy_example_pack(values, 9, &message, &size), CVY_OK);
    cvy_example_open_memory(&example, "records", 40, message, size);
    assert_fails(cvy_image_record_read(&example, true, &record), CVY_BAD_DATA,
                 "the record at byte 40 of \"records\" has 2 values");
    cvy_image_record_release(&record);
    cvy_free(message);

    /* Several labels, and several images. */
    values[1].count = 2;
    assert_int_equal(cvy_example_pack(values, 3, &message, &size), CVY_OK);
    cvy_example_open_memory(&example, "records", 40, message, size);
    assert_fails(cvy_image_record_read(&example, false, &record), CVY_BAD_DATA,
                 "the record at byte 40 of \"records\" has 2 values of \"image/class/label\", and may have one");
    cvy_free(message);
    values[1].count = 1;
    values[0] = (struct cvy_feature_value){"image/encoded", CVY_FEATURE_TEXTS, images, 2};
    assert_int_equal(cvy_example_pack(values, 3, &message, &size), CVY_OK);
    cvy_example_open_memory(&example, "records", 40, message, size);
    assert_fails(cvy_image_record_read(&example, false, &record), CVY_BAD_DATA, "2 values of \"image/encoded\"");
    cvy_free(message);

    /* No image. */
    assert_int_equal(cvy_example_pack(values + 1, 4, &message, &size), CVY_OK);
    cvy_example_open_memory(&example, "records", 40, message, size);
    assert_fails(cvy_image_record_read(&example, false, &record), CVY_BAD_DATA, "image/encoded");
    cvy_image_record_release(&record);
    cvy_free(message);
}

/* Cut anywhere: refused, or everything that is there is whole. */
static void cut_anywhere(void **state)
{
    const struct cvy_image_record_source source = {"0123456789", 10, 4, 3, 5, "cat", "a.jpg", NULL, 0};
    struct cvy_image_record record;
    struct cvy_example example;
    uint8_t *message;
    size_t size;
    int whole = 0;

    assert_int_equal(cvy_image_record_pack(&source, &message, &size), CVY_OK);
    for (size_t cut = 0; cut < size; cut++) {
        cvy_example_open_memory(&example, "records", 0, message, cut);
        const cvy_status status = cvy_image_record_read(&example, true, &record);
        assert_int_equal(status, CVY_BAD_DATA);
        cvy_image_record_release(&record);
    }
    cvy_example_open_memory(&example, "records", 0, message, size);
    whole += cvy_image_record_read(&example, true, &record) == CVY_OK;
    assert_int_equal(whole, 1);
    assert_int_equal(record.label, 5);
    assert_int_equal(record.box_count, 0);
    assert_string_equal(record.text, "cat");
    assert_memory_equal(message + record.image_from, "0123456789", 10);
    cvy_image_record_release(&record);
    cvy_free(message);
}

RUN_TESTS(test_folder_setup, test_folder_teardown, TEST(written_and_read), TEST(other_writers), TEST(image_record),
          TEST(cut_anywhere))
