/* convoy quantize: weights become a network of 8-bit integers. */
#include "convoy/quantize.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "convoy/program/program.h"
#include "json.h"
#include "network_options.h"
#include "stop.h"
#include "terminal.h"
#include "verbs.h"

enum format { FORMAT_TEXT, FORMAT_JSON };

/* ---- signals: the batch is finished, and nothing more is done; the second one ends the process ---- */

static void say_stopping(void)
{
    static const char text[] = "\nstopping after this batch\n";
    const ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);

    (void)ignored;
}

static bool show_progress(void *context, const char *stage, int64_t done, int64_t total)
{
    (void)context;
    terminal_progress("%s: %" PRId64 " of %" PRId64, stage, done, total);
    return !stop_asked();
}

/* ---- the report ---- */

static void print_side(const char *name, const struct cvy_quantize_side *side, const struct cvy_quantize_result *result)
{
    printf("%-8s %s %6.2f %%   ", name, result->detector ? "AP" : "top-1", side->accuracy);
    if (!result->detector)
        printf("loss %.5f   ", unsigned_nan(side->loss));
    printf("%.2f ms for one image, %.2f for %d   %" PRId64 " bytes\n", side->single_ms, side->batch_ms,
           result->batch_size, side->bytes);
}

static void print_layers(const struct cvy_quantize_result *result)
{
    printf("\n%-40s %-9s %9s %12s\n", "layer", "type", "SQNR dB", "cost alone");
    for (int i = 0; i < result->layer_count; i++) {
        const struct cvy_quantized_layer *layer = &result->layers[i];

        printf("%-40s %-9s ", layer->name, !layer->quantized ? "float" : "int8");
        if (isfinite(layer->sqnr))
            printf("%9.1f", layer->sqnr);
        else
            printf("%9s", "-");
        if (layer->cost >= 0)
            printf(" %12.2e\n", layer->cost);
        else
            printf(" %12s\n", "-");
    }
}

static void print_floats(const struct cvy_quantize_result *result)
{
    printf("8 bits everywhere would lose %.2f points; in floats stay%s", result->floats.accuracy - result->everything,
           result->integer_weights ? "" : " all layers: allow more by --max-drop, or tune the network with --quantize");
    for (int i = 0, said = 0; result->integer_weights && i < result->layer_count; i++)
        if (!result->layers[i].quantized)
            printf("%s %s", said++ ? "," : "", result->layers[i].name);
    printf("\n");
}

static void print_result(const char *output, const struct cvy_quantize_result *result)
{
    const double difference = result->floats.accuracy - result->quantized.accuracy;
    const double lost = fabs(difference) < 0.005 ? 0 : difference; /* never -0.00 */

    print_side("floats", &result->floats, result);
    print_side("int8", &result->quantized, result);
    printf("lost %.2f points on %s", lost, cvy_counted(result->validation_images, "image"));
    if (result->agreement >= 0)
        printf("; the same answer for %.2f %% of them", result->agreement);
    printf("\nranges by %s over %s\n", result->calibration, cvy_counted(result->calibration_images, "image"));
    if (result->float_layers > 0)
        print_floats(result);
    printf("%.1f %% of the weights have 8 bits\n", 100 * (double)result->integer_weights / (double)result->weights);
    print_layers(result);
    printf("\n%s: %s\n", output, result->arch);
}

static void put_side(struct json *json, const char *key, const struct cvy_quantize_side *side,
                     const struct cvy_quantize_result *result)
{
    json_open_object(json, key);
    json_real(json, result->detector ? "ap" : "top1", side->accuracy, 10);
    if (!result->detector)
        json_real(json, "loss", side->loss, 10);
    json_real(json, "single_ms", side->single_ms, 6);
    json_real(json, "batch_ms", side->batch_ms, 6);
    json_int(json, "bytes", side->bytes);
    json_close_object(json);
}

static void print_json(const char *output, const struct cvy_quantize_result *result)
{
    struct json json = {0};

    json_open_object(&json, NULL);
    json_string(&json, "output", output);
    json_string(&json, "arch", result->arch);
    json_string(&json, "calibration", result->calibration);
    json_int(&json, "calibration_images", result->calibration_images);
    json_int(&json, "validation_images", result->validation_images);
    json_int(&json, "batch_size", result->batch_size);
    put_side(&json, "floats", &result->floats, result);
    put_side(&json, "int8", &result->quantized, result);
    json_real(&json, "lost", result->floats.accuracy - result->quantized.accuracy, 10);
    json_real(&json, "lost_everywhere", result->floats.accuracy - result->everything, 10);
    json_real(&json, "agreement", result->agreement >= 0 ? result->agreement : NAN, 10);
    json_real(&json, "peak_memory_mib", result->peak_memory_mib, 6);
    json_int(&json, "weights", result->weights);
    json_int(&json, "integer_weights", result->integer_weights);
    json_open_array(&json, "layers");
    for (int i = 0; i < result->layer_count; i++) {
        const struct cvy_quantized_layer *layer = &result->layers[i];

        json_open_object(&json, NULL);
        json_string(&json, "name", layer->name);
        json_string(&json, "kind", layer->layer ? "layer" : "value");
        json_string(&json, "type", layer->quantized ? "int8" : "float");
        json_real(&json, "sqnr_db", layer->sqnr, 6);
        json_real(&json, "cost", layer->cost >= 0 ? layer->cost : NAN, 6);
        json_close_object(&json);
    }
    json_close_array(&json);
    json_close_object(&json);
}

cvy_status verb_quantize(int argc, char **argv)
{
    struct cvy_classifier_options network = CVY_CLASSIFIER_DEFAULTS;
    struct cvy_quantize_options quantize = CVY_QUANTIZE_DEFAULTS;
    struct cvy_quantize_result result = {0};
    struct arguments arguments;
    int format = FORMAT_TEXT;
    const struct option options[] = {
        OPT_TEXT("data", 'd', &quantize.data, "DIR",
                 "data set: ranges from its training images, accuracy on its validation images (required)"),
        OPT_TEXT("calibration", 0, &quantize.calibration, "METHOD",
                 "how ranges are chosen: minmax, mean, percentile, mse or entropy (default: mean)"),
        OPT_INT("images", 'n', &quantize.images, "N", "images that ranges are chosen from (default: 300)", 1, 1e9),
        OPT_UINT64("seed", 0, &quantize.seed, "N", "of the draw of these images (default: 0)"),
        OPT_REAL(
            "max-drop", 0, &quantize.max_drop, "X",
            "points of top-1 (of a detector: of AP) that may be lost; the costliest layers stay in floats until no "
            "more is (default: 0.1)",
            0, 100),
        OPT_FLAG("bias-correction", 0, &quantize.bias_correction,
                 "correct what rounding does to the mean of each channel"),
        MODEL_OPTIONS(network),
        WORK_OPTIONS(network),
        CLASSIFIER_OPTIONS(network),
        STRIDES_OPTION(network),
        OPT_CHOICE("format", 'f', &format, "text|json", "how to print the report (default: text)"),
    };
    const struct option_table table = {
        .verb = "quantize",
        .arguments = "WEIGHTS OUT",
        .summary =
            "Makes weights a network of 8-bit integers, without training: OUT is a file as --quantize trains it.",
        .options = options,
        .count = OPT_COUNT(options),
        .min_arguments = 2,
        .max_arguments = 2,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    if (!quantize.data)
        return terminal_fail(CVY_USAGE, "quantize needs --data DIR");
    network.weights = arguments.value[0];
    quantize.output = arguments.value[1];
    quantize.progress = show_progress;
    stop_catch(true, say_stopping);
    quantize.network = &network;
    status = cvy_quantize_network(&quantize, &result);
    terminal_clear_progress();
    if (status != CVY_OK)
        return terminal_fail_library(status);
    if (format == FORMAT_JSON)
        print_json(quantize.output, &result);
    else
        print_result(quantize.output, &result);
    cvy_quantize_result_release(&result);
    return CVY_OK;
}
