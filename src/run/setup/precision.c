/* The precision of the automatic recipe. */
#include <string.h>

#include "base/error.h"
#include "ops/ops.h"
#include "options/options.h"
#include "run/ranks/ranks.h"
#include "run/setup/stages.h"

/* Operations of a training below which it stays in fp32: some seconds on two cores, which are not worth another
 * rounding. */
static const double long_training = 1e12;

/* Forward and backward, both multiply-adds and their two operations each; 0 where the network cannot be made. */
static double operations_of(const struct cvy_run *run)
{
    const struct cvy_train_options *o = &run->config->options;
    const struct cvy_architecture *architecture = cvy_architecture_find(o->arch);
    const double images = o->steps > 0 ? (double)o->steps * (double)o->batch_size * run->ranks.comm.world
                                       : (double)o->epochs * (double)run->data.train.sample_count;
    struct cvy_model_options model = cvy_model_options_usual(architecture, 0, (int32_t)o->image_size);
    struct cvy_graph graph;
    double macs;

    if (cvy_model_graph(architecture, &model, CVY_MODEL_INFER, false, &graph) != CVY_OK)
        return 0;
    macs = cvy_graph_macs(&graph);
    cvy_graph_release(&graph);
    return 3 * 2 * macs * images;
}

cvy_status cvy_setup_choose_precision(struct cvy_run *run)
{
    struct cvy_train_options *o = &run->resolving->options;
    int64_t percent;

    if (!run->config->automatic || o->evaluate || o->quantize || cvy_option_source_of(o, "amp") != CVY_FROM_DEFAULT ||
        cvy_option_source_of(o, "precision") != CVY_FROM_DEFAULT || operations_of(run) < long_training)
        return CVY_OK;
    CVY_TRY(cvy_run_open_device(run));
    percent = (int64_t)(100 * cvy_precision_gain(run->state.device));
    CVY_TRY(cvy_ranks_all_reduce_min(&run->ranks, &percent)); /* processors may differ, the precision may not */
    if ((double)percent < 100 * CVY_PRECISION_WORTH)
        return CVY_OK;
    return cvy_train_options_set(o, "precision", "bf16", CVY_FROM_AUTO);
}
