/* `convoy info`: gathers the facts, which text.c and json.c write. */
#include "convoy/info.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/resources.h"
#include "base/sized.h"
#include "comm/mpi.h"
#include "data/loader/loader.h"
#include "eval/evaluate.h"
#include "info/info_internal.h"
#include "network/split.h"
#include "ops/ops.h"
#include "report/drawing/draw.h"
#include "serve/library.h"
#include "weights/model_variant.h"
#include "weights/published.h"

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
        CVY_GOTO(cvy_fail(CVY_BAD_DATA, "%s has %s, not %d", cvy_quote(path),
                          cvy_counted(facts->model.num_classes, "class"), options->num_classes));
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

const float *cvy_info_int8_states(const struct cvy_info_facts *facts, enum cvy_model_mode mode)
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

    CVY_TRY(cvy_network_graph(facts->architecture, &facts->model, device, facts->dtype, mode,
                              cvy_info_int8_states(facts, mode), &graph));
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
        .int8_state = cvy_info_int8_states(facts, mode),
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
                                  options->training, facts->batch, NULL, cvy_info_int8_states(facts, mode)));
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
        facts->serving.name = "server";
        (void)cvy_server_text(facts->serving.text, &facts->serving.available);
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
