/* The option table: every option of a training run with its type, limits and help; set, find and print by name. */
#include "train/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "data/loader.h"
#include "models/models.h"
#include "train/memory.h"

/* One option: what the public table shows, where the value lives, and what it may be. */
struct option_row {
    struct cvy_option_info info;
    size_t offset, size;        /* of the field */
    double low, high;           /* numbers: low <= value <= high */
    bool above_low, below_high; /* numbers: low or high itself is not allowed */
    bool has_special;           /* numbers: `special` is allowed too ("chosen", "all", "off") */
    double special;
    const char *word;           /* numbers: a word that is allowed too, and stands for `special`; NULL */
    const char *const *choices; /* texts: the allowed values, ended by NULL; NULL: any */
    enum cvy_option_group group;
};

static const char *const loss_scale_rules[] = {"auto", "torch", "apex", "fp16-utils", "static", NULL};
static const char *const precisions[] = {"auto", "fp32", "tf32", "fp16", "bf16", "fp64", NULL};
static const char *const data_backends[] = {"pytorch", "synthetic", NULL};
static const char *const model_configs[] = {"classic", "fanin", "grp-fanin", "grp-fanout", NULL};
static const char *const paddings[] = {"torch", "same", NULL};
static const char *const schedules[] = {"step", "linear", "cosine", NULL};
static const char *const optimizers[] = {"sgd", NULL};
static const char *const interpolations[] = {"bilinear", NULL};

#define FIELD(name) offsetof(struct cvy_train_options, name), sizeof(((struct cvy_train_options *)0)->name)
#define TEXT(long_name, alias, letter, argument, field, choices_, group_, help)                                        \
    {                                                                                                                  \
        {long_name, alias, letter, CVY_OPTION_TEXT, argument, help}, FIELD(field), .choices = choices_,                \
                                                                                   .group = group_                     \
    }
#define INT(long_name, alias, letter, field, low_, high_, group_, help)                                                \
    {                                                                                                                  \
        {long_name, alias, letter, CVY_OPTION_INT, "N", help}, FIELD(field), .low = low_, .high = high_,               \
                                                                             .group = group_                           \
    }
#define INT_OR(long_name, letter, field, low_, high_, special_, group_, help)                                          \
    {                                                                                                                  \
        {long_name, NULL, letter, CVY_OPTION_INT, "N", help}, FIELD(field),                                            \
            .low = low_, .high = high_, .has_special = true, .special = special_, .group = group_                      \
    }
#define REAL(long_name, alias, field, low_, high_, help, ...)                                                          \
    {                                                                                                                  \
        {long_name, alias, 0, CVY_OPTION_REAL, "X", help}, FIELD(field), .low = low_, .high = high_, __VA_ARGS__       \
    }
#define FLAG(long_name, field, group_, help)                                                                           \
    {                                                                                                                  \
        {long_name, NULL, 0, CVY_OPTION_FLAG, NULL, help}, FIELD(field), .group = group_                               \
    }

static const struct option_row rows[] = {
    TEXT("arch", NULL, 'a', "NAME", arch, NULL, CVY_OPTION_RESULT, "network: resnet18, resnet34, resnet50, ..."),
    TEXT("recipe", NULL, 0, "NAME|FILE", recipe, NULL, CVY_OPTION_RUN, "base values: a built-in recipe or a file"),
    INT("epochs", NULL, 0, epochs, 1, 1e6, CVY_OPTION_RESULT, "length of the training and of the schedule"),
    {{"batch-size", NULL, 'b', CVY_OPTION_INT, "N|auto", "images in one step; auto: the largest batch for the memory"},
     FIELD(batch_size),
     .low = 1,
     .high = 65536,
     .word = "auto",
     .special = CVY_BATCH_AUTO,
     .group = CVY_OPTION_RESULT},
    REAL("lr", "learning-rate", lr, 0, 1e6, "base learning rate", .group = CVY_OPTION_RESULT),
    REAL("head-lr", NULL, head_lr, 0, 1e6, "base learning rate of the classifier fc (default: that of --lr)",
         .above_low = true, .group = CVY_OPTION_RESULT),
    TEXT("lr-schedule", NULL, 0, "NAME", lr_schedule, schedules, CVY_OPTION_RESULT, "step, linear or cosine"),
    REAL("end-lr", NULL, end_lr, 0, 1e6, "where the cosine schedule ends", .group = CVY_OPTION_RESULT),
    INT("warmup", NULL, 0, warmup, 0, 1e6, CVY_OPTION_RESULT, "epochs of rising learning rate"),
    REAL("label-smoothing", NULL, label_smoothing, 0, 1, "share of the target spread over all classes",
         .below_high = true),
    TEXT("optimizer", NULL, 0, "NAME", optimizer, optimizers, CVY_OPTION_RESULT, "sgd"),
    REAL("momentum", NULL, momentum, 0, 1, "of SGD", .below_high = true),
    REAL("weight-decay", "wd", weight_decay, 0, 1e3, "L2 penalty, not on parameters named bn", .below_high = false),
    FLAG("bn-weight-decay", bn_weight_decay, CVY_OPTION_RESULT, "weight decay on batch norm too"),
    FLAG("nesterov", nesterov, CVY_OPTION_RESULT, "Nesterov momentum"),
    INT("image-size", NULL, 0, image_size, 32, 4096, CVY_OPTION_RESULT, "side of the square network input"),
    INT("eval-resize", NULL, 0, eval_resize, 32, 16384, CVY_OPTION_RESULT,
        "shorter side before the centre crop of validation"),
    REAL("min-crop-area", NULL, min_crop_area, 0, 1, "smallest share of the image a training crop takes",
         .above_low = true, .group = CVY_OPTION_RESULT),
    INT("num-classes", NULL, 0, num_classes, 1, 1000000, CVY_OPTION_RESULT, "outputs (default: counted)"),
    REAL("val-split", NULL, val_split, 0, 1, "share of the training images kept for validation", .above_low = true,
         .below_high = true),
    {{"seed", NULL, 0, CVY_OPTION_UINT, "N", "of every random number"}, FIELD(seed), .group = CVY_OPTION_RESULT},
    TEXT("model-config", NULL, 'c', "NAME", model_config, model_configs, CVY_OPTION_RESULT,
         "initialisation: fanin, classic, grp-fanin, grp-fanout"),
    FLAG("last-bn-0-init", last_bn_0_init, CVY_OPTION_RESULT, "residual branches start at zero"),
    TEXT("padding", NULL, 0, "NAME", padding, paddings, CVY_OPTION_RESULT,
         "torch (the same on every side) or same (TensorFlow's, by what the extent needs)"),
    TEXT("squeeze-width", NULL, 0, "N|c/N", squeeze_width, NULL, CVY_OPTION_RESULT,
         "hidden units of squeeze-and-excitation, or c/N of C channels (default: 16)"),
    TEXT("interpolation", NULL, 0, "NAME", interpolation, interpolations, CVY_OPTION_RESULT, "bilinear"),
    TEXT("data-backend", NULL, 0, "NAME", data_backend, data_backends, CVY_OPTION_RESULT,
         "pytorch (torchvision's transforms) or synthetic (no data)"),
    FLAG("exif-orientation", exif_orientation, CVY_OPTION_RESULT, "turn images as their EXIF data says"),
    FLAG("strict", strict, CVY_OPTION_RESULT, "stop at the first unreadable training image"),
    FLAG("training-only", training_only, CVY_OPTION_RESULT, "no validation"),
    INT_OR("prof", 0, prof, 1, 1e9, -1, CVY_OPTION_RESULT, "steps after which each epoch is cut (-1: all)"),
    INT("topk", NULL, 0, topk, 1, 1000, CVY_OPTION_RESULT, "second accuracy"),
    TEXT("precision", NULL, 0, "P", precision, precisions, CVY_OPTION_RESULT,
         "auto, fp32, bf16 (mixed), tf32 or fp16 (mixed; GPUs), fp64 (device ref)"),
    FLAG("amp", amp, CVY_OPTION_RESULT, "mixed precision: fp16 on a GPU, bf16 on a CPU"),
    REAL("static-loss-scale", NULL, static_loss_scale, 0, 1.7e38, "fp16: the first loss scale", .above_low = true,
         .group = CVY_OPTION_RESULT),
    FLAG("dynamic-loss-scale", dynamic_loss_scale, CVY_OPTION_RESULT, "fp16: --loss-scale-rule apex"),
    TEXT("loss-scale-rule", NULL, 0, "NAME", loss_scale_rule, loss_scale_rules, CVY_OPTION_RESULT,
         "how the loss scale moves: torch, apex, fp16-utils, static (default: torch with fp16)"),
    TEXT("device", NULL, 0, "D", device, NULL, CVY_OPTION_RESULT, "auto, cpu, cuda, cuda:1, ref, check:cpu"),
    INT_OR("threads", 0, threads, 1, 4096, 0, CVY_OPTION_RESULT, "compute threads (0: all cores)"),
    INT_OR("workers", 'j', workers, 1, 1024, -1, CVY_OPTION_RUN, "decoding threads (-1: one for each core)"),
    INT("prefetch", NULL, 0, prefetch, 1, 1024, CVY_OPTION_RUN, "batches made ahead"),
    INT_OR("run-epochs", 0, run_epochs, 1, 1e6, -1, CVY_OPTION_RUN, "epochs of this run (-1: until the end)"),
    INT("print-freq", NULL, 'p', print_freq, 1, 1e9, CVY_OPTION_RUN, "steps between records of the report"),
    INT_OR("checkpoint-every", 0, checkpoint_every, 1, 1e9, 0, CVY_OPTION_RUN, "steps between checkpoints (0: epochs)"),
    FLAG("no-checkpoints", no_checkpoints, CVY_OPTION_RUN, "write no weights"),
    TEXT("pretrained-weights", NULL, 0, "FILE", pretrained_weights, NULL, CVY_OPTION_RUN,
         "start from the weights of a file instead of random ones"),
    FLAG("reset-head", reset_head, CVY_OPTION_RUN, "start a new classifier fc, whatever the file has"),
    TEXT("freeze", NULL, 0, "PREFIX,...", freeze, NULL, CVY_OPTION_RESULT,
         "parameters under these prefixes keep their values: conv1,bn1,layer1"),
    TEXT("workspace", NULL, 0, "DIR", workspace, NULL, CVY_OPTION_RUN,
         "the run directory (default: a new one in runs)"),
    TEXT("resume", NULL, 0, "FILE|RUNDIR", resume, NULL, CVY_OPTION_RUN, "continue from a checkpoint"),
    TEXT("raport-file", NULL, 0, "FILE", raport_file, NULL, CVY_OPTION_RUN, "JSON report inside the run directory"),
    TEXT("log-every-step", NULL, 0, "FILE", log_every_step, NULL, CVY_OPTION_RUN, "CSV of epoch,step,loss,lr"),
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };
_Static_assert(ROW_COUNT <= sizeof(((struct cvy_train_options *)0)->source), "one source for each option");

const struct cvy_option_info *cvy_train_option_at(size_t index)
{
    return index < ROW_COUNT ? &rows[index].info : NULL;
}

enum cvy_option_group cvy_option_group_of(size_t index)
{
    return rows[index].group;
}

void cvy_train_options_init(struct cvy_train_options *options)
{
    *options = (struct cvy_train_options){
        .arch = "resnet50",
        .device = "auto",
        .precision = "auto",
        .data_backend = "pytorch",
        .model_config = "fanin",
        .lr_schedule = "step",
        .optimizer = "sgd",
        .interpolation = "bilinear",
        .loss_scale_rule = "auto",
        .static_loss_scale = 1,
        .padding = "torch",
        .raport_file = "experiment_raport.json",
        .workers = -1,
        .prefetch = CVY_PREFETCH,
        .epochs = 90,
        .run_epochs = -1,
        .batch_size = 256,
        .print_freq = 10,
        .prof = -1,
        .topk = 5,
        .lr = 0.1,
        .momentum = 0.9,
        .weight_decay = 1e-4,
        .min_crop_area = 0.08,
    };
}

/* ---- finding ---- */

/* Compare as option names: underscores are hyphens. `length` characters of `name`; all of `full` when `whole`. */
static bool same_name(const char *full, const char *name, size_t length, bool whole)
{
    for (size_t i = 0; i < length; i++) {
        const char c = name[i] == '_' ? '-' : name[i];
        if (full[i] != c)
            return false;
    }
    return !whole || full[length] == '\0';
}

static int find_exact(const char *name, size_t length)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        const struct cvy_option_info *info = &rows[i].info;
        if (same_name(info->name, name, length, true) || (info->alias && same_name(info->alias, name, length, true)))
            return i;
        if (length == 1 && info->letter != 0 && info->letter == name[0])
            return i;
    }
    return -1;
}

int cvy_train_option_find(const char *name)
{
    const size_t length = strlen(name);
    int found = -1;

    if (length > 0)
        found = find_exact(name, length);
    if (found >= 0)
        return found;
    for (int i = 0; i < ROW_COUNT && length > 0; i++) {
        const struct cvy_option_info *info = &rows[i].info;
        if (!same_name(info->name, name, length, false) &&
            !(info->alias && same_name(info->alias, name, length, false)))
            continue;
        if (found >= 0) {
            cvy_status status = cvy_fail(CVY_USAGE, "option %s may be --%s or --%s", cvy_quote(name),
                                         rows[found].info.name, info->name);
            (void)status;
            return -1;
        }
        found = i;
    }
    if (found < 0) {
        cvy_status status = cvy_fail(CVY_USAGE, "unknown option %s", cvy_quote(name));
        (void)status;
    }
    return found;
}

enum cvy_option_source cvy_option_source_of(const struct cvy_train_options *options, const char *name)
{
    const int index = find_exact(name, strlen(name));

    return index < 0 ? CVY_FROM_DEFAULT : (enum cvy_option_source)options->source[index];
}

/* ---- values ---- */

static void list_choices(const char *const *choices, char *buffer, size_t size)
{
    size_t used = 0;

    buffer[0] = '\0';
    for (size_t i = 0; choices[i] && used < size; i++) {
        const char *separator = i == 0 ? "" : choices[i + 1] ? ", " : " or ";
        const int length = snprintf(buffer + used, size - used, "%s%s", separator, choices[i]);
        used += length > 0 ? (size_t)length : 0;
    }
}

static cvy_status bad_arch(const char *value)
{
    char names[512] = "";
    size_t used = 0;

    for (size_t i = 0; cvy_architecture_at(i) && used < sizeof names; i++) {
        const int length =
            snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", cvy_architecture_at(i)->name);
        used += length > 0 ? (size_t)length : 0;
    }
    return cvy_fail(CVY_USAGE, "option --arch: unknown network %s; there are %s", cvy_quote(value), names);
}

/* The texts that are more than a choice: replaced by their one spelling, kept in `buffer` where that is a new one. */
static cvy_status canonical_text(const struct option_row *row, const char **value, char buffer[16])
{
    int32_t width;

    if (strcmp(row->info.name, "arch") == 0) {
        const struct cvy_architecture *architecture = cvy_architecture_find(*value);
        if (!architecture)
            return bad_arch(*value);
        *value = architecture->name;
    }
    if (strcmp(row->info.name, "squeeze-width") == 0) {
        CVY_TRY(cvy_squeeze_width_parse(*value, &width));
        *value = cvy_squeeze_width_text(width, buffer);
    }
    return CVY_OK;
}

static cvy_status parse_text(const struct option_row *row, const char *value, const char **text, char buffer[16])
{
    char allowed[256];

    CVY_TRY(canonical_text(row, &value, buffer));
    if (row->choices) {
        size_t i = 0;
        while (row->choices[i] && strcmp(row->choices[i], value) != 0)
            i++;
        if (!row->choices[i]) {
            list_choices(row->choices, allowed, sizeof allowed);
            return cvy_fail(CVY_USAGE, "option --%s is %s, not %s", row->info.name, allowed, cvy_quote(value));
        }
    }
    if (value[0] == '\0')
        return cvy_fail(CVY_USAGE, "option --%s is empty", row->info.name);
    if (strlen(value) >= row->size)
        return cvy_fail(CVY_USAGE, "option --%s is longer than %zu bytes", row->info.name, row->size - 1);
    *text = value;
    return CVY_OK;
}

static cvy_status out_of_range(const struct option_row *row, const char *value)
{
    char low[32], high[32], special[64] = "", buffer[32];

    if (row->has_special)
        snprintf(special, sizeof special, " (or %s)", cvy_double_text(row->special, buffer));
    else if (row->word)
        snprintf(special, sizeof special, " (or %s)", row->word);
    return cvy_fail(CVY_USAGE, "option --%s: %s is not %s %s and %s %s%s", row->info.name, cvy_quote(value),
                    row->above_low ? "above" : "at least", cvy_double_text(row->low, low),
                    row->below_high ? "below" : "at most", cvy_double_text(row->high, high), special);
}

static cvy_status check_range(const struct option_row *row, const char *value, double number)
{
    if (row->has_special && number == row->special)
        return CVY_OK;
    if (!(number >= row->low && number <= row->high) || (row->above_low && number == row->low) ||
        (row->below_high && number == row->high))
        return out_of_range(row, value);
    return CVY_OK;
}

/* strtod and strtoll pass over leading white space; a value must not have any. */
static bool starts_well(const char *value)
{
    return value[0] != '\0' && !isspace((unsigned char)value[0]);
}

static cvy_status parse_int(const struct option_row *row, const char *value, int64_t *number)
{
    char *end = NULL;

    if (row->word && strcmp(value, row->word) == 0) {
        *number = (int64_t)row->special;
        return CVY_OK;
    }
    errno = 0;
    *number = strtoll(value, &end, 10);
    if (!starts_well(value) || *end != '\0')
        return cvy_fail(CVY_USAGE, "option --%s: %s is not a whole number", row->info.name, cvy_quote(value));
    if (errno == ERANGE)
        return out_of_range(row, value);
    return check_range(row, value, (double)*number);
}

static cvy_status parse_uint(const struct option_row *row, const char *value, uint64_t *number)
{
    char *end = NULL;

    errno = 0;
    *number = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || *end != '\0' || errno == ERANGE)
        return cvy_fail(CVY_USAGE, "option --%s: %s is not a whole number from 0 to 2^64 - 1", row->info.name,
                        cvy_quote(value));
    return CVY_OK;
}

static cvy_status parse_real(const struct option_row *row, const char *value, double *number)
{
    char *end = NULL;

    *number = cvy_double_parse(value, &end);
    if (!starts_well(value) || *end != '\0')
        return cvy_fail(CVY_USAGE, "option --%s: %s is not a number", row->info.name, cvy_quote(value));
    *number += 0.0; /* -0 is 0: texts and files know one of them */
    return check_range(row, value, *number);
}

static cvy_status parse_flag(const struct option_row *row, const char *value, bool *flag)
{
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};

    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcasecmp(value, yes[i]) == 0 || strcasecmp(value, no[i]) == 0) {
            *flag = strcasecmp(value, yes[i]) == 0;
            return CVY_OK;
        }
    }
    return cvy_fail(CVY_USAGE, "option --%s is true or false, not %s", row->info.name, cvy_quote(value));
}

cvy_status cvy_train_options_set(struct cvy_train_options *options, const char *name, const char *value,
                                 enum cvy_option_source source)
{
    const int index = cvy_train_option_find(name);
    const struct option_row *row;
    const char *text = NULL;
    char buffer[16];
    union {
        int64_t integer;
        uint64_t natural;
        double real;
        bool flag;
    } parsed = {0};

    if (index < 0)
        return CVY_USAGE;
    row = &rows[index];
    if (!value && row->info.type != CVY_OPTION_FLAG)
        return cvy_fail(CVY_USAGE, "option --%s needs a value", row->info.name);
    switch (row->info.type) {
    case CVY_OPTION_TEXT:
        CVY_TRY(parse_text(row, value, &text, buffer));
        break;
    case CVY_OPTION_INT:
        CVY_TRY(parse_int(row, value, &parsed.integer));
        break;
    case CVY_OPTION_UINT:
        CVY_TRY(parse_uint(row, value, &parsed.natural));
        break;
    case CVY_OPTION_REAL:
        CVY_TRY(parse_real(row, value, &parsed.real));
        break;
    case CVY_OPTION_FLAG:
        CVY_TRY(parse_flag(row, value ? value : "true", &parsed.flag));
        break;
    }
    if (options->source[index] > (unsigned char)source)
        return CVY_OK;
    if (text)
        snprintf((char *)options + row->offset, row->size, "%s", text);
    else
        memcpy((char *)options + row->offset, &parsed, row->size);
    options->source[index] = (unsigned char)source;
    return CVY_OK;
}

const char *cvy_train_option_text(const struct cvy_train_options *options, size_t index, char *buffer, size_t size)
{
    char number[32];

    if (size == 0)
        return buffer;
    buffer[0] = '\0';
    if (index >= ROW_COUNT)
        return buffer;
    const void *field = (const char *)options + rows[index].offset;
    switch (rows[index].info.type) {
    case CVY_OPTION_TEXT:
        snprintf(buffer, size, "%s", (const char *)field);
        break;
    case CVY_OPTION_INT:
        if (rows[index].word && *(const int64_t *)field == (int64_t)rows[index].special)
            snprintf(buffer, size, "%s", rows[index].word);
        else
            snprintf(buffer, size, "%lld", (long long)*(const int64_t *)field);
        break;
    case CVY_OPTION_UINT:
        snprintf(buffer, size, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    case CVY_OPTION_REAL:
        snprintf(buffer, size, "%s", cvy_double_text(*(const double *)field, number));
        break;
    case CVY_OPTION_FLAG:
        snprintf(buffer, size, "%s", *(const bool *)field ? "true" : "false");
        break;
    }
    return buffer;
}
