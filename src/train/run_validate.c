/* The validation of a run: one pass, a record every --print-freq batches. */
#include "base/error.h"
#include "train/run_ranks.h"

/* A pass that goes on, and where its last record ended. */
struct validation {
    struct cvy_run *run;
    const char *name;               /* "val", "val_ema" */
    cvy_evaluate_progress progress; /* the caller's */
    void *context;
    struct cvy_pass pass;
    struct cvy_pass seen;
    cvy_status status; /* of the records */
};

/* What was done between two moments of a pass. */
static struct cvy_run_validation between(const struct validation *v, const struct cvy_pass *from,
                                         const struct cvy_pass *to)
{
    const struct cvy_metrics part = {
        .top_k = to->metrics.top_k,
        .images = to->metrics.images - from->metrics.images,
        .top1_hits = to->metrics.top1_hits - from->metrics.top1_hits,
        .topk_hits = to->metrics.topk_hits - from->metrics.topk_hits,
        .loss_sum = to->metrics.loss_sum - from->metrics.loss_sum,
    };

    struct cvy_run_validation validation = {
        .name = v->name,
        .images = part.images,
        .skipped = to->metrics.skipped - from->metrics.skipped,
        .batches = to->batches - from->batches,
        .seconds = to->seconds - from->seconds,
        .wait = to->wait - from->wait,
        .latency = to->latency + from->batches,
    };
    if (!cvy_run_detects(&v->run->options)) /* the numbers of a detector are those of all images together */
        cvy_metrics_measures(&part, &validation.measures);
    return validation;
}

static bool after_batch(void *context, int64_t done)
{
    struct validation *v = context;
    const struct cvy_train_state *state = &v->run->state;

    if (done % v->run->options.print_freq == 0) {
        struct cvy_run_validation part = between(v, &v->seen, &v->pass);
        v->status = cvy_run_log_validation(&v->run->log, state->epoch, state->position, done, &part);
        v->seen = v->pass;
    }
    return v->status == CVY_OK && (!v->progress || v->progress(v->context, done));
}

cvy_status cvy_run_validate(struct cvy_run *run, bool average, cvy_evaluate_progress progress, void *context,
                            struct cvy_run_validation *validation)
{
    struct validation v = {.run = run, .name = average ? "val_ema" : "val", .progress = progress, .context = context};
    struct cvy_plan *plan = &run->evaluator.plan;
    const struct cvy_pass none = {.limit = 0};
    cvy_status status;

    v.pass = (struct cvy_pass){
        .limit = run->options.prof,
        .progress = after_batch,
        .context = &v,
        .collector = average ? NULL : &run->collector,
        .dataset = run->val.sample_count > 0 ? &run->val : NULL,
        .latency = average ? run->latency_average : run->latency,
        .metrics = {.top_k = (int32_t)run->options.topk, .smoothing = cvy_run_val_smoothing(&run->options)},
    };
    if (cvy_run_detects(&run->options) && run->val.sample_count > 0) {
        if (!cvy_area_rule_parse(run->options.area_rule, &v.pass.area_rule))
            return cvy_fail(CVY_USAGE, "option --area-rule is annotation or box, not %s",
                            cvy_quote(run->options.area_rule));
        cvy_coco_close(&run->coco);
        CVY_TRY(cvy_coco_open(&run->coco, run->val.class_count));
        v.pass.coco = &run->coco;
        v.pass.pictures = average ? NULL : &run->pictures;
        if (!average)
            cvy_pictures_clear(&run->pictures);
    } else if (!average) {
        cvy_collector_clear(&run->collector);
    }
    CVY_TRY(cvy_ranks_give_statistics(run, average ? &run->network.average : &run->network.store));
    cvy_plan_use_store(plan, average ? &run->network.average : &run->network.store);
    status = cvy_evaluator_pass(&run->evaluator, &run->val_source, &v.pass);
    cvy_plan_use_store(plan, &run->network.store);
    CVY_TRY(v.status);
    if (status == CVY_OK || (status == CVY_STOPPED && run->comm.world > 1)) /* ranks stop together */
        status = cvy_ranks_join_pass(run, &v.pass, status == CVY_STOPPED);
    CVY_TRY(status);
    if (v.pass.metrics.images == 0)
        return cvy_fail(CVY_BAD_DATA, "no image of the validation set can be read");
    *validation = between(&v, &none, &v.pass);
    return cvy_run_detects(&run->options) ? cvy_run_finish_detection(run, &v.pass, &validation->measures) : CVY_OK;
}
