#include "train_options.h"

#include <stdio.h>
#include <string.h>

/* The first row is what --help shows; the last, what somebody forgot to put into one (a test looks for it). */
static const struct {
    const char *heading;
    const char *const names[24];
} groups[] = {
    {"", {"arch",           "recipe",    "epochs",
          "batch-size",     "lr",        "weight-decay",
          "image-size",     "val-split", "pretrained-weights",
          "resume",         "workspace", "amp",
          "early-stopping", "use-ema",   "evaluate",
          "seed",           "device",    "threads",
          "workers",        "processes", "gpus",
          "dry-run"}},
    {"data",
     {"num-classes", "val-split-rule", "train-list", "val-list", "data-idx-dir", "data-backend", "decode", "sampler",
      "exif-orientation", "strict", "ram-cache", "prefetch"}},
    {"what is done to the images",
     {"augmentation", "min-crop-area", "brightness", "contrast", "saturation", "hue", "mixup", "mixup-rule",
      "interpolation", "rounded-scale", "train-crop-size", "eval-resize"}},
    {"network",
     {"model-config", "last-bn-0-init", "bn-momentum", "precise-bn", "padding", "squeeze-width", "reset-head",
      "freeze"}},
    {"loss and optimizer",
     {"label-smoothing", "class-weights", "optimizer", "momentum", "nesterov", "weight-decay-rule", "bn-weight-decay",
      "optimizer-batch-size", "last-batch", "lars-eta", "rmsprop-alpha", "rmsprop-eps"}},
    {"learning rate and length",
     {"lr-schedule", "lr-unit", "lr-per-256", "head-lr", "end-lr", "lr-decay", "lr-decay-epochs", "warmup", "steps",
      "warmup-steps", "schedule-steps", "warmup-lr", "rewinds"}},
    {"validation",
     {"topk", "eval-count", "eval-training-data", "watch", "training-only", "val-loss", "best-of", "ema-rule",
      "early-stopping-min-delta"}},
    {"precision",
     {"precision", "deterministic", "static-loss-scale", "dynamic-loss-scale", "loss-scale-rule", "quantize",
      "symmetric", "per-channel", "use-qdq", "quant-delay", "quantize-rule", "freeze-bn-delay"}},
    {"detection", {"backbone-strides", "coco-slots", "area-rule"}},
    {"several processes", {"sync-bn", "gradient-compression", "running-statistics", "comm-timeout"}},
    {"this run and its files",
     {"run-epochs", "run-steps", "prof", "print-freq", "checkpoint-every", "gather-checkpoints", "checkpoint-filename",
      "no-checkpoints", "raport-file", "log-every-step", "print-recipe", "json"}},
    {"other", {NULL}},
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

const char *train_option(const struct cvy_train_options *options, const char *name)
{
    static char text[CVY_PATH_MAX];
    return cvy_train_options_get(options, name, text, sizeof(text)) == CVY_OK ? text : "";
}

bool train_option_is(const struct cvy_train_options *options, const char *name, const char *value)
{
    return strcmp(train_option(options, name), value) == 0;
}

bool train_option_has(const struct cvy_train_options *options, const char *name)
{
    const struct cvy_option_info *info = cvy_train_option_at((size_t)cvy_train_option_find(name));

    return !train_option_is(options, name, info && info->type == CVY_OPTION_FLAG ? "false" : "");
}

int train_options_group(const char *name)
{
    for (int g = 0; g < GROUPS; g++) {
        for (const char *const *at = groups[g].names; *at; at++) {
            if (strcmp(*at, name) == 0)
                return g;
        }
    }
    return GROUPS - 1;
}

const char *const *train_options_headings(void)
{
    static const char *headings[GROUPS]; /* of all but the first, and NULL */

    for (int g = 1; g < GROUPS; g++)
        headings[g - 1] = groups[g].heading;
    return headings;
}

/* What the automatic recipe decides from the data (doc/training.md). */
static bool is_automatic(const char *name)
{
    static const char *const names[] = {"arch",         "epochs",     "batch-size",      "lr",
                                        "lr-schedule",  "warmup",     "label-smoothing", "momentum",
                                        "weight-decay", "image-size", "eval-resize"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* What the reference programs have without a value, or with one of Python's words. */
static bool (*follows(const char *name))(const char *)
{
    return strcmp(name, "last-bn-0-init") == 0       ? option_follows_python
           : strcmp(name, "gather-checkpoints") == 0 ? option_follows_number
                                                     : NULL;
}

size_t train_options_fill(struct option *rows, char (*help)[256], const struct cvy_train_options *defaults)
{
    size_t count = 0;
    const struct cvy_option_info *info;
    for (; count < TRAIN_OPTIONS_MAX && (info = cvy_train_option_at(count)); count++) {
        char value[256];
        const bool flag = info->type == CVY_OPTION_FLAG;
        cvy_train_option_text(defaults, count, value, sizeof(value));
        if (is_automatic(info->name))
            snprintf(help[count], sizeof(help[0]), "%.160s (default: chosen)", info->help);
        else if (flag || !*value || !strcmp(value, "0") || !strcmp(value, "-1")) /* none, or the help says it */
            snprintf(help[count], sizeof(help[0]), "%s", info->help);
        else
            snprintf(help[count], sizeof(help[0]), "%.160s (default: %.60s)", info->help, value);
        rows[count] = (struct option){.name = info->name,
                                      .alias = info->alias,
                                      .letter = info->letter,
                                      .flag = flag,
                                      .kind = OPTION_FORWARD,
                                      .argument = info->argument,
                                      .help = help[count],
                                      .follows = follows(info->name),
                                      .group = train_options_group(info->name)};
    }
    return count;
}
