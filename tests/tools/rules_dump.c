/* Trains a small network by the rules that the options name, and writes down what a comparison with PyTorch needs:
 *
 *   rules_dump WEIGHTS DATA OUT [--NAME VALUE]...
 *
 * WEIGHTS holds the tensors of the network below, DATA "images" u8 (M, 32, 32, 3) and "labels" i32 (M). Pass i takes
 * the images [i B mod M, i B mod M + B). With --class-weights 1 DATA holds those too, f32 (K). OUT receives, f32:
 *
 *   loss, rate, scale, skipped (N)   of each optimizer step: the mean loss, the learning rate, and after it the loss
 *                                    scale (0: none) and the steps left out so far
 *   partner, coefficient (passes, B)   with --mixup: who was mixed with whom, and the share of oneself
 *   weights.<name>, state.<name>     after the last step; momentum.<name>, square.<name>, average.<name> where there
 * are
 *
 * The steps are those of `convoy train`. There is no ReLU in the network: no derivative jumps, so that rounding stays
 * rounding over many steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/weights/safetensors.h"
#include "ops/ops.h"
#include "trainer/schedule.h"
#include "trainer/trainer.h"
#include "weights/weights.h"

enum { SIZE = 32 };

struct settings {
    const char *optimizer, *decay_rule, *schedule, *unit, *loss_scale_rule, *mixup_rule, *device;
    double momentum, alpha, eps, nesterov, weight_decay, average, lr, end_lr, loss_scale, lr_decay;
    double accumulate, warmup, epochs, steps_per_epoch, lr_decay_epochs, steps, batch;
    double label_smoothing, mixup, class_weights;
};

struct dump {
    struct settings settings;
    struct cvy_tensor_file weights, data;
    cvy_device *device;
    struct cvy_network network;
    struct cvy_comm comm;
    struct cvy_trainer trainer;
    struct cvy_arena arena; /* names and values of the output */
    struct cvy_named_tensor *tensors;
    size_t count, capacity;
    float *partner, *coefficient; /* (passes, B) of the output; NULL without mixup */
};

/* ---- the network ---- */

static cvy_val conv_bn(struct cvy_graph *graph, cvy_val x, const char *conv, const char *norm, int32_t out,
                       int32_t kernel, int32_t stride)
{
    cvy_scope_push(graph, conv);
    x = cvy_conv2d(graph, x,
                   &(struct cvy_conv2d){.out = out, .kernel = kernel, .stride = stride, .pad = (kernel - 1) / 2});
    cvy_scope_pop(graph);
    cvy_scope_push(graph, norm);
    x = cvy_batch_norm(graph, x, &(struct cvy_batch_norm){.gamma_zero = false});
    cvy_scope_pop(graph);
    return x;
}

/* Names as those of larger networks, with a batch norm that has no "bn" in its name. */
static cvy_val build(struct cvy_graph *graph, cvy_val image, const struct cvy_model_options *options,
                     const void *config)
{
    cvy_val x = cvy_sigmoid(graph, conv_bn(graph, image, "conv1", "bn1", 8, 3, 4)), y;

    (void)config;
    cvy_scope_push(graph, "layer1");
    y = conv_bn(graph, x, "conv1", "bn1", 16, 3, 2);
    cvy_scope_push(graph, "downsample");
    x = conv_bn(graph, x, "0", "1", 16, 1, 2);
    cvy_scope_pop(graph);
    cvy_scope_pop(graph);
    y = cvy_global_avg_pool(graph, cvy_sigmoid(graph, cvy_add(graph, y, x)));
    cvy_scope_push(graph, "fc");
    y = cvy_linear(graph, y, options->num_classes);
    cvy_scope_pop(graph);
    return y;
}
static const struct cvy_architecture architecture = {.name = "small", .build = build, .default_image_size = SIZE};

/* ---- settings ---- */

static cvy_status read_settings(int argc, char **argv, struct settings *s)
{
    const struct {
        const char *name, **text;
        double *number;
    } table[] = {
        {"--optimizer", &s->optimizer, NULL},
        {"--decay-rule", &s->decay_rule, NULL},
        {"--schedule", &s->schedule, NULL},
        {"--unit", &s->unit, NULL},
        {"--device", &s->device, NULL},
        {"--loss-scale-rule", &s->loss_scale_rule, NULL},
        {"--mixup-rule", &s->mixup_rule, NULL},
        {"--mixup", NULL, &s->mixup},
        {"--label-smoothing", NULL, &s->label_smoothing},
        {"--class-weights", NULL, &s->class_weights},
        {"--momentum", NULL, &s->momentum},
        {"--alpha", NULL, &s->alpha},
        {"--eps", NULL, &s->eps},
        {"--nesterov", NULL, &s->nesterov},
        {"--average", NULL, &s->average},
        {"--weight-decay", NULL, &s->weight_decay},
        {"--lr", NULL, &s->lr},
        {"--end-lr", NULL, &s->end_lr},
        {"--loss-scale", NULL, &s->loss_scale},
        {"--lr-decay", NULL, &s->lr_decay},
        {"--accumulate", NULL, &s->accumulate},
        {"--lr-decay-epochs", NULL, &s->lr_decay_epochs},
        {"--warmup", NULL, &s->warmup},
        {"--epochs", NULL, &s->epochs},
        {"--steps", NULL, &s->steps},
        {"--steps-per-epoch", NULL, &s->steps_per_epoch},
        {"--batch", NULL, &s->batch},
    };

    *s = (struct settings){.optimizer = "sgd",
                           .decay_rule = "name",
                           .schedule = "step",
                           .unit = "epoch",
                           .loss_scale_rule = "torch",
                           .mixup_rule = "torch",
                           .device = "cpu"};
    s->steps = s->epochs = 100;
    s->steps_per_epoch = s->accumulate = 1;
    s->batch = 8;
    if (argc < 4 || argc % 2 != 0)
        return cvy_fail(CVY_USAGE, "usage: rules_dump WEIGHTS DATA OUT [--option value]...");
    for (int i = 4; i < argc; i += 2) {
        size_t row = 0;
        while (row < sizeof table / sizeof *table && strcmp(table[row].name, argv[i]) != 0)
            row++;
        if (row == sizeof table / sizeof *table)
            return cvy_fail(CVY_USAGE, "unknown option %s", cvy_quote(argv[i]));
        if (table[row].text)
            *table[row].text = argv[i + 1];
        else
            *table[row].number = strtod(argv[i + 1], NULL);
    }
    return CVY_OK;
}

static cvy_status set_loss(struct dump *dump)
{
    struct cvy_mixup mixup = {.alpha = dump->settings.mixup, .seed = 1, .world = 1};
    const struct cvy_named_tensor *weights = cvy_tensor_find(&dump->data, "class_weights");
    float copy[64];

    if (!cvy_mixup_rule_parse(dump->settings.mixup_rule, &mixup.rule))
        return cvy_fail(CVY_USAGE, "there is no such rule");
    cvy_trainer_set_mixup(&dump->trainer, &mixup);
    if (!dump->network.model.class_weights)
        return CVY_OK;
    if (!weights || weights->bytes > sizeof copy ||
        weights->bytes != (size_t)dump->network.model.num_classes * sizeof *copy)
        return cvy_fail(CVY_BAD_DATA, "the data hold no class weights");
    memcpy(copy, weights->data, weights->bytes);
    return cvy_trainer_set_class_weights(&dump->trainer, copy);
}

static cvy_status open_all(struct dump *dump, char **argv)
{
    const struct settings *s = &dump->settings;
    struct cvy_optimizer_options optimizer = {
        .kind = strcmp(s->optimizer, "rmsprop") == 0 ? CVY_UPDATE_RMSPROP : CVY_UPDATE_SGD,
        .momentum = (float)s->momentum,
        .weight_decay = (float)s->weight_decay,
        .nesterov = s->nesterov > 0,
        .alpha = s->alpha,
        .epsilon = s->eps,
        .accumulate = (int64_t)s->accumulate,
        .average_decay = s->average,
    };
    struct cvy_model_options model;
    float start;

    if (!cvy_decay_rule_find(s->decay_rule, &optimizer.decay_rule) ||
        !cvy_scaler_rule_find(s->loss_scale_rule, &optimizer.scaler, &start))
        return cvy_fail(CVY_USAGE, "there is no such rule");
    optimizer.loss_scale = (float)s->loss_scale;
    CVY_TRY(cvy_st_open(&dump->weights, argv[1]));
    CVY_TRY(cvy_st_open(&dump->data, argv[2]));
    model = cvy_model_options_make(cvy_weights_classes(&dump->weights), SIZE);
    model.label_smoothing = (float)s->label_smoothing;
    model.mixup = s->mixup > 0;
    model.class_weights = s->class_weights > 0;
    CVY_TRY(cvy_device_open(s->device, 2, &dump->device));
    CVY_TRY(cvy_network_open(&dump->network, dump->device, &architecture, &model, CVY_F32, true));
    CVY_TRY(cvy_weights_load(&dump->network, &dump->weights, argv[1], &CVY_WEIGHTS_LOAD_DEFAULTS));
    cvy_comm_single(&dump->comm);
    CVY_TRY(cvy_trainer_open(&dump->trainer, &dump->network, &dump->comm, &optimizer, (int64_t)s->batch));
    CVY_TRY(set_loss(dump));
    if (s->average > 0)
        CVY_TRY(cvy_network_start_average(&dump->network));
    dump->capacity = 16 + 6 * (size_t)dump->network.table.param_count;
    dump->tensors = cvy_calloc(dump->capacity, sizeof *dump->tensors);
    return dump->tensors ? CVY_OK : cvy_fail_memory(dump->capacity, "the output");
}

/* ---- the steps ---- */

static float *add_tensor(struct dump *dump, const char *prefix, const char *name, struct cvy_shape shape)
{
    const size_t bytes = (size_t)cvy_shape_elements(&shape) * sizeof(float);
    float *values = cvy_arena_alloc(&dump->arena, bytes);
    const char *whole = cvy_arena_printf(&dump->arena, "%s%s", prefix, name);

    if (!values || !whole || dump->count == dump->capacity)
        return NULL;
    dump->tensors[dump->count++] =
        (struct cvy_named_tensor){.name = whole, .dtype = CVY_F32, .shape = shape, .data = values, .bytes = bytes};
    return values;
}

static cvy_status add_parameters(struct dump *dump, const char *prefix, enum cvy_param_kind kind, const float *arena)
{
    for (int32_t i = 0; arena && i < dump->network.table.param_count; i++) {
        const struct cvy_param *param = &dump->network.table.params[i];
        float *values;

        if (param->kind != kind)
            continue;
        values = add_tensor(dump, prefix, param->name, param->shape);
        if (!values)
            return cvy_fail_memory(64, param->name);
        CVY_TRY(dump->device->backend->download(dump->device, values, arena + param->offset,
                                                (size_t)cvy_shape_elements(&param->shape) * sizeof(float)));
    }
    return CVY_OK;
}

/* The mean loss of the batches of one step. */
static cvy_status run_step(struct dump *dump, int64_t step, double rate, float *loss)
{
    const struct cvy_named_tensor *images = cvy_tensor_find(&dump->data, "images");
    const struct cvy_named_tensor *labels = cvy_tensor_find(&dump->data, "labels");
    const int64_t batch = (int64_t)dump->settings.batch, each = (int64_t)dump->settings.accumulate;
    double sum = 0;

    if (!images || !labels || labels->shape.dim[0] % batch != 0)
        return cvy_fail(CVY_BAD_DATA, "the data are no whole batches of images and labels");
    for (int64_t i = step * each; i < (step + 1) * each; i++) {
        const int64_t first = i * batch % labels->shape.dim[0];
        const struct cvy_batch one = {.images = (uint8_t *)(uintptr_t)images->data + first * SIZE * SIZE * 3,
                                      .labels = (int32_t *)(uintptr_t)labels->data + first,
                                      .count = (int32_t)batch,
                                      .index = i};
        float part;

        CVY_TRY(cvy_trainer_step(&dump->trainer, &one, rate));
        CVY_TRY(cvy_trainer_loss(&dump->trainer, &part));
        sum += (double)part;
        for (int64_t n = 0; n < batch && dump->partner; n++) {
            dump->partner[i * batch + n] = (float)dump->trainer.partner[n];
            dump->coefficient[i * batch + n] = dump->trainer.coefficient[n];
        }
    }
    *loss = (float)(sum / (double)each);
    return CVY_OK;
}

static cvy_status run_steps(struct dump *dump)
{
    const struct settings *s = &dump->settings;
    const struct cvy_schedule schedule = {
        .kind = (enum cvy_schedule_kind)cvy_schedule_kind_of(s->schedule),
        .learning_rate = s->lr,
        .end_learning_rate = s->end_lr,
        .warmup = (int64_t)s->warmup,
        .epochs = (int64_t)s->epochs,
        .by_step = strcmp(s->unit, "step") == 0,
        .steps_per_epoch = (int64_t)s->steps_per_epoch,
        .decay_factor = s->lr_decay,
        .decay_epochs = (int64_t)s->lr_decay_epochs,
    };
    static const char *const names[] = {"loss", "rate", "scale", "skipped"};
    const int64_t steps = (int64_t)s->steps;
    float *columns[4];

    for (int i = 0; i < 4; i++) {
        columns[i] = add_tensor(dump, "", names[i], cvy_shape1(steps));
        if (!columns[i])
            return cvy_fail_memory((size_t)steps * sizeof(float), names[i]);
    }
    if (s->mixup > 0) {
        const struct cvy_shape shape = cvy_shape2(steps * (int64_t)s->accumulate, (int64_t)s->batch);
        dump->partner = add_tensor(dump, "", "partner", shape);
        dump->coefficient = add_tensor(dump, "", "coefficient", shape);
        if (!dump->partner || !dump->coefficient)
            return cvy_fail_memory((size_t)steps * sizeof(float), "the partners");
    }
    for (int64_t step = 0; step < steps; step++) {
        const double rate = cvy_schedule_rate(&schedule, step / schedule.steps_per_epoch, step);
        struct cvy_scaler scaler;

        CVY_TRY(run_step(dump, step, rate, &columns[0][step]));
        CVY_TRY(cvy_trainer_get_scaler(&dump->trainer, &scaler));
        columns[1][step] = (float)rate;
        columns[2][step] = scaler.scale;
        columns[3][step] = (float)scaler.skipped;
    }
    return CVY_OK;
}

static cvy_status run(struct dump *dump, char **argv)
{
    const struct cvy_store *store = &dump->network.store, *average = &dump->network.average;

    CVY_TRY(open_all(dump, argv));
    CVY_TRY(run_steps(dump));
    CVY_TRY(add_parameters(dump, "weights.", CVY_PARAM_TRAINABLE, store->weights));
    CVY_TRY(add_parameters(dump, "state.", CVY_PARAM_STATE, store->state));
    CVY_TRY(add_parameters(dump, "momentum.", CVY_PARAM_TRAINABLE, store->momentum));
    CVY_TRY(add_parameters(dump, "square.", CVY_PARAM_TRAINABLE, store->square_average));
    CVY_TRY(add_parameters(dump, "average.", CVY_PARAM_TRAINABLE, average->weights));
    CVY_TRY(add_parameters(dump, "average.", CVY_PARAM_STATE, average->state));
    return cvy_st_write(argv[3], dump->tensors, dump->count, NULL, 0);
}

int main(int argc, char **argv)
{
    struct dump dump = {.count = 0};
    cvy_status status = read_settings(argc, argv, &dump.settings);

    if (status == CVY_OK)
        status = run(&dump, argv);
    if (status != CVY_OK)
        fprintf(stderr, "rules_dump: %s\n", cvy_error());
    cvy_trainer_close(&dump.trainer);
    cvy_network_close(&dump.network);
    cvy_device_close(dump.device);
    cvy_tensor_file_close(&dump.weights);
    cvy_tensor_file_close(&dump.data);
    cvy_free(dump.tensors);
    cvy_arena_release(&dump.arena);
    return status;
}
