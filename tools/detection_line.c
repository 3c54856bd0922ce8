/* model_main.py and SSD320_inference.py of TensorFlow's program for ssd320. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "reference_line.h"
#include "terminal.h"
#include "train_options.h"

enum { POLL_SECONDS = 180 };

/* Not from fine_tune_checkpoint: said by a flag, so that the configuration does not set it. */
static cvy_status start_at_random(struct cvy_train_options *options)
{
    return line_reset(options, "pretrained-weights", CVY_FROM_FLAG);
}

/* The only one that the program has. */
static cvy_status apply_hparams(struct cvy_train_options *options)
{
    const char *text = reference_line.hparams;

    if (!text || strcasecmp(text, "load_pretrained=true") == 0)
        return CVY_OK;
    if (strcasecmp(text, "load_pretrained=false") != 0)
        return terminal_fail(CVY_USAGE,
                             "option --hparams_overrides is load_pretrained=true or load_pretrained=false, "
                             "not %s",
                             quoted(text));
    return start_at_random(options);
}

/* --checkpoint_dir: no training; the latest checkpoint once, or each new one. */
static cvy_status apply_evaluation(struct cvy_train_options *options, int *watch)
{
    cvy_status status = line_set(options, "evaluate", "true");

    if (status == CVY_OK)
        status = line_set(options, "resume", reference_line.checkpoint_dir);
    if (status == CVY_OK && !reference_line.run_once && !reference_line.benchmark_iters && *watch == 0)
        *watch = POLL_SECONDS;
    return status;
}

/* SSD320_inference.py: as many batches of the validation images, and nothing but their times. */
static cvy_status apply_benchmark(struct cvy_train_options *options)
{
    cvy_status status = line_set(options, "evaluate", "true");

    if (status == CVY_OK && !reference_line.checkpoint_dir)
        status = start_at_random(options);
    if (status == CVY_OK)
        status = line_default(options, "prof", reference_line.benchmark_iters);
    return status == CVY_OK ? line_default(options, "batch-size", "1") : status;
}

cvy_status detection_line_finish(struct cvy_train_options *options, int *watch)
{
    cvy_status status = apply_hparams(options);

    if (!reference_line.pipeline && !train_option_has(options, "recipe"))
        return terminal_fail(CVY_USAGE, "a line of ssd320's program has --pipeline_config_path");
    if (status == CVY_OK)
        status = line_default(options, "raport-file", "summary.json");
    if (status == CVY_OK && reference_line.checkpoint_dir)
        status = apply_evaluation(options, watch);
    if (status == CVY_OK && reference_line.benchmark_iters)
        status = apply_benchmark(options);
    if (status != CVY_OK || train_option_has(options, "evaluate"))
        return status;
    if (reference_line.run_once || train_option_has(options, "eval-training-data"))
        return terminal_fail(CVY_USAGE, "option --%s is for evaluation alone: it needs --checkpoint_dir",
                             reference_line.run_once ? "run_once" : "eval_training_data");
    status = line_default(options, "eval-count", "1");
    const bool amp = train_option_has(options, "amp");
    if (status == CVY_OK && amp)
        status = line_default(options, "loss-scale-rule", "tensorflow");
    return status == CVY_OK && amp ? line_default(options, "static-loss-scale", "32768") : status;
}
