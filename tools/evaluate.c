/* convoy evaluate: one pass over the validation images. */
#include <inttypes.h>
#include <stdio.h>

#include "convoy/program/program.h"
#include "json.h"
#include "network_options.h"
#include "terminal.h"
#include "verbs.h"

enum format { FORMAT_TEXT, FORMAT_JSON };

/* Beside the results: they are the same each time. */
static void note_latency(const struct cvy_evaluation *result)
{
    terminal_note(
        "a batch of %d takes %.2f ms; 50 %% at most %.2f, 90 %% %.2f, 95 %% %.2f, 99 %% %.2f   %.1f images/s\n",
        (int)result->batch_size, result->latency_average, result->latency_p50, result->latency_p90, result->latency_p95,
        result->latency_p99, result->images_per_second);
}

/* As `convoy bench` has them. */
static void put_latency(struct json *json, const struct cvy_evaluation *result)
{
    json_int(json, "batch_size", result->batch_size);
    json_open_object(json, "latency_ms");
    json_real(json, "average", result->latency_average, 8);
    json_real(json, "p50", result->latency_p50, 8);
    json_real(json, "p90", result->latency_p90, 8);
    json_real(json, "p95", result->latency_p95, 8);
    json_real(json, "p99", result->latency_p99, 8);
    json_close_object(json);
}

/* COCO's twelve numbers. */
static void print_detection(const struct cvy_evaluation *result, int format)
{
    struct json json = {0};
    char line[96];

    if (format == FORMAT_TEXT) {
        for (int i = 0; i < 12; i++)
            printf("%s\n", cvy_evaluation_line(i, result->stats[i], line));
        printf("images %" PRId64 "   skipped %" PRId64 "\n", result->images, result->skipped);
        note_latency(result);
        return;
    }
    json_open_object(&json, NULL);
    json_open_array(&json, "stats");
    for (int i = 0; i < 12; i++)
        json_real(&json, NULL, result->stats[i], 17);
    json_close_array(&json);
    json_int(&json, "images", result->images);
    json_int(&json, "skipped", result->skipped);
    json_real(&json, "images_per_second", result->images_per_second, 6);
    put_latency(&json, result);
    json_close_object(&json);
}

static void print_result(const struct cvy_evaluation *result, int classes, int format)
{
    if (format == FORMAT_TEXT) {
        printf("top-1 %.2f %%   ", result->top1);
        if (classes > 5) /* else every answer is among them */
            printf("top-5 %.2f %%   ", result->top5);
        printf("loss %.5f   images %" PRId64 "   skipped %" PRId64 "\n", unsigned_nan(result->loss), result->images,
               result->skipped);
        note_latency(result);
        return;
    }
    struct json json = {0};
    json_open_object(&json, NULL);
    json_real(&json, "top1", result->top1, 10);
    json_real(&json, "top5", result->top5, 10);
    json_real(&json, "loss", result->loss, 10);
    json_int(&json, "images", result->images);
    json_int(&json, "skipped", result->skipped);
    json_real(&json, "images_per_second", result->images_per_second, 6);
    put_latency(&json, result);
    json_close_object(&json);
}

cvy_status verb_evaluate(int argc, char **argv)
{
    struct cvy_classifier_options network = CVY_CLASSIFIER_DEFAULTS;
    struct cvy_evaluation result = {0};
    cvy_classifier *classifier = NULL;
    struct arguments arguments;
    struct cvy_evaluate_options files = CVY_EVALUATE_DEFAULTS;
    int format = FORMAT_TEXT;
    const struct option options[] = {
        NETWORK_OPTIONS(network),
        STRIDES_OPTION(network),
        OPT_CHOICE("format", 'f', &format, "text|json", "how to print (default: text)"),
        OPT_TEXT(
            "report", 0, &files.report, "FILE",
            "write an HTML page: accuracy by class, confusions, the most wrong images; of a detector precision and "
            "pictures"),
        OPT_TEXT("details", 0, &files.details, "FILE", "write the same as JSON (as validation.json of a run)"),
        OPT_TEXT("area-rule", 0, &files.area_rule, "annotation|box",
                 "of a detector: what decides whether an object is small, medium or large (default: annotation)"),
    };
    const struct option_table table = {
        .verb = "evaluate",
        .arguments = "DIR",
        .summary = "Measures accuracy and loss of weights in one pass over DIR/val (or DIR/<class> where there is no "
                   "val, or a\n"
                   "list of path<TAB>label lines).",
        .options = options,
        .count = OPT_COUNT(options),
        .min_arguments = 1,
        .max_arguments = 1,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    if (!network.weights)
        return terminal_fail(CVY_USAGE, "evaluate needs --weights FILE");
    status = cvy_classifier_open(&network, &classifier);
    if (status == CVY_OK)
        status = cvy_evaluate_with(classifier, arguments.value[0], &files, &result);
    if (status == CVY_OK && result.detection)
        print_detection(&result, format);
    else if (status == CVY_OK)
        print_result(&result, cvy_classifier_classes(classifier), format);
    else
        terminal_fail_library(status);
    cvy_classifier_close(classifier);
    return status;
}
