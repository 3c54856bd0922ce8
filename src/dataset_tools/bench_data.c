/* convoy bench data: the loader of training, run over a folder again and again. */
#include "dataset_tools/bench_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/resources.h"
#include "base/system.h"
#include "convoy/program/bench.h"
#include "data/image/image.h"
#include "data/loader/loader.h"
#include "data/set/list.h"
#include "data/set/record_set.h"

enum { BENCH_BATCH = 32, DEVICE_BATCH = 256, LEAST_BATCHES = 8 };

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
    const char *decoder = cvy_loader_decoder(loader);

    result->read_ms = 1e3 * stats->read / images;
    result->decode_ms = 1e3 * stats->decode / images;
    result->transform_ms = 1e3 * stats->transform / images;
    result->image_bytes = (double)stats->bytes / images;
    result->busy = cvy_loader_stats_busy(stats);
    snprintf(result->bottleneck, sizeof result->bottleneck, "%s", cvy_bottleneck_name(cvy_loader_bottleneck(stats)));
    cvy_loader_advise(loader, stats, result->advice);
    if (!decoder)
        return;
    snprintf(result->decoder, sizeof result->decoder, "%s", decoder);
    result->device_share = (double)stats->left / images;
    result->device_busy = stats->elapsed > 0 ? stats->device / (stats->elapsed * stats->lanes) : 0;
}

/* Epoch after epoch for `seconds`; the first ring of batches (made before the clock starts) is not counted. */
static cvy_status measure(struct cvy_loader *loader, const struct cvy_loader_options *how, double seconds,
                          struct cvy_bench_data_result *result)
{
    const int32_t warmup = how->prefetch + 2;
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

/* ---- the device's batches beside the processor's ---- */

static void compare_bytes(const uint8_t *a, const uint8_t *b, size_t count, double *sum, double *beyond,
                          struct cvy_bench_data_result *result)
{
    for (size_t i = 0; i < count; i++) {
        const int difference = abs(a[i] - b[i]);

        *sum += difference;
        *beyond += difference > 1;
        if (difference > result->largest_difference)
            result->largest_difference = difference;
    }
}

static cvy_status compare(const struct cvy_loader_options *how, struct cvy_loader *loader, int batches,
                          struct cvy_bench_data_result *result)
{
    const size_t image = cvy_transform_bytes(&how->transform), bytes = image * (size_t)how->batch_size;
    struct cvy_loader_options on_host = *how;
    struct cvy_loader *host = NULL;
    const struct cvy_batch *a, *b;
    uint8_t *images = cvy_calloc(bytes, 1);
    double sum = 0, beyond = 0;
    cvy_status status = CVY_OK;

    if (!images)
        return cvy_fail_memory(bytes, "a batch of images");
    on_host.device = NULL;
    on_host.device_decodes = false;
    CVY_GOTO(cvy_loader_open(&on_host, &host));
    CVY_GOTO(cvy_loader_start(host, 0, 0));
    CVY_GOTO(cvy_loader_start(loader, 0, 0));
    for (int i = 0; i < batches; i++) {
        CVY_GOTO(cvy_loader_next(host, &a));
        CVY_GOTO(cvy_loader_next(loader, &b));
        if (!a || !b)
            break;
        CVY_GOTO(how->device->backend->download(how->device, images, b->images, bytes));
        compare_bytes(a->images, images, image * (size_t)a->count, &sum, &beyond, result);
        result->compared += a->count;
    }
    result->mean_difference = sum / ((double)image * (double)result->compared);
    result->differing = beyond / ((double)image * (double)result->compared);
fail:
    cvy_loader_close(host);
    cvy_free(images);
    return status;
}

static bool on_processor(const char *device)
{
    return !device || strcmp(device, "cpu") == 0;
}

static cvy_status check(const struct cvy_bench_data_options *options)
{
    const int size = options->image_size;

    if (size < 0 || size > 16384)
        return cvy_fail(CVY_USAGE, "--image-size must be between 1 and 16384, not %d", size);
    if (on_processor(options->device) && (options->lanes || options->host_share > 0 || options->compare))
        return cvy_fail(CVY_USAGE, "--lanes, --host-share and --compare are for --device cuda");
    if (!on_processor(options->device) && options->fast)
        return cvy_fail(CVY_USAGE, "--decode fast is for the processor, not for --device %s", options->device);
    return CVY_OK;
}

cvy_status cvy_bench_data(const struct cvy_bench_data_options *options, struct cvy_bench_data_result *result)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(result);
    cvy_status status = CVY_OK;
    struct cvy_dataset dataset = {0};
    struct cvy_loader *loader = NULL;
    cvy_device *device = NULL;
    const int size = options->image_size ? options->image_size : 224;
    const int workers = options->workers < 1 ? cvy_default_threads() : options->workers;
    const int usual = on_processor(options->device) ? BENCH_BATCH : DEVICE_BATCH;
    struct cvy_loader_options how = {.dataset = &dataset,
                                     .transform = {.training = !options->val, .fast = options->fast, .size = size},
                                     .batch_size = options->batch_size ? options->batch_size : usual,
                                     .workers = workers,
                                     .prefetch = 4,
                                     .sampler = options->val ? CVY_SAMPLE_IN_ORDER : CVY_SAMPLE_SHUFFLED,
                                     .drop_last = true,
                                     .replace_bad = !options->val,
                                     .world = 1,
                                     .lanes = options->lanes ? options->lanes : 2,
                                     .host_share = options->host_share};

    *result = (struct cvy_bench_data_result){.threads = workers};
    CVY_TRY(check(options));
    how.transform.resize = cvy_usual_resize(size);
    CVY_GOTO(cvy_bench_images(options->folder, options->val, (size_t)LEAST_BATCHES * (size_t)how.batch_size, &dataset));
    if (!on_processor(options->device))
        CVY_GOTO(cvy_device_open(options->device, workers, &device));
    how.device = device;
    how.device_decodes = device != NULL;
    CVY_GOTO(cvy_loader_open(&how, &loader));
    CVY_GOTO(measure(loader, &how, options->seconds > 0 ? options->seconds : 5, result));
    if (options->compare)
        CVY_GOTO(compare(&how, loader, options->compare, result));
fail:
    cvy_loader_close(loader);
    cvy_dataset_close(&dataset);
    cvy_device_close(device);
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
