/* convoy bench data: the loader of training, run over a folder again and again. */
#include "dataset_tools/bench_data.h"

#include <stdio.h>

#include "base/error.h"
#include "base/file.h"
#include "base/resources.h"
#include "base/system.h"
#include "convoy/program/bench.h"
#include "data/image/image.h"
#include "data/loader/loader.h"
#include "data/set/list.h"
#include "data/set/record_set.h"

enum { BENCH_BATCH = 32 };

/* Every image below a folder. */
static cvy_status list_any(const char *folder, struct cvy_dataset *dataset)
{
    const char **paths;
    size_t count;

    if (!cvy_path_is_directory(folder))
        return cvy_fail(CVY_NO_INPUT, "%s is not a folder", cvy_quote(folder));
    CVY_TRY(cvy_list_images(&folder, 1, &dataset->arena, &paths, &count));
    if (count == 0)
        return cvy_fail(CVY_BAD_DATA, "%s holds no images (" CVY_IMAGE_ENDINGS ")", cvy_quote(folder));
    if (count > INT32_MAX / 2)
        return cvy_fail(CVY_BAD_DATA, "%s holds too many images", cvy_quote(folder));
    dataset->sample_count = (uint32_t)count;
    dataset->samples = cvy_arena_alloc(&dataset->arena, count * sizeof *dataset->samples);
    if (!dataset->samples)
        return cvy_fail_memory(count * sizeof *dataset->samples, "the list of images");
    for (size_t i = 0; i < count; i++)
        dataset->samples[i] = (struct cvy_sample){.path = paths[i]};
    return CVY_OK;
}

static cvy_status open_path(const char *path, bool val, struct cvy_dataset *dataset)
{
    if (cvy_path_is_file(path))
        return cvy_dataset_open_list(dataset, path, NULL, 0);
    if (cvy_holds_records(path, val))
        return cvy_dataset_open_records(dataset, path, val, NULL, 0);
    char *part = cvy_path_join(path, val ? "val" : "train");
    if (!part)
        return cvy_fail_memory(0, "a path");
    cvy_status status = list_any(cvy_path_is_directory(part) ? part : path, dataset);
    cvy_free(part);
    return status;
}

cvy_status cvy_bench_repeat(struct cvy_dataset *dataset, size_t min)
{
    const struct cvy_sample *once = dataset->samples;
    const struct cvy_coco_image *images = dataset->images;
    const size_t count = dataset->sample_count;
    const size_t all = count < min ? (min + count - 1) / count * count : count;

    if (all > INT32_MAX)
        return cvy_fail(CVY_USAGE, "%zu images are more than a data set may hold", all);
    dataset->samples = cvy_arena_alloc(&dataset->arena, all * sizeof *dataset->samples);
    dataset->images = images ? cvy_arena_alloc(&dataset->arena, all * sizeof *dataset->images) : NULL;
    if (!dataset->samples || (images && !dataset->images))
        return cvy_fail_memory(all * sizeof *dataset->samples, "the list of images");
    for (size_t i = 0; i < all; i++) {
        dataset->samples[i] = once[i % count];
        if (images)
            dataset->images[i] = images[i % count];
    }
    dataset->places = NULL; /* of the samples as they were */
    dataset->sample_count = (uint32_t)all;
    return CVY_OK;
}

cvy_status cvy_bench_images(const char *path, bool val, size_t min, struct cvy_dataset *dataset)
{
    CVY_TRY(open_path(path, val, dataset));
    for (uint32_t i = 0; i < dataset->sample_count; i++)
        dataset->samples[i].label = 0;
    return cvy_bench_repeat(dataset, min);
}

/* The threads, their warm-up included. */
static void describe(struct cvy_loader *loader, const struct cvy_loader_stats *stats,
                     struct cvy_bench_data_result *result)
{
    const double images = stats->images > 0 ? (double)stats->images : 1;

    result->read_ms = 1e3 * stats->read / images;
    result->decode_ms = 1e3 * stats->decode / images;
    result->transform_ms = 1e3 * stats->transform / images;
    result->image_bytes = (double)stats->bytes / images;
    result->busy = cvy_loader_stats_busy(stats);
    snprintf(result->bottleneck, sizeof result->bottleneck, "%s", cvy_bottleneck_name(cvy_loader_bottleneck(stats)));
    cvy_loader_advise(loader, stats, result->advice);
}

/* Epoch after epoch for `seconds`; the first ring of batches (made before the clock starts) is not counted. */
static cvy_status measure(struct cvy_loader *loader, int32_t warmup, double seconds,
                          struct cvy_bench_data_result *result)
{
    struct cvy_loader_stats stats = {0}, part;
    double begin = 0, now = 0, cpu_begin = 0;
    int64_t batches = 0;

    for (uint32_t epoch = 0; batches <= warmup || now - begin < seconds; epoch++) {
        const struct cvy_batch *batch = NULL;
        CVY_TRY(cvy_loader_start(loader, epoch, 0));
        for (;;) {
            CVY_TRY(cvy_loader_next(loader, &batch));
            if (!batch)
                break;
            now = cvy_clock();
            if (++batches <= warmup) {
                begin = now;
                cpu_begin = cvy_cpu_clock();
            } else {
                result->images += batch->count;
                result->cpu_seconds = cvy_cpu_clock() - cpu_begin;
            }
            if (batches > warmup && now - begin >= seconds)
                break;
        }
        cvy_loader_get_stats(loader, &part);
        cvy_loader_stats_add(&stats, &part);
    }
    result->images_per_second = (double)result->images / (now - begin);
    describe(loader, &stats, result);
    return CVY_OK;
}

cvy_status cvy_bench_data(const struct cvy_bench_data_options *options, struct cvy_bench_data_result *result)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(result);
    cvy_status status = CVY_OK;
    struct cvy_dataset dataset = {0};
    struct cvy_loader *loader = NULL;
    const int size = options->image_size ? options->image_size : 224;
    const int workers = options->workers < 1 ? cvy_default_threads() : options->workers;
    struct cvy_loader_options how = {.dataset = &dataset,
                                     .transform = {.training = !options->val, .fast = options->fast, .size = size},
                                     .batch_size = BENCH_BATCH,
                                     .workers = workers,
                                     .prefetch = 4,
                                     .sampler = options->val ? CVY_SAMPLE_IN_ORDER : CVY_SAMPLE_SHUFFLED,
                                     .drop_last = true,
                                     .replace_bad = !options->val,
                                     .world = 1};

    *result = (struct cvy_bench_data_result){.threads = workers};
    if (size < 1 || size > 16384)
        return cvy_fail(CVY_USAGE, "--image-size must be between 1 and 16384, not %d", size);
    how.transform.resize = cvy_usual_resize(size);
    CVY_GOTO(cvy_bench_images(options->folder, options->val, (size_t)8 * BENCH_BATCH, &dataset));
    CVY_GOTO(cvy_loader_open(&how, &loader));
    CVY_GOTO(measure(loader, how.prefetch + 2, options->seconds > 0 ? options->seconds : 5, result));
fail:
    cvy_loader_close(loader);
    cvy_dataset_close(&dataset);
    return status;
}

/* A chosen run takes about this long after its warm-up. */
static const double CHOSEN_SECONDS = 4.0;
enum { MIN_ITERATIONS = 8, MAX_ITERATIONS = 100000 };

int cvy_bench_iterations(double seconds)
{
    const double fitting = seconds > 0 ? CHOSEN_SECONDS / seconds : MAX_ITERATIONS;

    return fitting < MIN_ITERATIONS ? MIN_ITERATIONS : fitting > MAX_ITERATIONS ? MAX_ITERATIONS : (int)fitting;
}
