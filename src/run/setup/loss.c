/* From options to the loss of a run: mixup, class weights, and what validation reports. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "options/class_weights.h"
#include "options/options.h"
#include "run/setup/stages.h"

/* Those of a run that continues are in its checkpoint: a file may have changed since. A flag is taken at its word. */
static cvy_status use_saved_weights(struct cvy_run *run, const struct cvy_checkpoint_info *info)
{
    const size_t bytes = (size_t)run->config->options.num_classes * sizeof *run->config->class_weights;

    if (info->class_weight_count != run->config->options.num_classes)
        return cvy_fail(CVY_BAD_DATA, "%s holds %s for %s", cvy_quote(run->resume.file),
                        cvy_counted(info->class_weight_count, "class weight"),
                        cvy_counted(run->config->options.num_classes, "class"));
    if (cvy_option_source_of(&run->config->options, "class-weights") != CVY_FROM_FLAG)
        memcpy(run->config->class_weights, info->class_weights, bytes);
    else if (memcmp(run->config->class_weights, info->class_weights, bytes) != 0)
        cvy_log(CVY_LOG_WARNING, "the class weights are not those of %s any more: the new ones replace them",
                cvy_quote(run->resume.file));
    return CVY_OK;
}

cvy_status cvy_run_class_weights(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    const struct cvy_checkpoint_info *info = &run->resume.info;
    const bool saved = run->resume.found && info->class_weights;

    if (!cvy_has_class_weights(o))
        return CVY_OK;
    if (cvy_run_is_synthetic(run->config))
        return cvy_fail(CVY_USAGE, "option --class-weights: synthetic images have no classes to weigh");
    run->resolving->class_weights = cvy_calloc((size_t)o->num_classes, sizeof *run->resolving->class_weights);
    if (!run->config->class_weights)
        return cvy_fail_memory((size_t)o->num_classes * sizeof *run->config->class_weights, "the class weights");
    if (!saved || cvy_option_source_of(o, "class-weights") == CVY_FROM_FLAG)
        CVY_TRY(cvy_class_weights_make(o->class_weights, &run->data.train, (int32_t)o->num_classes,
                                       run->config->class_weights));
    return saved ? use_saved_weights(run, info) : CVY_OK;
}

cvy_status cvy_run_set_loss(struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    struct cvy_mixup mixup = {
        .alpha = o->mixup, .seed = o->seed, .rank = run->ranks.comm.rank, .world = run->ranks.comm.world};

    if (!cvy_mixup_rule_parse(o->mixup_rule, &mixup.rule))
        return cvy_fail(CVY_USAGE, "option --mixup-rule is torch or tensorflow, not %s", cvy_quote(o->mixup_rule));
    cvy_trainer_set_mixup(&run->state.trainer, &mixup);
    return run->config->class_weights ? cvy_trainer_set_class_weights(&run->state.trainer, run->config->class_weights)
                                      : CVY_OK;
}
