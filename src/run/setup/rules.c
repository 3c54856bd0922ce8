/* From options to the rules of a training: optimizer, loss scale, schedule. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "options/options.h"
#include "run/setup/stages.h"

/* The loss is scaled where gradients have the narrow exponents of fp16, and where someone asks for it. *rule: the name
 * of the rule, NULL where it is not scaled. A scale that somebody gives never grows unless --dynamic-loss-scale says
 * so, as in PyTorch's program; the automatic one does. */
static cvy_status choose_loss_scale(const struct cvy_train_options *o, enum cvy_dtype dtype,
                                    struct cvy_optimizer_options *optimizer, const char **rule)
{
    const enum cvy_option_source start = cvy_option_source_of(o, "static-loss-scale");
    const char *name = o->loss_scale_rule;
    float usual;

    *rule = NULL;
    if (strcmp(name, "auto") == 0)
        name = o->dynamic_loss_scale || start < CVY_FROM_RECIPE ? "torch" : "torch-fixed";
    else if (o->dynamic_loss_scale && strcmp(name, "static") == 0)
        return cvy_fail(CVY_USAGE, "options --dynamic-loss-scale and --loss-scale-rule static exclude each other");
    if (!cvy_scaler_rule_find(name, &optimizer->scaler, &usual))
        return cvy_fail(CVY_USAGE, "there is no rule %s for the loss scale", cvy_quote(name));
    if (dtype != CVY_F16 && strcmp(o->loss_scale_rule, "auto") == 0) {
        if (start == CVY_FROM_FLAG || cvy_option_source_of(o, "dynamic-loss-scale") == CVY_FROM_FLAG)
            cvy_log(CVY_LOG_WARNING,
                    "the loss scale is for fp16: it is ignored in %s (--loss-scale-rule asks for it all the same)",
                    cvy_dtype_name(dtype));
        return CVY_OK;
    }
    *rule = name;
    optimizer->loss_scale = start > CVY_FROM_DEFAULT && (start > CVY_FROM_AUTO || strcmp(name, "torch") == 0)
                                ? (float)o->static_loss_scale
                                : usual;
    return CVY_OK;
}

/* --bn-weight-decay is the older name of the rule "all". */
static cvy_status choose_decay(const struct cvy_train_options *o, enum cvy_decay_rule *rule)
{
    const enum cvy_option_source named = cvy_option_source_of(o, "weight-decay-rule");

    if (!cvy_decay_rule_find(o->weight_decay_rule, rule))
        return cvy_fail(CVY_USAGE, "there is no rule %s for the weight decay", cvy_quote(o->weight_decay_rule));
    if (!o->bn_weight_decay || *rule == CVY_DECAY_ALL)
        return CVY_OK;
    if (*rule != CVY_DECAY_NAME && named >= cvy_option_source_of(o, "bn-weight-decay"))
        return cvy_fail(CVY_USAGE, "options --bn-weight-decay and --weight-decay-rule %s exclude each other",
                        o->weight_decay_rule);
    *rule = CVY_DECAY_ALL;
    return CVY_OK;
}

/* Saved under its name: a resumed run knows the scale that was reached, but not who had asked for the first one. */
cvy_status cvy_run_resolve_loss_scale(struct cvy_train_options *o, enum cvy_dtype dtype)
{
    struct cvy_optimizer_options optimizer = {0};
    const char *rule;

    CVY_TRY(choose_loss_scale(o, dtype, &optimizer, &rule));
    if (!rule)
        return CVY_OK;
    o->static_loss_scale = (double)optimizer.loss_scale;
    if (rule != o->loss_scale_rule)
        snprintf(o->loss_scale_rule, sizeof o->loss_scale_rule, "%s", rule);
    return CVY_OK;
}

/* By the rule of the step it forgets a share of the training, whatever a step's size and how it is split: torchvision's
 * program scales 1 - D by the images of an update over the epochs. */
static double average_decay(const struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    const double images = (double)(o->batch_size * run->ranks.comm.world * run->config->accumulate);
    const double share = (1 - o->use_ema) * images / (double)o->epochs;

    if (!(o->use_ema > 0) || strcmp(o->ema_rule, "batch") == 0)
        return o->use_ema;
    return share < 1 ? 1 - share : DBL_MIN; /* not 0, which is no average */
}

cvy_status cvy_run_optimizer(const struct cvy_run *run, enum cvy_dtype dtype, struct cvy_optimizer_options *optimizer)
{
    const struct cvy_train_options *o = &run->config->options;
    const char *rule;

    *optimizer = (struct cvy_optimizer_options){
        .kind = strcmp(o->optimizer, "rmsprop") == 0 ? CVY_UPDATE_RMSPROP : CVY_UPDATE_SGD,
        .momentum = (float)o->momentum,
        .weight_decay = (float)o->weight_decay,
        .nesterov = o->nesterov,
        .alpha = o->rmsprop_alpha,
        .epsilon = o->rmsprop_eps,
        .head_ratio = o->head_lr > 0 && o->lr > 0 ? o->head_lr / o->lr : 0,
        .accumulate = run->config->accumulate,
        .average_decay = average_decay(run),
        .average_by_step = strcmp(o->ema_rule, "step") == 0,
        .lars_eta = strcmp(o->optimizer, "lars") == 0 ? o->lars_eta : 0,
    };
    if (optimizer->lars_eta > 0 && !run->state.device->backend->host_memory)
        return cvy_fail(CVY_USAGE, "option --optimizer lars needs --device cpu or ref");
    if (o->nesterov && optimizer->kind != CVY_UPDATE_SGD)
        return cvy_fail(CVY_USAGE, "option --nesterov is for --optimizer sgd or lars, not for %s", o->optimizer);
    CVY_TRY(choose_decay(o, &optimizer->decay_rule));
    return choose_loss_scale(o, dtype, optimizer, &rule);
}

struct cvy_schedule cvy_run_schedule(const struct cvy_run_config *config)
{
    const struct cvy_train_options *o = &config->options;

    return (struct cvy_schedule){
        .kind = (enum cvy_schedule_kind)cvy_schedule_kind_of(o->lr_schedule),
        .learning_rate = o->lr,
        .end_learning_rate = o->end_lr,
        .warmup = o->warmup,
        .epochs = o->epochs,
        .by_step = strcmp(o->lr_unit, "step") == 0,
        .steps_per_epoch = config->steps_per_epoch,
        .steps = o->steps > 0 && o->schedule_steps > 0 ? o->schedule_steps : o->steps,
        .warmup_steps = o->warmup_steps,
        .warmup_rate = o->warmup_lr,
        .decay_factor = o->lr_decay,
        .decay_epochs = o->lr_decay_epochs,
    };
}

/* ---- options that speak of several batches ---- */

static cvy_status resolve_accumulation(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;
    const int64_t world = run->ranks.comm.world, wanted = o->optimizer_batch_size;
    const bool free = run->config->batch_chosen || cvy_option_source_of(o, "batch-size") <= CVY_FROM_AUTO;

    run->resolving->accumulate = 1;
    if (wanted < 0)
        return CVY_OK;
    while (free && o->batch_size > 1 && wanted % (o->batch_size * world) != 0)
        o->batch_size--; /* whoever leaves the choice to us wants one that works */
    if (wanted < o->batch_size * world)
        return cvy_fail(CVY_USAGE, "option --optimizer-batch-size %lld is below the %lld images of one pass",
                        (long long)wanted, (long long)(o->batch_size * world));
    run->resolving->accumulate = wanted / (o->batch_size * world);
    if (wanted % (o->batch_size * world) != 0)
        cvy_log(CVY_LOG_WARNING,
                "--optimizer-batch-size %lld is not a multiple of the %lld images of one pass: a step has %lld",
                (long long)wanted, (long long)(o->batch_size * world),
                (long long)(run->config->accumulate * o->batch_size * world));
    return CVY_OK;
}

/* --lr and --lr-per-256 say the same thing: the one with the higher word counts. */
static cvy_status resolve_rate(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;
    const enum cvy_option_source plain = cvy_option_source_of(o, "lr"), scaled = cvy_option_source_of(o, "lr-per-256");

    if (!(o->lr_per_256 > 0))
        return CVY_OK;
    if (plain > scaled) {
        o->lr_per_256 = 0;
        return CVY_OK;
    }
    if (plain == scaled && (plain == CVY_FROM_FLAG || plain == CVY_FROM_RECIPE))
        return cvy_fail(CVY_USAGE, "options --lr and --lr-per-256 exclude each other");
    o->lr = o->lr_per_256 * (double)(o->batch_size * run->ranks.comm.world * run->config->accumulate) / 256.0;
    return CVY_OK;
}

/* Images as in validation have none of what is drawn for training images. */
static cvy_status check_augmentation(const struct cvy_train_options *o)
{
    static const char *const drawn[] = {"brightness", "contrast", "saturation", "hue", "min-crop-area", NULL};
    const char *name = strcmp(o->augmentation, "off") == 0 ? cvy_option_first_given(o, drawn) : NULL;

    return name ? cvy_fail(CVY_USAGE, "options --augmentation off and --%s exclude each other", name) : CVY_OK;
}

/* In the run directory, and none of the names that a run gives itself. */
static cvy_status check_name(const struct cvy_train_options *o)
{
    static const char *const ours[] = {".safetensors", ".json", ".csv", ".html", ".svg", "events.out."};
    const char *name = o->checkpoint_filename;
    bool taken = strchr(name, '/') || name[0] == '.' ||
                 (name[0] && (strcmp(name, o->raport_file) == 0 || strcmp(name, o->log_every_step) == 0));

    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        taken |= strstr(name, ours[i]) != NULL;
    if (taken)
        return cvy_fail(CVY_USAGE, "option --checkpoint-filename: %s is no name for a checkpoint beside the others",
                        cvy_quote(name));
    return CVY_OK;
}

/* A step of several batches would have some of unequal size. */
static cvy_status check_last_batch(const struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;

    if (strcmp(o->last_batch, "partial") != 0)
        return CVY_OK;
    if (run->config->accumulate > 1)
        return cvy_fail(CVY_USAGE, "options --last-batch partial and --optimizer-batch-size exclude each other");
    return cvy_run_is_synthetic(run->config)
               ? cvy_fail(CVY_USAGE, "option --last-batch partial is for a set of images, not for made-up ones")
               : CVY_OK;
}

static cvy_status check_judge(const struct cvy_train_options *o)
{
    if (strcmp(o->best_of, "ema") == 0 && !(o->use_ema > 0))
        return cvy_fail(CVY_USAGE, "option --best-of ema needs an average: --use-ema 0.9999");
    if (strcmp(o->ema_rule, "step") == 0 && o->steps > 0)
        return cvy_fail(CVY_USAGE, "option --ema-rule step is for a length in epochs, not in --steps");
    if (o->training_only && o->early_stopping > 0)
        return cvy_fail(CVY_USAGE, "option --early-stopping needs a validation, which --training-only leaves out");
    if (o->eval_training_data && !o->evaluate)
        return cvy_fail(CVY_USAGE, "option --eval-training-data says what --evaluate sees, and needs it");
    if (o->training_only && o->evaluate)
        return cvy_fail(CVY_USAGE, "options --evaluate and --training-only exclude each other");
    if (o->training_only && o->eval_count > 0)
        return cvy_fail(CVY_USAGE, "options --eval-count and --training-only exclude each other");
    return CVY_OK;
}

/* A length is said in epochs or in steps; of two, that of the later source counts. */
static cvy_status resolve_length(struct cvy_train_options *o)
{
    const enum cvy_option_source steps = cvy_option_source_of(o, "steps"), epochs = cvy_option_source_of(o, "epochs");

    if (o->steps > 0 && epochs > steps) {
        if (o->warmup_steps > 0 && o->warmup == 0)
            cvy_log(CVY_LOG_WARNING,
                    "with --epochs the %lld steps of rising rate are left out: --warmup says how many epochs of it "
                    "there are",
                    (long long)o->warmup_steps);
        o->steps = 0;
    }
    if (steps == CVY_FROM_AUTO && ((strcmp(o->lr_schedule, "cosine") != 0 && strcmp(o->lr_schedule, "linear") != 0) ||
                                   cvy_option_source_of(o, "warmup") > CVY_FROM_AUTO))
        o->steps = 0; /* nobody asked for steps: the length in epochs does what was asked for */
    if (o->steps == 0) {
        if (o->warmup_steps > 0 && cvy_option_source_of(o, "warmup-steps") == CVY_FROM_FLAG)
            return cvy_fail(CVY_USAGE, "option --warmup-steps needs a length in steps: --steps");
        if (o->warmup_lr > 0 && cvy_option_source_of(o, "warmup-lr") == CVY_FROM_FLAG)
            return cvy_fail(CVY_USAGE, "option --warmup-lr needs a length in steps: --steps");
        if (o->schedule_steps > 0 && cvy_option_source_of(o, "schedule-steps") == CVY_FROM_FLAG)
            return cvy_fail(CVY_USAGE, "option --schedule-steps needs a length in steps: --steps");
        o->warmup_steps = o->schedule_steps = 0;
        return CVY_OK;
    }
    if (o->schedule_steps == o->steps)
        o->schedule_steps = 0;
    if (epochs == CVY_FROM_FLAG)
        return cvy_fail(CVY_USAGE, "options --steps and --epochs exclude each other");
    if (o->warmup > 0 && cvy_option_source_of(o, "warmup") == CVY_FROM_FLAG)
        return cvy_fail(CVY_USAGE, "option --warmup counts epochs: with --steps there is --warmup-steps");
    o->warmup = 0;
    if (strcmp(o->lr_schedule, "cosine") != 0 && strcmp(o->lr_schedule, "linear") != 0)
        return cvy_fail(CVY_USAGE, "option --steps is for --lr-schedule cosine or linear, not %s", o->lr_schedule);
    const int64_t schedule = o->schedule_steps > 0 ? o->schedule_steps : o->steps;
    if (o->warmup_steps >= schedule)
        return cvy_fail(CVY_USAGE, "option --warmup-steps %lld leaves nothing of %lld steps",
                        (long long)o->warmup_steps, (long long)schedule);
    if (o->warmup_steps == 0 && o->warmup_lr > 0 && cvy_option_source_of(o, "warmup-lr") == CVY_FROM_FLAG)
        return cvy_fail(CVY_USAGE, "option --warmup-lr needs steps of rising rate: --warmup-steps");
    return CVY_OK;
}

static cvy_status check_quantization(const struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    const bool folds = o->quantize && strcmp(o->quantize_rule, "tensorflow") == 0;

    if (!o->quantize && (o->symmetric || o->per_channel || o->use_qdq || o->quant_delay > 0 || o->freeze_bn_delay > 0))
        return cvy_fail(CVY_USAGE, "option --%s says how to quantise: it needs --quantize",
                        o->symmetric     ? "symmetric"
                        : o->per_channel ? "per-channel"
                        : o->use_qdq     ? "use-qdq"
                        : o->quant_delay ? "quant-delay"
                                         : "freeze-bn-delay");
    if (o->quantize && run->ranks.comm.world > 1 && strcmp(o->running_statistics, "own") == 0)
        return cvy_fail(CVY_USAGE,
                        "options --quantize and --running-statistics own exclude each other: ranges are rank "
                        "0's");
    if (o->use_qdq && !o->symmetric && !o->per_channel)
        return cvy_fail(CVY_USAGE, "option --use-qdq means scales without zero points: it needs --symmetric");
    if (folds && o->per_channel)
        return cvy_fail(CVY_USAGE, "options --per-channel and --quantize-rule tensorflow exclude each other: that "
                                   "program has one scale for all weights of a layer");
    if (folds && o->sync_bn && run->ranks.comm.world > 1)
        return cvy_fail(CVY_USAGE, "options --sync-bn and --quantize-rule tensorflow exclude each other");
    if (o->freeze_bn_delay > 0 && !folds)
        return cvy_fail(CVY_USAGE, "option --freeze-bn-delay needs --quantize-rule tensorflow");
    return CVY_OK;
}

/* What was asked for and only several processes can have. */
static void warn_alone(const struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    const struct {
        const char *name;
        bool set;
    } options[] = {{"sync-bn", o->sync_bn},
                   {"gradient-compression", strcmp(o->gradient_compression, "none") != 0},
                   {"running-statistics", strcmp(o->running_statistics, "own") == 0}};
    char names[96] = "";
    int count = 0;

    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const size_t used = strlen(names);

        if (!options[i].set || cvy_option_source_of(o, options[i].name) != CVY_FROM_FLAG)
            continue;
        snprintf(names + used, sizeof names - used, "%s--%s", count++ ? ", " : "", options[i].name);
    }
    if (count > 0 && run->ranks.comm.world == 1 && !o->evaluate)
        cvy_log(CVY_LOG_WARNING, "option%s %s %s no effect: there is one process", count == 1 ? "" : "s", names,
                count == 1 ? "has" : "have");
}

cvy_status cvy_run_resolve_rules(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;
    enum cvy_decay_rule decay;

    CVY_TRY(resolve_accumulation(run));
    CVY_TRY(resolve_rate(run));
    CVY_TRY(resolve_length(o));
    CVY_TRY(check_quantization(run));
    CVY_TRY(check_augmentation(o));
    CVY_TRY(check_name(o));
    CVY_TRY(check_last_batch(run));
    CVY_TRY(choose_decay(o, &decay));
    if (decay == CVY_DECAY_ALL) /* saved under one name: a resumed run does not know which option came first */
        snprintf(o->weight_decay_rule, sizeof o->weight_decay_rule, "all");
    warn_alone(run);
    return check_judge(o);
}
