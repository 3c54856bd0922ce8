/* Post-training quantisation from the first file to the second: ranges, corrections, layers that stay in floats, the
 * file, and what it is worth. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/system.h"
#include "infer/quantize/ptq.h"

/* ---- opening ---- */

static cvy_status check_options(const struct cvy_quantize_options *options, enum cvy_calibration *calibration)
{
    const char *method = options->calibration ? options->calibration : cvy_calibration_name(CVY_CALIBRATION_DEFAULT);
    const char *end = options->output ? strrchr(options->output, '.') : NULL;

    if ((!options->network->weights && !options->network->weights_data) || !options->output || !options->data)
        return cvy_fail(CVY_USAGE, "quantize needs WEIGHTS, OUT and --data DIR");
    if (!end || strcmp(end, ".safetensors") != 0)
        return cvy_fail(CVY_USAGE, "the output %s must end in .safetensors: convoy convert makes other formats of it",
                        cvy_quote(options->output));
    if (!cvy_calibration_parse(method, calibration))
        return cvy_fail(CVY_USAGE, "option --calibration is minmax, mean, percentile, mse or entropy, not %s",
                        cvy_quote(method));
    if (options->images < 0)
        return cvy_fail(CVY_USAGE, "option --images: %d is below 1", options->images);
    if (!(options->max_drop >= 0))
        return cvy_fail(CVY_USAGE, "option --max-drop is 0 or more");
    return CVY_OK;
}

/* Before hours of work: the output can be created. */
static cvy_status check_output(const char *path)
{
    struct cvy_output output = {0};
    const cvy_status status = cvy_output_open(&output, path);

    cvy_output_abort(&output);
    return status;
}

/* The same network with quantizers, not yet at work. */
static cvy_status open_network(struct cvy_ptq *ptq)
{
    const struct cvy_network *plain = &ptq->plain.network;
    struct cvy_weights_load_options options = CVY_WEIGHTS_LOAD_DEFAULTS;
    struct cvy_model_options model = plain->model;
    struct cvy_tensor_file file = {0};
    cvy_status status;

    if (model.quantize != CVY_QUANTIZE_NONE)
        return cvy_fail(CVY_BAD_DATA, "%s is quantised already", cvy_quote(ptq->name));
    model.quantize = CVY_PTQ_FORM;
    options.any_quantizers = true;
    CVY_TRY(cvy_predictor_open_weights(&file, ptq->options->network));
    for (int32_t i = 0; i < plain->table.param_count; i++)
        ptq->float_bytes += (int64_t)sizeof(float) * cvy_shape_elements(&plain->table.params[i].shape);
    CVY_GOTO(cvy_network_open(&ptq->network, ptq->plain.device, plain->architecture, &model, CVY_F32, false));
    CVY_GOTO(cvy_weights_load(&ptq->network, &file, ptq->name, &options));
    CVY_GOTO(cvy_ptq_parts_find(&ptq->network.table, &ptq->parts));
fail:
    cvy_tensor_file_close(&file);
    return status;
}

static struct cvy_classifier_options predictor_options(const struct cvy_ptq *ptq)
{
    struct cvy_classifier_options options = *ptq->options->network;

    options.precision = "fp32";
    options.features = false;
    options.feature_layer = NULL;
    return options;
}

/* ---- what the two networks are worth ---- */

/* Medians of the times of both networks for one batch size, measured in turn. */
static cvy_status time_both(struct cvy_evaluator *evaluators[2], double medians[2])
{
    enum { RUNS = 15 };
    const double longest = 0.25; /* seconds, for more than 5 runs */
    const struct cvy_network *network = evaluators[0]->network;
    const size_t bytes = (size_t)evaluators[0]->batch * cvy_model_image_bytes(&network->model, CVY_MODEL_INFER);
    uint8_t *images = cvy_calloc_aligned(bytes);
    const double begin = cvy_clock();
    double seconds[2][RUNS];
    cvy_status status = CVY_OK;
    int runs = 0;

    if (!images)
        return cvy_fail_memory(bytes, "images");
    for (int run = -1; run < RUNS && (run < 5 || cvy_clock() - begin < longest); run++) { /* one to warm up */
        for (int i = 0; i < 2; i++) {
            const double start = cvy_clock();
            CVY_GOTO(cvy_evaluator_run(evaluators[i], images, evaluators[i]->batch, false));
            if (run >= 0)
                seconds[i][run] = 1000 * (cvy_clock() - start);
        }
        runs = run + 1;
    }
    for (int i = 0; i < 2; i++) {
        cvy_sort_values(seconds[i], runs);
        medians[i] = cvy_quantile(seconds[i], runs, 0.5);
    }
fail:
    cvy_free_aligned(images);
    return status;
}

static cvy_status time_networks(struct cvy_predictor *plain, struct cvy_predictor *quantized,
                                struct cvy_quantize_result *result)
{
    struct cvy_evaluator *one[2] = {&plain->one, &quantized->one}, *many[2] = {&plain->many, &quantized->many};
    double medians[2];

    CVY_TRY(cvy_predictor_open_single(plain));
    CVY_TRY(cvy_predictor_open_single(quantized));
    CVY_TRY(time_both(one, medians));
    result->floats.single_ms = medians[0];
    result->quantized.single_ms = medians[1];
    CVY_TRY(time_both(many, medians));
    result->floats.batch_ms = medians[0];
    result->quantized.batch_ms = medians[1];
    return CVY_OK;
}

static double agreement(const struct cvy_ptq *ptq, const struct cvy_ptq_score *score)
{
    int64_t same = 0;

    if (!score->answers)
        return -1;
    for (uint32_t i = 0; i < ptq->val.sample_count; i++)
        same += score->answers[i] >= 0 && score->answers[i] == ptq->floats.answers[i];
    return 100 * (double)same / (double)score->images;
}

/* The file that was written, opened as everybody opens it. */
static cvy_status measure(struct cvy_ptq *ptq, struct cvy_quantize_result *result)
{
    struct cvy_classifier_options options = predictor_options(ptq);
    struct cvy_predictor quantized = {0};
    struct cvy_ptq_score score = {0};
    struct stat written;
    cvy_status status;

    options.weights = ptq->options->output;
    options.weights_data = NULL;
    options.precision = NULL; /* in integers where the device has them */
    CVY_TRY(cvy_predictor_open(&quantized, &options));
    CVY_GOTO(cvy_predictor_open_batches(&quantized, &ptq->val));
    CVY_GOTO(cvy_ptq_evaluate(ptq, &quantized.many, "evaluation of the result", &score));
    CVY_GOTO(time_networks(&ptq->plain, &quantized, result));
    result->quantized.accuracy = score.accuracy;
    result->quantized.loss = score.loss;
    result->quantized.bytes = stat(ptq->options->output, &written) == 0 ? (int64_t)written.st_size : 0;
    result->floats.accuracy = ptq->floats.accuracy;
    result->floats.loss = ptq->floats.loss;
    result->floats.bytes = ptq->float_bytes;
    result->agreement = agreement(ptq, &score);
    result->validation_images = score.images;
    result->batch_size = ptq->plain.batch_size;
    result->peak_memory_mib = (double)cvy_peak_memory() / (1024.0 * 1024.0);
fail:
    cvy_free(score.answers);
    cvy_predictor_close(&quantized);
    return status;
}

static cvy_status describe(const struct cvy_ptq *ptq, struct cvy_quantize_result *result)
{
    const struct cvy_ptq_parts *parts = &ptq->parts;

    snprintf(result->arch, sizeof result->arch, "%s", ptq->network.architecture->name);
    result->detector = ptq->network.architecture->task == CVY_TASK_DETECT;
    result->calibration_images = ptq->calibration_images;
    result->calibration = cvy_calibration_name((int)ptq->calibration);
    result->layers = cvy_calloc((size_t)parts->part_count, sizeof *result->layers);
    if (!result->layers)
        return cvy_fail_memory((size_t)parts->part_count * sizeof *result->layers, "the report");
    for (int32_t i = 0; i < parts->part_count; i++) {
        const struct cvy_ptq_part *part = &parts->parts[i];
        char *name = cvy_strdup(part->name);

        if (!name)
            return cvy_fail_memory(strlen(part->name), "the report");
        result->layers[result->layer_count++] = (struct cvy_quantized_layer){
            .name = name,
            .layer = part->weights >= 0,
            .quantized = part->quantized,
            .sqnr = part->error > 0 ? 10 * log10(part->signal / part->error) : INFINITY,
            .cost = part->cost,
        };
        result->float_layers += !part->quantized;
        result->weights += part->elements;
        result->integer_weights += part->quantized ? part->elements : 0;
    }
    return CVY_OK;
}

/* ---- the whole ---- */

static void close_all(struct cvy_ptq *ptq)
{
    cvy_evaluator_close(&ptq->rounded);
    cvy_network_close(&ptq->network);
    cvy_predictor_close(&ptq->plain);
    cvy_ptq_parts_release(&ptq->parts);
    cvy_dataset_close(&ptq->images);
    cvy_dataset_close(&ptq->val);
    cvy_free(ptq->floats.answers);
}

static cvy_status quantize(struct cvy_ptq *ptq, struct cvy_quantize_result *result)
{
    const struct cvy_classifier_options options = predictor_options(ptq);
    struct cvy_graph graph;

    CVY_TRY(cvy_predictor_open(&ptq->plain, &options));
    CVY_TRY(open_network(ptq));
    CVY_TRY(check_output(ptq->options->output));
    CVY_TRY(cvy_ptq_open_images(ptq));
    CVY_TRY(cvy_predictor_open_batches(&ptq->plain, &ptq->val));
    CVY_TRY(cvy_ptq_evaluate(ptq, &ptq->plain.many, "evaluation in floats", &ptq->floats));
    CVY_TRY(cvy_ptq_calibrate(ptq));
    CVY_TRY(cvy_ptq_compare(ptq));
    CVY_TRY(cvy_ptq_graph(&ptq->network, CVY_PTQ_ROUNDED, &graph));
    CVY_TRY(cvy_evaluator_open_graph(&ptq->rounded, &ptq->network, &graph, ptq->plain.batch_size));
    CVY_TRY(cvy_ptq_select(ptq, &result->everything));
    CVY_TRY(cvy_ptq_write(ptq));
    ptq->written = true;
    CVY_TRY(describe(ptq, result));
    return measure(ptq, result);
}

cvy_status cvy_quantize_network(const struct cvy_quantize_options *options, struct cvy_quantize_result *result)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(result);
    struct cvy_quantize_options known = CVY_QUANTIZE_DEFAULTS;
    struct cvy_classifier_options network = CVY_CLASSIFIER_DEFAULTS;
    struct cvy_ptq ptq = {.options = &known};
    cvy_status status;

    *result = (struct cvy_quantize_result){0};
    CVY_TRY(cvy_sized_take(&known, sizeof known, options, "cvy_quantize_options"));
    if (!known.network)
        return cvy_fail(CVY_USAGE, "quantize needs weights, an output and data");
    CVY_TRY(cvy_sized_take(&network, sizeof network, known.network, "cvy_classifier_options"));
    known.network = &network;
    ptq.name = cvy_predictor_weights_name(&network);
    status = check_options(&known, &ptq.calibration);
    if (status == CVY_OK)
        status = quantize(&ptq, result);
    close_all(&ptq);
    if (status != CVY_OK)
        cvy_quantize_result_release(result);
    return status;
}

void cvy_quantize_result_release(struct cvy_quantize_result *result)
{
    if (!result)
        return;
    for (int i = 0; i < result->layer_count; i++)
        cvy_free((char *)result->layers[i].name);
    cvy_free(result->layers);
    *result = (struct cvy_quantize_result){0};
}
