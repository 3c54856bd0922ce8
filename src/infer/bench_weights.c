/* The benchmark of a network with its weights: the validation pass of `evaluate`, each batch of it timed; without data
 * the same pass over random images. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/system.h"
#include "convoy/program/bench.h"
#include "dataset_tools/bench_data.h"
#include "infer/predictor.h"

static cvy_status check_options(const struct cvy_bench_options *options)
{
    if (options->num_classes || options->squeeze_width)
        return cvy_fail(CVY_USAGE, "option --%s is for networks without weights: those of %s say it",
                        options->num_classes ? "num-classes" : "squeeze-width", cvy_quote(options->weights));
    if (options->batch_size < 0 && options->batch_size != CVY_BATCH_AUTO)
        return cvy_fail(CVY_USAGE, "option --batch-size: %d is not at least 1", options->batch_size);
    if (options->warmup < 0 || options->iterations < 0)
        return cvy_fail(CVY_USAGE, "the number of iterations is negative");
    return CVY_OK;
}

/* Images of the data, or (NULL) random ones in memory without end. */
static cvy_status open_source(const struct cvy_predictor *predictor, const struct cvy_dataset *val,
                              struct cvy_source *source)
{
    const struct cvy_model_options *model = &predictor->network.model;

    if (val)
        return cvy_predictor_open_source(predictor, val, predictor->batch_size, true, source);
    return cvy_source_open_synthetic(
        source, &(struct cvy_synthetic){.batch_size = predictor->batch_size,
                                        .image_size = model->image_size,
                                        .num_classes = model->num_classes,
                                        .batches = INT64_MAX,
                                        .float_images = model->float_images,
                                        .boxes = predictor->network.architecture->task == CVY_TASK_DETECT});
}

/* `count` batches at most (0: all) from the beginning of the data; their seconds go to `seconds`, NULL: nowhere. */
static cvy_status run_pass(struct cvy_predictor *predictor, const struct cvy_dataset *val, int64_t count,
                           double *seconds, struct cvy_pass *pass)
{
    struct cvy_source source = {0};
    cvy_status status;

    *pass = (struct cvy_pass){
        .metrics = {.top_k = predictor->network.model.num_classes < 5 ? predictor->network.model.num_classes : 5},
        .limit = count,
        .latency = seconds};
    CVY_GOTO(open_source(predictor, val, &source));
    CVY_GOTO(cvy_evaluator_pass(&predictor->many, &source, pass));
fail:
    cvy_source_close(&source);
    return status;
}

static void summarize(const struct cvy_predictor *predictor, const struct cvy_pass *pass, double *seconds,
                      bool evaluated, struct cvy_bench_result *result)
{
    const int count = (int)pass->batches;
    const double images = (double)(pass->metrics.images + pass->metrics.skipped);

    cvy_sort_values(seconds, count);
    *result = (struct cvy_bench_result){
        .batch_size = predictor->batch_size,
        .iterations = count,
        .images_per_second = images / pass->seconds,
        .compute_images_per_second = images / (pass->seconds - pass->wait),
        .data_seconds = pass->wait / count,
        .compute_seconds = (pass->seconds - pass->wait) / count,
        .latency_average = 1000 * (pass->seconds - pass->wait) / count,
        .latency_p50 = 1000 * cvy_quantile(seconds, count, 0.50),
        .latency_p90 = 1000 * cvy_quantile(seconds, count, 0.90),
        .latency_p95 = 1000 * cvy_quantile(seconds, count, 0.95),
        .latency_p99 = 1000 * cvy_quantile(seconds, count, 0.99),
        .peak_memory_mib = (double)cvy_peak_memory() / (1024.0 * 1024.0),
        .evaluated = evaluated,
        .accuracy = {.top1 = cvy_metrics_top1(&pass->metrics),
                     .top5 = cvy_metrics_topk(&pass->metrics),
                     .loss = cvy_metrics_loss(&pass->metrics),
                     .images = pass->metrics.images,
                     .skipped = pass->metrics.skipped,
                     .images_per_second = images / pass->seconds},
        .classes = predictor->network.model.num_classes,
    };
    snprintf(result->precision, sizeof result->precision, "%s",
             predictor->network.int8 ? "int8" : cvy_precision_name(predictor->network.dtype, predictor->device));
    snprintf(result->device, sizeof result->device, "%s", predictor->device->description);
    snprintf(result->arch, sizeof result->arch, "%s", predictor->network.architecture->name);
}

/* `val`: NULL without data. */
static cvy_status measure_passes(struct cvy_predictor *predictor, const struct cvy_dataset *val,
                                 const struct cvy_bench_options *options, struct cvy_bench_result *result)
{
    struct cvy_pass pass = {0};
    int64_t iterations = options->iterations;
    size_t batches = (size_t)iterations;
    double *seconds = NULL;
    cvy_status status;

    CVY_GOTO(cvy_predictor_open_batches(predictor, val));
    CVY_GOTO(run_pass(predictor, val, options->warmup ? options->warmup : CVY_BENCH_WARMUP, NULL, &pass));
    if (val)
        batches = (val->sample_count + (size_t)predictor->batch_size - 1) / (size_t)predictor->batch_size;
    else if (iterations == 0)
        batches = (size_t)(iterations = cvy_bench_iterations(pass.seconds / (double)pass.batches));
    seconds = cvy_calloc(batches, sizeof *seconds);
    if (!seconds) {
        status = cvy_fail_memory(batches * sizeof *seconds, "the times");
        goto fail;
    }
    CVY_GOTO(run_pass(predictor, val, iterations, seconds, &pass));
    if (pass.metrics.images == 0)
        status = cvy_fail(CVY_BAD_DATA, "no image of %s can be read", cvy_quote(options->data));
    else
        summarize(predictor, &pass, seconds, val, result);
fail:
    cvy_free(seconds);
    return status;
}

static cvy_status measure(struct cvy_predictor *predictor, const struct cvy_bench_options *options,
                          struct cvy_bench_result *result)
{
    struct cvy_dataset val = {0};
    cvy_status status;

    if (!options->data)
        return measure_passes(predictor, NULL, options, result);
    CVY_TRY(cvy_predictor_open_validation(predictor, options->data, &val));
    status = measure_passes(predictor, &val, options, result);
    cvy_dataset_close(&val);
    return status;
}

cvy_status cvy_bench_weights(const struct cvy_bench_options *options, struct cvy_bench_result *result)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(options->weights);
    CVY_REQUIRE(result);
    const struct cvy_classifier_options network = {
        .weights = options->weights,
        .arch = options->arch,
        .padding = options->padding,
        .device = options->device,
        .precision = options->precision,
        .threads = options->threads,
        .batch_size = options->batch_size ? options->batch_size : 32,
        .image_size = options->image_size,
        .workers = options->workers > 0 ? options->workers : -1,
    };
    struct cvy_predictor predictor = {0};
    cvy_status status;

    memset(result, 0, sizeof *result);
    CVY_TRY(check_options(options));
    cvy_peak_memory_reset();
    CVY_GOTO(cvy_predictor_open(&predictor, &network));
    if (options->data && predictor.network.architecture->task == CVY_TASK_DETECT)
        status = cvy_fail(CVY_USAGE,
                          "%s is a detector, whose accuracy convoy evaluate measures: option --weights of a "
                          "benchmark is for classifiers",
                          predictor.network.architecture->name);
    else
        status = measure(&predictor, options, result);
fail:
    cvy_predictor_close(&predictor);
    return status;
}
