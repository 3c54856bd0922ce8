#include "convert/convert.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/sized.h"
#include "formats/weights/safetensors.h"
#include "models/naming_tensorflow.h"
#include "weights/model_variant.h"

/* ---- formats ---- */

static cvy_status write_safetensors(struct cvy_conversion *c);

static const struct format {
    const char *suffix; /* a longer one stands before its own end */
    cvy_convert_writer write;
    bool network; /* holds the network itself, not only its weights */
} formats[] = {
    {".safetensors", write_safetensors, false}, {".pth.tar", cvy_convert_pth_tar, false},
    {".pth", cvy_convert_pth, false},           {".pt", cvy_convert_pth, false},
    {".index", cvy_convert_tensorflow, false},  {".onnx", cvy_convert_onnx, true},
};
enum { FORMATS = sizeof formats / sizeof *formats };

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);

    return length > tail && strcmp(text + length - tail, end) == 0;
}

static cvy_status find_format(const char *path, const struct format **format)
{
    char known[128] = "";

    for (int i = 0; i < FORMATS; i++) {
        const size_t used = strlen(known);

        if (ends_with(path, formats[i].suffix)) {
            *format = &formats[i];
            return CVY_OK;
        }
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", formats[i].suffix);
    }
    return cvy_fail(CVY_USAGE, "cannot tell the format of the output from the name %s: the suffixes are %s",
                    cvy_quote(path), known);
}

/* An option that would change nothing is a mistake. */
static cvy_status check_options(const struct format *format, const struct cvy_convert_options *options)
{
    if (!format->network && (options->image_size != 0 || options->padding))
        return cvy_fail(CVY_USAGE, "option --%s is for outputs that hold the network itself, not only its weights",
                        options->padding ? "padding" : "image-size");
    if (format->network && options->naming)
        return cvy_fail(CVY_USAGE, "option --naming is for weights files, not for %s", format->suffix);
    if (format->write == cvy_convert_tensorflow && options->naming)
        return cvy_fail(CVY_USAGE,
                        "option --naming is not for %s, a checkpoint of TensorFlow's programs, which has their "
                        "names",
                        format->suffix);
    if (format->write == cvy_convert_pth_tar && options->naming &&
        (strcmp(options->naming, "slim") == 0 || strcmp(options->naming, "tensorflow") == 0))
        return cvy_fail(CVY_USAGE, "option --naming %s is not for %s, a checkpoint of PyTorch's programs",
                        options->naming, format->suffix);
    return CVY_OK;
}

/* ---- what the file holds ---- */

static cvy_status new_list(struct cvy_conversion *c, struct cvy_tensor_list *list)
{
    const size_t bytes = (size_t)c->table.param_count * sizeof *list->tensors;

    list->tensors = cvy_arena_alloc(&c->arena, bytes);
    return list->tensors ? CVY_OK : cvy_fail_memory(bytes, "a list of tensors");
}

/* The tensor of a parameter with a prefix before its name, NULL when the file has none; its name is the parameter's. */
static const struct cvy_named_tensor *find(const struct cvy_conversion *c, const char *prefix,
                                           const struct cvy_param *param)
{
    char name[512];

    snprintf(name, sizeof name, "%s%s", prefix, param->name);
    return cvy_tensor_find(&c->file, name);
}

static bool has_any(const struct cvy_tensor_file *file, const char *prefix)
{
    for (size_t i = 0; i < file->tensor_count; i++)
        if (!strncmp(file->tensors[i].name, prefix, strlen(prefix)))
            return true;
    return false;
}

/* All tensors with a prefix before its name, those of running statistics and counters too unless `trainable` says
 * otherwise. A counter that is not there is that of the weights, or 0. */
static cvy_status gather(struct cvy_conversion *c, const char *prefix, bool trainable, struct cvy_tensor_list *list)
{
    static const int64_t zero;

    CVY_TRY(new_list(c, list));
    for (int32_t i = 0; i < c->table.param_count; i++) {
        const struct cvy_param *param = &c->table.params[i];
        const struct cvy_named_tensor none = {param->name, CVY_I64, {0}, &zero, sizeof zero};
        const struct cvy_named_tensor *tensor = find(c, prefix, param);

        if (trainable && param->kind != CVY_PARAM_TRAINABLE)
            continue;
        if (!tensor && param->kind == CVY_PARAM_COUNTER)
            tensor = find(c, "", param);
        if (!tensor && param->kind == CVY_PARAM_COUNTER)
            tensor = &none;
        if (!tensor || !cvy_weights_fits(param, tensor))
            return cvy_fail(CVY_BAD_DATA, "%s: %s%s is %s", cvy_quote(c->options->input), prefix, param->name,
                            tensor ? "of another shape or type" : "missing");
        list->tensors[list->count] = *tensor;
        list->tensors[list->count].shape = param->shape;
        list->tensors[list->count++].name = param->name;
    }
    return CVY_OK;
}

/* What stands before the names of each list. */
static const char *const last_good_prefixes[CVY_CONVERT_LISTS] = {
    CVY_LAST_GOOD_PREFIX, CVY_LAST_GOOD_PREFIX CVY_MOMENTUM_PREFIX, CVY_LAST_GOOD_PREFIX CVY_SQUARE_PREFIX,
    CVY_LAST_GOOD_PREFIX CVY_EMA_PREFIX};

/* The average of a checkpoint of ours has no counters; that of PyTorch's programs has. */
static void drop_counters(const struct cvy_graph *table, struct cvy_tensor_list *list)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->count; i++)
        if (table->params[i].kind != CVY_PARAM_COUNTER)
            list->tensors[kept++] = list->tensors[i];
    list->count = kept;
}

static size_t count_last_good(const struct cvy_conversion *c)
{
    size_t count = 0;

    for (int i = 0; i < CVY_CONVERT_LISTS; i++)
        count += c->last_good[i].count;
    return count;
}

/* Neither other formats nor the names of TensorFlow's programs have a place for it. */
static void drop_last_good(struct cvy_conversion *c, const struct format *format)
{
    if (format->write != write_safetensors || c->naming == CVY_NAMING_SLIM || c->naming == CVY_NAMING_TENSORFLOW)
        memset(c->last_good, 0, sizeof c->last_good);
}

static cvy_status gather_last_good(struct cvy_conversion *c)
{
    if (!has_any(&c->file, CVY_LAST_GOOD_PREFIX))
        return CVY_OK;
    for (int i = 0; i < CVY_CONVERT_LISTS; i++) {
        const bool optimizer = i == 1 || i == 2;

        if (i > 0 && !has_any(&c->file, last_good_prefixes[i]))
            continue;
        CVY_TRY(gather(c, last_good_prefixes[i], optimizer, &c->last_good[i]));
        if (!optimizer)
            drop_counters(&c->table, &c->last_good[i]);
    }
    return CVY_OK;
}

static cvy_status gather_all(struct cvy_conversion *c)
{
    const struct cvy_convert_options *options = c->options;
    const bool average = has_any(&c->file, CVY_EMA_PREFIX), momentum = has_any(&c->file, CVY_MOMENTUM_PREFIX);
    const bool squares = has_any(&c->file, CVY_SQUARE_PREFIX);

    if (options->ema && !average)
        return cvy_fail(CVY_BAD_DATA, "option --ema: %s holds no moving average of the weights",
                        cvy_quote(options->input));
    CVY_TRY(gather(c, options->ema ? CVY_EMA_PREFIX : "", false, &c->weights));
    if (options->ema || options->weights_only)
        return CVY_OK;
    if (average)
        CVY_TRY(gather(c, CVY_EMA_PREFIX, false, &c->average));
    if (momentum)
        CVY_TRY(gather(c, CVY_MOMENTUM_PREFIX, true, &c->momentum));
    if (squares)
        CVY_TRY(gather(c, CVY_SQUARE_PREFIX, true, &c->squares));
    return gather_last_good(c);
}

/* What the program whose names are taken cannot have. */
static cvy_status check_naming(struct cvy_conversion *c)
{
    const char *what = c->options->input, *const arch = c->architecture->name;
    const bool classifier = c->architecture->task == CVY_TASK_CLASSIFY;

    if (c->theirs)
        c->naming = classifier ? CVY_NAMING_TENSORFLOW : CVY_NAMING_SLIM;
    if (c->naming == CVY_NAMING_SLIM && c->model.detector.torchvision_backbone)
        cvy_log(CVY_LOG_WARNING, "%s has torchvision's strides and padding: TensorFlow's program cannot have them",
                cvy_quote(what));
    if (c->naming != CVY_NAMING_TENSORFLOW)
        return CVY_OK;
    CVY_TRY(cvy_tensorflow_naming_check(arch));
    if (!c->model.resnet.same_padding)
        cvy_log(CVY_LOG_WARNING,
                "%s was trained with --padding torch: TensorFlow's program pads otherwise and loses accuracy with it",
                cvy_quote(what));
    if (c->architecture->squeeze_width != 0 && c->model.resnet.squeeze_width != CVY_TENSORFLOW_SQUEEZE)
        cvy_log(CVY_LOG_WARNING, "%s has not the squeeze width c/16: TensorFlow's program cannot restore it",
                cvy_quote(what));
    return CVY_OK;
}

static cvy_status read_input(struct cvy_conversion *c)
{
    const char *what = c->options->input;
    struct cvy_model_options table;

    CVY_TRY(cvy_weights_open(&c->file, what));
    CVY_TRY(cvy_checkpoint_read(&c->file, what, &c->info));
    c->model = cvy_model_options_make(1, 224);
    CVY_TRY(cvy_model_identify(&c->file, &c->info, what, c->options->arch, &c->architecture, &c->model));
    CVY_TRY(cvy_model_choose_preprocessing(&c->model, &c->info, c->architecture,
                                           &(struct cvy_preprocessing_request){.image_size = c->options->image_size},
                                           &c->preprocessing));
    CVY_TRY(cvy_model_choose_padding(&c->model, &c->info, what, c->options->padding));
    CVY_TRY(cvy_model_choose_strides(&c->model, &c->info, c->architecture, what, c->options->backbone_strides));
    CVY_TRY(check_naming(c));
    /* What was frozen has no momentum. */
    table = c->model;
    table.freeze = c->info.options ? cvy_json_get_string(c->info.options, "freeze", NULL) : NULL;
    CVY_TRY(cvy_model_graph(c->architecture, &table, CVY_MODEL_INFER, false, &c->table));
    CVY_TRY(cvy_weights_check(c->architecture, &c->table, &c->file, what, &CVY_WEIGHTS_LOAD_DEFAULTS));
    return gather_all(c);
}

/* Only safetensors say how a network is quantised. TensorFlow's checkpoints have the network without quantizers, whose
 * weights and batch norms are the same in all forms. */
static cvy_status fold(struct cvy_conversion *c, const struct format *format)
{
    if (!cvy_quantize_folds(c->model.quantize) || format->write == write_safetensors ||
        format->write == cvy_convert_tensorflow)
        return CVY_OK;
    if (format->write == cvy_convert_pth_tar)
        return cvy_fail(CVY_USAGE,
                        "%s was quantised by --quantize-rule tensorflow, which a %s file cannot say: .safetensors, "
                        ".pth and .onnx can",
                        cvy_quote(c->options->input), format->suffix);
    return cvy_convert_fold(c);
}

cvy_status cvy_convert(const struct cvy_convert_options *options, struct cvy_convert_result *result)
{
    CVY_REQUIRE(options);
    struct cvy_convert_options known = CVY_CONVERT_DEFAULTS;
    struct cvy_conversion conversion = {.options = &known};
    const struct format *format = NULL;
    cvy_status status;

    CVY_TRY(cvy_sized_take(&known, sizeof known, options, "cvy_convert_options"));
    if (!known.input || !known.output)
        return cvy_fail(CVY_USAGE, "convert needs an input and an output");
    CVY_GOTO(find_format(known.output, &format));
    CVY_GOTO(check_options(format, &known));
    CVY_GOTO(cvy_naming_find(known.naming ? known.naming : "torchvision", &conversion.naming));
    conversion.theirs = format->write == cvy_convert_tensorflow;
    CVY_GOTO(read_input(&conversion));
    drop_last_good(&conversion, format);
    CVY_GOTO(fold(&conversion, format));
    CVY_GOTO(format->write(&conversion));
    if (result) {
        snprintf(result->arch, sizeof result->arch, "%s", conversion.architecture->name);
        result->num_classes = (int)conversion.model.num_classes;
        result->tensors = conversion.weights.count + conversion.average.count + conversion.momentum.count +
                          conversion.squares.count + count_last_good(&conversion);
    }
fail:
    cvy_graph_release(&conversion.table);
    cvy_checkpoint_info_release(&conversion.info);
    cvy_tensor_file_close(&conversion.file);
    cvy_arena_release(&conversion.arena);
    return status;
}

/* ---- what writers share ---- */

bool cvy_convert_number(const struct cvy_conversion *c, const char *key, double *value)
{
    const char *text = cvy_tensor_metadata(&c->file, key);
    char *end = NULL;

    if (!text)
        return false;
    *value = cvy_double_parse(text, &end);
    return end != text && *end == '\0';
}

static bool is_of_training(const char *key)
{
    static const char *const training[] = {"convoy.state", "convoy.plan", "pytorch.", "tensorflow."};

    for (size_t i = 0; i < sizeof training / sizeof *training; i++)
        if (!strncmp(key, training[i], strlen(training[i])))
            return true;
    return false;
}

/* What the file does not say and the options do. */
static cvy_status describe_model(struct cvy_conversion *c, struct cvy_tensor_meta *entry)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};

    cvy_model_write(&json, &c->model);
    *entry = (struct cvy_tensor_meta){"convoy.model", text.failed ? NULL : cvy_arena_strdup(&c->arena, text.text)};
    cvy_text_release(&text);
    return entry->value ? CVY_OK : cvy_fail_memory(64, "metadata");
}

cvy_status cvy_convert_metadata(struct cvy_conversion *c, bool training, const char *prefix,
                                struct cvy_tensor_meta **metadata, size_t *count)
{
    struct cvy_tensor_meta own[3] = {{"convoy.format", "1"},
                                     {"convoy.arch", cvy_arena_printf(&c->arena, "\"%s\"", c->architecture->name)}};
    const size_t own_count = c->options->backbone_strides || c->folded ? 3 : 2;
    const size_t bytes = (c->file.metadata_count + own_count) * sizeof **metadata;

    *count = 0;
    *metadata = cvy_arena_alloc(&c->arena, bytes);
    if (!*metadata || !own[1].value)
        return cvy_fail_memory(bytes, "metadata");
    if (own_count == 3)
        CVY_TRY(describe_model(c, &own[2]));
    for (size_t i = 0; i < own_count; i++)
        if (!cvy_tensor_metadata(&c->file, own[i].key) || (c->folded && i == 2))
            (*metadata)[(*count)++] = own[i];
    for (size_t i = 0; i < c->file.metadata_count; i++) {
        const struct cvy_tensor_meta *entry = &c->file.metadata[i];
        if (c->folded && strcmp(entry->key, own[2].key) == 0)
            continue;
        if (!strncmp(entry->key, prefix, strlen(prefix)) && (training || !is_of_training(entry->key)))
            (*metadata)[(*count)++] = *entry;
    }
    return CVY_OK;
}

cvy_status cvy_convert_names(struct cvy_conversion *c, struct cvy_tensor_list *list, const char *prefix)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->count; i++) {
        struct cvy_named_tensor *tensor = &list->tensors[kept];

        if (!cvy_naming_has(c->naming, &list->tensors[i]))
            continue;
        *tensor = list->tensors[i];
        kept++;
        if (prefix[0])
            tensor->name = cvy_arena_printf(&c->arena, "%s%s", prefix, tensor->name);
        if (!tensor->name)
            return cvy_fail_memory(strlen(prefix), "a tensor name");
        CVY_TRY(cvy_naming_write(c->naming, c->architecture->name, &c->arena, tensor));
    }
    list->count = kept;
    return CVY_OK;
}

/* ---- safetensors ---- */

static void append(struct cvy_tensor_list *all, const struct cvy_tensor_list *list)
{
    if (list->count > 0)
        memcpy(all->tensors + all->count, list->tensors, list->count * sizeof *list->tensors);
    all->count += list->count;
}

cvy_status cvy_convert_everything(struct cvy_conversion *c, size_t more, struct cvy_tensor_list *all)
{
    const size_t count = c->weights.count + c->average.count + c->momentum.count + c->squares.count + more;

    *all = (struct cvy_tensor_list){cvy_arena_alloc(&c->arena, count * sizeof *all->tensors), 0};
    if (!all->tensors)
        return cvy_fail_memory(count * sizeof *all->tensors, "a list of tensors");
    drop_counters(&c->table, &c->average);
    CVY_TRY(cvy_convert_names(c, &c->weights, ""));
    CVY_TRY(cvy_convert_names(c, &c->average, CVY_EMA_PREFIX));
    CVY_TRY(cvy_convert_names(c, &c->momentum, CVY_MOMENTUM_PREFIX));
    CVY_TRY(cvy_convert_names(c, &c->squares, CVY_SQUARE_PREFIX));
    append(all, &c->weights);
    append(all, &c->momentum);
    append(all, &c->squares);
    append(all, &c->average);
    return CVY_OK;
}

static cvy_status write_safetensors(struct cvy_conversion *c)
{
    struct cvy_tensor_list all;
    struct cvy_tensor_meta *metadata = NULL;
    size_t count = 0;

    CVY_TRY(cvy_convert_metadata(c, !c->options->ema && !c->options->weights_only, "", &metadata, &count));
    CVY_TRY(cvy_convert_everything(c, count_last_good(c), &all));
    for (int i = 0; i < CVY_CONVERT_LISTS; i++) {
        CVY_TRY(cvy_convert_names(c, &c->last_good[i], last_good_prefixes[i]));
        append(&all, &c->last_good[i]);
    }
    return cvy_st_write_from(&c->file, c->options->input, c->options->output, all.tensors, all.count, metadata, count);
}
