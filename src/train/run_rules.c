/* From options to the rules of a training: optimizer, loss scale, schedule. */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "train/options.h"
#include "train/run.h"

/* The loss is scaled where gradients have the narrow exponents of fp16, and where someone asks for it. */
static cvy_status choose_loss_scale(const struct cvy_train_options *o, enum cvy_dtype dtype,
                                    struct cvy_optimizer_options *optimizer)
{
    const enum cvy_option_source start = cvy_option_source_of(o, "static-loss-scale");
    const char *name = o->loss_scale_rule;
    float usual;

    if (strcmp(name, "auto") == 0)
        name = o->dynamic_loss_scale ? "apex" : "torch";
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
    optimizer->loss_scale = start > CVY_FROM_DEFAULT && (start > CVY_FROM_AUTO || strcmp(name, "torch") == 0)
                                ? (float)o->static_loss_scale
                                : usual;
    return CVY_OK;
}

cvy_status cvy_run_optimizer(const struct cvy_train_options *o, enum cvy_dtype dtype,
                             struct cvy_optimizer_options *optimizer)
{
    *optimizer = (struct cvy_optimizer_options){
        .momentum = (float)o->momentum,
        .weight_decay = (float)o->weight_decay,
        .nesterov = o->nesterov,
        .decay_rule = o->bn_weight_decay ? CVY_DECAY_ALL : CVY_DECAY_NAME,
        .head_ratio = o->head_lr > 0 && o->lr > 0 ? o->head_lr / o->lr : 0,
    };
    return choose_loss_scale(o, dtype, optimizer);
}

struct cvy_schedule cvy_run_schedule(const struct cvy_train_options *o)
{
    return (struct cvy_schedule){
        .kind = (enum cvy_schedule_kind)cvy_schedule_kind_of(o->lr_schedule),
        .learning_rate = o->lr,
        .end_learning_rate = o->end_lr,
        .warmup = o->warmup,
        .epochs = o->epochs,
    };
}
