/* The validation of a run: one pass, a record every --print-freq batches. */
#include <string.h>

#include "base/error.h"
#include "base/system.h"
#include "run/ranks/ranks.h"
#include "run/training/statistics.h"
#include "run/training/training.h"

enum { AGREE_BATCHES = 8 }; /* between two questions of ranks whether one of them was asked to stop */

/* A pass that continues, and where its last record ended. */
struct validation {
    struct cvy_run *run;
    const char *name;               /* "val", "val_ema" */
    cvy_evaluate_progress progress; /* the caller's */
    void *context;
    struct cvy_pass pass;
    struct cvy_pass seen;
    cvy_status status; /* of the records, and of what ranks ask one another */
    char why[1024];    /* of a failure: whoever ends the pass says something else */
    int64_t questions; /* of this pass: as many as the rank with the most batches has */
    bool stopping;     /* some rank was asked to stop */
};

static int64_t count_batches(const struct validation *v)
{
    const int64_t batches = cvy_source_batches(&v->run->data.val_source), limit = v->pass.limit;

    return limit > 0 && limit < batches ? limit : batches;
}

static cvy_status count_questions(struct validation *v)
{
    int64_t min = -count_batches(v);

    if (v->run->ranks.comm.world == 1)
        return CVY_OK;
    CVY_TRY(cvy_ranks_all_reduce_min(&v->run->ranks, &min));
    v->questions = -min / AGREE_BATCHES;
    return CVY_OK;
}

static bool still_good(struct validation *v)
{
    if (v->status != CVY_OK)
        cvy_error_get(v->why, sizeof v->why);
    return v->status == CVY_OK;
}

/* A rank that was asked to stop does not leave the others alone with their shares: all stop together. */
static bool may_go_on(struct validation *v)
{
    v->questions--;
    v->status = cvy_comm_all_reduce_or(&v->run->ranks.comm, cvy_run_stopping(v->run), &v->stopping);
    return still_good(v) && !v->stopping;
}

struct cvy_train_progress cvy_run_validation_progress(const struct cvy_run *run, int64_t batches, double start)
{
    const double seconds = cvy_clock() - start;
    const int64_t all = run->data.val.sample_count;
    const int64_t images = batches * cvy_run_evaluation_batch(&run->config->options) * run->ranks.comm.world;

    return (struct cvy_train_progress){
        .validating = true,
        .epochs = run->config->options.epochs,
        .step = batches,
        .steps = cvy_source_batches(&run->data.val_source),
        .images_per_second = seconds > 0 ? (double)(all > 0 && all < images ? all : images) / seconds : 0,
    };
}

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
        .ranks = v->run->ranks.comm.world,
        .seconds = to->seconds - from->seconds,
        .wait = to->wait - from->wait,
        .latency = to->latency + from->batches,
    };
    /* The numbers of a detector are those of all images together. */
    if (!cvy_run_is_detection(&v->run->config->options))
        cvy_metrics_measures(&part, &validation.measures);
    return validation;
}

static bool after_batch(void *context, int64_t done)
{
    struct validation *v = context;
    const struct cvy_train_state *state = &v->run->state.progress;

    if (done % v->run->config->options.print_freq == 0) {
        struct cvy_run_validation part = between(v, &v->seen, &v->pass);
        v->status = cvy_run_log_validation(&v->run->state.log, state->epoch, state->position, done, &part);
        v->seen = v->pass;
    }
    if (!still_good(v))
        return false;
    const bool going = !v->progress || v->progress(v->context, done);
    if (v->run->ranks.comm.world == 1)
        return going;
    return done % AGREE_BATCHES != 0 || may_go_on(v);
}

/* The pass of this rank's share, and then the questions of those that have a larger one. */
static cvy_status pass_share(struct validation *v)
{
    struct cvy_run *run = v->run;
    cvy_status status = cvy_evaluator_pass(&run->state.evaluator, &run->data.val_source, &v->pass);

    while (status == CVY_OK && v->questions > 0 && may_go_on(v))
        ;
    if (v->status != CVY_OK) {
        cvy_error_put(v->why);
        return v->status;
    }
    return v->stopping ? cvy_fail(CVY_STOPPED, "stopped during validation") : status;
}

/* COCO's numbers of what a pass has found, kept in run->state.coco_result. */
static cvy_status finish_detection(struct cvy_run_state *state, const struct cvy_pass *pass, bool average,
                                   struct cvy_measures *measures)
{
    const struct cvy_store *store = average ? &state->network.average : &state->network.store;
    double losses[CVY_EVAL_LOSSES];
    struct cvy_coco_result result;

    measures->count = 0;
    if (!pass->coco)
        return CVY_OK;
    CVY_TRY(cvy_coco_finish(pass->coco, state->device->threads, &result));
    cvy_coco_measures(result.stats, measures);
    cvy_coco_result_release(&state->coco_result);
    state->coco_result = result;
    for (int i = 0; i < CVY_EVAL_LOSSES; i++)
        losses[i] = pass->loss_sums[i] / (double)pass->metrics.images;
    return cvy_detection_loss_measures(&state->network, store, losses, measures);
}

/* What the pass counts and, of the weights, what is kept of it to be shown. */
static cvy_status prepare_pass(struct validation *v, bool average)
{
    struct cvy_run *run = v->run;
    const struct cvy_train_options *o = &run->config->options;

    v->pass = (struct cvy_pass){
        .limit = o->prof,
        .progress = after_batch,
        .context = v,
        .collector = average ? NULL : &run->state.collector,
        .dataset = run->data.val.sample_count > 0 ? &run->data.val : NULL,
        .latency = average ? run->state.latency_average : run->state.latency,
        .metrics = {.top_k = (int32_t)o->topk, .smoothing = cvy_run_val_smoothing(o)},
    };
    if (!cvy_run_is_detection(o) || !v->pass.dataset) {
        if (!average)
            cvy_collector_clear(&run->state.collector);
        return CVY_OK;
    }
    if (!cvy_area_rule_parse(o->area_rule, &v->pass.area_rule))
        return cvy_fail(CVY_USAGE, "option --area-rule is annotation or box, not %s", cvy_quote(o->area_rule));
    cvy_coco_close(&run->state.coco);
    CVY_TRY(cvy_coco_open(&run->state.coco, run->data.val.class_count));
    v->pass.coco = &run->state.coco;
    v->pass.losses = &run->state.detection_loss;
    if (average)
        return CVY_OK;
    v->pass.pictures = &run->state.pictures;
    cvy_pictures_clear(&run->state.pictures);
    return CVY_OK;
}

cvy_status cvy_run_validate(struct cvy_run *run, bool average, cvy_evaluate_progress progress, void *context,
                            struct cvy_run_validation *validation)
{
    struct validation v = {.run = run, .name = average ? "val_ema" : "val", .progress = progress, .context = context};
    struct cvy_network *network = &run->state.network;
    struct cvy_store *store = average ? &network->average : &network->store;
    struct cvy_plan *plan = cvy_evaluator_plan(&run->state.evaluator);
    const struct cvy_pass none = {.limit = 0};
    cvy_status status;

    CVY_TRY(prepare_pass(&v, average));
    CVY_TRY(cvy_run_precise_statistics(run, average));
    if (strcmp(run->config->options.running_statistics, "own") != 0)
        CVY_TRY(cvy_ranks_broadcast_statistics(run, store));
    CVY_TRY(count_questions(&v));
    cvy_plan_use_store(plan, store);
    status = pass_share(&v);
    cvy_plan_use_store(plan, &network->store);
    CVY_TRY(status);
    CVY_TRY(cvy_ranks_reduce_pass(run, &v.pass));
    if (v.pass.metrics.images == 0)
        return cvy_fail(CVY_BAD_DATA, "no image of the validation set can be read");
    *validation = between(&v, &none, &v.pass);
    return cvy_run_is_detection(&run->config->options)
               ? finish_detection(&run->state, &v.pass, average, &validation->measures)
               : CVY_OK;
}
