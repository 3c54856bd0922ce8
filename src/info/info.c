/* `convoy info`: gathers the facts and writes them as text. */
#include "convoy/info.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/resources.h"
#include "base/sized.h"
#include "base/system.h"
#include "comm/mpi.h"
#include "data/loader/loader.h"
#include "eval/evaluate.h"
#include "info/info_internal.h"
#include "network/split.h"
#include "ops/ops.h"
#include "report/drawing/draw.h"
#include "weights/model_variant.h"
#include "weights/published.h"

/* ---- gathering ---- */

/* A photograph of ImageNet: what decoders are taken to meet where there are no data to look at. */
enum { TYPICAL_PIXELS = 500 * 375 };

/* MPIs by which ranks can be connected. */
static void find_mpis(struct cvy_info_facts *facts)
{
    static const enum cvy_comm_transport transports[CVY_INFO_MPIS] = {CVY_TRANSPORT_OPENMPI, CVY_TRANSPORT_MPICH};

    for (int i = 0; i < CVY_INFO_MPIS; i++) {
        struct cvy_info_device *found = &facts->mpis[i];

        found->name = cvy_comm_transport_name(transports[i]);
        found->available = cvy_mpi_probe(transports[i], found->text, sizeof found->text);
    }
}

static cvy_status read_weights(struct cvy_info_facts *facts, const char *path, const struct cvy_info_options *options)
{
    struct cvy_tensor_file file = {0};
    struct cvy_graph table;
    cvy_status status;

    CVY_TRY(cvy_weights_open(&file, path));
    CVY_GOTO(cvy_checkpoint_read(&file, path, &facts->weights));
    facts->file = path;
    facts->model = cvy_model_options_make(1000, 224);
    CVY_GOTO(cvy_model_identify(&file, &facts->weights, path, options->arch, &facts->architecture, &facts->model));
    facts->model.image_size = facts->weights.has_preprocessing ? facts->weights.preprocessing.image_size
                                                               : facts->architecture->default_image_size;
    facts->model.float_images = facts->weights.preprocessing.tensorflow;
    CVY_GOTO(cvy_model_choose_padding(&facts->model, &facts->weights, path, options->padding));
    CVY_GOTO(
        cvy_model_choose_strides(&facts->model, &facts->weights, facts->architecture, path, options->backbone_strides));
    CVY_GOTO(cvy_weights_check_model(facts->architecture, &facts->model, &file, path));
    if (options->num_classes > 0 && options->num_classes != facts->model.num_classes)
        CVY_GOTO(cvy_fail(CVY_BAD_DATA, "%s has %d classes, not %d", cvy_quote(path), (int)facts->model.num_classes,
                          options->num_classes));
    if (facts->model.quantize != CVY_QUANTIZE_NONE) {
        CVY_GOTO(cvy_model_graph(facts->architecture, &facts->model, CVY_MODEL_INFER, false, &table));
        status = cvy_weights_quantizer_states(&table, &file, &facts->quantizer_states);
        cvy_graph_release(&table);
    }
fail:
    cvy_tensor_file_close(&file);
    return status;
}

static cvy_status find_subject(struct cvy_info_facts *facts, const struct cvy_info_options *options)
{
    const bool file = cvy_tensor_file_exists(options->subject);

    facts->architecture = cvy_architecture_find(options->subject);
    if (facts->architecture && (options->arch || options->backbone_strides))
        return cvy_fail(CVY_USAGE, "option --%s is for weights files, and %s is a network",
                        options->arch ? "arch" : "backbone-strides", options->subject);
    if (facts->architecture)
        facts->model = cvy_model_options_usual(facts->architecture, 0, 0);
    else if (options->squeeze_width && file)
        return cvy_fail(CVY_USAGE, "option --squeeze-width: the shapes in %s say it", cvy_quote(options->subject));
    else if (file || cvy_published_find(options->subject))
        CVY_TRY(read_weights(facts, options->subject, options));
    else
        return cvy_fail(CVY_NO_INPUT, "%s is neither a network nor a file", cvy_quote(options->subject));
    if (facts->file == NULL)
        CVY_TRY(cvy_model_choose(&facts->model, options->padding, options->squeeze_width));
    if (options->num_classes > 0)
        facts->model.num_classes = options->num_classes;
    if (options->image_size != 0)
        facts->model.image_size = options->image_size;
    if (options->num_classes < 0 || facts->model.num_classes > 1000000)
        return cvy_fail(CVY_USAGE, "option --num-classes is not at least 1 and at most 1000000");
    if (facts->model.image_size < CVY_MIN_IMAGE_SIZE || facts->model.image_size > CVY_MAX_IMAGE_SIZE)
        return cvy_fail(CVY_USAGE, "option --image-size: %d is not at least %d and at most %d",
                        (int)facts->model.image_size, CVY_MIN_IMAGE_SIZE, CVY_MAX_IMAGE_SIZE);
    return CVY_OK;
}

static cvy_status measure_network(struct cvy_info_facts *facts)
{
    struct cvy_graph graph;

    CVY_TRY(cvy_model_graph(facts->architecture, &facts->model, CVY_MODEL_INFER, false, &graph));
    facts->parameters = graph.trainable_elements;
    facts->state_elements = graph.state_elements;
    facts->macs = cvy_graph_macs(&graph);
    cvy_graph_release(&graph);
    return CVY_OK;
}

/* What makes a plan one of integers; NULL: it computes in floats. */
static const float *int8_states(const struct cvy_info_facts *facts, enum cvy_model_mode mode)
{
    return facts->int8 && mode == CVY_MODEL_INFER ? facts->quantizer_states : NULL;
}

/* The plan of a mode, or of the first stream where there are several, which will not run. */
static cvy_status open_dry_plan(struct cvy_info_facts *facts, enum cvy_model_mode mode)
{
    cvy_device *device = facts->device;
    struct cvy_graph graph;
    struct cvy_split split;
    cvy_status status;

    CVY_TRY(cvy_network_graph(facts->architecture, &facts->model, device, facts->dtype, mode, int8_states(facts, mode),
                              &graph));
    split = cvy_split_batch(&graph, device, mode == CVY_MODEL_INFER, facts->batch);
    facts->streams = split.streams;
    if (split.streams > 1) {
        CVY_GOTO(cvy_stream_device_open(device, &facts->stream_device));
        device = facts->stream_device;
    }
    return cvy_plan_open(&facts->dry_run_plan, device, NULL, &graph, split.images);
fail:
    cvy_graph_release(&graph);
    return status;
}

/* As `train` (with validation) and `classify` work: a ring of batches, a decoder for each thread. */
static void measure_memory(struct cvy_info_facts *facts, enum cvy_model_mode mode, int32_t batch)
{
    struct cvy_info_memory *memory = &facts->memory[mode];
    const struct cvy_dataset none = {0};
    const struct cvy_loader_options loader = {
        .dataset = &none,
        .transform = {.size = facts->model.image_size,
                      .tensorflow = facts->model.float_images,
                      .detection = facts->architecture->task == CVY_TASK_DETECT},
        .workers = cvy_default_threads(),
        .prefetch = CVY_PREFETCH,
    };
    struct cvy_memory_case one = {
        .device = facts->device,
        .architecture = facts->architecture,
        .model = &facts->model,
        .dtype = facts->dtype,
        .int8_state = int8_states(facts, mode),
        .constant = mode == CVY_MODEL_INFER,
        .training = mode == CVY_MODEL_TRAIN,
        .batch = batch,
        .image_data = cvy_loader_image_bytes(&loader),
        .other_data = cvy_loader_other_bytes(&loader, TYPICAL_PIXELS),
    };

    if (one.training) {
        one.evaluation_batch = cvy_evaluation_batch(facts->architecture);
        one.other_data = 2 * one.other_data + (size_t)one.evaluation_batch * one.image_data;
    }
    memory->batch = batch;
    if (cvy_memory_estimate(&one, &memory->estimate) != CVY_OK)
        snprintf(memory->refused, sizeof memory->refused, "%s", cvy_error());
}

/* A plan that is run needs what a run needs. */
static cvy_status expect_memory(const struct cvy_info_facts *facts, const struct cvy_info_memory *memory)
{
    const size_t available = cvy_device_available_memory(facts->device);
    char wanted[32], there[32];

    if (memory->refused[0] || memory->estimate.total - memory->estimate.program <= available)
        return CVY_OK;
    return cvy_fail(CVY_NO_MEMORY, "running the plan would take about %s, and there are %s: --runs 0 only looks at it",
                    cvy_memory_text(memory->estimate.total, wanted), cvy_memory_text(available, there));
}

/* The plan of the mode that was asked for, and the memory of both. */
static cvy_status make_plans(struct cvy_info_facts *facts, const struct cvy_info_options *options)
{
    const enum cvy_model_mode mode = options->training ? CVY_MODEL_TRAIN : CVY_MODEL_INFER;
    int32_t batch[2] = {[CVY_MODEL_TRAIN] = 32, [CVY_MODEL_INFER] = 1};

    if (options->batch_size < 0)
        return cvy_fail(CVY_USAGE, "option --batch-size: %d is below 1", options->batch_size);
    if (options->runs < 0)
        return cvy_fail(CVY_USAGE, "option --runs: %d is below 0", options->runs);
    if (options->batch_size > 0)
        batch[CVY_MODEL_TRAIN] = batch[CVY_MODEL_INFER] = options->batch_size;
    facts->batch = batch[mode];
    CVY_TRY(cvy_device_open(options->device ? options->device : "auto", options->threads, &facts->device));
    CVY_TRY(cvy_device_set_deterministic(facts->device, options->deterministic));
    CVY_TRY(cvy_precision_choose(options->precision, facts->device, &facts->dtype));
    facts->int8 = cvy_network_wants_int8(options->precision, facts->device, &facts->model);
    /* In this order: a training has the plan of its validation too, but inference none of a training. */
    measure_memory(facts, CVY_MODEL_INFER, batch[CVY_MODEL_INFER]);
    measure_memory(facts, CVY_MODEL_TRAIN, batch[CVY_MODEL_TRAIN]);
    if (options->plan && options->runs > 0) {
        CVY_TRY(expect_memory(facts, &facts->memory[mode]));
        CVY_TRY(cvy_workload_open(&facts->work, facts->device, facts->architecture, &facts->model, facts->dtype,
                                  options->training, facts->batch, NULL, int8_states(facts, mode)));
        facts->plan = cvy_workload_plan(&facts->work);
        facts->streams = cvy_workload_streams(&facts->work);
        return cvy_info_measure(facts, options->runs);
    }
    facts->plan = &facts->dry_run_plan;
    return open_dry_plan(facts, mode);
}

static void release(struct cvy_info_facts *facts)
{
    for (int i = 0; i < CVY_INFO_DEVICES; i++)
        cvy_free(facts->devices[i].properties);
    cvy_plan_close(&facts->dry_run_plan);
    cvy_workload_close(&facts->work);
    cvy_stream_device_close(facts->stream_device);
    cvy_device_close(facts->device);
    cvy_checkpoint_info_release(&facts->weights);
}

static cvy_status gather(struct cvy_info_facts *facts, const struct cvy_info_options *options)
{
    facts->machine = options->subject == NULL;
    facts->steps = options->plan;
    facts->training = options->training;
    if (facts->machine) {
        if (options->plan)
            return cvy_fail(CVY_USAGE, "option --plan needs a network or a weights file");
        facts->drawing.name = "drawing";
        (void)cvy_draw_text(facts->drawing.text, &facts->drawing.available);
        find_mpis(facts);
        return cvy_info_find_devices(facts, options->threads);
    }
    CVY_TRY(find_subject(facts, options));
    CVY_TRY(measure_network(facts));
    return make_plans(facts, options);
}

cvy_status cvy_info(const struct cvy_info_options *options, char **text)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(text);
    struct cvy_info_options known = CVY_INFO_DEFAULTS;
    struct cvy_info_facts *facts;
    struct cvy_text made = {0};
    struct cvy_json json = {.text = &made};
    cvy_status status;

    *text = NULL;
    CVY_TRY(cvy_sized_take(&known, sizeof known, options, "cvy_info_options"));
    facts = cvy_calloc(1, sizeof *facts);
    if (!facts)
        return cvy_fail_memory(sizeof *facts, "the facts");
    CVY_GOTO(gather(facts, &known));
    if (known.json)
        cvy_info_json(facts, &json);
    else
        cvy_info_text(facts, &made);
    if (made.failed || !made.text) {
        status = cvy_fail_memory(made.capacity, "the text");
        cvy_text_release(&made);
        goto fail;
    }
    *text = made.text;
fail:
    release(facts);
    cvy_free(facts->quantizer_states);
    cvy_free(facts);
    return status;
}

void cvy_info_free(char *text)
{
    cvy_free(text);
}

/* ---- text ---- */

const char *cvy_info_phase(const struct cvy_plan_step *step)
{
    return step->setup ? "setup" : step->backward ? "backward" : "forward";
}

const char *cvy_info_storage(enum cvy_storage storage)
{
    static const char *const names[] = {"activation", "constant", "input", "weight", "gradient", "state"};

    return names[storage];
}

static double mebibytes(size_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

/* A word of a list that is broken before column 100; `column` is where the line stands. */
static void add_word(const char *word, size_t *column, struct cvy_text *text)
{
    const size_t length = strlen(word) + 1;

    if (*column + length > 100) {
        cvy_text_puts(text, "\n         ");
        *column = 9;
    }
    cvy_text_printf(text, " %s", word);
    *column += length;
}

/* Those that are alone in their files together, then a paragraph for each file. */
static void recipes_text(struct cvy_text *text)
{
    const char *last = "";
    size_t column = 9;

    cvy_text_puts(text, "\nrecipes  ");
    for (size_t i = 0; cvy_recipe_name(i); i++) {
        if (strcmp(cvy_recipe_name(i), cvy_recipe_file(i)) == 0)
            add_word(cvy_recipe_name(i), &column, text);
    }
    for (size_t i = 0; cvy_recipe_name(i); i++) {
        if (strcmp(cvy_recipe_name(i), cvy_recipe_file(i)) == 0)
            continue;
        if (strcmp(cvy_recipe_file(i), last) != 0)
            column = 100;
        last = cvy_recipe_file(i);
        add_word(cvy_recipe_name(i), &column, text);
    }
}

/* Without the ones that the processor has no instructions for. */
static void peaks_text(const struct cvy_info_facts *facts, struct cvy_text *text)
{
    const struct cvy_device_peak *peak = &facts->peak;

    if (!(peak->flops_f32 > 0))
        return;
    cvy_text_printf(text, "peak      %.0f GFLOP/s in fp32", peak->flops_f32 * 1e-9);
    if (peak->flops_bf16 > 0)
        cvy_text_printf(text, ", %.0f in bf16", peak->flops_bf16 * 1e-9);
    if (peak->ops_int8 > 0)
        cvy_text_printf(text, ", %.0f Gop/s in int8", peak->ops_int8 * 1e-9);
    cvy_text_puts(text, "\n");
}

static void machine_text(const struct cvy_info_facts *facts, struct cvy_text *text)
{
    cvy_text_printf(text, "convoy %s\n", cvy_version());
    cvy_text_printf(text, "CPU       %s, %d threads, %s\n", cvy_cpu_name(), cvy_default_threads(), cvy_cpu_features());
    peaks_text(facts, text);
    for (int i = 0; i <= CVY_INFO_DEVICES; i++) {
        const struct cvy_info_device *one = i < CVY_INFO_DEVICES ? &facts->devices[i] : &facts->drawing;
        cvy_text_printf(text, "%-8s  %s%s\n", one->name, one->available ? "" : "missing: ", one->text);
    }
    for (int i = 0; i < CVY_INFO_MPIS; i++)
        cvy_text_printf(text, "%-8s  %s%s\n", facts->mpis[i].name,
                        facts->mpis[i].available ? "" : "missing: ", facts->mpis[i].text);
    cvy_text_puts(text, "networks ");
    for (size_t i = 0; cvy_architecture_at(i); i++)
        cvy_text_printf(text, " %s", cvy_architecture_at(i)->name);
    recipes_text(text);
}

static void add_tensor(struct cvy_text *text, const struct cvy_tensor *tensor)
{
    char shape[96];

    cvy_text_printf(text, " %s:%s:%s", cvy_shape_text(&tensor->shape, shape), cvy_dtype_name(tensor->dtype),
                    cvy_layout_name(&tensor->layout));
}

/* "   3.214 ms  210.3 GFLOP/s" */
static void add_speed(double seconds, double flops, double bytes, bool product, struct cvy_text *text)
{
    const double rate = seconds > 0 ? (product ? flops : bytes) / seconds * 1e-9 : 0;

    cvy_text_printf(text, " %9.3f ms %7.1f %-7s", seconds * 1e3, rate, product ? "GFLOP/s" : "GB/s");
}

static void step_text(const struct cvy_info_facts *facts, const struct cvy_plan_step *step, struct cvy_text *text)
{
    cvy_text_printf(text, "%-8s %-26s %-22s", cvy_info_phase(step), cvy_ops[step->desc.op].name,
                    step->scope[0] ? step->scope : "-");
    if (facts->runs > 0)
        add_speed(step->seconds, step->flops, (double)cvy_plan_step_bytes(facts->plan, step), cvy_info_is_product(step),
                  text);
    cvy_text_printf(text, " %s", step->kernel.kernel->name);
    if (step->kernel.implementation[0])
        cvy_text_printf(text, " (%s)", step->kernel.implementation);
    for (int i = 0; i < step->desc.inputs; i++) {
        if (cvy_tensor_present(&step->desc.in[i]))
            add_tensor(text, &step->desc.in[i]);
    }
    cvy_text_puts(text, " ->");
    for (int i = 0; i < step->desc.outputs; i++) {
        if (cvy_tensor_present(&step->desc.out[i]))
            add_tensor(text, &step->desc.out[i]);
    }
    if (strcmp(step->kernel.reason, CVY_REASON_FIRST) != 0)
        cvy_text_printf(text, "  [%s]", step->kernel.reason);
    cvy_text_puts(text, "\n");
}

const char *cvy_info_squeeze(const struct cvy_info_facts *facts, char buffer[16])
{
    const int32_t chosen = facts->model.resnet.squeeze_width;

    return cvy_squeeze_width_text(chosen ? chosen : facts->architecture->squeeze_width, buffer);
}

static void memory_text(const struct cvy_info_facts *facts, enum cvy_model_mode mode, struct cvy_text *text)
{
    const struct cvy_info_memory *memory = &facts->memory[mode];
    const char *what = mode == CVY_MODEL_TRAIN ? "training" : "inference";

    if (memory->refused[0])
        cvy_text_printf(text, "memory       %s, batch of %d: %s\n", what, (int)memory->batch, memory->refused);
    else
        cvy_text_printf(text, "memory       %s, batch of %d: about %.0f MiB (%.1f of it parameters, %.1f plan)\n", what,
                        (int)memory->batch, mebibytes(memory->estimate.total), mebibytes(memory->estimate.parameters),
                        mebibytes(memory->estimate.workspace));
}

/* What the file says about its post-training quantisation. */
static void calibration_text(const struct cvy_json_value *quantization, struct cvy_text *text)
{
    const struct cvy_json_value *floats = cvy_json_get(quantization, "floats");

    cvy_text_printf(text, "calibration  %s, %lld images",
                    cvy_quote(cvy_json_get_string(quantization, "calibration", "")),
                    (long long)cvy_json_get_int(quantization, "images", 0));
    for (const struct cvy_json_value *name = floats ? floats->first : NULL; name; name = name->next) {
        cvy_text_puts(text, name == floats->first ? "; in floats stay " : ", ");
        cvy_text_puts(text, cvy_quote(name->text ? name->text : ""));
    }
    cvy_text_puts(text, "\n");
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* The kinds of steps, what they take, and how much of the machine that is. */
static void sums_text(const struct cvy_info_facts *facts, struct cvy_text *text)
{
    const struct cvy_device_peak *limits = &facts->limits;
    const bool known = limits->flops_f32 > 0;
    const int parts = (int)(facts->batch / facts->plan->batch), passes = (parts + facts->streams - 1) / facts->streams;
    struct cvy_info_sums sums;

    cvy_info_sum(facts, &sums);
    cvy_text_printf(text, "\n%-26s %5s %12s %15s %8s%s\n", "shortest of runs", "steps", "time", "", "share",
                    known ? "  of the limit" : "");
    for (int op = 0; op < CVY_OP_COUNT; op++) {
        const struct cvy_info_kind *kind = &sums.kinds[op];
        if (kind->steps == 0)
            continue;
        cvy_text_printf(text, "%-26s %5d", cvy_ops[op].name, (int)kind->steps);
        add_speed(kind->seconds, kind->flops, kind->bytes, kind->product, text);
        cvy_text_printf(text, " %6.1f %%", percent(kind->seconds, sums.seconds));
        if (known)
            cvy_text_printf(text, " %12.1f %%", percent(kind->min_seconds, kind->seconds));
        cvy_text_puts(text, "\n");
    }
    cvy_text_printf(text, "all steps %.1f ms", sums.seconds * 1e3);
    if (passes > 1)
        cvy_text_printf(text, ", %d times", passes);
    if (facts->streams > 1)
        cvy_text_printf(text, " in each of %d streams", facts->streams);
    cvy_text_printf(text, "; with what is around them %.1f ms, %.2f images/s\n", facts->iteration_seconds * 1e3,
                    (double)facts->batch / facts->iteration_seconds);
    if (!known)
        return;
    if (facts->device->gpu)
        cvy_text_printf(text, "the limit of this GPU: %.0f TFLOP/s in %s, %.0f in 16 bits; a copy %.0f GB/s\n",
                        limits->flops_f32 * 1e-12, facts->device->tf32 ? "tf32" : "fp32", limits->flops_bf16 * 1e-12,
                        limits->copy * 1e-9);
    else
        cvy_text_printf(
            text,
            "the limit of this machine: %.0f GFLOP/s in fp32, %.0f in bf16, %.0f Gop/s in int8; memory: read "
            "%.1f, copy %.1f, triad %.1f GB/s\n",
            limits->flops_f32 * 1e-9, limits->flops_bf16 * 1e-9, limits->ops_int8 * 1e-9, limits->read * 1e-9,
            limits->copy * 1e-9, limits->triad * 1e-9);
    cvy_text_printf(text, "operations at that rate, else bytes at that rate: %.1f ms, %.1f %% of the steps' time\n",
                    sums.min_seconds * 1e3, percent(sums.min_seconds, sums.seconds));
}

const char *cvy_info_precision(const struct cvy_info_facts *facts)
{
    return int8_states(facts, facts->training ? CVY_MODEL_TRAIN : CVY_MODEL_INFER)
               ? "int8"
               : cvy_precision_name(facts->dtype, facts->device);
}

/* What a pass costs by what its kernels say. */
static void totals_text(const struct cvy_info_facts *facts, struct cvy_text *text)
{
    struct cvy_plan_totals totals;

    cvy_plan_sum(facts->plan, &totals);
    cvy_text_puts(text, "\nplan pass    ");
    if (facts->device->gpu)
        cvy_text_printf(text, "%lld launches, ", (long long)totals.launches);
    cvy_text_printf(text, "%.2f GB read and written, %.3f TFLOP%s", (double)totals.bytes * 1e-9, totals.flops * 1e-12,
                    facts->plan->batch < facts->batch ? ", of one part" : "");
}

void cvy_info_text(const struct cvy_info_facts *facts, struct cvy_text *text)
{
    const struct cvy_plan *plan = facts->plan;
    char squeeze[16], at_once[64] = "", streams[32] = "";

    if (facts->machine) {
        machine_text(facts, text);
        return;
    }
    if (facts->file)
        cvy_text_printf(text, "file         %s\n", facts->file);
    if (facts->weights.has_state && facts->weights.state.best_epoch >= 0) {
        cvy_text_puts(text, "trained      ");
        cvy_text_count(text, facts->weights.state.epoch, "epoch");
        cvy_text_printf(text, ", best validation %s %.2f %%\n",
                        facts->architecture->task == CVY_TASK_DETECT ? "AP" : "top-1", facts->weights.state.best_score);
    }
    cvy_text_printf(text, "network      %s\nclasses      %d\nimage size   %d\n", facts->architecture->name,
                    (int)facts->model.num_classes, (int)facts->model.image_size);
    if (facts->model.resnet.same_padding)
        cvy_text_puts(text, "padding      same\n");
    if (facts->model.quantize != CVY_QUANTIZE_NONE)
        cvy_text_printf(text, "quantized    %s\n", cvy_quantize_name(facts->model.quantize));
    if (facts->quantizer_states)
        cvy_text_printf(text, "inference    %s\n",
                        facts->int8
                            ? "in 8-bit integers"
                            : "in floats with rounded values: no integers for this form, device or --precision");
    if (facts->file && facts->weights.quantization)
        calibration_text(facts->weights.quantization, text);
    if (facts->architecture->squeeze_width != 0)
        cvy_text_printf(text, "squeeze      %s\n", cvy_info_squeeze(facts, squeeze));
    cvy_text_printf(text, "parameters   %lld\nGMAC         %.3f for an image\n", (long long)facts->parameters,
                    facts->macs / 1e9);
    memory_text(facts, CVY_MODEL_INFER, text);
    memory_text(facts, CVY_MODEL_TRAIN, text);
    if (facts->streams > 1)
        snprintf(streams, sizeof streams, " in each of %d streams", facts->streams);
    if (plan->batch < facts->batch)
        snprintf(at_once, sizeof at_once, ", %d at a time%s", (int)plan->batch, streams);
    cvy_text_printf(text, "plan         %s of %d images%s, %s, on %s (%s), %d threads: %d steps\n",
                    facts->training ? "training" : "inference", (int)facts->batch, at_once, cvy_info_precision(facts),
                    facts->device->backend->name, facts->device->description, facts->device->threads,
                    (int)plan->step_count);
    if (plan->images != CVY_IMAGES_DEVICE)
        cvy_text_printf(text, "plan images  %s: %s\n", cvy_images_name(plan->images), plan->images_reason);
    cvy_text_printf(
        text, "plan memory  activations %.2f MiB%s (%.2f live at once; scratch of a step up to %.2f), constants %.2f",
        mebibytes(plan->activation_bytes), facts->streams > 1 ? " of each stream" : "",
        mebibytes(cvy_plan_live_bytes(plan)), mebibytes(plan->scratch_bytes), mebibytes(plan->constant_bytes));
    totals_text(facts, text);
    if (!facts->steps)
        return;
    cvy_text_puts(text, "\n\n");
    for (int32_t s = 0; s < plan->step_count; s++)
        step_text(facts, &plan->steps[s], text);
    if (facts->runs > 0)
        sums_text(facts, text);
    text->text[--text->length] = '\0'; /* the caller ends the last line */
}
