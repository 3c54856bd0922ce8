/* convoy bench: the speed of training, inference and data loading, on the code path that the real work takes. */
#include "convoy/program/bench.h"
#include "convoy/program/program.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "options.h"
#include "terminal.h"
#include "verbs.h"

enum format { FORMAT_TEXT, FORMAT_JSON };

static void print_head(const struct cvy_bench_options *bench, const struct cvy_bench_result *r, bool training)
{
    printf("%s, %s, %s, %s\n", r->arch[0] ? r->arch : bench->arch, training ? "training" : "inference", r->precision,
           r->device);
    printf("%6s %10s %10s %9s %10s | %10s %9s %9s %9s %9s | %6s %6s\n", "", "images/s", "images/s", "ms for", "ms to",
           "ms for", "", "", "", "", "peak", "itera-");
    printf("%6s %10s %10s %9s %10s | %10s %9s %9s %9s %9s | %6s %6s\n", "batch", "total", "computing", "data",
           "compute", "a batch", "50 %", "90 %", "95 %", "99 %", "MiB", "tions");
}

static void print_row(const struct cvy_bench_result *r)
{
    printf("%6d %10.2f %10.2f %9.3f %10.3f | %10.3f %9.3f %9.3f %9.3f %9.3f | %6.0f %6d\n", r->batch_size,
           r->images_per_second, r->compute_images_per_second, 1000 * r->data_seconds, 1000 * r->compute_seconds,
           r->latency_average, r->latency_p50, r->latency_p90, r->latency_p95, r->latency_p99, r->peak_memory_mib,
           r->iterations);
}

/* What the network said about the images that were measured. */
static void print_accuracy(const struct cvy_bench_result *r)
{
    printf("%6d top-1 %.2f %%", r->batch_size, r->accuracy.top1);
    if (r->classes > 5)
        printf(", top-5 %.2f %%", r->accuracy.top5);
    printf(", loss %.5f: %s, %" PRId64 " skipped\n", unsigned_nan(r->accuracy.loss),
           cvy_counted(r->accuracy.images, "image"), r->accuracy.skipped);
}

static void json_accuracy(struct json *json, const struct cvy_bench_result *r)
{
    json_open_object(json, "accuracy");
    json_real(json, "top1", r->accuracy.top1, 8);
    json_real(json, "top5", r->accuracy.top5, 8);
    json_real(json, "loss", r->accuracy.loss, 8);
    json_int(json, "images", r->accuracy.images);
    json_int(json, "skipped", r->accuracy.skipped);
    json_close_object(json);
}

static void print_json(struct json *json, const struct cvy_bench_options *bench, const struct cvy_bench_result *r)
{
    json_open_object(json, NULL);
    json_string(json, "arch", r->arch[0] ? r->arch : bench->arch);
    json_string(json, "precision", r->precision);
    json_int(json, "batch_size", r->batch_size);
    json_real(json, "images_per_second", r->images_per_second, 8);
    json_real(json, "compute_images_per_second", r->compute_images_per_second, 8);
    json_real(json, "data_time", r->data_seconds, 8);
    json_real(json, "compute_time", r->compute_seconds, 8);
    json_real(json, "peak_memory_mib", r->peak_memory_mib, 8);
    if (!bench->weights)
        json_real(json, "estimated_memory_mib", r->estimated_memory_mib, 8);
    json_string(json, "device", r->device);
    json_int(json, "iterations", r->iterations);
    json_open_object(json, "latency_ms");
    json_real(json, "average", r->latency_average, 8);
    json_real(json, "p50", r->latency_p50, 8);
    json_real(json, "p90", r->latency_p90, 8);
    json_real(json, "p95", r->latency_p95, 8);
    json_real(json, "p99", r->latency_p99, 8);
    json_close_object(json);
    if (r->evaluated)
        json_accuracy(json, r);
    json_close_object(json);
}

/* One measurement for each batch size; those that succeed are printed even when a later one fails. */
static cvy_status measure(struct cvy_bench_options *bench, const struct int_list *sizes, bool training, int format)
{
    struct json json = {0};
    cvy_status status = CVY_OK;
    if (format == FORMAT_JSON)
        json_open_array(&json, NULL);
    for (int i = 0; i < sizes->count && status == CVY_OK; i++) {
        struct cvy_bench_result result = {0};
        bench->batch_size = sizes->value[i];
        status = training         ? cvy_bench_train(bench, &result)
                 : bench->weights ? cvy_bench_weights(bench, &result)
                                  : cvy_bench_infer(bench, &result);
        if (status == CVY_OK && format == FORMAT_TEXT && i == 0)
            print_head(bench, &result, training);
        if (status == CVY_OK && format == FORMAT_TEXT)
            print_row(&result);
        if (status == CVY_OK && format == FORMAT_TEXT && result.evaluated)
            print_accuracy(&result);
        if (status == CVY_OK && format == FORMAT_JSON)
            print_json(&json, bench, &result);
        fflush(stdout);
    }
    if (format == FORMAT_JSON)
        json_close_array(&json);
    return status == CVY_OK ? status : terminal_fail_library(status);
}

static cvy_status bench_network(bool training, int argc, char **argv)
{
    struct cvy_bench_options bench = CVY_BENCH_DEFAULTS;
    struct int_list sizes = {{32}, 1};
    struct arguments arguments;
    int format = FORMAT_TEXT, decode = 0;
    const struct option options[] = {
        OPT_TEXT("arch", 'a', &bench.arch, "NAME", "architecture (default: resnet50)"),
        OPT_BATCH_LIST("batch-size", 'b', &sizes, "N,...",
                       "batch sizes to measure; auto: the largest for the memory (default: 32)", 1, 65536),
        OPT_TEXT("precision", 0, &bench.precision, "TYPE",
                 "auto, fp32, bf16; tf32 or fp16 on a GPU; fp64 with --device ref (default: auto)"),
        OPT_TEXT("device", 0, &bench.device, "DEVICE", "auto, cpu, cuda, cuda:1, ... or ref (default: auto)"),
        OPT_TEXT("deterministic", 0, &bench.deterministic, "yes|sums|no",
                 "of a GPU: whether results may differ from run to run (default: yes)"),
        OPT_INT("image-size", 0, &bench.image_size, "PIXELS", "side of the input", CVY_MIN_IMAGE_SIZE,
                CVY_MAX_IMAGE_SIZE),
        OPT_INT("num-classes", 0, &bench.num_classes, "N", "classes (default: 1000; ssd320: 90)", 1, 2147483647.0),
        OPT_TEXT("padding", 0, &bench.padding, "torch|same",
                 "of strided windows: torch or TensorFlow's (default: torch)"),
        OPT_TEXT("squeeze-width", 0, &bench.squeeze_width, "N|c/N",
                 "hidden units of squeeze-and-excitation (default: 16)"),
        OPT_INT("threads", 0, &bench.threads, "N", "compute threads (default: all cores)", 1, 4096),
        OPT_TEXT("data", 0, &bench.data, "DIR",
                 "images of a folder, of TFRecords or of a list (default: random ones in memory)"),
        OPT_INT("workers", 'j', &bench.workers, "N", "threads that read --data (default: one per core)", 1, 1024),
        OPT_CHOICE("decode", 0, &decode, "exact|gpu", "who decodes JPEGs of --data (default: exact, the processor)"),
        OPT_INT("warmup", 0, &bench.warmup, "N", "iterations before the clock starts", 1, 1000000),
        OPT_INT("iterations", 0, &bench.iterations, "N", "iterations that are measured", 1, 100000000),
        OPT_CHOICE("format", 'f', &format, "text|json", "how to print (default: text)"),
        OPT_TEXT(
            "weights", 'w', &bench.weights, "FILE",
            "a network with its weights; with --data over its images for validation, and its accuracy is measured too"),
    };
    const struct option_table table = {
        .verb = training ? "bench train" : "bench infer",
        .arguments = "",
        .summary = training ? "Measures training steps: input conversion, forward, backward, optimizer, loss read-back."
                            : "Measures inference: input conversion, forward, read-back.",
        .options = options,
        .count = OPT_COUNT(options) - (training ? 1 : 0), /* without --weights */
    };
    cvy_status status;
    bench.arch = NULL;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    if (!bench.arch && !bench.weights)
        bench.arch = "resnet50";
    bench.gpu_decodes = decode == 1;
    if (bench.gpu_decodes && (!bench.data || bench.weights))
        return terminal_fail(CVY_USAGE, "option --decode gpu is for --data DIR%s",
                             bench.weights ? ", not for --weights" : "");
    return measure(&bench, &sizes, training, format);
}

static void print_data_json(const struct cvy_bench_data_result *result)
{
    struct json json = {0};
    json_open_object(&json, NULL);
    json_real(&json, "images_per_second", result->images_per_second, 8);
    json_real(&json, "images_per_cpu_second", (double)result->images / result->cpu_seconds, 8);
    json_int(&json, "threads", result->threads);
    json_int(&json, "images", result->images);
    json_real(&json, "read_ms", result->read_ms, 6);
    json_real(&json, "decode_ms", result->decode_ms, 6);
    json_real(&json, "transform_ms", result->transform_ms, 6);
    json_real(&json, "image_bytes", result->image_bytes, 8);
    json_real(&json, "busy", result->busy, 4);
    json_string(&json, "bottleneck", result->bottleneck);
    json_string(&json, "advice", result->advice);
    if (result->decoder[0]) {
        json_string(&json, "decoder", result->decoder);
        json_real(&json, "device_share", result->device_share, 6);
        json_real(&json, "device_busy", result->device_busy, 4);
    }
    if (result->compared) {
        json_int(&json, "compared", result->compared);
        json_int(&json, "largest_difference", result->largest_difference);
        json_real(&json, "mean_difference", result->mean_difference, 6);
        json_real(&json, "differing", result->differing, 6);
    }
    json_close_object(&json);
}

static void print_data(const struct cvy_bench_data_result *result)
{
    printf("%.1f images/s with %s (%s)\n", result->images_per_second, cvy_counted(result->threads, "thread"),
           cvy_counted(result->images, "image"));
    printf("an image of %.1f KiB: reading %.3f ms, decoding %.3f ms, resizing and augmenting %.3f ms\n",
           result->image_bytes / 1024, result->read_ms, result->decode_ms, result->transform_ms);
    printf("bottleneck: %s\n", result->advice);
    if (result->decoder[0])
        printf("%s: %.1f %% of the images, busy %.0f %% of the time\n", result->decoder, 100 * result->device_share,
               100 * result->device_busy);
    if (result->compared)
        printf("beside the processor's batches (%" PRId64
               " images): bytes differ by %d at most, by %.3f on average; %.2f %% of them by more than 1\n",
               result->compared, result->largest_difference, result->mean_difference, 100 * result->differing);
}

static cvy_status bench_data(int argc, char **argv)
{
    struct cvy_bench_data_options bench = CVY_BENCH_DATA_DEFAULTS;
    struct cvy_bench_data_result result = {0};
    struct arguments arguments;
    int split = 0, decode = 0, format = FORMAT_TEXT;
    const struct option options[] = {
        OPT_CHOICE("split", 0, &split, "train|val", "which transform (default: train)"),
        OPT_INT("image-size", 0, &bench.image_size, "PIXELS", "side of the results (default: 224)", CVY_MIN_IMAGE_SIZE,
                CVY_MAX_IMAGE_SIZE),
        OPT_INT("workers", 'j', &bench.workers, "N", "threads (default: one per core)", 1, 1024),
        OPT_CHOICE("decode", 0, &decode, "exact|fast",
                   "as convoy train --decode: fast takes large JPEGs at a lower resolution (default: exact)"),
        OPT_INT("batch-size", 'b', &bench.batch_size, "N", "images of a batch (default: 32; 256 with a GPU)", 1, 65536),
        OPT_TEXT("device", 0, &bench.device, "DEVICE",
                 "cpu, or cuda, cuda:1, ...: the GPU that decodes JPEGs, crops and resizes (default: cpu)"),
        OPT_INT("lanes", 0, &bench.lanes, "N", "batches that the GPU decodes side by side (default: 2)", 1, 64),
        OPT_REAL("host-share", 0, &bench.host_share, "X",
                 "share of each batch that the processor decodes beside a GPU (default: 0)", 0, 1),
        OPT_INT("compare", 0, &bench.compare, "N", "batches of the GPU that are compared with the processor's", 1,
                1000000),
        OPT_REAL("seconds", 0, &bench.seconds, "S", "how long to measure (default: 5)", 0.1, 86400),
        OPT_CHOICE("format", 'f', &format, "text|json", "how to print (default: text)"),
    };
    const struct option_table table = {
        .verb = "bench data",
        .arguments = "DIR",
        .summary = "Measures how many images of DIR a second the loader reads, decodes and transforms.",
        .options = options,
        .count = OPT_COUNT(options),
        .min_arguments = 1,
        .max_arguments = 1,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    bench.folder = arguments.value[0];
    bench.val = split == 1;
    bench.fast = decode == 1;
    status = cvy_bench_data(&bench, &result);
    if (status != CVY_OK)
        return terminal_fail_library(status);
    if (format == FORMAT_JSON)
        print_data_json(&result);
    else
        print_data(&result);
    return CVY_OK;
}

cvy_status verb_bench(int argc, char **argv)
{
    const char *what = argc > 0 ? argv[0] : "";
    if (!strcmp(what, "train") || !strcmp(what, "infer"))
        return bench_network(*what == 't', argc - 1, argv + 1);
    if (!strcmp(what, "data"))
        return bench_data(argc - 1, argv + 1);
    if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
        printf("usage: convoy bench train|infer [options]\n       convoy bench data DIR [options]\n\n"
               "convoy bench train --help, ... say more\n");
        return CVY_OK;
    }
    static const char *const kinds[] = {"train", "infer", "data"};
    const char *nearest = cvy_nearest_name(what, kinds, OPT_COUNT(kinds));
    return terminal_fail(CVY_USAGE, "bench measures train, infer or data%s%s%s%s", *what ? ", not " : "",
                         *what ? quoted(what) : "", nearest ? ", perhaps " : "", nearest ? nearest : "");
}
