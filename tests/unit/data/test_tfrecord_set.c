/* An image folder written as TFRecords is the same data set: places, labels, names, and every pixel of an epoch. */
#include "base/file.h"
#include "convoy/dataset.h"
#include "convoy/program/shapes.h"
#include "data/loader/loader.h"
#include "data/set/tfrecord_set.h"
#include "formats/container/tfrecord_index.h"
#include "support_folder.h"
#include "support_images.h"
#include "support_test.h"

enum { TRAIN = 17, VAL = 6, SIZE = 16, BATCH = 4 };

static int set_up(void **state)
{
    const int failed = test_folder_setup(state);

    support_write_classes(TRAIN, VAL);
    return failed;
}

static struct cvy_tfrecord_result write_records(const char *source, const char *out, int train_shards, bool keep_order)
{
    struct cvy_tfrecord_options options = CVY_TFRECORD_DEFAULTS;
    struct cvy_tfrecord_result result;

    options.train_shards = train_shards;
    options.val_shards = 2;
    options.keep_order = keep_order;
    options.threads = 2;
    assert_int_equal(cvy_write_tfrecords(below(source), below(out), &options, &result), CVY_OK);
    return result;
}

static void open_pair(const char *name, struct cvy_dataset *train, struct cvy_dataset *val)
{
    assert_int_equal(cvy_dataset_open_pair(below(name), NULL, 0, 0, train, val), CVY_OK);
}

static void assert_same_sample(const struct cvy_sample *x, const struct cvy_sample *y)
{
    struct cvy_encoded a, b;

    assert_int_equal(x->label, y->label);
    assert_int_equal(cvy_sample_read(x, &a), CVY_OK);
    assert_int_equal(cvy_sample_read(y, &b), CVY_OK);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    cvy_encoded_release(&a);
    cvy_encoded_release(&b);
}

/* Every image of `x` once in `y`. */
static void assert_same_images(const struct cvy_dataset *x, const struct cvy_dataset *y)
{
    assert_int_equal(x->sample_count, y->sample_count);
    for (uint32_t i = 0; i < x->sample_count; i++) {
        int found = 0;
        for (uint32_t j = 0; j < y->sample_count; j++) {
            struct cvy_encoded a, b;
            assert_int_equal(cvy_sample_read(&x->samples[i], &a), CVY_OK);
            assert_int_equal(cvy_sample_read(&y->samples[j], &b), CVY_OK);
            found +=
                a.size == b.size && memcmp(a.data, b.data, a.size) == 0 && x->samples[i].label == y->samples[j].label;
            cvy_encoded_release(&a);
            cvy_encoded_release(&b);
        }
        assert_int_equal(found, 1);
    }
}

static void same_samples(void **state)
{
    struct cvy_dataset train, val, records, records_val;

    const struct cvy_tfrecord_result result = write_records("images", "records", 3, false);
    assert_int_equal(result.train_images, TRAIN);
    assert_int_equal(result.val_images, VAL);
    assert_int_equal(result.classes, 3);
    assert_int_equal(result.train_shards, 3);
    assert_int_equal(result.left_out + result.reencoded, 0);
    assert_int_equal(test_folder_entries(below("records")), 6);
    assert_true(cvy_path_exists(below("records/train-00002-of-00003")));
    assert_true(cvy_path_exists(below("records/validation-00001-of-00002")));
    open_pair("images", &train, &val);
    open_pair("records", &records, &records_val);
    assert_int_equal(records.class_count, 3);
    assert_string_equal(records.classes[2], "cat");
    assert_string_equal(records_val.classes[0], "ape");
    assert_same_images(&train, &records);
    assert_same_images(&val, &records_val);
    cvy_dataset_close(&records);
    cvy_dataset_close(&records_val);

    /* Without the class file, names come from the records; with neither order nor names changed, it is the same list.
     */
    (void)write_records("images", "kept", 5, true);
    assert_int_equal(unlink(below("kept/" CVY_TFRECORD_CLASSES)), 0);
    open_pair("kept", &records, &records_val);
    assert_int_equal(records.class_count, 3);
    assert_string_equal(records.classes[1], "bee");
    for (uint32_t i = 0; i < train.sample_count; i++)
        assert_same_sample(&train.samples[i], &records.samples[i]);
    for (uint32_t i = 0; i < val.sample_count; i++)
        assert_same_sample(&val.samples[i], &records_val.samples[i]);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    cvy_dataset_close(&records);
    cvy_dataset_close(&records_val);
}

static void open_loader(const struct cvy_dataset *set, int workers, struct cvy_loader **loader)
{
    const struct cvy_loader_options options = {.dataset = set,
                                               .transform = {.training = true, .size = SIZE},
                                               .batch_size = BATCH,
                                               .workers = workers,
                                               .prefetch = 1,
                                               .seed = 5,
                                               .sampler = CVY_SAMPLE_SHUFFLED,
                                               .drop_last = true,
                                               .replace_bad = true,
                                               .world = 1};
    assert_int_equal(cvy_loader_open(&options, loader), CVY_OK);
    assert_int_equal(cvy_loader_start(*loader, 1, 0), CVY_OK);
}

/* An epoch of training over folder and records: the same pixels in the same order. */
static void same_epoch(void **state)
{
    struct cvy_dataset train, val, records, records_val;
    struct cvy_loader *a, *b;
    int batches = 0;

    (void)write_records("images", "records", 3, true);
    open_pair("images", &train, &val);
    open_pair("records", &records, &records_val);
    open_loader(&train, 1, &a);
    open_loader(&records, 3, &b);
    for (;; batches++) {
        const struct cvy_batch *x, *y;
        assert_int_equal(cvy_loader_next(a, &x), CVY_OK);
        assert_int_equal(cvy_loader_next(b, &y), CVY_OK);
        assert_true((x == NULL) == (y == NULL));
        if (!x)
            break;
        assert_memory_equal(x->labels, y->labels, BATCH * sizeof *x->labels);
        assert_memory_equal(x->samples, y->samples, BATCH * sizeof *x->samples);
        assert_memory_equal(x->images, y->images, BATCH * SIZE * SIZE * 3);
    }
    assert_int_equal(batches, TRAIN / BATCH);
    cvy_loader_close(a);
    cvy_loader_close(b);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    cvy_dataset_close(&records);
    cvy_dataset_close(&records_val);
}

/* Whether its tables divide by nothing, as quality 100 has it. */
static bool is_of_quality_100(const uint8_t *jpeg, size_t size)
{
    int tables = 0;

    for (size_t i = 0; i + 69 <= size; i++) {
        if (jpeg[i] != 0xFF || jpeg[i + 1] != 0xDB)
            continue;
        for (int k = 0; k < 64; k++)
            if (jpeg[i + 5 + (size_t)k] != 1)
                return false;
        tables++;
    }
    return tables > 0;
}

/* PNG and CMYK become RGB JPEGs; what cannot be read is left out. */
static void other_images(void **state)
{
    static const struct jpeg_kind cmyk = {.components = 4, .h = 1, .v = 1};
    struct cvy_rng rng = cvy_rng_new(3, CVY_RNG_TEST, 0, 0);
    struct cvy_dataset train, val;
    struct cvy_decoder *decoder;
    int32_t width, height;

    uint8_t *pixels = support_noise(&rng, 21, 14, 4);
    struct bytes jpeg = support_jpeg(&cmyk, pixels, 21, 14), png = support_png(pixels, 21, 14, 3);
    support_write(support_folder, "images/val/cat/cmyk.jpg", jpeg.data, jpeg.size);
    support_write(support_folder, "images/val/cat/picture.JPEG", png.data, png.size);
    support_write(support_folder, "images/val/cat/broken.jpg", "\xFF\xD8\xFF", 3);
    free(pixels);
    free(jpeg.data);
    free(png.data);
    const struct cvy_tfrecord_result result = write_records("images", "records", 1, false);
    assert_int_equal(result.reencoded, 2);
    assert_int_equal(result.left_out, 1);
    open_pair("records", &train, &val);
    assert_int_equal(val.sample_count, VAL + 2);
    assert_int_equal(cvy_decoder_new(&decoder), CVY_OK);
    int fresh = 0;
    for (uint32_t i = 0; i < val.sample_count; i++) {
        struct cvy_encoded encoded;
        assert_int_equal(cvy_sample_read(&val.samples[i], &encoded), CVY_OK);
        assert_int_equal(cvy_decoder_start(decoder, encoded.name, encoded.data, encoded.size, &width, &height), CVY_OK);
        assert_true(cvy_decoder_is_plain_jpeg(decoder));
        if (width == 21 && height == 14) {
            fresh++;
            assert_true(is_of_quality_100(encoded.data, encoded.size));
        }
        assert_non_null(strstr(encoded.name, "/records/validation-0000"));
        cvy_encoded_release(&encoded);
    }
    assert_int_equal(fresh, 2);
    cvy_decoder_free(decoder);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
}

static void index_files(void **state)
{
    struct cvy_tfrecord_index index = {0};
    struct cvy_dataset train, val, plain, plain_val;
    int64_t files, records;

    (void)write_records("images", "records", 2, false);
    assert_int_equal(cvy_write_tfrecord_index(below("records"), below("idx"), 1, &files, &records), CVY_OK);
    assert_int_equal(files, 4);
    assert_int_equal(records, TRAIN + VAL);
    assert_int_equal(cvy_write_tfrecord_index(below("records"), below("records"), 1, &files, &records), CVY_USAGE);
    assert_int_equal(cvy_dataset_open_tfrecord_pair(below("records"), below("idx"), &train, &val), CVY_OK);
    open_pair("records", &plain, &plain_val);
    assert_int_equal(train.sample_count, plain.sample_count);
    for (uint32_t i = 0; i < train.sample_count; i++)
        assert_same_sample(&train.samples[i], &plain.samples[i]);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    cvy_dataset_close(&plain);
    cvy_dataset_close(&plain_val);

    /* The text as DALI has it. */
    test_file_write(below("idx/x"), "0 2035\n2035 16\n", 15);
    assert_int_equal(cvy_tfrecord_index_read(below("idx/x"), &index), CVY_OK);
    assert_int_equal(index.count, 2);
    assert_int_equal(index.places[1].offset, 2035);
    cvy_tfrecord_index_release(&index);
    static const char *const wrong[] = {
        "0 15\n",   "0 100\n99 20\n",           "0 100 7\n", "0\n", "x 100\n", "-1 100\n", "0  20\n", "\n", "0 20\n\n",
        "0 0x20\n", "99999999999999999999 20\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        test_file_write(below("idx/x"), wrong[i], strlen(wrong[i]));
        assert_fails(cvy_tfrecord_index_read(below("idx/x"), &index), CVY_BAD_DATA, "/idx/x\" does not give");
        cvy_tfrecord_index_release(&index);
    }
    /* From another file. */
    assert_int_equal(rename(below("idx/train-00000-of-00002"), below("idx/train-00001-of-00002")), 0);
    test_file_write(below("idx/train-00000-of-00002"), "0 99\n", 5);
    assert_fails(cvy_dataset_open_tfrecord_pair(below("records"), below("idx"), &train, &val), CVY_BAD_DATA,
                 "is not that of");
    assert_int_equal(unlink(below("idx/train-00000-of-00002")), 0);
    assert_int_equal(cvy_dataset_open_tfrecord_pair(below("records"), below("idx"), &train, &val), CVY_NO_INPUT);
}

static void assert_refused(cvy_status expected, const char *sentence)
{
    struct cvy_dataset train, val;

    assert_int_equal(cvy_dataset_open_pair(below("records"), NULL, 0, 0, &train, &val), expected);
    if (!strstr(cvy_error(), sentence))
        fail_msg("\"%s\" is not in: %s", sentence, cvy_error());
    assert_null(train.samples);
    assert_null(val.samples);
}

/* Change one byte of a file. */
static void flip(const char *name, long offset)
{
    FILE *file = fopen(below(name), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

static void damage(void **state)
{
    static const char shard[] = "records/train-00001-of-00002";
    struct cvy_dataset train, val;
    struct cvy_encoded encoded;

    (void)write_records("images", "records", 2, true);
    open_pair("records", &train, &val);
    const struct cvy_sample *last = &train.samples[train.sample_count - 1];
    const long end = (long)(last->record_offset + last->record_bytes);
    /* A flipped bit of an image: found when the image is read. */
    flip(shard, end - 100);
    assert_fails(cvy_sample_read(last, &encoded), CVY_BAD_DATA, "is damaged: its checksum is wrong");
    flip(shard, end - 100);
    /* The checksum of a length: found at once. */
    flip(shard, (long)last->record_offset);
    assert_refused(CVY_BAD_DATA, "the checksum of its length is wrong");
    flip(shard, (long)last->record_offset);
    /* Damage in the message's structure. */
    flip(shard, (long)last->record_offset + CVY_TFRECORD_HEADER);
    assert_refused(CVY_BAD_DATA, "record at byte");
    flip(shard, (long)last->record_offset + CVY_TFRECORD_HEADER);
    assert_int_equal(truncate(below(shard), end - 1), 0);
    assert_refused(CVY_BAD_DATA, "is truncated: it ends within the record at byte");
    assert_int_equal(cvy_sample_read(last, &encoded), CVY_BAD_DATA);
    assert_int_equal(unlink(below(shard)), 0);
    assert_refused(CVY_BAD_DATA, "their names say that there are 2");
    test_file_write(below("records/train-00001-of-00003"), "", 0);
    assert_refused(CVY_BAD_DATA, "are parts of different sets");
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
}

/* One record of this label (0: none) and name as the files of a part. */
static void write_one(const char *name, int64_t label, const char *class_name)
{
    const struct cvy_image_record_source source = {"image", 5, 1, 1, label, class_name, "a.jpg", NULL, 0};
    struct cvy_text out = {0};
    uint8_t *message;
    size_t size;

    assert_int_equal(cvy_image_record_pack(&source, &message, &size), CVY_OK);
    cvy_tfrecord_append(&out, message, size);
    assert_false(out.failed);
    support_write(support_folder, name, out.text, out.length);
    cvy_text_release(&out);
    cvy_free(message);
}

static void labels_and_names(void **state)
{
    struct cvy_dataset train, val;

    write_one("records/train-0", 3, "");
    write_one("records/validation-0", 2, "");
    open_pair("records", &train, &val); /* no names at all: numbers */
    assert_int_equal(train.class_count, 3);
    assert_int_equal(train.samples[0].label, 2);
    assert_string_equal(train.classes[2], "2");
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    write_one("records/validation-0", 4, "");
    assert_refused(CVY_BAD_DATA, "images with the label 4, but there are 3 classes");
    write_one("records/train-0", 4, "dog");
    write_one("records/validation-0", 4, "fox");
    assert_refused(CVY_BAD_DATA, "class 3 of ");
    write_one("records/validation-0", 0, "dog");
    assert_refused(CVY_BAD_DATA, "labels count from 1");
    write_one("records/validation-0", -1, "dog");
    assert_refused(CVY_BAD_DATA, "has no label");
    write_one("records/validation-0", 1000001, "dog");
    assert_refused(CVY_BAD_DATA, "has the label 1000001: there are at most 1000000 classes");
    write_one("records/validation-0", 4, "dog");
    support_write(support_folder, "records/" CVY_TFRECORD_CLASSES, "a\nb\n", 4);
    assert_refused(CVY_BAD_DATA, "names 2 classes");
    support_write(support_folder, "records/" CVY_TFRECORD_CLASSES, "a\nb\nc\nd\ne\n", 10);
    open_pair("records", &train, &val);
    assert_int_equal(train.class_count, 5);
    assert_string_equal(val.classes[4], "e");
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    /* Weights that call them otherwise. */
    static const char *const others[] = {"a", "b", "c", "dog", "e"};
    assert_int_equal(cvy_dataset_open_tfrecords(&val, below("records"), CVY_TFRECORD_VALIDATION, NULL, others, 5),
                     CVY_BAD_DATA);
    assert_int_equal(unlink(below("records/validation-0")), 0);
    assert_refused(CVY_NO_INPUT, "--val-split");
    assert_int_equal(cvy_dataset_open_pair(below("records"), NULL, 0.5, 0, &train, &val), CVY_BAD_DATA); /* one image */
}

/* A part of the training images set aside. */
static void split(void **state)
{
    struct cvy_dataset train, val, records, records_val;
    char name[64];

    (void)write_records("images", "records", 2, true);
    assert_int_equal(cvy_dataset_open_pair(below("records"), NULL, 0.5, 0, &train, &val), CVY_USAGE);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "records/validation-%05d-of-00002", i);
        assert_int_equal(unlink(below(name)), 0);
    }
    assert_int_equal(cvy_dataset_open_pair(below("records"), NULL, 0.5, 9, &records, &records_val), CVY_OK);
    assert_int_equal(cvy_dataset_open_pair(below("images/train"), NULL, 0.5, 9, &train, &val), CVY_OK);
    assert_int_equal(val.sample_count, records_val.sample_count);
    for (uint32_t i = 0; i < val.sample_count; i++)
        assert_same_sample(&val.samples[i], &records_val.samples[i]);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    cvy_dataset_close(&records);
    cvy_dataset_close(&records_val);
}

/* What goes wrong half way leaves nothing that looks like a set. */
static void nothing_half_written(void **state)
{
    struct cvy_tfrecord_options options = CVY_TFRECORD_DEFAULTS;
    struct cvy_tfrecord_result result;

    options.threads = 1;
    options.train_shards = 4;
    for (int64_t n = 1;; n++) {
        const cvy_status status =
            WITH_FAILURE(20 * n, true, cvy_write_tfrecords(below("images"), below("records"), &options, &result));
        if (status == CVY_OK)
            break;
        assert_true(status == CVY_NO_MEMORY || status == CVY_CANNOT_WRITE); /* the latter from synchronising */
        if (cvy_path_exists(below("records")))
            assert_int_equal(test_folder_entries(below("records")), 0);
    }
    options.val_shards = VAL + 1;
    assert_int_equal(cvy_write_tfrecords(below("images"), below("records"), &options, &result), CVY_CANNOT_CREATE);
    assert_int_equal(cvy_write_tfrecords(below("images"), below("other"), &options, &result), CVY_USAGE);
    assert_int_equal(cvy_write_tfrecords(below("records"), below("other"), &options, &result), CVY_USAGE);
    assert_int_equal(cvy_write_tfrecords(below("nowhere"), below("other"), &options, &result), CVY_NO_INPUT);
    assert_false(cvy_path_exists(below("other")));
}

RUN_TESTS(NULL, NULL, cmocka_unit_test_setup_teardown(same_samples, set_up, test_folder_teardown),
          cmocka_unit_test_setup_teardown(same_epoch, set_up, test_folder_teardown),
          cmocka_unit_test_setup_teardown(other_images, set_up, test_folder_teardown),
          cmocka_unit_test_setup_teardown(index_files, set_up, test_folder_teardown),
          cmocka_unit_test_setup_teardown(damage, set_up, test_folder_teardown),
          cmocka_unit_test_setup_teardown(labels_and_names, set_up, test_folder_teardown),
          cmocka_unit_test_setup_teardown(split, set_up, test_folder_teardown),
          cmocka_unit_test_setup_teardown(nothing_half_written, set_up, test_folder_teardown))
