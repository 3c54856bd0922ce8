/* A packed data set is the data set it was made from; packing continues where it was ended; what is damaged is named.
 */
#include <sys/stat.h>

#include "base/file.h"
#include "convoy/dataset.h"
#include "convoy/program/shapes.h"
#include "data/image/codec.h"
#include "data/image/resize.h"
#include "data/loader/loader.h"
#include "data/set/pack_set.h"
#include "data/set/record_set.h"
#include "formats/container/pack.h"
#include "support_folder.h"
#include "support_images.h"
#include "support_test.h"

enum { TRAIN = 17, VAL = 6, SIZE = 16 };

static int set_up(void **state)
{
    const int failed = test_folder_setup(state);

    support_write_classes(TRAIN, VAL);
    return failed;
}

static const struct cvy_pack_options three_and_two = {
    .size = sizeof(struct cvy_pack_options), .train_shards = 3, .val_shards = 2, .threads = 2};

static struct cvy_pack_result pack(const char *out, const struct cvy_pack_options *options)
{
    struct cvy_pack_result result;

    if (cvy_write_pack(below("images"), below(out), options, &result) != CVY_OK)
        fail_msg("%s", cvy_error());
    return result;
}

static void open_pair(const char *name, struct cvy_dataset *train, struct cvy_dataset *val)
{
    if (cvy_dataset_open_pair(below(name), NULL, 0, 0, train, val) != CVY_OK)
        fail_msg("%s", cvy_error());
}

/* The same images with the same labels in the same order. */
static void assert_same_set(const struct cvy_dataset *x, const struct cvy_dataset *y)
{
    assert_int_equal(x->sample_count, y->sample_count);
    assert_int_equal(x->class_count, y->class_count);
    for (int32_t c = 0; c < x->class_count; c++)
        assert_string_equal(x->classes[c], y->classes[c]);
    for (uint32_t i = 0; i < x->sample_count; i++) {
        struct cvy_encoded a, b;
        assert_int_equal(x->samples[i].label, y->samples[i].label);
        assert_int_equal(cvy_sample_read(&x->samples[i], &a), CVY_OK);
        assert_int_equal(cvy_sample_read(&y->samples[i], &b), CVY_OK);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.data, b.data, a.size);
        cvy_encoded_release(&a);
        cvy_encoded_release(&b);
    }
}

static void assert_same_file(const char *x, const char *y)
{
    void *a, *b;
    size_t a_size, b_size;

    assert_int_equal(cvy_file_read(below(x), 1 << 24, &a, &a_size), CVY_OK);
    assert_int_equal(cvy_file_read(below(y), 1 << 24, &b, &b_size), CVY_OK);
    assert_int_equal(a_size, b_size);
    assert_memory_equal(a, b, a_size);
    cvy_free(a);
    cvy_free(b);
}

static const char *const files[] = {"train-00000-of-00003.pack", "train-00001-of-00003.pack",
                                    "train-00002-of-00003.pack", "val-00000-of-00002.pack", "val-00001-of-00002.pack"};
enum { FILES = sizeof files / sizeof files[0] };

static void assert_same_packs(const char *x, const char *y)
{
    char a[128], b[128];

    assert_int_equal(test_folder_entries(below(x)), FILES);
    assert_int_equal(test_folder_entries(below(y)), FILES);
    for (int f = 0; f < FILES; f++) {
        snprintf(a, sizeof a, "%s/%s", x, files[f]);
        snprintf(b, sizeof b, "%s/%s", y, files[f]);
        assert_same_file(a, b);
    }
}

static void bytes_are_kept(void **state)
{
    struct cvy_dataset train, val, packed, packed_val;
    struct cvy_encoded encoded;
    struct cvy_pack_options options = three_and_two;

    const struct cvy_pack_result result = pack("packed", &options);
    assert_int_equal(result.train_images, TRAIN);
    assert_int_equal(result.val_images, VAL);
    assert_int_equal(result.classes, 3);
    assert_int_equal(result.left_out + result.reencoded + result.kept_shards, 0);
    open_pair("images", &train, &val);
    open_pair("packed", &packed, &packed_val);
    assert_same_set(&train, &packed);
    assert_same_set(&val, &packed_val);
    assert_int_equal(cvy_sample_read(&packed.samples[7], &encoded), CVY_OK);
    assert_string_equal(encoded.own, strstr(train.samples[7].path, "train/"));
    assert_non_null(strstr(encoded.name, "/packed/train-00001-of-00003.pack@"));
    assert_non_null(strstr(encoded.name, encoded.own));
    cvy_encoded_release(&encoded);

    /* A pack of a pack, and a pack of a split; a part of a split outlives the whole. */
    struct cvy_pack_result again;
    assert_int_equal(cvy_write_pack(below("packed"), below("again"), &options, &again), CVY_OK);
    cvy_dataset_close(&packed);
    cvy_dataset_close(&packed_val);
    open_pair("again", &packed, &packed_val);
    assert_same_set(&train, &packed);
    cvy_dataset_close(&packed);
    cvy_dataset_close(&packed_val);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    for (int p = 3; p < FILES; p++)
        assert_int_equal(unlink(test_path(below("packed"), files[p])), 0);
    assert_int_equal(cvy_dataset_open_pair(below("images/train"), NULL, 0.3, 4, &train, &val), CVY_OK);
    assert_int_equal(cvy_dataset_open_pair(below("packed"), NULL, 0.3, 4, &packed, &packed_val), CVY_OK);
    assert_same_set(&train, &packed);
    assert_same_set(&val, &packed_val);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
    cvy_dataset_close(&packed);
    cvy_dataset_close(&packed_val);
    assert_fails(cvy_dataset_open_pair(below("packed"), NULL, 0, 0, &packed, &packed_val), CVY_NO_INPUT,
                 "has no files val-*.pack (--val-split");
    assert_int_equal(cvy_dataset_open_pair(below("again"), NULL, 0.3, 4, &packed, &packed_val), CVY_USAGE);
}

/* Threads change no byte; what is there stays; what a killed packing left goes. */
static void packing_goes_on(void **state)
{
    struct cvy_pack_options options = three_and_two;
    struct stat before, after;

    options.threads = 1;
    (void)pack("one", &options);
    options.threads = 4;
    (void)pack("four", &options);
    assert_same_packs("one", "four");
    assert_int_equal(stat(below("four/val-00001-of-00002.pack"), &before), 0);
    assert_int_equal(unlink(below("four/train-00001-of-00003.pack")), 0);
    char temporary[64];
    snprintf(temporary, sizeof temporary, "four/train-00001-of-00003.pack.tmp.%ld", (long)getpid());
    test_file_write(below(temporary), "half", 4);
    struct cvy_pack_result result = pack("four", &options);
    assert_int_equal(result.kept_shards, FILES - 1);
    assert_int_equal(result.train_images, TRAIN);
    assert_same_packs("one", "four"); /* without the temporary file */
    assert_int_equal(stat(below("four/val-00001-of-00002.pack"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(pack("four", &options).kept_shards, FILES);

    /* Nothing is written over what comes from elsewhere. */
    options.shorter_side = 24;
    assert_fails(cvy_write_pack(below("images"), below("four"), &options, &result), CVY_CANNOT_CREATE,
                 "with other options");
    options = three_and_two;
    support_write_jpeg(support_folder, "images/val/cat/new.jpg", 5, 30, 20);
    assert_int_equal(cvy_write_pack(below("images"), below("four"), &options, &result), CVY_CANNOT_CREATE);
    options.val_shards = 3;
    assert_int_equal(cvy_write_pack(below("images"), below("four"), &options, &result), CVY_CANNOT_CREATE);
    test_file_write(below("one/letter.txt"), "dear", 4);
    assert_int_equal(cvy_write_pack(below("images"), below("one"), &three_and_two, &result), CVY_CANNOT_CREATE);
    assert_int_equal(unlink(below("one/letter.txt")), 0);
    assert_same_file("one/val-00000-of-00002.pack", "four/val-00000-of-00002.pack");
}

static void impossible_packings_are_refused(void **state)
{
    struct cvy_pack_options wrong[] = {{.quality = 80},
                                       {.raw = true, .quality = 80},
                                       {.exif_orientation = true},
                                       {.train_shards = TRAIN + 1},
                                       {.val_shards = VAL + 1}};
    static const char *const sentences[] = {"--quality needs", "--quality and --raw", "--exif-orientation needs",
                                            "files", "files"};
    struct cvy_pack_result result;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        wrong[i].size = sizeof wrong[i];
        assert_fails(cvy_write_pack(below("images"), below("out"), &wrong[i], &result), CVY_USAGE, sentences[i]);
    }
    assert_int_equal(cvy_write_pack(below("nowhere"), below("out"), &CVY_PACK_DEFAULTS, &result), CVY_NO_INPUT);
    assert_false(cvy_path_exists(below("out")));
}

/* ---- smaller images ---- */

static void sizes_of(const struct cvy_dataset *set, uint32_t sample, int32_t size[2], enum cvy_image_format *format)
{
    struct cvy_decoder *decoder;
    struct cvy_encoded encoded;

    assert_int_equal(cvy_decoder_new(&decoder), CVY_OK);
    assert_int_equal(cvy_sample_read(&set->samples[sample], &encoded), CVY_OK);
    assert_int_equal(cvy_decoder_start(decoder, encoded.name, encoded.data, encoded.size, &size[0], &size[1]), CVY_OK);
    *format = cvy_decoder_format(decoder);
    cvy_encoded_release(&encoded);
    cvy_decoder_free(decoder);
}

/* The pixels of the folder's image, resized, are those of the pack: read whole, and in part. */
static void assert_raw_pixels(const struct cvy_sample *from, const struct cvy_sample *packed, int32_t side)
{
    struct cvy_decoder *decoder;
    struct cvy_resizer resizer = {0};
    struct cvy_encoded encoded;
    int32_t width, height, w, h;
    const uint8_t *pixels;
    size_t stride;

    assert_int_equal(cvy_decoder_new(&decoder), CVY_OK);
    assert_int_equal(cvy_sample_read(from, &encoded), CVY_OK);
    assert_int_equal(cvy_decoder_start(decoder, encoded.name, encoded.data, encoded.size, &width, &height), CVY_OK);
    const int32_t shorter = width < height ? width : height;
    const int32_t to[2] = {shorter > side ? width * side / shorter : width,
                           shorter > side ? height * side / shorter : height};
    uint8_t *expected = malloc((size_t)to[0] * (size_t)to[1] * 3);
    assert_non_null(expected);
    assert_int_equal(cvy_decoder_read(decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride), CVY_OK);
    assert_int_equal(cvy_resize(&resizer, pixels, stride, width, height, to[0], to[1],
                                &(struct cvy_box){0, 0, to[0], to[1]}, false, expected),
                     CVY_OK);
    cvy_encoded_release(&encoded);

    assert_int_equal(cvy_sample_read(packed, &encoded), CVY_OK);
    assert_int_equal(cvy_decoder_start(decoder, encoded.name, encoded.data, encoded.size, &w, &h), CVY_OK);
    assert_int_equal(w, to[0]);
    assert_int_equal(h, to[1]);
    const struct cvy_box part = {w / 3, h / 4, w / 2, h / 2};
    assert_int_equal(cvy_decoder_read(decoder, &part, &pixels, &stride), CVY_OK);
    for (int32_t y = 0; y < part.height; y++)
        assert_memory_equal(pixels + (size_t)y * stride,
                            expected + ((size_t)(part.y + y) * (size_t)w + (size_t)part.x) * 3, (size_t)part.width * 3);
    free(expected);
    cvy_encoded_release(&encoded);
    cvy_resizer_release(&resizer);
    cvy_decoder_free(decoder);
}

static void images_are_made_smaller(void **state)
{
    struct cvy_pack_options options = {.size = sizeof(struct cvy_pack_options), .shorter_side = 36, .quality = 75};
    struct cvy_dataset train, val, packed, packed_val;
    enum cvy_image_format format;
    int32_t from[2], to[2], fresh = 0;

    struct cvy_pack_result result = pack("small", &options);
    assert_int_equal(result.train_shards, 1);
    open_pair("images", &train, &val);
    open_pair("small", &packed, &packed_val);
    for (uint32_t i = 0; i < TRAIN; i++) {
        sizes_of(&train, i, from, &format);
        sizes_of(&packed, i, to, &format);
        const int32_t shorter = from[0] < from[1] ? from[0] : from[1];
        fresh += shorter > 36;
        for (int k = 0; k < 2; k++)
            assert_int_equal(to[k], shorter > 36 ? from[k] * 36 / shorter : from[k]);
        assert_int_equal(format, CVY_IMAGE_JPEG);
    }
    assert_in_range(fresh, 3, TRAIN - 3);
    cvy_dataset_close(&packed);
    cvy_dataset_close(&packed_val);
    options = (struct cvy_pack_options){.size = sizeof(struct cvy_pack_options), .shorter_side = 36, .raw = true};
    result = pack("raw", &options);
    assert_int_equal(result.reencoded, TRAIN + VAL);
    open_pair("raw", &packed, &packed_val);
    for (uint32_t i = 0; i < TRAIN; i++)
        assert_raw_pixels(&train.samples[i], &packed.samples[i], 36);
    cvy_dataset_close(&packed);
    cvy_dataset_close(&packed_val);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
}

/* A JPEG that says it is to be turned by 90 degrees: pixels are as stored unless turning is asked for, and nothing is
 * said about a turn in what is encoded anew. */
static void turned_images(void **state)
{
    static const uint8_t exif[] = {0xFF, 0xE1, 0, 34,   'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8,
                                   0,    1,    1, 0x12, 0,   3,   0,   0,   0, 1, 0,   6,   0, 0,  0, 0, 0, 0};
    struct bytes jpeg = support_any_jpeg(3, 20, 12);

    uint8_t *turned = malloc(jpeg.size + sizeof exif);
    assert_non_null(turned);
    memcpy(turned, jpeg.data, 2);
    memcpy(turned + 2, exif, sizeof exif);
    memcpy(turned + 2 + sizeof exif, jpeg.data + 2, jpeg.size - 2);
    support_write(support_folder, "images/train/ape/00.jpg", turned, jpeg.size + sizeof exif);
    free(turned);
    free(jpeg.data);
    for (int mode = 0; mode < 3; mode++) { /* kept; made again as it is stored; turned */
        const struct cvy_pack_options options = {
            .size = sizeof(struct cvy_pack_options), .shorter_side = mode > 0 ? 100 : 0, .exif_orientation = mode == 2};
        struct cvy_dataset train, val;
        struct cvy_encoded encoded;
        struct cvy_decoder *decoder;
        int32_t width, height;
        char name[32];
        snprintf(name, sizeof name, "out%d", mode);
        assert_int_equal(pack(name, &options).reencoded, mode > 0);
        open_pair(name, &train, &val);
        assert_int_equal(cvy_decoder_new(&decoder), CVY_OK);
        assert_int_equal(cvy_sample_read(&train.samples[0], &encoded), CVY_OK);
        assert_int_equal(cvy_decoder_start(decoder, "x", encoded.data, encoded.size, &width, &height), CVY_OK);
        assert_int_equal(width, mode == 2 ? 12 : 20);
        assert_int_equal(height, mode == 2 ? 20 : 12);
        assert_int_equal(cvy_decoder_orientation(decoder), mode == 0 ? 6 : 1);
        cvy_encoded_release(&encoded);
        cvy_decoder_free(decoder);
        cvy_dataset_close(&train);
        cvy_dataset_close(&val);
    }
}

static void bad_images_are_left_out(void **state)
{
    struct cvy_dataset train, val;

    support_write(support_folder, "images/train/bee/01.jpg", "not an image", 12);
    support_write(support_folder, "images/val/cat/17.jpg", "", 0);
    struct cvy_pack_result result = pack("packed", &three_and_two);
    assert_int_equal(result.left_out, 2);
    assert_int_equal(result.train_images, TRAIN - 1);
    assert_int_equal(pack("packed", &three_and_two).left_out, 2); /* known from the files too */
    open_pair("packed", &train, &val);
    assert_int_equal(train.sample_count, TRAIN - 1);
    assert_int_equal(val.sample_count, VAL - 1);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
}

/* ---- reading ---- */

static void classes_are_found_by_name(void **state)
{
    static const char *const other[] = {"cat", "dog", "bee", "ape"};
    struct cvy_dataset train, val, plain;

    (void)pack("packed", &three_and_two);
    assert_int_equal(cvy_dataset_open_records(&val, below("packed"), true, other, 4), CVY_OK);
    assert_int_equal(cvy_dataset_open(&plain, below("images/val"), other, 4), CVY_OK);
    assert_same_set(&plain, &val);
    cvy_dataset_close(&val);
    cvy_dataset_close(&plain);
    assert_fails(cvy_dataset_open_records(&train, below("packed"), false, other, 3), CVY_BAD_DATA, "class \"ape\" of");
    assert_null(train.samples);
}

static void assert_refused(const char *sentence)
{
    struct cvy_dataset train, val;

    assert_int_equal(cvy_dataset_open_pair(below("packed"), NULL, 0, 0, &train, &val), CVY_BAD_DATA);
    if (!strstr(cvy_error(), sentence))
        fail_msg("\"%s\" is not in: %s", sentence, cvy_error());
    assert_null(train.samples);
    assert_null(val.samples);
}

static void incomplete_sets_are_refused(void **state)
{
    struct cvy_pack_options other = three_and_two;

    (void)pack("packed", &three_and_two);
    assert_int_equal(rename(below("packed/train-00002-of-00003.pack"), below("last")), 0);
    assert_refused("holds 2 files like");
    assert_int_equal(rename(below("packed/train-00000-of-00003.pack"), below("first")), 0);
    assert_int_equal(rename(below("last"), below("packed/train-00000-of-00003.pack")), 0);
    assert_refused("number 0 is not in its place");
    other.shorter_side = 24;
    (void)pack("other", &other);
    assert_int_equal(rename(below("other/train-00002-of-00003.pack"), below("packed/train-00002-of-00003.pack")), 0);
    assert_int_equal(rename(below("first"), below("packed/train-00000-of-00003.pack")), 0);
    assert_refused("are parts of different sets");
}

/* Every flipped bit and every shorter length of a file is either named when the set is opened, or, within an image,
 * when that is read; nothing else changes. */
static void damage_is_found(void **state)
{
    static const char name[] = "packed/val-00000-of-00001.pack";
    struct cvy_dataset val;
    struct cvy_encoded encoded;
    void *whole;
    size_t size;
    int at_once = 0, later = 0;

    (void)pack("packed",
               &(struct cvy_pack_options){.size = sizeof(struct cvy_pack_options), .shorter_side = 8, .quality = 20});
    assert_int_equal(cvy_file_read(below(name), 1 << 20, &whole, &size), CVY_OK);
    uint8_t *bytes = whole;
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 1 << i % 8;
        test_file_write(below(name), bytes, size);
        bytes[i] ^= 1 << i % 8;
        const cvy_status status = cvy_dataset_open_records(&val, below("packed"), true, NULL, 0);
        int bad = 0;
        for (uint32_t s = 0; status == CVY_OK && s < val.sample_count; s++) {
            const cvy_status read = cvy_sample_read(&val.samples[s], &encoded);
            bad += read == CVY_BAD_DATA && strstr(cvy_error(), "checksum is wrong") != NULL;
            if (read == CVY_OK)
                cvy_encoded_release(&encoded);
        }
        cvy_dataset_close(&val);
        assert_true(status == CVY_OK ? bad == 1 : status == CVY_BAD_DATA && strstr(cvy_error(), name) != NULL);
        at_once += status != CVY_OK;
        later += bad;
    }
    assert_true(at_once >= CVY_PACK_HEADER + CVY_PACK_TRAILER && later > at_once);
    for (size_t length = 0; length < size; length += length < 2 * CVY_PACK_HEADER ? 1 : 37) {
        test_file_write(below(name), bytes, length);
        assert_int_equal(cvy_dataset_open_records(&val, below("packed"), true, NULL, 0), CVY_BAD_DATA);
    }
    /* A file of a later version says so, whatever else has changed in it. */
    bytes[8] = 2;
    test_file_write(below(name), bytes, size);
    assert_fails(cvy_dataset_open_records(&val, below("packed"), true, NULL, 0), CVY_BAD_DATA,
                 "is of version 2 of packed data sets, and this program reads version 1");
    cvy_free(whole);
}

/* More files than may be held open: they are opened for each read. */
static void files_need_not_be_held(void **state)
{
    struct cvy_dataset train, val, packed[4], packed_val[4];

    (void)pack("packed", &three_and_two);
    open_pair("images", &train, &val);
    cvy_shards_set_max_open(7);
    for (int i = 0; i < 4; i++)
        open_pair("packed", &packed[i], &packed_val[i]);
    for (int i = 0; i < 4; i++) {
        assert_same_set(&train, &packed[i]);
        assert_same_set(&val, &packed_val[i]);
        cvy_dataset_close(&packed[i]);
        cvy_dataset_close(&packed_val[i]);
    }
    cvy_shards_set_max_open(-1);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
}

static void memory_may_run_out(void **state)
{
    struct cvy_pack_options options = {.size = sizeof(struct cvy_pack_options), .shorter_side = 20, .threads = 1};
    struct cvy_pack_result result;
    struct cvy_dataset val;
    cvy_status status = CVY_NO_MEMORY;
    char name[32];
    int64_t n;

    /* Looking at what a folder may hold takes failures for "not that". */
    for (n = 1; status != CVY_OK && n < 3000; n += n < 60 ? 1 : 17) {
        snprintf(name, sizeof name, "out%lld", (long long)n);
        status = WITH_FAILURE(n, true, cvy_write_pack(below("images"), below(name), &options, &result));
        assert_true(status == CVY_OK || status == CVY_NO_MEMORY || n < 60);
    }
    assert_int_equal(status, CVY_OK);
    assert_true(n > 60);
    status = CVY_NO_MEMORY;
    for (n = 1; status != CVY_OK && n < 3000; n++) {
        status = WITH_FAILURE(n, true, cvy_dataset_open_records(&val, below(name), true, NULL, 0));
        cvy_dataset_close(&val);
    }
    assert_int_equal(status, CVY_OK);
    assert_true(n > 8);
}

#define OVER_CLASSES(test) cmocka_unit_test_setup_teardown(test, set_up, test_folder_teardown)

RUN_TESTS(NULL, NULL, OVER_CLASSES(bytes_are_kept), OVER_CLASSES(packing_goes_on),
          OVER_CLASSES(impossible_packings_are_refused), OVER_CLASSES(images_are_made_smaller),
          OVER_CLASSES(turned_images), OVER_CLASSES(bad_images_are_left_out), OVER_CLASSES(classes_are_found_by_name),
          OVER_CLASSES(incomplete_sets_are_refused), OVER_CLASSES(damage_is_found),
          OVER_CLASSES(files_need_not_be_held), OVER_CLASSES(memory_may_run_out))
