/* Every kind of data set that holds the same images gives the same batches, bit for bit: whatever the threads, wherever
 * an epoch begins, and each image once over all ranks. */
#include "convoy/dataset.h"
#include "convoy/program/shapes.h"
#include "data/loader/loader.h"
#include "support_folder.h"
#include "support_images.h"
#include "support_tar.h"
#include "support_test.h"

enum { TRAIN = 37, VAL = 11, SIZE = 16, BATCH = 5, IMAGE_BYTES = SIZE * SIZE * 3 * (int)sizeof(float) };

/* Folders with the same images in them. */
static const char *const kinds[] = {"images", "records", "packed", "tars"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void write_archives(void)
{
    struct cvy_dataset train, val;

    assert_int_equal(cvy_dataset_open_pair(below("images"), NULL, 0, 0, &train, &val), CVY_OK);
    support_write_tars(support_folder, "tars/train", &train);
    support_write_tars(support_folder, "tars/val", &val);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
}

static int set_up(void **state)
{
    struct cvy_tfrecord_options records = {.size = sizeof(struct cvy_tfrecord_options),
                                           .train_shards = 3,
                                           .val_shards = 2,
                                           .keep_order = true,
                                           .threads = 2};
    const struct cvy_pack_options packed = {
        .size = sizeof(struct cvy_pack_options), .train_shards = 4, .val_shards = 2, .threads = 2};
    struct cvy_tfrecord_result records_result;
    struct cvy_pack_result packed_result;

    if (test_folder_setup(state) != 0)
        return -1;
    support_write_classes(TRAIN, VAL);
    write_archives();
    return cvy_write_tfrecords(below("images"), below("records"), &records, &records_result) == CVY_OK &&
                   cvy_write_pack(below("images"), below("packed"), &packed, &packed_result) == CVY_OK
               ? 0
               : -1;
}

static struct cvy_loader_options training(const struct cvy_dataset *set, int workers)
{
    return (struct cvy_loader_options){.dataset = set,
                                       .transform = {.training = true, .size = SIZE},
                                       .batch_size = BATCH,
                                       .workers = workers,
                                       .prefetch = workers == 2 ? 4 : 1,
                                       .seed = 3,
                                       .sampler = CVY_SAMPLE_SHUFFLED,
                                       .drop_last = true,
                                       .replace_bad = true,
                                       .world = 1};
}

struct epoch {
    int64_t batches;
    int32_t labels[TRAIN];
    uint32_t samples[TRAIN];
    uint8_t images[TRAIN][IMAGE_BYTES]; /* what of it they take comes first */
};

static struct epoch *run(const struct cvy_loader_options *options, int64_t first)
{
    struct epoch *epoch = calloc(1, sizeof *epoch);
    const size_t image = cvy_transform_bytes(&options->transform);
    const struct cvy_batch *batch;
    struct cvy_loader *loader;

    assert_true(epoch && image <= IMAGE_BYTES);
    assert_int_equal(cvy_loader_open(options, &loader), CVY_OK);
    assert_int_equal(cvy_loader_start(loader, 2, first), CVY_OK);
    for (;; epoch->batches++) {
        const int64_t at = epoch->batches * BATCH;
        assert_int_equal(cvy_loader_next(loader, &batch), CVY_OK);
        if (!batch)
            break;
        assert_true(at + batch->count <= TRAIN);
        memcpy(epoch->labels + at, batch->labels, (size_t)batch->count * sizeof *batch->labels);
        memcpy(epoch->samples + at, batch->samples, (size_t)batch->count * sizeof *batch->samples);
        for (int32_t i = 0; i < batch->count; i++)
            memcpy(epoch->images[at + i], batch->images + (size_t)i * image, image);
    }
    cvy_loader_close(loader);
    return epoch;
}

/* With any number of threads, from its begin and from the middle on, an epoch is the expected one; returned where there
 * was none. */
static struct epoch *compare_epochs(struct cvy_loader_options options, struct epoch *expected)
{
    static const int workers[] = {1, 2, 8};
    const int64_t middle = 3;

    for (size_t w = 0; w < sizeof workers / sizeof workers[0]; w++) {
        options.workers = workers[w];
        options.prefetch = workers[w] == 2 ? 4 : 1;
        struct epoch *whole = run(&options, 0), *rest = run(&options, middle);
        assert_int_equal(whole->batches, TRAIN / BATCH);
        if (!expected)
            expected = whole;
        assert_memory_equal(whole, expected, sizeof *whole);
        assert_int_equal(rest->batches, whole->batches - middle);
        const size_t images = (size_t)rest->batches * BATCH;
        assert_memory_equal(rest->images, expected->images + middle * BATCH, images * IMAGE_BYTES);
        assert_memory_equal(rest->samples, expected->samples + middle * BATCH, images * sizeof *rest->samples);
        assert_memory_equal(rest->labels, expected->labels + middle * BATCH, images * sizeof *rest->labels);
        if (whole != expected)
            free(whole);
        free(rest);
    }
    return expected;
}

static void the_same_batches(void **state)
{
    struct epoch *expected = NULL;

    for (int k = 0; k < KINDS; k++) {
        struct cvy_dataset train, val;
        assert_int_equal(cvy_dataset_open_pair(below(kinds[k]), NULL, 0, 0, &train, &val), CVY_OK);
        expected = compare_epochs(training(&train, 1), expected);
        cvy_dataset_close(&train);
        cvy_dataset_close(&val);
    }
    free(expected);
}

/* The same with everything that the transforms may be changed by, each of which does change the images. */
static void the_same_batches_by_other_rules(void **state)
{
    static const struct cvy_color_jitter colors = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
    static const struct {
        struct cvy_transform transform, plain;
        bool autoaugment, colors;
    } cases[] = {
        /* crops are far larger than the result, as they must be */
        {{.training = true, .size = 8, .fast = true}, {.training = true, .size = 8}, false, false},
        {{.training = true, .size = SIZE, .dali = true}, {.training = true, .size = SIZE}, false, false},
        {{.training = true, .size = SIZE, .filter = CVY_FILTER_BICUBIC},
         {.training = true, .size = SIZE},
         false,
         false},
        {{.training = true, .size = SIZE}, {.training = true, .size = SIZE}, false, true},
        {{.training = true, .size = SIZE}, {.training = true, .size = SIZE}, true, false},
        {{.training = true, .size = SIZE, .tensorflow = true},
         {.training = true, .size = SIZE, .tensorflow = true},
         false,
         true},
    };
    struct cvy_dataset train, val;

    assert_int_equal(cvy_dataset_open_pair(below("images"), NULL, 0, 0, &train, &val), CVY_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cvy_loader_options options = training(&train, 1);
        options.transform = cases[i].plain;
        struct epoch *plain = run(&options, 0);
        options.transform = cases[i].transform;
        if (cases[i].colors)
            options.transform.color = colors;
        options.autoaugment = cases[i].autoaugment;
        struct epoch *changed = compare_epochs(options, NULL);
        assert_memory_equal(changed->samples, plain->samples, sizeof plain->samples);
        assert_memory_not_equal(changed->images, plain->images, sizeof plain->images);
        free(changed);
        free(plain);
    }
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
}

/* Validation over three ranks, which do not divide the set, and training in PyTorch's order. */
static void each_image_once(void **state)
{
    for (int k = 0; k < KINDS; k++) {
        struct cvy_dataset train, val;
        assert_int_equal(cvy_dataset_open_pair(below(kinds[k]), NULL, 0, 0, &train, &val), CVY_OK);
        for (int part = 0; part < 2; part++) {
            struct cvy_loader_options options = training(part ? &val : &train, 2);
            int seen[TRAIN] = {0};
            options.drop_last = options.replace_bad = false;
            options.sampler = part ? CVY_SAMPLE_IN_ORDER : CVY_SAMPLE_PYTORCH;
            options.transform = (struct cvy_transform){.training = !part, .size = SIZE, .resize = SIZE};
            for (options.world = 3, options.rank = 0; options.rank < 3; options.rank++) {
                const struct cvy_batch *batch;
                struct cvy_loader *loader;
                assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
                assert_int_equal(cvy_loader_start(loader, 1, 0), CVY_OK);
                while (cvy_loader_next(loader, &batch) == CVY_OK && batch)
                    for (int32_t i = 0; i < batch->count; i++)
                        seen[batch->samples[i]]++;
                cvy_loader_close(loader);
            }
            for (int i = 0; i < TRAIN; i++)
                assert_int_equal(seen[i], i < (part ? VAL : TRAIN));
        }
        cvy_dataset_close(&train);
        cvy_dataset_close(&val);
    }
}

/* Files of many images are opened once, when the set is: that they are gone since then is not even noticed. */
static void files_stay_open(void **state)
{
    for (int k = 1; k < KINDS; k++)
        for (int held = 0; held < 2; held++) {
            struct cvy_dataset train, val;
            cvy_shards_set_max_open(held ? -1 : 0);
            assert_int_equal(cvy_dataset_open_pair(below(kinds[k]), NULL, 0, 0, &train, &val), CVY_OK);
            cvy_shards_set_max_open(-1);
            assert_int_equal(rename(below(kinds[k]), below("away")), 0);
            for (uint32_t i = 0; i < train.sample_count; i++) {
                struct cvy_encoded encoded;
                assert_int_equal(cvy_sample_read(&train.samples[i], &encoded), held ? CVY_OK : CVY_NO_INPUT);
                if (held)
                    cvy_encoded_release(&encoded);
            }
            assert_int_equal(rename(below("away"), below(kinds[k])), 0);
            cvy_dataset_close(&train);
            cvy_dataset_close(&val);
        }
}

RUN_TESTS(set_up, test_folder_teardown, TEST(the_same_batches), TEST(the_same_batches_by_other_rules),
          TEST(each_image_once), TEST(files_stay_open))
