#include "option_aliases.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "reference_line.h"
#include "terminal.h"

/* What only one of the programs has says whose line it is. */
enum origin { ANY, PYTORCH, TENSORFLOW, LAUNCH, DETECTION };

/* What an option of another program comes to. */
struct option_alias {
    const char *name;
    bool flag;          /* takes no value */
    const char *option; /* ours; NULL: it has no effect here */
    const char *value;  /* flags: the value of ours; others: "theirs=ours theirs=ours", NULL: theirs as it is */
    const char **kept;  /* where the value is kept until the line is complete */
    const char *note;   /* without effect: why; with `refuse`: what to do instead */
    bool python;        /* a flag that may be followed by True or False, as Python spells them */
    enum origin origin;
    bool refuse; /* leaving it out would give something else than what was asked for */
};

static const char by_plan[] = "the layout of every tensor is planned";
static const char compiled[] = "there is nothing to compile at run time";
static const char same_result[] = "both ways compute the same";
static const char unread[] = "that program takes the option and does not read it";

static const struct option_alias option_aliases[] = {
    /* PyTorch */
    {.name = "pretrained-from-file", .option = "pretrained-weights"},
    {.name = "conv-init", .origin = PYTORCH, .option = "model-config", .value = "fan_in=fanin fan_out=classic"},
    {.name = "fp16", .origin = PYTORCH, .flag = true, .option = "amp", .value = "true"},
    {.name = "memory-format", .origin = PYTORCH, .note = by_plan},
    {.name = "jit", .origin = PYTORCH, .note = compiled},
    {.name = "trt", .origin = PYTORCH, .flag = true, .python = true, .note = same_result},
    {.name = "fused-se", .origin = PYTORCH, .flag = true, .python = true, .note = same_result},
    {.name = "gpu-affinity", .origin = PYTORCH, .note = "threads run where the system lets them"},
    {.name = "pretrained",
     .flag = true,
     .note = "convoy pull NAME downloads weights, and --pretrained-weights NAME starts from them",
     .refuse = true},
    /* launch.py of PyTorch's program */
    {.name = "model", .origin = LAUNCH, .option = "", .kept = &reference_line.model},
    {.name = "platform", .origin = LAUNCH, .option = "", .kept = &reference_line.platform},
    {.name = "cfg-file", .origin = LAUNCH, .note = "the configurations of configs.yml are built in as recipes"},
    {.name = "mode", .option = "", .kept = &reference_line.mode},
    /* ssd320 of TensorFlow's Object Detection API */
    {.name = "pipeline-config-path", .origin = DETECTION, .option = "recipe", .kept = &reference_line.pipeline},
    {.name = "num-train-steps", .origin = DETECTION, .option = "steps"},
    {.name = "checkpoint-dir", .origin = DETECTION, .option = "", .kept = &reference_line.checkpoint_dir},
    {.name = "run-once", .origin = DETECTION, .flag = true, .option = "", .kept = &reference_line.run_once},
    {.name = "hparams-overrides", .origin = DETECTION, .option = "", .kept = &reference_line.hparams},
    {.name = "benchmark-iters", .origin = DETECTION, .option = "", .kept = &reference_line.benchmark_iters},
    {.name = "warmup-iters", .origin = DETECTION, .note = "a time is taken of every batch"},
    {.name = "percentiles", .origin = DETECTION, .note = "50, 90, 95 and 99 % are reported"},
    {.name = "sample-1-of-n-eval-examples", .origin = DETECTION, .note = unread},
    {.name = "sample-1-of-n-eval-on-train-examples", .origin = DETECTION, .note = unread},
    {.name = "allow-xla", .origin = DETECTION, .flag = true, .note = compiled},
    {.name = "alsologtostder", .flag = true, .note = "messages go to standard error anyway"},
    /* TensorFlow */
    {.name = "data-dir", .option = "", .kept = &reference_line.data_dir},
    {.name = "num-iter", .origin = TENSORFLOW, .option = "", .kept = &reference_line.num_iter},
    {.name = "iter-unit",
     .origin = TENSORFLOW,
     .option = "",
     .kept = &reference_line.iter_unit,
     .value = "epoch=epoch batch=batch"},
    {.name = "gpu-id", .option = "", .kept = &reference_line.gpu_id},
    {.name = "local-rank", .note = "the environment says which rank a process is"},
    {.name = "run-iter", .option = "", .kept = &reference_line.run_iter},
    {.name = "model-dir", .option = "workspace", .kept = &reference_line.model_dir},
    {.name = "results-dir", .option = "", .kept = &reference_line.results_dir},
    {.name = "log-filename", .option = "raport-file"},
    {.name = "display-every", .option = "print-freq"},
    {.name = "synthetic-data-size", .option = "image-size"},
    {.name = "finetune-checkpoint", .option = "pretrained-weights"},
    {.name = "lr-init", .origin = TENSORFLOW, .option = "lr-per-256"},
    {.name = "lr-warmup-epochs", .origin = TENSORFLOW, .option = "warmup"},
    {.name = "weight-init",
     .origin = TENSORFLOW,
     .option = "model-config",
     .value = "fan_in=tf-fanin fan_out=tf-fanout"},
    {.name = "cosine-lr", .origin = TENSORFLOW, .flag = true, .option = "lr-schedule", .value = "cosine"},
    {.name = "cosine", .origin = TENSORFLOW, .flag = true, .option = "lr-schedule", .value = "cosine"},
    {.name = "use-cosine", .origin = TENSORFLOW, .flag = true, .option = "lr-schedule", .value = "cosine"},
    {.name = "use-cosine-lr", .origin = TENSORFLOW, .flag = true, .option = "lr-schedule", .value = "cosine"},
    {.name = "use-tf-amp", .flag = true, .option = "amp", .value = "true"},
    {.name = "loss-scale", .option = "static-loss-scale"},
    {.name = "cpu", .flag = true, .option = "device", .value = "cpu"},
    {.name = "use-static-loss-scaling", .flag = true, .note = "a loss scale says it"},
    {.name = "use-final-conv", .flag = true, .note = same_result},
    {.name = "xla", .flag = true, .note = compiled},
    {.name = "use-xla", .flag = true, .note = compiled},
    {.name = "data-format", .note = by_plan},
    {.name = "gpu-memory-fraction", .note = "no memory is taken that is not needed"},
    {.name = "dali", .origin = TENSORFLOW, .flag = true, .option = "data-backend", .value = "tensorflow-dali"},
    {.name = "use-dali", .origin = TENSORFLOW, .flag = true, .option = "data-backend", .value = "tensorflow-dali"},
    {.name = "export-dir", .note = "convoy convert writes ONNX files of a run's weights", .refuse = true},
    {.name = "to-predict", .option = "", .kept = &reference_line.to_predict},
};
enum { COUNT = sizeof(option_aliases) / sizeof(option_aliases[0]) };

size_t option_aliases_fill(struct option *rows, size_t capacity)
{
    size_t count = 0;

    for (; count < COUNT && count < capacity; count++)
        rows[count] = (struct option){.name = option_aliases[count].name,
                                      .flag = option_aliases[count].flag,
                                      .follows = option_aliases[count].python ? option_follows_python : NULL,
                                      .kind = OPTION_FORWARD};
    return count;
}

/* What `theirs` is called in "theirs=ours theirs=ours": into `ours`. */
static bool translate(const char *list, const char *theirs, char *ours, size_t size)
{
    const size_t length = strlen(theirs);

    while (*list) {
        const size_t width = strcspn(list, " ");
        if (strncmp(list, theirs, length) == 0 && list[length] == '=') {
            snprintf(ours, size, "%.*s", (int)(width - length - 1), list + length + 1);
            return true;
        }
        list += width;
        list += strspn(list, " ");
    }
    return false;
}

static cvy_status fail_value(const struct option_alias *option_alias, const char *value)
{
    char allowed[128] = "";

    for (const char *list = option_alias->value; *list;) {
        const size_t used = strlen(allowed), width = strcspn(list, " ");
        snprintf(allowed + used, sizeof(allowed) - used, "%s%.*s", used ? " or " : "", (int)strcspn(list, "="), list);
        list += width;
        list += strspn(list, " ");
    }
    return terminal_fail(CVY_USAGE, "option --%s is %s here, not %s", option_alias->name, allowed, quoted(value));
}

/* `value` is NULL for a flag without one. */
static cvy_status apply(struct cvy_train_options *options, const struct option_alias *option_alias, const char *value)
{
    struct reference_line *line = &reference_line;
    char ours[64] = "";

    if (option_alias->flag && value && strcasecmp(value, "false") == 0)
        return CVY_OK;
    if (option_alias->flag && value && strcasecmp(value, "true") != 0)
        return terminal_fail(CVY_USAGE, "option --%s is true or false, not %s", option_alias->name, quoted(value));
    line->pytorch = line->pytorch || option_alias->origin == PYTORCH;
    line->tensorflow = line->tensorflow || option_alias->origin == TENSORFLOW;
    line->launch = line->launch || option_alias->origin == LAUNCH;
    line->detection = line->detection || option_alias->origin == DETECTION;
    if (option_alias->kept)
        *option_alias->kept = value ? value : "true";
    if (option_alias->refuse)
        return terminal_fail(CVY_USAGE, "option --%s is not of convoy train: %s", option_alias->name,
                             option_alias->note);
    if (!option_alias->option) {
        terminal_note("option --%s has no effect: %s\n", option_alias->name, option_alias->note);
        return CVY_OK;
    }
    if (!option_alias->flag && option_alias->value && !translate(option_alias->value, value, ours, sizeof(ours)))
        return fail_value(option_alias, value);
    if (!*option_alias->option) /* the only value that is allowed says what is so anyway */
        return CVY_OK;
    if (option_alias->value)
        value = option_alias->flag ? option_alias->value : ours;
    const cvy_status status = cvy_train_options_set(options, option_alias->option, value, CVY_FROM_FLAG);
    return status == CVY_OK ? status : terminal_fail_library(status);
}

/* "AMP", "FP32" and "TF32" are how launch.py spells --precision. */
static cvy_status apply_precision(struct cvy_train_options *options, const char *value)
{
    const bool amp = strcmp(value, "AMP") == 0 || strcmp(value, "FP16") == 0;
    const cvy_status status = cvy_train_options_set(options, amp ? "amp" : "precision",
                                                    amp                          ? "true"
                                                    : strcmp(value, "TF32") == 0 ? "tf32"
                                                                                 : "fp32",
                                                    CVY_FROM_FLAG);

    reference_line.precision = value;
    return status == CVY_OK ? status : terminal_fail_library(status);
}

cvy_status option_aliases_apply(struct cvy_train_options *options, const char *name, const char *value, bool *known)
{
    *known = strcmp(name, "precision") == 0 && value && option_is_launch_precision(value);
    if (*known)
        return apply_precision(options, value);
    *known = strcmp(name, "gather-checkpoints") == 0 && !value; /* a flag once: the files of all epochs stay */
    if (*known) {
        const cvy_status status = cvy_train_options_set(options, name, "-1", CVY_FROM_FLAG);
        return status == CVY_OK ? status : terminal_fail_library(status);
    }
    for (size_t i = 0; i < COUNT; i++) {
        *known = strcmp(option_aliases[i].name, name) == 0;
        if (*known)
            return apply(options, &option_aliases[i], value);
    }
    return CVY_OK;
}
