/* --dry-run: every option as a run would resolve it, and where each value comes from. Nothing is trained or written. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "options/options.h"
#include "options/recipe_auto.h"
#include "run/setup/setup.h"
#include "run/setup/stages.h"
#include "weights/published.h"

enum { DERIVED = CVY_FROM_FLAG + 1, UNKNOWN };

struct cvy_train_plan {
    struct cvy_train_options options;
    unsigned char origin[sizeof(((struct cvy_train_options *)0)->source)]; /* by index of the option table */
    int64_t ranks, accumulate, step_images; /* batches and images of an optimizer step; 0: not known */
};

void cvy_train_plan_free(struct cvy_train_plan *plan)
{
    cvy_free(plan);
}

const struct cvy_train_options *cvy_train_plan_options(const struct cvy_train_plan *plan)
{
    return plan ? &plan->options : NULL;
}

int64_t cvy_train_plan_ranks(const struct cvy_train_plan *plan)
{
    return plan ? plan->ranks : 0;
}

int64_t cvy_train_plan_accumulate(const struct cvy_train_plan *plan)
{
    return plan ? plan->accumulate : 0;
}

int64_t cvy_train_plan_step_images(const struct cvy_train_plan *plan)
{
    return plan ? plan->step_images : 0;
}

const char *cvy_train_plan_origin(const struct cvy_train_plan *plan, size_t index)
{
    static const char *const names[] = {"default",    "automatic", "recipe",  "weights",
                                        "checkpoint", "flag",      "derived", "unknown"};

    return plan && index < sizeof plan->origin && plan->origin[index] < sizeof names / sizeof names[0]
               ? names[plan->origin[index]]
               : names[0];
}

static bool same_text(const struct cvy_train_options *a, const struct cvy_train_options *b, size_t index)
{
    char left[CVY_PATH_MAX], right[CVY_PATH_MAX];

    return strcmp(cvy_train_option_text(a, index, left, sizeof left),
                  cvy_train_option_text(b, index, right, sizeof right)) == 0;
}

/* The automatic recipe where its data are not there: what it always says is known, and for the rest it is given
 * ImageNet's numbers, so that the checks have something to look at; none of that is shown. */
static cvy_status recipe_without_data(struct cvy_train_options *o, int ranks, unsigned char *origin)
{
    if (cvy_architecture_find(o->arch)->task != CVY_TASK_DETECT && cvy_options_are_whole(o))
        return CVY_OK;
    const struct cvy_data_summary summary = {.images = 1281167, .median_side = 375, .ranks = ranks};
    struct cvy_train_options *known = cvy_calloc(1, sizeof *known);
    cvy_status status = CVY_OK;

    if (!known)
        return cvy_fail_memory(sizeof *known, "the options");
    *known = *o;
    if (cvy_architecture_find(o->arch)->task != CVY_TASK_DETECT)
        status = cvy_recipe_apply(known, "auto", cvy_recipe_text("auto"), NULL, CVY_FROM_AUTO);
    if (status == CVY_OK)
        status = cvy_architecture_find(o->arch)->task == CVY_TASK_DETECT ? cvy_auto_recipe_detection(&summary, o)
                                                                         : cvy_auto_recipe(&summary, o);
    for (size_t i = 0; status == CVY_OK && cvy_train_option_at(i); i++) {
        if (o->source[i] == CVY_FROM_AUTO && known->source[i] != CVY_FROM_AUTO)
            origin[i] = UNKNOWN;
    }
    cvy_free(known);
    return status;
}

/* Whether the images can be opened; a resumed run may have been told them by its options. */
static bool has_data(const struct cvy_run_config *config)
{
    return !cvy_run_is_synthetic(config) && config->options.data[0] && cvy_path_exists(config->options.data);
}

/* Whether the weights that a run starts from are there. */
static bool has_start(const struct cvy_run_config *config)
{
    const char *file = config->options.pretrained_weights;
    char pulled[CVY_PATH_MAX];
    bool published = false;

    if (!file[0] || cvy_tensor_file_exists(file) ||
        (cvy_published_resolve(file, pulled, sizeof pulled, &published) == CVY_OK && published))
        return true;
    cvy_log(CVY_LOG_WARNING, "%s is not there: what it says of the network is not known", cvy_quote(file));
    return false;
}

static cvy_status read_inputs(struct cvy_run *run, unsigned char *origin)
{
    CVY_TRY(cvy_setup_name_data(&run->resolving->options));
    CVY_TRY(cvy_resume_open(run));
    CVY_TRY(cvy_setup_apply_recipe(run));
    const bool data = has_data(run->config);
    if (data)
        CVY_TRY(cvy_run_choose_task(run));
    if (has_start(run->config))
        CVY_TRY(cvy_pretrained_open(run));
    if (data)
        CVY_TRY(cvy_setup_open_data(run));
    if (data || cvy_run_is_synthetic(run->config))
        return cvy_setup_choose_recipe(run); /* opens the device where the batch is to be what its memory takes */
    return run->resume.found ? CVY_OK : recipe_without_data(&run->resolving->options, run->ranks.comm.world, origin);
}

static cvy_status resolve(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;
    enum cvy_dtype dtype = CVY_F32;

    CVY_TRY(cvy_setup_resolve_options(run));
    if (run->state.device)
        CVY_TRY(cvy_precision_choose(o->precision, run->state.device, &dtype));
    else if (strcmp(o->precision, "fp16") == 0 || (o->amp && strcmp(o->precision, "auto") == 0))
        dtype = CVY_F16; /* as on a GPU */
    else if (strcmp(o->precision, "bf16") == 0)
        dtype = CVY_BF16;
    return cvy_run_resolve_loss_scale(o, dtype);
}

/* What the data have still to say is not known. */
static void hide(unsigned char *origin, const char *name, bool hidden)
{
    if (hidden)
        origin[cvy_train_option_find(name)] = UNKNOWN;
}

static cvy_status make_plan(struct cvy_run *run, struct cvy_train_plan *plan)
{
    const struct cvy_train_options *o = &run->config->options;

    CVY_TRY(read_inputs(run, plan->origin));
    CVY_TRY(cvy_setup_choose_precision(run));
    plan->options = *o;
    CVY_TRY(resolve(run));
    for (size_t i = 0; cvy_train_option_at(i); i++) {
        if (plan->origin[i] != UNKNOWN)
            plan->origin[i] = same_text(&plan->options, o, i) ? o->source[i] : (unsigned char)DERIVED;
    }
    plan->options = *o;
    const bool batch = plan->origin[cvy_train_option_find("batch-size")] != UNKNOWN;
    hide(plan->origin, "num-classes", o->num_classes == 0);
    if (o->lr_per_256 > 0) /* it decides on the rate, whatever the automatic recipe had said */
        plan->origin[cvy_train_option_find("lr")] = batch || o->optimizer_batch_size > 0 ? DERIVED : UNKNOWN;
    plan->ranks = run->ranks.comm.world;
    plan->accumulate = batch ? run->config->accumulate : 0;
    plan->step_images = batch ? o->batch_size * run->config->accumulate * plan->ranks : 0;
    return CVY_OK;
}

cvy_status cvy_train_dry_run(const struct cvy_train_options *options, int ranks, struct cvy_train_plan **plan)
{
    CVY_REQUIRE(plan);
    *plan = NULL;
    CVY_REQUIRE(options);
    struct cvy_run *run = cvy_calloc(1, sizeof *run);
    cvy_status status;

    *plan = cvy_calloc(1, sizeof **plan);
    if (!run || !*plan) {
        status = cvy_fail_memory(sizeof *run + sizeof **plan, "the plan of a training");
        goto fail;
    }
    run->config = run->resolving = &run->owned_config;
    run->resolving->options = *options;
    cvy_comm_single(&run->ranks.comm);
    run->ranks.comm.world = ranks > 0 ? ranks : 1; /* only counted: a single process asks nobody */
    run->ranks.on_cores = run->ranks.comm.world;
    status = make_plan(run, *plan);
    run->ranks.comm.world = 1;
    cvy_run_close(run);
    if (status == CVY_OK) {
        cvy_free(run);
        return CVY_OK;
    }
fail:
    cvy_train_plan_free(*plan);
    *plan = NULL;
    cvy_free(run);
    return status;
}
