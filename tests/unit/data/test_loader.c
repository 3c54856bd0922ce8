/* The loader: the same batches whatever the threads, restarts, ranks and bad files. */
#include <pthread.h>
#include <signal.h>

#include "convoy/program/bench.h"
#include "data/loader/loader.h"
#include "support_images.h"
#include "support_test.h"

enum { IMAGES = 23, SIZE = 24, IMAGE_BYTES = SIZE * SIZE * 3 };

static struct cvy_dataset set;
static int warnings;

static void count_warnings(void *context, enum cvy_log_level level, const char *text)
{
    warnings += level == CVY_LOG_WARNING && strstr(text, "another image takes its place") != NULL;
}

static int set_up(void **state)
{
    test_folder_setup(state);
    for (int i = 0; i < IMAGES; i++) {
        char name[64];
        snprintf(name, sizeof name, "%c/%02d.jpg", i < 10 ? 'a' : 'b', i);
        support_write_jpeg(support_folder, name, (uint64_t)i, 40 + i, 60 - i);
    }
    cvy_set_log_handler(count_warnings, NULL);
    warnings = 0;
    return cvy_dataset_open(&set, support_folder, NULL, 0) == CVY_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    cvy_set_log_handler(NULL, NULL);
    cvy_dataset_close(&set);
    return test_folder_teardown(state);
}

/* Sample `index` of the set becomes a file of this content. */
static void spoil(uint32_t index, const char *content, size_t size)
{
    test_file_write(set.samples[index].path, content, size);
}

static struct cvy_loader_options training(int workers)
{
    return (struct cvy_loader_options){.dataset = &set,
                                       .transform = {.training = true, .size = SIZE},
                                       .batch_size = 4,
                                       .workers = workers,
                                       .prefetch = 2,
                                       .seed = 11,
                                       .sampler = CVY_SAMPLE_SHUFFLED,
                                       .drop_last = true,
                                       .replace_bad = true,
                                       .world = 1};
}

static struct cvy_loader_options evaluation(int workers)
{
    return (struct cvy_loader_options){.dataset = &set,
                                       .transform = {.size = SIZE, .resize = SIZE + 4},
                                       .batch_size = 4,
                                       .workers = workers,
                                       .prefetch = 1,
                                       .world = 1};
}

/* All batches of an epoch, copied. */
struct epoch {
    int64_t batches;
    int32_t count[64];
    int32_t labels[256];
    uint32_t samples[256];
    cvy_status status[256];
    uint8_t images[64 * 4 * IMAGE_BYTES];
};

static void copy_batch(struct epoch *to, const struct cvy_batch *batch)
{
    const int64_t b = to->batches++;
    assert_true(b < 16);
    assert_int_equal((uintptr_t)batch->images % 64, 0);
    to->count[b] = batch->count;
    memcpy(to->labels + b * 4, batch->labels, 4 * sizeof *batch->labels);
    memcpy(to->samples + b * 4, batch->samples, 4 * sizeof *batch->samples);
    memcpy(to->status + b * 4, batch->status, 4 * sizeof *batch->status);
    memcpy(to->images + b * 4 * IMAGE_BYTES, batch->images, 4 * IMAGE_BYTES);
}

static struct epoch *run(struct cvy_loader *loader, uint32_t number, int64_t first)
{
    struct epoch *epoch = calloc(1, sizeof *epoch);
    const struct cvy_batch *batch;
    assert_non_null(epoch);
    assert_int_equal(cvy_loader_start(loader, number, first), CVY_OK);
    for (;;) {
        assert_int_equal(cvy_loader_next(loader, &batch), CVY_OK);
        if (!batch)
            break;
        assert_int_equal(batch->index, first + epoch->batches);
        copy_batch(epoch, batch);
    }
    assert_int_equal(first + epoch->batches, cvy_loader_batches(loader));
    return epoch;
}

static struct epoch *run_new(const struct cvy_loader_options *options, uint32_t number, int64_t first)
{
    struct cvy_loader *loader;
    assert_int_equal(cvy_loader_open(options, &loader), CVY_OK);
    struct epoch *epoch = run(loader, number, first);
    cvy_loader_close(loader);
    return epoch;
}

static void threads_change_nothing(void **state)
{
    struct cvy_loader_options one = training(1), four = training(4);
    four.prefetch = 5;
    for (uint32_t number = 0; number < 4; number++) {
        one.autoaugment = four.autoaugment = number == 3;
        struct epoch *a = run_new(&one, number, 0), *b = run_new(&four, number, 0);
        assert_int_equal(a->batches, IMAGES / 4);
        assert_memory_equal(a, b, sizeof *a);
        free(a);
        free(b);
    }
}

/* A resumed epoch is the tail of the whole one; a restart throws away what was in progress. */
static void epochs_restart_anywhere(void **state)
{
    struct cvy_loader_options options = training(3);
    struct cvy_loader *loader;
    const struct cvy_batch *batch;
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
    struct epoch *whole = run(loader, 2, 0);
    for (int64_t first = 0; first <= whole->batches; first++) {
        for (int64_t i = 0; i < first; i++) { /* leave another epoch in the middle */
            if (i == 0)
                assert_int_equal(cvy_loader_start(loader, 9, 1), CVY_OK);
            assert_int_equal(cvy_loader_next(loader, &batch), CVY_OK);
        }
        struct epoch *tail = run(loader, 2, first);
        assert_int_equal(tail->batches, whole->batches - first);
        assert_memory_equal(tail->images, whole->images + first * 4 * IMAGE_BYTES,
                            (size_t)tail->batches * 4 * IMAGE_BYTES);
        assert_memory_equal(tail->samples, whole->samples + first * 4, (size_t)tail->batches * 16);
        free(tail);
    }
    assert_int_equal(cvy_loader_start(loader, 0, whole->batches + 1), CVY_USAGE);
    assert_int_equal(cvy_loader_start(loader, 0, -1), CVY_USAGE);
    struct epoch *other = run(loader, 3, 0);
    assert_memory_not_equal(other->samples, whole->samples, sizeof whole->samples);
    free(other);
    free(whole);
    cvy_loader_close(loader);
}

/* Balanced by class: the same whatever the threads and wherever it begins, and an image that comes again is cropped
 * anew. 23 places for classes of 10 and 13 images: at least one image of the first comes twice. */
static void balanced_epochs_are_reproducible(void **state)
{
    struct cvy_loader_options one = training(1), four = training(4);
    int again = 0;
    one.batch_size = four.batch_size = 1;
    one.sampler = four.sampler = CVY_SAMPLE_BALANCED;
    struct loaded {
        uint32_t sample;
        uint8_t image[IMAGE_BYTES];
    } *loaded = calloc(2 * IMAGES, sizeof *loaded);
    assert_non_null(loaded);
    for (int turn = 0; turn < 2; turn++) {
        struct cvy_loader *loader;
        const struct cvy_batch *batch;
        assert_int_equal(cvy_loader_open(turn ? &four : &one, &loader), CVY_OK);
        assert_int_equal(cvy_loader_start(loader, 1, turn ? 7 : 0), CVY_OK);
        for (int i = turn ? 7 : 0; i < IMAGES; i++) {
            assert_int_equal(cvy_loader_next(loader, &batch), CVY_OK);
            loaded[turn * IMAGES + i].sample = batch->samples[0];
            memcpy(loaded[turn * IMAGES + i].image, batch->images, IMAGE_BYTES);
        }
        cvy_loader_close(loader);
    }
    assert_memory_equal(loaded + 7, loaded + IMAGES + 7, (IMAGES - 7) * sizeof *loaded);
    for (int i = 0; i < IMAGES; i++)
        for (int j = 0; j < i; j++)
            if (loaded[i].sample == loaded[j].sample) {
                assert_memory_not_equal(loaded[i].image, loaded[j].image, IMAGE_BYTES);
                again++;
            }
    assert_in_range(again, 1, 2);
    free(loaded);
}

static void two_batches_are_readable(void **state)
{
    struct cvy_loader_options options = training(4);
    struct cvy_loader *loader;
    const struct cvy_batch *batch, *before = NULL;
    uint8_t *copy = malloc(4 * IMAGE_BYTES);
    options.prefetch = 1;
    assert_non_null(copy);
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
    assert_int_equal(cvy_loader_start(loader, 0, 0), CVY_OK);
    for (;;) {
        assert_int_equal(cvy_loader_next(loader, &batch), CVY_OK);
        if (!batch)
            break;
        usleep(3000); /* time for the workers to overwrite what they should not */
        if (before)
            assert_memory_equal(before->images, copy, 4 * IMAGE_BYTES);
        memcpy(copy, batch->images, 4 * IMAGE_BYTES);
        before = batch;
    }
    free(copy);
    cvy_loader_close(loader);
}

static void ranks_cover_every_sample_once(void **state)
{
    int seen[IMAGES] = {0};
    uint32_t order[2][32], alone[32];
    int counts[2] = {0};
    struct cvy_loader_options options = training(2);
    options.drop_last = false;
    struct epoch *whole = run_new(&options, 1, 0);
    memcpy(alone, whole->samples, sizeof alone);
    options.world = 2;
    for (int rank = 0; rank < 2; rank++) {
        options.rank = rank;
        struct epoch *part = run_new(&options, 1, 0);
        for (int64_t b = 0; b < part->batches; b++)
            for (int i = 0; i < part->count[b]; i++) {
                seen[part->samples[b * 4 + i]]++;
                order[rank][counts[rank]++] = part->samples[b * 4 + i];
            }
        free(part);
    }
    for (int i = 0; i < IMAGES; i++)
        assert_int_equal(seen[i], 1);
    for (int i = 0; i < IMAGES; i++) /* perm[rank::2] of the same permutation */
        assert_int_equal(order[i % 2][i / 2], alone[i]);
    /* Training: the same number of batches on every rank, though the first has one sample more (12 and 11). */
    options.drop_last = true;
    options.batch_size = 12;
    for (options.rank = 0; options.rank < 2; options.rank++) {
        struct cvy_loader *loader;
        assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
        assert_int_equal(cvy_loader_batches(loader), 0);
        cvy_loader_close(loader);
    }
    free(whole);
}

static void the_last_batch_may_be_short(void **state)
{
    struct cvy_loader_options options = evaluation(2);
    struct epoch *epoch = run_new(&options, 0, 0);
    assert_int_equal(epoch->batches, 6);
    assert_int_equal(epoch->count[5], 3);
    for (uint32_t i = 0; i < IMAGES; i++) {
        assert_int_equal(epoch->samples[i], i);
        assert_int_equal(epoch->labels[i], set.samples[i].label);
    }
    assert_int_equal(epoch->labels[IMAGES], -1);
    for (int i = 0; i < IMAGE_BYTES; i++)
        assert_int_equal(epoch->images[IMAGES * IMAGE_BYTES + i], 0);
    free(epoch);
}

static void bad_samples_are_replaced_in_training(void **state)
{
    struct cvy_loader_options options = training(4);
    struct cvy_loader *loader;
    options.sampler = CVY_SAMPLE_IN_ORDER;
    options.drop_last = false;
    spoil(3, "", 0);
    spoil(4, "not an image", 12);
    assert_int_equal(unlink(set.samples[IMAGES - 1].path), 0);
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
    for (uint32_t number = 0; number < 3; number++) {
        struct epoch *epoch = run(loader, number, 0);
        for (uint32_t i = 0; i < IMAGES; i++) {
            const uint32_t expected = i == 3 || i == 4 ? 5 : i == IMAGES - 1 ? 0 : i;
            assert_int_equal(epoch->samples[i], expected);
            assert_int_equal(epoch->labels[i], set.samples[expected].label);
            assert_int_equal(epoch->status[i], CVY_OK);
        }
        assert_memory_equal(epoch->images + 3 * IMAGE_BYTES, epoch->images + 5 * IMAGE_BYTES, IMAGE_BYTES);
        free(epoch);
    }
    assert_int_equal(cvy_loader_bad_samples(loader), 3);
    cvy_loader_close(loader);
    assert_int_equal(warnings, 3); /* each named once */
}

static void bad_samples_are_marked_in_evaluation(void **state)
{
    struct cvy_loader_options options = evaluation(3);
    struct cvy_loader *loader;
    const struct cvy_batch *batch;
    spoil(1, "GIF89a", 6);
    assert_int_equal(unlink(set.samples[2].path), 0);
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
    assert_int_equal(cvy_loader_start(loader, 0, 0), CVY_OK);
    assert_int_equal(cvy_loader_next(loader, &batch), CVY_OK);
    assert_int_equal(batch->count, 4);
    assert_int_equal(batch->status[0], CVY_OK);
    assert_int_equal(batch->status[1], CVY_BAD_DATA);
    assert_int_equal(batch->status[2], CVY_NO_INPUT);
    assert_int_equal(batch->labels[1], -1);
    assert_int_equal(batch->labels[3], 0);
    assert_null(batch->errors[0]);
    assert_non_null(strstr(batch->errors[1], "01.jpg"));
    assert_non_null(strstr(batch->errors[2], "02.jpg"));
    for (int i = 0; i < IMAGE_BYTES; i++)
        assert_int_equal(batch->images[IMAGE_BYTES + i], 0);
    cvy_loader_close(loader); /* in the middle of the epoch */
}

static void a_set_of_bad_images_fails(void **state)
{
    struct cvy_loader_options options = training(3);
    struct cvy_loader *loader;
    const struct cvy_batch *batch;
    for (uint32_t i = 0; i < IMAGES; i++)
        spoil(i, "text", 4);
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
    assert_int_equal(cvy_loader_start(loader, 0, 0), CVY_OK);
    assert_int_equal(cvy_loader_next(loader, &batch), CVY_BAD_DATA);
    assert_null(batch);
    assert_error("none of the 23 images can be read");
    assert_int_equal(cvy_loader_next(loader, &batch), CVY_BAD_DATA);
    assert_int_equal(cvy_loader_bad_samples(loader), IMAGES);
    cvy_loader_close(loader);
}

static void impossible_options_are_refused(void **state)
{
    struct cvy_loader *loader;
    struct cvy_loader_options options = training(0);
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_USAGE);
    assert_null(loader);
    options = training(1);
    options.rank = 1;
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_USAGE);
    options = training(1);
    options.transform.size = 0;
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_USAGE);
    options = training(1);
    options.autoaugment = options.transform.tensorflow = true;
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_USAGE);
    cvy_loader_close(NULL);
}

/* Whatever allocation fails, opening and running fail cleanly or not at all. */
static void memory_may_run_out(void **state)
{
    struct cvy_loader_options options = training(1);
    for (int64_t n = 1; n < 60; n++) {
        struct cvy_loader *loader;
        const struct cvy_batch *batch;
        cvy_memory_fail_after(n, true);
        cvy_status status = cvy_loader_open(&options, &loader);
        if (status == CVY_OK)
            status = cvy_loader_start(loader, 0, 0);
        for (int i = 0; status == CVY_OK && i < IMAGES / 4; i++)
            status = cvy_loader_next(loader, &batch);
        cvy_memory_fail_after(0, false);
        assert_true(status == CVY_OK || status == CVY_NO_MEMORY);
        cvy_loader_close(loader);
    }
}

/* The sample that completes a batch fails: the batch must not be handed out. */
static void a_failing_sample_spoils_its_batch(void **state)
{
    struct cvy_loader_options options = training(1);
    struct cvy_loader *loader;
    const struct cvy_batch *batch;
    options.batch_size = 1;
    options.prefetch = 1;
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
    cvy_memory_fail_after(1, true);
    assert_int_equal(cvy_loader_start(loader, 0, 0), CVY_OK);
    assert_int_equal(cvy_loader_next(loader, &batch), CVY_NO_MEMORY);
    assert_null(batch);
    cvy_memory_fail_after(0, false);
    assert_int_equal(cvy_loader_start(loader, 0, 0), CVY_OK); /* with memory again everything is as it was */
    assert_int_equal(cvy_loader_next(loader, &batch), CVY_OK);
    assert_int_equal(batch->status[0], CVY_OK);
    cvy_loader_close(loader);
}

static volatile sig_atomic_t signalled_here;
static pthread_t main_thread;
static void on_signal(int number)
{
    signalled_here = pthread_equal(pthread_self(), main_thread) ? 1 : -1;
}

/* Ctrl-C reaches the training thread, never a worker. */
static void signals_go_to_the_caller(void **state)
{
    struct cvy_loader_options options = training(4);
    struct cvy_loader *loader;
    main_thread = pthread_self();
    assert_true(signal(SIGINT, on_signal) != SIG_ERR);
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
    for (int i = 0; i < 20; i++) {
        sigset_t block, before;
        signalled_here = 0;
        /* While this thread blocks it, a worker that does not would take it. */
        sigemptyset(&block);
        sigaddset(&block, SIGINT);
        pthread_sigmask(SIG_BLOCK, &block, &before);
        assert_int_equal(kill(getpid(), SIGINT), 0);
        usleep(1000);
        assert_int_equal(signalled_here, 0);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        assert_int_equal(signalled_here, 1);
    }
    cvy_loader_close(loader);
    signal(SIGINT, SIG_DFL);
}

static void the_benchmark_counts_images(void **state)
{
    struct cvy_bench_data_options options = CVY_BENCH_DATA_DEFAULTS;
    struct cvy_bench_data_result result;
    options.folder = support_folder;
    options.image_size = 32;
    options.workers = 2;
    options.seconds = 0.05;
    for (int val = 0; val < 2; val++) {
        options.val = val;
        assert_int_equal(cvy_bench_data(&options, &result), CVY_OK);
        assert_int_equal(result.threads, 2);
        assert_true(result.images > 0 && result.images_per_second > 0);
    }
    options.folder = "/nonexistent";
    assert_int_equal(cvy_bench_data(&options, &result), CVY_NO_INPUT);
}

RUN_TESTS(NULL, NULL, EACH(threads_change_nothing), EACH(epochs_restart_anywhere),
          EACH(balanced_epochs_are_reproducible), EACH(two_batches_are_readable), EACH(ranks_cover_every_sample_once),
          EACH(the_last_batch_may_be_short), EACH(bad_samples_are_replaced_in_training),
          EACH(bad_samples_are_marked_in_evaluation), EACH(a_set_of_bad_images_fails),
          EACH(impossible_options_are_refused), EACH(memory_may_run_out), EACH(a_failing_sample_spoils_its_batch),
          EACH(signals_go_to_the_caller), EACH(the_benchmark_counts_images))
