/* Benchmarks of training and inference: the code that `train` and `classify` run, over random images that change from
 * batch to batch, or over files. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/resources.h"
#include "base/system.h"
#include "convoy/program/bench.h"
#include "data/detection/detection_set.h"
#include "data/transform/transform.h"
#include "dataset_tools/bench_data.h"
#include "info/workload.h"
#include "network/memory.h"
#include "weights/model_variant.h"

struct bench {
    cvy_device *device;
    struct cvy_workload work;
    struct cvy_memory_estimate memory;
    struct cvy_dataset images; /* options->data */
};

/* An epoch of files has at least this many batches: where one ends, the next one begins with empty rings. */
enum { EPOCH_BATCHES = 256 };

static cvy_status check_options(const struct cvy_bench_options *options, const struct cvy_architecture **architecture)
{
    const char *name = options->arch ? options->arch : "resnet50";

    *architecture = cvy_architecture_find(name);
    if (!*architecture)
        return cvy_architecture_fail(name);
    if ((options->batch_size < 0 && options->batch_size != CVY_BATCH_AUTO) || options->batch_size > 65536)
        return cvy_fail(CVY_USAGE, "option --batch-size: %d is not at least 1 and at most 65536", options->batch_size);
    if (options->image_size != 0 &&
        (options->image_size < CVY_MIN_IMAGE_SIZE || options->image_size > CVY_MAX_IMAGE_SIZE))
        return cvy_fail(CVY_USAGE, "option --image-size: %d is not at least %d and at most %d", options->image_size,
                        CVY_MIN_IMAGE_SIZE, CVY_MAX_IMAGE_SIZE);
    if (options->num_classes < 0 || options->num_classes > 1000000)
        return cvy_fail(CVY_USAGE, "option --num-classes: %d is not at least 1 and at most 1000000",
                        options->num_classes);
    if (options->warmup < 0 || options->iterations < 0)
        return cvy_fail(CVY_USAGE, "the number of iterations is negative");
    return CVY_OK;
}

static void close_bench(struct bench *bench)
{
    cvy_workload_close(&bench->work);
    cvy_device_close(bench->device);
    cvy_dataset_close(&bench->images);
    memset(bench, 0, sizeof *bench);
}

/* The batch that is to be measured, and whether there is memory for it. */
static cvy_status choose_batch(struct bench *bench, const struct cvy_bench_options *options,
                               const struct cvy_architecture *architecture, const struct cvy_model_options *model,
                               enum cvy_dtype dtype, bool training, int32_t *batch)
{
    struct cvy_memory_case one = {
        .device = bench->device,
        .architecture = architecture,
        .model = model,
        .dtype = dtype,
        .training = training,
        .constant = !training,
        .batch = options->batch_size ? options->batch_size : 32,
        .image_data = CVY_SYNTHETIC_BUFFERS * cvy_model_image_bytes(model, CVY_MODEL_TRAIN),
    };

    if (options->batch_size == CVY_BATCH_AUTO)
        CVY_TRY(cvy_memory_choose_batch(&one, training ? CVY_AUTO_TRAINING_MAX : CVY_AUTO_INFERENCE_MAX, &one.batch));
    *batch = (int32_t)one.batch;
    return cvy_memory_check(&one, cvy_device_available_memory(bench->device), &bench->memory);
}

/* How the images of files are read: as in training, or as in validation. */
static cvy_status open_images(struct bench *bench, const struct cvy_bench_options *options,
                              const struct cvy_architecture *architecture, const struct cvy_model_options *model,
                              bool training, int32_t batch, struct cvy_loader_options *loader)
{
    const bool detector = architecture->task == CVY_TASK_DETECT;
    const int32_t image_size = model->image_size;
    const struct cvy_category_rule rule = {.coco = false};

    if (detector) {
        CVY_TRY(cvy_dataset_open_detection(&bench->images, options->data,
                                           training ? CVY_DETECTION_TRAIN : CVY_DETECTION_VAL, &rule));
        if (bench->images.class_count > model->num_classes)
            return cvy_fail(CVY_USAGE, "option --num-classes: %s has %s, and the network %d", cvy_quote(options->data),
                            cvy_counted(bench->images.class_count, "class"), (int)model->num_classes);
        CVY_TRY(cvy_bench_repeat(&bench->images, (size_t)batch * EPOCH_BATCHES));
    } else {
        CVY_TRY(cvy_bench_images(options->data, !training, (size_t)batch * EPOCH_BATCHES, &bench->images));
    }
    *loader = (struct cvy_loader_options){
        .dataset = &bench->images,
        .transform = {.training = training,
                      .size = image_size,
                      .resize = cvy_usual_resize(image_size),
                      .detection = detector},
        .batch_size = batch,
        .workers = options->workers > 0 ? options->workers : cvy_default_threads(),
        .prefetch = CVY_PREFETCH,
        .sampler = training ? CVY_SAMPLE_SHUFFLED : CVY_SAMPLE_IN_ORDER,
        .drop_last = true,
        .replace_bad = true,
        .world = 1,
        .device = bench->device,
        .device_decodes = options->gpu_decodes,
    };
    return CVY_OK;
}

static cvy_status open_bench(struct bench *bench, const struct cvy_bench_options *options, bool training)
{
    const struct cvy_architecture *architecture;
    struct cvy_model_options model;
    struct cvy_loader_options loader;
    enum cvy_dtype dtype;
    int32_t batch;
    cvy_status status;

    memset(bench, 0, sizeof *bench);
    CVY_GOTO(check_options(options, &architecture));
    model = cvy_model_options_usual(architecture, options->num_classes, options->image_size);
    CVY_GOTO(cvy_model_choose(&model, options->padding, options->squeeze_width));
    CVY_GOTO(cvy_device_open(options->device ? options->device : "auto", options->threads, &bench->device));
    CVY_GOTO(cvy_device_set_deterministic(bench->device, options->deterministic));
    CVY_GOTO(cvy_precision_choose(options->precision, bench->device, &dtype));
    CVY_GOTO(choose_batch(bench, options, architecture, &model, dtype, training, &batch));
    if (options->data)
        CVY_GOTO(open_images(bench, options, architecture, &model, training, batch, &loader));
    CVY_GOTO(cvy_workload_open(&bench->work, bench->device, architecture, &model, dtype, training, batch,
                               options->data ? &loader : NULL, NULL));
    return CVY_OK;
fail:
    close_bench(bench);
    return status;
}

static void summarize(const struct bench *bench, double *seconds, int count, double total, double waited,
                      struct cvy_bench_result *result)
{
    cvy_sort_values(seconds, count);
    result->batch_size = bench->work.batch;
    result->iterations = count;
    result->images_per_second = (double)count * bench->work.batch / total;
    result->data_seconds = waited / count;
    result->compute_seconds = (total - waited) / count;
    result->compute_images_per_second = (double)count * bench->work.batch / (total - waited);
    result->latency_average = 1000 * total / count;
    result->latency_p50 = 1000 * cvy_quantile(seconds, count, 0.50);
    result->latency_p90 = 1000 * cvy_quantile(seconds, count, 0.90);
    result->latency_p95 = 1000 * cvy_quantile(seconds, count, 0.95);
    result->latency_p99 = 1000 * cvy_quantile(seconds, count, 0.99);
    result->peak_memory_mib = (double)cvy_peak_memory() / (1024.0 * 1024.0);
    result->estimated_memory_mib = (double)bench->memory.total / (1024.0 * 1024.0);
    snprintf(result->precision, sizeof result->precision, "%s",
             cvy_precision_name(bench->work.network.dtype, bench->device));
    snprintf(result->device, sizeof result->device, "%s", bench->device->description);
}

/* Warm up; the last of its iterations says how many fit into the chosen time. */
static cvy_status warm_up(struct bench *bench, const struct cvy_bench_options *options, int *iterations)
{
    const int warmup = options->warmup ? options->warmup : CVY_BENCH_WARMUP;
    double last = 1;

    for (int i = 0; i < warmup; i++) {
        const double start = cvy_clock();
        CVY_TRY(cvy_workload_iterate(&bench->work));
        last = cvy_clock() - start;
    }
    *iterations = options->iterations ? options->iterations : cvy_bench_iterations(last);
    return CVY_OK;
}

static cvy_status measure(const struct cvy_bench_options *options, bool training, struct cvy_bench_result *result)
{
    struct bench bench;
    double *seconds = NULL, start, before;
    int iterations;
    cvy_status status;

    memset(result, 0, sizeof *result);
    cvy_peak_memory_reset();
    CVY_TRY(open_bench(&bench, options, training));
    CVY_GOTO(warm_up(&bench, options, &iterations));
    seconds = cvy_calloc((size_t)iterations, sizeof *seconds);
    if (!seconds) {
        status = cvy_fail_memory((size_t)iterations * sizeof *seconds, "the times");
        goto fail;
    }
    CVY_GOTO(bench.device->backend->synchronize(bench.device));
    bench.work.data_seconds = 0;
    start = before = cvy_clock();
    for (int i = 0; i < iterations; i++) {
        CVY_GOTO(cvy_workload_iterate(&bench.work));
        seconds[i] = cvy_clock() - before;
        before += seconds[i];
    }
    CVY_GOTO(bench.device->backend->synchronize(bench.device));
    summarize(&bench, seconds, iterations, cvy_clock() - start, bench.work.data_seconds, result);
fail:
    cvy_free(seconds);
    close_bench(&bench);
    return status;
}

cvy_status cvy_bench_train(const struct cvy_bench_options *options, struct cvy_bench_result *result)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(result);
    return measure(options, true, result);
}

cvy_status cvy_bench_infer(const struct cvy_bench_options *options, struct cvy_bench_result *result)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(result);
    return measure(options, false, result);
}
