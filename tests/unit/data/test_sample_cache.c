/* Images kept in memory: read once, the same bytes and batches, no more than was allowed. */
#include "convoy/dataset.h"
#include "convoy/program/shapes.h"
#include "data/loader/loader.h"
#include "support_folder.h"
#include "support_images.h"
#include "support_tar.h"
#include "support_test.h"

enum { IMAGES = 21, SIZE = 16, BATCH = 4 };

static void open_set(const char *name, struct cvy_dataset *set)
{
    if (cvy_dataset_open_training(set, test_path(support_folder, name)) != CVY_OK)
        fail_msg("%s", cvy_error());
}

static int set_up(void **state)
{
    struct cvy_tfrecord_options records = CVY_TFRECORD_DEFAULTS;
    struct cvy_tfrecord_result records_result;
    struct cvy_pack_result pack_result;
    struct cvy_dataset set;
    char name[300], from[300], to[300];

    if (test_folder_setup(state) != 0)
        return -1;
    for (int i = 0; i < IMAGES; i++) { /* with long names: they take memory too */
        snprintf(name, sizeof name, "images/%s/%c/%0200d.jpg", i % 4 ? "train" : "val", i % 3 ? 'a' : 'b', i);
        support_write_jpeg(support_folder, name, (uint64_t)i, 30 + i, 50 - i);
    }
    snprintf(from, sizeof from, "%s/images", support_folder);
    snprintf(to, sizeof to, "%s/records", support_folder);
    if (cvy_write_tfrecords(from, to, &records, &records_result) != CVY_OK)
        return -1;
    open_set("images", &set);
    support_write_tars(support_folder, "tars/train", &set);
    cvy_dataset_close(&set);
    snprintf(to, sizeof to, "%s/packed", support_folder);
    return cvy_write_pack(from, to, &CVY_PACK_DEFAULTS, &pack_result) == CVY_OK ? 0 : -1;
}

/* Once kept, an image needs its file no more; what reading said of it stays, in no more memory than was said. */
static void images_are_kept(void **state)
{
    static const char *const kinds[] = {"images", "records", "packed", "tars"};

    for (int k = 0; k < 4; k++) {
        struct cvy_dataset set;
        struct cvy_sample_cache *cache;
        struct cvy_encoded plain, first, second;
        int64_t images;
        size_t bytes, size = 0;
        open_set(kinds[k], &set);
        const size_t needed = cvy_sample_cache_bytes(&set);
        assert_int_equal(cvy_sample_cache_new(&set, needed, &cache), CVY_OK);
        for (uint32_t i = 0; i < set.sample_count; i++) {
            assert_int_equal(cvy_sample_read(&set.samples[i], &plain), CVY_OK);
            assert_int_equal(cvy_sample_cache_read(cache, i, &first), CVY_OK);
            if (k == 0)
                assert_int_equal(unlink(set.samples[i].path), 0);
            assert_int_equal(cvy_sample_cache_read(cache, i, &second), CVY_OK);
            for (int turn = 0; turn < 2; turn++) {
                const struct cvy_encoded *x = turn ? &second : &first;
                assert_int_equal(x->size, plain.size);
                assert_memory_equal(x->data, plain.data, plain.size);
                assert_string_equal(x->name, plain.name);
            }
            assert_true(second.borrowed && !first.borrowed);
            size += plain.size;
            cvy_encoded_release(&first);
            cvy_encoded_release(&second);
            cvy_encoded_release(&plain);
        }
        cvy_sample_cache_count(cache, &images, &bytes);
        assert_int_equal(images, set.sample_count);
        assert_in_range(bytes, size, needed);
        assert_in_range(needed, size, size + set.sample_count * 1400); /* and what was said is not far off */
        cvy_sample_cache_free(cache);
        cvy_dataset_close(&set);
    }
}

static void no_more_than_allowed(void **state)
{
    struct cvy_dataset set;
    struct cvy_sample_cache *cache;
    struct cvy_encoded encoded;
    int64_t images;
    size_t bytes;

    open_set("images", &set);
    assert_int_equal(cvy_sample_cache_new(&set, 3000, &cache), CVY_OK);
    for (uint32_t turn = 0; turn < 2 * set.sample_count; turn++) {
        assert_int_equal(cvy_sample_cache_read(cache, turn % set.sample_count, &encoded), CVY_OK);
        cvy_encoded_release(&encoded);
    }
    cvy_sample_cache_count(cache, &images, &bytes);
    assert_in_range(images, 1, set.sample_count - 1);
    assert_in_range(bytes, 1, 3000);
    /* A bad image is looked at again: it may have been copied meanwhile. */
    uint32_t last = set.sample_count - 1;
    assert_int_equal(rename(set.samples[last].path, test_path(support_folder, "away")), 0);
    assert_int_equal(cvy_sample_cache_read(cache, last, &encoded), CVY_NO_INPUT);
    assert_int_equal(rename(test_path(support_folder, "away"), set.samples[last].path), 0);
    assert_int_equal(cvy_sample_cache_read(cache, last, &encoded), CVY_OK);
    cvy_encoded_release(&encoded);
    cvy_sample_cache_free(cache);

    /* Without memory for a copy an image is read each time. */
    assert_int_equal(cvy_sample_cache_new(&set, 1 << 20, &cache), CVY_OK);
    for (int64_t n = 1; n < 4; n++) {
        const cvy_status status = WITH_FAILURE(n, false, cvy_sample_cache_read(cache, 0, &encoded));
        assert_true(status == CVY_OK || status == CVY_NO_MEMORY);
        if (status == CVY_OK)
            cvy_encoded_release(&encoded);
    }
    cvy_sample_cache_count(cache, &images, &bytes);
    assert_int_equal(images, 1);
    cvy_sample_cache_free(cache);
    cvy_sample_cache_free(NULL);
    cvy_dataset_close(&set);
}

/* Many threads, epochs and small batches: the batches are those without a cache. */
static void the_same_batches(void **state)
{
    struct cvy_dataset set;
    struct cvy_sample_cache *cache;
    struct cvy_loader *plain, *cached;

    open_set("packed", &set);
    assert_int_equal(cvy_sample_cache_new(&set, cvy_sample_cache_bytes(&set), &cache), CVY_OK);
    struct cvy_loader_options options = {.dataset = &set,
                                         .transform = {.training = true, .size = SIZE},
                                         .batch_size = BATCH,
                                         .workers = 1,
                                         .prefetch = 2,
                                         .seed = 5,
                                         .sampler = CVY_SAMPLE_BALANCED, /* images come twice in an epoch */
                                         .world = 1};
    assert_int_equal(cvy_loader_open(&options, &plain), CVY_OK);
    options.workers = 8;
    options.cache = cache;
    assert_int_equal(cvy_loader_open(&options, &cached), CVY_OK);
    for (uint32_t epoch = 0; epoch < 4; epoch++) {
        const struct cvy_batch *x, *y;
        assert_int_equal(cvy_loader_start(plain, epoch, 0), CVY_OK);
        assert_int_equal(cvy_loader_start(cached, epoch, 0), CVY_OK);
        for (;;) {
            assert_int_equal(cvy_loader_next(plain, &x), CVY_OK);
            assert_int_equal(cvy_loader_next(cached, &y), CVY_OK);
            assert_true((x == NULL) == (y == NULL));
            if (!x)
                break;
            assert_memory_equal(x->images, y->images, BATCH * SIZE * SIZE * 3);
            assert_memory_equal(x->samples, y->samples, BATCH * sizeof *x->samples);
        }
    }
    cvy_loader_close(plain);
    cvy_loader_close(cached);
    cvy_sample_cache_free(cache);
    cvy_dataset_close(&set);
}

#define OVER_CLASSES(test) cmocka_unit_test_setup_teardown(test, set_up, test_folder_teardown)

RUN_TESTS(NULL, NULL, OVER_CLASSES(images_are_kept), OVER_CLASSES(no_more_than_allowed), OVER_CLASSES(the_same_batches))
