/* A pasted line as a whole: whose it is, and what that program has for what the line leaves out. */
#include "reference_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "terminal.h"
#include "train_options.h"

struct reference_line reference_line;

bool option_is_launch_precision(const char *value)
{
    static const char *const values[] = {"AMP", "FP16", "FP32", "TF32"};

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        if (strcmp(value, values[i]) == 0)
            return true;
    return false;
}

cvy_status line_set(struct cvy_train_options *options, const char *name, const char *value)
{
    const cvy_status status = cvy_train_options_set(options, name, value, CVY_FROM_FLAG);

    return status == CVY_OK ? status : terminal_fail_library(status);
}

bool line_gives(const struct cvy_train_options *options, const char *name)
{
    return cvy_train_options_source(options, name) == CVY_FROM_FLAG;
}

cvy_status line_reset(struct cvy_train_options *options, const char *name, enum cvy_option_source source)
{
    const cvy_status status = cvy_train_options_reset(options, name, source);

    return status == CVY_OK ? status : terminal_fail_library(status);
}

cvy_status line_default(struct cvy_train_options *options, const char *name, const char *value)
{
    return line_gives(options, name) ? CVY_OK : line_set(options, name, value);
}

/* --warmup_steps there: the steps before speeds are measured. Here they are those of a rising rate. */
static cvy_status forget_warmup_steps(struct cvy_train_options *options)
{
    if (!line_gives(options, "warmup-steps"))
        return CVY_OK;
    terminal_note("option --warmup_steps has no effect: the records have the speed of every step\n");
    return line_reset(options, "warmup-steps", CVY_FROM_DEFAULT);
}

static cvy_status set_all(struct cvy_train_options *options, const char *const (*pairs)[2], size_t count)
{
    cvy_status status = CVY_OK;

    for (size_t i = 0; i < count && status == CVY_OK; i++)
        status = line_set(options, pairs[i][0], pairs[i][1]);
    return status;
}

/* --num_iter: epochs, or steps of a training whose schedule has 90 epochs, as the program has it; --run_iter: of them
 * those of this run. */
static cvy_status apply_length(struct cvy_train_options *options)
{
    const char *all = reference_line.num_iter, *now = reference_line.run_iter;
    const bool batches = reference_line.iter_unit && strcmp(reference_line.iter_unit, "batch") == 0;
    const char *const whole[][2] = {{"epochs", all}, {"run-epochs", now}};
    const char *const part[][2] = {{"epochs", "90"}, {"run-steps", now && strcmp(now, "-1") != 0 ? now : all}};

    if (batches && all && train_option_has(options, "evaluate"))
        return line_set(options, "prof", all);
    if (batches && part[1][1])
        return set_all(options, part, 2);
    return set_all(options, all ? whole : whole + 1, (all ? 1 : 0) + (now ? 1 : 0));
}

static void add_words(FILE *line, const char *option, const char *value)
{
    fprintf(line, " %s ", option);
    print_shell_word(line, value);
}

/* --mode predict, --to_predict: the line of convoy classify that is meant, with what this one says. */
static cvy_status fail_predict(const struct cvy_train_options *options)
{
    char *text = NULL;
    size_t size;
    FILE *line = open_memstream(&text, &size);
    cvy_status status;

    if (!line)
        return terminal_fail(CVY_NO_MEMORY, "out of memory");
    if (reference_line.to_predict) {
        fputc(' ', line);
        print_shell_word(line, reference_line.to_predict);
    } else {
        fputs(" IMAGE", line);
    }
    /* The program predicts with the last checkpoint of its folder. */
    if (train_option_has(options, "workspace"))
        add_words(line, "--weights", train_option(options, "workspace"));
    else
        add_words(line, "--weights",
                  train_option_has(options, "pretrained-weights") ? train_option(options, "pretrained-weights")
                                                                  : "FILE");
    if (line_gives(options, "arch"))
        add_words(line, "--arch", train_option(options, "arch"));
    if (line_gives(options, "device"))
        add_words(line, "--device", train_option(options, "device"));
    if (line_gives(options, "precision") && !train_option_has(options, "amp"))
        add_words(line, "--precision", train_option(options, "precision"));
    status = fclose(line) == 0
                 ? terminal_fail(CVY_USAGE, "predictions are not of convoy train: convoy classify%s", text)
                 : terminal_fail(CVY_NO_MEMORY, "out of memory");
    free(text);
    return status;
}

/* Whether the mode is about the checkpoint of the folder. A benchmark does without, and made-up images say nothing. */
static bool takes_checkpoint(const char *mode, const char *folder, bool has_data)
{
    struct cvy_checkpoint_found found;

    if (strcmp(mode, "evaluate") == 0)
        return true;
    return strcmp(mode, "inference_benchmark") == 0 && has_data && cvy_checkpoint_latest(folder, &found) == CVY_OK &&
           found.file[0];
}

static cvy_status apply_mode(struct cvy_train_options *options, bool has_data)
{
    const char *mode = reference_line.mode ? reference_line.mode : "train_and_evaluate";
    const char *checkpoints = reference_line.model_dir ? reference_line.model_dir : reference_line.results_dir;
    const bool benchmark = strcmp(mode, "training_benchmark") == 0 || strcmp(mode, "inference_benchmark") == 0;
    cvy_status status = CVY_OK;

    if (strcmp(mode, "predict") == 0)
        return fail_predict(options);
    if (strcmp(mode, "train") == 0 || strcmp(mode, "training_benchmark") == 0)
        status = line_set(options, "training-only", "true");
    else if (strcmp(mode, "evaluate") == 0 || strcmp(mode, "inference_benchmark") == 0)
        status = line_set(options, "evaluate", "true");
    else if (strcmp(mode, "train_and_evaluate") != 0)
        return terminal_fail(CVY_USAGE,
                             "option --mode is train_and_evaluate, train, evaluate, predict, training_benchmark or "
                             "inference_benchmark, not %s",
                             quoted(mode));
    if (status == CVY_OK && strcmp(mode, "training_benchmark") == 0)
        status = line_set(options, "no-checkpoints", "true");
    if (status == CVY_OK && benchmark && !has_data && !line_gives(options, "data-backend"))
        status = line_set(options, "data-backend", "synthetic");
    if (status == CVY_OK && checkpoints && !train_option_has(options, "resume") &&
        !train_option_has(options, "pretrained-weights") && takes_checkpoint(mode, checkpoints, has_data)) {
        status = line_set(options, "resume", checkpoints); /* whose latest one is asked for */
        if (status == CVY_OK)
            status = line_reset(options, "workspace", CVY_FROM_FLAG);
        if (status == CVY_OK && reference_line.model_dir && reference_line.results_dir)
            status = line_set(options, "workspace", reference_line.results_dir);
    }
    return status;
}

/* The values of that program for all that its line does not say, and its rules of the loss scale. */
static cvy_status apply_tensorflow(struct cvy_train_options *options)
{
    const bool amp = train_option_has(options, "amp");
    cvy_status status = CVY_OK;

    if (amp && train_option_is(options, "precision", "fp32")) /* --precision=fp32 --use_tf_amp, once */
        status = line_reset(options, "precision", CVY_FROM_DEFAULT);
    if (status != CVY_OK)
        return status;
    if (train_option_is(options, "data-backend", "tensorflow-dali") && !train_option_has(options, "data-idx-dir"))
        return terminal_fail(CVY_USAGE, "option --dali needs --data_idx_dir: without it that program would read images "
                                        "without DALI, and not normalise them");
    if (train_option_has(options, "recipe") || train_option_has(options, "resume"))
        return CVY_OK;
    terminal_note("what this line of the TensorFlow program leaves out is as that program has it: --recipe "
                  "tensorflow\n");
    status = line_set(options, "recipe", "tensorflow");
    if (status == CVY_OK && strncmp(train_option(options, "arch"), "se-", 3) == 0 &&
        !line_gives(options, "squeeze-width"))
        status = line_set(options, "squeeze-width", "c/16");
    if (status == CVY_OK && (amp || train_option_is(options, "precision", "fp16")) &&
        !line_gives(options, "loss-scale-rule"))
        status =
            line_set(options, "loss-scale-rule", line_gives(options, "static-loss-scale") ? "static" : "tensorflow");
    return status;
}

/* Any of the shapes that the program trains, asked for by the name that its program has. */
static bool names_network(const struct cvy_train_options *options)
{
    return line_gives(options, "arch") && !train_option_is(options, "arch", "ssd320");
}

/* "batch-size 256, lr 0.1, ...": what PyTorch's program has for what the line leaves to be chosen. */
static void list_defaults(const struct cvy_train_options *options, char *list, size_t size)
{
    static const char *const chosen[] = {"data-backend", "model-config", "epochs",       "batch-size",
                                         "image-size",   "eval-resize",  "lr",           "lr-schedule",
                                         "warmup",       "momentum",     "weight-decay", "val-loss"};
    const bool sized = line_gives(options, "image-size");
    struct cvy_train_options *there = cvy_train_options_new();
    struct cvy_train_plan *plan = NULL;
    size_t used = 0;

    list[0] = '\0';
    if (there && cvy_train_options_set(there, "recipe", "reference", CVY_FROM_FLAG) == CVY_OK &&
        (!sized ||
         cvy_train_options_set(there, "image-size", train_option(options, "image-size"), CVY_FROM_FLAG) == CVY_OK) &&
        cvy_train_dry_run(there, 1, &plan) != CVY_OK)
        plan = NULL;
    for (size_t i = 0; plan && i < sizeof(chosen) / sizeof(chosen[0]) && used < size; i++)
        if (!line_gives(options, chosen[i]) && (sized || strcmp(chosen[i], "eval-resize") != 0))
            used += (size_t)snprintf(list + used, size - used, "%s%s %s", used ? ", " : "", chosen[i],
                                     train_option(cvy_train_plan_options(plan), chosen[i]));
    cvy_train_plan_free(plan);
    cvy_train_options_free(there);
}

static char note[1400];

const char *reference_line_note(void)
{
    return note;
}

/* A line of PyTorch's program that leaves something to the automatic recipe says so, and what that program would do. */
static void explain_defaults(const struct cvy_train_options *options)
{
    static const char *const whole[] = {"epochs", "batch-size", "lr",           "lr-schedule",
                                        "warmup", "momentum",   "weight-decay", "label-smoothing"};
    char list[1024];
    bool complete = names_network(options);

    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
        complete = complete && line_gives(options, whole[i]);
    if (complete || train_option_has(options, "recipe") || train_option_has(options, "resume") ||
        train_option_has(options, "pretrained-weights") || train_option_has(options, "evaluate") ||
        (!reference_line.pytorch && !names_network(options)))
        return;
    list_defaults(options, list, sizeof(list));
    snprintf(note, sizeof(note),
             "what this line does not say is chosen from the data by the automatic recipe (\"automatic\" in what "
             "follows). PyTorch's program has other values for it, which --recipe reference gives: %s\n",
             list);
}

static cvy_status take_names(struct cvy_train_options *options)
{
    char device[32];

    if (reference_line.data_dir) {
        if (cvy_train_options_set_data(options, reference_line.data_dir) != CVY_OK)
            return terminal_fail(CVY_USAGE, "option --data-dir is empty or too long");
    }
    if (reference_line.results_dir &&
        !reference_line.model_dir) { /* --model_dir has the checkpoints where both are given */
        const cvy_status status = line_default(options, "workspace", reference_line.results_dir);
        if (status != CVY_OK)
            return status;
    }
    if (!reference_line.gpu_id)
        return CVY_OK;
    snprintf(device, sizeof(device), "cuda:%.20s", reference_line.gpu_id);
    return line_default(options, "device", device);
}

cvy_status reference_line_finish(struct cvy_train_options *options, bool has_data, int *watch)
{
    cvy_status status = take_names(options);

    if (status != CVY_OK)
        return status;
    if (reference_line.to_predict)
        return fail_predict(options);
    if (reference_line.detection)
        return detection_line_finish(options, watch);
    if (reference_line.launch)
        return launch_line_finish(options);
    reference_line.tensorflow = reference_line.tensorflow || reference_line.mode;
    if (reference_line.mode)
        status = apply_mode(options, has_data || reference_line.data_dir);
    if (status == CVY_OK)
        status = apply_length(options);
    if (status == CVY_OK && reference_line.tensorflow) {
        status = forget_warmup_steps(options);
        if (status == CVY_OK)
            status = line_default(options, "raport-file", "log.json");
        return status == CVY_OK ? apply_tensorflow(options) : status;
    }
    if (status == CVY_OK)
        explain_defaults(options);
    return status;
}
