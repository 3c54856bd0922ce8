/* --pretrained-weights: the network of a file, and its weights as the start; what stays of it (--freeze). */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "options/options.h"
#include "run/setup/stages.h"
#include "weights/model_variant.h"

/* ---- the network of the file ---- */

static cvy_status set(struct cvy_run *run, const char *name, const char *value)
{
    return cvy_train_options_set(&run->resolving->options, name, value, CVY_FROM_WEIGHTS);
}

/* A flag of this run, or of the one that --resume starts again. */
static bool given(const struct cvy_run_config *config, const char *name)
{
    return cvy_option_source_of(&config->options, name) >= CVY_FROM_RESUME;
}

/* A quantised network continues as one: its ranges are part of what it has learnt. */
static cvy_status choose_quantization(struct cvy_run *run, const struct cvy_model_options *model)
{
    char delay[24];

    if (model->quantize == CVY_QUANTIZE_NONE)
        return CVY_OK;
    snprintf(delay, sizeof delay, "%lld", (long long)model->quant_delay);
    CVY_TRY(set(run, "quantize", "true"));
    CVY_TRY(
        set(run, "symmetric",
            cvy_quantize_symmetric(model->quantize) && model->quantize != CVY_QUANTIZE_CHANNELS ? "true" : "false"));
    CVY_TRY(set(run, "per-channel", model->quantize == CVY_QUANTIZE_CHANNELS ? "true" : "false"));
    CVY_TRY(set(run, "quantize-rule", cvy_quantize_folds(model->quantize) ? "tensorflow" : "convoy"));
    return set(run, "quant-delay", delay);
}

/* The network is the one that --arch, the metadata or the tensors say; flags stay, and loading finds what does not fit.
 */
static cvy_status choose_network(struct cvy_run *run)
{
    const struct cvy_checkpoint_info *info = &run->pretrained.info;
    const char *file = run->config->options.pretrained_weights;
    const char *arch = given(run->config, "arch") ? run->config->options.arch : NULL;
    const char *padding = given(run->config, "padding") ? run->config->options.padding : NULL;
    const char *strides = given(run->config, "backbone-strides") ? run->config->options.backbone_strides : NULL;
    struct cvy_model_options model = cvy_model_options_make(1, 224);
    const struct cvy_architecture *architecture;
    char width[16];

    CVY_TRY(cvy_model_identify(&run->pretrained.tensors, info, file, arch, &architecture, &model));
    CVY_TRY(set(run, "arch", architecture->name));
    if (model.resnet.squeeze_width != 0)
        CVY_TRY(set(run, "squeeze-width", cvy_squeeze_width_text(model.resnet.squeeze_width, width)));
    CVY_TRY(cvy_model_choose_padding(&model, info, file, padding));
    /* A resumed run was told every option; classifiers refuse this one where they refuse all of detectors. */
    if (architecture->task != CVY_TASK_DETECT)
        strides = NULL;
    CVY_TRY(cvy_model_choose_strides(&model, info, architecture, file, strides));
    if (info->padding)
        CVY_TRY(set(run, "padding", info->padding));
    if (info->torchvision_backbone)
        CVY_TRY(set(run, "backbone-strides", "torchvision"));
    if (info->has_preprocessing && info->preprocessing.tensorflow)
        CVY_TRY(set(run, "data-backend", "tensorflow"));
    if (info->has_preprocessing && info->preprocessing.dali)
        CVY_TRY(set(run, "data-backend", info->preprocessing.triangular ? "tensorflow-dali" : "dali-cpu"));
    if (info->has_preprocessing && info->preprocessing.rounded_scale)
        CVY_TRY(set(run, "rounded-scale", "true"));
    if (info->has_preprocessing && info->preprocessing.filter == CVY_FILTER_BICUBIC)
        CVY_TRY(set(run, "interpolation", "bicubic"));
    return choose_quantization(run, &model);
}

/* Weights that were trained with some strides know nothing else. */
static cvy_status choose_backbone(struct cvy_run *run)
{
    const struct cvy_pretrained *start = &run->pretrained;

    if (start->info.same_padding)
        return cvy_fail(CVY_BAD_DATA,
                        "%s was trained with --padding same, which no backbone of %s has: it cannot start with it",
                        cvy_quote(run->config->options.pretrained_weights), run->config->options.arch);
    return set(run, "backbone-strides", start->classifier || start->info.torchvision_backbone ? "torchvision" : "slim");
}

cvy_status cvy_pretrained_open(struct cvy_run *run)
{
    struct cvy_pretrained *start = &run->pretrained;
    const char *file = run->config->options.pretrained_weights;

    if (!file[0] || run->resume.found)
        return CVY_OK;
    CVY_TRY(cvy_weights_open(&start->tensors, file));
    CVY_TRY(cvy_checkpoint_read(&start->tensors, file, &start->info));
    start->used = true;
    start->classifier = cvy_weights_is_classifier(&start->tensors);
    start->backbone =
        cvy_run_is_detection(&run->config->options) && (start->classifier || cvy_weights_is_backbone(&start->tensors));
    if (start->backbone)
        return choose_backbone(run);
    start->classes = cvy_weights_classes(&start->tensors);
    if (run->config->options.evaluate && start->classes > 0) { /* nothing is trained: the classifier is the file's */
        char classes[16];
        snprintf(classes, sizeof classes, "%d", (int)start->classes);
        CVY_TRY(set(run, "num-classes", classes));
    }
    return choose_network(run);
}

void cvy_pretrained_normalization(const struct cvy_run *run, struct cvy_model_options *model)
{
    const struct cvy_checkpoint_info *info = run->resume.found ? &run->resume.info : &run->pretrained.info;

    if (!info->has_preprocessing || run->pretrained.backbone)
        return;
    memcpy(model->mean, info->preprocessing.mean, sizeof model->mean);
    memcpy(model->std, info->preprocessing.std, sizeof model->std);
}

/* ---- what stays ---- */

/* "conv1, bn1, layer1, ..." */
static void list_prefixes(const struct cvy_graph *table, char *list, size_t size)
{
    const char *last = "";
    size_t used = 0;

    list[0] = '\0';
    for (int32_t i = 0; i < table->param_count; i++) {
        const char *name = table->params[i].name;
        const size_t length = strcspn(name, ".");

        if (cvy_name_under(last, name, length) || used >= size)
            continue;
        used += (size_t)snprintf(list + used, size - used, "%s%.*s", used ? ", " : "", (int)length, name);
        last = name;
    }
}

static cvy_status check_prefix(const struct cvy_run *run, const char *prefix, size_t length)
{
    const struct cvy_graph *table = &run->state.network.table;
    char list[512], name[128];

    for (int32_t i = 0; i < table->param_count && length > 0; i++) {
        if (table->params[i].kind == CVY_PARAM_FROZEN && cvy_name_under(table->params[i].name, prefix, length))
            return CVY_OK;
    }
    list_prefixes(table, list, sizeof list);
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), prefix);
    return cvy_fail(CVY_USAGE, "option --freeze: no parameter of %s is under %s; it has %s", run->config->options.arch,
                    cvy_quote(name), list);
}

static bool head_is(const struct cvy_graph *table, enum cvy_param_kind kind)
{
    for (int32_t i = 0; i < table->param_count; i++) {
        if (table->params[i].kind == kind && cvy_is_head(table->params[i].name))
            return true;
    }
    return false;
}

static cvy_status check_freeze(const struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    const char *prefix = o->freeze;

    if (!run->pretrained.used && !run->resume.found)
        return cvy_fail(CVY_USAGE,
                        "option --freeze needs --pretrained-weights: what starts from random numbers must learn");
    for (;;) {
        const size_t length = strcspn(prefix, ",");
        CVY_TRY(check_prefix(run, prefix, length));
        if (!prefix[length])
            break;
        prefix += length + 1;
    }
    if (run->state.network.store.trainable_elements == 0)
        return cvy_fail(CVY_USAGE, "option --freeze %s leaves no parameter to train", o->freeze);
    if (run->pretrained.used && o->reset_head && head_is(&run->state.network.table, CVY_PARAM_FROZEN))
        return cvy_fail(CVY_USAGE, "option --freeze %s would keep the random classifier of --reset-head", o->freeze);
    return CVY_OK;
}

cvy_status cvy_pretrained_check(const struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;

    if (o->reset_head && !run->pretrained.used && !run->resume.found)
        return cvy_fail(CVY_USAGE, "option --reset-head needs --pretrained-weights");
    if (o->freeze[0])
        CVY_TRY(check_freeze(run));
    if (o->head_lr > 0 && o->lr == 0)
        return cvy_fail(CVY_USAGE, "option --head-lr needs an --lr above 0 whose schedule it follows; --freeze keeps "
                                   "the rest as it is");
    if (o->head_lr > 0 && !head_is(&run->state.network.table, CVY_PARAM_TRAINABLE))
        return cvy_fail(CVY_USAGE, "option --head-lr: --freeze %s keeps the classifier as it is", o->freeze);
    return CVY_OK;
}

/* ---- loading ---- */

/* A classifier that is kept belongs to the file's classes. Other names for them are allowed, for a folder may just have
 * been renamed, and training mends what is wrong, but not in silence; a frozen classifier would stay wrong. */
static cvy_status compare_names(struct cvy_run *run)
{
    struct cvy_pretrained *start = &run->pretrained;
    const struct cvy_checkpoint_info *info = &start->info;
    int32_t i = 0;

    while (i < run->data.train.class_count && i < info->class_count &&
           strcmp(run->data.train.classes[i], info->classes[i]) == 0)
        i++;
    if (i == run->data.train.class_count || i == info->class_count)
        return CVY_OK;
    snprintf(start->other_name, sizeof start->other_name, "class %d is %s there and %s here", (int)i,
             cvy_quote(info->classes[i]), cvy_quote(run->data.train.classes[i]));
    if (head_is(&run->state.network.table, CVY_PARAM_FROZEN))
        return cvy_fail(CVY_BAD_DATA, "%s: %s, and --freeze %s keeps the classifier",
                        cvy_quote(run->config->options.pretrained_weights), start->other_name,
                        run->config->options.freeze);
    cvy_log(CVY_LOG_WARNING, "%s: %s; --reset-head starts a new classifier",
            cvy_quote(run->config->options.pretrained_weights), start->other_name);
    return CVY_OK;
}

/* The classifier saw images over their deviation, the detector does not divide: the first convolution does it. Their
 * means differ by less than half a grey level, which batch norm's statistics soon follow. */
static void undo_deviation(const struct cvy_checkpoint_info *info, float scale[3])
{
    const float *std = info->has_preprocessing ? info->preprocessing.std : cvy_imagenet_std;

    for (int i = 0; i < 3; i++)
        scale[i] = std[i] > 0 ? 1 / std[i] : 1;
}

/* Momentum and average, and where the training of the file stands. The loss scale begins anew, as in its program. */
static cvy_status take_progress(struct cvy_run *run)
{
    const struct cvy_pretrained *start = &run->pretrained;
    struct cvy_train_state *state = &run->state.progress;
    const char *file = run->config->options.pretrained_weights;

    if (!run->config->options.evaluate && start->epoch > run->config->options.epochs)
        return cvy_fail(CVY_USAGE, "option --epochs %lld: %s has %lld epochs done already",
                        (long long)run->config->options.epochs, cvy_quote(file), (long long)start->epoch);
    const struct cvy_weights_load_options options = {.any_numbers = !run->config->options.evaluate};
    CVY_TRY(cvy_weights_load_training(&run->state.network, &start->tensors, file, &options, &run->resume.averaged));
    state->epoch = start->epoch;
    state->step = start->epoch * run->config->steps_per_epoch;
    if (start->best_score > 0) { /* of which epoch is not said: the last that it can be */
        state->best_score = start->best_score;
        state->best_epoch = start->epoch - 1;
    }
    return CVY_OK;
}

cvy_status cvy_pretrained_load(struct cvy_run *run)
{
    struct cvy_pretrained *start = &run->pretrained;
    float scale[3];
    const struct cvy_weights_load_options options = {
        .skip_head = run->config->options.reset_head,
        .can_reset_head = true,
        .any_quantizers = true,
        .backbone = start->backbone,
        .first_scale = start->backbone && start->classifier ? scale : NULL,
    };

    if (!start->used)
        return CVY_OK;
    undo_deviation(&start->info, scale);
    CVY_TRY(cvy_weights_load(&run->state.network, &start->tensors, run->config->options.pretrained_weights, &options));
    if (start->continues)
        CVY_TRY(take_progress(run));
    cvy_tensor_file_close(&start->tensors);
    return run->config->options.reset_head || start->backbone ? CVY_OK : compare_names(run);
}

void cvy_pretrained_close(struct cvy_pretrained *start)
{
    cvy_checkpoint_info_release(&start->info);
    cvy_tensor_file_close(&start->tensors);
}
