/* What the loader says of its time: counted for each image, and the bottleneck that the numbers show. */
#include "data/loader/loader.h"
#include "support_images.h"
#include "support_test.h"

enum { IMAGES = 24 };

static void the_loader_counts(void **state)
{
    struct cvy_loader_options options = {.transform = {.training = true, .size = 32},
                                         .batch_size = 4,
                                         .workers = 2,
                                         .prefetch = 2,
                                         .replace_bad = true,
                                         .world = 1};
    struct cvy_loader_stats stats, sum = {0};
    const struct cvy_batch *batch;
    struct cvy_loader *loader;
    struct cvy_dataset set;
    uint64_t bytes = 0;
    char advice[CVY_ADVICE_TEXT];

    for (int i = 0; i < IMAGES; i++) {
        char name[32];
        snprintf(name, sizeof name, "a/%02d.jpg", i);
        struct bytes jpeg = support_any_jpeg((uint64_t)i, 160, 120);
        support_write(support_folder, name, jpeg.data, jpeg.size);
        bytes += jpeg.size;
        free(jpeg.data);
    }
    assert_int_equal(cvy_dataset_open(&set, support_folder, NULL, 0), CVY_OK);
    options.dataset = &set;
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
    for (uint32_t epoch = 0; epoch < 2; epoch++) {
        assert_int_equal(cvy_loader_start(loader, epoch, 0), CVY_OK);
        do
            assert_int_equal(cvy_loader_next(loader, &batch), CVY_OK);
        while (batch);
        cvy_loader_get_stats(loader, &stats);
        assert_int_equal(stats.images, IMAGES); /* of this epoch alone */
        assert_int_equal(stats.bytes, bytes);
        assert_int_equal(stats.workers, 2);
        assert_true(stats.sides == 120 * IMAGES);
        assert_true(stats.read > 0 && stats.decode > 0 && stats.transform > 0);
        assert_true(stats.wait > 0 && stats.wait <= stats.elapsed);
        /* Two threads cannot have worked longer than the time that was there. */
        assert_true(stats.read + stats.decode + stats.transform <= 2 * stats.elapsed);
        assert_true(cvy_loader_stats_busy(&stats) > 0 && cvy_loader_stats_busy(&stats) <= 1);
        cvy_loader_stats_add(&sum, &stats);
    }
    assert_int_equal(sum.images, 2 * IMAGES);
    assert_int_equal(sum.bytes, 2 * bytes);
    cvy_loader_advise(loader, &sum, advice);
    assert_true(strlen(advice) > 20 && strlen(advice) + 1 < sizeof advice && !strchr(advice, '\n'));
    /* What it knows of itself: 120 pixels are three times what is needed, 4 * 32 would be enough for --decode fast. */
    sum.decode = sum.wait = sum.elapsed = 100;
    cvy_loader_advise(loader, &sum, advice);
    assert_non_null(strstr(advice, "--shorter-side 37 makes images smaller, once"));
    assert_null(strstr(advice, "--decode fast"));
    sum.sides = 128 * (double)sum.images;
    cvy_loader_advise(loader, &sum, advice);
    assert_non_null(strstr(advice, "--decode fast saves a little"));
    sum.sides = 40 * (double)sum.images;
    cvy_loader_advise(loader, &sum, advice);
    assert_non_null(strstr(advice, "--raw"));
    sum.read = 1000;
    cvy_loader_advise(loader, &sum, advice);
    assert_non_null(strstr(advice, "--ram-cache keeps what was read"));
    cvy_loader_close(loader);
    /* And that its images are in memory. */
    struct cvy_sample_cache *cache;
    assert_int_equal(cvy_sample_cache_new(&set, 1 << 20, &cache), CVY_OK);
    options.cache = cache;
    assert_int_equal(cvy_loader_open(&options, &loader), CVY_OK);
    cvy_loader_advise(loader, &sum, advice);
    assert_non_null(strstr(advice, "--ram-cache has them in memory"));
    cvy_loader_close(loader);
    cvy_sample_cache_free(cache);
    cvy_dataset_close(&set);
}

/* Two threads of a loader, half of whose 10 seconds of work the training waited for. sum: of the images' shorter sides.
 * (A function's value is no constant that a table could have.) */
#define LOADED(sum, reading, decoding, transforming)                                                                   \
    {                                                                                                                  \
        .images = 1000, .sides = (sum), .read = (reading), .decode = (decoding), .transform = (transforming),          \
        .elapsed = 10, .wait = 5, .workers = 2                                                                         \
    }

static void the_bottleneck_is_named(void **state)
{
    static const struct {
        struct cvy_loader_stats stats;
        struct cvy_loader_context place;
        enum cvy_bottleneck bottleneck;
        const char *starts, *ends;
    } cases[] = {
        {{.images = 1000, .read = 1, .decode = 8, .transform = 1, .elapsed = 10, .wait = 0.4, .workers = 2},
         {.resize = 256, .cores = 2},
         CVY_BOUND_BY_NETWORK,
         "the network, not the data: waiting for images takes 4.0 % of the time",
         "of the time"},
        {LOADED(375e3, 1, 16, 3),
         {.resize = 256, .scaled = 800, .cores = 2},
         CVY_BOUND_BY_DECODING,
         "decoding takes 80 % of the loader's work (16.00 ms an image; 2 threads, 100 % busy): convoy dataset pack",
         "--shorter-side 256 makes images smaller, once"},
        {{.images = 1000, .sides = 2e6, .read = 1, .decode = 7, .transform = 2, .elapsed = 10, .wait = 5, .workers = 1},
         {.resize = 128, .scaled = 400, .cores = 8, .records = true},
         CVY_BOUND_BY_DECODING,
         "decoding takes 70 %",
         ": more --workers; or convoy dataset pack --shorter-side 128 makes images smaller, once; --decode fast saves "
         "a "
         "little"},
        /* A set that was packed at that size, or is smaller: making it smaller again helps nobody. */
        {LOADED(256e3, 1, 16, 3),
         {.resize = 256, .scaled = 800, .cores = 2, .records = true},
         CVY_BOUND_BY_DECODING,
         "decoding takes 80 %",
         ": convoy dataset pack --raw keeps pixels that need no decoding, 3 bytes for each"},
        {LOADED(64e3, 1, 16, 3),
         {.resize = 73, .scaled = 0, .cores = 4},
         CVY_BOUND_BY_DECODING,
         "decoding takes 80 %",
         ": more --workers; or convoy dataset pack --raw keeps pixels that need no decoding, 3 bytes for each"},
        {LOADED(480e3, 1, 16, 3),
         {.resize = 320, .cores = 2, .boxes = true},
         CVY_BOUND_BY_DECODING,
         "decoding takes 80 %",
         ": every core is at it already"},
        {LOADED(256e3, 18, 1, 1),
         {.resize = 256, .cores = 2},
         CVY_BOUND_BY_READING,
         "reading files takes 90 %",
         ": more --workers; or convoy dataset pack makes one sequential file of many small ones, --ram-cache keeps "
         "what was read"},
        {LOADED(375e3, 18, 1, 1),
         {.resize = 256, .cores = 2, .cached = true},
         CVY_BOUND_BY_READING,
         "reading files takes 90 %",
         ": more --workers; or convoy dataset pack --shorter-side 256 makes one sequential file of many small ones, "
         "--ram-cache has them in memory from the second epoch on"},
        {LOADED(375e3, 18, 1, 1),
         {.resize = 256, .cores = 2, .records = true},
         CVY_BOUND_BY_READING,
         "reading files takes 90 %",
         ": more --workers; or convoy dataset pack --shorter-side 256 makes images smaller, --ram-cache keeps what was "
         "read"},
        {LOADED(480e3, 18, 1, 1),
         {.resize = 256, .cores = 2, .boxes = true},
         CVY_BOUND_BY_READING,
         "reading files takes 90 %",
         ": more --workers; or --ram-cache keeps what was read"},
        {LOADED(0, 1, 2, 7),
         {.resize = 256, .cores = 4},
         CVY_BOUND_BY_TRANSFORM,
         "resizing and augmenting takes 70 % of the loader's work (7.00 ms an image; 2 threads, 50 % busy)",
         ": more --workers"},
        {LOADED(0, 2, 4, 14),
         {.resize = 256, .cores = 2},
         CVY_BOUND_BY_TRANSFORM,
         "resizing and augmenting takes 70 % of the loader's work (14.00 ms an image; 2 threads, 100 % busy)",
         ": every core is at it already"},
        {LOADED(0, 1, 2, 8.8),
         {.resize = 256, .cores = 2},
         CVY_BOUND_BY_TRANSFORM,
         "resizing and augmenting takes 75 % of the loader's work (8.80 ms an image; 2 threads, 59 % busy)",
         "59 % busy): threads wait at the ends of batches, of which larger ones make fewer"},
        {{.images = 1000, .sides = 375e3, .read = 1, .device = 18, .elapsed = 10, .wait = 5, .workers = 2, .lanes = 2},
         {.resize = 256, .cores = 2},
         CVY_BOUND_BY_DEVICE,
         "the GPU's decoder (2 batches at a time, 90 % busy; 2 threads, 5 % busy): convoy dataset pack",
         "--shorter-side 256 makes images smaller; the processor may be faster where it has many cores"},
        {{.images = 1000, .read = 15, .device = 3, .elapsed = 10, .wait = 5, .workers = 2, .lanes = 2},
         {.resize = 256, .cores = 4, .records = true, .cached = true},
         CVY_BOUND_BY_READING,
         "reading files takes 100 %",
         ": more --workers; or --ram-cache has them in memory from the second epoch on"},
    };
    char text[CVY_ADVICE_TEXT];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(cvy_loader_bottleneck(&cases[i].stats), cases[i].bottleneck);
        cvy_loader_advice(&cases[i].stats, &cases[i].place, text);
        const size_t length = strlen(text), end = strlen(cases[i].ends);
        if (strncmp(text, cases[i].starts, strlen(cases[i].starts)) != 0 || length < end ||
            strcmp(text + length - end, cases[i].ends) != 0)
            fail_msg("case %zu: %s", i, text);
    }
    const struct cvy_loader_stats nothing = {.workers = 2};
    cvy_loader_advice(&nothing, &cases[0].place, text);
    assert_true(cvy_loader_stats_busy(&nothing) == 0);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(the_loader_counts), TEST(the_bottleneck_is_named))
