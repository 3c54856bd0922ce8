#include "option_aliases.h"

#include <stdio.h>
#include <string.h>

#include "terminal.h"

/* What an option of another program comes to. */
struct option_alias {
    const char *name;
    bool flag;          /* takes no value */
    const char *option; /* ours; NULL: it has no effect here */
    const char *value;  /* flags: the value of ours; others: "theirs=ours theirs=ours", NULL: theirs as it is */
    const char *note;   /* without effect: why; with `refuse`: what to do instead */
    bool refuse;        /* leaving it out would give something else than what was asked for */
};

static const char by_plan[] = "the layout of every tensor is planned";
static const char compiled[] = "there is nothing to compile at run time";
static const char same_result[] = "both ways compute the same";

static const struct option_alias option_aliases[] = {
    /* PyTorch */
    {.name = "pretrained-from-file", .option = "pretrained-weights"},
    {.name = "conv-init", .option = "model-config", .value = "fan_in=fanin fan_out=classic"},
    {.name = "fp16", .flag = true, .option = "amp", .value = "true"},
    {.name = "memory-format", .note = by_plan},
    {.name = "jit", .note = compiled},
    {.name = "trt", .note = same_result},
    {.name = "fused-se", .note = same_result},
    {.name = "gpu-affinity", .note = "threads run where the system lets them"},
    {.name = "checkpoint-filename",
     .note = "the checkpoint is checkpoint.safetensors in the run's --workspace, which --resume takes",
     .refuse = true},
    {.name = "pretrained", .flag = true, .note = "give a weights file with --pretrained-weights", .refuse = true},
    /* TensorFlow */
    {.name = "data-dir", .note = "the folder of the data is the argument: convoy train DIR", .refuse = true},
    {.name = "mode", .note = "the verb says it: convoy train, evaluate, classify or bench", .refuse = true},
    {.name = "num-iter", .option = "epochs"},
    {.name = "iter-unit", .option = "", .value = "epoch="},
    {.name = "run-iter", .option = "run-epochs"},
    {.name = "model-dir", .option = "workspace"},
    {.name = "results-dir", .option = "workspace"},
    {.name = "log-filename", .option = "raport-file"},
    {.name = "display-every", .option = "print-freq"},
    {.name = "synthetic-data-size", .option = "image-size"},
    {.name = "finetune-checkpoint", .option = "pretrained-weights"},
    {.name = "lr-init", .option = "lr-per-256"},
    {.name = "lr-warmup-epochs", .option = "warmup"},
    {.name = "weight-init", .option = "model-config", .value = "fan_in=tf-fanin fan_out=tf-fanout"},
    {.name = "cosine-lr", .flag = true, .option = "lr-schedule", .value = "cosine"},
    {.name = "use-cosine", .flag = true, .option = "lr-schedule", .value = "cosine"},
    {.name = "use-cosine-lr", .flag = true, .option = "lr-schedule", .value = "cosine"},
    {.name = "use-tf-amp", .flag = true, .option = "amp", .value = "true"},
    {.name = "loss-scale", .option = "static-loss-scale"},
    {.name = "cpu", .flag = true, .option = "device", .value = "cpu"},
    {.name = "use-static-loss-scaling", .flag = true, .note = "a loss scale says it"},
    {.name = "use-final-conv", .flag = true, .note = same_result},
    {.name = "xla", .flag = true, .note = compiled},
    {.name = "use-xla", .flag = true, .note = compiled},
    {.name = "data-format", .note = by_plan},
    {.name = "gpu-memory-fraction", .note = "no memory is taken that is not needed"},
    {.name = "dali", .flag = true, .note = "--data-backend says how images are read"},
    {.name = "export-dir", .note = "convoy convert writes ONNX files of a run's weights", .refuse = true},
    {.name = "to-predict", .note = "convoy classify IMAGE --weights FILE", .refuse = true},
};
enum { COUNT = sizeof(option_aliases) / sizeof(option_aliases[0]) };

size_t option_aliases_fill(struct option *rows, size_t capacity)
{
    size_t count = 0;

    for (; count < COUNT && count < capacity; count++)
        rows[count] = (struct option){
            .name = option_aliases[count].name, .flag = option_aliases[count].flag, .kind = OPTION_FORWARD};
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
    char ours[64] = "";

    if (option_alias->flag && value && strcmp(value, "false") == 0)
        return CVY_OK;
    if (option_alias->flag && value && strcmp(value, "true") != 0)
        return terminal_fail(CVY_USAGE, "option --%s is true or false, not %s", option_alias->name, quoted(value));
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

cvy_status option_aliases_apply(struct cvy_train_options *options, const char *name, const char *value, bool *known)
{
    for (size_t i = 0; i < COUNT; i++) {
        *known = strcmp(option_aliases[i].name, name) == 0;
        if (*known)
            return apply(options, &option_aliases[i], value);
    }
    return CVY_OK;
}
