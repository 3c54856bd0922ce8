/* Runs SGD steps of a network on given weights and images and writes down everything that a parity test compares:
 *
 *   step_dump WEIGHTS DATA OUT [--arch A] [--batch B] [--cycle C] [--steps N] [--lr R] [--momentum M] [--weight-decay
 * D]
 *             [--head-lr R] [--freeze PREFIX,...] [--label-smoothing S] [--padding torch|same] [--squeeze-width N|c/N]
 *             [--quantize symmetric|asymmetric] [--quant-delay N]
 *             [--device D] [--precision P] [--threads T]
 *
 * WEIGHTS holds the tensors of the network (torchvision's names), DATA "images" u8 (M, S, S, 3) and "labels" i32 (M), M
 * a multiple of B. Batch i is images [i * B, (i + 1) * B); step s (from 0) takes batch s mod C. OUT receives, f32:
 *
 *   logits_inference (M, K)   with the running statistics of WEIGHTS
 *   logits_training (M, K)    with the statistics of each batch, at the weights of WEIGHTS
 *   initial_loss (M / B)      the training loss of each batch, at the weights of WEIGHTS
 *   loss (N)                  of each step, before its update
 *   gradient.<parameter>      of step 0
 *   state.<buffer>            running statistics after step 0
 *   first.<parameter>         weights after step 0
 *   last.<parameter>          weights after step N - 1, the frozen ones too
 *   last_state.<buffer>       with --quantize: running statistics and ranges after step N - 1
 *
 * For a detector DATA holds "images" f32 (M, S, S, 3), "boxes" f32 (M, 100, 4) and "labels" i32 (M, 100), and OUT has
 * "codes_inference", "codes_training" (M, A, 4) and "logits_..." (M, A, 1 + K) of its anchors, and in place of the
 * initial loss "localization_loss", "classification_loss" and "regularization_loss" (M / B). Its weight decay leaves
 * out what is no kernel.
 *
 * The steps are those of `convoy train`: the same plan, reducer and optimizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/weights/safetensors.h"
#include "ops/anchors.h"
#include "trainer/trainer.h"
#include "weights/model_variant.h"
#include "weights/weights.h"

struct settings {
    const char *weights, *data, *out;
    const char *arch, *device, *precision, *padding, *squeeze_width, *freeze, *quantize;
    int64_t batch, cycle, steps, threads, quant_delay;
    double learning_rate, head_rate, momentum, weight_decay, label_smoothing;
};

struct dump {
    struct settings settings;
    struct cvy_tensor_file weights, data;
    const struct cvy_architecture *architecture;
    bool detects;
    uint8_t *images; /* (M, S, S, 3), of floats for a detector */
    int32_t *labels; /* (M), (M, 100) for a detector */
    float *boxes;    /* (M, 100, 4), of a detector */
    size_t image_bytes;
    int64_t count, size, classes, batches;
    cvy_device *device;
    struct cvy_network network;
    struct cvy_comm comm;
    struct cvy_trainer trainer;
    struct cvy_plan inference;
    struct cvy_plan predictions; /* detectors only: training with what it predicts among its results */
    struct cvy_batch_upload inference_upload;
    struct cvy_arena arena; /* names and values of the output */
    struct cvy_named_tensor *tensors;
    size_t tensor_count, tensor_capacity;
};

/* ---- settings ---- */

static cvy_status set_option(struct settings *settings, const char *name, const char *value)
{
    const struct {
        const char *name;
        const char **text;
        int64_t *integer;
        double *real;
    } table[] = {
        {"--arch", &settings->arch, NULL, NULL},
        {"--device", &settings->device, NULL, NULL},
        {"--freeze", &settings->freeze, NULL, NULL},
        {"--head-lr", NULL, NULL, &settings->head_rate},
        {"--quantize", &settings->quantize, NULL, NULL},
        {"--quant-delay", NULL, &settings->quant_delay, NULL},
        {"--precision", &settings->precision, NULL, NULL},
        {"--padding", &settings->padding, NULL, NULL},
        {"--squeeze-width", &settings->squeeze_width, NULL, NULL},
        {"--batch", NULL, &settings->batch, NULL},
        {"--cycle", NULL, &settings->cycle, NULL},
        {"--steps", NULL, &settings->steps, NULL},
        {"--threads", NULL, &settings->threads, NULL},
        {"--lr", NULL, NULL, &settings->learning_rate},
        {"--momentum", NULL, NULL, &settings->momentum},
        {"--weight-decay", NULL, NULL, &settings->weight_decay},
        {"--label-smoothing", NULL, NULL, &settings->label_smoothing},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(name, table[i].name) != 0)
            continue;
        if (table[i].text)
            *table[i].text = value;
        else if (table[i].integer)
            *table[i].integer = strtoll(value, NULL, 10);
        else
            *table[i].real = strtod(value, NULL);
        return CVY_OK;
    }
    return cvy_fail(CVY_USAGE, "unknown option %s", cvy_quote(name));
}

static cvy_status read_settings(int argc, char **argv, struct settings *settings)
{
    *settings = (struct settings){.arch = "resnet18",
                                  .device = "cpu",
                                  .precision = "auto",
                                  .batch = 8,
                                  .cycle = 1,
                                  .steps = 20,
                                  .threads = 2,
                                  .learning_rate = 0.1,
                                  .momentum = 0.9,
                                  .weight_decay = 1e-4};
    if (argc < 4 || argc % 2 != 0)
        return cvy_fail(CVY_USAGE, "usage: step_dump WEIGHTS DATA OUT [--option value]...");
    settings->weights = argv[1];
    settings->data = argv[2];
    settings->out = argv[3];
    for (int i = 4; i < argc; i += 2)
        CVY_TRY(set_option(settings, argv[i], argv[i + 1]));
    if (settings->batch < 1 || settings->cycle < 1 || settings->steps < 1)
        return cvy_fail(CVY_USAGE, "--batch, --cycle and --steps must be at least 1");
    return CVY_OK;
}

/* ---- inputs ---- */

static cvy_status copy_tensor(const struct cvy_tensor_file *file, const char *name, enum cvy_dtype dtype, int32_t rank,
                              const struct cvy_named_tensor **tensor, void *copy)
{
    const struct cvy_named_tensor *found = cvy_tensor_find(file, name);
    void *memory;

    if (!found || found->dtype != dtype || found->shape.rank != rank)
        return cvy_fail(CVY_BAD_DATA, "the data has no usable tensor \"%s\"", name);
    memory = cvy_calloc_aligned(found->bytes + 1);
    if (!memory)
        return cvy_fail_memory(found->bytes, name);
    memcpy(memory, found->data, found->bytes);
    memcpy(copy, &memory, sizeof memory);
    *tensor = found;
    return CVY_OK;
}

static cvy_status read_inputs(struct dump *dump)
{
    const struct cvy_named_tensor *images, *labels, *boxes = NULL;

    dump->architecture = cvy_architecture_find(dump->settings.arch);
    if (!dump->architecture)
        return cvy_fail(CVY_USAGE, "unknown architecture %s", cvy_quote(dump->settings.arch));
    dump->detects = dump->architecture->task == CVY_TASK_DETECT;
    CVY_TRY(cvy_st_open(&dump->weights, dump->settings.weights));
    CVY_TRY(cvy_st_open(&dump->data, dump->settings.data));
    CVY_TRY(copy_tensor(&dump->data, "images", dump->detects ? CVY_F32 : CVY_U8, 4, &images, &dump->images));
    CVY_TRY(copy_tensor(&dump->data, "labels", CVY_I32, dump->detects ? 2 : 1, &labels, &dump->labels));
    if (dump->detects)
        CVY_TRY(copy_tensor(&dump->data, "boxes", CVY_F32, 3, &boxes, &dump->boxes));
    dump->count = images->shape.dim[0];
    dump->size = images->shape.dim[1];
    dump->batches = dump->count / dump->settings.batch;
    dump->classes = cvy_weights_classes(&dump->weights);
    if (dump->batches < dump->settings.cycle)
        return cvy_fail(CVY_BAD_DATA, "there are only %lld batches", (long long)dump->batches);
    if (images->shape.dim[2] != dump->size || images->shape.dim[3] != 3 || labels->shape.dim[0] != dump->count ||
        dump->batches < 1 || dump->batches * dump->settings.batch != dump->count || dump->size > INT32_MAX)
        return cvy_fail(CVY_BAD_DATA, "the images are not square batches of RGB with one label each");
    if (boxes && (boxes->bytes != (size_t)(dump->count * CVY_MAX_BOXES * 4) * sizeof *dump->boxes ||
                  labels->shape.dim[1] != CVY_MAX_BOXES))
        return cvy_fail(CVY_BAD_DATA, "there are not %d boxes for each image", CVY_MAX_BOXES);
    return CVY_OK;
}

/* ---- output ---- */

/* Room for a tensor of the output; NULL when memory runs out. */
static float *add_tensor(struct dump *dump, const char *prefix, const char *name, struct cvy_shape shape)
{
    const int64_t elements = cvy_shape_elements(&shape);
    struct cvy_named_tensor *tensor;
    float *values;

    if (dump->tensor_count == dump->tensor_capacity || elements < 0)
        return NULL;
    values = cvy_arena_alloc(&dump->arena, (size_t)elements * sizeof *values);
    tensor = &dump->tensors[dump->tensor_count];
    *tensor = (struct cvy_named_tensor){.name = cvy_arena_printf(&dump->arena, "%s%s", prefix, name),
                                        .dtype = CVY_F32,
                                        .shape = shape,
                                        .data = values,
                                        .bytes = (size_t)elements * sizeof *values};
    if (!tensor->name || !values)
        return NULL;
    dump->tensor_count++;
    return values;
}

/* Every parameter of a kind out of its arena on the device. */
static cvy_status add_parameters(struct dump *dump, const char *prefix, enum cvy_param_kind kind, const float *arena)
{
    const struct cvy_graph *table = &dump->network.table;

    for (int32_t i = 0; i < table->param_count; i++) {
        const struct cvy_param *param = &table->params[i];
        const size_t bytes = (size_t)cvy_shape_elements(&param->shape) * sizeof(float);
        float *values;

        if (param->kind != kind)
            continue;
        values = add_tensor(dump, prefix, param->name, param->shape);
        if (!values)
            return cvy_fail_memory(bytes, param->name);
        CVY_TRY(dump->device->backend->download(dump->device, values, arena + param->offset, bytes));
    }
    return CVY_OK;
}

/* ---- the runs ---- */

static cvy_status open_network(struct dump *dump)
{
    const struct settings *settings = &dump->settings;
    const struct cvy_optimizer_options optimizer = {.momentum = (float)settings->momentum,
                                                    .weight_decay = (float)settings->weight_decay,
                                                    .decay_rule = dump->detects ? CVY_DECAY_WEIGHTS : CVY_DECAY_NAME,
                                                    .head_ratio = settings->head_rate / settings->learning_rate};
    struct cvy_model_options model = cvy_model_options_make((int32_t)dump->classes, (int32_t)dump->size);
    enum cvy_dtype dtype;

    cvy_model_options_adapt(&model, dump->architecture);
    dump->image_bytes = cvy_model_image_bytes(&model, CVY_MODEL_TRAIN);
    model.label_smoothing = (float)settings->label_smoothing;
    CVY_TRY(cvy_model_choose(&model, settings->padding, settings->squeeze_width));
    model.freeze = settings->freeze;
    if (settings->quantize && !cvy_quantize_parse(settings->quantize, &model.quantize))
        return cvy_fail(CVY_USAGE, "unknown way to quantise %s", cvy_quote(settings->quantize));
    model.quant_delay = settings->quant_delay;
    CVY_TRY(cvy_device_open(settings->device, (int)settings->threads, &dump->device));
    CVY_TRY(cvy_precision_choose(settings->precision, dump->device, &dtype));
    CVY_TRY(cvy_network_open(&dump->network, dump->device, dump->architecture, &model, dtype, true));
    CVY_TRY(cvy_weights_load(&dump->network, &dump->weights, settings->weights, &CVY_WEIGHTS_LOAD_DEFAULTS));
    cvy_comm_single(&dump->comm);
    CVY_TRY(cvy_trainer_open(&dump->trainer, &dump->network, &dump->comm, &optimizer, settings->batch));
    CVY_TRY(cvy_network_plan(&dump->network, CVY_MODEL_INFER, settings->batch, &dump->inference));
    return cvy_batch_upload_open(&dump->inference_upload, dump->device, settings->batch, dump->image_bytes);
}

/* What a plan reads of batch `b`; `training`: labels or boxes too. */
static struct cvy_host_batch host_batch(const struct dump *dump, int64_t b, bool training)
{
    const size_t first = (size_t)(b * dump->settings.batch);
    struct cvy_host_batch batch = {.images = dump->images + first * dump->image_bytes};

    if (training && dump->detects) {
        batch.boxes = dump->boxes + first * CVY_MAX_BOXES * 4;
        batch.box_labels = dump->labels + first * CVY_MAX_BOXES;
    } else if (training) {
        batch.labels = dump->labels + first;
    }
    return batch;
}

static cvy_status reload(struct dump *dump)
{
    return cvy_weights_load(&dump->network, &dump->weights, dump->settings.weights, &CVY_WEIGHTS_LOAD_DEFAULTS);
}

/* Everything at the weights of the file: they are loaded again after each training pass, which moves the running
 * statistics. */
static cvy_status run_initial(struct dump *dump)
{
    const size_t part = (size_t)(dump->settings.batch * dump->classes);
    const struct cvy_shape shape = cvy_shape2(dump->count, dump->classes);
    float *inference = add_tensor(dump, "", "logits_inference", shape);
    float *training = add_tensor(dump, "", "logits_training", shape);
    float *loss = add_tensor(dump, "", "initial_loss", cvy_shape1(dump->batches));
    struct cvy_plan *plan = &dump->trainer.plan;

    if (!inference || !training || !loss)
        return cvy_fail_memory(2 * part * sizeof(float), "the logits");
    for (int64_t b = 0; b < dump->batches; b++) {
        struct cvy_host_batch batch = host_batch(dump, b, false);
        CVY_TRY(cvy_batch_upload_bind(&dump->inference_upload, &dump->inference, &batch));
        CVY_TRY(cvy_plan_run(&dump->inference, NULL));
        CVY_TRY(cvy_plan_read_floats(&dump->inference, "logits", inference + (size_t)b * part, part));
        batch = host_batch(dump, b, true);
        CVY_TRY(cvy_batch_upload_bind(&dump->trainer.upload, plan, &batch));
        CVY_TRY(cvy_plan_run(plan, NULL));
        CVY_TRY(cvy_plan_read_floats(plan, "logits", training + (size_t)b * part, part));
        CVY_TRY(cvy_plan_read_floats(plan, "loss", loss + b, 1));
        CVY_TRY(reload(dump));
    }
    return CVY_OK;
}

/* The training of `convoy train` keeps no predictions: here they are results of its graph. */
static cvy_status open_predictions(struct dump *dump)
{
    struct cvy_network *network = &dump->network;
    struct cvy_graph graph;

    CVY_TRY(cvy_network_graph(dump->architecture, &network->model, dump->device, network->dtype, CVY_MODEL_TRAIN, NULL,
                              &graph));
    for (int32_t n = 0; n < graph.node_count; n++) {
        const struct cvy_node *node = &graph.nodes[n];
        if (node->op == CVY_OP_FOCAL_LOSS)
            cvy_graph_result(&graph, CVY_RESULT_NAMED, "logits", -1, node->in[0]);
        else if (node->op == CVY_OP_SMOOTH_L1_LOSS)
            cvy_graph_result(&graph, CVY_RESULT_NAMED, "codes", -1, node->in[0]);
    }
    CVY_TRY(cvy_plan_open(&dump->predictions, dump->device, &network->store, &graph, dump->settings.batch));
    return cvy_plan_bind(&dump->predictions, "loss_scale", dump->trainer.scaler);
}

/* The same for a detector. */
static cvy_status run_initial_detector(struct dump *dump)
{
    static const char *const names[2] = {"codes", "logits"};
    const struct cvy_anchors anchors = cvy_anchors_ssd((int32_t)dump->size, (int32_t)dump->size);
    float *inference[2], *training[2], *losses[CVY_LOSS_PARTS];
    size_t part[2];

    for (int i = 0; i < 2; i++) {
        const int64_t columns = i == 0 ? 4 : dump->classes + 1;
        const struct cvy_shape shape = cvy_shape3(dump->count, cvy_anchors_count(&anchors), columns);
        part[i] = (size_t)(dump->settings.batch * shape.dim[1] * columns);
        inference[i] = add_tensor(dump, names[i], "_inference", shape);
        training[i] = add_tensor(dump, names[i], "_training", shape);
        if (!inference[i] || !training[i])
            return cvy_fail_memory(2 * part[i] * sizeof(float), "the predictions");
    }
    for (int i = 0; i < CVY_LOSS_PARTS; i++) {
        losses[i] = add_tensor(dump, "", cvy_loss_part_names[i], cvy_shape1(dump->batches));
        if (!losses[i])
            return cvy_fail_memory((size_t)dump->batches * sizeof(float), "the losses");
    }
    CVY_TRY(open_predictions(dump));
    for (int64_t b = 0; b < dump->batches; b++) {
        struct cvy_host_batch batch = host_batch(dump, b, false);
        CVY_TRY(cvy_batch_upload_bind(&dump->inference_upload, &dump->inference, &batch));
        CVY_TRY(cvy_plan_run(&dump->inference, NULL));
        batch = host_batch(dump, b, true);
        CVY_TRY(cvy_batch_upload_bind(&dump->inference_upload, &dump->predictions, &batch));
        CVY_TRY(cvy_plan_run(&dump->predictions, NULL));
        for (int i = 0; i < 2; i++) {
            CVY_TRY(cvy_plan_read_floats(&dump->inference, names[i], inference[i] + (size_t)b * part[i], part[i]));
            CVY_TRY(cvy_plan_read_floats(&dump->predictions, names[i], training[i] + (size_t)b * part[i], part[i]));
        }
        for (int i = 0; i < CVY_LOSS_PARTS; i++)
            CVY_TRY(cvy_plan_read_floats(&dump->predictions, cvy_loss_part_names[i], losses[i] + b, 1));
        CVY_TRY(reload(dump));
    }
    return CVY_OK;
}

static cvy_status run_steps(struct dump *dump)
{
    const struct cvy_store *store = &dump->network.store;
    float *loss = add_tensor(dump, "", "loss", cvy_shape1(dump->settings.steps));

    if (!loss)
        return cvy_fail_memory((size_t)dump->settings.steps * sizeof *loss, "the losses");
    for (int64_t s = 0; s < dump->settings.steps; s++) {
        const struct cvy_host_batch parts = host_batch(dump, s % dump->settings.cycle, true);
        const struct cvy_batch batch = {.images = parts.images,
                                        .labels = parts.labels,
                                        .boxes = parts.boxes,
                                        .box_labels = parts.box_labels,
                                        .count = (int32_t)dump->settings.batch,
                                        .index = s};
        CVY_TRY(cvy_trainer_step(&dump->trainer, &batch, dump->settings.learning_rate));
        CVY_TRY(cvy_trainer_loss(&dump->trainer, &loss[s]));
        if (s > 0)
            continue;
        CVY_TRY(add_parameters(dump, "gradient.", CVY_PARAM_TRAINABLE, store->gradients));
        CVY_TRY(add_parameters(dump, "state.", CVY_PARAM_STATE, store->state));
        CVY_TRY(add_parameters(dump, "first.", CVY_PARAM_TRAINABLE, store->weights));
    }
    CVY_TRY(add_parameters(dump, "last.", CVY_PARAM_FROZEN, store->state));
    if (dump->settings.quantize)
        CVY_TRY(add_parameters(dump, "last_state.", CVY_PARAM_STATE, store->state));
    return add_parameters(dump, "last.", CVY_PARAM_TRAINABLE, store->weights);
}

static cvy_status run(struct dump *dump)
{
    CVY_TRY(read_inputs(dump));
    CVY_TRY(open_network(dump));
    dump->tensor_capacity = 8 + 4 * (size_t)dump->network.table.param_count;
    dump->tensors = cvy_calloc(dump->tensor_capacity, sizeof *dump->tensors);
    if (!dump->tensors)
        return cvy_fail_memory(dump->tensor_capacity * sizeof *dump->tensors, "the output");
    CVY_TRY(dump->detects ? run_initial_detector(dump) : run_initial(dump));
    CVY_TRY(run_steps(dump));
    return cvy_st_write(dump->settings.out, dump->tensors, dump->tensor_count, NULL, 0);
}

static void release(struct dump *dump)
{
    cvy_batch_upload_close(&dump->inference_upload);
    cvy_plan_close(&dump->inference);
    cvy_plan_close(&dump->predictions);
    cvy_trainer_close(&dump->trainer);
    cvy_network_close(&dump->network);
    cvy_device_close(dump->device);
    cvy_tensor_file_close(&dump->weights);
    cvy_tensor_file_close(&dump->data);
    cvy_free_aligned(dump->images);
    cvy_free_aligned(dump->labels);
    cvy_free_aligned(dump->boxes);
    cvy_free(dump->tensors);
    cvy_arena_release(&dump->arena);
}

int main(int argc, char **argv)
{
    struct dump dump = {0};
    cvy_status status = read_settings(argc, argv, &dump.settings);

    if (status == CVY_OK)
        status = run(&dump);
    if (status != CVY_OK)
        fprintf(stderr, "step_dump: %s\n", cvy_error());
    release(&dump);
    return status;
}
