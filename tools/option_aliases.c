#include "option_aliases.h"

#include <stdio.h>
#include <string.h>

#include "terminal.h"

/* What only one of the programs has says whose line it is. */
enum origin { ANY, PYTORCH, TENSORFLOW };

/* What an option of another program comes to. */
struct option_alias {
    const char *name;
    bool flag;          /* takes no value */
    const char *option; /* ours; NULL: it has no effect here */
    const char *value;  /* flags: the value of ours; others: "theirs=ours theirs=ours", NULL: theirs as it is */
    const char **kept;  /* where the value is kept until the line is complete */
    const char *note;   /* without effect: why; with `refuse`: what to do instead */
    enum origin origin;
    bool refuse; /* leaving it out would give something else than what was asked for */
};

/* What the options of a line mean together (option_aliases_finish). */
static struct {
    const char *data_dir, *mode, *num_iter, *iter_unit, *gpu_id, *model_dir;
    bool pytorch, tensorflow; /* whose options it has */
} line;

static const char by_plan[] = "the layout of every tensor is planned";
static const char compiled[] = "there is nothing to compile at run time";
static const char same_result[] = "both ways compute the same";

static const struct option_alias option_aliases[] = {
    /* PyTorch */
    {.name = "pretrained-from-file", .option = "pretrained-weights"},
    {.name = "conv-init", .origin = PYTORCH, .option = "model-config", .value = "fan_in=fanin fan_out=classic"},
    {.name = "fp16", .origin = PYTORCH, .flag = true, .option = "amp", .value = "true"},
    {.name = "memory-format", .origin = PYTORCH, .note = by_plan},
    {.name = "jit", .origin = PYTORCH, .note = compiled},
    {.name = "trt", .origin = PYTORCH, .note = same_result},
    {.name = "fused-se", .origin = PYTORCH, .note = same_result},
    {.name = "gpu-affinity", .origin = PYTORCH, .note = "threads run where the system lets them"},
    {.name = "checkpoint-filename",
     .note = "the checkpoint is checkpoint.safetensors in the run's --workspace, which --resume takes",
     .refuse = true},
    {.name = "pretrained", .flag = true, .note = "give a weights file with --pretrained-weights", .refuse = true},
    /* TensorFlow */
    {.name = "data-dir", .option = "", .kept = &line.data_dir},
    {.name = "mode", .origin = TENSORFLOW, .option = "", .kept = &line.mode},
    {.name = "num-iter", .origin = TENSORFLOW, .option = "", .kept = &line.num_iter},
    {.name = "iter-unit",
     .origin = TENSORFLOW,
     .option = "",
     .kept = &line.iter_unit,
     .value = "epoch=epoch batch=batch"},
    {.name = "gpu-id", .option = "", .kept = &line.gpu_id},
    {.name = "local-rank", .note = "the environment says which rank a process is"},
    {.name = "run-iter", .option = "run-epochs"},
    {.name = "model-dir", .option = "workspace", .kept = &line.model_dir},
    {.name = "results-dir", .option = "workspace"},
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
    line.pytorch = line.pytorch || option_alias->origin == PYTORCH;
    line.tensorflow = line.tensorflow || option_alias->origin == TENSORFLOW;
    if (option_alias->kept)
        *option_alias->kept = value;
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

/* ---- the line as a whole ---- */

static cvy_status set(struct cvy_train_options *options, const char *name, const char *value)
{
    const cvy_status status = cvy_train_options_set(options, name, value, CVY_FROM_FLAG);

    return status == CVY_OK ? status : terminal_fail_library(status);
}

static bool given(const struct cvy_train_options *options, const char *name)
{
    return options->source[cvy_train_option_find(name)] == CVY_FROM_FLAG;
}

/* --warmup_steps there: the steps before speeds are measured. Here they are those of a rising rate. */
static void forget_warmup_steps(struct cvy_train_options *options)
{
    if (!given(options, "warmup-steps"))
        return;
    options->warmup_steps = 0;
    options->source[cvy_train_option_find("warmup-steps")] = CVY_FROM_DEFAULT;
    terminal_note("option --warmup_steps has no effect: the records have the speed of every step\n");
}

static cvy_status set_all(struct cvy_train_options *options, const char *const (*pairs)[2], size_t count)
{
    cvy_status status = CVY_OK;

    for (size_t i = 0; i < count && status == CVY_OK; i++)
        status = set(options, pairs[i][0], pairs[i][1]);
    return status;
}

/* --num_iter: epochs, or batches of a training whose schedule has 90 epochs, as the program has it. */
static cvy_status apply_length(struct cvy_train_options *options)
{
    const bool batches = line.iter_unit && strcmp(line.iter_unit, "batch") == 0;
    const char *const whole[][2] = {{"epochs", line.num_iter}};
    const char *const part[][2] = {{"epochs", "90"}, {"run-epochs", "1"}, {"prof", line.num_iter}};

    if (!line.num_iter)
        return CVY_OK;
    if (batches && options->evaluate)
        return set(options, "prof", line.num_iter);
    return batches ? set_all(options, part, 3) : set_all(options, whole, 1);
}

static cvy_status apply_mode(struct cvy_train_options *options, bool has_data)
{
    const char *mode = line.mode ? line.mode : "train_and_evaluate";
    const bool benchmark = strcmp(mode, "training_benchmark") == 0 || strcmp(mode, "inference_benchmark") == 0;
    cvy_status status = CVY_OK;

    if (strcmp(mode, "predict") == 0)
        return terminal_fail(CVY_USAGE, "option --mode predict is not of convoy train: convoy classify IMAGE --weights "
                                        "FILE");
    if (strcmp(mode, "train") == 0 || strcmp(mode, "training_benchmark") == 0)
        status = set(options, "training-only", "true");
    else if (strcmp(mode, "evaluate") == 0 || strcmp(mode, "inference_benchmark") == 0)
        status = set(options, "evaluate", "true");
    else if (strcmp(mode, "train_and_evaluate") != 0)
        return terminal_fail(CVY_USAGE,
                             "option --mode is train_and_evaluate, train, evaluate, predict, training_benchmark or "
                             "inference_benchmark, not %s",
                             quoted(mode));
    if (status == CVY_OK && strcmp(mode, "training_benchmark") == 0)
        status = set(options, "no-checkpoints", "true");
    if (status == CVY_OK && benchmark && !has_data && !given(options, "data-backend"))
        status = set(options, "data-backend", "synthetic");
    if (status == CVY_OK && strcmp(mode, "evaluate") == 0 && line.model_dir && !options->resume[0]) {
        status = set(options, "resume", line.model_dir); /* whose latest checkpoint is asked for */
        options->workspace[0] = '\0';
    }
    return status;
}

/* The values of that program for all that its line does not say, and its rules of the loss scale. */
static cvy_status apply_tensorflow(struct cvy_train_options *options)
{
    cvy_status status;

    if (options->recipe[0] || options->resume[0])
        return CVY_OK;
    terminal_note("what this line of the TensorFlow program leaves out is as that program has it: --recipe "
                  "tensorflow\n");
    status = set(options, "recipe", "tensorflow");
    if (status == CVY_OK && strncmp(options->arch, "se-", 3) == 0 && !given(options, "squeeze-width"))
        status = set(options, "squeeze-width", "c/16");
    if (status == CVY_OK && options->amp && !given(options, "loss-scale-rule"))
        status = set(options, "loss-scale-rule", given(options, "static-loss-scale") ? "static" : "tensorflow");
    return status;
}

cvy_status option_aliases_finish(struct cvy_train_options *options, bool has_data)
{
    char device[32];
    cvy_status status = CVY_OK;

    if (line.data_dir) {
        if (strlen(line.data_dir) >= sizeof(options->data) || !*line.data_dir)
            return terminal_fail(CVY_USAGE, "option --data-dir is empty or too long");
        snprintf(options->data, sizeof(options->data), "%s", line.data_dir);
    }
    if (line.gpu_id) {
        snprintf(device, sizeof(device), "cuda:%.20s", line.gpu_id);
        status = given(options, "device") ? CVY_OK : set(options, "device", device);
    }
    if (status == CVY_OK && line.mode)
        status = apply_mode(options, has_data || line.data_dir);
    if (status == CVY_OK)
        status = apply_length(options);
    if (line.tensorflow)
        forget_warmup_steps(options);
    if (status == CVY_OK && line.tensorflow)
        return apply_tensorflow(options);
    if (status == CVY_OK && line.pytorch && !options->recipe[0] && !options->resume[0])
        terminal_note("what this line does not say is chosen from the data (--dry-run shows it); --recipe reference "
                      "has what PyTorch's program takes\n");
    return status;
}
