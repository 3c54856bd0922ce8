/* launch.py --model M --precision P --mode MODE --platform X: the recipe with those names, and what the mode and the
 * machine say besides. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "reference_line.h"
#include "terminal.h"

/* DGX1V-16G and DGX1V-32G have the numbers of DGX1V. */
static void lower(char *to, size_t size, const char *from)
{
    size_t length = 0;

    for (; from[length] && from[length] != '-' && length + 1 < size; length++)
        to[length] = (char)tolower((unsigned char)from[length]);
    to[length] = '\0';
}

static cvy_status choose_recipe(struct cvy_train_options *options)
{
    char platform[32], precision[8], recipe[160];

    lower(platform, sizeof(platform), reference_line.platform);
    lower(precision, sizeof(precision), reference_line.precision);
    snprintf(recipe, sizeof(recipe), "%.64s-%s-%s-250e", reference_line.model, platform, precision);
    if (!cvy_recipe_text(recipe))
        return terminal_fail(CVY_USAGE,
                             "there is no configuration of model %.64s, platform %.32s and precision %.8s here: convoy "
                             "info lists the recipes",
                             reference_line.model, reference_line.platform, reference_line.precision);
    return line_set(options, "recipe", recipe);
}

/* What configs.yml has for each mode. */
static cvy_status apply_mode(struct cvy_train_options *options)
{
    static const struct {
        const char *mode, *pairs[5][2];
    } modes[] = {
        {"convergence", {{"print-freq", "20"}}},
        {"evaluate", {{"print-freq", "20"}, {"epochs", "1"}, {"evaluate", "true"}, {"no-checkpoints", "true"}}},
        {"benchmark_training",
         {{"print-freq", "1"}, {"epochs", "3"}, {"training-only", "true"}, {"no-checkpoints", "true"}}},
        {"benchmark_training_short",
         {{"print-freq", "1"},
          {"epochs", "1"},
          {"training-only", "true"},
          {"no-checkpoints", "true"},
          {"data-backend", "synthetic"}}},
        {"benchmark_inference",
         {{"print-freq", "1"}, {"epochs", "1"}, {"evaluate", "true"}, {"no-checkpoints", "true"}}},
    };

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(modes[i].mode, reference_line.mode) != 0)
            continue;
        for (size_t k = 0; k < 5 && modes[i].pairs[k][0]; k++) {
            const cvy_status status = line_default(options, modes[i].pairs[k][0], modes[i].pairs[k][1]);
            if (status != CVY_OK)
                return status;
        }
        return strstr(modes[i].mode, "short") ? line_default(options, "prof", "100") : CVY_OK;
    }
    return terminal_fail(CVY_USAGE,
                         "option --mode is convergence, evaluate, benchmark_training, benchmark_training_short or "
                         "benchmark_inference in a line of launch.py, not %s",
                         quoted(reference_line.mode));
}

cvy_status launch_line_finish(struct cvy_train_options *options)
{
    const bool a100 = reference_line.platform && strcmp(reference_line.platform, "DGXA100") == 0;
    cvy_status status;

    if (!reference_line.model || !reference_line.platform || !reference_line.precision || !reference_line.mode)
        return terminal_fail(CVY_USAGE, "a line of launch.py has --model, --platform, --precision (AMP, FP32 or TF32) "
                                        "and --mode");
    status = choose_recipe(options);
    if (status == CVY_OK)
        status = apply_mode(options);
    if (status == CVY_OK)
        status = line_default(options, "workers", a100 ? "10" : "8");
    if (status == CVY_OK && strcmp(reference_line.platform, "T4") != 0)
        status = line_default(options, "prefetch", "4");
    return status;
}
